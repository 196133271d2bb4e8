"""Controls that any compaction must beat: simple ways to fill a number of tokens.

Each control gets the lines of a conversation and a number of tokens, and returns the lines that it
keeps, in order. No control knows the later messages. recall.py and constraints.py use them.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from context_compaction.tokens.counter import MessageCounter

from benchmarks.needed import is_entity, tokens_of

Control: TypeAlias = Callable[[Sequence[str], int, MessageCounter], list[str]]

# TextRank compares all pairs of sentences, so longer texts are ranked in parts of this size.
_TEXTRANK_LINES = 150


def random_lines(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Keep random lines (with a fixed seed) until the tokens are used up."""
    order = list(range(len(lines)))
    random.Random(20261121).shuffle(order)
    return _lines_that_fit(lines, order, tokens, count)


def keep_last(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Keep the newest lines."""
    return _lines_that_fit(lines, range(len(lines) - 1, -1, -1), tokens, count, unbroken=True)


def first_lines(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Keep the oldest lines."""
    return _lines_that_fit(lines, range(len(lines)), tokens, count, unbroken=True)


def head_and_tail(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Keep lines from both ends, with half of the tokens each."""
    return [
        *first_lines(lines, tokens // 2, count),
        *keep_last(lines, tokens - tokens // 2, count),
    ]


def textrank(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Keep the distinct lines that sumy's TextRank ranks first in each part of the conversation."""
    distinct = [line for line in dict.fromkeys(lines) if len(line.split()) > 2]
    total = sum(count.text(line) for line in distinct) or 1
    chosen: list[str] = []
    for start in range(0, len(distinct), _TEXTRANK_LINES):
        part = distinct[start : start + _TEXTRANK_LINES]
        part_tokens = tokens * sum(count.text(line) for line in part) // total
        chosen.extend(_lines_that_fit(part, _textrank_order(part), part_tokens, count))
    return chosen


def names_only(lines: Sequence[str], tokens: int, count: MessageCounter) -> list[str]:
    """Keep the rarest names without their surroundings, one on each line."""
    counts = Counter(match[0] for line in lines for match in tokens_of(line) if is_entity(match[0]))
    names = sorted(counts, key=lambda name: (counts[name], name))
    return _lines_that_fit(names, range(len(names)), tokens, count)


CONTROLS: dict[str, Control] = {
    "random lines": random_lines,
    "keep last": keep_last,
    "head + tail": head_and_tail,
    "first lines": first_lines,
    "TextRank (sumy)": textrank,
    "bare names": names_only,
}


def _textrank_order(lines: Sequence[str]) -> list[int]:
    """Return the indices of `lines`, best first, by sumy's TextRank."""
    models: Any = import_module("sumy.models.dom")
    ranking: Any = import_module("sumy.summarizers.text_rank")

    sentences = [models.Sentence(line, _Words()) for line in lines]
    document: Any = models.ObjectDocumentModel([models.Paragraph(sentences)])
    ratings = ranking.TextRankSummarizer().rate_sentences(document)
    scores = [ratings[sentence] for sentence in document.sentences]
    return sorted(range(len(lines)), key=lambda index: (-scores[index], index))


class _Words:
    """Replacement for sumy's tokenizer, which needs a download."""

    def to_words(self, text: str) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+", text.lower()))


def _lines_that_fit(
    lines: Sequence[str],
    order: Iterable[int],
    tokens: int,
    count: MessageCounter,
    *,
    unbroken: bool = False,
) -> list[str]:
    """Take lines in `order` while they fit, and return them in their original order.

    Args:
        lines: Lines of the conversation.
        order: Indices of the lines, best first.
        tokens: Number of tokens that may be used.
        count: Token counter.
        unbroken: Stop at the first line that does not fit, instead of skipping it.
    """
    chosen: list[int] = []
    free_tokens = tokens
    for index in order:
        cost = count.text(lines[index]) + 1
        if cost <= free_tokens:
            chosen.append(index)
            free_tokens -= cost
        elif unbroken:
            break
        if free_tokens < 2:
            break
    return [lines[index] for index in sorted(chosen)]
