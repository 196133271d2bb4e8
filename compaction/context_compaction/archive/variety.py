"""What a search for one word shows first: as many different names with it as there is room for.

`context` may stand in hundreds of messages, as `contextWindow`, as `contextTokens`, in a path. Who
asks for it by itself wants one of these, and lines that repeat the first one say nothing new.
"""

import heapq
import re
import string
from collections.abc import Sequence

from context_compaction.archive.snippets import CHARS_BEFORE_MATCH, SNIPPET_CHARS

READ_ROWS = 48  # of the best
MAX_PLACES = 60  # of one text that are weighed
MAX_NAME_CHARS = 80
# Among rows that show about equally many new names, the better one.
RANK_WEIGHT = 0.01

_MARKS = "._$@/\\-"  # within a name, not around it
_NAME_CHARS = string.ascii_letters + string.digits + _MARKS
_REST = re.compile(rf"[\w.$@/\\-]{{1,{MAX_NAME_CHARS}}}")

Windows = dict[int, frozenset[str]]  # by place to show: what a snippet about it shows of the word


def varied(texts: Sequence[tuple[int, str, Sequence[int]]]) -> dict[int, int]:
    """The rows that show something new, in the order to show them, and which place of each.

    The best row stays the first. Then comes whichever shows the most names not shown before.

    Args:
        texts: Row, text, and where the word stands in it, rising; the best row first.
    """
    windows = [(row, _windows(text, places)) for row, text, places in texts]
    shown: set[str] = set()
    chosen: dict[int, int] = {}
    # What a row shows anew only ever shrinks, so a row that leads after another look is the best.
    queue = [(-float("inf"), rank) for rank in range(len(windows))]
    while queue:
        _, rank = heapq.heappop(queue)
        row, candidates = windows[rank]
        place = max(candidates, key=lambda place: len(candidates[place] - shown), default=0)
        new = candidates.get(place, frozenset()) - shown
        if not new:
            continue
        key = (RANK_WEIGHT * rank - len(new), rank)
        if chosen and queue and key > queue[0]:
            heapq.heappush(queue, key)
            continue
        chosen[row] = place
        shown |= new
    return chosen


def _windows(text: str, places: Sequence[int]) -> Windows:
    names: list[tuple[int, int, str]] = []
    stop = 0
    for at in places[:MAX_PLACES]:
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
