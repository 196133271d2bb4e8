"""What any compaction must beat: simple ways to fill the same number of tokens.

Each control takes the lines of a conversation and a count of tokens, and gives the lines that it
keeps, in order. None sees what is needed later.
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from context_compaction.tokens.counter import MessageCounter

from benchmarks.needed import is_entity, tokens_of

Control: TypeAlias = Callable[[Sequence[str], int, MessageCounter], list[str]]

# TextRank compares every sentence with every other: longer texts are ranked in runs of this size.
_TEXTRANK_LINES = 150


def random_lines(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Lines drawn at random (seeded), until the budget is full."""
    order = list(range(len(lines)))
    random.Random(20261121).shuffle(order)
    return _that_fit(lines, order, tokens, count)


def keep_last(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """The newest lines."""
    return _that_fit(lines, range(len(lines) - 1, -1, -1), tokens, count, unbroken=True)


def first_lines(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """The oldest lines."""
    return _that_fit(lines, range(len(lines)), tokens, count, unbroken=True)


def head_and_tail(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Half from the beginning, half from the end."""
    return [
        *first_lines(lines, tokens // 2, count),
        *keep_last(lines, tokens - tokens // 2, count),
    ]


def textrank(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """TextRank as sumy has it, on the distinct lines, in runs; each run gets its share."""
    distinct = [line for line in dict.fromkeys(lines) if len(line.split()) > 2]
    total = sum(count.text(line) for line in distinct) or 1
    chosen: list[str] = []
    for run in _runs(distinct, _TEXTRANK_LINES):
        share = tokens * sum(count.text(line) for line in run) // total
        chosen.extend(_that_fit(run, _textrank_order(run), share, count))
    return chosen


def bare_names(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """The rarest names, each alone on its line: what a pattern without context would keep."""
    times: dict[str, int] = {}
    for line in lines:
        for match in tokens_of(line):
            if is_entity(match[0]):
                times[match[0]] = times.get(match[0], 0) + 1
    names = sorted(times, key=lambda name: (times[name], name))
    return _that_fit(names, range(len(names)), tokens, count)


CONTROLS: dict[str, Control] = {
    "random lines": random_lines,
    "keep last": keep_last,
    "head + tail": head_and_tail,
    "first lines": first_lines,
    "TextRank (sumy)": textrank,
    "bare names": bare_names,
}


def _runs(lines: Sequence[str], size: int) -> list[Sequence[str]]:
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def _textrank_order(lines: Sequence[str]) -> list[int]:
    """Positions of `lines`, best first, by sumy's TextRank."""
    models: Any = import_module("sumy.models.dom")
    ranking: Any = import_module("sumy.summarizers.text_rank")

    sentences = [models.Sentence(line, _Words()) for line in lines]
    document: Any = models.ObjectDocumentModel([models.Paragraph(sentences)])
    ratings = ranking.TextRankSummarizer().rate_sentences(document)
    scores = [ratings[sentence] for sentence in document.sentences]
    return sorted(range(len(lines)), key=lambda at: (-scores[at], at))


class _Words:
    """The part of sumy's tokenizer that ranking needs; its own wants a download."""

    def to_words(self, text: str) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+", text.lower()))


def _that_fit(
    lines: Sequence[str],
    order: Iterable[int],
    tokens: int,
    count: MessageCounter,
    *,
    unbroken: bool = False,
) -> list[str]:
    """The lines in the order of their places, taken in `order` while there is room.

    What is too long is passed over, or, where the run is to be `unbroken`, ends it.
    """
    chosen: list[int] = []
    left = tokens
    for at in order:
        cost = count.text(lines[at]) + 1
        if cost <= left:
            chosen.append(at)
            left -= cost
        elif unbroken:
            break
        if left < 2:
            break
    return [lines[at] for at in sorted(chosen)]
