"""Effects of shell commands on files: shown, written, deleted and possibly changed files.

`cat FILE`, `head FILE`, `nl FILE` and `sed -n A,Bp FILE` show a file. `cat > FILE <<EOF` and `tee`
with a heredoc write one, `rm` deletes files. Any other program that names a file and does not only
read it may have changed it. Nothing else is interpreted: no scripts, no `sed -i`, no git, no moves.

The heredocs are taken out of the command first. Then one pass splits the rest into simple commands.
"""

import posixpath
import re
from bisect import bisect_left
from collections import defaultdict
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
# How many words after these programs may be such a word.
_RUNNERS = {"git": 1} | dict.fromkeys((
    "bun", "cargo", "eslint", "find", "go", "just", "make", "npm", "npx", "pnpm", "poetry",
    "python", "python3", "ruff", "uv", "xargs", "yarn",
), 6)  # fmt: skip
# With these words such a command changes no file: it checks, shows something, or makes a branch.
_KEEPS = frozenset({
    "--check", "--diff", "--dry-run", "--list-different", "-b", "-B", "-c", "--soft", "list",
    "show",
})  # fmt: skip
# These programs print nothing, and hardly ever fail without a message.
_SILENT = frozenset({"cd", "mkdir", "export", "set", "source", "true", "rm", "touch", "chmod", ":"})
_SAFE = _SILENT | {"echo", "cat", "ls", "pwd"}
_OPENS = frozenset({"if", "for", "while", "until", "case", "{", "function", "select", "exit"})
_BEFORE_PROGRAM = frozenset({"sudo", "env", "time", "nohup", "command", "exec", "nice", "!"})
_TWO_WORDS_BEFORE = ("timeout ", "uv run", "poetry run", "python -m", "python3 -m")
_ENDS_LIST = (";", "\n", "&")
_PIPES = ("|", "|&")
# The shell may expand a word with one of these signs.
_EXPANDED = "$`*?["

# A command line that is longer, without its heredocs, was not written by hand.
_MAX_COMMAND_CHARS = 20_000
_HEREDOC = re.compile(r"(?<!<)<<(-?)[ \t]*(['\"\\]?)([\w.-]{1,80})['\"]?")
_TOKEN = re.compile(
    rf"""
      (?P<blank> [ \t\r]++ | \\\n | (?<![^\s;&|()])\#[^\n]*+ )
    | (?P<heredoc> {_HEREDOC.pattern} )
    | (?: (?<![^\s;&|()])\d++ )? (?P<redirect> &>>? | <<< | <[&>]? | >> | >& | >\| | > )
    | (?P<operator> \|\| | && | ;; | \|& | [;|&()\n] )
    | '(?P<single> [^']*+ )'
    | "(?P<double> (?: [^"\\] | \\. )*+ )"
    | \\(?P<escaped> . )
    | (?P<plain> \$\( (?: [^()] | \([^()]*+\) )*+ \) | `[^`]*+` | \$ | [^\s'"\\;&|<>()`$]++ )
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD_GROUPS = ("single", "double", "escaped", "plain")
_LINES = re.compile(
    r"head(?: -n ?| -| --lines=)(?P<count>\d{1,9})"
    r"|sed -n (?P<start>\d{1,9})(?:,(?P<stop>\d{1,9}|\$))?p;?"
)


@dataclass(frozen=True, slots=True)
class Shows:
    """A print of a file, or of some of its lines.

    Attributes:
        path: The file.
        start: Number of the first line, from 1.
        count: Number of lines, or None for all.
        is_numbered: Whether the program numbers the lines.
    """

    path: str
    start: int = 1
    count: int | None = None
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class MayChange:
    """A possible change of files.

    Attributes:
        words: Words that may name the files; none if any file may have changed.
        or_any: Whether any file may have changed if one of the words names no known file.
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
        expands: Whether the shell may expand something in the heredoc.
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
    def is_redirected(self) -> bool:
        """Whether its output goes into a file."""
        return any(">" in sign and not _is_nowhere(target) for sign, target in self.redirects)

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
    return memoized_on_call(call, _effects_of_call, use)


def _effects_of_call(_: ToolCall, use: ToolUse) -> CommandEffects:
    return _effects_of(use.command or "")


def _effects_of(command: str, depth: int = 0) -> CommandEffects:
    try:
        commands = _simple_commands(command)
    except ValueError:
        return CommandEffects(effects=(MayChange(_paths_in(command)),), folder=None)
    if len(commands) == 1 and depth < 2 and commands[0].program in _SHELLS:
        options = commands[0].arguments
        if len(options) == 2 and options[0] in ("-c", "-lc"):
            inner = _effects_of(options[1], depth + 1)
            return CommandEffects(inner.shows, inner.effects)
    return _Reader(commands).read()


def _without_heredocs(command: str) -> tuple[str, dict[int, tuple[str, bool]]]:
    """Return the command without the texts of its heredocs, and the texts by offset of their `<<`.

    The second value of each text is whether the shell may expand something in it.
    """
    lines = command.split("\n")
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        numbers[line.strip()].append(number)
    code_lines: list[str] = []
    texts: dict[int, tuple[str, bool]] = {}
    offset = number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        for match in _HEREDOC.finditer(line):
            ends = numbers.get(match[3], [])
            end = bisect_left(ends, number)
            if end < len(ends):
                rows = lines[number : ends[end]]
                rows = [row.lstrip("\t") for row in rows] if match[1] else rows
                text = "".join(f"{row}\n" for row in rows)
                expands = not match[2] and any(sign in text for sign in "$`\\")
                texts[offset + match.start()] = text, expands
                number = ends[end] + 1
        code_lines.append(line)
        offset += len(line) + 1
    return "\n".join(code_lines), texts


def _simple_commands(command: str) -> list[_Command]:
    """Return the simple commands of a command line in order.

    Raises:
        ValueError: A quote or a heredoc is open, the line is too long, or it is a script that calls
            other tools (Codex).
    """
    code, heredocs = _without_heredocs(command)
    if len(code) > _MAX_COMMAND_CHARS or "await tools." in code:
        raise ValueError("the command is a script")
    commands = [_Command()]
    word: str | None = None
    redirect = ""
    for token in _tokens(f"{code}\n"):
        last, group = commands[-1], token.lastgroup or ""
        if group in _WORD_GROUPS:
            word = (word or "") + _unquoted(group, token[group], is_first=not word)
            continue
        if word is not None and redirect:
            last.redirects.append((redirect, word))
            redirect = ""
        elif word is not None:
            last.words.append(word)
        word = None
        if group == "redirect":
            redirect = token[group]
        elif group == "heredoc":
            if token.start() not in heredocs:
                raise ValueError("a heredoc is open")
            last.heredoc, last.expands = heredocs[token.start()]
        elif group == "operator":
            redirect, last.operator = "", token[0]
            last.find_program()
            commands.append(_Command())
    return [
        each for each in commands if each.words or each.redirects or each.operator in ("(", ")")
    ]


def _tokens(code: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a command line; raises `ValueError` at an open quote."""
    position = 0
    while position < len(code):
        token = _TOKEN.match(code, position)
        if token is None:
            raise ValueError("a quote is open")
        position = token.end()
        yield token


def _unquoted(group: str, text: str, *, is_first: bool) -> str:
    """Return a part of a word without quotation marks and escapes."""
    if group == "double":
        for sign in '"$`\\':
            text = text.replace(f"\\{sign}", sign)
    elif group == "escaped" and not is_first and (text.isalnum() or text in "_.*"):
        text = f"\\{text}"  # a path of Windows
    return text


class _Reader:
    """Finds the effects of the simple commands of one line."""

    def __init__(self, commands: Sequence[_Command]) -> None:
        self._commands = commands
        self._folder: str | None = ""
        self._shows: list[Shows | None] = []
        self._effects: list[Effect] = []

    def read(self) -> CommandEffects:
        """Return the effects of all commands."""
        pipeline: list[_Command] = []  # the earlier commands of this pipeline
        for command, is_certain in zip(self._commands, _certainties(self._commands), strict=True):
            if command.program in ("cd", "pushd", "popd"):
                self._enter(command, is_certain)
            else:
                if _prints(command):
                    shown = self._shown(command, pipeline)
                    self._shows.append(shown if is_certain and command.operator != "&" else None)
                self._change(command, is_certain, is_first=not pipeline)
            pipeline = [*pipeline, command] if command.operator in _PIPES else []
        shows = self._shows[0] if len(self._shows) == 1 else None
        return CommandEffects(shows, tuple(self._effects), self._folder)

    def _enter(self, command: _Command, is_certain: bool) -> None:
        is_known = command.program == "cd" and len(command.arguments) == 1
        path = self._path_of(command.arguments[0]) if is_known and is_certain else None
        self._folder = "" if path == "." else path

    def _path_of(self, word: str) -> str | None:
        """Return the path of `word`, from the folder where the line starts; None if unknown."""
        if word in ("", "-") or any(sign in word for sign in _EXPANDED):
            return None
        path = plain_path(word)
        if is_absolute(path) or self._folder is None:
            return path if is_absolute(path) else None
        return posixpath.normpath(posixpath.join(self._folder, path))

    def _shown(self, command: _Command, pipeline: Sequence[_Command]) -> Shows | None:
        """Return the lines that a command shows if it reads the output of `pipeline`."""
        program, arguments = command.program, command.arguments
        is_numbered = False
        if pipeline:  # cat FILE | head, nl FILE | sed -n A,Bp
            reader = pipeline[0]
            is_reading = reader.program in ("cat", "nl") and not reader.is_redirected
            if not is_reading or program not in ("head", "sed") or len(pipeline) > 1:
                return None
            is_numbered = _numbers_lines(reader)
            arguments = [*arguments, *(w for w in reader.arguments if not _is_option(w))]
        path = self._path_of(arguments[-1]) if arguments else None
        if command.is_redirected or command.heredoc is not None or path is None:
            return None
        if program in ("cat", "nl"):
            is_single = all(map(_is_option, arguments[:-1]))
            return Shows(path, is_numbered=_numbers_lines(command)) if is_single else None
        lines = _LINES.fullmatch(" ".join([program, *(arguments[:-1] or ["-10"])]))
        if lines is None:
            return None
        start, stop = int(lines["start"] or 1), lines["stop"]
        count = int(lines["count"] or stop or start) - start + 1 if stop != "$" else None
        return Shows(path, start, count, is_numbered)

    def _change(self, command: _Command, is_certain: bool, *, is_first: bool) -> None:
        """Record the writes, removals and possible changes of a command."""
        text = command.heredoc if is_first and is_certain and not command.expands else None
        names = [word for word in command.arguments if not word.startswith("-")]
        copied = text if command.program == "cat" and not command.arguments else None
        written = [
            (target, copied, sign == ">>")
            for sign, target in command.redirects
            if ">" in sign and not _is_nowhere(target)
        ]
        if command.program == "tee":
            written += [(target, text, "-a" in command.arguments) for target in names]
        for target, content, appends in written:
            path = self._path_of(target)
            if path is None or content is None:
                self._effects.append(MayChange((path or target,)))
            else:
                self._effects.append(Writes(path, content, appends))
        if command.program == "rm":
            for word in names:
                path = self._path_of(word) if is_certain else None
                self._effects.append(MayChange((word,)) if path is None else Deletes(path))
        elif command.program != "tee" and (may_change := _may_change(command, tuple(names))):
            self._effects.append(may_change)


def _prints(command: _Command) -> bool:
    """Whether the output of a command is in the result."""
    if command.operator in _PIPES or not command.words or command.program in _SILENT:
        return False
    return not (command.is_redirected and command.program in ("cat", "echo", "printf"))


def _certainties(commands: Sequence[_Command]) -> Iterator[bool]:
    """Yield for each command whether it has run to its end if the command line succeeds."""
    ends = [n + 1 for n, c in enumerate(commands[:-1]) if c.operator in _ENDS_LIST]
    last_list = ends[-1] if ends else 0
    is_guarded, is_certain = False, True
    for number, command in enumerate(commands):
        first = command.words[0] if command.words else ""
        is_guarded = is_guarded or first in _OPENS or command.operator in ("(", ")", ";;")
        yield is_certain and not is_guarded
        if command.operator in _ENDS_LIST:
            is_certain = True
        elif command.operator == "||":
            is_certain = False
        elif command.operator == "&&" and command.program not in _SAFE and number < last_list:
            # The command line returns the status of its last list only.
            is_certain = False


def _may_change(command: _Command, names: tuple[str, ...]) -> MayChange | None:
    """Return the possible changes of a program that is not followed.

    Args:
        command: The command.
        names: Its arguments without options.
    """
    program = command.program
    words = command.arguments
    if not _REWRITERS.isdisjoint((program, *words[: _RUNNERS.get(program, 0)])):
        return MayChange(names, or_any=True) if _KEEPS.isdisjoint(words) else None
    if program in _STREAM_EDITORS and any(map(_is_in_place, words)):
        changed = names
    elif program in _INTERPRETERS:
        has_code = any(word in ("-c", "-e", "-lc") for word in words)
        code = command.heredoc if command.heredoc else " ".join(words) if has_code else ""
        # A script may write its arguments, but hardly itself.
        changed = _paths_in(code) if code else names[1:]
    elif program in _READERS:
        changed = ()
    else:
        # A program that copies writes a file of the same name into another folder.
        changed = (*names, *map(posixpath.basename, names))
    return MayChange(changed) if changed else None


def _paths_in(text: str) -> tuple[str, ...]:
    """Return the words of a text of code that may be names of files."""
    return tuple(dict.fromkeys(name for name in names_in(text) if "." in name or "/" in name))


def _numbers_lines(command: _Command) -> bool:
    return command.program == "nl" or "-n" in command.arguments


def _is_option(word: str) -> bool:
    """Whether a word after `cat` or `nl` names no file: an option, or the value of `nl -b a`."""
    return word.startswith("-") or word == "a"


def _is_nowhere(word: str) -> bool:
    return word.isdigit() or word.startswith("/dev/") or word in ("-", "$null")


def _is_assignment(word: str) -> bool:
    name, sign, _ = word.partition("=")
    return bool(sign) and name.isidentifier()


def _is_in_place(word: str) -> bool:
    """Whether an option makes a stream editor change the file: -i, -pi, -o, --in-place."""
    is_short = word.startswith("-") and not word.startswith("--")
    return word.startswith("--in-place") or (is_short and not {"i", "o"}.isdisjoint(word))
