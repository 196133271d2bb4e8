"""What the messages around a row add to it: an answer seldom repeats the words of its question.

A word that stands a message or a few away counts in part: more where the row lacks it than where
the row has it too. Measured on LoCoMo, where turns are short, and on questions about transcripts of
agents, where they are long: the one wants more of it, the others less.
"""

from collections.abc import Mapping

# What a word counts at so many messages' distance.
DISTANCES = {1: 1.0, 2: 0.6, 3: 0.4}
LACKED_SHARE = 0.45
HELD_SHARE = 0.25
_MESSAGES = 1 << 40  # more than a session has

Places = Mapping[int, int]


def place_of(session: int, seq: int) -> int:
    """A number for a message, which is next to that of the message beside it."""
    return session * _MESSAGES + seq


def with_surroundings(shares: Mapping[int, float], places: Places) -> dict[int, float]:
    """What a word adds to each of some rows, with what stands around them.

    Args:
        shares: What the word adds to each row that holds it.
        places: By row, its place; the only rows that are looked at.
    """
    rows = {place: row for row, place in places.items()}
    around: dict[int, float] = {}
    for row, share in shares.items():
        place = places.get(row)
        if place is None:
            continue
        for distance, part in DISTANCES.items():
            gain = part * share
            for near in (place - distance, place + distance):
                if gain > around.get(near, 0.0):
                    around[near] = gain
    found = {row: share for row, share in shares.items() if row in places}
    for place, gain in around.items():
        row = rows.get(place)
        if row is not None:
            held = shares.get(row, 0.0)
            found[row] = held + HELD_SHARE * gain if held else LACKED_SHARE * gain
    return found
