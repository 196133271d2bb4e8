"""Search tokens, made by us so that every backend finds the same.

- Words are runs of letters and digits, in lower case: `src/x/bar_baz17.py:17` gives `src x bar
  baz17 py 17`, and is found as that phrase or by any of its words.
- Parts of an identifier are its camelCase and letter/digit pieces: `ZXPlant17QuirkError` is one
  word with the parts `zx plant 17 quirk error`. They go into a column of their own, so that they
  do not disturb phrases.
- Scripts written without blanks (Chinese, Japanese, Thai...) give overlapping pairs of characters,
  so that words of two characters are found; a run ends with its last character alone.

A change here needs a new `TERMS_VERSION`: indexes of another version are rebuilt.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

TERMS_VERSION = 1
MAX_TERM_CHARS = 64  # longer runs are base64 and the like; their beginning is enough to find them
MAX_QUERY_UNITS = 24
# What a word of a compound counts beside the whole, and what a piece of an identifier counts.
WORD_WEIGHT = 0.5
PIECE_WEIGHT = 0.25

# Han, kana, Hangul, Thai, Lao, Myanmar, Khmer, and half-width kana. The letters among them only.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_FIRST_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_NON_BLANK = re.compile(r"\S+")

_STOP_WORDS = (
    "a about after all also am an and any are as at be because been before being between but "
    "by can could did do does doing done for from get got had has have having he her here him "
    "his how i if in into is it its just let like made make may me might more most my no not "
    "now of off on one or our out over own said same say see she should so some such than "
    "that the their them then there these they this those through to too under up us use used "
    "using very want was we were what when where which while who whom why will with would you "
    "your "
)
STOP_WORDS = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True, slots=True)
class Terms:
    """The tokens of one text, in order.

    Attributes:
        words: Every word; phrases are found along them.
        parts: The distinct pieces of its identifiers.
    """

    words: list[str]
    parts: list[str]


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing to look for: a word, or several that must follow each other.

    Attributes:
        words: The words of the phrase, as they are indexed.
        runs: The same as they stand in a text, to find the place again.
        is_prefix: Whether the last word may go on.
        weight: How much a match counts; parts of what was asked for count less.
        pieces: What to look for where the whole is found nowhere.
    """

    words: tuple[str, ...]
    runs: tuple[str, ...]
    is_prefix: bool = False
    weight: float = 1.0
    pieces: tuple["Unit", ...] = ()


def terms_of(text: str) -> Terms:
    """The tokens of a text to be indexed."""
    words: list[str] = []
    parts: dict[str, None] = {}
    for word in _WORD.findall(text):
        if word.isascii():
            words.append(word[:MAX_TERM_CHARS].lower())
            if not (word.islower() and word.isalpha()):
                parts.update(dict.fromkeys(map(str.lower, _identifier_pieces(word))))
        elif _is_unspaced(word):
            words += _pairs(word)
            words.append(word[-1])
        else:
            words.append(word[:MAX_TERM_CHARS].lower())
    return Terms(words, list(parts))


def query_units(text: str) -> list[Unit]:
    """What a query in somebody's own words looks for; empty where it holds no word at all.

    Each run of characters between blanks is one phrase. Stop words are dropped unless there is
    nothing else. `name*` finds every word that begins so.
    """
    units = list(_units(text, STOP_WORDS)) or list(_units(text, frozenset()))
    return list(dict.fromkeys(units))[:MAX_QUERY_UNITS]


def phrase_unit(text: str) -> Unit | None:
    """`text` as one phrase; None where it holds no word."""
    runs = tuple(_WORD.findall(text))
    words = [word for run in runs for word in _run_words(run)]
    if not words:
        return None
    # A lone last character of an unspaced script is indexed only as the beginning of a pair.
    return Unit(tuple(words), runs, text.endswith("*") or _is_lone(runs[-1]))


def _units(text: str, dropped: frozenset[str]) -> Iterator[Unit]:
    for chunk in _NON_BLANK.findall(text):
        runs = [run for run in _WORD.findall(chunk) if run.lower() not in dropped]
        whole = phrase_unit(chunk) if runs else None
        if whole is not None:
            words = runs if len(whole.runs) > 1 else []
            smaller = [_weighed(word, WORD_WEIGHT) for word in words]
            for run in runs:
                pieces = _pairs(run) if _is_unspaced(run) else _identifier_pieces(run)
                smaller += [_weighed(piece, PIECE_WEIGHT) for piece in pieces]
            yield replace(whole, pieces=tuple(smaller[:MAX_QUERY_UNITS]))


def _weighed(run: str, weight: float) -> Unit:
    return Unit(tuple(_run_words(run)), (run,), _is_lone(run), weight)


def _identifier_pieces(run: str) -> list[str]:
    """The pieces of an identifier; none where it has only one."""
    pieces = _PIECE.findall(run[:MAX_TERM_CHARS]) if run.isascii() else []
    return pieces if len(pieces) > 1 else []


def _run_words(run: str) -> list[str]:
    """The words of one run of letters that a phrase looks for."""
    if _is_unspaced(run):
        return _pairs(run) or [run]
    return [run[:MAX_TERM_CHARS].lower()]


def _is_lone(run: str) -> bool:
    return len(run) == 1 and _is_unspaced(run)


def _is_unspaced(run: str) -> bool:
    return _FIRST_UNSPACED.match(run) is not None


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]
