"""What a program does to files, by its name and its arguments; and the effects of commands.

A few programs are followed exactly: `rm FILE`, `mv`, `sed -i`, git. All others return the files
that they may have changed: those that they name, and all where they rewrite what they find.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from context_compaction.activity import powershell
from context_compaction.activity.file_changes import Deletes, Writes
from context_compaction.activity.file_paths import below_drive, plain_path
from context_compaction.activity.formatters import formatted_endings
from context_compaction.activity.git_commands import Git, git_effects
from context_compaction.activity.outline import is_test
from context_compaction.activity.python_edits import written_by_python
from context_compaction.activity.script_edits import LineEdit, sed_edits
from context_compaction.activity.shell_words import GLOB, placed

# They change no file that they are given.
_READERS = frozenset({
    "awk", "basename", "cat", "cd", "cmp", "column", "comm", "cut", "date", "diff", "dirname",
    "echo", "egrep", "exit", "export", "false", "fgrep", "file", "find", "fold", "gawk", "grep",
    "head", "hexdump", "jq", "kill", "less", "ls", "md5sum", "mkdir", "more", "nl", "od", "open",
    "paste", "printf", "ps", "pwd", "readlink", "realpath", "rev", "rg", "sed", "set", "sha256sum",
    "shasum", "shellcheck", "sleep", "sort", "source", "ssh", "stat", "strings", "tac", "tail",
    "test", "tr", "tree", "true", "type", "uniq", "wait", "wc", "which", "xxd", "yq", "zcat", "[",
    "[[", "fi", "done", "esac", "}", ")", "for", "if", "while", "perl", "code", "chmod", "bat",
    "ag", "gh",
})  # fmt: skip
_INTERPRETERS = frozenset({
    "python", "python3", "node", "ruby", "deno", "php", "perl", "tsx", "ts-node", "Rscript",
    "pytest", "bash", "sh", "zsh", "uv", "poetry", "npx", "bunx", "pnpx", "npm", "pnpm", "yarn",
    "bun", "make", "just", "cargo", "go", "tsc", "tsgo", "mypy", "pyright", "pylint", "flake8",
    "vitest", "jest", "tox", "nox", "docker", "gcc", "g++", "clang", "rustc", "javac", "java",
    "dotnet", "gradle", "mvn", "swift", "ctest", "cmake",
})  # fmt: skip
# They write into what they name, be it a folder.
_WRITERS = frozenset({
    "dd", "install", "ln", "patch", "rsync", "shred", "tar", "tee", "truncate", "unzip",
})  # fmt: skip
# With -i, and sort with -o, they change what they read.
_EDITORS = frozenset({"sed", "perl", "awk", "gawk", "yq", "sort"})
_REWRITES = re.compile(
    r"\b(?:black|isort|autopep8|yapf|gofmt|goimports|rustfmt|clang-format|prettier|biome|dprint|oxfmt|"
    r"rubocop|codemod|jscodeshift|pre-commit|lint-staged|standard)\b"
    r"|\b(?:format|fmt|fix|rewrite|codegen|generate|gen|migrate)\b"
)
_REWRITING_OPTION = re.compile(
    r" --(?:fix|write|in-place|apply)\b|\Afind .* -(?:exec|delete|ok)|\Axargs .*(?: -i| rm\b| mv\b)"
)
_INSTALLS = re.compile(
    r"\b(?:add|install|i|remove|uninstall|update|upgrade|init|get|tidy|ci|sync"
    r"|version|release|bump)\b"
)
_MANIFESTS = (
    "package.json", "*lock*", "pyproject.toml", "requirements*.txt", "Cargo.toml", "go.mod",
    "go.sum", "Gemfile", "composer.json", "npm-shrinkwrap.json", "setup.cfg", "CHANGELOG*",
    "*version*",
)  # fmt: skip
_CHECKS_ONLY = re.compile(r"--(?:check|diff|list-different|dry-run)\b|\s-l\b")
_CODE_WRITES = re.compile(r"write|open\(|replace|rename|unlink|remove|>|sed |copy|move|\bmv\b|dump")
_MOVES_OTHERWISE = re.compile(r"-\w*[tnuiTSb]|--\w")
_EXPANDS = re.compile(r"\$[\w{(*@#?!-]|[`!]")


@dataclass(frozen=True, slots=True)
class Shows:
    """The command prints a file, or lines of it: from `start` on, `count` of them or all."""

    path: str
    start: int | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class MayChange:
    """The command may change the files that `words` name; all where there are none.

    `by` is the part of the command line that may. Of a formatter `endings` are those of the files
    that it lays out anew.
    """

    words: tuple[str, ...] = ()
    by: str = field(default="", compare=False)
    endings: tuple[str, ...] = ()

    def concerns(self, path: str) -> bool:
        """Whether the file at `path` may be one of them."""
        if self.endings and not path.endswith(self.endings):
            return False
        return not self.words or any(_may_name(word, path) for word in self.words)


@dataclass(frozen=True, slots=True)
class Runs:
    """The command runs the script at `path`, from `folder` where that is known."""

    path: str
    folder: str | None


@dataclass(frozen=True, slots=True)
class RunsPython:
    """The command runs these lines of Python, with paths as seen from `folder`."""

    code: str
    folder: str


@dataclass(frozen=True, slots=True)
class Moves:
    """The command renames a file or a folder, or moves or copies it into a folder."""

    old: str
    new: str
    by: str = "mv"


@dataclass(frozen=True, slots=True)
class EditsLines:
    """The command edits line by line what `path` names, which may contain stars."""

    path: str
    edits: tuple[LineEdit, ...]


@dataclass(frozen=True, slots=True)
class GoesTo:
    """The folder of the shell after the command is `folder`; None where it is not known."""

    folder: str | None


CommandEffect: TypeAlias = (
    Shows | Writes | Deletes | MayChange | Runs | RunsPython | EditsLines | Moves | GoesTo | Git
)


def program_effects(
    program: str,
    arguments: Sequence[str],
    body: str | None,
    folder: str | None,
    line: str,
    command: str,
) -> Iterator[CommandEffect]:
    """What `program` does to files.

    Args:
        program: Its name, without its folder.
        arguments: All words behind it.
        body: The document that it is handed; one that begins with a NUL the shell may expand.
        folder: Where its relative paths start; None where that is not known.
        line: Its part of the command line, without redirections.
        command: The whole command line.
    """
    names = [word for word in arguments if word and not word.startswith("-")]
    code = body or next((names[0] for flag in ("-c", "-e") if flag in arguments and names), None)
    edits = any(re.match(r"-\w*[io]|--in-place", word) for word in arguments)
    if program in _NAMED_EFFECTS:
        yield from _NAMED_EFFECTS[program](names, arguments, folder)
    elif program == "sed" and (exact := _sed_edits(arguments, folder, command)):
        yield from exact
    elif program in _EDITORS and edits:
        # The first is the script.
        yield MayChange(tuple(names if program == "sort" else names[1:]))
    elif _rewrites(program, names, line):
        is_told = program not in _INTERPRETERS and _only_files(names)
        if not _CHECKS_ONLY.search(line):
            # Its first words: what it is called by, not the files that it is given.
            called = " ".join((program, *names[: 2 if program in _INTERPRETERS else 0]))
            yield MayChange(tuple(names) if is_told else (), endings=formatted_endings(called))
    elif program in _INTERPRETERS:
        passed = _passed(code, command) if body is None and code is not None else code
        if program.startswith("python") and passed is not None and folder is not None:
            yield RunsPython(passed, folder)
        else:
            yield from _run(names, code, folder)
    elif program == "curl":
        # All else are addresses, headers and forms of output.
        yield from _fetched(arguments)
    else:
        yield from _changed_by_name(program, names, line)


def _fetched(arguments: Sequence[str]) -> Iterator[CommandEffect]:
    """The files that curl writes; with -O it names them itself."""
    if any(re.match(r"-\w*O|--remote-name", word) for word in arguments):
        yield MayChange()
        return
    named = [
        target for flag, target in pairwise(arguments) if re.fullmatch(r"-\w*o|--output", flag)
    ]
    if files := [target for target in named if not target.startswith("/dev/")]:
        yield MayChange(tuple(files))


def _changed_by_name(program: str, names: Sequence[str], line: str) -> Iterator[CommandEffect]:
    """What a program that is no editor changes of its arguments."""
    if (told := powershell.changed_files(program, line.split(), names)) is not None:
        yield from [MayChange(tuple(told))] if told else []
    elif program == "gh":
        # What else it is given it reads.
        yield from [MayChange()] if names[:2] in (["pr", "checkout"], ["repo", "sync"]) else []
    elif program in _WRITERS and names:
        yield MayChange(tuple(names))
    elif program and not _only_reads(program):
        named = tuple(name for name in names if _names_file(name))
        yield from [MayChange(named)] if named else []


def _changed_by_git(
    names: Sequence[str], arguments: Sequence[str], folder: str | None
) -> Iterator[CommandEffect]:
    if names[:1] == ["mv"]:
        yield from _moved(names[1:], arguments, folder, by="git")
        return
    made = git_effects(arguments, folder)
    # A patch that is applied changes files alone.
    if made is None:
        yield MayChange()
        made = [] if names[:1] == ["apply"] else [Git("forget")]
    yield from made


def _moved(
    names: Sequence[str], arguments: Sequence[str], folder: str | None, *, by: str
) -> Iterator[Moves | MayChange]:
    """What `mv`, `cp` or `git mv` does with `names`, of which the last is the target."""
    paths = [placed(name, folder) for name in names]
    sources = [path for path in paths[:-1] if path]
    target = paths[-1] if paths else None
    is_plain = not any(_MOVES_OTHERWISE.match(word) for word in arguments)
    if not target or not is_plain or len(sources) != len(paths) - 1:
        yield MayChange(tuple(names[-1:] if by == "cp" else names))
        return
    is_folder = len(sources) > 1 or names[-1].endswith("/") or target == "."
    for source in sources:
        to = posixpath.normpath(posixpath.join(target, posixpath.basename(source)))
        yield Moves(source, to if is_folder else target, by)


def _removed(
    names: Sequence[str], arguments: Sequence[str], folder: str | None
) -> Iterator[CommandEffect]:
    is_told = not any(word.startswith("-") and "i" in word for word in arguments)
    for name in names:
        path = placed(name, folder, may_match=True)
        yield Deletes(path) if path and is_told else MayChange((name,))


_NAMED_EFFECTS: Mapping[str, Callable[..., Iterator[CommandEffect]]] = {
    "rm": _removed,
    "git": _changed_by_git,
    "mv": partial(_moved, by="mv"),
    "cp": partial(_moved, by="cp"),
}


def _sed_edits(arguments: Sequence[str], folder: str | None, command: str) -> list[CommandEffect]:
    """What `sed -i SCRIPT FILE…` does, where the shell left the script as it is."""
    words = [word for word in arguments if word]
    if words[:1] != ["-i"] or any(word.startswith("-") for word in words[1:]) or len(words) < 3:
        return []
    script = _passed(words[1], command)
    edits = None if script is None else sed_edits(script)
    if edits is None:
        return []
    paths = {word: placed(word, folder, may_match=True) for word in words[2:]}
    return [EditsLines(to, edits) if to else MayChange((word,)) for word, to in paths.items()]


def _passed(word: str, command: str) -> str | None:
    """`word` as the shell passes it to a program; None where it may put something in."""
    if f"'{word}'" in command:
        return word
    # A backslash is left before what it keeps from the shell alone, and that is a dollar here.
    return None if _EXPANDS.search(word) else word.replace("\\$", "$")


def _rewrites(program: str, names: Sequence[str], line: str) -> bool:
    """Whether a command changes what it finds, named or not: formatters, generators."""
    if (program == "find" or not _only_reads(program)) and _REWRITING_OPTION.search(line):
        return True
    runs_script = program in _INTERPRETERS and bool(names) and "." in names[0]
    is_told = not _only_reads(program) and not runs_script
    return is_told and _REWRITES.search(" ".join((program, *names[:2]))) is not None


def _only_reads(program: str) -> bool:
    return program in _READERS or powershell.only_reads(program)


def _names_file(word: str) -> bool:
    return "://" not in word and re.search(r"\w\.\w+\Z", word) is not None


def _run(names: Sequence[str], code: str | None, folder: str | None) -> Iterator[CommandEffect]:
    if code is not None:
        yield from changed_by_code(code)
        return
    if _INSTALLS.search(" ".join(names[:2])):
        yield MayChange(_MANIFESTS)
    script = placed(names[0], folder) if names and "." in names[0] else None
    # Tests write what they need, and none of what they test.
    if script and not is_test(script):
        yield Runs(script, folder)


def changed_by_code(code: str) -> Iterator[MayChange]:
    """What a script may change: the files that it names, where it writes anything at all."""
    written = written_by_python(code)
    if written is not None:
        words = tuple(sorted(written.names))
    else:
        words = tuple(words_in(code)) if _CODE_WRITES.search(code) else ()
    if words:
        yield MayChange(words)


def _only_files(names: Sequence[str]) -> bool:
    """Whether all but the first words are names of files."""
    files = [name for name in names if _names_file(name) and not GLOB.search(name)]
    return bool(files) and len(names) - len(files) <= 1


def words_in(text: str) -> list[str]:
    """What may be names of files in a text of code."""
    words = (word.strip(".-") for word in re.findall(r"[\w./*-]+", text))
    return list(dict.fromkeys(word for word in words if "." in posixpath.basename(word)))


def _may_name(word: str, path: str) -> bool:
    word = plain_path(word.rstrip("/\\")) if word else ""
    name = posixpath.basename(word)
    if word in ("", ".", "..", "*", "./*") or "$" in name or "`" in name:
        return True
    if fnmatch(posixpath.basename(path), name):
        return True
    folder = below_drive(word).lstrip("./")
    return bool(folder) and f"/{folder}/" in f"/{path}"
