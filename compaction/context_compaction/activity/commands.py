"""Effects of shell commands on files: shown, written, deleted and possibly changed files.

`cat FILE`, `head FILE` and `sed -n A,Bp FILE` show a file. `cat > FILE <<EOF` writes one, `rm`
deletes files. Any other program that names a file and does not only read it may have changed it.
Nothing else is interpreted: no scripts, no `sed -i`, no git, no moves.

The heredocs are taken out of the command first. Then `shlex` splits the rest. It takes a quoted
operator for a real operator, so such a line may seem less certain than it is.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from context_compaction.activity.calls import Deletes, ToolUse, Writes, is_absolute, plain_path
from context_compaction.messages.model import ToolCall, memoized_on_call
from context_compaction.messages.names import names_in

# These programs read, run or test the files that they name.
_READERS = frozenset({
    "", "[", "[[", "awk", "basename", "bash", "cargo", "cat", "cd", "chmod", "code", "curl", "cut",
    "diff", "dirname", "docker", "echo", "egrep", "eslint", "exit", "export", "file", "find",
    "flake8", "gawk", "get-content", "gh", "git", "go", "grep", "head", "jest", "jq", "kill",
    "less", "ls", "make", "md5sum", "mkdir", "more", "mypy", "nl", "node", "npm", "npx", "od",
    "open", "perl", "php", "pnpm", "poetry", "printf", "ps", "pwd", "pyright", "pytest", "python",
    "python3", "realpath", "rg", "ruby", "ruff", "sed", "select-string", "set", "sh", "sha256sum",
    "sleep", "sort", "source", "ssh", "stat", "tail", "test", "tr", "tree", "true", "tsc", "tsx",
    "uniq", "uv", "vitest", "wait", "wc", "which", "xargs", "xxd", "yarn", "yq", "zsh",
})  # fmt: skip
# With -i or -o these programs change the files that they read.
_STREAM_EDITORS = frozenset({"sed", "perl", "gawk", "yq", "sort", "curl"})
_SHELLS = frozenset({"bash", "sh", "zsh"})
# These programs run code from their arguments, which may write the files that the code names.
_INTERPRETERS = _SHELLS | {"python", "python3", "node", "ruby", "perl", "php", "tsx"}
# Words of commands that rewrite files that they find themselves.
_REWRITERS = frozenset({
    "--fix", "--write", "--in-place", "autopep8", "biome", "black", "clang-format", "codemod",
    "fix", "fmt", "format", "gofmt", "goimports", "isort", "pre-commit", "prettier", "rustfmt",
    "yapf", "-delete", "-exec", "-i", "rm", "am", "apply", "checkout", "cherry-pick", "clean",
    "merge", "mv", "pull", "rebase", "reset", "restore", "revert", "stash", "switch",
})  # fmt: skip
# One of the first six words after these programs may be such a word.
_RUNNERS = frozenset({
    "bun", "cargo", "eslint", "find", "git", "go", "just", "make", "npm", "npx", "pnpm", "poetry",
    "python", "python3", "ruff", "uv", "xargs", "yarn",
})  # fmt: skip
# With these words such a command changes no file: it checks, shows something, or makes a branch.
_KEEPS = frozenset({
    "--check", "--diff", "--dry-run", "--list-different", "-b", "-B", "-c", "--soft", "list",
    "show",
})  # fmt: skip
# These programs print nothing.
_SILENT = frozenset({"cd", "mkdir", "export", "set", "source", "true", "rm", "touch", "chmod", ":"})
_OPENS = frozenset({"if", "for", "while", "until", "case", "{", "function", "select", "exit"})
_BEFORE_PROGRAM = frozenset({"sudo", "env", "time", "nohup", "command", "exec", "nice", "!"})
_TWO_WORDS_BEFORE = ("timeout ", "uv run", "poetry run", "python -m", "python3 -m")
_PIPES = ("|", "|&")
_SIGNS = ";&|<>()\n"
# Between these operators each command runs in the shell itself.
_PLAIN_OPERATORS = frozenset({"\n", ";", "&&", *_PIPES})
# The shell may expand a word with one of these signs.
EXPANDED = frozenset("$`*?[")

# A command line that is longer, without its heredocs, was not written by hand.
_MAX_COMMAND_CHARS = 20_000
_HEREDOC = re.compile(r"(?<!<)<<(-?)[ \t]*(['\"\\]?)([\w.-]{1,80})['\"]?")
# Comments, ends of continued lines, and numbers of redirected streams.
_IGNORED = re.compile(r"(?<![^\s;&|()])(?:#[^\n]*|\d+(?=[<>]))|\\\n")
_LINES = re.compile(
    r"head(?: -n ?| -| --lines=)(?P<count>\d{1,9})"
    r"|sed -n (?P<start>\d{1,9})(?:,(?P<stop>\d{1,9}|\$))?p;?"
)


@dataclass(frozen=True, slots=True)
class Shows:
    """Lines of a file that a command prints.

    Attributes:
        path: The file.
        start: Number of the first line, from 1.
        count: Number of lines that the command asks for; None for all from `start` on.
    """

    path: str
    start: int = 1
    count: int | None = None


@dataclass(frozen=True, slots=True)
class MayChange:
    """A possible change of files.

    Attributes:
        words: Words that may name the files; none if any file may have changed.
        or_any: Whether any file may have changed if no word names a known file.
    """

    words: tuple[str, ...] = ()
    or_any: bool = False


Effect: TypeAlias = Writes | Deletes | MayChange


@dataclass(frozen=True, slots=True)
class CommandEffects:
    """Effects of a command line on files. Paths start from the folder in which it runs.

    Attributes:
        shows: The file that it prints, if it prints nothing else.
        effects: Writes, removals and possible changes, in order. Writes and removals have happened
            if the whole command line succeeds.
        folder: Folder of the shell after the command: "" if unchanged, None if it is not known.
    """

    shows: Shows | None = None
    effects: tuple[Effect, ...] = ()
    folder: str | None = ""


@dataclass(slots=True)
class _Command:
    """A simple command. Its words have no quotes.

    Attributes:
        words: Its words.
        redirects: The sign and the target of each redirection.
        heredoc: The text of its heredoc, or None.
        expands: Whether the shell may expand something in that text.
        operator: The operator after it.
        program: The name of the program in lower case.
        arguments: The words after the program.
    """

    words: list[str] = field(default_factory=list[str])
    redirects: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    heredoc: str | None = None
    expands: bool = False
    operator: str = ""
    program: str = ""
    arguments: Sequence[str] = ()

    @property
    def written(self) -> list[tuple[str, bool]]:
        """The files that its output goes to, and whether it is appended to them."""
        return [
            (target, sign == ">>")
            for sign, target in self.redirects
            if ">" in sign and not _is_nowhere(target)
        ]

    def find_program(self) -> None:
        """Set `program` and `arguments`."""
        words = self.words
        while words and (words[0] in _BEFORE_PROGRAM or _is_assignment(words[0])):
            words = words[1:]
        if " ".join(words[:2]).startswith(_TWO_WORDS_BEFORE):
            words = words[2:]
        if words:
            self.program, self.arguments = posixpath.basename(words[0]).lower(), words[1:]


def command_effects(call: ToolCall, use: ToolUse) -> CommandEffects:
    """Return the effects of the command of `call`, whose use is `use`."""
    return memoized_on_call(call, _effects_of, use)


def _effects_of(_: ToolCall, use: ToolUse) -> CommandEffects:
    line = use.command or ""
    try:
        commands = _simple_commands(line)
    except ValueError:
        return CommandEffects(effects=(MayChange(_paths_in(line)),), folder=None)
    all_run = _all_run(commands)
    shows: list[Shows | None] = []
    effects: list[Effect] = []
    folder: str | None = ""
    is_piped = False  # whether the command reads the output of the previous command
    for command in commands:
        if command.program in ("cd", "pushd", "popd"):
            is_known = command.program == "cd" and len(command.arguments) == 1 and all_run
            folder = _path_of(command.arguments[0], folder) if is_known else None
            folder = "" if folder == "." else folder
        else:
            is_certain = all_run and not is_piped
            if _prints(command):
                shows.append(_shown(command, folder) if is_certain else None)
            effects += _changes(command, folder, is_certain=is_certain)
        is_piped = command.operator in _PIPES
    return CommandEffects(shows[0] if len(shows) == 1 else None, tuple(effects), folder)


def _without_heredocs(command: str) -> tuple[str, dict[str, tuple[str, bool]]]:
    """Return the command with a name in place of each heredoc, and the heredocs by name.

    A heredoc is its text, and whether the shell may expand something in it.

    Raises:
        ValueError: A heredoc is open.
    """
    lines = iter(command.split("\n"))
    heredocs: dict[str, tuple[str, bool]] = {}

    def take(match: re.Match[str]) -> str:
        rows: list[str] = []
        while (row := next(lines, None)) is not None and row.strip() != match[3]:
            rows.append(row.lstrip("\t") if match[1] else row)
        if row is None:
            raise ValueError("a heredoc is open")
        text = "".join(f"{row}\n" for row in rows)
        name = f"\0{len(heredocs)}"
        heredocs[name] = text, not match[2] and any(sign in text for sign in "$`\\")
        return f"<<{name} "

    return "\n".join([_HEREDOC.sub(take, line) for line in lines]), heredocs


def _simple_commands(command: str) -> list[_Command]:
    """Return the simple commands of a command line in order.

    Raises:
        ValueError: A quote or a heredoc is open, the line is too long, or it is a script that calls
            other tools (Codex).
    """
    code, heredocs = _without_heredocs(command)
    if len(code) > _MAX_COMMAND_CHARS or "await tools." in code:
        raise ValueError("the command is a script")
    # A backslash before a letter belongs to a path of Windows.
    code = re.sub(r"\\(?=\w)", "/", _IGNORED.sub(" ", code))
    tokens = shlex.shlex(f"{code}\n", posix=True, punctuation_chars=_SIGNS)
    tokens.whitespace, tokens.whitespace_split, tokens.commenters = " \t\r", True, ""
    commands = [_Command()]
    redirect = ""
    for token in tokens:
        last = commands[-1]
        if not token or token.strip(_SIGNS):
            if redirect == "<<":
                last.heredoc, last.expands = heredocs.get(token, ("", True))
            elif redirect:
                last.redirects.append((redirect, token))
            else:
                last.words.append(token)
            redirect = ""
        elif "<" in token or ">" in token:
            redirect = token
        else:
            redirect, last.operator = "", token.strip("\n") or "\n"
            last.find_program()
            commands.append(_Command())
    return [each for each in commands if each.words or each.redirects or each.operator.strip()]


def _path_of(word: str, folder: str | None) -> str | None:
    """Return the path of `word` in `folder`, from where the line starts; None if unknown."""
    if word in ("", "-") or not EXPANDED.isdisjoint(word):
        return None
    path = plain_path(word)
    if is_absolute(path) or folder is None:
        return path if is_absolute(path) else None
    return posixpath.normpath(posixpath.join(folder, path))


def _all_run(commands: Sequence[_Command]) -> bool:
    """Whether each command has run to its end if the command line succeeds."""
    operators = [command.operator for command in commands]
    # The command line returns the status of its last list only.
    later = operators[operators.index("&&") : -1] if "&&" in operators else ()
    return (
        _PLAIN_OPERATORS.issuperset(operators)
        and not {";", "\n"} & {*later}
        and not any(_OPENS.intersection(command.words[:1]) for command in commands)
    )


def _prints(command: _Command) -> bool:
    """Whether the output of a command is in the result."""
    if command.operator in _PIPES or not command.words or command.program in _SILENT:
        return False
    return not (command.written and command.program in ("cat", "echo", "printf"))


def _shown(command: _Command, folder: str | None) -> Shows | None:
    """Return the lines of a file that a command shows; None if it shows anything else."""
    arguments = command.arguments
    path = _path_of(arguments[-1], folder) if arguments else None
    if command.written or command.heredoc is not None or path is None:
        return None
    if command.program == "cat" and len(arguments) == 1:
        return Shows(path)
    lines = _LINES.fullmatch(" ".join([command.program, *(arguments[:-1] or ["-10"])]))
    if lines is None:
        return None
    start, stop = int(lines["start"] or 1), lines["stop"]
    return Shows(
        path, start, int(lines["count"] or stop or start) - start + 1 if stop != "$" else None
    )


def _changes(command: _Command, folder: str | None, *, is_certain: bool) -> Iterator[Effect]:
    """Yield the writes, removals and possible changes of a command."""
    names = tuple(word for word in command.arguments if not word.startswith("-"))
    copies = command.program == "cat" and not command.arguments
    text = command.heredoc if copies and is_certain and not command.expands else None
    for target, appends in command.written:
        path = _path_of(target, folder)
        if path is None or text is None:
            yield MayChange((target,))
        else:
            yield Writes(path, text, appends)
    if command.program == "rm":
        for word in names:
            path = _path_of(word, folder) if is_certain else None
            yield MayChange((word,)) if path is None else Deletes(path)
    elif may_change := _may_change(command, names):
        yield may_change


def _may_change(command: _Command, names: tuple[str, ...]) -> MayChange | None:
    """Return the possible changes of a program that is not followed.

    Args:
        command: The command.
        names: Its arguments without options.
    """
    program, words = command.program, command.arguments
    if not _REWRITERS.isdisjoint((program, *(words[:6] if program in _RUNNERS else ()))):
        return MayChange(names, or_any=True) if _KEEPS.isdisjoint(words) else None
    if program in _INTERPRETERS and not any(map(_is_in_place, words)):
        has_code = any(word in ("-c", "-e", "-lc") for word in words)
        code = command.heredoc or (" ".join(words) if has_code else "")
        # A script may write its arguments, but hardly itself.
        names = _paths_in(code) if code else names[1:]
    elif program in _READERS and not (program in _STREAM_EDITORS and any(map(_is_in_place, words))):
        return None
    return MayChange(names) if names else None


def _paths_in(text: str) -> tuple[str, ...]:
    """Return the words of a text of code that may be names of files."""
    return tuple(dict.fromkeys(name for name in names_in(text) if "." in name or "/" in name))


def _is_nowhere(word: str) -> bool:
    return word.isdigit() or word.startswith("/dev/") or word in ("-", "$null")


def _is_assignment(word: str) -> bool:
    name, sign, _ = word.partition("=")
    return bool(sign) and name.isidentifier()


def _is_in_place(word: str) -> bool:
    """Whether an option makes a stream editor change the file: -i, -pi, -o, --in-place."""
    is_short = word.startswith("-") and not word.startswith("--")
    return word.startswith("--in-place") or (is_short and not {"i", "o"}.isdisjoint(word))
