"""What a shell command does to files, as far as its text determines it.

A few forms are followed exactly: `cat FILE`, `sed -n '1,20p' FILE`, `cat > FILE <<'EOF'`,
`rm FILE`. All others return the files that they may have changed: those that they name or write
into, and all where they restore a tree or rewrite what they find.
"""

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import lru_cache, partial
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
from context_compaction.activity.shell_words import (
    GLOB,
    HEREDOC,
    line_words,
    pipelines,
    placed,
    program_of,
    redirections,
    temporary_variables,
    variable_in,
)

_DOCUMENT = "HEREDOC"
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
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
# Commands of so many characters whose effects are kept, and how many: each compaction of a session
# asks for those of all that stand in its list.
_REMEMBERED_CHARS = 1_000
_REMEMBERED = 1_000
_LINES_WANTED = re.compile(r"(\d+)(?:,(\d+|\$))?p;?\Z")
_CODE_WRITES = re.compile(r"write|open\(|replace|rename|unlink|remove|>|sed |copy|move|\bmv\b|dump")
_CHANGES_FOLDER = re.compile(r"(?:^|[;&|(\n])[ \t]{0,20}(?:cd|pushd|popd)\b")
_MOVES_OTHERWISE = re.compile(r"-\w*[tnuiTSb]|--\w")
_EXPANDS = re.compile(r"\$[\w{(*@#?!-]|[`!]")
_NOWHERE = ("/dev/", "$null")
_VISITS = re.compile(r"git (?:checkout|switch)\b")


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


# What is longer, documents apart, was written by no hand. `shlex` puts words together a character
# at a time, which takes the square of the longest.
MAX_COMMAND_CHARS = 10_000


def may_change_folder(command: str) -> bool:
    """Whether `command` may leave the shell in another folder."""
    return _CHANGES_FOLDER.search(command) is not None


def command_effects(command: str, *, folder: str | None = "") -> Sequence[CommandEffect]:
    """What `command` does to files, in order, and last where it leaves the shell.

    Args:
        command: The command line.
        folder: Where its relative paths start, as seen from where those of other calls do; None
            where that is not known.
    """
    is_short = len(command) <= _REMEMBERED_CHARS
    return _known_effects(command, folder) if is_short else _effects_of(command, folder)


@lru_cache(maxsize=_REMEMBERED)
def _known_effects(command: str, folder: str | None) -> Sequence[CommandEffect]:
    return _effects_of(command, folder)


def _effects_of(command: str, folder: str | None) -> Sequence[CommandEffect]:
    inner = _inner_line(command)
    if inner is not None:
        made = command_effects(inner, folder=folder)
        return [effect for effect in made if not isinstance(effect, GoesTo)]
    documents: list[str] = []

    def kept(found: re.Match[str]) -> str:
        # What the shell would expand in it is not known.
        body = found[4] + ("\n" if found[4] else "")
        is_plain = bool(found[1]) or not re.search(r"[$`\\]", body)
        documents.append(body if is_plain else "\0" + body)
        return f"<< {_DOCUMENT}{len(documents) - 1} {found[3]}"

    bare = HEREDOC.sub(kept, command)
    if len(bare) > MAX_COMMAND_CHARS:
        return _unread(command)
    try:
        words = line_words(bare)
    except ValueError:
        return _unread(command)
    return _effects(words, documents, command, folder)


def _unread(command: str) -> list[CommandEffect]:
    """What a command that cannot be read may have done: anything to whatever it names."""
    may = MayChange(tuple(_words_in(command)))
    return [may, GoesTo(None)] if may_change_folder(command) else [may]


def _effects(
    words: Sequence[str], documents: Sequence[str], command: str, folder: str | None
) -> list[CommandEffect]:
    found: list[CommandEffect] = []
    outer: list[str | None] = []  # folders of the shells around this one
    shows, start = 0, folder
    temporary = temporary_variables(words)
    for pipeline, is_certain in pipelines(words):
        first, last = pipeline[0][0], pipeline[-1][-1]
        outer += [folder] * (len(first) - len(first.lstrip("(")))
        closed = min(max(0, last.count(")") - last.count("(")), len(outer))
        if closed:
            pipeline[-1][-1] = last[: len(last) - closed] if last.endswith(")" * closed) else last
        program, arguments = program_of(pipeline[0])
        if program in ("cd", "pushd", "popd") and len(pipeline) == 1:
            folder = _entered(folder, arguments) if is_certain and program == "cd" else None
            folder = _left(outer, folder, closed)
            continue
        made = [
            told
            for part in pipeline
            for effect in _of_command(part, documents, folder, command)
            for told in _told(effect, part, temporary)
        ]
        shown = _shown(pipeline, folder)
        shows += 1
        found += [shown] if shown else []
        found += made if is_certain else [other for effect in made for other in _doubts(effect)]
        folder = _left(outer, folder, closed)
    found = _without_round_trip(found)
    # The output belongs to files only where nothing else prints, and to several by their counts.
    told = [effect for effect in found if isinstance(effect, Shows)]
    are_all = len(told) == shows and (shows == 1 or all(effect.count for effect in told))
    if not are_all or any("&" in word and word != "&&" for word in words if word.startswith("&")):
        found = [effect for effect in found if not isinstance(effect, Shows)]
    return [*found, GoesTo(folder)] if folder != start else found


def _without_round_trip(found: list[CommandEffect]) -> list[CommandEffect]:
    """`found` without what git checked out between a stash and its pop, which take it back.

    Without these too, where nothing else was done in between.
    """
    verbs = [effect.verb if isinstance(effect, Git) else "" for effect in found]
    if "stash" not in verbs or "pop" not in verbs:
        return found
    start, stop = verbs.index("stash"), len(verbs) - 1 - verbs[::-1].index("pop")
    inside = found[start + 1 : stop]
    visits = [one for one in inside if isinstance(one, MayChange) and _VISITS.match(one.by)]
    if start > stop or len(visits) < 2:  # there and back
        return found
    kept = [one for one in inside if one not in visits and one != Git("forget")]
    if all(isinstance(one, Shows) for one in kept):
        return [*found[:start], *kept, *found[stop + 1 :]]
    return [*found[: start + 1], *kept, *found[stop:]]


def _entered(folder: str | None, arguments: Sequence[str]) -> str | None:
    """The folder after `cd` with `arguments` in `folder`."""
    names = [word for word in arguments if word and word != "--"]
    found = placed(names[0], folder) if len(names) == 1 and names[0] != "-" else None
    return "" if found == "." else found


def _left(outer: list[str | None], folder: str | None, closed: int) -> str | None:
    """The folder after so many shells have ended that were opened in brackets."""
    for _ in range(closed):
        folder = outer.pop()
    return folder


def _told(
    effect: CommandEffect, words: Sequence[str], temporary: Collection[str]
) -> list[CommandEffect]:
    """`effect`; an uncertain one by what part of a line, and without files that are its own."""
    if not isinstance(effect, MayChange):
        return [effect]
    named = tuple(word for word in effect.words if variable_in(word) not in temporary)
    is_done = effect.words and not named
    return [] if is_done else [replace(effect, words=named, by=" ".join(redirections(words)[0]))]


def _doubts(effect: CommandEffect) -> Iterator[CommandEffect]:
    """The possible changes of `effect` where it is not certain that it took place."""
    match effect:
        case Writes(path) | Deletes(path) | EditsLines(path):
            yield MayChange((path,))
        case Moves(old, new):
            yield MayChange((old, new))
        case Git():
            yield replace(effect, is_sure=False)
        case RunsPython(code):
            yield from changed_by_code(code)
        case _:
            yield effect


def _inner_line(command: str) -> str | None:
    """The argument of a shell's `-c`, `-lc` and the like; None for any other command."""
    if posixpath.basename(command.partition(" ")[0]) not in _SHELLS:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    has_line = len(words) == 3 and re.match(r"-\w*c\Z", words[1])
    return words[2] if has_line else None


def _of_command(
    words: Sequence[str], documents: Sequence[str], folder: str | None, command: str
) -> Iterator[CommandEffect]:
    """What one simple command changes."""
    kept, redirects = redirections(words)
    kept = powershell.command_in(kept)
    program, arguments = program_of(kept)
    bodies = (_document(to, documents) for op, to in redirects if op == "<<")
    body = next((text for text in bodies if text is not None), None)
    for operator, target in redirects:
        copies_stream = "&" in operator and (target.isdigit() or target == "-")
        if ">" not in operator or copies_stream or target.startswith(_NOWHERE):
            continue
        path = placed(target, folder)
        is_copied = program == "cat" and not arguments and body is not None
        if is_copied and body is not None and path and not body.startswith("\0"):
            yield Writes(path, body, appends=operator == ">>")
        else:
            yield MayChange((target,))
    yield from _changed(program, arguments, body, folder, " ".join(kept), command)


def _changed(
    program: str,
    arguments: Sequence[str],
    body: str | None,
    folder: str | None,
    line: str,
    command: str,
) -> Iterator[CommandEffect]:
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
        words = tuple(_words_in(code)) if _CODE_WRITES.search(code) else ()
    if words:
        yield MayChange(words)


def _only_files(names: Sequence[str]) -> bool:
    """Whether all but the first words are names of files."""
    files = [name for name in names if _names_file(name) and not GLOB.search(name)]
    return bool(files) and len(names) - len(files) <= 1


def _shown(pipeline: Sequence[Sequence[str]], folder: str | None) -> Shows | None:
    """What of a file a pipeline prints, and nothing but that."""
    first, redirects = redirections(pipeline[0])
    program, arguments = program_of(first)
    if any(">" in operator and "&" not in operator for operator, _ in redirects):
        return None
    if len(pipeline) == 2 and program in ("cat", "nl"):
        second, _ = program_of(pipeline[1])
        given = program_of(pipeline[1])[1]
        names = [word for word in arguments if not word.startswith("-") and word != "a"]
        if second in ("sed", "head") and len(names) == 1:
            return _lines_of(second, [*given, names[0]], folder)
        return None
    if len(pipeline) != 1:
        return None
    if program in ("cat", "nl"):
        names = [word for word in arguments if not word.startswith("-") and word != "a"]
        path = placed(names[0], folder) if len(names) == 1 else None
        return Shows(path) if path else None
    return _lines_of(program, arguments, folder)


def _lines_of(program: str, arguments: Sequence[str], folder: str | None) -> Shows | None:
    path = placed(arguments[-1], folder) if arguments else None
    if path is None:
        return None
    if program == "sed" and list(arguments[:-2]) == ["-n"]:
        wanted = _LINES_WANTED.match(arguments[-2])
        if wanted is None:
            return None
        start = int(wanted[1])
        if wanted[2] == "$":
            return Shows(path, start)
        return Shows(path, start, int(wanted[2] or start) - start + 1)
    if program == "head":
        count = re.match(r"(?:-n ?|-|--lines=)(\d+)\Z", " ".join(arguments[:-1]) or "-10")
        return Shows(path, 1, int(count[1])) if count else None
    return None


def _document(word: str, documents: Sequence[str]) -> str | None:
    number = word.removeprefix(_DOCUMENT)
    is_ours = number != word and number.isdigit() and int(number) < len(documents)
    return documents[int(number)] if is_ours else None


def _words_in(text: str) -> list[str]:
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
