"""What a shell command shows of files, writes into them, deletes, and may change.

`cat FILE`, `head FILE`, `sed -n A,Bp FILE` show a file. `cat > FILE <<EOF` and `tee` with a heredoc
write one, `rm` deletes files. Any other program that names a file and does not only read it may
have changed it. Nothing else is interpreted: no scripts, no `sed -i`, no git, no moves.
One pass over the text; every step moves forward.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from context_compaction.activity.calls import is_absolute, plain_path
from context_compaction.activity.edits import Deletes, Writes

# They change no file that they name: they read it, run it, or test it.
_READERS = frozenset({
    "[", "[[", "ag", "awk", "basename", "bash", "bat", "cargo", "cat", "cd", "chmod", "cmp", "code",
    "column", "comm", "curl", "cut", "date", "deno", "diff", "dirname", "docker", "echo", "egrep",
    "env", "eslint", "exit", "export", "false", "fgrep", "file", "find", "flake8", "fold", "gawk",
    "gcc", "get-content", "gh", "git", "go", "grep", "head", "jest", "jq", "kill", "less", "ls",
    "make", "md5sum", "mkdir", "more", "mypy", "nl", "node", "npm", "npx", "od", "open", "perl",
    "php", "pnpm", "poetry", "printf", "ps", "pwd", "pylint", "pyright", "pytest", "python",
    "python3", "readlink", "realpath", "rg", "ruby", "ruff", "sed", "select-string", "set", "sh",
    "sha256sum", "shellcheck", "sleep", "sort", "source", "ssh", "stat", "strings", "tail", "test",
    "tee", "tox", "tr", "tree", "true", "tsc", "tsx", "type", "uniq", "uv", "vitest", "wait", "wc",
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
    "yapf", "-delete", "-exec",
})  # fmt: skip
_RUNNERS = frozenset({
    "bun", "cargo", "eslint", "find", "go", "just", "make", "npm", "npx", "pnpm", "poetry",
    "python", "python3", "ruff", "uv", "yarn",
})  # fmt: skip
# The verbs of PowerShell's commands that write, move or delete files.
_POWERSHELL_CHANGES = (
    "set-content", "add-content", "clear-content", "out-file", "remove-item", "move-item",
    "rename-item", "copy-item", "new-item",
)  # fmt: skip
# Modules that Python runs to test or to check what is named.
_CHECKING_MODULES = _READERS | {"compileall", "http.server", "py_compile", "unittest"}
_ONLY_CHECKS = frozenset({"--check", "--diff", "--dry-run", "--list-different"})
_GIT_CHANGES = frozenset({
    "am", "apply", "checkout", "cherry-pick", "clean", "merge", "mv", "pull", "rebase", "reset",
    "restore", "revert", "rm", "stash", "switch",
})  # fmt: skip
# They print nothing, and they hardly ever fail without a word.
_SILENT = frozenset({"cd", "mkdir", "export", "set", "source", "true", "rm", "touch", "chmod", ":"})
_SAFE = _SILENT | {"echo", "cat", "ls", "pwd"}
_OPENS = frozenset({"if", "for", "while", "until", "case", "{", "function", "select", "exit"})
_BEFORE_PROGRAM = frozenset({"sudo", "env", "time", "nohup", "command", "exec", "nice", "!"})

_ORDINARY = re.compile(r"[^\s'\"\\;&|<>()`$*?\[#]+|#")
_IN_QUOTES = re.compile(r"[^\"\\`$]+")
_OPERATOR = re.compile(r"\|\||&&|;;|\|&|[;|&]")
_REDIRECT = re.compile(r"&>>?|<<<|<<-?|<[&>]?|>>|>&|>\||>")
_MARK = re.compile(r"[ \t]*+(['\"\\]?)([\w.-]{1,80})\1?")
_DOCUMENT_IN = re.compile(r"\$\(\s{0,9}cat\s{0,9}<<-?[ \t]{0,9}(['\"]?)(\w{1,80})\1")
_LINES = re.compile(r"(\d{1,9})(?:,(\d{1,9}|\$))?p;?\Z")
_COUNT = re.compile(r"(?:-n ?|-|--lines=)(\d{1,9})\Z")
_WORD = re.compile(r"[\w./~@+-]+")

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

    @property
    def writes_elsewhere(self) -> bool:
        return any(">" in sign and not _is_nowhere(to) for sign, to in self.redirects)


def command_effects(command: str) -> CommandEffects:
    """What `command` does to files."""
    return _known_effects(command) if len(command) <= 2_000 else _effects_of(command)


@lru_cache(maxsize=1_000)
def _known_effects(command: str) -> CommandEffects:
    return _effects_of(command)


def _effects_of(command: str, depth: int = 0) -> CommandEffects:
    try:
        commands = list(_Lexer(command).commands())
    except ValueError:  # an open quote or bracket
        return CommandEffects(effects=(Effect(MayChange(_words_in(command))),), folder=None)
    if len(commands) == 1 and depth < 2:
        program, arguments = _program_of(commands[0])
        if program in _SHELLS and len(arguments) == 2 and arguments[0].text in ("-c", "-lc"):
            inner = _effects_of(arguments[1].text, depth + 1)
            return CommandEffects(inner.shows, inner.effects)
    return _Effects(commands).read()


class _Lexer:
    """Splits a command line into simple commands; heredocs are taken as they stand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at: int = 0
        self._command = _Command()
        self._word: _Word | None = None
        self._redirect = ""
        # Heredocs whose text begins on the next line: mark, whether the text is plain, whether tabs
        # before its lines are left out, command.
        self._documents: list[tuple[str, bool, bool, _Command]] = []

    def commands(self) -> Iterator[_Command]:
        """The simple commands in order.

        Raises:
            ValueError: A quote or a bracket is open, or the line is too long.
        """
        text, read_chars = self._text, 0
        while self._at < len(text):
            before = self._at
            char = text[before]
            if char == "\n":
                yield from self._end_command("\n")
                self._at += 1
                self._take_documents()
                continue
            if char in " \t\r":
                self._end_word()
                self._at += 1
            elif found := _REDIRECT.match(text, before):
                self._begin_redirect(found)
            elif found := _OPERATOR.match(text, before):
                yield from self._end_command(found[0])
                self._at = found.end()
            elif char in "()" and self._word is None:
                yield from self._end_command(char)
                self._at += 1
            elif char == "#" and self._word is None:
                end = text.find("\n", before)
                self._at = end if end >= 0 else len(text)
            else:
                self._take_part(char)
            read_chars += self._at - before
            # So long a line, heredocs left out, was not written by hand; only its words are read.
            if read_chars > 20_000:
                raise ValueError("the command line is too long")
        yield from self._end_command("")

    def _take_part(self, char: str) -> None:
        """Take a part of a word: quoted, escaped, expanded or ordinary."""
        text, at = self._text, self._at
        word = self._word = self._word or _Word()
        if char == "'":
            end = text.index("'", at + 1)
            word.text += text[at + 1 : end]
            self._at = end + 1
        elif char == '"':
            self._at = at + 1
            self._take_quoted(word)
        elif char == "\\":
            escaped = text[at + 1 : at + 2]
            if word.text and (escaped.isalnum() or escaped in "_.*"):
                word.text += char  # a path of Windows
            word.text += escaped.replace("\n", "")
            self._at = at + 2
        elif char in "$`":
            self._take_expansion(word)
        elif found := _ORDINARY.match(text, at):
            word.text += found[0]
            self._at = found.end()
        else:  # a star or the like
            word.text += char
            word.is_plain = False
            self._at = at + 1

    def _take_quoted(self, word: _Word) -> None:
        text = self._text
        while (char := text[self._at : self._at + 1]) != '"':
            if not char:
                raise ValueError("a quote is open")
            if char == "\\":
                escaped = text[self._at + 1 : self._at + 2]
                word.text += escaped if escaped in '"\\$`' else f"\\{escaped}"
                self._at += 2
            elif char in "$`":
                self._take_expansion(word)
            elif found := _IN_QUOTES.match(text, self._at):
                word.text += found[0]
                self._at = found.end()
        self._at += 1

    def _take_expansion(self, word: _Word) -> None:
        """Take `$NAME`, `$(COMMAND)` or a command in backquotes, as they stand."""
        text, start = self._text, self._at
        word.is_plain = False
        if text[start] == "`":
            self._at = text.index("`", start + 1) + 1
        elif document := _DOCUMENT_IN.match(text, start):
            _, end = _end_of_document(text, text.index("\n", document.end()), document[2])
            self._at = text.index(")", end) + 1
        elif text.startswith("$(", start):
            depth, self._at = 1, start + 2
            while depth:
                char = text[self._at : self._at + 1]
                if not char:
                    raise ValueError("a bracket is open")
                depth += (char == "(") - (char == ")")
                self._at += 1
        else:
            self._at = start + 1
        word.text += text[start : self._at]

    def _begin_redirect(self, found: re.Match[str]) -> None:
        if self._word is not None and self._word.text.isdigit():
            self._word = None  # the number of a stream
        self._end_word()
        self._at = found.end()
        if found[0] in ("<<", "<<-"):
            mark = _MARK.match(self._text, self._at)
            if mark is None:
                raise ValueError("a heredoc has no mark")
            self._documents.append((mark[2], bool(mark[1]), found[0] == "<<-", self._command))
            self._at = mark.end()
        else:
            self._redirect = found[0]

    def _end_word(self) -> None:
        if self._word is None:
            return
        if self._redirect:
            self._command.redirects.append((self._redirect, self._word))
            self._redirect = ""
        else:
            self._command.words.append(self._word)
        self._word = None

    def _end_command(self, operator: str) -> Iterator[_Command]:
        self._end_word()
        self._redirect = ""
        command = self._command
        if command.words or command.redirects or command.body is not None:
            command.operator = operator
            yield command
            self._command = _Command()
        elif operator in "()":
            yield _Command(operator=operator)

    def _take_documents(self) -> None:
        for mark, is_plain, drops_tabs, command in self._documents:
            stop, after = _end_of_document(self._text, self._at - 1, mark)
            body = self._text[self._at : stop + 1]
            if drops_tabs:
                body = "\n".join(line.lstrip("\t") for line in body.split("\n"))
            command.body = _Word(body, is_plain or not any(sign in body for sign in "$`\\"))
            self._at = after
            if self._text[after : after + 1] == "\n":
                self._at += 1
        self._documents = []


def _end_of_document(text: str, start: int, mark: str) -> tuple[int, int]:
    """Offsets of the last newline of a heredoc that follows `start`, and after its mark."""
    found = re.compile(rf"\n[ \t]*{re.escape(mark)}[ \t]*(?=[\n);&|]|\Z)").search(
        text, max(0, start)
    )
    return (found.start(), found.end()) if found else (len(text), len(text))


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
        certainties = _certainties(self._commands)
        pipeline: list[_Command] = []  # the commands before in the same pipeline
        for command, certainty in zip(self._commands, certainties, strict=True):
            program, arguments = _program_of(command)
            if program in ("cd", "pushd", "popd"):
                self._enter(program, arguments, certainty)
            else:
                self._print(command, pipeline, certainty)
                self._change(command, program, arguments, certainty, is_first=not pipeline)
            if command.operator in ("|", "|&"):
                pipeline.append(command)
            else:
                pipeline.clear()
        are_all = len(self._shows) == self._prints
        is_split = self._prints == 1 or all(shown.count for shown in self._shows)
        shows = tuple(self._shows) if are_all and is_split else ()
        return CommandEffects(shows, tuple(self._effects), self._folder)

    def _enter(self, program: str, arguments: Sequence[_Word], certainty: Certainty) -> None:
        target = arguments[0] if program == "cd" and len(arguments) == 1 else None
        is_known = target is not None and target.is_plain and target.text != "-"
        path = self._placed(target) if is_known and certainty != "maybe" else None
        self._folder = "" if path == "." else path

    def _placed(self, word: _Word | None) -> str | None:
        """The path that `word` names, from the folder in which the line starts; None if unknown."""
        if word is None or not word.is_plain or word.text in ("", "-"):
            return None
        path = plain_path(word.text)
        if is_absolute(path):
            return path
        return (
            None if self._folder is None else posixpath.normpath(posixpath.join(self._folder, path))
        )

    def _print(self, command: _Command, pipeline: Sequence[_Command], certainty: Certainty) -> None:
        """Note what a command prints that reads the output of `pipeline`."""
        program, _ = _program_of(command)
        if command.operator in ("|", "|&") or not command.words or program in _SILENT:
            return
        if command.writes_elsewhere and program in ("cat", "echo", "printf"):
            return
        self._prints += 1
        shown = self._shown(command, pipeline)
        if shown is not None and command.operator != "&" and certainty != "maybe":
            self._shows.append(shown)

    def _shown(self, command: _Command, pipeline: Sequence[_Command]) -> Shows | None:
        program, arguments = _program_of(command)
        is_numbered = False
        if pipeline:  # cat FILE | head, nl FILE | sed -n A,Bp
            reader, given = _program_of(pipeline[0])
            is_reading = reader in ("cat", "nl") and not pipeline[0].writes_elsewhere
            if not is_reading or program not in ("head", "sed") or len(pipeline) > 1:
                return None
            is_numbered = reader == "nl" or any(word.text == "-n" for word in given)
            arguments = [*arguments, *(word for word in given if not _is_option(word))]
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
            count = _COUNT.match(" ".join(options) or "-10")
            return Shows(path, 1, int(count[1]), is_numbered) if count else None
        if program == "sed" and options[:1] == ["-n"] and len(options) == 2:
            lines = _LINES.match(options[1])
            if lines is None:
                return None
            start = int(lines[1])
            if lines[2] == "$":
                return Shows(path, start, None, is_numbered)
            return Shows(path, start, int(lines[2] or start) - start + 1, is_numbered)
        return None

    def _change(
        self,
        command: _Command,
        program: str,
        arguments: Sequence[_Word],
        certainty: Certainty,
        *,
        is_first: bool,
    ) -> None:
        for sign, to in command.redirects:
            if ">" not in sign or _is_nowhere(to) or to.text in self._temporary:
                continue
            is_copy = program == "cat" and not arguments and is_first
            self._write(command.body if is_copy else None, to, certainty, appends=sign == ">>")
        names = [word for word in arguments if not word.text.startswith("-")]
        if program == "tee":
            appends = any(word.text == "-a" for word in arguments)
            for to in names:
                self._write(command.body if is_first else None, to, certainty, appends=appends)
        elif program == "rm":
            for word in names:
                path = self._placed(word)
                does = MayChange((word.text,)) if path is None else Deletes(path)
                self._effects.append(Effect(does, certainty))
        elif may := _may_change(program, arguments, names, command.body):
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
    last_list = max(
        (n + 1 for n, c in enumerate(commands[:-1]) if c.operator in (";", "\n", "&")), default=0
    )
    is_guarded = is_after_risk = is_alternative = False
    for n, command in enumerate(commands):
        program, _ = _program_of(command)
        first = command.words[0].text if command.words else ""
        is_guarded = (
            is_guarded
            or first in _OPENS
            or first.endswith("()")
            or command.operator in ("(", ")", ";;")
        )
        if is_guarded or is_alternative:
            found.append("maybe")
        elif is_after_risk:
            found.append("on_success" if n >= last_list else "maybe")
        else:
            found.append("always")
        if command.operator in (";", "\n", "&"):
            is_after_risk = is_alternative = False
        elif command.operator == "||":
            is_alternative = True
        elif command.operator == "&&" and program not in _SAFE:
            is_after_risk = True
    return found


def _program_of(command: _Command) -> tuple[str, list[_Word]]:
    """The program that a command runs, in lower case, and its arguments."""
    at = 0
    words = command.words
    while at < len(words) and (words[at].text in _BEFORE_PROGRAM or _is_assignment(words[at].text)):
        at += 1
    if at < len(words) and words[at].text == "timeout":
        at += 2
    if [word.text for word in words[at : at + 2]] in (["uv", "run"], ["poetry", "run"]):
        at += 2
    if at >= len(words):
        return "", []
    return posixpath.basename(words[at].text).lower(), words[at + 1 :]


def _may_change(
    program: str, arguments: Sequence[_Word], names: Sequence[_Word], body: _Word | None
) -> MayChange | None:
    """What a program that is not followed may change."""
    words = [word.text for word in arguments]
    named = tuple(name.text for name in names)
    if program == "git":
        verb = named[0] if named else ""
        creates = verb in ("checkout", "switch") and any(w in ("-b", "-c", "-B") for w in words)
        is_kept = (
            creates or "--soft" in words or words[:2] in (["stash", "list"], ["stash", "show"])
        )
        return MayChange(named[1:], or_any=True) if verb in _GIT_CHANGES and not is_kept else None
    if program in _STREAM_EDITORS and any(map(_is_in_place, words)):
        return MayChange(named)
    if program.startswith(_POWERSHELL_CHANGES):
        return MayChange(named, or_any=True)
    if program in ("cp", "ln", "install", "rsync", "scp"):
        target = named[-1] if named else ""
        inner = [posixpath.join(target, posixpath.basename(name)) for name in named[:-1]]
        return MayChange((target.rstrip("/"), *inner)) if target else None
    if program == "xargs" and not {"sed", "rm", "perl", "mv"}.isdisjoint(words):
        return MayChange()
    called = words[:6] if program in _RUNNERS else []
    if not _REWRITERS.isdisjoint((program, *called)):
        if not _ONLY_CHECKS.isdisjoint(words):
            return None
        return MayChange(named, or_any=True)
    if program in _INTERPRETERS:
        return _changed_by_code(words, named, body)
    if not program or (program in _READERS and not (program == "curl" and "-o" in words)):
        return None
    return MayChange(named) if named else None


def _changed_by_code(
    words: Sequence[str], named: Sequence[str], body: _Word | None
) -> MayChange | None:
    """What an interpreter may change by the code or the script that it is given."""
    has_code = any(word in ("-c", "-e", "-lc") for word in words)
    code = body.text if body is not None else " ".join(words) if has_code else ""
    if not code:  # a script may write what it is given, but not itself
        is_check = words[:1] == ["-m"] and not _CHECKING_MODULES.isdisjoint(named[:1])
        return None if is_check or not named[1:] else MayChange(tuple(named[1:]))
    writes = any(sign in code for sign in _WRITES_IN_CODE)
    return MayChange(_words_in(code)) if writes and _words_in(code) else None


def _words_in(text: str) -> tuple[str, ...]:
    """What may be names of files in a text of code: words with a dot or a slash."""
    words = (word.strip(".-") for word in _WORD.findall(text))
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
