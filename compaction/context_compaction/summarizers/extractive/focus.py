"""Find the items that the caller's instructions name, so that a summary prefers them."""

import re
from collections.abc import Sequence

from context_compaction.summarizers.extractive.items import Item

_WORD = re.compile(r"\w{2,}|\d")
# A word in more items than this share says nothing about a topic.
_COMMON_SHARE = 0.25
# Rare words count if a conversation is so short that each item is a large share of it.
_MIN_ITEMS = 2


def mark_focus(items: Sequence[Item], instructions: str) -> None:
    """Set `in_focus` on each item with a topic of `instructions`; put its matching pieces first."""
    topics: list[re.Pattern[str]] = []
    most_items = max(_MIN_ITEMS, len(items) * _COMMON_SHARE)
    texts = ["\n".join(item.pieces).casefold() for item in items]
    for word in set(_WORD.findall(instructions.casefold())):
        # Languages without spaces have no borders of words.
        topic = re.compile(rf"\b{word}\b" if word.isascii() else word)
        if 0 < sum(topic.search(text) is not None for text in texts) <= most_items:
            topics.append(topic)
    for item in items:
        named = {
            number
            for number, piece in enumerate(item.pieces)
            if any(topic.search(piece.casefold()) for topic in topics)
        }
        item.in_focus = bool(named)
        item.order = sorted(item.order, key=lambda number: number not in named)
