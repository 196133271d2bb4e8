"""What a git command does to files, to the index and to the last commit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from context_compaction.activity.file_paths import joined_path
from context_compaction.activity.shell_words import placed

GitVerb: TypeAlias = Literal[
    "add", "commit", "from index", "from head", "from elsewhere", "stash", "pop",
    "apply", "drop", "forget", "remove",
]  # fmt: skip

# They may put any other state into the files: nothing that was committed is known to stand there.
_OTHER_STATES = frozenset({
    "am", "bisect", "cherry-pick", "clean", "merge", "pull", "rebase", "revert",
    "submodule", "switch",
})  # fmt: skip
_WITH_VALUE = frozenset({
    "-m", "-F", "-C", "-c", "-t", "-s", "-b", "-B", "--message", "--file", "--author", "--date",
    "--source", "--pathspec-from-file", "--template", "--fixup", "--orphan",
})  # fmt: skip
_HEAD = ("HEAD", "@")
_FILE = re.compile(r"\.(?:[A-Za-z]\w*)?\Z")


@dataclass(frozen=True, slots=True)
class Git:
    """Git restores or records the state of files that `paths` name; of all where it is empty.

    Attributes:
        verb: `add` notes their text in the index and `commit` the index as the last commit; with
            `from …` the files themselves are restored; `stash` stores changes, which `pop` and
            `apply` restore and `drop` deletes; `remove` deletes; after `forget` index and commit
            are not known.
        paths: Files and folders as other calls name them.
        has_all: Whether a commit takes all tracked files as they are.
        is_sure: Whether the command certainly ran.
    """

    verb: GitVerb
    paths: tuple[str, ...] = ()
    has_all: bool = False
    is_sure: bool = True

    def concerns(self, path: str) -> bool:
        """Whether `paths` name the file at `path`, or are empty."""
        return not self.paths or any(
            part in ("", ".") or path == part or path.startswith(f"{part}/") for part in self.paths
        )


def git_effects(arguments: Sequence[str], folder: str | None) -> list[Git] | None:
    """What `git` with `arguments` does in `folder`; None where it may do anything to any file."""
    words = list(arguments)
    while len(words) > 1 and words[0] in ("-C", "-c"):
        if words[0] == "-C":
            folder = None if folder is None else joined_path(folder, words[1])
        words = words[2:]
    while words and words[0].startswith("--"):
        words = words[1:]
    if not words:
        return []
    command = words[0]
    flags, names, paths = _parted(words[1:])
    places = [_placed(path, folder) for path in paths]
    if _only_names_branch(command, flags, names):
        return []
    if command not in _FOLLOWED:
        return None if command in _OTHER_STATES else []
    if None in places:
        return [Git("forget")] if command in ("add", "commit", "init") else None
    given = _Given(flags, names, tuple(path for path in places if path is not None))
    return _FOLLOWED[command](given)


def _only_names_branch(command: str, flags: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a branch is made where the work stands, so that no file changes."""
    match command, list(flags):
        case "checkout", ["-b" | "-B", *more] if len(names) == 1:
            return set(more) <= {"-q", "--quiet"}
        case "switch", ["-c" | "-C", *more] if not names:
            return set(more) <= {"-q", "--quiet"}
        case _:
            return False


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of a command.

    Attributes:
        flags: Its options, and among them a `--`.
        names: The other words, but for those behind a `--`.
        paths: What may be paths, as other calls name them: those behind a `--`, or all `names`.
    """

    flags: Sequence[str]
    names: Sequence[str]
    paths: tuple[str, ...]

    @property
    def has_dashes(self) -> bool:
        return "--" in self.flags

    def has(self, *wanted: str) -> bool:
        """Whether one of `wanted` is an option: letters also in a cluster of short ones."""
        letters = "".join(flag[1:] for flag in self.flags if re.match(r"-\w", flag))
        return any(one in self.flags or (len(one) == 1 and one in letters) for one in wanted)


def _added(given: _Given) -> list[Git] | None:
    if given.has("p", "--patch", "n", "--dry-run", "N", "--intent-to-add"):
        return [Git("forget")]
    is_all = given.has("A", "--all", "u", "--update") and not given.paths
    return [Git("add", given.paths)] if is_all or given.paths else []


def _committed(given: _Given) -> list[Git] | None:
    if given.has("p", "--patch", "--interactive", "--dry-run"):
        return [Git("forget")]
    return [Git("commit", given.paths, has_all=given.has("a", "--all"))]


def _removed(given: _Given) -> list[Git] | None:
    is_done = given.paths and not given.has("--cached", "n", "--dry-run")
    return [Git("remove", given.paths)] if is_done else [Git("forget")]


def _checked_out(given: _Given) -> list[Git] | None:
    if given.has("b", "B", "--orphan", "p", "--patch"):
        return None
    if given.has_dashes:
        return _taken(given.names, given.paths)
    if given.names[:1] and given.names[0] in _HEAD and len(given.paths) > 1:
        return _taken(given.names[:1], given.paths[1:])
    # Without dashes a word may be a branch: a file has an ending, or is the folder itself.
    is_told = given.names and all(_FILE.search(name) for name in given.names)
    return [Git("from index", given.paths)] if is_told else None


def _restored(given: _Given) -> list[Git] | None:
    if given.has("p", "--patch"):
        return None
    sources = [value for flag, value in pairwise(given.flags) if flag in ("-s", "--source")]
    sources += [f.partition("=")[2] for f in given.flags if f.startswith("--source=")]
    if given.has("S", "--staged"):
        if not given.has("W", "--worktree"):
            return [Git("forget")]
        sources = sources or ["HEAD"]
    return _taken(sources, given.paths)


def _reset(given: _Given) -> list[Git] | None:
    if given.has("--hard"):
        is_head = all(name in _HEAD for name in given.names)
        return _taken(["HEAD"], ()) if is_head else None
    return None if given.has("--keep", "--merge", "p", "--patch") else [Git("forget")]


def _stashed(given: _Given) -> list[Git] | None:
    verb, *rest = given.names or ["push"]
    if verb == "push" or (verb == "save" and not given.has_dashes):
        if given.has("k", "--keep-index", "p", "--patch", "S", "--staged", "a", "--all"):
            return None
        paths = given.paths if given.has_dashes else given.paths[1:]
        return [Git("stash", () if verb == "save" else paths)]
    if verb in ("list", "show"):
        return []
    is_last = rest in ([], ["0"], ["stash@{0}"]) and not given.has("--index")
    verbs: dict[str, GitVerb] = {"pop": "pop", "apply": "apply", "drop": "drop"}
    return [Git(verbs[verb])] if verb in verbs and is_last else None


def _applied(given: _Given) -> list[Git] | None:
    if given.has("--check", "--stat", "--numstat", "--summary"):
        return []
    # What it changes stands in a patch that may be anywhere.
    return [Git("forget")] if given.has("--cached") else None


def _initialised(given: _Given) -> list[Git] | None:
    return [Git("forget")] if not given.has("--help") else []


_FOLLOWED = {
    "add": _added,
    "commit": _committed,
    "rm": _removed,
    "checkout": _checked_out,
    "restore": _restored,
    "reset": _reset,
    "stash": _stashed,
    "init": _initialised,
    "apply": _applied,
}


def _taken(revisions: Sequence[str], paths: tuple[str, ...]) -> list[Git] | None:
    """The files are restored from the index, or from a revision."""
    if not revisions:
        return [Git("from index", paths)] if paths else None
    is_head = all(name in _HEAD for name in revisions)
    return [Git("from head" if is_head else "from elsewhere", paths)] if is_head or paths else None


def _parted(given: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Options with their values, the other words, and those of them that may be paths."""
    flags: list[str] = []
    names: list[str] = []
    at = 0
    while at < len(given):
        word = given[at]
        if word == "--":
            return [*flags, "--"], names, list(given[at + 1 :])
        if word.startswith("-") and word != "-":
            flags.append(word)
            takes_value = word in _WITH_VALUE or re.match(r"-[a-zA-Z]+[mF]\Z", word)
            if takes_value and at + 1 < len(given):
                at += 1
                if word in ("-s", "--source"):
                    flags.append(given[at])
                elif word in ("-b", "-B"):
                    names.append(given[at])
        else:
            names.append(word)
        at += 1
    return flags, names, list(names)


def _placed(path: str, folder: str | None) -> str | None:
    found = path if path.startswith("stash@") else placed(path, folder)
    return "" if found == "." else found
