"""The part of a long text that stays in the context: head, end, and lines with search words.

The text is cut into pieces, and their priority does not depend on the room, so more room never
shows less. Pieces are verbatim, and a gap contains the number of omitted lines.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import accumulate, chain, islice
from typing import NamedTuple, TypeAlias

from context_compaction.messages.model import SEARCHED_CHARS
from context_compaction.messages.names import STOP_WORDS, may_hold_name

# Returns the size of a text, in characters or tokens.
Measure: TypeAlias = Callable[[str], int]

# Longer lines are cut into pieces, because minified files have lines of megabytes.
_PIECE_CHARS = 200
# Searched for in every text.
_FAILURES = ("error", "exception", "fatal", "failed", "panic", "traceback", "exit code")
_MAX_SEARCH_WORDS = 24
_WORD = re.compile(r"[^\W_](?:[\w./-]*\w)?")


class _Piece(NamedTuple):
    """A line of a text, or a part of a long line, and the number of the line."""

    text: str
    line: int


def preview(text: str, *, max_chars: int = 2_000) -> str:
    """Return the most informative `max_chars` characters of `text`; all of it if it fits."""
    return text if len(text) <= max_chars else extract(text, max_chars, measure=len)


def extract(
    text: str, room: int, *, measure: Measure, words: Sequence[str] = (), first: Iterable[str] = ()
) -> str:
    """Return the part of `text` that fits into `room`; the whole text if it fits.

    Args:
        text: The text.
        room: The limit, in the unit of `measure`.
        measure: Returns the size of a text.
        words: Search words. Head, end, and lines with these words or a failure share the room.
        first: Passages of `text` that precede everything else.
    """
    pieces = list(_pieces(text))
    gap_cost = measure(f"\n{_gap(1_000)}\n")
    chosen: set[int] = set()
    used = gap_cost  # for the gap at the end
    passages = dict.fromkeys(_pieces_with_passages(pieces, first))
    by_priority = (number for number in _by_priority(pieces, words) if number not in passages)
    for number in chain(passages, by_priority):
        neighbors = (number - 1 in chosen) + (number + 1 in chosen)
        cost = measure(f"{pieces[number].text}\n") + gap_cost * (1 - neighbors)
        if used + cost > room:
            break
        chosen.add(number)
        used += cost
    else:
        complete = _rendered(pieces, set(range(len(pieces))))
        if measure(complete) <= room:
            return complete
    return _rendered(pieces, chosen)


def search_words(text: str) -> list[str]:
    """Return words of a request that may occur in its answer: names first, each once."""
    words = dict.fromkeys(
        word
        for word in _WORD.findall(text)
        if (len(word) >= 4 or may_hold_name(word)) and word.lower() not in STOP_WORDS
    )
    return sorted(words, key=lambda word: not may_hold_name(word))[:_MAX_SEARCH_WORDS]


def _ranked(texts: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the numbers of the texts that contain `words`: most and rarest words first."""
    weights: dict[int, float] = {}
    lower_texts = [text.lower() for text in texts]
    # A more frequent word does not distinguish one piece from another.
    max_hits = max(3, int(len(texts) * 0.3))
    for word in words:
        stem = word.lower()
        stem = stem if may_hold_name(word) else stem[: max(4, len(stem) - 2)]
        matching = (number for number, text in enumerate(lower_texts) if stem in text)
        hits = list(islice(matching, max_hits + 1))
        if len(hits) <= max_hits:
            weight = (3.0 if may_hold_name(word) else 1.0) / (1 + len(hits)) ** 0.5
            for number in hits:
                weights[number] = weights.get(number, 0.0) + weight
    return sorted(weights, key=lambda number: (-weights[number], number))


def _pieces(text: str) -> Iterator[_Piece]:
    head, tail = text, ""
    if len(text) > 2 * SEARCHED_CHARS:
        head, tail = text[:SEARCHED_CHARS], text[-SEARCHED_CHARS:].partition("\n")[2]
    numbered = [*enumerate(head.split("\n"))]
    if tail:
        numbered += enumerate(tail.split("\n"), text.count("\n") - tail.count("\n"))
    for line_number, line in numbered:
        for part in _parts(line.rstrip()):
            yield _Piece(part, line_number)


def _parts(line: str) -> Iterator[str]:
    """Yield the parts of a line, which is cut at spaces if it is long."""
    while len(line) > _PIECE_CHARS:
        end = line.rfind(" ", _PIECE_CHARS // 2, _PIECE_CHARS) + 1 or _PIECE_CHARS
        yield line[:end]
        line = line[end:]
    yield line


def _by_priority(pieces: Sequence[_Piece], words: Sequence[str]) -> Iterator[int]:
    """Yield the number of each piece once: in turn a piece with words, of the head, of the end.

    Each of the three gets the same number of characters.
    """
    queues = [
        iter(_pieces_with_words(pieces, words)),
        iter(range(len(pieces))),
        iter(range(len(pieces) - 1, -1, -1)),
    ]
    used_chars = [0] * len(queues)
    seen: set[int] = set()
    while queues:
        turn = used_chars.index(min(used_chars))
        number = next((number for number in queues[turn] if number not in seen), None)
        if number is None:
            del queues[turn], used_chars[turn]
            continue
        seen.add(number)
        used_chars[turn] += len(pieces[number].text) + 1
        yield number


def _pieces_with_words(pieces: Sequence[_Piece], words: Sequence[str]) -> dict[int, None]:
    """Return the pieces with the most and rarest words first, each with its neighbors."""
    ranked = _ranked([piece.text for piece in pieces], [*words, *_FAILURES])
    nearby = (near for number in ranked for near in (number, number + 1, number - 1))
    return dict.fromkeys(near for near in nearby if 0 <= near < len(pieces))


def _pieces_with_passages(pieces: Sequence[_Piece], passages: Iterable[str]) -> Iterator[int]:
    """Yield the pieces that contain the `passages`. White space between words may differ."""
    passages = [*filter(None, passages)]
    if not passages:
        return
    flat = [(number, " ".join(piece.text.split())) for number, piece in enumerate(pieces)]
    filled = [(number, text) for number, text in flat if text]
    starts = list(accumulate((len(text) + 1 for _, text in filled), initial=0))
    joined = " ".join(text for _, text in filled)
    for passage in passages:
        start = joined.find(passage)
        if start >= 0:
            begin = bisect_right(starts, start) - 1
            end = bisect_right(starts, start + len(passage) - 1) - 1
            yield from range(filled[begin][0], filled[end][0] + 1)


def _rendered(pieces: Sequence[_Piece], chosen: Set[int]) -> str:
    """Return the chosen pieces in order, with the number of omitted lines in each gap."""
    parts: list[str] = []
    previous, previous_number = _Piece("", -1), -1
    for number in sorted(chosen):
        piece = pieces[number]
        if number != previous_number + 1:
            parts.append(f"{chr(10) * bool(parts)}{_gap(piece.line - previous.line - 1)}\n")
        elif parts:
            parts.append("\n" if piece.line != previous.line else "")
        parts.append(piece.text)
        previous, previous_number = piece, number
    if previous_number < len(pieces) - 1:
        parts.append(f"{chr(10) * bool(parts)}{_gap(pieces[-1].line - previous.line)}")
    return "".join(parts)


def _gap(lines: int) -> str:
    return f"… {lines} lines omitted …" if lines > 0 else "…"
