"""The words of a shell command: its pipelines, programs, redirections, and the paths among them."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

from context_compaction.activity.file_paths import is_absolute, joined_path, plain_path

# A text between quotation marks in a command line.
QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*+\"")
# A document in a command line: the quote and the word of its mark, what follows that, its text.
HEREDOC = re.compile(
    r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n(.*?)(?:\n|\A|(?<=\n))[ \t]*\2[ \t]*(?=\n|\Z|\)|;|&)",
    re.DOTALL,
)
# A comment, or what stands in quotes, where a number sign begins none.
_COMMENT = re.compile(
    rf"({QUOTED.pattern}|\\.)|(?:^|(?<=[\s;&|(]))#[^\n]*", re.DOTALL | re.MULTILINE
)
# `shlex` forgets which words stood in quotes: those that look like operators are marked.
_QUOTED_OPERATOR = re.compile(r"(['\"])([;&|<>]+)\1")
_QUOTE = "\ue000"
# A path of Windows; shells of other systems drop a backslash before a letter, so there is none.
_UNQUOTED_PATH = re.compile(
    rf"({QUOTED.pattern})|(?<![^\s=>,(:])(?:[A-Za-z]:|[\w.-]+)(?:\\[\w*-][\w.*-]*)+\\?(?![^\s;|&)<>,])"
)
_ENDS_LIST = (";", "&", ";;")
_OPENS = frozenset({"if", "for", "while", "until", "case", "{", "(", "function", "select"})
_CLOSES = frozenset({"fi", "done", "esac", "}", ")"})
# Where they fail, they say so, and their output is shown.
_TELLS_FAILURE = frozenset({
    "cat", "cd", "cp", "echo", "git", "head", "ls", "mkdir", "mv", "printf", "python", "python3",
    "rm", "sed", "tail", "touch",
})  # fmt: skip
_BEFORE_PROGRAM = frozenset({
    "sudo", "env", "time", "nohup", "command", "exec", "nice", "then", "do", "else", "{", "(", "!",
})  # fmt: skip
_RUNNERS = re.compile(
    r"\A(?:npx|bunx|pnpx|uvx|(?:uv|poetry|pdm|hatch) run|python3? -m"
    r"|(?:corepack )?(?:npm|pnpm|yarn) exec|(?:mise|rtx) (?:x|exec)(?: [\w@.:/-]+)* --) "
)
_TEMPORARY = re.compile(r"\b(\w+)=\$\(mktemp\b")
_VARIABLE = re.compile(r"\$\{?(\w+)")
GLOB = re.compile(r"[*?\[{$`]")


def without_comments(line: str) -> str:
    """`line`, which has no documents, without its comments; where it is nothing else, as it is."""
    if "#" not in line:
        return line
    bare = _COMMENT.sub(lambda found: found[1] or "", line)
    return bare if bare.strip() else line


def line_words(line: str) -> list[str]:
    """The words of a command line without documents, operators among them; ";" for its lines.

    Raises:
        ValueError: A quotation mark is open.
    """
    line = without_comments(line).replace("\\\n", " ")
    # The backslashes of Windows paths are to outlast the splitting in words.
    line = _UNQUOTED_PATH.sub(lambda found: found[1] or found[0].replace("\\", "\\\\"), line)
    line = _QUOTED_OPERATOR.sub(rf"\1{_QUOTE}\2\1", re.sub(r"\n+", " ; ", line))
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def pipelines(words: Sequence[str]) -> Iterator[tuple[list[list[str]], bool]]:
    """The pipelines of a command line, each as its commands, and whether it certainly ran.

    What a condition guards may not have run, nor what follows a command that may fail silently;
    where it ends the line, the exit code decides.
    """
    pipeline: list[list[str]] = [[]]
    depth, is_certain = 0, True
    last_list = max((n for n, word in enumerate(words[:-1]) if word in _ENDS_LIST), default=-1)
    for n, word in enumerate((*words, ";")):
        if word in _ENDS_LIST or word in ("&&", "||"):
            if any(pipeline):
                first = next(part for part in pipeline if part)[0]
                depth += first in _OPENS or first.endswith(("()", "{"))
                yield [part for part in pipeline if part], is_certain and not depth
                depth -= first in _CLOSES and depth > 0
                is_told = program_of(pipeline[-1])[0] in _TELLS_FAILURE or n > last_list
                is_certain = is_certain and is_told
            pipeline = [[]]
            is_certain = word != "||" and (is_certain or word != "&&")
        elif word in ("|", "|&"):
            pipeline.append([])
        else:
            pipeline[-1].append(word)


def program_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """The program that a simple command runs, and its arguments."""
    at = 0
    words = [word for word in (words[0].lstrip("("), *words[1:]) if word] if words else []
    while at < len(words) and (words[at] in _BEFORE_PROGRAM or re.match(r"\w+=", words[at])):
        at += 1
    if words[at : at + 1] == ["timeout"]:
        at += 2
    rest = list(words[at:])
    if runner := _RUNNERS.match(" ".join(rest)):
        rest = [word for word in rest[runner[0].count(" ") :] if word not in ("-y", "--yes", "--")]
    return (posixpath.basename(rest[0]), rest[1:]) if rest else ("", [])


def placed(path: str, folder: str | None, *, may_match: bool = False) -> str | None:
    """`path` as seen from where other calls' paths start; None where that is not known.

    `may_match` is whether it may contain stars, which match names of files.
    """
    found = GLOB.search(path.replace("*", "") if may_match else path)
    if found or path in ("-", "") or "**" in path:
        return None
    if is_absolute(path) or path.startswith("~/"):
        return plain_path(path)
    return None if folder is None else joined_path(folder, path)


def temporary_variables(words: Sequence[str]) -> frozenset[str]:
    """The variables that a command line has hold a new file or folder, which nothing else names."""
    return frozenset(named[1] for word in words if (named := _TEMPORARY.match(word)))


def variable_in(word: str) -> str | None:
    """The variable that a word begins with."""
    found = _VARIABLE.match(word)
    return found and found[1]


def redirections(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """`words` without redirections, and these: operator and target."""
    kept: list[str] = []
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word and set(word) <= set("<>&|") and at + 1 < len(words) and set(word) & set("<>"):
            if kept and kept[-1] in ("1", "2") and ">" in word:
                kept.pop()
            found.append((word, words[at + 1]))
            at += 2
            continue
        kept.append(word)
        at += 1
    return kept, found
