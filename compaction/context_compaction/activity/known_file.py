"""What is known of one file while the calls on it are replayed: its lines, and since when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import partial

from context_compaction.activity import file_changes as change
from context_compaction.activity.file_parts import (
    Exchange,
    KnownLines,
    agree_with,
    joined,
    moved,
    moved_unseen,
    placed_spans,
    same_ends,
    with_unplaced,
    without_changed,
)
from context_compaction.activity.script_edits import LineEdit, edited_rows
from context_compaction.activity.shown_text import ShownText

_TOUCHED_PARTS = 8
# To compare lines takes the product of their numbers at worst.
_COMPARED_LINES = 1_000
_PLACED = "a patch was placed where its old lines are known, and others may be like them"
_ELSEWHERE = "a change lay in lines that are not known here"


@dataclass(frozen=True, slots=True)
class Doubt:
    """What may have changed a file since it was seen.

    Attributes:
        reason: What may have, in a few words.
        at: Position of the message that raised the doubt.
        is_slight: Whether the file most likely says what it said: a formatter changes the layout
            alone, and a helper most often only reads.
        is_settled: Whether since then a part was shown as it was known, or such a one changed.
    """

    reason: str
    at: int
    is_slight: bool = False
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class FilePart:
    """Lines of a file whose other lines are not known: `text` begins with line `start_line`.

    With `is_moved` it may be another line: something was changed where the text is not known.
    """

    start_line: int
    text: str
    is_moved: bool = False

    @property
    def stop_line(self) -> int:
        """The number of its last line."""
        return self.start_line + self.text.count("\n")


@dataclass(frozen=True, slots=True)
class ReplayedFile:
    """What a conversation contains of one file.

    Positions are those of messages in the list, from 0; -1 is never.

    Attributes:
        path: The path as the calls name it.
        text: All of it; None where that is not known. Only whether a last line ends with a newline
            is not always shown.
        parts: Where the whole is not known, the lines that are.
        seen_at: The message that showed or wrote what the changes were applied to.
        edits: How many changes were applied to that.
        changed_at: The last message that changed it.
        used_at: The last message that read or changed it.
        read_at: The last message that read it.
        reads: How often it was read.
        writes: How often it was written or edited.
        doubt: Why it may be wrong all the same; None where nothing has raised a doubt, or something
            since has shown that it was needless.
        is_sure: Whether what is known of it is the file, unless somebody else has changed it.
        lost: Why the whole is not known any more; "" where it never was, or still is.
        lost_at: Position of the message that lost it.
        touched: First and last line of what was changed since the last commit, newest first.
        is_deleted: Whether it was deleted.
        last_text: Where the whole is not known any more, the one that was, with the changes since
            that could be made to it.
        missed: The messages of changes that are not in `last_text`.
    """

    path: str
    text: str | None = None
    parts: tuple[FilePart, ...] = ()
    seen_at: int = -1
    edits: int = 0
    changed_at: int = -1
    used_at: int = -1
    read_at: int = -1
    reads: int = 0
    writes: int = 0
    doubt: Doubt | None = None
    is_sure: bool = False
    lost: str = ""
    lost_at: int = -1
    touched: tuple[tuple[int, int], ...] = ()
    is_deleted: bool = False
    last_text: str | None = None
    missed: tuple[int, ...] = ()

    @property
    def may_be_stale(self) -> bool:
        """Whether it is in doubt, and more than slightly."""
        return self.doubt is not None and not self.doubt.is_slight

    @property
    def is_changed(self) -> bool:
        """Whether the conversation itself changed it."""
        return self.writes > 0


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a file at one time, to be restored later; without lines where it is absent."""

    parts: tuple[KnownLines, ...]
    end: int | None
    seen_at: int
    edits: int
    changed_at: int
    writes: int
    doubt: Doubt | None
    touched: tuple[tuple[int, int], ...]
    is_deleted: bool
    is_exact: bool

    def has_text_of(self, other: "FileState") -> bool:
        """Whether both are known to be the same, as far as they are known."""
        if self.is_deleted or other.is_deleted:
            return self.is_deleted and other.is_deleted
        same = (self.parts, self.end) == (other.parts, other.end)
        is_known = not self.doubt or (other.doubt is not None and self.doubt.at == other.doubt.at)
        return same and bool(self.parts) and is_known


ABSENT = FileState((), None, -1, 0, -1, 0, None, (), True, True)


@dataclass(slots=True)
class KnownFile:
    """One file while the messages are walked through: what is known of its lines by now."""

    path: str
    parts: list[KnownLines] = field(default_factory=list[KnownLines])
    end: int | None = None  # the number of its last line
    seen_at: int = -1
    edits: int = 0
    changed_at: int = -1
    used_at: int = -1
    read_at: int = -1
    reads: int = 0
    writes: int = 0
    doubt: Doubt | None = None
    lost: str = ""
    lost_at: int = -1
    touched: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_deleted: bool = False
    is_exact: bool = True  # whether its end is known to the last newline
    # The text that was known as a whole last, and the changes since that are not in it.
    stale: Sequence[str] | None = None
    missed: list[int] = field(default_factory=list[int])
    agreed_at: int = -1  # the last message that found it as it is known
    settled_at: int = -1  # the message that says for certain what it is since

    @property
    def rows(self) -> tuple[str, ...] | None:
        """All lines; None where some are not known."""
        if len(self.parts) != 1 or self.end is None or not self.parts[0].is_placed:
            return None
        [part] = self.parts
        return part.rows if part.start == 1 and len(part.rows) == self.end else None

    def replayed(self) -> ReplayedFile:
        """What is known of it, as a `ReplayedFile`."""
        rows = self.rows
        parts = () if rows is not None else tuple(
            FilePart(part.start, "\n".join(part.rows), not part.is_placed) for part in self.parts
        )  # fmt: skip
        return ReplayedFile(
            self.path,
            None if rows is None else "\n".join(rows),
            parts,
            self.seen_at,
            self.edits,
            self.changed_at,
            self.used_at,
            self.read_at,
            self.reads,
            self.writes,
            self.doubt if self.doubt and not self.doubt.is_settled else None,
            self.doubt is None and (bool(self.parts) or self.is_deleted),
            "" if rows is not None else self.lost,
            -1 if rows is not None else self.lost_at,
            tuple(self.touched),
            self.is_deleted,
            None if rows is not None or self.stale is None else "\n".join(self.stale),
            tuple(self.missed),
        )

    @property
    def state(self) -> FileState:
        """Its present state."""
        return FileState(
            tuple(self.parts),
            self.end,
            self.seen_at,
            self.edits,
            self.changed_at,
            self.writes,
            self.doubt,
            tuple(self.touched),
            self.is_deleted,
            self.is_exact,
        )

    def put_back(self, at: int, state: FileState) -> None:
        """Restore `state`."""
        self.parts = list(state.parts)
        self.stale, self.missed = None, []
        self.end, self.seen_at, self.edits = state.end, state.seen_at, state.edits
        self.changed_at, self.writes = state.changed_at, state.writes
        self.doubt, self.agreed_at = state.doubt, -1
        self.touched, self.is_deleted = list(state.touched), state.is_deleted
        self.is_exact, self.settled_at = state.is_exact, at
        self.lost, self.lost_at = "", -1
        self.used_at = max(self.used_at, self.changed_at, self.read_at)

    def see(self, at: int, rows: Sequence[str], *, is_exact: bool) -> None:
        """Replace what is known by all its lines."""
        self.parts, self.end = [KnownLines(1, tuple(rows))], len(rows)
        self.stale, self.missed = None, []
        self.seen_at, self.edits, self.is_exact, self.agreed_at = at, 0, is_exact, -1
        self.doubt, self.lost, self.lost_at = None, "", -1
        self.is_deleted = False

    def see_part(self, at: int, shown: ShownText) -> None:
        """Add some of its lines; what was known is dropped where they differ."""
        if shown.start_line is None:
            return
        start, rows = shown.start_line, list(shown.rows)
        if self.is_deleted or not self.agrees(start, rows, ends=shown.is_to_end):
            self.lose(at, "a read shows another text than it had before")
            self.is_deleted = False
        elif self.parts:
            self.agree(at)
        if self.rows is not None:
            return
        if not self.parts:
            self.seen_at, self.edits, self.doubt = at, 0, None
        if shown.is_to_end:
            self.end = start + len(rows) - 1
        self.parts = joined(self.parts, start, rows, self.end)
        if self.rows is not None:
            self.lost, self.lost_at, self.is_exact = "", -1, False
            self.stale, self.missed = None, []

    def see_about(self, at: int, shown: ShownText, most: int) -> None:
        """Add some of its lines, before which so many empty ones may have been cut off."""
        start, rows = shown.start_line or 1, shown.rows
        places = [n for n in range(most + 1) if self.agrees(start + n, rows, ends=False)]
        if len(places) == 1:
            self.see_part(at, ShownText(rows, start + places[0], is_to_end=False))
            return
        if not places:
            self.lose(at, "a read shows another text than it had before")
        if not self.parts:
            self.seen_at, self.edits, self.doubt, self.is_deleted = at, 0, None, False
        moves = frozenset(places or range(most + 1))
        self.parts = with_unplaced(self.parts, KnownLines(start, tuple(rows), moves))

    def agrees(self, start: int, rows: Sequence[str], *, ends: bool) -> bool:
        """Whether lines from `start` on are those that are known."""
        stop = start + len(rows)
        if self.end is not None and not ends and stop - 1 > self.end:
            return False
        if self.end is not None and ends and abs(stop - 1 - self.end) > 1:
            return False
        return all(agree_with(part, start, rows) for part in self.parts)

    def lose(self, at: int, reason: str, *, is_gone: bool = False) -> None:
        """Drop its text, which is not certain any more; `is_gone`: the file has another one."""
        if is_gone:
            self.stale, self.missed = None, []
        elif self.rows is not None:
            self.stale, self.missed = self.rows, [at]
        if self.parts:
            self.lost, self.lost_at = reason, at
        self.parts, self.end, self.touched = [], None, []
        self.doubt, self.agreed_at = None, -1

    def doubted(self, at: int, reason: str, *, is_slight: bool = False) -> None:
        """Something may have changed it."""
        before = self.doubt
        if before is None or before.is_settled or (before.is_slight and not is_slight):
            self.doubt, self.agreed_at = Doubt(reason, at, is_slight), -1

    def agree(self, at: int) -> None:
        """It was found as it is known."""
        self.agreed_at = at
        self.doubt = self.doubt and replace(self.doubt, is_settled=True)

    def apply(self, at: int, made: change.FileChange) -> None:
        """Change it as a call that succeeded did."""
        self.writes += 1
        self.changed_at = self.used_at = self.settled_at = at
        stale = self.stale
        self._apply(at, made)
        if stale is not None and self.stale is stale:
            self._apply_to_stale(at, stale, made)

    def _apply_to_stale(self, at: int, stale: Sequence[str], made: change.FileChange) -> None:
        """Apply to the last known text what was done to the unknown one."""
        copy = KnownFile(self.path)
        copy.see(at, stale, is_exact=self.is_exact)
        copy._apply(at, made)
        if copy.rows is None:
            self.missed.append(at)
        else:
            self.stale = copy.rows

    def _apply(self, at: int, made: change.FileChange) -> None:
        match made:
            case change.Writes(_, text, True) if not self.is_deleted:
                self._append(at, text)
            case change.Writes(_, text):
                self.see(at, text.split("\n"), is_exact=True)
                self.touched = []
            case change.Replaces(_, "", new) if self.rows in (None, ("",), ()):
                self.see(at, new.split("\n"), is_exact=True)
            case change.Replaces():
                self._replace(at, made)
            case change.Inserts():
                self._insert(at, made)
            case change.Patches():
                self._patch(at, made)
            case change.Deletes():
                self.lose(at, "it was deleted", is_gone=True)
                self.is_deleted = True
            case _:
                self.lose(at, "it was changed in a way that the call does not tell")
                self.is_deleted = False

    def edit_lines(self, at: int, edits: Sequence[LineEdit]) -> bool:
        """Change lines by `edits`; whether that is certain.

        Of a file that is known in parts, those are changed where they stay as long.
        """
        edit = partial(edited_rows, edits=edits)
        rows = self.rows
        if rows is not None:
            ended = not rows[-1]
            changed, times = edit(rows[:-1] if ended else rows)
            if times:
                self.rewrite(at, [*changed, ""] if ended else changed)
            self.settled_at = at
            return True
        # Lines that are counted from the end, or from a line that may be elsewhere, are not known.
        if any(edit.until is not None or isinstance(edit.where, int | str) for edit in edits):
            return False
        done = [part.edited(lambda rows: edit(rows)[0], self.end) for part in self.parts]
        changed_parts = [part for part in done if part is not None]
        if not done or len(changed_parts) < len(done):
            return False
        self.parts = changed_parts
        self.writes += 1
        self.changed_at = self.used_at = self.settled_at = at
        return True

    def rewrite(self, at: int, rows: Sequence[str]) -> None:
        """Replace its lines by `rows`, the result of a change of the known ones."""
        before = self.rows
        self.writes += 1
        self.changed_at = self.used_at = self.settled_at = at
        if before is None:
            self.see(at, rows, is_exact=True)
            return
        self.agree(at)
        self.parts, self.end = [KnownLines(1, tuple(rows))], len(rows)
        self.edits += 1
        self._touch_changed(1, before, rows)

    def _append(self, at: int, text: str) -> None:
        rows = self.rows
        if rows is None:
            self._grow_at_end(at)
            return
        if not self.is_exact:
            # Texts end with a newline, but for a few, and most tools do not show it.
            rows = (*rows, "") if rows[-1] else rows
            self.doubted(at, "whether its last line was ended before text was added")
        self._set_text(len(rows), "\n".join(rows) + text, text.count("\n") + 1)

    def _grow_at_end(self, at: int) -> None:
        """Something was added at the end of what is known in parts; it may go on the last line."""
        self.parts = [
            replace(part, rows=part.rows[:-1]) if part.may_end_at(self.end) else part
            for part in self.parts
        ]
        self.parts = [part for part in self.parts if part.rows]
        self._changed_elsewhere(at)
        self.end = None

    def _changed_elsewhere(self, at: int) -> None:
        """Note a change of lines that are not known."""
        self.edits += bool(self.parts)
        self.touched = placed_spans(self.touched, self.parts)
        self.lost, self.lost_at = _ELSEWHERE, at

    def _change_unseen(self, at: int, made: Exchange) -> None:
        """Keep the lines that `made`, which is not among those that are known, did not change."""
        kept = without_changed(self.parts, made)
        self.parts = moved_unseen(kept, made, self.end)
        self.end = None if self.end is None else self.end + made.grown
        self._changed_elsewhere(at)

    def _replace(self, at: int, made: change.Replaces) -> None:
        times = made.times
        counts = ["\n".join(part.rows).count(made.old) for part in self.parts]
        found, rows = sum(counts), self.rows
        if not found and rows is not None and not self.is_exact and rows[-1]:
            # An end of the last line that was not shown.
            self.parts, self.end = [KnownLines(1, (*rows, ""))], len(rows) + 1
            self._replace(at, made)
            return
        if not self.parts:
            return
        within_lines = "\n" not in made.old and "\n" not in made.new
        if rows is not None:
            fits = found >= 1 if times == change.ALL else found == times
        elif times == 1:
            # The tool has found it once: if not here, then among what is not known.
            fits = found <= 1
        else:
            fits = within_lines
        if not fits:
            what = "is not there" if not found else f"is there {found} times"
            self.lose(at, f"the old text of an edit {what}")
            return
        if not found and times == 1:
            self._change_unseen(at, Exchange(made.old.split("\n"), made.new.split("\n")))
            return
        self.edits += 1
        if found:
            self.agree(at)
        for n in reversed([n for n, count in enumerate(counts) if count]):
            self._replace_in(n, made.old, made.new)

    def _replace_in(self, n: int, old: str, new: str) -> None:
        before = self.parts[n]
        text = "\n".join(before.rows)
        position = text.find(old)
        while position >= 0:
            line = text.count("\n", 0, position)
            text = f"{text[:position]}{new}{text[position + len(old) :]}"
            self._exchange(n, line, text.split("\n"), Exchange(old.split("\n"), new.split("\n")))
            position = text.find(old, position + len(new))

    def _exchange(self, n: int, line: int, rows: Sequence[str], made: Exchange) -> None:
        """Give part `n` other `rows`; from the one with index `line` on `made` was done."""
        part, parts = self.parts[n], self.parts
        self._touch_changed(part.start + line, made.old, made.new)
        places = [start + line for start in part.starts]
        below = moved(parts[n + 1 :], places, made.grown)
        above = moved(parts[:n], places, made.grown)
        self.parts = [*above, replace(part, rows=tuple(rows)), *below]
        self.touched = placed_spans(self.touched, self.parts)
        self.end = None if self.end is None else self.end + made.grown

    def _insert(self, at: int, made: change.Inserts) -> None:
        rows = self.rows
        if rows is None or made.after_line > len(rows) or made.text.endswith("\n"):
            # Whether a last newline makes an empty line of its own, tools see differently.
            self.lose(at, "lines were put in, and how many is not certain")
            return
        lines = made.text.split("\n")
        text = "\n".join([*rows[: made.after_line], *lines, *rows[made.after_line :]])
        self._set_text(made.after_line + 1, text, len(lines), 0)

    def _patch(self, at: int, made: change.Patches) -> None:
        rows = self.rows
        if rows is None:
            for hunk in made.hunks:
                self._patch_part(at, hunk)
            return
        lines = list(rows[:-1]) if rows and not rows[-1] else list(rows)
        position = 0
        for hunk in made.hunks:
            found = _hunk_at(lines, hunk, position)
            if found is None:
                self.lose(at, "the old lines of a patch are not there")
                return
            lines[found : found + len(hunk.old)] = hunk.new
            self._touch_changed(found + 1, hunk.old, hunk.new)
            position = found + len(hunk.new)
            self.edits += 1
            self.agree(at)
        self.parts, self.end = [KnownLines(1, (*lines, ""))], len(lines) + 1

    def _patch_part(self, at: int, hunk: change.Hunk) -> None:
        """Apply a hunk to what is known in parts: in the one place that has its old lines."""
        if not hunk.old:
            self._grow_at_end(at)
            return
        size = len(hunk.old)
        made = Exchange(hunk.old, hunk.new, is_of_lines=True)
        places = [
            (n, line)
            for n, part in enumerate(self.parts)
            for line in range(len(part.rows) - size + 1)
            if part.rows[line : line + size] == hunk.old
        ]
        if len(places) != 1:
            self._change_unseen(at, made)
            return
        [(n, line)] = places
        rows = self.parts[n].rows
        self.agree(at)
        self.doubted(at, _PLACED, is_slight=True)
        self.edits += 1
        self._exchange(n, line, (*rows[:line], *hunk.new, *rows[line + size :]), made)

    def _set_text(self, first: int, text: str, new_lines: int, old_lines: int = 1) -> None:
        rows = text.split("\n")
        self.parts, self.end = [KnownLines(1, tuple(rows))], len(rows)
        self.edits += 1
        self._touch(first, old_lines, new_lines)

    def _touch_changed(self, first: int, old: Sequence[str], new: Sequence[str]) -> None:
        """Note that lines from `first` on were changed, but for those that are as they were."""
        above, below = same_ends(old, new)
        old, new = old[above : len(old) - below], new[above : len(new) - below]
        # From the last on: the lines above those have their numbers still.
        for start, stop, to_start, to_stop in reversed(list(_changes(old, new))):
            self._touch(first + above + start, stop - start, to_stop - to_start)

    def _touch(self, first: int, old_lines: int, new_lines: int) -> None:
        """Note that lines were changed, and that those after them have other numbers now."""
        grown = new_lines - old_lines
        moved = [
            (start + grown, stop + grown) if start > first else (start, stop)
            for start, stop in self.touched
            if not first <= start <= stop <= first + old_lines - 1
        ]
        self.touched = [(first, max(first, first + new_lines - 1)), *moved][:_TOUCHED_PARTS]


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Where lines of `old` begin and end that others replace, and those in `new`."""
    if max(len(old), len(new)) > _COMPARED_LINES:
        yield 0, len(old), 0, len(new)
        return
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes():
        changed = [code for code in group if code[0] != "equal"]
        yield changed[0][1], changed[-1][2], changed[0][3], changed[-1][4]


def _find(lines: Sequence[str], wanted: Sequence[str], start: int) -> int | None:
    """Index of `wanted` from `start` on: exact, or but for spaces around its lines; else None."""
    size = len(wanted)
    for form in (str, str.rstrip, str.strip):
        sought = [form(line) for line in wanted]
        there = [form(line) for line in lines]
        for n in range(start, len(lines) - size + 1):
            if there[n : n + size] == sought:
                return n
    return None


def _hunk_at(lines: Sequence[str], hunk: change.Hunk, position: int) -> int | None:
    """Index of the old lines of `hunk` after `position` and its anchors; else None."""
    for anchor in hunk.anchors:
        found = _find(lines, (anchor,), position)
        position = position if found is None else found + 1
    return _place(lines, hunk, position)


def _place(lines: Sequence[str], hunk: change.Hunk, start: int) -> int | None:
    """Index of the old lines of `hunk` from `start` on, by the search of Codex; else None."""
    if not hunk.old:
        return len(lines)
    if hunk.is_at_end:
        last = len(lines) - len(hunk.old)
        return last if last >= start and _find(lines, hunk.old, last) == last else None
    return _find(lines, hunk.old, start)
