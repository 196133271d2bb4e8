"""Search tokens, made by us so that every backend finds the same.

- Words are runs of letters and digits, in lower case: `src/x/bar_baz17.py:17` gives `src x bar
  baz17 py 17`, and is found as that phrase or by any of its words. Words of ASCII letters are
  indexed by their English stem, so that `rotates` finds `rotate`; FACTS part 4 measured what that
  gains for questions in one's own words.
- Parts of an identifier are its camelCase and letter/digit pieces: `ZXPlant17QuirkError` is one
  word with the parts `zx plant 17 quirk error`. They go into a column of their own, as they are
  and stemmed, so that they do not disturb phrases.
- Scripts written without blanks (Chinese, Japanese, Thai...) give overlapping pairs of characters,
  so that words of two characters are found; a run ends with its last character alone.
- A letter and its accent are one letter, whether a text has them as one character or as two (names
  of files on a Mac have two). Forms of full and half width and ligatures are the plain letters, and
  marks without width (a soft hyphen, a place where a line may break) part no word.
- Latin letters are found with and without their accents: `resume` finds `résumé`, as in FTS5. What
  is a letter of its own (ø, ß, й) stays one.

A change here, or of what text a message has (documents.py), needs a new `TERMS_VERSION`: indexes of
another version are rebuilt.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import chain, pairwise
from typing import Any
from unicodedata import normalize

from context_compaction.messages.names import STOP_WORDS, pieces_of

_stemmer: Any = import_module("Stemmer")  # PyStemmer, which has no types

TERMS_VERSION = f"9-{_stemmer.version()}"  # another version of the stemmer may stem otherwise
MAX_TERM_CHARS = 64  # longer runs are base64 and the like; their beginning is enough to find them
MAX_QUERY_TERMS = 24
MAX_QUERY_WORDS = 64  # that a phrase is looked for by, and that a text is read for

# Han, kana, Hangul, Thai, Lao, Myanmar, Khmer, and half-width kana. The letters among them only.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_WIDTHS = re.compile("[\ufb00-\ufb06\uff00-\uffef]+")  # and the ligatures ff to st
_LATIN = (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))  # letters with accents, among others
_PLAIN = {char: normalize("NFD", char)[0] for char in map(chr, _LATIN)}
_ACCENTED = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")
NO_WIDTH = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]+")
_HASH = re.compile("[0-9a-f]{12,}|[0-9A-F]{12,}")  # commits, request ids, digests
_FIRST_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_ENDING = re.compile(r"['’](?:s|d|m|t|ll|re|ve)\b", re.IGNORECASE)  # don't, Anna's

# The same where all is ASCII: blanks for what is no letter or digit. Four times as fast.
_ASCII_WORDS = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))

_MEMO_ENTRIES = 200_000  # runs whose terms are remembered while indexing: some 40 MB
# Without its own cache, which is slower than ours.
_stem: Callable[[str], str] = _stemmer.Stemmer("english", 0).stemWord


@dataclass(frozen=True, slots=True)
class Terms:
    """The tokens of one text, in order.

    Attributes:
        words: Every word, parted by blanks; phrases are found along them.
        word_count: How many they are.
        parts: The distinct pieces of its identifiers, and words as written that are indexed folded.
    """

    words: str
    word_count: int
    parts: list[str]


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One thing to look for: a word, or several that must follow each other.

    Attributes:
        words: The words of the phrase, as they are indexed.
        runs: The same as a text contains them, to find the place again.
        is_prefix: Whether the last word may go on.
        weight: How much a match counts; parts of what was asked for count less.
        pieces: What to look for where the whole is found nowhere.
    """

    words: tuple[str, ...]
    runs: tuple[str, ...]
    is_prefix: bool = False
    weight: float = 1.0
    pieces: tuple["QueryTerm", ...] = ()


class _Memo(dict[str, str]):
    """By run of letters: its words, parted by blanks.

    Threads may meet here: at worst a run is looked at twice.

    Attributes:
        plain: The runs that are no identifiers, and have no parts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.plain: set[str] = set()

    def __missing__(self, run: str) -> str:
        if len(self) >= _MEMO_ENTRIES:
            self.clear()
            self.plain = set()
        if not _identifier_pieces(run):
            self.plain.add(run)
        if not run.isascii() and _is_unspaced(run):
            words = " ".join([*_pairs(run), run[-1]])
        else:
            words = _stemmed(run[:MAX_TERM_CHARS].lower())
        self[run] = words
        return words


_memo = _Memo()


def terms_of(text: str) -> Terms:
    """The tokens of a text to be indexed."""
    shown = folded(text)
    runs = _runs(shown)
    words = " ".join(map(_memo.__getitem__, runs))
    names = sorted(set(runs) - _memo.plain)
    # A pattern looks for the text as it is: for what folding changes, its words are parts too.
    raw = sorted(set(_WORD.findall(text)).difference(runs)) if shown != text else ()
    as_written = chain.from_iterable(_memo[run].split(" ") for run in raw)
    parts = list(dict.fromkeys(chain(as_written, *map(_parts, names))))
    return Terms(words, words.count(" ") + 1 if words else 0, parts)


def folded(text: str) -> str:
    """`text` as its words are taken from it; itself where that changes nothing."""
    if text.isascii():
        return text
    return _ACCENTED.sub(lambda found: _PLAIN[found[0]], _composed(text))


def _composed(text: str) -> str:
    """`text` with each letter and its accents as one character."""
    plain = normalize("NFC", NO_WIDTH.sub("", text))
    return _WIDTHS.sub(lambda found: normalize("NFKC", found[0]), plain)


def _runs(text: str) -> list[str]:
    """The words of a folded text."""
    return text.translate(_ASCII_WORDS).split() if text.isascii() else _WORD.findall(text)


def query_terms(text: str) -> list[QueryTerm]:
    """What a query in somebody's own words looks for; empty where it holds no word at all.

    Each run of characters between blanks is one phrase. Stop words are dropped unless there is
    nothing else. `name*` finds every word that begins so.
    """
    text = _ENDING.sub(" ", _composed(text))
    terms = list(_query_terms(text, STOP_WORDS)) or list(_query_terms(text, frozenset()))
    return list(dict.fromkeys(terms))[:MAX_QUERY_TERMS]


def likely_names(text: str) -> list[QueryTerm]:
    """What else a short query may mean: one name, whose parts it says, or parts of names.

    `turbo encabulator` may be `turbo_encabulator` or `TurboEncabulator`, and `rotates` a part of
    `whenRotates`, where its stem would find any `rotate`.
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
    """The words of a text, as they are indexed."""
    return set(" ".join(map(_memo.__getitem__, _runs(folded(text)))).split(" "))


def stems_of_prefix(prefix: str) -> list[str]:
    """Stems, other than those that begin with `prefix`, of words that may begin with it."""
    if not (prefix.isascii() and prefix.isalpha()):
        return []
    # Stemming takes endings of up to four characters away: `connecti*` asks for `connect` too.
    shorter = [prefix[:end] for end in range(max(4, len(prefix) - 4), len(prefix))]
    stems = dict.fromkeys([*shorter, _stemmed(prefix)])
    return [found for found in stems if not found.startswith(prefix)]


def phrase_words(text: str) -> list[str]:
    """The words of `text` in its order, as a phrase looks for them."""
    return [word for run in _WORD.findall(folded(text)) for word in _run_words(run)]


def phrase_term(text: str) -> QueryTerm | None:
    """`text` as one phrase, by its first `MAX_QUERY_WORDS` words; None where it holds none."""
    every = _WORD.findall(folded(text))
    runs = tuple(_until_cut(every))[:MAX_QUERY_WORDS]
    is_prefix = text.endswith("*") and runs == tuple(every)
    words = [word for run in runs[:-1] for word in _memo[run].split(" ")]  # up to its very end
    words += _prefix_words(runs[-1]) if runs and is_prefix else _run_words(runs[-1]) if runs else []
    if not words:
        return None
    # A lone last character of an unspaced script is indexed only as the beginning of a pair.
    return QueryTerm(tuple(words), runs, is_prefix or _is_lone(runs[-1]))


def _until_cut(runs: Sequence[str]) -> Iterator[str]:
    """`runs` up to the first that is too long a run of an unspaced script, cut."""
    for run in runs:
        is_long = len(run) > MAX_QUERY_WORDS and _is_unspaced(run)
        yield run[:MAX_QUERY_WORDS] if is_long else run
        if is_long:
            return


def _query_terms(text: str, dropped: frozenset[str]) -> Iterator[QueryTerm]:
    for chunk in text.split():
        # By the word as it was asked for: "thé" is no "the".
        runs = [folded(run) for run in _WORD.findall(chunk) if run.lower() not in dropped]
        whole = phrase_term(chunk) if runs else None
        if whole is not None:
            words = runs if len(whole.runs) > 1 else []
            # A word of a compound counts half beside the whole, a piece of an identifier a quarter.
            smaller = [_weighed(word, 0.5) for word in words]
            for run in runs:
                pieces = _pairs(run) if _is_unspaced(run) else _identifier_pieces(run)
                smaller += [_weighed(piece, 0.25) for piece in pieces]
            yield replace(whole, pieces=tuple(smaller[:MAX_QUERY_TERMS]))


def _weighed(run: str, weight: float) -> QueryTerm:
    return QueryTerm(tuple(_run_words(run)), (run,), _is_lone(run), weight)


@lru_cache(_MEMO_ENTRIES)
def _parts(run: str) -> tuple[str, ...]:
    """The parts of an identifier as they are indexed, plain and stemmed."""
    lower = [piece.lower() for piece in _identifier_pieces(run)]
    return tuple(dict.fromkeys([*lower, *map(_stemmed, lower)]))


def _identifier_pieces(run: str) -> list[str]:
    """The pieces of an identifier; none where it has only one, or is a hash or the like."""
    if not run.isascii() or (run.isalpha() and run.islower()) or _HASH.fullmatch(run):
        return []
    pieces = pieces_of(run[:MAX_TERM_CHARS])
    is_hash = len(pieces) > 4 and len(run) < 2 * len(pieces)  # of single characters mostly
    return pieces if len(pieces) > 1 and not is_hash else []


def _run_words(run: str) -> list[str]:
    """The words of one run of letters that a phrase looks for."""
    if _is_unspaced(run):
        return _pairs(run) or [run]
    return [_stemmed(run[:MAX_TERM_CHARS].lower())]


def _prefix_words(run: str) -> list[str]:
    """The same where the word may go on."""
    return _run_words(run) if _is_unspaced(run) else [run[:MAX_TERM_CHARS].lower()]


def _stemmed(word: str) -> str:
    return _stem(word) if word.isascii() and word.isalpha() else word


def _is_lone(run: str) -> bool:
    return len(run) == 1 and _is_unspaced(run)


def _is_unspaced(run: str) -> bool:
    return _FIRST_UNSPACED.match(run) is not None


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]
