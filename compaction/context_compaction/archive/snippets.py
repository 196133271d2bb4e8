"""Where a text contains a query, and the piece of the text to show."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice

from context_compaction.archive.tokenizer import NO_WIDTH, QueryTerm, folded, phrase_words

SNIPPET_CHARS = 240
# Long enough for a decision with its reason, or a list with its head.
PASSAGE_CHARS = 1_600
CHARS_BEFORE_MATCH = 80
MAX_MATCHES = 2000  # matches of one text that are weighed; a word may occur everywhere
# A match inside a longer word counts less than the word itself.
INNER_WEIGHT = 0.25
FORM_WEIGHT = 0.8  # the same word with another ending


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
        """Where the query, or part of it, is in `text`: the first `MAX_MATCHES` matches."""
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
        """Where the first `MAX_MATCHES` matches begin."""
        return [start for start, _ in self._matches(text)]

    def places(self, text: str) -> list[tuple[int, int, float]]:
        """The first `MAX_MATCHES` matches: where, which term, and how much it counts."""
        places: list[tuple[int, int, float]] = []
        if not self._terms:
            return places
        for start, match in self._matches(text):
            term = (match.lastindex or 1) - 1
            weight = self._terms[term].weight * _closeness(self._terms[term], match)
            places.append((start, term, weight))
        return places

    def _matches(self, text: str) -> Iterator[tuple[int, "re.Match[str]"]]:
        """The first `MAX_MATCHES` matches in `text` as it is indexed, and where in `text`."""
        shown = folded(text)
        place_of = _places(text) if shown != text else int
        for match in islice(self._pattern.finditer(shown), MAX_MATCHES):
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
    return FORM_WEIGHT if phrase_words(found)[-1:] == list(term.words[-1:]) else INNER_WEIGHT


def _is_inner(text: str, start: int, end: int) -> bool:
    """Whether the match goes on into an ASCII word on either side."""
    before = text[start - 1 : start] if text[start].isascii() else ""
    after = text[end : end + 1] if text[end - 1].isascii() else ""
    return (before.isalnum() and before.isascii()) or (after.isalnum() and after.isascii())
