"""What a text gains once it is read: by small words, and by words that stand close together."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from context_compaction.archive.terms import word_places

READ_CHARS = 8_000
NEARNESS_GAIN = 0.5
# What a small word ("how", "before") is worth beside the rarity of others; it never finds a row.
SMALL_WORD_WORTH = 0.8
# BM25's constants, as FTS5 has them, and the length of an average text, for the small words alone.
K1, B, AVERAGE_CHARS = 1.2, 0.75, 600


def gain_of_reading(text: str, asked: Sequence[str], worth: Mapping[str, float]) -> float:
    """What a text adds to its score.

    Args:
        text: Its first `READ_CHARS` are read.
        asked: The words of the query in their order, as they are indexed.
        worth: Of those that are looked for; the others are small words.
    """
    read = text[:READ_CHARS]
    places = word_places(read, {*asked})
    length = 1 - B + B * len(read) / AVERAGE_CHARS
    gain = 0.0
    for word in {*asked} - worth.keys():
        count = len(places[word])
        gain += SMALL_WORD_WORTH * count * (K1 + 1) / (count + K1 * length)
    for first, second in pairwise(asked):
        distance = _distance(places[first], places[second])
        if distance is not None:
            both = (worth.get(first, SMALL_WORD_WORTH), worth.get(second, SMALL_WORD_WORTH))
            gain += NEARNESS_GAIN * min(both) / (distance + 1)
    return gain


def _distance(first: Sequence[int], second: Sequence[int]) -> int | None:
    """How many words apart the two stand where they are nearest."""
    nearest: int | None = None
    at = 0  # both are in order, so one walk over the two does
    for here in first:
        while at < len(second) and second[at] < here:
            at += 1
        for there in second[max(0, at - 1) : at + 1]:
            if nearest is None or abs(here - there) < nearest:
                nearest = abs(here - there)
    return nearest
