#!/usr/bin/env python3
"""Count patterns of unclear English in prose, names and tests, per folder.

    python3 .ci/dialect.py ROOT [FOLDER ...] [--files N] [--show PATTERN] [--json] [--check]

With `--check` the exit code is 1 if a folder exceeds its limit in LIMITS.

Without FOLDER, every top-level folder of ROOT is one row. Rates are per 1,000 words of prose
(identifiers and test names: per 1,000 definitions), so that projects of any size compare.
Prose is docstrings, comments, string literals of five words or more, and Markdown outside code.
"""

import argparse
import ast
import collections
import io
import json
import re
import sys
import tokenize
from pathlib import Path

W = r"[A-Za-z’']+"
# Each: name, where it looks (doc, comment, string, md), pattern.
PROSE = {
    # "... of which this many are the first ones": a sentence spread over several attribute docs.
    "ellipsis_run_on": (
        ("doc", "comment"),
        r"(?m)(?:\s\.\.\.\s*$|^\s*(?:\w+:\s+)?\.\.\.\s+[a-z]|\s…\s*$)",
    ),
    # "Where there is none, ...": `where` for if/when. Relative "the place where" is left alone.
    "where_for_if": (
        None,
        r"\b(?:Where\s(?!to\b|is\b|are\b|do\b|possible|appropriate|applicable)"
        r"|(?:[,;:]|\bonly|\bor|\band|\bbut|\bnone|\bNone|\bnothing)\s+where\s)(?!to\b)",
    ),
    # "None where it has none"
    "none_where": (None, r"\b[Nn]one\s(?:where|if there is none|without)\b"),
    # "Of a tail only the end is looked through"; "To whom ..."; "With it ..." at a sentence's start.
    "inverted_opening": (
        None,
        r"(?:^|(?<=[.!?:]\s))(?:Of\s(?:a|an|the|one|each|all|it|its|them|which|what|long|several|this|these|those|some)\b"
        r"|(?:Neither|Nor|Nobody|Whoever|Whatever|Who|Such|So much|So many|So that|Mostly|Likewise)\s(?!as\b)[a-z])",
    ),
    # "what it was asked for by", "what is to be", "that of what": free relatives instead of nouns.
    "what_for_noun": (
        None,
        r"\b(?:what\s(?:is|was|are|were|it|they|the|a|an|no|one|that|this|each|stands|stays|goes|came|comes|left|leaves|"
        r"fits|lies|others|ours|all|has|had|may|must|will|would|can|cannot|remains|belongs|follows|changed)\b)",
    ),
    # "of ours", "of theirs", "a fault of ours"
    "of_ours": (None, r"\b(?:of\s(?:ours|theirs|mine|its\sown|their\sown|his\sown)|ours)\b"),
    "cleared_word": (
        None,
        r"\b(?:stands?|stood|told|tells|said|gone|goes\son|go\son|going\son|put\sback|puts\sback|comes?\sback|came\sin|comes\sin|goes\sout|go\sout|"
        r"taken\sfor|takes?\sback|taken\sback|left\sout|hand(?:s|ed)?\s(?:in|over)|in\svain|anew|at\sonce|mended|cured?|beside|nobody|mostly|"
        r"so\smuch|so\smany|as\sfar\sas|as\slong\sas\sthat|all\sthe\ssame|the\sother\sway|wants?\sto\sknow|is\snone|are\snone|behind\s(?:it|them|the|an?)|"
        r"is\sto\s(?!be\b)[a-z]+|is\sto\sbe|are\sto\sbe|by\sits\sname|lies|lie|worth)\b",
    ),
    # "one that", "that of", "those that", "the ones": pronouns in place of nouns.
    "pronoun_for_noun": (
        None,
        r"\b(?:one\s(?:that|which|is|was|may|has|of\s(?:it|them|theirs))|that\sof|those\s(?:that|of|which|in)|the\s(?:ones?|other|others|latter|former|same)\b(?=[\s,.;]))",
    ),
    # A sentence of one or two words: "Pure."
    "stub_sentence": (("doc", "comment"), r"(?:(?<=[.!?]\s)|^)[A-Z][a-z]+(?:\s[a-z]+)?\.(?=\s|$)"),
}
FIRST = re.compile(
    r"^(?:What|Whose|Who|Of|So|How|All\sthat|Those|That|As\s(?:far|much)|To\s|No\s|Nothing|Where|Whether|"
    r"From\s|Behind|Beside|One\s(?:of|that)|The\s(?:one|same|rest)|Only\s)"
)
PRIVATE = frozenset(
    "told tell tells telling said say says kept gone goes wanted want wants met meet meets heard hear mine ours one "
    "put puts back stands stood standing stand beside behind anew whole wish wishes mended worth deed deeds "
    "taken takes apart others theirs nobody nothing lost came comes left stays stay loose doubt doubted "
    "spoken sure touched bare".split()
)
TEST_BAD = re.compile(
    r"^test_(?:what|who|whoever|whose|where|nothing|nobody|no|only|all|one|of|to|so|it|that|those|each|every|neither)_"
    r"|_(?:what|who|whose|told|said|stands|nobody|beside|anew|gone|ours|none_where|is_to_be|all_the_same)(?:_|$)"
)
AUX = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|do|does|did|can|cannot|could|may|might|must|will|would|should|shall|"
    r"isn't|don't|doesn't|won't|can't|let|see|use|return|raise|get|set|make|need|give|take|keep|run|read|write|find|add|call|"
    r"mean|become|want|allow|try|put|hold|go|come|know|show|send|ask|begin|end|stop|start|work|happen|apply|pass|leave|lie|stand|stay|count|contain|fit)\b"
    r"|\b[a-z]+(?:s|ed|en)\b|\b(?:wrote|began|came|went|gave|left|found|kept|made|ran|sent|told|said|lost|held|met|read|cut|put|knew|saw|stood|took)\b",
    re.I,
)
# Limits of the score per folder, for `--check`.
LIMITS = {
    "CHANGELOG.md": 5,
    "CONTRIBUTING.md": 5,
    "README.md": 5,
    "benchmarks": 5,
    "compaction": 5,
    "docs": 5,
    "examples": 5,
    "packages": 5,
    "server": 5,
    "tests": 5,
}
SKIP = {".git", ".venv", "node_modules", "__pycache__", "sessions", "questions", "site", "scripts"}


def docs_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                line = node.body[0].lineno
                yield line, text, node
            # A string below a class attribute documents it (sphinx, anyio).


def is_predicate(node):
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    returns = node.returns
    text = ast.unparse(returns) if returns is not None else ""
    return "bool" in text.lower() or "TypeGuard" in text or "TypeIs" in text


def strings_of(tree):
    docs = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and n.body
        and isinstance(n.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            id(node) in docs
            or not isinstance(node, ast.Constant)
            or not isinstance(node.value, str)
        ):
            continue
        text = node.value
        words = re.findall(r"\b[a-z]{2,}\b", text)
        # Prose only: lowercase words with blanks between, no code and no SQL.
        if (
            len(words) >= 5
            and " " in text
            and not re.search(
                r"[{}\[\]=<>$\\|]{2}|SELECT |CREATE |INSERT |\\[bdsw]|\(\?[:=P!]", text
            )
        ):
            yield node.lineno, text


def comments_of(source):
    block, start, last = [], 0, -2
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT:
                continue
            text = token.string.lstrip("#!: ").rstrip()
            if re.match(r"(?:noqa|type:|pyright|pragma|fmt:|ruff|mypy|-\*-)", text):
                continue
            if token.start[0] == last + 1 and block:
                block.append(text)
            else:
                if block:
                    yield start, " ".join(block)
                block, start = [text], token.start[0]
            last = token.start[0]
    except (tokenize.TokenError, IndentationError):
        pass
    if block:
        yield start, " ".join(block)


def markdown_of(text):
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and line.strip() and not line.startswith(("|", "    ", "<", "![")):
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "`x`", line).strip()


def verbless(text):
    """Sentences of six words or more, ended by a period, in which nothing looks like a verb."""
    for sentence in re.split(r"(?<=[.!?])\s+|\n\s*\n", text):
        flat = " ".join(sentence.split())
        words = re.findall(W, flat)
        if len(words) >= 6 and flat.endswith(".") and not AUX.search(flat.replace("`", "")):
            yield flat


class Tally:
    def __init__(self):
        self.counts = collections.Counter()
        self.words = self.docs = self.names = self.tests = 0
        self.examples = collections.defaultdict(list)

    def hit(self, name, where, text):
        self.counts[name] += 1
        self.examples[name].append((where, " ".join(text.split())[:140]))


def prose(tally, kind, where, text):
    tally.words += len(re.findall(W, text))
    flat = text if kind == "doc" else " ".join(text.split())
    for name, (kinds, pattern) in PROSE.items():
        if kinds is None or kind in kinds:
            for found in re.finditer(pattern, flat):
                tally.hit(name, where, flat[max(0, found.start() - 40) : found.end() + 60])
    if kind in ("doc", "comment"):
        body = (
            flat.split("\n\n", 1)[1]
            if kind == "doc" and "\n\n" in flat
            else ""
            if kind == "doc"
            else flat
        )
        for sentence in verbless(
            re.split(r"(?m)^(?:Args|Attributes|Raises|Returns|:param)", body)[0]
        ):
            tally.hit("verbless_sentence", where, sentence)


def python_file(path, label, tally):
    source = path.read_text("utf-8")
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for line, text, node in docs_of(tree):
        prose(tally, "doc", f"{label}:{line}", text)
        tally.docs += 1
        first = text.split("\n", 1)[0]
        if FIRST.match(first) and not (first.startswith("Whether") and is_predicate(node)):
            tally.hit("first_line", f"{label}:{line}", first)
    for line, text in comments_of(source):
        prose(tally, "comment", f"{label}:{line}", text)
    for line, text in strings_of(tree):
        prose(tally, "string", f"{label}:{line}", text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith(
            "test_"
        ):
            tally.tests += 1
            if TEST_BAD.search(node.name):
                tally.hit("test_name", f"{label}:{node.lineno}", node.name)
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.alias):
            continue
        else:
            continue
        tally.names += 1
        parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_").split("_")
        if PRIVATE.intersection(parts):
            tally.hit("identifier", f"{label}:{node.lineno}", name)


def measure(root, folder):
    total, by_file = Tally(), {}
    base = root / folder
    paths = [base] if base.is_file() else sorted(base.rglob("*"))
    for path in paths:
        if SKIP.intersection(path.relative_to(root).parts) or not path.is_file():
            continue
        tally = Tally()
        label = str(path.relative_to(root))
        if path.suffix == ".py":
            python_file(path, label, tally)
        elif path.suffix in (".md", ".rst") and path.stat().st_size < 400_000:
            for line, text in markdown_of(path.read_text("utf-8")):
                prose(tally, "md", f"{label}:{line}", text)
        else:
            continue
        by_file[label] = tally
        total.counts += tally.counts
        for name in ("words", "docs", "names", "tests"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
        for name, examples in tally.examples.items():
            total.examples[name] += examples
    return total, by_file


COLUMNS = [*PROSE, "verbless_sentence"]


def score(tally):
    """Prose hits per 1,000 words, all patterns together."""
    return sum(tally.counts[name] for name in COLUMNS) / max(tally.words, 1) * 1000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--files", type=int, default=0, help="also list the N worst files")
    parser.add_argument("--show", help="print examples of one pattern")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a folder exceeds its limit")
    args = parser.parse_args()
    folders = args.folders or sorted(
        p.name
        for p in args.root.iterdir()
        if p.name not in SKIP
        and not p.name.startswith(".")
        and (p.is_dir() or p.suffix in (".md", ".rst"))
    )
    rows, files = {}, {}
    for folder in folders:
        rows[folder], found = measure(args.root, folder)
        files.update(found)
    rows = {folder: tally for folder, tally in rows.items() if tally.words}
    if args.check:
        over = {name: score(t) for name, t in rows.items() if score(t) > LIMITS.get(name, 5)}
        for name, value in over.items():
            print(
                f"{name}: {value:.1f} exceeds {LIMITS.get(name, 5)}. See .ci/dialect.py . {name} --files 10."
            )
        return 1 if over else 0
    if args.show:
        for tally in rows.values():
            for where, text in tally.examples[args.show]:
                print(f"{where}  {text}")
        return
    if args.json:
        print(
            json.dumps(
                {
                    f: dict(
                        t.counts,
                        words=t.words,
                        docs=t.docs,
                        names=t.names,
                        tests=t.tests,
                        score=round(score(t), 1),
                    )
                    for f, t in rows.items()
                },
                indent=1,
            )
        )
        return
    print(
        f"{'folder':22}{'words':>8}{'score':>7}"
        + "".join(f"{n[:9]:>10}" for n in COLUMNS)
        + f"{'first/doc':>11}{'ident/k':>9}{'test%':>7}"
    )
    for folder, t in rows.items():
        print(
            f"{folder[:21]:22}{t.words:>8}{score(t):>7.1f}"
            + "".join(f"{t.counts[n]:>10}" for n in COLUMNS)
            + f"{t.counts['first_line'] / max(t.docs, 1):>10.0%} {t.counts['identifier'] / max(t.names, 1) * 1000:>8.1f}"
            + f"{t.counts['test_name'] / max(t.tests, 1):>7.0%}"
        )
    if args.files:
        worst = sorted((i for i in files.items() if i[1].words >= 150), key=lambda i: -score(i[1]))[
            : args.files
        ]
        print("\nworst files by hits per 1,000 words (150 words or more)")
        for label, t in worst:
            print(f"{score(t):7.1f}  {sum(t.counts[n] for n in COLUMNS):5}  {label}")
        print("\nmost hits in all")
        for label, t in sorted(files.items(), key=lambda i: -sum(i[1].counts.values()))[
            : args.files
        ]:
            print(f"{sum(t.counts.values()):7}  {score(t):6.1f}  {label}")


if __name__ == "__main__":
    sys.exit(main())
