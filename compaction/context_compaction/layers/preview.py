"""What stays in the context of a large output: its head, its end, what matters, what was asked for.

The text is cut into pieces, and these are wanted in one order that does not depend on the room: so
more room never keeps less. What matters is derived from the text itself: a log's errors, a diff's
files, code's outline, a table's header and rows; JSON is rendered as lines, one header for records
of one shape. Lines that stand again further down, as in a screen drawn anew, stay where they stand
last. Pieces are verbatim, and a gap contains the number of lines left out.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple, TypeAlias

from context_compaction.activity import json_rows
from context_compaction.activity.error_line import ERROR, lines_with
from context_compaction.messages.names import STOP_WORDS, may_hold_name

# What a text counts: characters, or tokens.
Measure: TypeAlias = Callable[[str], int]

_JSON_CHARS = 4_000_000
_SCANNED_CHARS = 200_000
# A longer line is cut into pieces: minified files have lines of megabytes.
_PIECE_CHARS = 200
_LEAST_CHARS = 40
# Of JSON's rows the beginnings go first: who a record is about stands there.
_ROW_CHARS = 80
# How the ways to choose a piece share the room; of equals the first chooses.
_SHARES = {"head": 2.0, "sought": 3.0, "matter": 2.0, "end": 1.0}
# The end is read backwards so far, and then what the head has not come to.
_END_PIECES = 40
_KIND_LINES = 400
# So many lines that come again in one order are a block said twice and no chance.
_BLOCK_LINES = 4
_MIN_WORD_CHARS = 4
_MOST_WORDS = 24
# A word that stands in more of the pieces says nothing about one.
_COMMON_SHARE = 0.3
_FEW_PIECES = 3
_NAME_WEIGHT = 3.0
_TITLES = re.compile(r"(?:\S+: )?\d+ records: ")
_WORD = re.compile(r"[^\W_](?:[\w./-]*\w)?")

# What each match of `ERROR` or `_EXIT` contains.
_ERROR_WORDS = (
    *("error", "fail", "fatal", "exception", "traceback", "panic", "assert", "denied"),
    *("not found", "exit", "return"),
)
_EXIT = re.compile(r"\b(exit(ed)?( with)?( code| status)?|return ?code)\b\D{0,4}\d+", re.IGNORECASE)
_OUTLINE = re.compile(
    r"^\s*(export |public |private |protected |static |async |abstract |default )*"
    r"(def|class|function|func|fn|interface|struct|enum|impl|trait|type|module|namespace)\b"
)
_LEAST_OUTLINE = 3
_DIFF_FILE = re.compile(r"^(?:diff --git |\+\+\+ |--- |Index: )", re.MULTILINE)
_DIFF_LINES = 2
_TIMESTAMP = re.compile(
    r"^\W?\d{4}-\d\d-\d\d[T ]\d\d:|^\W?\d\d:\d\d:\d\d|^\[?(INFO|WARN|DEBUG|ERROR)"
)


class _Piece(NamedTuple):
    """A line of a text, or a part of one too long: the number of the line, and of the part."""

    text: str
    line: int
    part: int


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

    The passages `first` of it come before all else, then mostly what contains the words `sought`.

    More room keeps all that less room keeps, and a text that fits is returned whole.
    """
    data = json_rows.parsed_json(text, _JSON_CHARS)
    pieces = _pieces(text, data)
    gap_cost = measure(f"\n{_gap(1_000)}\n")
    chosen: dict[int, str] = {}
    used = gap_cost  # what is left out at the end is said as well
    wanted = dict.fromkeys(_with_passages(pieces, first))
    rest = (at for at in _in_order(pieces, sought, is_json=data is not None) if at not in wanted)
    for at in chain(wanted, rest):
        beside = (at - 1 in chosen) + (at + 1 in chosen)
        cost = measure(f"{pieces[at].text}\n") + gap_cost * (1 - beside)
        if used + cost > room:
            if short := _beginning(pieces[at].text, room - used - gap_cost * (1 - beside), measure):
                chosen[at] = short
            break
        chosen[at] = pieces[at].text
        used += cost
    else:
        whole = _rendered(pieces, dict(enumerate(piece.text for piece in pieces)))
        if measure(whole) <= room:
            return whole
    return _rendered(pieces, chosen)


def words_sought(text: str) -> list[str]:
    """The words of a request that may lead to what it asks for: names first, each once."""
    found = dict.fromkeys(
        word
        for word in _WORD.findall(text)
        if (len(word) >= _MIN_WORD_CHARS or may_hold_name(word)) and word.lower() not in STOP_WORDS
    )
    return sorted(found, key=lambda word: not may_hold_name(word))[:_MOST_WORDS]


def _pieces(text: str, data: Any) -> list[_Piece]:
    lines = _numbered(text) if data is None else enumerate(json_rows.lines(data))
    size_chars = _PIECE_CHARS if data is None else _ROW_CHARS
    stat = (_Piece(line, -1, 0) for line in _diff_stat(text if data is None else ""))
    pieces = list(stat)
    for number, line in lines:
        if len(line) <= size_chars:
            pieces.append(_Piece(line.rstrip(), number, 0))
        else:
            parts = _parts(line.rstrip(), size_chars)
            pieces += [_Piece(shown, number, part) for part, shown in enumerate(parts)]
    return pieces


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    """The lines of `text`, or of beginning and end of one too long to look through."""
    head, tail = text, ""
    if len(text) > 2 * _SCANNED_CHARS:
        head, tail = text[:_SCANNED_CHARS], text[-_SCANNED_CHARS:].partition("\n")[2]
    yield from enumerate(head.split("\n"))
    if tail:
        yield from enumerate(tail.split("\n"), text.count("\n") - tail.count("\n"))


def _parts(line: str, size_chars: int) -> Iterator[str]:
    """A line, cut at spaces where it is long."""
    while len(line) > size_chars:
        at = line.rfind(" ", size_chars // 2, size_chars) + 1 or size_chars
        yield line[:at]
        line = line[at:]
    yield line


def _in_order(pieces: Sequence[_Piece], sought: Sequence[str], *, is_json: bool) -> Iterator[int]:
    """The positions of the pieces, each once, the most wanted first; not of what comes again."""
    last = len(pieces) - 1
    titles = _titles(pieces) if is_json else frozenset[int]()
    head: Iterable[int] = range(last + 1)
    if is_json:  # a row tells more than the titles of its columns
        places = ((p.part, p.line + 1.5 * (p.line in titles)) for p in pieces)
        head = [at for _, at in sorted((place, at) for at, place in enumerate(places))]
    queues = {
        "sought": iter(_with_words(pieces, sought, titles)),
        "matter": iter(_that_matter(pieces)),
        "head": iter(head),
        "end": iter(() if is_json else range(last, max(-1, last - _END_PIECES), -1)),
    }
    spent = dict.fromkeys(_SHARES, 0.0)
    seen = _said_again(pieces)
    while spent:
        name = min(spent, key=spent.__getitem__)
        at = next((at for at in queues[name] if at not in seen), None)
        if at is None:
            del spent[name]
            continue
        seen.add(at)
        spent[name] += (len(pieces[at].text) + 1) / _SHARES[name]
        yield at


def _said_again(pieces: Sequence[_Piece]) -> set[int]:
    """The positions of lines in blocks that stand again, line for line, further down."""
    texts = [piece.text for piece in pieces]
    blocks = list(zip(*(texts[at:] for at in range(_BLOCK_LINES)), strict=False))
    last = {block: at for at, block in enumerate(blocks)}
    firsts = (at for at, block in enumerate(blocks) if last[block] > at and any(block))
    return {at for first in firsts for at in range(first, first + _BLOCK_LINES)}


def _with_passages(pieces: Sequence[_Piece], passages: Iterable[str]) -> Iterator[int]:
    """The pieces that the `passages` stand in, whatever white space is between their words."""
    passages = [*filter(None, passages)]
    if not passages:
        return
    told = [(at, flat) for at, piece in enumerate(pieces) if (flat := " ".join(piece.text.split()))]
    starts = list(accumulate((len(flat) + 1 for _, flat in told), initial=0))
    whole = " ".join(flat for _, flat in told)
    for passage in passages:
        start = whole.find(passage)
        if start >= 0:
            first = bisect_right(starts, start) - 1
            last = bisect_right(starts, start + len(passage) - 1) - 1
            yield from range(told[first][0], told[last][0] + 1)


def _titles(pieces: Sequence[_Piece]) -> frozenset[int]:
    """The numbers of the lines that name the columns of records."""
    return frozenset(p.line for p in pieces if p.part == 0 and _TITLES.match(p.text))


def _with_words(
    pieces: Sequence[_Piece], sought: Sequence[str], titles: Collection[int]
) -> list[int]:
    """Pieces with the words, those with most and rarest first, each with its neighbours."""
    if not sought:
        return []
    # The names of columns are words of many requests, and tell nothing without a row.
    best = ranked(["" if piece.line in titles else piece.text for piece in pieces], sought)
    beside = (near for at in best for near in (at, at + 1, at - 1) if 0 <= near < len(pieces))
    return list(dict.fromkeys(beside))


def ranked(texts: Sequence[str], sought: Sequence[str]) -> list[int]:
    """The positions of those of `texts` with words of `sought`: most and rarest first."""
    weights: dict[int, float] = {}
    low = [text.lower() for text in texts]
    most = max(_FEW_PIECES, int(len(texts) * _COMMON_SHARE))
    for word in sought:
        stem = word.lower()
        stem = stem if may_hold_name(word) else stem[: max(_MIN_WORD_CHARS, len(stem) - 2)]
        hits = list(islice((at for at, text in enumerate(low) if stem in text), most + 1))
        if len(hits) <= most:
            weight = (_NAME_WEIGHT if may_hold_name(word) else 1.0) / (1 + len(hits)) ** 0.5
            for at in hits:
                weights[at] = weights.get(at, 0.0) + weight
    return sorted(weights, key=lambda at: (-weights[at], at))


def _that_matter(pieces: Sequence[_Piece]) -> Iterable[int]:
    """The pieces that matter for the kind of text this is; none for plain prose."""
    if pieces and pieces[0].line < 0:  # a diff's files
        return [at for at, piece in enumerate(pieces) if piece.line < 0]
    head = [piece.text for piece in pieces[:_KIND_LINES]]
    stamped = sum(1 for line in head if _TIMESTAMP.match(line))
    rows = [piece.text.lower() for piece in pieces]
    may_tell = set(lines_with("\n".join(rows), _ERROR_WORDS))
    telling = ((at, row) for at, row in enumerate(rows) if row in may_tell)
    errors = [at for at, row in telling if ERROR.search(row) or _EXIT.search(row)]
    if stamped >= max(5, len(head) // 3) or 0 < len(errors) <= len(pieces) // 4:
        distinct = {pieces[at].text: at for at in reversed(errors)}
        return sorted(distinct.values())
    outline = (at for at, piece in enumerate(pieces) if _OUTLINE.match(piece.text))
    first = list(islice(outline, _LEAST_OUTLINE))
    return chain(first, outline) if len(first) == _LEAST_OUTLINE else ()


def _diff_stat(text: str) -> Iterator[str]:
    """Of a diff one line a file: its name, and how many lines it adds and removes."""
    if len(_DIFF_FILE.findall(text, 0, _SCANNED_CHARS)) < _DIFF_LINES:
        return
    for part in re.split(r"^\+\+\+ ", text, flags=re.MULTILINE)[1:]:
        name, *lines = part.split("\n")
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
        yield f"{name.partition(chr(9))[0]} +{added} -{removed}"


def _rendered(pieces: Sequence[_Piece], chosen: dict[int, str]) -> str:
    """The chosen pieces in their places, with what is left out between them counted in lines."""
    told: list[str] = []
    before, at_before = _Piece("", -1, 0), -1
    for at in sorted(chosen):
        piece = pieces[at]
        if at != at_before + 1:
            told.append(f"{chr(10) * bool(told)}{_gap(piece.line - before.line - 1)}\n")
        elif told:
            told.append("\n" if piece.line != before.line else "")
        told.append(chosen[at] if chosen[at] == piece.text else f"{chosen[at]} …")
        before, at_before = piece, at
    if at_before < len(pieces) - 1:
        told.append(f"{chr(10) * bool(told)}{_gap(pieces[-1].line - before.line)}")
    return "".join(told)


def _gap(lines: int) -> str:
    return f"… {lines} lines left out …" if lines > 0 else "…"


def _beginning(text: str, room: int, measure: Measure) -> str:
    """As many words of `text` as fit in `room`; "" where these are too few."""
    words, low, high = text.split(" "), 0, text.count(" ") + 1
    while low < high:
        middle = (low + high + 1) // 2
        fits = measure(f"{' '.join(words[:middle])} …\n") <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    shown = " ".join(words[:low]).rstrip()
    return shown if len(shown) >= _LEAST_CHARS else ""
