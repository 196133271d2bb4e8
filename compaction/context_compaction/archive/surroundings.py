"""What the messages around a row add to it: an answer seldom repeats the words of its question.

A word that stands a message or a few away counts in part: more where the row lacks it than where
the row has it too. Measured on LoCoMo, where turns are short, and on questions about transcripts of
agents, where they are long: the one wants more of it, the others less.
"""

from collections.abc import Mapping, Sequence

# What a word counts at so many messages' distance.
DISTANCES = {1: 1.0, 2: 0.6, 3: 0.4}
LACKED_SHARE = 0.45
HELD_SHARE = 0.25
_MESSAGES = 1 << 40  # more than a session has

Around = Sequence[tuple[int, float]]


def place_of(session: int, seq: int) -> int:
    """A number for a message, which is next to that of the message beside it."""
    return session * _MESSAGES + seq


def around(place: int, rows: Mapping[int, int]) -> Around:
    """The rows around a place, given the rows by their places, and what each of them counts."""
    return [
        (rows[near], part)
        for distance, part in DISTANCES.items()
        for near in (place - distance, place + distance)
        if near in rows
    ]


def with_surroundings(row: int, near: Around, shares: Mapping[int, float]) -> float:
    """What a word adds to a row, given what it adds to each row that holds it."""
    held = shares.get(row, 0.0)
    gain = 0.0
    for other, part in near:
        if other in shares:
            gain = max(gain, part * shares[other])
    return held + (HELD_SHARE if held else LACKED_SHARE) * gain
