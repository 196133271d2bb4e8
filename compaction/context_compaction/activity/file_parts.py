"""Lines of a file that is known in parts, and what a change does to them where it is not seen.

A tool that has found an old text once, and not in what is known, has changed lines that nobody has
seen, or such as stand only in part among the known ones. Those go. All others stand as they were;
which numbers they have since is known only where it does not matter in which gap the change lay.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

# Of a part that may stand in more places than these nothing is gained by counting them.
_MOST_PLACES = 32
# Longer lines may be one another's parts: to compare them at each place takes too long.
_LONG_CHARS = 2_000
# Some tools find what differs in these, and all around a line.
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


@dataclass(frozen=True, slots=True)
class KnownLines:
    """Lines that follow each other in a file.

    Attributes:
        start: The number of the first, as far as it is known.
        rows: The lines without their ends.
        moves: By how much it may be another number; not at all where that is certain.
    """

    start: int
    rows: tuple[str, ...]
    moves: frozenset[int] = frozenset({0})

    @property
    def stop(self) -> int:
        """The number after that of the last."""
        return self.start + len(self.rows)

    @property
    def is_placed(self) -> bool:
        """Whether the numbers are certain."""
        return len(self.moves) == 1

    @property
    def starts(self) -> list[int]:
        """The numbers that the first may have."""
        return [self.start + by for by in self.moves]

    def may_end_at(self, line: int | None) -> bool:
        """Whether the last may have the number `line`."""
        return any(start + len(self.rows) - 1 == line for start in self.starts)

    def edited(
        self, edit: Callable[[Sequence[str]], Sequence[str]], end: int | None
    ) -> "KnownLines | None":
        """These with each line edited; None where that is not certain, or they are more or fewer.

        What is empty behind the file's last newline, at the number `end`, is no line.
        """
        ends = not self.rows[-1] and self.may_end_at(end)
        rows = self.rows[:-1] if ends else self.rows
        changed = tuple(edit(rows))
        if len(changed) != len(rows) or (ends and not self.is_placed):
            return None
        return replace(self, rows=(*changed, "") if ends else changed)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Old lines and those that replace them.

    Attributes:
        old: The old lines; those outermost may be parts of lines.
        new: The new ones.
        is_of_lines: Whether the outermost are whole lines, too.
    """

    old: Sequence[str]
    new: Sequence[str]
    is_of_lines: bool = False

    @property
    def grown(self) -> int:
        """How many lines more there are after it."""
        return len(self.new) - len(self.old)

    @property
    def changed(self) -> tuple[int, int]:
        """Index of the first of the old lines that may be another one since, and after the last."""
        inner = 0 if self.is_of_lines else 1
        above, below = same_ends(self.old, self.new)
        most = min(len(self.old), len(self.new)) - inner
        above, below = min(above, max(most, 0)), min(below, max(most, 0))
        return above, max(above, len(self.old) - below)


def same_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines both begin with, and how many of the others both end with."""
    most = min(len(old), len(new))
    above = next((n for n in range(most) if old[n] != new[n]), most)
    below = next((n for n in range(most - above) if old[-1 - n] != new[-1 - n]), most - above)
    return above, below


def joined(
    parts: Sequence[KnownLines], start: int, rows: Sequence[str], end: int | None
) -> list[KnownLines]:
    """`parts` and lines from `start` on that agree with them; none after `end`.

    Where parts without certain numbers may stand is settled by these lines, as far as that goes.
    """
    parts = [_settled(part, start, rows) for part in parts]
    lines = {start + n: row for n, row in enumerate(rows)}
    for part in parts:
        if part.is_placed:
            lines.update({part.start + n: row for n, row in enumerate(part.rows)})
    numbers = [number for number in sorted(lines) if end is None or number <= end]
    firsts = [number for number in numbers if number - 1 not in lines]
    stops = [number + 1 for number in numbers if number + 1 not in lines or number == end]
    found = [
        KnownLines(first, tuple(lines[number] for number in range(first, stop)))
        for first, stop in zip(firsts, stops, strict=True)
    ]
    # What may be lines that are known now is not kept beside them.
    apart = [part for part in parts if not part.is_placed and not _may_overlap(part, found)]
    return sorted([*found, *apart], key=lambda part: part.start)


def with_unplaced(parts: Sequence[KnownLines], part: KnownLines) -> list[KnownLines]:
    """`parts` and one whose numbers are not certain, unless it may be lines that are known."""
    loose = any(not known.is_placed for known in parts)
    if loose or _may_overlap(part, parts):
        return list(parts)
    return sorted([*parts, part], key=lambda part: part.start)


def _may_overlap(part: KnownLines, others: Sequence[KnownLines]) -> bool:
    return any(
        start < other.stop and other.start < start + len(part.rows)
        for start, other in product(part.starts, others)
    )


def agree_with(part: KnownLines, start: int, rows: Sequence[str]) -> bool:
    """Whether `part` may stand where it agrees with lines from `start` on."""
    return bool(_agreeing(part, start, rows))


def _settled(part: KnownLines, start: int, rows: Sequence[str]) -> KnownLines:
    """`part` in the places that agree with lines from `start` on."""
    moves = _agreeing(part, start, rows)
    if len(moves) == 1:
        return KnownLines(part.start + moves[0], part.rows)
    return replace(part, moves=frozenset(moves))


def _agreeing(part: KnownLines, start: int, rows: Sequence[str]) -> list[int]:
    return [by for by in part.moves if _agrees(part.start + by, part.rows, start, rows)]


def _agrees(start: int, rows: Sequence[str], other: int, others: Sequence[str]) -> bool:
    first, last = max(start, other), min(start + len(rows), other + len(others))
    return all(rows[n - start].rstrip() == others[n - other].rstrip() for n in range(first, last))


def moved(parts: Sequence[KnownLines], at: Sequence[int], grown: int) -> list[KnownLines]:
    """`parts` after one of the lines `at` has become so many lines more."""
    return _standing(
        (part, {one + grown * (one > line) for one, line in product(part.starts, at)})
        for part in parts
    )


def moved_unseen(
    parts: Sequence[KnownLines], made: Exchange, end: int | None
) -> list[KnownLines]:  # fmt: skip
    """`parts` after `made`, which changed none of their lines; the file ended with line `end`."""
    first, stop = made.changed
    return _standing(
        (part, set(_starts_since(part, made.grown, end, (stop > 0, first < len(made.old)))))
        for part in parts
    )


def _starts_since(
    part: KnownLines, grown: int, end: int | None, needs: tuple[bool, bool]
) -> Iterator[int]:
    """The numbers that its first line may have after a change elsewhere.

    Above the first line of a file and below the last there is none to change; `needs` is whether
    there must be one for a change above and below a part, which only puts lines in otherwise.
    """
    above, below = needs
    if not (part.is_placed and end is not None and part.stop > end and below):
        yield from part.starts
    if not (part.is_placed and part.start == 1 and above):
        yield from (start + grown for start in part.starts)


def _standing(found: Iterable[tuple[KnownLines, set[int]]]) -> list[KnownLines]:
    """Each part with the numbers that its first line may have, where these are not too many."""
    kept: list[KnownLines] = []
    for part, starts in found:
        starts = {start for start in starts if start > 0}
        if 0 < len(starts) <= _MOST_PLACES:
            base = part.start if part.start in starts else min(starts)
            kept.append(replace(part, start=base, moves=frozenset(one - base for one in starts)))
    return kept


def placed_spans(
    spans: Sequence[tuple[int, int]], parts: Sequence[KnownLines]
) -> list[tuple[int, int]]:
    """Those of `spans`, first and last line, that lie in lines with certain numbers."""
    placed = [part for part in parts if part.is_placed]
    return [
        (first, last)
        for first, last in spans
        if any(part.start <= first and last <= part.stop for part in placed)
    ]


def without_changed(parts: Sequence[KnownLines], made: Exchange) -> list[KnownLines]:
    """`parts` without the lines that `made`, which is nowhere among them as a whole, may change."""
    return [
        KnownLines(part.start + start, part.rows[start:stop], part.moves)
        for part in parts
        for start, stop in lines_left(part.rows, made)
    ]


def lines_left(
    rows: Sequence[str], made: Exchange, *, begins: bool = True, ends: bool = True
) -> Iterator[tuple[int, int]]:
    """The indexes between which `rows` stand as they did, wherever among them `made` was done.

    `begins` and `ends` are whether the first and the last of them are whole lines.
    """
    first, stop = made.changed
    gone: set[int] = set()
    cuts: set[int] = set()  # lines may have come before these
    for offset in _places(rows, made, (not begins, not ends)):
        gone.update(range(max(0, offset + first), min(len(rows), offset + stop)))
        cuts.add(offset + stop)
    start: int | None = None
    for n in range(len(rows) + 1):
        is_end = n == len(rows) or n in gone
        if start is not None and (is_end or n in cuts):
            yield start, n
            start = None
        if start is None and not is_end:
            start = n


def _places(rows: Sequence[str], made: Exchange, is_open: tuple[bool, bool]) -> Iterator[int]:
    """The indexes in `rows`, which may lie outside, at which the first old line may stand.

    `is_open` is whether the first of `rows` may begin, and the last end, outside of what is known.
    """
    shown = [_plain(row) for row in rows]
    old = [_plain(row) for row in made.old]
    for offset in range(1 - len(old), len(shown)):
        first, stop = max(0, -offset), min(len(old), len(shown) - offset)
        # What lies between is compared at once: to do it line by line would take minutes.
        inner = slice(first + 1, stop - 1), slice(first + 1 + offset, stop - 1 + offset)
        if (stop - first < 3 or old[inner[0]] == shown[inner[1]]) and all(
            _matches(old, n, shown, n + offset, made, is_open)
            or (any(is_open) and _matches(made.old, n, rows, n + offset, made, is_open))
            for n in {first, stop - 1}
        ):
            yield offset


def _matches(
    old: Sequence[str],
    n: int,
    rows: Sequence[str],
    at: int,
    made: Exchange,
    is_open: tuple[bool, bool],
) -> bool:
    """Whether the row with index `at` may be the line that the old one with index `n` is in."""
    is_part = not made.is_of_lines
    old_open = is_part and n == 0, is_part and n == len(old) - 1
    row_open = is_open[0] and at == 0, is_open[1] and at == len(rows) - 1
    return _may_meet(old[n], old_open, rows[at], row_open)


def _may_meet(
    one: str, one_open: tuple[bool, bool], other: str, other_open: tuple[bool, bool]
) -> bool:
    """Whether two texts may be parts of one line that overlap; an open side may have more."""
    if not any(other_open):
        return _is_in(one, one_open, other)
    if not any(one_open):
        return _is_in(other, other_open, one)
    if len(one) + len(other) > _LONG_CHARS:
        return True
    if not one_open[0] and not other_open[0]:
        begins: Iterable[int] = (0,)
    elif not one_open[1] and not other_open[1]:
        begins = (len(other) - len(one),)
    else:
        begins = range(1 - len(one), len(other))
    return any(_meet_at(begin, one, one_open, other, other_open) for begin in begins)


def _is_in(text: str, is_open: tuple[bool, bool], line: str) -> bool:
    """Whether `text` may be the part of `line` that it is."""
    if is_open == (True, True):
        return text in line
    if is_open[1]:
        return line.startswith(text)
    return line.endswith(text) if is_open[0] else text == line


def _meet_at(
    begin: int, one: str, one_open: tuple[bool, bool], other: str, other_open: tuple[bool, bool]
) -> bool:
    """Whether `one` may begin at the index `begin` of `other`."""
    end = begin + len(one)
    goes_over = (begin < 0 and not other_open[0]) or (end > len(other) and not other_open[1])
    falls_short = (begin > 0 and not one_open[0]) or (end < len(other) and not one_open[1])
    first, stop = max(0, begin), min(len(other), end)
    is_same = one[first - begin : stop - begin] == other[first:stop]
    return is_same and not goes_over and not falls_short


def _plain(row: str) -> str:
    return row.translate(_QUOTES).strip()
