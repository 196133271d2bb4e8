"""Knowledge of one file: its last text or some of its lines, and whether the disk agrees.

While the calls of a conversation are followed, writes and exact edits change the text, and reads
show it. Every step takes from a budget of work.

Receipts store a `FileState` for each file: path, lines, hash of the known text, hash and time of
the file that agreed with it. So another process knows a file that was read before three
compactions, and can tell whether it changed on disk since. This module reads nothing from disk:
the caller does, and only inside the roots.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from context_compaction.activity.calls import Deletes, FileChange, Replaces, Writes
from context_compaction.activity.outcome import ShownLines
from context_compaction.file_access import DiskFile
from context_compaction.messages.model import Messages

# Python searches and replaces this number of characters in the time of reading one. A look at one
# file takes the time of this number.
FAST_CHARS = 8
# The newest states that receipts store.
_MAX_STATES = 50


class BudgetSpentError(Exception):
    """The budget of work is spent."""


@dataclass(slots=True)
class Budget:
    """Work that is left, in characters."""

    remaining_chars: int

    def spend(self, chars: int) -> None:
        """Take `chars` from the budget.

        Raises:
            BudgetSpentError: Less is left. Nothing can be spent from then on.
        """
        if chars > self.remaining_chars:
            self.remaining_chars = 0
            raise BudgetSpentError
        self.remaining_chars -= chars


@dataclass(slots=True)
class KnownFile:
    """Known content of one file after a message. Positions are indexes in the message list.

    Attributes:
        path: The path, as the first call that used the file names it.
        budget: The budget of work of the conversation.
        text: The last known text: the whole file, or the lines that were shown last; or None.
        start_line: Number of the first line of `text`, from 1.
        reaches_end: Whether the last line of `text` is the file's last.
        used_at: Position of the message that used the file last; -1 for none.
        read_at: Position of the message that showed it last; -1 for none.
        written_at: Position of the message that changed it last, if calls specify that; or -1.
        unsure_since: Position of the message that made `text` uncertain, or None.
        focus: Character offset of the last edit in `text`.
        is_deleted: Whether the file was deleted.
        is_end_known: Whether `text` shows if its last line ends with a newline.
        names: The spellings of the path in calls of file tools, if they mean no other file.
    """

    path: str
    budget: Budget = field(repr=False)
    text: str | None = None
    start_line: int = 1
    reaches_end: bool = True
    used_at: int = -1
    read_at: int = -1
    written_at: int = -1
    unsure_since: int | None = None
    focus: int = 0
    is_deleted: bool = False
    is_end_known: bool = True
    names: list[str] = field(default_factory=list[str])

    @property
    def was_written(self) -> bool:
        """Whether the conversation itself changed the file."""
        return self.written_at >= 0

    @property
    def is_whole(self) -> bool:
        """Whether `text` is the whole file."""
        return self.text is not None and self.start_line == 1 and self.reaches_end

    @property
    def stop_line(self) -> int:
        """Number of the last line of `text`."""
        return self.start_line + (self.text or "").count("\n")

    @property
    def certain_text(self) -> str | None:
        """The known text if it is certain."""
        return self.text if self.unsure_since is None else None

    def set_text(self, text: str | None, *, is_end_known: bool = True) -> None:
        """Replace all that is known by the whole text; None if nothing is known."""
        self.budget.spend(len(text or ""))
        self.text, self.start_line, self.reaches_end = text, 1, True
        self.is_end_known = is_end_known
        self.unsure_since, self.is_deleted = None, False
        self.focus = min(self.focus, len(text or ""))

    def mark_unsure(self, position: int) -> None:
        """Record that the message at `position` may have changed the file."""
        if self.unsure_since is None and (self.text is not None or self.is_deleted):
            self.unsure_since = position

    def show(self, shown: ShownLines) -> None:
        """Take lines that a read shows. They replace others that they do not continue."""
        text = "\n".join(shown.rows)
        known = self.text or ""
        self.budget.spend(len(text) + len(known) // FAST_CHARS)
        is_all = shown.start == 1 and shown.is_to_end
        if not is_all and text.rstrip() in known:
            return
        start = shown.start
        if self.certain_text and not self.is_whole and start == self.stop_line + 1:
            start, text = self.start_line, f"{known}\n{text}"
        self.set_text(text, is_end_known=False)
        self.start_line, self.reaches_end = start, shown.is_to_end

    def apply(self, position: int, change: FileChange) -> None:
        """Change the file as a call that succeeded did."""
        self.used_at = self.written_at = position
        match change:
            case Writes(_, text, appends):
                self._write(position, text, appends=appends)
            case Replaces(_, "", new) if not self.text:
                self.set_text(new)
            case Replaces(_, old, new, is_every):
                if not old or not self._replace(old, new, is_every=is_every):
                    self.mark_unsure(position)
            case Deletes():
                self.set_text(None)
                self.is_deleted = True

    def _write(self, position: int, text: str | None, *, appends: bool) -> None:
        if text is None:
            self.mark_unsure(position)
            self.is_deleted = False
        elif not appends or (self.is_deleted and self.unsure_since is None):
            self.set_text(text)
        elif self.text is None or not self.reaches_end:
            self.mark_unsure(position)
        else:
            self.budget.spend(len(text) + len(self.text) // FAST_CHARS)
            if not self.is_end_known:
                self.mark_unsure(position)
            self.focus = len(self.text)
            self.text += text

    def _replace(self, old: str, new: str, *, is_every: bool) -> bool:
        """Replace `old`, and return whether all that is known is still certain."""
        text = self.text or ""
        self.budget.spend(len(text) // FAST_CHARS + len(old) + len(new))
        # Most texts of changes occur once, so the text is searched once.
        before, found, after = text.partition(old)
        count = bool(found) + after.count(old)
        grown_chars = (len(new) - len(old)) * count
        self.budget.spend(max(0, grown_chars))
        # An edit that leaves a longer text is not followed.
        is_unclear = not count or (count > 1 and not is_every)
        if is_unclear or len(text) + grown_chars > 1_000_000:
            return False
        after = after.replace(old, new) if count > 1 else after
        self.focus, self.text = len(before), f"{before}{new}{after}"
        # Other occurrences may be in lines that are not known.
        return self.is_whole or not is_every or new.count("\n") == old.count("\n")


# The state of files in receipts ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileState:
    """Known content of one file, as the receipt contains it.

    Attributes:
        path: The path as the calls name it.
        range: The lines that are known, as in "1-20"; "" for the whole file.
        seq: Number of the message that used the file last or made its text uncertain.
        seen_sha256: Hash of the known text; "" if none is known for certain.
        disk_sha256: Hash of the file when it agreed with the known text; "" if it was not read.
        modified_seconds: Unix time of the last write to that file; 0 if it was not read.
        is_changed: Whether the file on disk differs now.
        reported_sha256: Hash of the file when the conversation was warned of its change, or "".
    """

    path: str
    range: str
    seq: int
    seen_sha256: str
    disk_sha256: str
    modified_seconds: float
    is_changed: bool
    reported_sha256: str = ""


def tracked_paths(
    known: Mapping[str, KnownFile], earlier: Mapping[str, FileState]
) -> dict[str, FileState | None]:
    """Return the paths of the 50 files used last, newest first, each with its earlier state.

    A file has one path, however calls spell it.
    """
    rest = dict(earlier)
    tracked: dict[str, FileState | None] = {}
    for path in reversed(list(known)):
        states = [rest.pop(name, None) for name in (path, *known[path].names)]
        tracked[path] = next(filter(None, states), None)
    older = sorted(rest.values(), key=lambda state: -state.seq)
    tracked.update((state.path, state) for state in older)
    return dict(list(tracked.items())[:_MAX_STATES])


def updated_states(
    known: Mapping[str, KnownFile],
    earlier: Mapping[str, FileState],
    on_disk: Mapping[str, DiskFile],
    messages: Messages,
    seqs: Sequence[int],
) -> dict[str, FileState]:
    """Return the state of each tracked file, by path, newest use first.

    Args:
        known: The files as the conversation leaves them, by path.
        earlier: The states that an earlier call left.
        on_disk: The files that could be read.
        messages: The conversation.
        seqs: The number in the transcript of each message, by index.
    """
    states: dict[str, FileState] = {}
    for path, before in tracked_paths(known, earlier).items():
        file, disk = known.get(path), on_disk.get(path)
        text = None if file is None else file.certain_text
        seq = -1 if file is None else _seq_of(file, messages, seqs)
        state = before or FileState(path, "", -1, "", "", 0.0, False)
        if file is not None and (text is not None or before is None or seq > before.seq):
            # If a command may have changed the text, or no message shows it, the file on disk is
            # the baseline, because no message shows the expected text.
            is_part = text is not None and not file.is_whole
            lines = f"{file.start_line}-{file.stop_line}" if is_part else ""
            seen = "" if text is None else _sha256_of(text)
            state = FileState(file.path, lines, seq, seen, "", 0.0, False, state.reported_sha256)
            if disk and text is not None and not _agrees(disk.text, text, is_whole=file.is_whole):
                state = replace(state, is_changed=True)
            elif disk:
                sha256, seconds = _sha256_of(disk.text), disk.modified_seconds
                state = replace(state, disk_sha256=sha256, modified_seconds=seconds)
        elif disk and state.disk_sha256:
            is_changed = _sha256_of(disk.text) != state.disk_sha256
            state = replace(state, path=path, is_changed=is_changed)
        states[path] = state
    return states


def _seq_of(file: KnownFile, messages: Messages, seqs: Sequence[int]) -> int:
    """Return the number of the message that used the file last or made its text uncertain."""
    index = messages[max(file.used_at, file.unsure_since or -1)].index
    return -1 if index is None else seqs[index]


def _agrees(on_disk: str, text: str, *, is_whole: bool) -> bool:
    """Whether a file has the known text: as its whole text, or as some of its lines."""
    file, known = _trimmed(on_disk), _trimmed(text)
    return known == file if is_whole else f"\n{known}\n" in f"\n{file}\n"


def _trimmed(text: str) -> str:
    """Return `text` without blanks at the ends of its lines, and without empty lines at its ends.

    Each line is cut to 400 characters, because tools cut very long lines.
    """
    return "\n".join(line.rstrip()[:400] for line in text.splitlines()).strip("\n")


def unreported_changes(
    states: Mapping[str, FileState], on_disk: Mapping[str, DiskFile]
) -> dict[str, FileState]:
    """Return the states of changed files that need a warning, marked as reported."""
    changes: dict[str, FileState] = {}
    for path, state in states.items():
        if state.is_changed and path in on_disk:
            sha256 = _sha256_of(on_disk[path].text)
            if state.reported_sha256 != sha256:
                changes[path] = replace(state, reported_sha256=sha256)
    return changes


def changed_warning(states: Mapping[str, FileState]) -> str | None:
    """Return a warning with the files that changed outside the conversation; None for none."""
    # A path is the conversation's text: on one line, and bounded.
    paths = [" ".join(state.path.split())[:200] for state in states.values() if state.is_changed]
    if not paths:
        return None
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return (
        f"These files changed on disk after they were read: {', '.join(paths[:5])}{more}. "
        "Read them again before you rely on their earlier content."
    )


def _sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
