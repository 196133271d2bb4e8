"""What a text defines, one line each with its line number: signatures and fields; prose nothing.

For Python by its grammar; for other languages by the form of their lines, since the libraries of
grammars that are kept well fetch them over the network.
"""

import ast
import re
from collections.abc import Container, Iterator, Sequence
from posixpath import splitext

from context_compaction.messages.cache import RecentCache, text_key

_ROW_CHARS = 160
_LINE_CHARS = 4 * _ROW_CHARS  # a longer line defines nothing
_VALUE_CHARS = 60
_SETTINGS = (".json", ".jsonc", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf", ".env")
_PROSE = (".md", ".mdx", ".markdown", ".txt", ".rst", ".org", ".adoc")
_MODIFIERS = (
    r"(?:export|default|declare|public|private|protected|internal|static|abstract|final|override"
    r"|async|virtual|readonly|pub(?:\([\w:]+\))?|unsafe|extern|const|inline|sealed|open|data)\s+"
)
_DEFINES = re.compile(
    rf"^\s*(?:{_MODIFIERS})*(?:(?:def|class|function\*?|func|fn|interface|struct|enum|impl|trait"
    r"|module|namespace|object|protocol|extension|record|union|mod|macro_rules!)\b\s*\S"
    r"|type\s+\w+\b(?!\s*,\s*$)[^=]*=?|\w+\s*(?::[^=]+)?=\s*(?:async\s*)?(?:\([^)]*\)|\w+)\s*(?::[^=]+)?=>"
    r"|(?:get|set)\s+\w+\s*\()"
)
# Methods and fields, as they stand in classes and interfaces.
_METHOD = re.compile(
    rf"^\s+(?:{_MODIFIERS})*[\w$#]+(?:<[^>]*>)?\([^;]*\)\s*"
    # What ends with a semicolon is a call, unless it says what it returns.
    r"(?:\{|(?::\s*[^{;=]+|->\s*\w[^{;]*)[{;])\s*$"
    rf"|^\s+(?:{_MODIFIERS})*(?:[\w<>\[\],.?]+\s+)+\w+\([^;=]*\)\s*(?:throws [\w, .]+)?\{{\s*$"
)
_FIELD = re.compile(rf"^\s+(?:{_MODIFIERS})*[\w$#]+\??:\s*[^=(){{}},]+;\s*$")
_NO_METHOD = re.compile(
    r"^\s*(?:if|for|while|switch|return|await|catch|else|elif|do|try|throw|new|case|super|this|yield"
    r"|assert|print|raise|with|using|lock|when|match)\b"
)
_TEST = re.compile(
    r"(?:^|/)(?:__)?tests?(?:__)?/|(?:^|/)(?:tests?[_.-][^/]*|[^/]*[_.-]tests?\.[^/]+)\Z", re.I
)
# What is named as code: `in backquotes`, called(), snake_case or camelCase.
_NAMED = re.compile(
    r"`([^`\n]{1,80})`|\b([A-Za-z_]\w{2,60})\("
    r"|\b(\w{0,40}[A-Za-z]_[A-Za-z]\w{0,40}|[a-z]{1,40}[A-Z]\w{1,40})\b(?!\.[a-z]{1,4}\b)"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAME_ENDS = re.compile(r"[(=<:\[]")
# In brackets before a name: the receiver of a method in Go, and who sees a definition in Rust.
_IN_BRACKETS = re.compile(r"\Afunc \([^)]*\) |\bpub\([^)]*\) ")
_VALUE = re.compile(r"\s*(?:\[|[\"']?[\w$.-]+[\"']?\s*[:=]\s*[\"'\d\[{tfn-])")
_DOCSTRING = re.compile(r"\s*[rRuU]?(\"{3}|'{3})")
_LINES_AROUND = 3
# Between backquotes a text may go over several lines here.
_QUOTING = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".go", ".vue", ".svelte")
_DATA_SHARE = 0.8


def is_prose(path: str) -> bool:
    """Whether a file contains prose, as its path tells."""
    return path.lower().endswith(_PROSE)


def is_test(path: str) -> bool:
    """Whether a file contains tests, as its path tells."""
    return _TEST.search(path) is not None


def outline(text: str, path: str, first: int = 1) -> str:
    """The definitions of `text` with their line numbers ("12: def f(a: int) -> str").

    Args:
        text: The text of a file, or a part of it.
        path: Its path, whose ending determines the language.
        first: The number of its first line.
    """
    rows = _rows(text, path)
    return "\n".join(f"{first - 1 + number}: {row[:_ROW_CHARS]}" for number, row in rows)


def is_data(text: str, path: str) -> bool:
    """Whether a file is a configuration, or most lines of its text give something a value."""
    if path.lower().endswith(_SETTINGS):
        return True
    rows = [row for row in text.splitlines() if any(map(str.isalnum, row))]
    values = sum(1 for row in rows if _VALUE.match(row))
    return values > len(rows) * _DATA_SHARE


def names_of_code(said: str) -> frozenset[str]:
    """The names that `said` uses as code: with a bracket behind them, in backquotes, snake_case."""
    found = (match[1] or match[2] or match[3] for match in _NAMED.finditer(said))
    return frozenset(word for text in found for word in _WORD.findall(text))


def functions(
    text: str, path: str, names: Container[str] | None = None
) -> list[tuple[str, int, int]]:
    """The functions in `text`: name, first and last line, with what decorates them.

    With `names` those of these names alone.
    """
    found: list[tuple[str, int, int]] = []
    rows = _rows(text, path)
    lines = text.split("\n")
    for at, (number, row) in enumerate(rows):
        if "(" not in row:
            continue
        head = _WORD.findall(_NAME_ENDS.split(_IN_BRACKETS.sub("", row), maxsplit=1)[0])
        if not head or (names is not None and head[-1] not in names):
            continue
        indent = len(row) - len(row.lstrip())
        after = (n for n, other in rows[at + 1 :] if len(other) - len(other.lstrip()) <= indent)
        stop = _closed_at(lines, number, next(after, len(lines) + 1) - 1)
        start = number
        while start > 1 and lines[start - 2].lstrip().startswith("@"):
            start -= 1
        while stop > number and (not (last := lines[stop - 1].strip()) or last.startswith("@")):
            stop -= 1
        found.append((head[-1], start, stop))
    return found


def _closed_at(lines: Sequence[str], number: int, last: int) -> int:
    """The line up to `last` that closes the definition in line `number`, by a bracket below it."""
    head = lines[number - 1]
    close = head[: len(head) - len(head.lstrip())] + "}"
    return next((n + 1 for n in range(number, last) if lines[n].startswith(close)), last)


def may_define(text: str, name: str) -> bool:
    """Whether a line of `text` may define `name`, which is told far sooner than what all define."""
    at = text.find(name)
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        if not _NAME_ENDS.search(_IN_BRACKETS.sub("", text[start : min(at, start + _LINE_CHARS)])):
            line = text[start : start + _LINE_CHARS].partition("\n")[0]
            if line.lstrip().startswith(name) or _is_definition(line):
                return True
        at = text.find(name, at + len(name))
    return False


def parts_around(text: str, path: str, first: int, last: int) -> list[tuple[int, int]]:
    """First and last line of what the lines from `first` to `last` are told with.

    The functions that they belong to, where there are such, and a few lines around.
    """
    defined = functions(text, path)
    touched = [(start, stop) for _, start, stop in defined if start <= last and first <= stop]
    start = min([first, *(start for start, _ in touched)])
    stop = max([last, *(stop for _, stop in touched)])
    # A name near above tells whose lines they are.
    from_name = start if first - start <= 3 * _LINES_AROUND else first
    above = max(1, min(from_name, first - _LINES_AROUND))
    around = above, min(text.count("\n") + 1, last + _LINES_AROUND)
    return [(start, stop), around] if touched else [around]


def without_documentation(rows: Sequence[str]) -> list[str]:
    """The lines of Python functions, of whose docstrings only the first line with words."""
    kept: list[str] = []
    quote = told = ""
    for row in rows:
        if quote:
            told = told or row.partition(quote)[0].strip()
            if quote in row:
                kept[-1] += f"{told} […]{quote}"
                quote = ""
            continue
        kept.append(row)
        opened = _DOCSTRING.match(row)
        if opened and kept[-2:-1] and kept[-2].rstrip().endswith(":"):
            told = row[opened.end() :].strip()
            if opened[1] not in told:
                quote = opened[1]
                kept[-1] = row[: opened.end()]
    return kept if not quote else list(rows)


def _rows(text: str, path: str) -> list[tuple[int, str]]:
    kind = splitext(path)[1].lower()
    if not kind or is_prose(path):
        return []
    # A compaction asks for the same ones again and again. No text is kept for that.
    key = hash((kind, text_key(text)))
    return _known_rows.get_or_compute(key, lambda: _rows_of(text, kind))


_known_rows: RecentCache[list[tuple[int, str]]] = RecentCache(64)


def _rows_of(text: str, kind: str) -> list[tuple[int, str]]:
    rows = _python(text) if kind in (".py", ".pyi") else None
    return _by_lines(text, kind) if rows is None else rows


def _python(text: str) -> list[tuple[int, str]] | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return list(_defined(tree.body, ""))


def _defined(body: list[ast.stmt], indent: str) -> Iterator[tuple[int, str]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if any("overload" in ast.unparse(made) for made in node.decorator_list):
                    continue  # what it takes stands in the one that does it
                word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
                result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                yield node.lineno, f"{indent}{word} {node.name}({ast.unparse(node.args)}){result}"
            case ast.ClassDef():
                bases = ", ".join(ast.unparse(base) for base in node.bases)
                yield node.lineno, f"{indent}class {node.name}" + (f"({bases})" if bases else "")
                yield from _defined(node.body, f"{indent}    ")
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield node.lineno, f"{indent}{name}: {ast.unparse(node.annotation)}"
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                value = ast.unparse(node.value)
                short = value if len(value) <= _VALUE_CHARS else f"{value[:_VALUE_CHARS]}…"
                yield node.lineno, f"{indent}{name} = {short}"
            case _:
                pass


def _by_lines(text: str, kind: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    is_quoted = False
    for number, line in enumerate(text.split("\n"), 1):
        if not is_quoted and len(line) <= _LINE_CHARS and _is_definition(line):
            found.append((number, line.rstrip().rstrip("{").rstrip()))
        # A text in the code, over several lines, may be of any language.
        if kind in _QUOTING and line.count("`") % 2:
            is_quoted = not is_quoted
    return found


def _is_definition(line: str) -> bool:
    if _NO_METHOD.match(line):
        return False
    return bool(_DEFINES.match(line) or _METHOD.match(line) or _FIELD.match(line))
