"""Find the items that the caller's instructions name, so that a summary prefers them."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from context_compaction.summarizers.extractive.items import Item

_WORD = re.compile(r"\w{2,}|\d")
# A word in more items than this share says nothing about a topic.
_COMMON_SHARE = 0.25
# Rare words count if a conversation is so short that each item is a large share of it.
_MIN_ITEMS = 2


def mark_focus(items: Sequence[Item], instructions: str) -> None:
    """Set `in_focus` on each item with a topic of `instructions`; put its matching pieces first."""
    named = set(_WORD.findall(instructions.casefold()))
    # Languages without spaces have no borders of words.
    parts = [word for word in named if not word.isascii()]

    def words_of(piece: str) -> set[str]:
        text = piece.casefold()
        return named.intersection(_WORD.findall(text)).union(part for part in parts if part in text)

    words = [[words_of(piece) for piece in item.pieces] for item in items]
    item_counts = Counter(word for pieces in words for word in set(chain.from_iterable(pieces)))
    most_items = max(_MIN_ITEMS, len(items) * _COMMON_SHARE)
    topics = {word for word, count in item_counts.items() if count <= most_items}
    for item, pieces in zip(items, words, strict=True):
        matching = {number for number, piece_words in enumerate(pieces) if piece_words & topics}
        item.in_focus = bool(matching)
        item.order = sorted(item.order, key=lambda number: number not in matching)
