"""Lines of a summary, wanted in a fixed order, and as many of them as fit.

The order does not depend on the room, and whatever fits in its turn is taken: so more room
never keeps less.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from context_compaction.activity.command_line import to_last_space
from context_compaction.messages import placeholders
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT, words_of
from context_compaction.tokens.counter import MessageCounter

_MIN_TOKENS = 12
# Where so many lines are too long for what is left, the room is full.
_MOST_MISSES = 40
# What is wanted less than this comes after what all sections have to tell in short.
BASE_WANT = 2.0
# Below this many tokens titles cost more than they are worth.
SMALL_TOKENS = 600
_LINE_TOKENS = 2  # its break, and what joins it to the others of its entry

# A line with all of the focus weighs so many times more than one with none.
_FOCUS_WEIGHT = 9.0

Place: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a section."""

    place: Place  # in the section; that of a fuller version is the same
    want: float  # the smaller the sooner; below 0 before all that is not
    text: str
    is_fuller: bool = False  # it replaces a shorter version, where that is taken


Chosen: TypeAlias = dict[str, dict[Place, str]]


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
    waiting = {
        title: deque(sorted(lines, key=lambda line: (line.want, line.place, line.is_fuller)))
        for title, lines in sections.items()
        if lines
    }
    chosen: Chosen = {title: {} for title in sections}
    costs: defaultdict[tuple[str, Place], int] = defaultdict(int)
    spent = dict.fromkeys(sections, 0)
    left, misses = room_tokens, 0

    def rank(title: str) -> tuple[int, float]:
        want = waiting[title][0].want
        return (0, want) if want < 0 else (1 + (want >= BASE_WANT), spent[title] / shares[title])

    while waiting and left > _MIN_TOKENS // 2 and misses < _MOST_MISSES:
        title = min(waiting, key=rank)
        line = waiting[title].popleft()
        if not waiting[title]:
            del waiting[title]
        if line.is_fuller != (line.place in chosen[title]):
            continue
        cost = count.text(line.text) + _LINE_TOKENS - costs[title, line.place]
        if cost <= left:
            chosen[title][line.place] = line.text
            costs[title, line.place] += cost
            spent[title] += cost
            left -= cost
        elif left == room_tokens:
            shorter = _beginning(line.text, left - _LINE_TOKENS, count)
            return {title: {line.place: shorter}} if shorter else {}
        else:
            misses += 1
    return chosen


def tokens_of(chosen: Chosen, count: MessageCounter) -> int:
    """The room that `chosen` takes."""
    texts = (text for lines in chosen.values() for text in lines.values())
    return sum(count.text(text) + _LINE_TOKENS for text in texts)


def _beginning(text: str, tokens: int, count: MessageCounter) -> str:
    """The beginning of `text` within `tokens`; "" for few of them, or within a mark of ours."""
    chars = len(text) * tokens // (count.text(text) + 1) * 9 // 10
    head = to_last_space(text[: max(0, chars)])
    if tokens < _MIN_TOKENS or placeholders.cuts_mark(text, len(head)):
        return ""
    return f"{head} {LEFT_OUT}"


def versions(
    place: Place, label: str, texts: Iterable[str], wants: Iterable[float]
) -> Iterator[Line]:
    """The versions of a line, each where it tells another text than the one before."""
    before = ""
    for text, want in zip(texts, wants, strict=True):
        if text and text != before:
            yield Line(place, want, f"{label}{text}", is_fuller=bool(before))
        before = text or before


def focused(
    sections: Mapping[str, Sequence[Line]], instructions: str
) -> Mapping[str, Sequence[Line]]:
    """The sections, with the lines that match the caller's `instructions` wanted sooner.

    These are a sentence or two in any language ("Keep what we found out about the login timeouts").
    The stems of their words are sought in the lines, so that "timeouts" finds "timeout=30" and
    "loginTimeout" too.
    """
    texts = [line.text.lower() for lines in sections.values() for line in lines]
    stems = [stem for stem in words_of(instructions) if any(stem in text for text in texts)]
    if not stems:
        return sections

    def want(line: Line) -> float:
        hits = sum(stem in line.text.lower() for stem in stems)
        return line.want / (1 + (_FOCUS_WEIGHT - 1) * hits / len(stems))

    return {
        title: [replace(line, want=want(line)) if line.want > 0 else line for line in lines]
        for title, lines in sections.items()
    }
