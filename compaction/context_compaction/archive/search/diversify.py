"""What a search for one word shows first: as many different names with it as there is room for.

`context` may be in hundreds of messages, as `contextWindow`, as `contextTokens`, in a path. Who
asks for it by itself wants one of these, and lines that repeat the first one say nothing new.
"""

import heapq
import re
import string
from collections.abc import Sequence

from context_compaction.archive.snippets import CHARS_BEFORE_MATCH, SNIPPET_CHARS
from context_compaction.messages.names import MAX_NAME_CHARS

READ_ROWS = 48  # of the best; 24 show 1 of 80 names less in the pi session
PLACES_PER_TEXT = 60  # that are weighed
OTHER_FORM_WEIGHT = 0.3  # of a name that has the word in another form, or within a longer word

_MARKS = "._$@/\\-"  # within a name, not around it
_NAME_CHARS = string.ascii_letters + string.digits + _MARKS
_REST = re.compile(rf"[\w.$@/\\-]{{1,{MAX_NAME_CHARS}}}")

_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

Windows = dict[int, frozenset[str]]  # by place to show: what a snippet about it shows of the word


def diversify(word: str, texts: Sequence[tuple[int, str, Sequence[int]]]) -> dict[int, int]:
    """The rows that show something new, in the order to show them, and which place of each.

    The best row stays the first. The next is whichever shows the most names not shown before.

    Args:
        word: The word asked for, as it was written.
        texts: Row, text, and where the word is in it, rising; the best row first.
    """
    windows = [(row, _windows(text, places)) for row, text, places in texts]
    shown: set[str] = set()
    weights: dict[str, float] = {}
    for _, candidates in windows:
        for name in frozenset[str]().union(*candidates.values()):
            weights[name] = 1.0 if word.lower() in _pieces(name) else OTHER_FORM_WEIGHT
    chosen: dict[int, int] = {}
    # What a row shows anew only ever shrinks, so a row that leads after another look is the best.
    queue = [(-float("inf"), rank) for rank in range(len(windows))]
    while queue:
        _, rank = heapq.heappop(queue)
        row, candidates = windows[rank]
        gains = {
            place: sum(weights[name] for name in names - shown)
            for place, names in candidates.items()
        }
        place = max(gains, key=gains.__getitem__, default=0)
        if not gains.get(place):
            continue
        key = (-gains[place], rank)
        if chosen and queue and key > queue[0]:
            heapq.heappush(queue, key)
            continue
        chosen[row] = place
        shown |= candidates[place]
    return chosen


def _pieces(name: str) -> set[str]:
    """The name itself and what it is made of, in lower case."""
    return {name.lower(), *(piece.lower() for piece in _PIECE.findall(name))}


def _windows(text: str, places: Sequence[int]) -> Windows:
    names: list[tuple[int, int, str]] = []
    stop = 0
    for at in places[:PLACES_PER_TEXT]:
        if at >= stop:
            name, stop = _name_at(text, at)
            names.append((at, stop, name))
    room = SNIPPET_CHARS - CHARS_BEFORE_MATCH
    windows: Windows = {}
    for number, (at, _, _) in enumerate(names):
        inside = [name for _, end, name in names[number:] if end <= at + room]
        windows[at] = frozenset(inside)
    return windows


def _name_at(text: str, at: int) -> tuple[str, int]:
    """The identifier or path around a match, and where it ends."""
    before = text[max(0, at - MAX_NAME_CHARS) : at]
    start = at - len(before) + len(before.rstrip(_NAME_CHARS))
    rest = _REST.match(text, at)
    stop = at if rest is None else rest.end()
    return text[start:stop].strip(_MARKS), stop
