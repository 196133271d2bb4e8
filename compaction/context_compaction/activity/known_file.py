"""What is known of one file while the calls on it are replayed: its lines, and since when."""

import re
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
from context_compaction.activity.loose_parts import (
    LooseLines,
    exchanged,
    left_by,
    placed,
    unplaced,
    whole_lines,
    with_newest,
)
from context_compaction.activity.replayed_file import Doubt, FilePart, ReplayedFile
from context_compaction.activity.script_edits import LineEdit, edited_rows
from context_compaction.activity.shown_text import ShownText

_TOUCHED_PARTS = 8
# To compare lines takes the product of their numbers at worst.
_COMPARED_LINES = 1_000
_PLACED = "a patch was placed where its old lines are known, and others may be like them"
_UNENDED = "whether its last line was ended before the change"
_ELSEWHERE = "a change lay in lines that are not known here"


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """The state of a file at one time, to be restored later; without lines where it is absent."""

    parts: tuple[KnownLines, ...] = ()
    end: int | None = None
    seen_at: int = -1
    edits: int = 0
    changed_at: int = -1
    writes: int = 0
    doubt: Doubt | None = None
    touched: tuple[tuple[int, int], ...] = ()
    is_deleted: bool = False
    is_exact: bool = True
    loose: tuple[LooseLines, ...] = ()

    def has_text_of(self, other: "FileSnapshot") -> bool:
        """Whether both are known to be the same, as far as they are known."""
        if self.is_deleted or other.is_deleted:
            return self.is_deleted and other.is_deleted
        same = (self.parts, self.end, self.loose) == (other.parts, other.end, other.loose)
        is_known = not self.doubt or (other.doubt is not None and self.doubt.at == other.doubt.at)
        return same and bool(self.parts) and is_known


ABSENT = FileSnapshot(is_deleted=True)


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
    loose: list[LooseLines] = field(default_factory=list[LooseLines])
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
            path=self.path,
            text=None if rows is None else "\n".join(rows),
            parts=parts,
            seen_at=self.seen_at,
            edits=self.edits,
            changed_at=self.changed_at,
            used_at=self.used_at,
            read_at=self.read_at,
            reads=self.reads,
            writes=self.writes,
            doubt=self.doubt if self.doubt and not self.doubt.is_settled else None,
            is_sure=self.doubt is None and bool(self.parts or self.loose or self.is_deleted),
            lost="" if rows is not None else self.lost,
            lost_at=-1 if rows is not None else self.lost_at,
            touched=tuple(self.touched),
            is_deleted=self.is_deleted,
            last_text=None if rows is not None or self.stale is None else "\n".join(self.stale),
            missed=tuple(self.missed),
            loose=tuple(self.loose),
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that it may have, the likeliest first; none where some lines are not known."""
        if self.rows is None:
            return ()
        text = "\n".join(self.rows)
        ended, unended = (text, text[:-1]) if text[-1:] in ("", "\n") else (text + "\n", text)
        return (text,) if self.is_exact else (ended, unended)

    @property
    def state(self) -> FileSnapshot:
        """Its present state."""
        return FileSnapshot(
            parts=tuple(self.parts),
            end=self.end,
            seen_at=self.seen_at,
            edits=self.edits,
            changed_at=self.changed_at,
            writes=self.writes,
            doubt=self.doubt,
            touched=tuple(self.touched),
            is_deleted=self.is_deleted,
            is_exact=self.is_exact,
            loose=tuple(self.loose),
        )

    def put_back(self, at: int, state: FileSnapshot) -> None:
        """Restore `state`."""
        self.parts, self.loose = list(state.parts), list(state.loose)
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
        self.parts, self.end, self.loose = [KnownLines(1, tuple(rows))], len(rows), []
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
            self._begin(at)
        if shown.is_to_end:
            self.end = start + len(rows) - 1
        self.parts = joined(self.parts, start, rows, self.end)
        self.loose, spans = placed(self.loose, start, rows)
        self.touched = [*spans, *self.touched][:_TOUCHED_PARTS]
        if self.rows is not None:
            self.loose = []
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
            self._begin(at)
        moves = frozenset(places or range(most + 1))
        self.parts = with_unplaced(self.parts, KnownLines(start, tuple(rows), moves))

    def _begin(self, at: int) -> None:
        """Something is known of it from now on; what changes left before may be stale by then."""
        self.loose = [] if self.doubt else self.loose
        self.seen_at, self.edits, self.doubt, self.is_deleted = at, 0, None, False

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
        self.parts, self.end, self.touched, self.loose = [], None, [], []
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
            case change.Replaces(_, ""):
                self.lose(at, "an edit names no old text")
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
                text = "\n".join([*changed, ""] if ended else changed)
                # With the last line that was not ended one goes that was.
                is_exact = self.is_exact and (ended or len(changed) == len(rows))
                self.rewrite(at, text, is_exact=is_exact)
            self.settled_at = at
            return True
        # Lines that are counted from the end, or from a line that may be elsewhere, are not known.
        if any(edit.until is not None or isinstance(edit.where, int | str) for edit in edits):
            return False
        done = [part.edited(lambda rows: edit(rows)[0], self.end) for part in self.parts]
        changed_parts = [part for part in done if part is not None]
        if not (done or self.loose) or len(changed_parts) < len(done):
            return False
        self.parts = changed_parts
        whole = [(part, edit(part.rows)[0]) for part in map(whole_lines, self.loose)]
        same = [replace(part, rows=tuple(new)) for part, new in whole if len(new) == len(part.rows)]
        self.loose = with_newest(same, [])
        self.writes += 1
        self.changed_at = self.used_at = self.settled_at = at
        return True

    def rewrite(self, at: int, text: str, *, is_exact: bool, is_guess: bool = False) -> None:
        """Replace it by `text`, the result of a change of the known lines.

        `is_guess`: if the last line of those was ended.
        """
        before, rows = self.rows, text.split("\n")
        self.writes += 1
        self.changed_at = self.used_at = self.settled_at = at
        if before is None:
            self.see(at, rows, is_exact=is_exact)
        else:
            self.agree(at)
            self.parts, self.end = [KnownLines(1, tuple(rows))], len(rows)
            self.edits += 1
            self._touch_changed(1, before, rows)
        self.is_exact = is_exact
        if is_guess:
            self.doubted(at, _UNENDED, is_slight=True)

    def _append(self, at: int, text: str) -> None:
        rows = self.rows
        if rows is None:
            self._grow_at_end(at)
            added = tuple(text.removesuffix("\n").split("\n"))
            before = [replace(part, ends=False) for part in self.loose]
            self._keep_loose(at, [LooseLines(at, added, begins=False)], before)
            return
        if not self.is_exact:
            # Texts end with a newline, but for a few, and most tools do not show it.
            rows = (*rows, "") if rows[-1] else rows
            self.doubted(at, _UNENDED, is_slight=True)
        self._set_text(len(rows), "\n".join(rows) + text, text.count("\n") + 1)

    def _grow_at_end(self, at: int) -> None:
        """Something was added at the end of what is known in parts; it may go on the last line.

        Whether that was ended not every tool shows.
        """
        self.parts = [
            replace(part, rows=part.rows[: -1 if part.rows[-1] else -2])
            if part.may_end_at(self.end)
            else part
            for part in self.parts
        ]
        self.parts = [part for part in self.parts if part.rows]
        self._changed_elsewhere(at, self.parts)
        self.end = None

    def _changed_elsewhere(self, at: int, before: Sequence[KnownLines]) -> None:
        """Note a change of lines that are not known; `before` are the parts that it left."""
        self.edits += bool(self.parts)
        self._keep_placed(at, before)
        self.lost, self.lost_at = _ELSEWHERE, at

    def _keep_placed(self, at: int, before: Sequence[KnownLines]) -> None:
        """Let the changes go whose lines may have other numbers than in the parts `before`."""
        self.loose = with_newest(unplaced(at, self.touched, before, self.parts), self.loose)
        self.touched = placed_spans(self.touched, self.parts)

    def _change_unseen(self, at: int, made: Exchange) -> None:
        """Keep the lines that `made`, which is not among those that are known, did not change."""
        kept = without_changed(self.parts, made)
        self.parts = moved_unseen(kept, made, self.end)
        self.end = None if self.end is None else self.end + made.grown
        self._changed_elsewhere(at, kept)

    def _loosen(self, at: int, made: Exchange, *, is_placed: bool, is_once: bool = True) -> bool:
        """Keep what `made` has left, where that is not among lines that are known.

        Returns whether it was made to what an earlier one had left.
        """
        if self.rows is not None:
            return False
        before, is_found = exchanged(self.loose, at, made, is_once=is_once)
        # What was changed wherever it stood is a name mostly.
        is_new = is_once and not is_placed and not is_found
        self._keep_loose(at, left_by(at, made) if is_new else [], before)
        return is_found

    def _keep_loose(
        self, at: int, newer: Sequence[LooseLines], before: Sequence[LooseLines]
    ) -> None:
        """Keep what a change left, with what is still known of `before`."""
        if not self.parts and not self.loose:
            self._begin(at)
        self.loose = with_newest(before, newer)

    def _replace(self, at: int, made: change.Replaces) -> None:
        times = made.times
        counts = ["\n".join(part.rows).count(made.old) for part in self.parts]
        found, rows = sum(counts), self.rows
        if not found and rows is not None and not self.is_exact and rows[-1]:
            # An end of the last line that was not shown.
            self.parts, self.end = [KnownLines(1, (*rows, ""))], len(rows) + 1
            self._replace(at, made)
            return
        exchange = Exchange(made.old.split("\n"), made.new.split("\n"))
        within_lines = max(len(exchange.old), len(exchange.new)) == 1
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
        elif found:
            self.edits += 1
            self.agree(at)
            self._doubt_end(at, made)
        elif times == 1 and self.parts:
            self._change_unseen(at, exchange)
        places = [n for n, count in enumerate(counts) if count and fits]
        is_placed = bool(places) and all(self.parts[n].is_placed for n in places)
        for n in reversed(places):
            self._replace_in(at, n, made.old, made.new)
        self._loosen(at, exchange, is_placed=is_placed, is_once=times == 1)

    def _doubt_end(self, at: int, made: change.Replaces) -> None:
        """Doubt an edit of all places where the end of the last line may be one, or be none."""
        texts, is_end = self.texts, made.old.endswith("\n")
        if made.times == change.ALL and is_end and len(texts) > 1 and texts[0].endswith(made.old):
            self.doubted(at, _UNENDED, is_slight=True)

    def _replace_in(self, at: int, n: int, old: str, new: str) -> None:
        text = "\n".join(self.parts[n].rows)
        places = [found.start() for found in re.finditer(re.escape(old), text)]
        position = places[0]
        if len(places) > _TOUCHED_PARTS:
            # All but the last at once: of more than these it is not noted where they stand.
            position = places[-_TOUCHED_PARTS]
            head = text[:position].replace(old, new)
            text = head + text[position:]
            position = len(head)
            rows, self.touched = tuple(text.split("\n")), []
            grown = len(rows) - len(self.parts[n].rows)
            self.end = None if self.end is None else self.end + grown
            self.parts[n] = replace(self.parts[n], rows=rows)
        made = Exchange(old.split("\n"), new.split("\n"))
        while position >= 0:
            line = text.count("\n", 0, position)
            text = f"{text[:position]}{new}{text[position + len(old) :]}"
            self._exchange(at, n, line, text.split("\n"), made)
            position = text.find(old, position + len(new))

    def _exchange(
        self, at: int, n: int, line: int, rows: Sequence[str], made: Exchange
    ) -> None:  # fmt: skip
        """Give part `n` other `rows`; from the one with index `line` on `made` was done."""
        part, parts, touched = self.parts[n], self.parts, self.touched
        self._touch_changed(part.start + line, made.old, made.new)
        places = [start + line for start in part.starts]
        below = moved(parts[n + 1 :], places, made.grown)
        above = moved(parts[:n], places, made.grown)
        self.parts = [*above, replace(part, rows=tuple(rows)), *below]
        if not part.is_placed:
            gone = unplaced(at, touched, parts, self.parts)
            self.loose = with_newest(gone, self.loose)
        self.touched = placed_spans(self.touched, self.parts)
        self.end = None if self.end is None else self.end + made.grown

    def _insert(self, at: int, made: change.Inserts) -> None:
        rows = self.rows
        if rows is None or made.after_line > len(rows) or made.text.endswith("\n"):
            # Whether a last newline makes an empty line of its own, tools see differently.
            self.lose(at, "lines were put in, and how many is not certain")
            put_in = tuple(made.text.removesuffix("\n").split("\n"))
            self._keep_loose(at, [LooseLines(at, put_in)], [])
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
            found = change.hunk_at(lines, hunk, position)
            if found is None:
                self.lose(at, "the old lines of a patch are not there")
                self._patch(at, made)
                return
            lines[found : found + len(hunk.old)] = hunk.new
            self._touch_changed(found + 1, hunk.old, hunk.new)
            position = found + len(hunk.new)
            self.edits += 1
            self.agree(at)
        self.parts, self.end = [KnownLines(1, (*lines, ""))], len(lines) + 1

    def _patch_part(self, at: int, hunk: change.Hunk) -> None:
        """Apply a hunk to what is known in parts: in the one place that has its old lines."""
        made = Exchange(hunk.old, hunk.new, is_of_lines=True)
        if not hunk.old:
            self._grow_at_end(at)
            self._keep_loose(at, left_by(at, made), self.loose)
            return
        size = len(hunk.old)
        places = [
            (n, line)
            for n, part in enumerate(self.parts)
            for line in range(len(part.rows) - size + 1)
            if part.rows[line : line + size] == hunk.old
        ]
        is_found, is_placed = len(places) == 1, False
        if is_found:
            [(n, line)] = places
            rows, is_placed = self.parts[n].rows, self.parts[n].is_placed
            self.agree(at)
            self.edits += 1
            self._exchange(at, n, line, (*rows[:line], *hunk.new, *rows[line + size :]), made)
        else:
            self._change_unseen(at, made)
        if self._loosen(at, made, is_placed=is_placed) or is_found:
            self.doubted(at, _PLACED, is_slight=True)

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
