"""Search terms of texts and queries, the same for every archive.

- Words are runs of letters and digits in lower case: `src/x/bar_baz17.py:17` has the words
  `src x bar baz17 py 17`, and is found by this phrase or by any of the words. Words of ASCII
  letters are indexed by their English stem, so that `rotates` finds `rotate`.
- Parts of an identifier are its camelCase pieces and its runs of digits: `ZXPlant17QuirkError` is
  one word with the parts `zx plant 17 quirk error`. Parts have their own column, both as they are
  and stemmed, so that they do not disturb phrases.
- Scripts without spaces (Chinese, Japanese, Thai and others) give overlapping pairs of characters,
  so that words of two characters are found. A run also ends with its last character alone.
- A letter and its accent are one letter, whether a text has one character or two for it, as in file
  names of macOS. Full-width and half-width forms and ligatures are the plain letters. Characters
  without width, such as a soft hyphen, do not separate words.
- Latin letters are found with and without accents: `resume` finds `résumé`, as in FTS5. Letters of
  their own (ø, ß, й) are not changed.

If this module changes, or the text of a message (documents.py), increase `TERMS_VERSION`, so that
indexes are rebuilt.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import chain, pairwise
from typing import Any
from unicodedata import normalize

from context_compaction.activity.calls import pieces_of
from context_compaction.messages.names import STOP_WORDS

_stemmer: Any = import_module("Stemmer")  # PyStemmer has no type annotations

TERMS_VERSION = f"10-{_stemmer.version()}"  # versions of the stemmer may differ
MAX_TERM_CHARS = 64  # longer runs, such as base64, are found by their start
MAX_QUERY_WORDS = 24  # also of a phrase, and of the small words of a sentence

# Letters of Thai, Lao, Myanmar, Khmer, kana, Han and Hangul, and half-width kana.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
# Tables for `str.translate`. Characters without width are removed.
_NO_WIDTH = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
_WIDE = (*range(0xFB00, 0xFB07), *range(0xFF00, 0xFFF0))  # also the ligatures from ff to st
_WIDTHS = _NO_WIDTH | {code: normalize("NFKC", chr(code)) for code in _WIDE}
_LATIN = (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))  # letters with accents and others
_PLAIN = {code: normalize("NFD", chr(code))[0] for code in _LATIN}
_HEX = frozenset("0123456789abcdef")
_FIRST_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_ENDING = re.compile(r"['’](?:s|d|m|t|ll|re|ve)\b", re.IGNORECASE)  # don't, Anna's

# For ASCII texts: a space for any character but letters and digits. Four times as fast.
_ASCII_WORDS = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))

_MEMO_ENTRIES = 200_000  # runs whose words are cached while indexing: about 40 MB
# Without the cache of the stemmer, which is slower than that of `_words`.
_stem: Callable[[str], str] = _stemmer.Stemmer("english", 0).stemWord


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one text.

    Attributes:
        words: All words in order, separated by spaces; used for phrases.
        word_count: Number of words.
        parts: Distinct parts of identifiers, and the original forms of folded words.
    """

    words: str
    word_count: int
    parts: list[str]


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One search term: a word, or several words that must follow each other.

    Attributes:
        words: The words as they are indexed.
        runs: The words as a text contains them, to locate the match in the text.
        is_prefix: Whether the last word may have more letters.
        weight: Weight of a match; pieces of a term count less than the term.
        pieces: Terms to search for if the whole term does not occur.
    """

    words: tuple[str, ...]
    runs: tuple[str, ...]
    is_prefix: bool = False
    weight: float = 1.0
    pieces: tuple["QueryTerm", ...] = ()


@lru_cache(_MEMO_ENTRIES)
def _words(run: str) -> str:
    """Return the words of a run as they are indexed, separated by spaces."""
    if not run.isascii() and _is_unspaced(run):
        return " ".join([*_pairs(run), run[-1]])
    return _stemmed(run[:MAX_TERM_CHARS].lower())


def terms_of(text: str) -> Terms:
    """Return the terms of a text for the index."""
    shown = folded(text)
    runs = _runs(shown)
    words = " ".join(map(_words, runs))
    # Patterns search for the original text, so the original forms of folded words are parts too.
    raw = sorted(set(_WORD.findall(text)).difference(runs)) if shown != text else ()
    as_written = (word for run in raw for word in _words(run).split(" "))
    parts = list(dict.fromkeys(chain(as_written, *map(_parts, sorted(set(runs))))))
    return Terms(words, words.count(" ") + 1 if words else 0, parts)


def folded(text: str) -> str:
    """Return `text` without accents and width variants, from which words are taken."""
    if text.isascii():
        return text
    return _composed(text).translate(_PLAIN)


def _composed(text: str) -> str:
    """Return `text` with one character for each letter and its accents."""
    return normalize("NFC", text.translate(_WIDTHS))


def _runs(text: str) -> list[str]:
    """Return the runs of letters and digits of a folded text."""
    return text.translate(_ASCII_WORDS).split() if text.isascii() else _WORD.findall(text)


def query_terms(text: str) -> list[QueryTerm]:
    """Return the terms of a query in a user's own words; empty if it has no word.

    Each run of characters between spaces is one phrase. Stop words are dropped unless the query has
    no other words. `name*` finds every word that starts with `name`.
    """
    text = _ENDING.sub(" ", _composed(text))
    terms = list(_query_terms(text, STOP_WORDS)) or list(_query_terms(text, frozenset()))
    return list(dict.fromkeys(terms))[:MAX_QUERY_WORDS]


def likely_names(text: str) -> list[QueryTerm]:
    """Return names, and parts of names, that a short query may mean.

    `turbo encabulator` may mean `turbo_encabulator` or `TurboEncabulator`, and `rotates` may be a
    part of `whenRotates`, while its stem finds any `rotate`.
    """
    runs = [run for run in _WORD.findall(folded(text)) if run.isascii()]
    if len(runs) > 5:  # a sentence
        return []
    names: list[QueryTerm] = []
    if len(runs) > 1:
        names.append(QueryTerm(tuple(phrase_words(text)), tuple(runs)))
        joined = ["".join(runs), *map("".join, pairwise(runs))]
        names += [_weighed(run, 1.0) for run in dict.fromkeys(joined)]
    stemmed = [run.lower() for run in runs if _stemmed(run.lower()) != run.lower()]
    return names + [QueryTerm((run,), (run,)) for run in stemmed if run not in STOP_WORDS]


def words_of(text: str) -> set[str]:
    """Return the words of a text as they are indexed."""
    return set(" ".join(map(_words, _runs(folded(text)))).split(" "))


def stems_of_prefix(prefix: str) -> list[str]:
    """Return stems of words with `prefix` that do not start with `prefix` themselves."""
    if not (prefix.isascii() and prefix.isalpha()):
        return []
    # Stemming removes endings of up to four characters, so `connecti*` needs `connect` too.
    shorter = [prefix[:end] for end in range(max(4, len(prefix) - 4), len(prefix))]
    stems = dict.fromkeys([*shorter, _stemmed(prefix)])
    return [stem for stem in stems if not stem.startswith(prefix)]


def phrase_words(text: str) -> list[str]:
    """Return the words of `text` in order, as a phrase searches for them."""
    return [word for run in _WORD.findall(folded(text)) for word in _run_words(run)]


def phrase_term(text: str) -> QueryTerm | None:
    """Return the phrase of the first `MAX_QUERY_WORDS` words of `text`, or None without words."""
    all_runs = _WORD.findall(folded(text))
    runs = tuple(_until_cut(all_runs))[:MAX_QUERY_WORDS]
    is_prefix = text.endswith("*") and runs == tuple(all_runs)
    words = [word for run in runs[:-1] for word in _words(run).split(" ")]
    words += _prefix_words(runs[-1]) if runs and is_prefix else _run_words(runs[-1]) if runs else []
    if not words:
        return None
    # A single character of a script without spaces is mostly indexed as the start of a pair.
    return QueryTerm(tuple(words), runs, is_prefix or _is_lone(runs[-1]))


def _until_cut(runs: Sequence[str]) -> Iterator[str]:
    """Yield the runs up to the first long one of a script without spaces, which is cut."""
    for run in runs:
        is_long = len(run) > MAX_QUERY_WORDS and _is_unspaced(run)
        yield run[:MAX_QUERY_WORDS] if is_long else run
        if is_long:
            return


def _query_terms(text: str, dropped: frozenset[str]) -> Iterator[QueryTerm]:
    for chunk in text.split():
        # Compared before folding, because "thé" is no stop word.
        runs = [folded(run) for run in _WORD.findall(chunk) if run.lower() not in dropped]
        compound = phrase_term(chunk) if runs else None
        if compound is not None:
            words = runs if len(compound.runs) > 1 else []
            # A word of a compound counts half of it, a piece of an identifier a quarter.
            smaller = [_weighed(word, 0.5) for word in words]
            for run in runs:
                pieces = _pairs(run) if _is_unspaced(run) else _identifier_pieces(run)
                smaller += [_weighed(piece, 0.25) for piece in pieces]
            yield replace(compound, pieces=tuple(smaller[:MAX_QUERY_WORDS]))


def _weighed(run: str, weight: float) -> QueryTerm:
    return QueryTerm(tuple(_run_words(run)), (run,), _is_lone(run), weight)


@lru_cache(_MEMO_ENTRIES)
def _parts(run: str) -> tuple[str, ...]:
    """Return the parts of an identifier as they are indexed, plain and stemmed."""
    lower = [piece.lower() for piece in _identifier_pieces(run)]
    return tuple(dict.fromkeys([*lower, *map(_stemmed, lower)]))


def _identifier_pieces(run: str) -> list[str]:
    """Return the pieces of an identifier; empty for a single piece and for a hash."""
    if not run.isascii() or (run.isalpha() and run.islower()) or _is_hash(run):
        return []
    pieces = pieces_of(run[:MAX_TERM_CHARS])
    is_hash = len(pieces) > 4 and len(run) < 2 * len(pieces)  # most pieces are single characters
    return pieces if len(pieces) > 1 and not is_hash else []


def _is_hash(run: str) -> bool:
    """Whether a run is a commit, a request ID or a digest."""
    lower = run.lower()
    return len(run) >= 12 and run in {lower, run.upper()} and _HEX.issuperset(lower)


def _run_words(run: str) -> list[str]:
    """Return the words for which a phrase searches for one run."""
    if _is_unspaced(run):
        return _pairs(run) or [run]
    return [_stemmed(run[:MAX_TERM_CHARS].lower())]


def _prefix_words(run: str) -> list[str]:
    """Return the words as `_run_words` does, for a word that may have more letters."""
    return _run_words(run) if _is_unspaced(run) else [run[:MAX_TERM_CHARS].lower()]


def _stemmed(word: str) -> str:
    return _stem(word) if word.isascii() and word.isalpha() else word


def _is_lone(run: str) -> bool:
    return len(run) == 1 and _is_unspaced(run)


def _is_unspaced(run: str) -> bool:
    return _FIRST_UNSPACED.match(run) is not None


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]
