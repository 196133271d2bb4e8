"""What stays in the context of a long text: its head, its end, and the lines that were sought.

The text is cut into pieces, and these are wanted in one order that does not depend on the room: so
more room never keeps less. Pieces are verbatim, and a gap has the number of lines left out.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import accumulate, chain, islice
from typing import NamedTuple, TypeAlias

from context_compaction.messages.names import STOP_WORDS, may_hold_name

# What a text counts: characters, or tokens.
Measure: TypeAlias = Callable[[str], int]

# Of a longer text only so much of its beginning and of its end is looked at.
_SCANNED_CHARS = 200_000
# A longer line is cut into pieces: minified files have lines of megabytes.
_PIECE_CHARS = 200
# Searched for in every text.
_FAILURES = ("error", "exception", "fatal", "failed", "panic", "traceback", "exit code")
_WORD = re.compile(r"[^\W_](?:[\w./-]*\w)?")


class _Piece(NamedTuple):
    """A line of a text, or a part of a long one, and the number of the line."""

    text: str
    line: int


def preview(text: str, *, max_chars: int = 2_000) -> str:
    """At most `max_chars` characters that show what `text` is; all of it where that fits."""
    return text if len(text) <= max_chars else extract(text, max_chars, measure=len)


def extract(
    text: str,
    room: int,
    *,
    measure: Measure,
    sought: Sequence[str] = (),
    first: Iterable[str] = (),
) -> str:
    """As much of `text` as `measure` finds within `room`.

    The passages `first` of it come before all else. The rest of the room is shared by the head, the
    end, and what has the words `sought` or names a failure. A text that fits is returned whole.
    """
    pieces = list(_pieces(text))
    gap_cost = measure(f"\n{_gap(1_000)}\n")
    chosen: set[int] = set()
    used = gap_cost  # what is left out at the end is said as well
    wanted = dict.fromkeys(_with_passages(pieces, first))
    rest = (at for at in _in_order(pieces, sought) if at not in wanted)
    for at in chain(wanted, rest):
        neighbours = (at - 1 in chosen) + (at + 1 in chosen)
        cost = measure(f"{pieces[at].text}\n") + gap_cost * (1 - neighbours)
        if used + cost > room:
            break
        chosen.add(at)
        used += cost
    else:
        whole = _rendered(pieces, set(range(len(pieces))))
        if measure(whole) <= room:
            return whole
    return _rendered(pieces, chosen)


def search_words(text: str) -> list[str]:
    """The words of a request that may lead to what it asks for: names first, each once."""
    found = dict.fromkeys(
        word
        for word in _WORD.findall(text)
        if (len(word) >= 4 or may_hold_name(word)) and word.lower() not in STOP_WORDS
    )
    return sorted(found, key=lambda word: not may_hold_name(word))[:24]


def _ranked(texts: Sequence[str], sought: Sequence[str]) -> list[int]:
    """The positions of those of `texts` with words of `sought`: most and rarest first."""
    weights: dict[int, float] = {}
    low = [text.lower() for text in texts]
    # A word in more of the pieces says nothing about one.
    most = max(3, int(len(texts) * 0.3))
    for word in sought:
        stem = word.lower()
        stem = stem if may_hold_name(word) else stem[: max(4, len(stem) - 2)]
        hits = list(islice((at for at, text in enumerate(low) if stem in text), most + 1))
        if len(hits) <= most:
            weight = (3.0 if may_hold_name(word) else 1.0) / (1 + len(hits)) ** 0.5
            for at in hits:
                weights[at] = weights.get(at, 0.0) + weight
    return sorted(weights, key=lambda at: (-weights[at], at))


def _pieces(text: str) -> Iterator[_Piece]:
    head, tail = text, ""
    if len(text) > 2 * _SCANNED_CHARS:
        head, tail = text[:_SCANNED_CHARS], text[-_SCANNED_CHARS:].partition("\n")[2]
    numbered = [*enumerate(head.split("\n"))]
    if tail:
        numbered += enumerate(tail.split("\n"), text.count("\n") - tail.count("\n"))
    for number, line in numbered:
        for part in _parts(line.rstrip()):
            yield _Piece(part, number)


def _parts(line: str) -> Iterator[str]:
    """A line, cut at spaces where it is long."""
    while len(line) > _PIECE_CHARS:
        at = line.rfind(" ", _PIECE_CHARS // 2, _PIECE_CHARS) + 1 or _PIECE_CHARS
        yield line[:at]
        line = line[at:]
    yield line


def _in_order(pieces: Sequence[_Piece], sought: Sequence[str]) -> Iterator[int]:
    """The positions of the pieces, each once: in turns one sought, one of the head, of the end.

    Each of the three has as many characters as the others; of equals the first chooses.
    """
    queues = [
        iter(_with_words(pieces, sought)),
        iter(range(len(pieces))),
        iter(range(len(pieces) - 1, -1, -1)),
    ]
    spent = [0] * len(queues)
    seen: set[int] = set()
    while queues:
        turn = spent.index(min(spent))
        at = next((at for at in queues[turn] if at not in seen), None)
        if at is None:
            del queues[turn], spent[turn]
            continue
        seen.add(at)
        spent[turn] += len(pieces[at].text) + 1
        yield at


def _with_words(pieces: Sequence[_Piece], sought: Sequence[str]) -> dict[int, None]:
    """Pieces with the words, those with most and rarest first, each with its neighbours."""
    best = _ranked([piece.text for piece in pieces], [*sought, *_FAILURES])
    beside = (near for at in best for near in (at, at + 1, at - 1) if 0 <= near < len(pieces))
    return dict.fromkeys(beside)


def _with_passages(pieces: Sequence[_Piece], passages: Iterable[str]) -> Iterator[int]:
    """The pieces that the `passages` are in, whatever white space is between their words."""
    passages = [*filter(None, passages)]
    if not passages:
        return
    flat = [(at, " ".join(piece.text.split())) for at, piece in enumerate(pieces)]
    told = [(at, words) for at, words in flat if words]
    starts = list(accumulate((len(words) + 1 for _, words in told), initial=0))
    whole = " ".join(words for _, words in told)
    for passage in passages:
        start = whole.find(passage)
        if start >= 0:
            begin = bisect_right(starts, start) - 1
            end = bisect_right(starts, start + len(passage) - 1) - 1
            yield from range(told[begin][0], told[end][0] + 1)


def _rendered(pieces: Sequence[_Piece], chosen: Set[int]) -> str:
    """The chosen pieces in their places, with what is left out between them counted in lines."""
    told: list[str] = []
    before, at_before = _Piece("", -1), -1
    for at in sorted(chosen):
        piece = pieces[at]
        if at != at_before + 1:
            told.append(f"{chr(10) * bool(told)}{_gap(piece.line - before.line - 1)}\n")
        elif told:
            told.append("\n" if piece.line != before.line else "")
        told.append(piece.text)
        before, at_before = piece, at
    if at_before < len(pieces) - 1:
        told.append(f"{chr(10) * bool(told)}{_gap(pieces[-1].line - before.line)}")
    return "".join(told)


def _gap(lines: int) -> str:
    return f"… {lines} lines omitted …" if lines > 0 else "…"
