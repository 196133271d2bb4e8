"""Lines of a summary, wanted in a fixed order, and as many of them as fit.

The order does not depend on the room, and whatever fits in its turn is taken: so more room
never keeps less.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from context_compaction.messages import placeholders
from context_compaction.summarizers.extractive.said import head_of, to_last_space
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT
from context_compaction.tokens.counter import MessageCounter

_MIN_TOKENS = 12
# Where so many lines in a row are too long for what is left, the room is full.
_MOST_MISSES = 40
# What is wanted less than this comes after what all sections have to tell in short.
BASE_WANT = 2.0
# Small talk is told where all else is.
SMALL_TALK_WANT = 1_000.0
# Below this many tokens titles cost more than they are worth.
SMALL_TOKENS = 600
_LINE_TOKENS = 2  # its break, and what joins it to the others of its entry

Place: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a section.

    Attributes:
        place: Its position in the section. A fuller version of a line has the same place, and
            replaces the shorter one where that is taken already.
        want: When it is taken: the smaller the sooner. Below 0, before all that is not.
        text: The line.
        under: The place of the line that it needs before it.
        is_fuller: Whether it replaces a shorter version.
    """

    place: Place
    want: float
    text: str
    under: Place | None = None
    is_fuller: bool = False


Chosen: TypeAlias = dict[str, dict[Place, str]]


@dataclass(slots=True)
class _Room:
    """The room while it is filled: its lines, their costs and the rest, in tokens."""

    count: MessageCounter
    left: int
    chosen: Chosen
    costs: dict[tuple[str, Place], int] = field(default_factory=dict[tuple[str, Place], int])

    def cost_of(self, title: str, line: Line) -> int:
        """The tokens that `line` adds; 0 for one that is taken already or lacks its `under`."""
        key = title, line.place
        if line.is_fuller != (key in self.costs):
            return 0
        if line.under is not None and line.under not in self.chosen[title]:
            return 0
        return self.count.text(line.text) + _LINE_TOKENS - self.costs.get(key, 0)

    def take(self, title: str, line: Line, cost: int) -> None:
        """Add `line` at its place for `cost` tokens."""
        self.chosen[title][line.place] = line.text
        self.costs[title, line.place] = self.costs.get((title, line.place), 0) + cost
        self.left -= cost


def chosen_lines(
    sections: Mapping[str, Sequence[Line]],
    shares: Mapping[str, float],
    room_tokens: int,
    count: MessageCounter,
) -> Chosen:
    """By section and place the text of the lines that fit `room_tokens`.

    Lines with a want below 0 precede the others whatever their section; then the sections take
    turns, so that each has its share of the room until it has no more lines.
    """
    room = _Room(count, room_tokens, {title: {} for title in sections})
    ordered = {
        title: sorted(lines, key=lambda line: (line.want, line.place, line.is_fuller))
        for title, lines in sections.items()
    }
    for title, line in _floors(ordered):
        cost = room.cost_of(title, line)
        if 0 < cost <= room.left:
            room.take(title, line, cost)
        elif cost and room.left == room_tokens:
            shorter = shortened(line.text, room.left - _LINE_TOKENS, count)
            return {**room.chosen, title: {line.place: shorter}} if shorter else room.chosen
    _take_turns(room, ordered, shares)
    return room.chosen


def _take_turns(
    room: _Room, ordered: Mapping[str, Sequence[Line]], shares: Mapping[str, float]
) -> None:
    """Fill `room` with the lines of all sections, each section as fast as its share allows."""
    titles = list(ordered)
    queues = [iter(ordered[title]) for title in titles]
    turns: list[tuple[bool, float, int, int, Line]] = []

    def queue(used: float, at: int) -> None:
        """Queue the next line of section `at`, by the share of the room used once it is taken."""
        priced = ((room.cost_of(titles[at], line), line) for line in queues[at])
        cost, line = next((item for item in priced if item[0]), (0, None))
        if line is not None:
            spent = used + cost / shares[titles[at]]
            heapq.heappush(turns, (line.want >= BASE_WANT, spent, at, cost, line))

    for at in range(len(titles)):
        taken = sum(room.costs.get((titles[at], place), 0) for place in room.chosen[titles[at]])
        queue(taken / shares[titles[at]], at)
    misses, has_missed = 0, False
    while turns and room.left > _MIN_TOKENS // 2 and misses < _MOST_MISSES:
        _, used, at, cost, line = heapq.heappop(turns)
        if line.want >= SMALL_TALK_WANT and has_missed:
            continue
        misses = misses + 1 if cost > room.left else 0
        has_missed = has_missed or misses > 0
        if cost <= room.left:
            room.take(titles[at], line, cost)
        queue(used, at)


def _floors(ordered: Mapping[str, Sequence[Line]]) -> list[tuple[str, Line]]:
    """The lines with a want below 0, with their sections, most wanted first."""
    first = [(title, line) for title, lines in ordered.items() for line in lines if line.want < 0]
    return sorted(first, key=lambda item: item[1].want)


def shortened(text: str, tokens: int, count: MessageCounter) -> str:
    """`text`, or its beginning and end within `tokens`; empty where too few of them are left.

    It is never cut inside a mark of ours.
    """
    total_tokens = count.text(text)
    if total_tokens <= tokens:
        return text
    if tokens < _MIN_TOKENS:
        return ""
    chars = max(8, len(text) * tokens // (total_tokens + 1) * 9 // 10)
    head = text[: chars * 2 // 3]
    tail = text[len(text) - chars // 3 :]
    if placeholders.cuts_mark(text, len(head)) or placeholders.cuts_mark(
        text, len(text) - len(tail)
    ):
        return ""
    return f"{to_last_space(head)} {LEFT_OUT} {_from_first_space(tail)}"


def versions(
    place: Place,
    label: str,
    text: str | Sequence[str],
    sizes_chars: Sequence[int],
    wants: Sequence[float],
    under: Place | None = None,
    *,
    shorten: Callable[[Any, int], str] = head_of,
) -> Iterator[Line]:
    """A text, or its pieces, in versions from short to full."""
    before = ""
    for chars, want in zip(sizes_chars, wants, strict=True):
        shown = shorten(text, chars)
        if shown and shown != before:
            yield Line(place, want, f"{label}{shown}", under, is_fuller=bool(before))
        before = shown or before


def _from_first_space(text: str) -> str:
    at = text.find(" ")
    return text[at + 1 :] if 0 <= at < len(text) // 2 else text
