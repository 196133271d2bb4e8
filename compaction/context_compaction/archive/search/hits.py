"""Hits: which rows of a ranking are shown, what a hit contains, and which piece of a text it shows.

A search for one word shows as many different names with it as there is room for: `context` may be
in hundreds of messages, as `contextWindow`, as `contextTokens`, in a path. Who asks for it by
itself wants one of these, and lines that repeat the first one say nothing new.
"""

import heapq
import re
import string
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import TypeVar

from context_compaction.archive import History, Hit
from context_compaction.archive.documents import DocText
from context_compaction.archive.tokenizer import NO_WIDTH, QueryTerm, folded, phrase_words
from context_compaction.messages.history_hash import HEAD_CHARS
from context_compaction.messages.names import MAX_NAME_CHARS, pieces_of

MAX_HITS_PER_OUTPUT = 3

_QUESTION = re.compile(r"[?？؟][\W_]*\Z")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an index: a message, or a part of an output.

    Attributes:
        doc_id: Larger is newer, as far as things were indexed in the order of their time.
        session_id: The session that contains it.
        seq: The message's number; -1 for an output.
        output_id: The output's id; None for a message.
        start_byte: Where the part begins in the output; size_bytes, start_char and start_line mean
            likewise what `IndexedPart` does.
        seconds: Its time, in Unix time.
    """

    doc_id: int
    session_id: str
    seq: int
    output_id: str | None
    start_byte: int
    size_bytes: int
    start_char: int
    start_line: int
    seconds: float


R = TypeVar("R", bound=Row)


def grouped(
    docs: Callable[[Sequence[int]], Sequence[R]], ids: Sequence[int], first: int
) -> Iterator[R]:
    """The rows of `ids`: of any one output a few at most, of a message one.

    Args:
        docs: Returns rows by their ids.
        ids: All rows, the best first.
        first: How many are read at once to begin with; mostly no more are needed.
    """
    groups = Groups()
    start, stop = 0, first
    while start < len(ids):
        yield from filter(groups.has_room, docs(ids[start:stop]))
        start, stop = stop, stop + 200


class Groups:
    """Counts the rows shown of each output and message."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str | int], int] = {}

    def has_room(self, doc: Row) -> bool:
        """Count a row; False where its output has had its share, or the message was shown."""
        group = (doc.session_id, doc.output_id or doc.seq)
        self._shown[group] = self._shown.get(group, 0) + 1
        return self._shown[group] <= (MAX_HITS_PER_OUTPUT if doc.output_id else 1)


def next_hit(
    content: DocText,
    following: R | None,
    read: Callable[[R], DocText | None],
    within: History | None,
) -> Hit | None:
    """The message after one that ends with a question, in the same history: the answer, mostly."""
    if following is None or (within is not None and following.seq not in within.seqs):
        return None
    answer = read(following)
    if answer is None or answer.is_own or answer.before != content.history:
        return None
    return hit_at(following, answer, 0, 0.0)


def asks(doc: Row, content: DocText) -> bool:
    """Whether a row is a message that ends with a question."""
    # Quotation marks and the like may follow the question's own.
    return doc.output_id is None and bool(_QUESTION.search(content.text[-40:]))


def hit_at(doc: Row, content: DocText, at: int, score: float) -> Hit:
    """The hit at character `at` of a row's text."""
    is_message = doc.output_id is None
    start, stop = passage_span(content.text, at)
    return Hit(
        pointer=doc.output_id or f"transcript://{doc.session_id}/messages/{doc.seq}-{doc.seq}",
        kind="message" if is_message else "output",
        session_id=doc.session_id,
        head=content.history[:HEAD_CHARS],
        seq=doc.seq,
        role=content.role,
        tool_name=content.tool,
        timestamp_seconds=doc.seconds,
        snippet=content.text[start:stop],
        offset_chars=doc.start_char + at,
        line=None if is_message else doc.start_line + content.text.count("\n", 0, at),
        score=score,
        snippet_chars_before=at - start,
        size_chars=len(content.text) if is_message else None,
    )


SNIPPET_CHARS = 240
# Long enough for a decision with its reason, or a list with its head.
PASSAGE_CHARS = 1_600
CHARS_BEFORE_MATCH = 80
# A match inside a longer word counts less than the word itself.
INNER_WEIGHT = 0.25


class Locator:
    """Finds the place in a text that contains most of a query close together."""

    def __init__(self, terms: Sequence[QueryTerm]) -> None:
        self._asked = _Finder(terms)
        self._smaller = [piece for term in terms for piece in term.pieces]

    @cached_property
    def _pieces(self) -> "_Finder":
        # Seldom needed, and slow to compile.
        return _Finder(self._smaller)

    def places(self, text: str) -> list[int]:
        """Where the query, or part of it, is in `text`: the first 2,000 matches."""
        return self._asked.starts(text)

    def find(self, text: str) -> int | None:
        """Where the best piece of `text` begins to match; None where nothing is found.

        Of pieces that show the same the shortest is the best: a snippet may be cut further.
        """
        places = self._asked.places(text) or self._pieces.places(text)
        best, best_weight = None, (0.0, 0)
        for count, (start, _, _) in enumerate(places):
            found: dict[int, float] = {}
            stop = start
            for at, term, weight in places[count:]:
                if at - start > SNIPPET_CHARS - CHARS_BEFORE_MATCH:
                    break
                if weight > found.get(term, 0.0):
                    found[term], stop = weight, at
            total = sum(found.values()), start - stop
            if total > best_weight:
                best, best_weight = start, total
        return best


class _Finder:
    """One pass over a text for several terms."""

    def __init__(self, terms: Sequence[QueryTerm]) -> None:
        # Longer first: a phrase is preferred to its words where both begin.
        self._terms = sorted(terms, key=lambda term: -sum(map(len, term.runs)))
        groups = [_pattern_of(term) for term in self._terms]
        self._pattern = re.compile("|".join(f"({group})" for group in groups), re.IGNORECASE)

    def starts(self, text: str) -> list[int]:
        """Where the first matches begin."""
        return [start for start, _ in self._matches(text)]

    def places(self, text: str) -> list[tuple[int, int, float]]:
        """The first matches: where, which term, and how much it counts."""
        places: list[tuple[int, int, float]] = []
        if not self._terms:
            return places
        for start, match in self._matches(text):
            term = (match.lastindex or 1) - 1
            weight = self._terms[term].weight * _closeness(self._terms[term], match)
            places.append((start, term, weight))
        return places

    def _matches(self, text: str) -> Iterator[tuple[int, "re.Match[str]"]]:
        """The first 2,000 matches in `text` as it is indexed, and where in `text`."""
        shown = folded(text)
        place_of = _places(text) if shown != text else int
        for match in islice(self._pattern.finditer(shown), 2_000):
            yield place_of(match.start()), match


def _places(text: str) -> Callable[[int], int]:
    """For a place in the folded text the one in `text`.

    Marks without width are counted, as emoji are made of them; letters that folding joins are not,
    so that within a line with many of these it is near enough.
    """
    marks = [found.span() for found in NO_WIDTH.finditer(text)]
    gone = [0, *accumulate(stop - start for start, stop in marks)]
    marked = [start - before for (start, _), before in zip(marks, gone, strict=False)]
    lines = NO_WIDTH.sub("", text).splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    folded_starts = [0, *accumulate(len(folded(line)) for line in lines)]

    def place_of(at: int) -> int:
        line = bisect_right(folded_starts, at) - 1
        plain = starts[line] + at - folded_starts[line]
        return min(plain + gone[bisect_right(marked, plain)], len(text) - 1)

    return place_of


def snippet_span(length_chars: int, at: int, max_chars: int = SNIPPET_CHARS) -> tuple[int, int]:
    """Start and stop of the piece of a text to show around position `at`: a third before it."""
    before = max_chars * CHARS_BEFORE_MATCH // SNIPPET_CHARS
    start = max(0, min(at - before, length_chars - max_chars))
    return start, start + max_chars


# Where a passage may begin or end, the best first: between paragraphs, lines, sentences, words.
_BREAKS = tuple(map(re.compile, (r"\n[ \t]*\n\s*", r"\n\s*", r"(?<=[.!?;:])\s+", r"\s+")))


def passage_span(text: str, at: int, max_chars: int = PASSAGE_CHARS) -> tuple[int, int]:
    """Start and stop of the piece of `text` to show around position `at`: whole paragraphs.

    Where these are too long it is whole lines, sentences or words; at most a third is before `at`,
    or more where the text ends soon.
    """
    if len(text) <= max_chars:
        return 0, len(text)
    earliest, _ = snippet_span(len(text), at, max_chars)
    start = _first_break(text, earliest, at)
    stop = min(len(text), start + max_chars)
    if stop == len(text):
        return start, stop
    # What would leave out more than half of the rest is no good place to end.
    return start, _last_break(text, max(at + 1, (at + stop) // 2), stop)


def _first_break(text: str, earliest: int, at: int) -> int:
    if not earliest:
        return 0
    for pattern in _BREAKS:
        found = next((m.end() for m in pattern.finditer(text, earliest - 1, at)), None)
        if found is not None:
            return found
    return earliest


def _last_break(text: str, earliest: int, latest: int) -> int:
    for pattern in _BREAKS:
        found = [match.start() for match in pattern.finditer(text, earliest, latest)]
        if found:
            return found[-1]
    return latest


def _pattern_of(term: QueryTerm) -> str:
    """How a term may be written: as it was written, or with another ending."""
    *before, last = term.runs
    runs = [*map(re.escape, before), re.escape(last)]
    if last.isascii() and last.isalpha():
        stem = _common_start(term.words[-1], last.lower())
        runs[-1] = f"{last if term.is_prefix else stem}[a-z]*"
    return r"[\W_]*".join(runs)


def _common_start(one: str, other: str) -> str:
    end = next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1), None
    )
    return one[: min(len(one), len(other)) if end is None else end]


def _closeness(term: QueryTerm, match: "re.Match[str]") -> float:
    """How much a match is what was asked for: the same, another form of it, a part of a word."""
    if _is_inner(match.string, match.start(), match.end()):
        return INNER_WEIGHT
    found = match[0].lower()
    if term.is_prefix or found.endswith(term.runs[-1].lower()):
        return 1.0
    has_other_ending = phrase_words(found)[-1:] == list(term.words[-1:])
    return 0.8 if has_other_ending else INNER_WEIGHT


def _is_inner(text: str, start: int, end: int) -> bool:
    """Whether the match goes on into an ASCII word on either side."""
    before = text[start - 1 : start] if text[start].isascii() else ""
    after = text[end : end + 1] if text[end - 1].isascii() else ""
    return (before.isalnum() and before.isascii()) or (after.isalnum() and after.isascii())


READ_ROWS = 48  # of the best; 24 show 1 of 80 names less in the pi session

_MARKS = "._$@/\\-"  # within a name, not around it
_NAME_CHARS = string.ascii_letters + string.digits + _MARKS


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
            # A name that has the word in another form, or within a longer word, counts less.
            weights[name] = 1.0 if word.lower() in _pieces(name) else 0.3
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
    return {name.lower(), *(piece.lower() for piece in pieces_of(name))}


def _windows(text: str, places: Sequence[int]) -> Windows:
    names: list[tuple[int, int, str]] = []
    stop = 0
    for at in places[:60]:
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
    after = text[at : at + MAX_NAME_CHARS]
    stop = at + len(after) - len(after.lstrip(_NAME_CHARS))
    return text[start:stop].strip(_MARKS), stop
