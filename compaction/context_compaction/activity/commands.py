"""What a shell command shows of files, writes into them, deletes, and may change.

`cat FILE`, `head FILE`, `sed -n A,Bp FILE` show a file. `cat > FILE <<EOF` and `tee` with a heredoc
write one, `rm` deletes files. Any other program that names a file and does not only read it may
have changed it. Nothing else is interpreted: no scripts, no `sed -i`, no git, no moves.
One pass over the text; every step moves forward.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from context_compaction.activity.calls import is_absolute, plain_path
from context_compaction.activity.edits import Deletes, Writes

# They change no file that they name: they read it, run it, or test it.
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
# With -i they change what they read.
_STREAM_EDITORS = frozenset({"sed", "perl", "gawk", "yq", "sort"})
_SHELLS = frozenset({"bash", "sh", "zsh"})
# They run code that is handed to them; it may write what it names.
_INTERPRETERS = (
    frozenset({"python", "python3", "node", "ruby", "perl", "php", "deno", "tsx"}) | _SHELLS
)
_WRITES_IN_CODE = (
    "write", "open(", "dump", "replace", "rename", "remove", "unlink", "move", "copy", "sed -i",
    ">",
)  # fmt: skip
# Words by which a command rewrites files that it finds itself.
_REWRITERS = frozenset({
    "--fix", "--write", "--in-place", "autopep8", "biome", "black", "clang-format", "codemod",
    "fix", "fmt", "format", "gofmt", "goimports", "isort", "pre-commit", "prettier", "rustfmt",
    "yapf", "-delete", "-exec", "-i", "mv", "rm",
})  # fmt: skip
_RUNNERS = frozenset({
    "bun", "cargo", "eslint", "find", "go", "just", "make", "npm", "npx", "pnpm", "poetry",
    "python", "python3", "ruff", "uv", "xargs", "yarn",
})  # fmt: skip
# Modules that Python runs to test or to check what is named.
_CHECKING_MODULES = _READERS | {"compileall", "http.server", "py_compile", "unittest"}
_ONLY_CHECKS = frozenset({"--check", "--diff", "--dry-run", "--list-different"})
_GIT_CHANGES = frozenset({
    "am", "apply", "checkout", "cherry-pick", "clean", "merge", "mv", "pull", "rebase", "reset",
    "restore", "revert", "rm", "stash", "switch",
})  # fmt: skip
# With these it changes no file after all: it makes a branch, or shows something.
_GIT_KEEPS = frozenset({"-b", "-B", "-c", "--check", "--soft", "list", "show"})
# They print nothing, and they hardly ever fail without a word.
_SILENT = frozenset({"cd", "mkdir", "export", "set", "source", "true", "rm", "touch", "chmod", ":"})
_SAFE = _SILENT | {"echo", "cat", "ls", "pwd"}
_OPENS = frozenset({"if", "for", "while", "until", "case", "{", "function", "select", "exit"})
_BEFORE_PROGRAM = frozenset({"sudo", "env", "time", "nohup", "command", "exec", "nice", "!"})
_ENDS_LIST = (";", "\n", "&")

# `$(cat <<EOF ... EOF)`: its text may have open quotes and brackets.
_DOCUMENT = (
    r"\$\(\s{0,9}+cat\s{0,9}+<<-?[ \t]{0,9}+['\"]?(?P<%s>\w{1,80}+)(?s:.*?)\n[ \t]*+(?P=%s)\s*+\)"
)
_DOCUMENT_BEGINS = r"\$\(\s{0,9}cat\s{0,9}<<"
# `$(...)` with brackets in it, two levels deep.
_SUBSTITUTION = rf"(?!{_DOCUMENT_BEGINS})\$\((?:[^()]|\((?:[^()]|\([^()]*+\))*+\))*+\)"
_WORD_BEGINS = r"(?<![^\s;&|()])"
_TOKEN = re.compile(
    rf"""
      (?P<blank> [ \t\r]++ | \\\n | {_WORD_BEGINS} \#[^\n]*+ )
    | <<-?[ \t]*+ (?P<quote>['"\\]?) (?P<mark>[\w.-]{{1,80}}+) ['"]?
    | (?:{_WORD_BEGINS} \d++)? (?P<redirect> &>>? | <<< | <[&>]? | >> | >& | >\| | > )
    | (?P<operator> \|\| | && | ;; | \|& | [;|&()\n] )
    | '(?P<single> [^']*+ )'
    | "(?P<double> (?: [^"\\$`] | \\. | {_DOCUMENT % ("mark1", "mark1")} | {_SUBSTITUTION}
        | (?!{_DOCUMENT_BEGINS}) [$`] )*+ )"
    | \\(?P<escaped> . )
    | (?P<expanded> {_DOCUMENT % ("mark2", "mark2")} | {_SUBSTITUTION} | `[^`]*+`
        | (?!{_DOCUMENT_BEGINS}) \$ | [*?\[] )
    | (?P<plain> [^\s'"\\;&|<>()`$*?\[]++ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([\"\\$`])")
_LINES = re.compile(r"(\d{1,9})(?:,(\d{1,9}|\$))?p;?\Z")
_COUNT = re.compile(r"(?:-n ?|-|--lines=)(\d{1,9})\Z")
_NAME = re.compile(r"[\w./~@+-]+")

Certainty: TypeAlias = Literal["always", "on_success", "maybe"]


@dataclass(frozen=True, slots=True)
class Shows:
    """The command prints a file: `count` lines from line `start`, or all if `count` is None."""

    path: str
    start: int = 1
    count: int | None = None
    is_numbered: bool = False


@dataclass(frozen=True, slots=True)
class MayChange:
    """The command may change the files that `words` name; any file if there are none.

    With `or_any`, it may change any file if the words name none that is known.
    """

    words: tuple[str, ...] = ()
    or_any: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a command does, and when it is certain that it was done."""

    does: Writes | Deletes | MayChange
    certainty: Certainty = "maybe"


@dataclass(frozen=True, slots=True)
class CommandEffects:
    """What a command line does to files. Paths start from the folder in which it runs.

    Attributes:
        shows: The files that it prints, if it prints nothing else.
        effects: What it writes, deletes and may change, in order.
        folder: Where it leaves the shell; None if that is not known, "" if it stays.
    """

    shows: tuple[Shows, ...] = ()
    effects: tuple[Effect, ...] = ()
    folder: str | None = ""


@dataclass(slots=True)
class _Word:
    """A word of a command; it is not `plain` if the shell expands something in it."""

    text: str = ""
    is_plain: bool = True


@dataclass(slots=True)
class _Command:
    """A simple command: its words, its redirections, its heredoc, the operator after it."""

    words: list[_Word] = field(default_factory=list[_Word])
    redirects: list[tuple[str, _Word]] = field(default_factory=list[tuple[str, _Word]])
    body: _Word | None = None
    operator: str = ""
    program: str = ""  # in lower case
    arguments: list[_Word] = field(default_factory=list[_Word])

    @property
    def writes_elsewhere(self) -> bool:
        return any(">" in sign and not _is_nowhere(to) for sign, to in self.redirects)

    def find_program(self) -> None:
        """Find the program that the command runs, and its arguments."""
        texts = [word.text for word in self.words]
        at = 0
        while at < len(texts) and (texts[at] in _BEFORE_PROGRAM or _is_assignment(texts[at])):
            at += 1
        if texts[at : at + 1] == ["timeout"] or texts[at : at + 2] in (
            ["uv", "run"], ["poetry", "run"],
        ):  # fmt: skip
            at += 2
        if at < len(texts):
            self.program = posixpath.basename(texts[at]).lower()
            self.arguments = self.words[at + 1 :]


def command_effects(command: str) -> CommandEffects:
    """What `command` does to files."""
    return _known_effects(command) if len(command) <= 2_000 else _effects_of(command)


@lru_cache(maxsize=1_000)
def _known_effects(command: str) -> CommandEffects:
    return _effects_of(command)


def _effects_of(command: str, depth: int = 0) -> CommandEffects:
    try:
        commands = _Lexer(command).commands()
    except ValueError:
        return CommandEffects(effects=(Effect(MayChange(_names_in(command))),), folder=None)
    if len(commands) == 1 and depth < 2 and commands[0].program in _SHELLS:
        options = [word.text for word in commands[0].arguments]
        if len(options) == 2 and options[0] in ("-c", "-lc"):
            inner = _effects_of(options[1], depth + 1)
            return CommandEffects(inner.shows, inner.effects)
    return _Effects(commands).read()


class _Lexer:
    """Splits a command line into simple commands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._commands: list[_Command] = []
        self._command = _Command()
        self._word: _Word | None = None
        self._redirect = ""
        # The heredocs whose text begins on the next line: their command, and their beginning.
        self._documents: list[tuple[_Command, re.Match[str]]] = []

    def commands(self) -> list[_Command]:
        """The simple commands in order.

        Raises:
            ValueError: A quote is open, the line is too long, or it is a script of Codex.
        """
        if "await tools." in self._text:
            raise ValueError("it is a script, which calls other tools")
        at = read_chars = 0
        while at < len(self._text):
            token = _TOKEN.match(self._text, at)
            if token is None:
                raise ValueError("a quote is open")
            read_chars += token.end() - at
            # So long a line, heredocs left out, was not written by hand; only its words are read.
            if read_chars > 20_000:
                raise ValueError("the command line is too long")
            at = token.end()
            self._take(token)
            if token["operator"] == "\n":
                at = self._take_documents(at)
        self._end_command("")
        return self._commands

    def _take(self, token: re.Match[str]) -> None:
        kind, text = token.lastgroup, token[0]
        if kind in ("blank", "redirect", "operator", "mark"):
            self._end_word()
            if kind == "redirect":
                self._redirect = token["redirect"]
            elif kind == "operator":
                self._end_command(text)
            elif kind == "mark":
                self._documents.append((self._command, token))
            return
        word = self._word = self._word or _Word()
        if (quoted := token["single"]) is not None:
            word.text += quoted
        elif (quoted := token["double"]) is not None:
            word.text += _ESCAPE.sub(r"\1", quoted)
            word.is_plain &= not any(sign in _ESCAPE.sub("", quoted) for sign in "$`")
        elif escaped := token["escaped"]:
            is_of_windows = bool(word.text) and (escaped.isalnum() or escaped in "_.*")
            word.text += text if is_of_windows else escaped
        else:
            word.text += text
            word.is_plain &= token["expanded"] is None

    def _end_word(self) -> None:
        if self._word is not None and self._redirect:
            self._command.redirects.append((self._redirect, self._word))
            self._redirect = ""
        elif self._word is not None:
            self._command.words.append(self._word)
        self._word = None

    def _end_command(self, operator: str) -> None:
        self._end_word()
        self._redirect = ""
        command = self._command
        command.operator = operator
        is_document = any(command is of for of, _ in self._documents)
        if command.words or command.redirects or is_document or operator in ("(", ")"):
            command.find_program()
            self._commands.append(command)
        self._command = _Command()

    def _take_documents(self, at: int) -> int:
        """Take the heredocs whose text begins at `at`; where the line after them begins."""
        for command, token in self._documents:
            mark = re.escape(token["mark"])
            found = re.compile(rf"^[ \t]*{mark}[ \t]*(?:\n|(?=[);&|])|\Z)", re.M).search(
                self._text, at
            )
            body = self._text[at : found.start() if found else len(self._text)]
            if token[0].startswith("<<-"):
                body = "\n".join(line.lstrip("\t") for line in body.split("\n"))
            is_plain = bool(token["quote"]) or not any(sign in body for sign in "$`\\")
            command.body = _Word(body, is_plain)
            at = found.end() if found else len(self._text)
        self._documents = []
        return at


class _Effects:
    """Reads what the simple commands of one line do."""

    def __init__(self, commands: Sequence[_Command]) -> None:
        self._commands = commands
        self._folder: str | None = ""
        self._shows: list[Shows] = []
        self._prints = 0
        self._effects: list[Effect] = []
        words = (word.text.partition("=") for command in commands for word in command.words)
        # Variables for new files, which nothing else names.
        self._temporary = tuple(
            f"${name}" for name, _, value in words if value.startswith("$(mktemp")
        )

    def read(self) -> CommandEffects:
        """The effects of all commands."""
        pipeline: list[_Command] = []  # the commands before in the same pipeline
        for command, certainty in zip(self._commands, _certainties(self._commands), strict=True):
            if command.program in ("cd", "pushd", "popd"):
                self._enter(command, certainty)
            else:
                self._print(command, pipeline, certainty)
                self._change(command, certainty, is_first=not pipeline)
            if command.operator in ("|", "|&"):
                pipeline.append(command)
            else:
                pipeline.clear()
        are_all = len(self._shows) == self._prints
        is_split = self._prints == 1 or all(shown.count for shown in self._shows)
        shows = tuple(self._shows) if are_all and is_split else ()
        return CommandEffects(shows, tuple(self._effects), self._folder)

    def _enter(self, command: _Command, certainty: Certainty) -> None:
        is_known = command.program == "cd" and len(command.arguments) == 1
        path = self._placed(command.arguments[0]) if is_known and certainty != "maybe" else None
        self._folder = "" if path == "." else path

    def _placed(self, word: _Word) -> str | None:
        """The path that `word` names, from the folder in which the line starts; None if unknown."""
        if not word.is_plain or word.text in ("", "-"):
            return None
        path = plain_path(word.text)
        if is_absolute(path):
            return path
        return (
            None if self._folder is None else posixpath.normpath(posixpath.join(self._folder, path))
        )

    def _print(self, command: _Command, pipeline: Sequence[_Command], certainty: Certainty) -> None:
        """Note what a command prints that reads the output of `pipeline`."""
        if command.operator in ("|", "|&") or not command.words or command.program in _SILENT:
            return
        if command.writes_elsewhere and command.program in ("cat", "echo", "printf"):
            return
        self._prints += 1
        shown = self._shown(command, pipeline)
        if shown is not None and command.operator != "&" and certainty != "maybe":
            self._shows.append(shown)

    def _shown(self, command: _Command, pipeline: Sequence[_Command]) -> Shows | None:
        program, arguments = command.program, command.arguments
        is_numbered = False
        if pipeline:  # cat FILE | head, nl FILE | sed -n A,Bp
            reader = pipeline[0]
            is_reading = reader.program in ("cat", "nl") and not reader.writes_elsewhere
            if not is_reading or program not in ("head", "sed") or len(pipeline) > 1:
                return None
            is_numbered = reader.program == "nl" or any(w.text == "-n" for w in reader.arguments)
            arguments = [*arguments, *(w for w in reader.arguments if not _is_option(w))]
        if command.writes_elsewhere or command.body is not None or not arguments:
            return None
        path = self._placed(arguments[-1])
        options = [word.text for word in arguments[:-1]]
        if path is None:
            return None
        if program in ("cat", "nl"):
            is_one = all(map(_is_option, arguments[:-1]))
            is_numbered = program == "nl" or "-n" in options
            return Shows(path, is_numbered=is_numbered) if is_one else None
        if program == "head":
            number = _COUNT.match(" ".join(options) or "-10")
            return Shows(path, 1, int(number[1]), is_numbered) if number else None
        if program == "sed" and len(options) == 2 and options[0] == "-n":
            lines = _LINES.match(options[1])
            if lines is None:
                return None
            start = int(lines[1])
            count = None if lines[2] == "$" else int(lines[2] or start) - start + 1
            return Shows(path, start, count, is_numbered)
        return None

    def _change(self, command: _Command, certainty: Certainty, *, is_first: bool) -> None:
        body = command.body if is_first else None
        for sign, to in command.redirects:
            if ">" not in sign or _is_nowhere(to) or to.text in self._temporary:
                continue
            is_copy = command.program == "cat" and not command.arguments
            self._write(body if is_copy else None, to, certainty, appends=sign == ">>")
        names = [word for word in command.arguments if not word.text.startswith("-")]
        if command.program == "tee":
            appends = any(word.text == "-a" for word in command.arguments)
            for to in names:
                self._write(body, to, certainty, appends=appends)
        elif command.program == "rm":
            for word in names:
                path = self._placed(word)
                does = MayChange((word.text,)) if path is None else Deletes(path)
                self._effects.append(Effect(does, certainty))
        elif may := _may_change(command, tuple(name.text for name in names)):
            self._effects.append(Effect(may))

    def _write(self, body: _Word | None, to: _Word, certainty: Certainty, *, appends: bool) -> None:
        path = self._placed(to)
        if path is None or body is None or not body.is_plain:
            self._effects.append(Effect(MayChange((path or to.text,))))
        else:
            self._effects.append(Effect(Writes(path, body.text, appends), certainty))


def _certainties(commands: Sequence[_Command]) -> list[Certainty]:
    """When each command is certain to have run to its end."""
    found: list[Certainty] = []
    ends = [n + 1 for n, c in enumerate(commands[:-1]) if c.operator in _ENDS_LIST]
    last_list = ends[-1] if ends else 0
    is_guarded = is_after_risk = is_alternative = False
    for n, command in enumerate(commands):
        first = command.words[0].text if command.words else ""
        is_guarded = is_guarded or first in _OPENS or command.operator in ("(", ")", ";;")
        if is_guarded or is_alternative or (is_after_risk and n < last_list):
            found.append("maybe")
        else:
            found.append("on_success" if is_after_risk else "always")
        if command.operator in _ENDS_LIST:
            is_after_risk = is_alternative = False
        elif command.operator == "||":
            is_alternative = True
        elif command.operator == "&&" and command.program not in _SAFE:
            is_after_risk = True
    return found


def _may_change(command: _Command, names: tuple[str, ...]) -> MayChange | None:
    """What a program that is not followed may change; `names` are its arguments but for options."""
    program = command.program
    words = [word.text for word in command.arguments]
    if program == "git":
        is_kept = names[:1] == () or names[0] not in _GIT_CHANGES
        is_kept = is_kept or not _GIT_KEEPS.isdisjoint(words)
        return None if is_kept else MayChange(names[1:], or_any=True)
    if program in _STREAM_EDITORS and any(map(_is_in_place, words)):
        return MayChange(names)
    if program in ("cp", "ln", "install", "rsync", "scp"):
        target = names[-1] if names else ""
        inner = [posixpath.join(target, posixpath.basename(name)) for name in names[:-1]]
        return MayChange((target.rstrip("/"), *inner)) if target else None
    called = words[:6] if program in _RUNNERS else []
    if not _REWRITERS.isdisjoint((program, *called)) and program != "mv":
        return MayChange(names, or_any=True) if _ONLY_CHECKS.isdisjoint(words) else None
    if program in _INTERPRETERS:
        return _changed_by_code(words, names, command.body)
    is_reading = program in _READERS and not (program == "curl" and "-o" in words)
    return None if is_reading or not names else MayChange(names)


def _changed_by_code(
    words: Sequence[str], names: tuple[str, ...], body: _Word | None
) -> MayChange | None:
    """What an interpreter may change by the code or the script that it is given."""
    has_code = any(word in ("-c", "-e", "-lc") for word in words)
    code = body.text if body is not None else " ".join(words) if has_code else ""
    if not code:  # a script may write what it is given, but not itself
        is_check = words[:1] == ["-m"] and not _CHECKING_MODULES.isdisjoint(names[:1])
        return None if is_check or not names[1:] else MayChange(names[1:])
    found = _names_in(code) if any(sign in code for sign in _WRITES_IN_CODE) else ()
    return MayChange(found) if found else None


def _names_in(text: str) -> tuple[str, ...]:
    """What may be names of files in a text of code: words with a dot or a slash."""
    words = (word.strip(".-") for word in _NAME.findall(text))
    return tuple(dict.fromkeys(word for word in words if "." in word or "/" in word))


def _is_option(word: _Word) -> bool:
    """Whether a word behind `cat` or `nl` is no file: an option, or the value of `nl -b a`."""
    return word.text.startswith("-") or word.text == "a"


def _is_nowhere(word: _Word) -> bool:
    return word.text.isdigit() or word.text.startswith("/dev/") or word.text in ("-", "$null")


def _is_assignment(word: str) -> bool:
    name, sign, _ = word.partition("=")
    return bool(sign) and name.isidentifier()


def _is_in_place(word: str) -> bool:
    """Whether an option says that a stream editor changes the file: -i, -pi, -o, --in-place."""
    is_short = word.startswith("-") and not word.startswith("--")
    return word.startswith("--in-place") or (is_short and not {"i", "o"}.isdisjoint(word))
