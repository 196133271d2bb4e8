"""Effects of shell commands on files: what they show, write, delete and may change.

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

from context_compaction.activity.calls import Deletes, ToolUse, Writes, is_absolute, plain_path
from context_compaction.messages.model import ToolCall, memoized_on_call
from context_compaction.messages.names import names_in

# These programs read, run or test the files that they name.
_READERS = frozenset({
    "", "[", "[[", "ag", "awk", "basename", "bash", "bat", "cargo", "cat", "cd", "chmod", "cmp",
    "code", "column", "comm", "curl", "cut", "date", "deno", "diff", "dirname", "docker", "echo",
    "egrep", "env", "eslint", "exit", "export", "false", "fgrep", "file", "find", "flake8", "fold",
    "gawk", "gcc", "get-content", "gh", "git", "go", "grep", "head", "jest", "jq", "kill", "less",
    "ls", "make", "md5sum", "mkdir", "more", "mypy", "nl", "node", "npm", "npx", "od", "open",
    "perl", "php", "pnpm", "poetry", "printf", "ps", "pwd", "pylint", "pyright", "pytest", "python",
    "python3", "readlink", "realpath", "rg", "ruby", "ruff", "sed", "select-string", "set", "sh",
    "sha256sum", "shellcheck", "sleep", "sort", "source", "ssh", "stat", "strings", "tail", "test",
    "tox", "tr", "tree", "true", "tsc", "tsx", "type", "uniq", "uv", "vitest", "wait", "wc",
    "which", "xargs", "xxd", "yarn", "yq", "zsh",
})  # fmt: skip
# With -i or -o these programs change the files that they read.
_STREAM_EDITORS = frozenset({"sed", "perl", "gawk", "yq", "sort"})
_SHELLS = frozenset({"bash", "sh", "zsh"})
# These programs run code from their arguments, which may write the files that the code names.
_INTERPRETERS = _SHELLS | {"python", "python3", "node", "ruby", "perl", "php", "deno", "tsx"}
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
_SED_LINES = re.compile(r"(\d{1,9})(?:,(\d{1,9}|\$))?p;?\Z")
_HEAD_COUNT = re.compile(r"(?:-n ?|-|--lines=)(\d{1,9})\Z")


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


@dataclass(frozen=True, slots=True)
class Effect:
    """One action of a command.

    Attributes:
        action: The write, the removal or the possible change.
        is_certain: Whether the action has happened if the whole command line succeeds.
    """

    action: Writes | Deletes | MayChange
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class CommandEffects:
    """Effects of a command line on files. Paths start from the folder in which it runs.

    Attributes:
        shows: The file that it prints, if it prints nothing else.
        effects: What it writes, deletes and may change, in order.
        folder: Folder of the shell after the command: "" if unchanged, None if it is not known.
    """

    shows: Shows | None = None
    effects: tuple[Effect, ...] = ()
    folder: str | None = ""


@dataclass(slots=True)
class _Word:
    """A word of a command, or the text of a heredoc.

    Attributes:
        text: The word without quotes.
        is_plain: Whether the shell expands nothing in it.
    """

    text: str = ""
    is_plain: bool = True


@dataclass(slots=True)
class _Command:
    """A simple command.

    Attributes:
        words: Its words.
        redirects: The sign and the target of each redirection.
        heredoc: The text of its heredoc, or None.
        operator: The operator after it.
    """

    words: list[_Word] = field(default_factory=list[_Word])
    redirects: list[tuple[str, _Word]] = field(default_factory=list[tuple[str, _Word]])
    heredoc: _Word | None = None
    operator: str = ""
    program: str = field(init=False, default="")
    arguments: list[_Word] = field(init=False, default_factory=list[_Word])

    @property
    def is_redirected(self) -> bool:
        """Whether its output goes into a file."""
        return any(">" in sign and not _is_nowhere(target) for sign, target in self.redirects)

    def find_program(self) -> None:
        """Find the name of the program in lower case, and its arguments."""
        texts = [word.text for word in self.words]
        start = 0
        while start < len(texts) and (
            texts[start] in _BEFORE_PROGRAM or _is_assignment(texts[start])
        ):
            start += 1
        if " ".join(texts[start : start + 2]).startswith(_TWO_WORDS_BEFORE):
            start += 2
        if start < len(texts):
            self.program = posixpath.basename(texts[start]).lower()
            self.arguments = self.words[start + 1 :]


def command_effects(call: ToolCall, use: ToolUse) -> CommandEffects:
    """Return the effects of the command of `call`, whose use is `use`."""
    return memoized_on_call(call, _effects_of_call, use)


def _effects_of_call(_: ToolCall, use: ToolUse) -> CommandEffects:
    return _effects_of(use.command or "")


def _effects_of(command: str, depth: int = 0) -> CommandEffects:
    try:
        commands = _Splitter(command).commands()
    except ValueError:
        return CommandEffects(effects=(Effect(MayChange(_paths_in(command))),), folder=None)
    if len(commands) == 1 and depth < 2 and commands[0].program in _SHELLS:
        options = [word.text for word in commands[0].arguments]
        if len(options) == 2 and options[0] in ("-c", "-lc"):
            inner = _effects_of(options[1], depth + 1)
            return CommandEffects(inner.shows, inner.effects)
    return _Reader(commands).read()


def _without_heredocs(command: str) -> tuple[str, dict[int, _Word]]:
    """Return the command without the texts of its heredocs, and each text by its `<<`'s offset."""
    lines = command.split("\n")
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        numbers[line.strip()].append(number)
    code_lines: list[str] = []
    texts: dict[int, _Word] = {}
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
                is_plain = bool(match[2]) or not any(sign in text for sign in "$`\\")
                texts[offset + match.start()] = _Word(text, is_plain)
                number = ends[end] + 1
        code_lines.append(line)
        offset += len(line) + 1
    return "\n".join(code_lines), texts


class _Splitter:
    """Splits a command line into simple commands."""

    def __init__(self, command: str) -> None:
        self._text, self._heredocs = _without_heredocs(command)
        self._commands: list[_Command] = []
        self._command = _Command()
        self._word: _Word | None = None
        self._redirect = ""

    def commands(self) -> list[_Command]:
        """Return the simple commands in order.

        Raises:
            ValueError: A quote or a heredoc is open, the line is too long, or it is a script that
                calls other tools (Codex).
        """
        if len(self._text) > _MAX_COMMAND_CHARS or "await tools." in self._text:
            raise ValueError("the command is a script")
        position = 0
        while position < len(self._text):
            token = _TOKEN.match(self._text, position)
            if token is None:
                raise ValueError("a quote is open")
            position = token.end()
            if token.lastgroup in ("single", "double", "escaped", "plain"):
                self._add_to_word(token.lastgroup, token[token.lastgroup])
            else:
                self._end_word()
                self._take_sign(token)
        self._end_command("")
        return self._commands

    def _take_sign(self, token: re.Match[str]) -> None:
        if token["redirect"]:
            self._redirect = token["redirect"]
        elif token["operator"]:
            self._end_command(token[0])
        elif token["heredoc"]:
            self._command.heredoc = self._heredocs.get(token.start())
            if self._command.heredoc is None:
                raise ValueError("a heredoc is open")

    def _add_to_word(self, group: str, text: str) -> None:
        word = self._word = self._word or _Word()
        if group == "double":
            for sign in '"$`\\':
                text = text.replace(f"\\{sign}", sign)
        if group in ("double", "plain"):
            word.is_plain &= not any(sign in text for sign in "$`*?[")
        elif group == "escaped" and word.text and (text.isalnum() or text in "_.*"):
            text = f"\\{text}"  # a path of Windows
        word.text += text

    def _end_word(self) -> None:
        if self._word is not None and self._redirect:
            self._command.redirects.append((self._redirect, self._word))
            self._redirect = ""
        elif self._word is not None:
            self._command.words.append(self._word)
        self._word = None

    def _end_command(self, operator: str) -> None:
        self._end_word()
        command, self._command, self._redirect = self._command, _Command(), ""
        command.operator = operator
        if command.words or command.redirects or operator in ("(", ")"):
            command.find_program()
            self._commands.append(command)


class _Reader:
    """Finds the effects of the simple commands of one line."""

    def __init__(self, commands: Sequence[_Command]) -> None:
        self._commands = commands
        self._folder: str | None = ""
        self._shows: list[Shows] = []
        self._print_count = 0
        self._effects: list[Effect] = []

    def read(self) -> CommandEffects:
        """Return the effects of all commands."""
        pipeline: list[_Command] = []  # the earlier commands of this pipeline
        for command, is_certain in zip(self._commands, _certainties(self._commands), strict=True):
            if command.program in ("cd", "pushd", "popd"):
                self._enter(command, is_certain)
            else:
                self._print(command, pipeline, is_certain)
                self._change(command, is_certain, is_first=not pipeline)
            if command.operator in ("|", "|&"):
                pipeline.append(command)
            else:
                pipeline.clear()
        shows = self._shows[0] if self._shows and self._print_count == 1 else None
        return CommandEffects(shows, tuple(self._effects), self._folder)

    def _enter(self, command: _Command, is_certain: bool) -> None:
        is_known = command.program == "cd" and len(command.arguments) == 1
        path = self._path_of(command.arguments[0]) if is_known and is_certain else None
        self._folder = "" if path == "." else path

    def _path_of(self, word: _Word) -> str | None:
        """Return the path of `word`, from the folder where the line starts; None if unknown."""
        if not word.is_plain or word.text in ("", "-"):
            return None
        path = plain_path(word.text)
        if is_absolute(path):
            return path
        if self._folder is None:
            return None
        return posixpath.normpath(posixpath.join(self._folder, path))

    def _print(self, command: _Command, pipeline: Sequence[_Command], is_certain: bool) -> None:
        """Record the output of a command that reads the output of `pipeline`."""
        if command.operator in ("|", "|&") or not command.words or command.program in _SILENT:
            return
        if command.is_redirected and command.program in ("cat", "echo", "printf"):
            return
        self._print_count += 1
        shown = self._shown(command, pipeline)
        if shown is not None and command.operator != "&" and is_certain:
            self._shows.append(shown)

    def _shown(self, command: _Command, pipeline: Sequence[_Command]) -> Shows | None:
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
        options = " ".join(word.text for word in arguments[:-1])
        if program == "head":
            number = _HEAD_COUNT.match(options or "-10")
            return Shows(path, 1, int(number[1]), is_numbered) if number else None
        lines = _SED_LINES.match(options.removeprefix("-n ")) if program == "sed" else None
        if lines is None or not options.startswith("-n "):
            return None
        start = int(lines[1])
        count = None if lines[2] == "$" else int(lines[2] or start) - start + 1
        return Shows(path, start, count, is_numbered)

    def _change(self, command: _Command, is_certain: bool, *, is_first: bool) -> None:
        text = command.heredoc if is_first else None
        for sign, target in command.redirects:
            if ">" in sign and not _is_nowhere(target):
                is_copy = command.program == "cat" and not command.arguments
                self._write(text if is_copy else None, target, is_certain, appends=sign == ">>")
        names = [word for word in command.arguments if not word.text.startswith("-")]
        if command.program == "tee":
            appends = any(word.text == "-a" for word in command.arguments)
            for target in names:
                self._write(text, target, is_certain, appends=appends)
        elif command.program == "rm":
            for word in names:
                path = self._path_of(word)
                action = MayChange((word.text,)) if path is None else Deletes(path)
                self._effects.append(Effect(action, is_certain))
        elif may_change := _may_change(command, tuple(name.text for name in names)):
            self._effects.append(Effect(may_change))

    def _write(self, text: _Word | None, target: _Word, is_certain: bool, *, appends: bool) -> None:
        path = self._path_of(target)
        if path is None or text is None or not text.is_plain:
            self._effects.append(Effect(MayChange((path or target.text,))))
        else:
            self._effects.append(Effect(Writes(path, text.text, appends), is_certain))


def _certainties(commands: Sequence[_Command]) -> Iterator[bool]:
    """Yield for each command whether it has run to its end if the command line succeeds."""
    ends = [n + 1 for n, c in enumerate(commands[:-1]) if c.operator in _ENDS_LIST]
    last_list = ends[-1] if ends else 0
    is_guarded, is_certain = False, True
    for number, command in enumerate(commands):
        first = command.words[0].text if command.words else ""
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
    words = [word.text for word in command.arguments]
    if not _REWRITERS.isdisjoint((program, *words[: _RUNNERS.get(program, 0)])):
        return MayChange(names, or_any=True) if _KEEPS.isdisjoint(words) else None
    if program in _STREAM_EDITORS and any(map(_is_in_place, words)):
        changed = names
    elif program in _INTERPRETERS:
        has_code = any(word in ("-c", "-e", "-lc") for word in words)
        code = command.heredoc.text if command.heredoc else " ".join(words) if has_code else ""
        # A script may write its arguments, but hardly itself.
        changed = _paths_in(code) if code else names[1:]
    elif program in _READERS and not (program == "curl" and "-o" in words):
        changed = ()
    else:
        # A program that copies writes a file of the same name into another folder.
        changed = (*names, *map(posixpath.basename, names))
    return MayChange(changed) if changed else None


def _paths_in(text: str) -> tuple[str, ...]:
    """Return the words of a text of code that may be names of files."""
    return tuple(dict.fromkeys(name for name in names_in(text) if "." in name or "/" in name))


def _numbers_lines(command: _Command) -> bool:
    return command.program == "nl" or any(word.text == "-n" for word in command.arguments)


def _is_option(word: _Word) -> bool:
    """Whether a word after `cat` or `nl` names no file: an option, or the value of `nl -b a`."""
    return word.text.startswith("-") or word.text == "a"


def _is_nowhere(word: _Word) -> bool:
    return word.text.isdigit() or word.text.startswith("/dev/") or word.text in ("-", "$null")


def _is_assignment(word: str) -> bool:
    name, sign, _ = word.partition("=")
    return bool(sign) and name.isidentifier()


def _is_in_place(word: str) -> bool:
    """Whether an option makes a stream editor change the file: -i, -pi, -o, --in-place."""
    is_short = word.startswith("-") and not word.startswith("--")
    return word.startswith("--in-place") or (is_short and not {"i", "o"}.isdisjoint(word))
