"""What the index, the last commit and the stash contain of the replayed files.

Only what the conversation contains: where git restores a state that was never shown, the text is
dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from context_compaction.activity.git_commands import Git
from context_compaction.activity.known_file import ABSENT, FileSnapshot, KnownFile
from context_compaction.activity.replayed_file import Doubt

_UNKNOWN = "git put an earlier state back, which was not shown"
_FIRST = "git took the changes back, and this is how it was first read"
_MERGED = "git put changes back onto another state"


@dataclass(slots=True)
class GitState:
    """The states of files by path; one that is missing is not known.

    Attributes:
        index: The states for the next commit.
        head: What was committed last.
        stashes: The stashed files, newest last: the state then, and the one that replaced it.
    """

    index: dict[str, FileSnapshot] = field(default_factory=dict[str, FileSnapshot])
    head: dict[str, FileSnapshot] = field(default_factory=dict[str, FileSnapshot])
    stashes: list[dict[str, tuple[FileSnapshot, FileSnapshot]]] = field(
        default_factory=list[dict[str, tuple[FileSnapshot, FileSnapshot]]]
    )

    def found(self, file: KnownFile) -> None:
        """Record the state of `file` before its first change as the one committed."""
        if not file.writes and file.parts and file.path not in self.head:
            doubt = file.doubt or Doubt(_FIRST, file.seen_at)
            state = replace(file.state, doubt=doubt)
            self.head[file.path] = self.index[file.path] = state

    def moved(self, old: str, new: str, *, by_git: bool) -> None:
        """Rename a file."""
        if by_git and old in self.index:
            self.index[new] = self.index[old]
            self.head.setdefault(new, ABSENT)
            self.index[old] = ABSENT

    def forget(self) -> None:
        """Forget what index and commit contain."""
        self.index, self.head = {}, {}

    def follow(self, at: int, files: Mapping[str, KnownFile], done: Git, reason: str) -> None:
        """Do to `files` what git did in the message `at`."""
        meant = [file for path, file in files.items() if done.concerns(path)]
        match done.verb:
            case "add" | "commit" | "forget":
                self._note(meant, done)
            case "stash":
                self._stash(at, meant, reason)
            case "pop" | "apply" | "drop":
                self._unstash(at, files, done, reason)
            case _:
                for file in meant:
                    self._take(at, file, done, reason)

    def _note(self, files: list[KnownFile], done: Git) -> None:
        """Update the index and the last commit; the files stay."""
        match done.verb:
            case "add":
                self._add(files)
            case "commit":
                if done.paths or done.has_all:
                    self._add([f for f in files if done.paths or f.path in self.index])
                self.head |= self.index
                for file in files:
                    state = self.head.get(file.path)
                    if state is not None and file.state.has_text_of(state):
                        file.touched = []
            case _:
                self.forget()

    def _take(self, at: int, file: KnownFile, done: Git, reason: str) -> None:
        """Restore `file` from the index or the last commit, or delete it."""
        if done.verb == "from elsewhere":
            self.index.pop(file.path, None)
            file.lose(at, _UNKNOWN, is_gone=True)
            file.settled_at = at
        elif done.verb == "remove":
            self.index[file.path] = ABSENT
            file.put_back(at, ABSENT)
        elif done.verb == "from index":
            self._put(at, file, self.index.get(file.path), reason)
        else:
            if file.path in self.head:
                self.index[file.path] = self.head[file.path]
            else:
                self.index.pop(file.path, None)
            if done.paths or file.path in self.head:
                self._put(at, file, self.head.get(file.path), reason)
            elif file.writes:
                # New for git, so that it stays, or changed before anybody saw it.
                file.doubted(at, reason)

    def _add(self, files: list[KnownFile]) -> None:
        for file in files:
            if file.is_deleted or file.parts:
                self.index[file.path] = file.state
            else:
                self.index.pop(file.path, None)

    def _put(self, at: int, file: KnownFile, state: FileSnapshot | None, reason: str) -> None:
        if state is not None:
            if not file.state.has_text_of(state):
                file.put_back(at, state)
        elif file.writes:
            file.lose(at, _UNKNOWN, is_gone=True)
            file.settled_at = at
        else:
            # Nothing that is told has changed it, so it is as it was.
            file.doubted(at, reason)

    def _stash(self, at: int, files: list[KnownFile], reason: str) -> None:
        put_aside: dict[str, tuple[FileSnapshot, FileSnapshot]] = {}
        for file in files:
            base = self.head.get(file.path)
            if base is not None:
                if not file.state.has_text_of(base):
                    put_aside[file.path] = file.state, base
                    file.put_back(at, base)
                self.index[file.path] = base
            elif file.writes:
                # New for git, so that it stays, or changed before anybody saw it.
                file.doubted(at, reason)
        self.stashes.append(put_aside)

    def _unstash(self, at: int, files: Mapping[str, KnownFile], done: Git, reason: str) -> None:
        if not self.stashes:
            if done.verb != "drop":
                for file in files.values():
                    file.doubted(at, reason)
            return
        if done.verb != "drop":
            for path, (state, base) in self.stashes[-1].items():
                file = files[path]
                if file.state.has_text_of(base):
                    file.put_back(at, state)
                else:
                    file.lose(at, _MERGED, is_gone=True)
                    file.settled_at = at
        if done.verb != "apply":
            self.stashes.pop()
