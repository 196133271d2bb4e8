"""What is known of one file while a conversation is followed: its text, or some of its lines.

Writes, exact edits and patches change it, reads show it. Every step takes from a budget of work.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from context_compaction.activity import edits
from context_compaction.activity.shown import ShownLines

# Searching and replacing is done in C: this many characters cost as much as one.
FAST_CHARS = 8
# Work for a look at one file, in characters.
FILE_CHARS = 8


@dataclass(frozen=True, slots=True)
class FilePart:
    """Lines of a file that is not known as a whole: the number of the first line, and the text."""

    start_line: int
    text: str

    @property
    def stop_line(self) -> int:
        """Number of the last line."""
        return self.start_line + self.text.count("\n")


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What is known of one file after the last message.

    Attributes:
        path: The path, as the first call that used the file names it.
        text: The last known whole text, or None.
        parts: Known line ranges: all that is known if `text` is None, else newer than `text`.
        touched_at: Position of the message that used the file last.
        read_at: Position of the message that showed it last; -1 if none did.
        written_at: Position of the message that changed it last, as far as calls specify; or -1.
        unsure_since: Position of the message since which `text` may be out of date, or None.
        focus: Character offset of the last edit in `text`.
        is_deleted: Whether the file was deleted.
        names: The spellings of the path in calls of file tools, if they mean no other file.
    """

    path: str
    text: str | None = None
    parts: tuple[FilePart, ...] = ()
    touched_at: int = -1
    read_at: int = -1
    written_at: int = -1
    unsure_since: int | None = None
    focus: int = 0
    is_deleted: bool = False
    names: tuple[str, ...] = ()

    @property
    def was_written(self) -> bool:
        """Whether the conversation itself changed the file."""
        return self.written_at >= 0


class BudgetSpentError(Exception):
    """The budget of work is spent."""


@dataclass(slots=True)
class Budget:
    """Work that is left, in characters."""

    left_chars: int

    def spend(self, chars: int) -> None:
        """Take `chars` from the budget.

        Raises:
            BudgetSpentError: Less is left. Nothing can be spent from then on.
        """
        if chars > self.left_chars:
            self.left_chars = 0
            raise BudgetSpentError
        self.left_chars -= chars


@dataclass(slots=True)
class _Part:
    start: int
    rows: list[str]

    @property
    def stop(self) -> int:
        return self.start + len(self.rows)


@dataclass(slots=True)
class FollowedFile:
    """One file during the walk."""

    path: str
    budget: Budget
    text: str | None = None
    parts: list[_Part] = field(default_factory=list[_Part])
    end: int | None = None  # the number of the last row, if a part reaches the end of the file
    touched_at: int = -1
    read_at: int = -1
    written_at: int = -1
    unsure_since: int | None = None
    focus: int = 0
    is_deleted: bool = False
    is_end_known: bool = True  # whether the text shows if the last line is ended
    names: list[str] = field(default_factory=list[str])

    @property
    def was_written(self) -> bool:
        """Whether the conversation itself changed the file."""
        return self.written_at >= 0

    def known(self) -> KnownFile:
        """What is known of the file by now."""
        return KnownFile(
            self.path,
            self.text,
            tuple(FilePart(part.start, "\n".join(part.rows)) for part in self.parts),
            self.touched_at,
            self.read_at,
            self.written_at,
            self.unsure_since,
            self.focus,
            self.is_deleted,
            tuple(self.names),
        )

    def set_text(self, text: str | None, *, is_end_known: bool = True) -> None:
        """The whole text is known from now on; None if nothing is."""
        self.budget.spend(len(text or ""))
        self.is_end_known = is_end_known
        self.text, self.parts, self.end = text, [], None
        self.unsure_since, self.is_deleted = None, False
        self.focus = min(self.focus, len(text or ""))

    def doubt(self, at: int) -> None:
        """What is known may be out of date since message `at`."""
        if self.unsure_since is None and (self.text is not None or self.parts or self.is_deleted):
            self.unsure_since = at

    def show(self, at: int, shown: ShownLines) -> None:
        """Take lines that a read shows."""
        if shown.is_whole:
            self.set_text("\n".join(shown.rows), is_end_known=False)
        elif shown.start is not None:
            self._show_part(at, shown.start, list(shown.rows), is_to_end=shown.is_to_end)

    def _show_part(self, at: int, start: int, rows: list[str], *, is_to_end: bool) -> None:
        self.is_deleted = False
        text = "\n".join(rows)
        self.budget.spend(len(text) + len(self.text or "") // FAST_CHARS)
        if self.text is not None and not self.parts and text.rstrip() in self.text:
            return
        if self.text is not None:
            self.doubt(at)
        elif self.unsure_since is not None:
            self.parts, self.end, self.unsure_since = [], None, None
        if is_to_end:
            self.end = start + len(rows) - 1
        self._join(_Part(start, rows))
        only = self.parts[0]
        if len(self.parts) == 1 and only.start == 1 and self.end == only.stop - 1:
            self.set_text("\n".join(only.rows), is_end_known=False)

    def _join(self, new: _Part) -> None:
        """Add a part. Parts that touch it are merged with it; a part that contradicts it goes."""
        kept: list[_Part] = []
        for part in self.parts:
            self.budget.spend(FILE_CHARS)
            if part.stop < new.start or new.stop < part.start:
                kept.append(part)
                continue
            first, stop = max(part.start, new.start), min(part.stop, new.stop)
            self.budget.spend(len(new.rows) * FILE_CHARS)
            same = all(
                part.rows[n - part.start].rstrip() == new.rows[n - new.start].rstrip()
                for n in range(first, stop)
            )
            if not same:
                continue
            if part.start <= new.start:  # extended in place, or reading on would be quadratic
                part.rows.extend(new.rows[max(0, part.stop - new.start) :])
                new = part
            else:
                self.budget.spend(len(part.rows) * FILE_CHARS)
                new.rows.extend(part.rows[max(0, new.stop - part.start) :])
        kept.append(new)
        kept = kept[-20:]
        self.parts = sorted(kept, key=lambda part: part.start)

    def apply(self, at: int, change: edits.FileChange) -> None:
        """Change the file as a call that succeeded did."""
        self.touched_at = self.written_at = at
        match change:
            case edits.Writes(_, text, appends):
                self._write(at, text, appends=appends)
            case edits.Replaces(_, "", new) if not self.text and not self.parts:
                self.set_text(new)
            case edits.Replaces(_, old, new, is_every):
                self._replace(at, old, new, is_every=is_every)
            case edits.Inserts(_, after_line, text):
                self._insert(at, after_line, text)
            case edits.Patches(_, hunks):
                self._patch(at, hunks)
            case edits.Deletes():
                self.set_text(None)
                self.is_deleted = True
            case edits.Unclear():
                self.is_deleted = False
                self.doubt(at)

    def _write(self, at: int, text: str, *, appends: bool) -> None:
        if not appends or (self.is_deleted and self.unsure_since is None):
            self.set_text(text)
        elif self.text is None:
            self.end = None
            self.doubt(at)
        else:
            self.budget.spend(len(text) + len(self.text) // FAST_CHARS)
            if not self.is_end_known:
                self.doubt(at)
            self.focus = len(self.text)
            self.text += text

    def _replace(self, at: int, old: str, new: str, *, is_every: bool) -> None:
        if not old:
            self.doubt(at)
            return
        is_found = self.text is not None and self._replace_in_text(old, new, is_every=is_every)
        if self.parts:
            is_found = self._replace_in_parts(old, new, is_every=is_every) or is_found
        if not is_found:
            self.doubt(at)

    def _replace_in_text(self, old: str, new: str, *, is_every: bool) -> bool:
        text = self.text or ""
        self.budget.spend(len(text) // FAST_CHARS + len(old) + len(new))
        at = text.find(old)
        if at < 0 or (not is_every and text.find(old, at + len(old)) >= 0):
            return False
        grown = (len(new) - len(old)) * (text.count(old) if is_every else 1)
        self.budget.spend(max(0, grown))
        # An edit that leaves a longer text is not followed.
        if len(text) + grown > 1_000_000:
            return False
        self.focus = at
        self.text = text.replace(old, new, -1 if is_every else 1)
        return True

    def _replace_in_parts(self, old: str, new: str, *, is_every: bool) -> bool:
        """Replace in the known ranges; whether all line numbers are still certain."""
        texts = ["\n".join(part.rows) for part in self.parts]
        self.budget.spend(sum(map(len, texts)))
        counts = [text.count(old) for text in texts]
        if not any(counts) or (sum(counts) > 1 and not is_every):
            return False
        grown = new.count("\n") - old.count("\n")
        self.budget.spend((len(new) + len(old)) * sum(counts))
        moved = 0
        for part, text, times in zip(self.parts, texts, counts, strict=True):
            part.start += moved
            if times:
                part.rows = text.replace(old, new).split("\n")
                moved += grown * times
        self.end = None if self.end is None else self.end + moved
        # Other occurrences may lie in lines that are not known.
        return not (is_every and grown)

    def _insert(self, at: int, after_line: int, text: str) -> None:
        if self.text is None or after_line < 0:
            self.doubt(at)
            return
        self.budget.spend(len(self.text) + len(text))
        rows = self.text.split("\n")
        if after_line > len(rows):
            self.doubt(at)
            return
        self.focus = len("\n".join(rows[:after_line]))
        added = text.removesuffix("\n").split("\n")
        self.text = "\n".join([*rows[:after_line], *added, *rows[after_line:]])

    def _patch(self, at: int, hunks: Sequence[edits.Hunk]) -> None:
        if self.text is not None:
            searches = 1 + sum(1 + len(hunk.anchors) for hunk in hunks)
            self.budget.spend(searches * (1 + len(self.text) // FAST_CHARS))
            self.budget.spend(sum(len(row) + 1 for hunk in hunks for row in (*hunk.old, *hunk.new)))
            patched = edits.patched_text(self.text, hunks)
            if patched is None:
                self.doubt(at)
            else:
                self.text, self.focus = patched
        for hunk in hunks if self.parts else ():
            if not self._replace_in_parts("\n".join(hunk.old), "\n".join(hunk.new), is_every=False):
                self.doubt(at)
