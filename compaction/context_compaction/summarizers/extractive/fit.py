"""Lines of a summary, wanted in a fixed order, and as many of them as fit.

The order does not depend on the room, and whatever fits when its turn comes is taken: so more room
never keeps less.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from context_compaction.messages import placeholders
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT
from context_compaction.tokens.counter import MessageCounter

_MIN_TOKENS = 12
# Where so many lines in a row are too long for what is left, the room is full.
_MOST_MISSES = 40
_LINE_TOKENS = 2  # its break, and what joins it to the others of its entry

Place: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a section.

    Attributes:
        place: Where it stands in the section. A fuller version of a line has the same place, and
            takes it where the shorter one is there already.
        want: When it is taken: the smaller the sooner. Below 0, before all that is not.
        text: The line.
        under: The place of a line without which it says nothing.
        is_fuller: Whether it takes the place of a shorter version.
    """

    place: Place
    want: float
    text: str
    under: Place | None = None
    is_fuller: bool = False


Chosen: TypeAlias = dict[str, dict[Place, str]]


def chosen_lines(
    sections: Mapping[str, Sequence[Line]],
    shares: Mapping[str, float],
    room_tokens: int,
    count: MessageCounter,
) -> Chosen:
    """Of the lines of each section those that fit, by place.

    What is wanted most goes first whatever its section; then the sections take turns, so that each
    has its share of the room until it has no more to say.
    """
    chosen: Chosen = {title: {} for title in sections}
    costs: dict[tuple[str, Place], int] = {}
    left = room_tokens

    def take(title: str, line: Line) -> int:
        """Take `line` where there is room and what it belongs to; what it costs, or 0."""
        nonlocal left
        key = title, line.place
        if line.is_fuller != (key in costs) or line.under not in (None, *chosen[title]):
            return 0
        cost = count.text(line.text) + _LINE_TOKENS - costs.get(key, 0)
        if cost <= left:
            chosen[title][line.place] = line.text
            costs[key] = costs.get(key, 0) + cost
            left -= cost
        return cost

    ordered = {
        title: sorted(lines, key=lambda line: (line.want, line.place, line.is_fuller))
        for title, lines in sections.items()
    }
    first = [(line.want, title, line) for title in ordered for line in ordered[title]]
    for _, title, line in sorted((item for item in first if item[0] < 0), key=lambda item: item[0]):
        cost = take(title, line)
        if cost > left == room_tokens:
            shorter = shortened(line.text, left - _LINE_TOKENS, count)
            return {**chosen, title: {line.place: shorter}} if shorter else chosen
    queues = [(title, [line for line in ordered[title] if line.want >= 0]) for title in ordered]
    turns = [(0.0, at, 0) for at in range(len(queues))]
    misses = 0
    while turns and left > _MIN_TOKENS // 2 and misses < _MOST_MISSES:
        used, at, number = heapq.heappop(turns)
        title, lines = queues[at]
        if number < len(lines):
            before = left
            cost = take(title, lines[number])
            misses = misses + 1 if cost and left == before else 0
            heapq.heappush(turns, (used + cost / shares[title], at, number + 1))
    return chosen


def shortened(text: str, tokens: int, count: MessageCounter) -> str:
    """`text`, or its beginning and end where it is too long; empty where even that is too much.

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
    return f"{_to_last_space(head)} {LEFT_OUT} {_from_first_space(tail)}"


def head_of(text: str, chars: int) -> str:
    """`text`, or its beginning of about `chars` where it is longer, cut where a sentence ends."""
    if len(text) <= chars:
        return text
    cut = max(text.rfind(mark, 0, chars) + 1 for mark in (". ", "! ", "? ", "。", "; "))
    head = text[:cut] if cut > chars // 2 else _to_last_space(text[: chars + 1])[:chars]
    return f"{head} {LEFT_OUT}"


def versions(
    place: Place,
    label: str,
    text: str,
    sizes_chars: Sequence[int],
    wants: Sequence[float],
    under: Place | None = None,
    *,
    shorten: Callable[[str, int], str] = head_of,
) -> Iterator[Line]:
    """A text in versions from short to full."""
    before = ""
    for chars, want in zip(sizes_chars, wants, strict=True):
        shown = shorten(text, chars)
        if shown != before:
            yield Line(place, want, f"{label}{shown}", under, is_fuller=bool(before))
        before = shown


def _to_last_space(text: str) -> str:
    at = text.rfind(" ")
    return text[:at] if at > len(text) // 2 else text


def _from_first_space(text: str) -> str:
    at = text.find(" ")
    return text[at + 1 :] if 0 <= at < len(text) // 2 else text
