"""Hits: which passage of a text a hit shows, and which rows of a ranking are shown.

A search for one word shows as many different names with that word as possible. `context` may occur
in hundreds of messages, as `contextWindow`, as `contextTokens` or in a path, and a user who
searches for it alone is looking for one of these names.
"""

import re
import string
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from os.path import commonprefix

from context_compaction.archive.documents import DocText
from context_compaction.archive.search.filters import Row
from context_compaction.archive.tokenizer import QueryTerm, folded, phrase_words
from context_compaction.archive.values import Hit
from context_compaction.messages.names import MAX_NAME_CHARS
from context_compaction.messages.raw import HEAD_CHARS

MAX_HITS_PER_OUTPUT = 3
SNIPPET_CHARS = 240
PASSAGE_CHARS = 1_600  # enough for a decision with its reason, or a list with its heading
_WINDOW_CHARS = SNIPPET_CHARS * 2 // 3  # of a snippet, after the characters before its first match
_INNER_WEIGHT = 0.25  # of a match within a longer word
DIVERSE_ROWS = 48  # best rows whose names are compared

# Places where a passage may start or end, best first: paragraphs, lines, sentences, words.
_BREAKS = tuple(map(re.compile, (r"\n[ \t]*\n\s*", r"\n\s*", r"(?<=[.!?;:])\s+", r"\s+")))
_NAME_MARKS = "._$@/\\-"  # may occur within a name, but not at its start or end
_NAME_CHARS = string.ascii_letters + string.digits + _NAME_MARKS


class Groups:
    """Counts the rows shown of each message and output."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str | int], int] = {}

    def has_room(self, doc: Row) -> bool:
        """Whether the row may be shown; counts it. A message is shown once, an output 3 times."""
        group = (doc.session_id, doc.output_id or doc.seq)
        self._shown[group] = self._shown.get(group, 0) + 1
        return self._shown[group] <= (MAX_HITS_PER_OUTPUT if doc.output_id else 1)


def grouped(
    docs: Callable[[Sequence[int]], Sequence[Row]], ids: Sequence[int], first_count: int
) -> Iterator[Row]:
    """Yield the rows that may be shown, in the order of `ids`.

    Args:
        docs: Returns the rows with the given IDs.
        ids: IDs of all rows, best first.
        first_count: Number of rows to read in the first step, which is usually enough.
    """
    groups = Groups()
    start, stop = 0, first_count
    while start < len(ids):
        yield from filter(groups.has_room, docs(ids[start:stop]))
        start, stop = stop, stop + 200


def hit_at(doc: Row, content: DocText, index: int, score: float) -> Hit:
    """Return the hit for the match that starts at `index` in the text of a row."""
    is_message = doc.output_id is None
    start, stop = passage_span(content.text, index)
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
        offset_chars=doc.start_char + index,
        line=None if is_message else doc.start_line + content.text.count("\n", 0, index),
        score=score,
        snippet_chars_before=index - start,
        size_chars=content.size_chars if is_message else None,
    )


def passage_span(text: str, index: int, max_chars: int = PASSAGE_CHARS) -> tuple[int, int]:
    """Return start and stop of the passage to show for the match at `index`.

    A passage is whole paragraphs if they fit, otherwise whole lines, sentences or words. At most a
    third of it precedes the match, or more if the text ends soon after the match.
    """
    if len(text) <= max_chars:
        return 0, len(text)
    start = max(0, min(index - max_chars // 3, len(text) - max_chars))
    if start and (breaks := _best_breaks(text, start - 1, index)):
        start = breaks[0].end()
    stop = min(len(text), start + max_chars)
    # An end that drops more than half of the text after the match is not a good end.
    if stop < len(text) and (
        breaks := _best_breaks(text, max(index + 1, (index + stop) // 2), stop)
    ):
        stop = breaks[-1].start()
    return start, stop


def _best_breaks(text: str, start: int, stop: int) -> list["re.Match[str]"]:
    """Return all breaks of the best kind that occurs between `start` and `stop`."""
    kinds = ([*pattern.finditer(text, start, stop)] for pattern in _BREAKS)
    return next(filter(None, kinds), list["re.Match[str]"]())


class Locator:
    """Finds the match of a query around which most of the query is close together."""

    def __init__(self, terms: Sequence[QueryTerm]) -> None:
        self._whole_terms = _TermFinder(terms)
        self._pieces = [piece for term in terms for piece in term.pieces]

    @cached_property
    def _piece_finder(self) -> "_TermFinder":
        # Compiled on demand because it is slow and seldom needed.
        return _TermFinder(self._pieces)

    def find(self, text: str) -> int | None:
        """Return the index in `text` of the first match of the best part, or None.

        If two parts contain the same terms, the shorter part is better, because callers may
        shorten the passage.
        """
        shown = folded(text)
        matches = self._whole_terms.matches(shown) or self._piece_finder.matches(shown)
        best, best_score = None, (0.0, 0)
        for number, (start, _, _) in enumerate(matches):
            weights: dict[int, float] = {}
            stop = start
            for index, term, weight in matches[number:]:
                if index - start > _WINDOW_CHARS:
                    break
                if weight > weights.get(term, 0.0):
                    weights[term], stop = weight, index
            score = sum(weights.values()), start - stop
            if score > best_score:
                best, best_score = start, score
        return None if best is None else original_index(text, shown, best)

    def new_names(self, texts: Mapping[int, str]) -> dict[int, int]:
        """Return the rows with names that no earlier row shows, and the index to show of each.

        Args:
            texts: Text of each row by its ID, best row first.
        """
        plain = {row: folded(text) for row, text in texts.items()}
        windows = {row: self._name_windows(text) for row, text in plain.items()}
        shown: set[str] = set()
        found: dict[int, int] = {}
        for least in (4, 2, 1):  # rows with many new names first, but the best row stays first
            for row, names in windows.items():
                index = max(names, key=lambda start: len(names[start] - shown), default=-1)
                gain = len(names[index] - shown) if names else 0
                if row not in found and gain >= (least if found else 1):
                    found[row] = original_index(texts[row], plain[row], index)
                    shown |= names[index]
        return found

    def _name_windows(self, text: str) -> dict[int, set[str]]:
        """Return the names that a snippet shows, for a snippet at each of the first 60 matches."""
        starts = [start for start, _, _ in self._whole_terms.matches(text)[:60]]
        names = [(start, _name_at(text, start)) for start in starts]
        return {
            start: {name for index, name in names if 0 <= index - start <= _WINDOW_CHARS}
            for start in starts
        }


class _TermFinder:
    """Finds several terms in one pass over a folded text."""

    def __init__(self, terms: Sequence[QueryTerm]) -> None:
        # Longer terms first, because a phrase wins over a word that starts at the same index.
        self._terms = sorted(terms, key=lambda term: -sum(map(len, term.runs)))
        groups = [_pattern_of(term) for term in self._terms]
        self._pattern = re.compile("|".join(f"({group})" for group in groups), re.IGNORECASE)

    def matches(self, text: str) -> list[tuple[int, int, float]]:
        """Return index, term number and weight of the first 2,000 matches."""
        matches: list[tuple[int, int, float]] = []
        for match in islice(self._pattern.finditer(text), 2_000) if self._terms else ():
            number = (match.lastindex or 1) - 1
            term = self._terms[number]
            matches.append((match.start(), number, term.weight * _match_weight(term, match)))
        return matches


def _pattern_of(term: QueryTerm) -> str:
    """Return a pattern for a term as the user wrote it, or with another ending."""
    *before, last = term.runs
    runs = [*map(re.escape, before), re.escape(last)]
    if last.isascii() and last.isalpha():
        stem = commonprefix([term.words[-1], last.lower()])  # noqa: RUF071 - words, not paths
        runs[-1] = f"{last if term.is_prefix else stem}[a-z]*"
    return r"[\W_]*".join(runs)


def _match_weight(term: QueryTerm, match: "re.Match[str]") -> float:
    """Return 1 if the match is a form of the term, and less if it is part of another word."""
    text, start, stop = match.string, match.start(), match.end()
    before = text[start - 1 : start] if text[start].isascii() else ""
    after = text[stop : stop + 1] if text[stop - 1].isascii() else ""
    if any(letter.isascii() and letter.isalnum() for letter in (before, after)):
        return _INNER_WEIGHT
    found = match[0].lower()
    is_form = term.is_prefix or found.endswith(term.runs[-1].lower())
    return 1.0 if is_form or phrase_words(found)[-1:] == [*term.words[-1:]] else _INNER_WEIGHT


def original_index(text: str, folded_text: str, index: int) -> int:
    """Return the index in `text` of the character at `index` in `folded_text`."""
    if folded_text == text:
        return index
    start = 0
    for _ in range(folded_text.count("\n", 0, index)):  # folding keeps newlines
        start = text.index("\n", start) + 1
    line = text[start:].partition("\n")[0]
    column = index - folded_text.rfind("\n", 0, index) - 1
    stops = range(len(line))
    return start + max(
        0, bisect_right(stops, column, key=lambda stop: len(folded(line[:stop]))) - 1
    )


def _name_at(text: str, index: int) -> str:
    """Return the identifier or path around the match at `index`."""
    before = text[max(0, index - MAX_NAME_CHARS) : index]
    after = text[index : index + MAX_NAME_CHARS]
    start = len(before.rstrip(_NAME_CHARS))
    stop = len(after) - len(after.lstrip(_NAME_CHARS))
    return (before[start:] + after[:stop]).strip(_NAME_MARKS)
