"""What changes left in a file whose lines are not known there: text that stands in it somewhere.

Such a text is known until something else changes it. A later change whose old text stands in it is
made to it; of one that may have reached it those lines go; lines that are read and contain it say
where it stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.file_parts import Exchange, KnownLines, lines_left

# The oldest of more are let go: they come back last anyway.
_MOST_LOOSE = 32
# Of the lines of one, so many in what is read say that it is shown there, as it is now.
_SHOWN_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class LooseLines:
    """Lines that follow each other in a file, nobody knows where.

    Attributes:
        at: Position of the message that changed them last.
        rows: The lines without their ends.
        begins: Whether the first is a whole one, not the end of one.
        ends: Whether the last is.
    """

    at: int
    rows: tuple[str, ...]
    begins: bool = True
    ends: bool = True

    @property
    def text(self) -> str:
        """The lines as they stand in the file."""
        return "\n".join(self.rows)

    @property
    def telling(self) -> list[str]:
        """The lines that say something, without the spaces around them."""
        return [row.strip() for row in self.rows if any(map(str.isalnum, row))]


def left_by(at: int, made: Exchange) -> list[LooseLines]:
    """What `made` has put into a file; nothing where it only took something away."""
    whole = made.is_of_lines
    if made.is_of_lines and set(made.new) <= set(made.old):
        return []
    return [LooseLines(at, tuple(made.new), begins=whole, ends=whole)]


def exchanged(
    loose: Sequence[LooseLines], at: int, made: Exchange, *, is_once: bool = True
) -> tuple[list[LooseLines], bool]:
    """`loose` after `made`, and whether one of them contained its old text.

    With `is_once` the old text has stood in the file once, or its first place is meant.
    """
    kept: list[LooseLines] = []
    found = False
    for part in loose:
        done = _exchanged_in(part, made) if is_once else None
        if done is None:
            kept += _left(part, made)
        else:
            kept.append(replace(part, at=at, rows=tuple(done)))
            found = True
    return kept, found


def _exchanged_in(part: LooseLines, made: Exchange) -> Sequence[str] | None:
    """The lines of `part` after `made`; None where they do not contain its old text once."""
    if not made.is_of_lines:
        old, new = "\n".join(made.old), "\n".join(made.new)
        return part.text.replace(old, new).split("\n") if part.text.count(old) == 1 else None
    size = len(made.old)
    first, stop = int(not part.begins), len(part.rows) - (not part.ends)
    places = [
        n for n in range(first, stop - size + 1) if part.rows[n : n + size] == tuple(made.old)
    ]
    if len(places) != 1:
        return None
    [n] = places
    return (*part.rows[:n], *made.new, *part.rows[n + size :])


def _left(part: LooseLines, made: Exchange) -> Iterator[LooseLines]:
    """The lines of `part` that `made`, which may have reached it, has left as they were."""
    last = len(part.rows)
    for start, stop in lines_left(part.rows, made, begins=part.begins, ends=part.ends):
        begins, ends = part.begins or start > 0, part.ends or stop < last
        yield LooseLines(part.at, part.rows[start:stop], begins, ends)


def with_newest(loose: Sequence[LooseLines], newer: Sequence[LooseLines]) -> list[LooseLines]:
    """`loose` and `newer`, newest first, those of one message as they were made.

    None that says nothing, or that another contains.
    """
    kept: list[LooseLines] = []
    for part in sorted((*loose, *newer), key=lambda part: -part.at):
        if part.telling and not any(part.text in other.text for other in kept):
            kept.append(part)
    return kept[:_MOST_LOOSE]


def placed(
    loose: Sequence[LooseLines], start: int, rows: Sequence[str]
) -> tuple[list[LooseLines], list[tuple[int, int]]]:
    """Those of `loose` that lines from `start` on do not show, and where the others stand there.

    Where only some of the lines of one are shown it may have been changed since.
    """
    shown = {row.strip() for row in rows} if loose else set[str]()
    kept: list[LooseLines] = []
    spans: list[tuple[int, int]] = []
    for part in loose:
        head = part.rows[0].rstrip() if part.rows else ""
        starts = range(len(rows) - len(part.rows) + 1)
        places = [n for n in starts if head in rows[n] and _stands(part, rows, n)]
        if len(places) == 1:
            first = start + places[0]
            spans.append((first, first + len(part.rows) - 1))
        elif sum(row in shown for row in part.telling) < _SHOWN_SHARE * len(part.telling):
            kept.append(part)
    return kept, spans


def _stands(part: LooseLines, rows: Sequence[str], n: int) -> bool:
    """Whether `part` is the lines from the one with index `n` on."""
    last = len(part.rows) - 1
    if last == 0 and not (part.begins and part.ends):
        return part.rows[0] in rows[n]
    return all(
        there.endswith(row.rstrip())
        if at == 0 and not part.begins
        else there.startswith(row)
        if at == last and not part.ends
        else there == row.rstrip()
        for at, (row, there) in enumerate(
            zip(part.rows, map(str.rstrip, rows[n : n + last + 1]), strict=True)
        )
    )


def whole_lines(part: LooseLines) -> LooseLines:
    """`part` without a first or last line of which a part is not known."""
    rows = part.rows[int(not part.begins) : len(part.rows) - (not part.ends)]
    return LooseLines(part.at, rows)


def unplaced(
    at: int,
    touched: Sequence[tuple[int, int]],
    before: Sequence[KnownLines],
    after: Sequence[KnownLines],
) -> list[LooseLines]:
    """The lines of `touched`, first and last number, of which the numbers are not certain any more.

    Args:
        at: Position of the message that made them so.
        touched: What was changed.
        before: The parts that had these numbers.
        after: The parts since, with the lines of those that were not changed.
    """
    placed_rows = {id(part.rows) for part in after if part.is_placed}
    return [
        LooseLines(at, part.rows[first - part.start : last + 1 - part.start])
        for first, last in touched
        for part in before
        if part.is_placed and id(part.rows) not in placed_rows
        if part.start <= first and last < part.stop
    ]
