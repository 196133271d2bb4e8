"""Which of the user's sentences no longer hold, because a later one says otherwise.

A later sentence takes the place of an earlier one on the same subject where it names another value
in the same words, or another value or name in words that no other sentence has, negates what the
older one named or sets a new value beside it, or corrects in words. Two sentences of one form are
not enough: "leave the tests alone" and "leave the docs alone" both stand, unless the later one says
"now", "after all" or "no".
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from context_compaction.summarizers.rule_words import CORRECTION, NEGATION, NOW

# Of the words of the shorter sentence, so many must be shared: where only the value differs, ...
_SAME_FRAME_SHARE = 0.75
# ... where the newer one corrects in words, without another value and with one, ...
_CORRECTION_SHARE = 0.5
_CORRECTED_VALUE_SHARE = 0.34
_MIN_SHARED_WORDS = 2
# ... and where the shared words stand in these two sentences alone, so many of them.
_OWN_SUBJECT_SHARE = 0.5
_MIN_OWN_WORDS = 2
# A word that stands in more sentences than this says nothing about the subject: only the newest of
# them are compared, so that the cost stays linear.
_NEAREST = 40

# Sentences of one form: what differs is at most so many words on each side.
_DIFFERENT_WORDS = 4
# A negated name stands at most so many characters behind its negation.
_NEGATED_CHARS = 30

_TOKEN = re.compile(r"[^\W_][\w'’./:@#%$€£-]*")
_NAME = re.compile(r"(?<!\A)(?<![.!?] )\b[A-Z][\w-]{2,}")
_NUMBER_WORD = re.compile(
    r"\b(two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|"
    r"hundred|thousand|twice|half|zwei|drei|vier|f[uü]nf|sechs|sieben|acht|neun|zehn|dos|tres|"
    r"cuatro|cinco|seis|siete|ocho|nueve|diez|deux|trois|quatre|cinq|sept|huit|neuf|dix|"
    r"два|три|четыре|пять|шесть|семь|восемь|девять|десять|tre|quattro|cinque|sette|otto|nove|dieci)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_EAST_ASIAN_PAIR = re.compile(r"(?=([\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{2}))")
_VALUE = re.compile(
    r"[A-Za-z0-9_./:@#$€£%+-]*\d[\w./:@#$€£%+-]*(?<![.:])|`[^`]+`|\"[^\"]+\"|"
    r"[A-Za-z0-9]+[._/-][A-Za-z0-9._/-]+(?<![.:])",
    re.ASCII,
)
_STOP_WORDS = frozenset({
    "about", "actually", "all", "also", "always", "and", "any", "are", "been", "being", "but",
    "can", "could", "did", "does", "don't", "for", "from", "had", "has", "have", "here",
    "i'd", "i'm", "instead", "into", "it's", "its", "just", "let", "make", "must", "need",
    "never", "not", "now", "only", "our", "per", "please", "should", "sure", "than", "that",
    "that's", "the", "them", "then", "there", "they", "this", "use", "using", "via", "want",
    "was", "we're", "what", "when", "which", "will", "with", "would", "you", "your",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    words: frozenset[str]
    values: frozenset[str]
    names: frozenset[str]
    tokens: tuple[str, ...]
    negated: tuple[str, ...]  # what stands just behind each negation
    corrects: bool


def superseded(sentences: Sequence[str]) -> frozenset[str]:
    """Those of `sentences`, which are in the order in which they were said, that hold no more."""
    said = [_said(sentence) for sentence in sentences]
    times = Counter(word for sentence in said for word in sentence.words)
    by_word: dict[str, list[int]] = {}
    gone: set[str] = set()
    for at, newer in enumerate(said):
        shared: dict[int, list[str]] = {}
        for word in newer.words:
            for other in by_word.get(word, ())[-_NEAREST:]:
                shared.setdefault(other, []).append(word)
        gone.update(
            said[other].text
            for other, words in shared.items()
            if newer.text != said[other].text
            and _replaces(newer, said[other], len(words), sum(times[word] == 2 for word in words))
        )
        for word in newer.words:
            by_word.setdefault(word, []).append(at)
    return frozenset(gone)


def _replaces(newer: _Said, older: _Said, shared: int, shared_alone: int) -> bool:
    """Whether `older` falls: they share so many words, so many of which no other sentence has."""
    if newer.text.endswith(("?", "？")):
        return False  # who asks has decided nothing
    share = shared / min(len(newer.words), len(older.words))
    if NOW.search(newer.text) and _is_same_form(newer.tokens, older.tokens):
        return True
    if shared < _MIN_SHARED_WORDS:
        return False
    if _negates(newer, older):
        return True
    has_new_value = bool(newer.values - older.values)
    if has_new_value and older.values and older.values <= newer.values:
        # "7, not 3": the older value stands beside the new one.
        return newer.corrects or share >= _CORRECTION_SHARE
    other_value = has_new_value and bool(older.values) and not newer.values & older.values
    other_name = bool(newer.names - older.names) and bool(older.names - newer.names)
    if (
        shared_alone >= _MIN_OWN_WORDS
        and share >= _OWN_SUBJECT_SHARE
        and (other_value or other_name)
    ):
        return True
    if newer.corrects:
        return share >= (_CORRECTED_VALUE_SHARE if other_value else _CORRECTION_SHARE)
    return other_value and share >= _SAME_FRAME_SHARE


def _is_same_form(newer: Sequence[str], older: Sequence[str]) -> bool:
    """Whether both begin and end alike, with something else in between on either side."""
    newer = [token for token in newer if not NOW.fullmatch(token)]
    short = min(len(newer), len(older))
    start = 0
    while start < short and newer[start] == older[start]:
        start += 1
    end = 0
    while end < short - start and newer[-1 - end] == older[-1 - end]:
        end += 1
    differing = len(newer) - start - end, len(older) - start - end
    alike = start + end
    return min(differing) > 0 and max(differing) <= min(_DIFFERENT_WORDS, alike)


def _negates(newer: _Said, older: _Said) -> bool:
    """Whether `newer` says no to a name or value that `older` gave."""
    named = older.names | older.values
    return any(name in near for near in newer.negated for name in named)


def _said(sentence: str) -> _Said:
    lower = sentence.lower()
    found = (match[0] for match in _WORD.finditer(lower))
    words = {_stem(word) for word in found if word not in _STOP_WORDS and word < "\u2e80"}
    values = {match[0] for match in _VALUE.finditer(sentence)}
    values.update(match[0].lower() for match in _NUMBER_WORD.finditer(sentence))
    return _Said(
        sentence,
        frozenset(words.union(_EAST_ASIAN_PAIR.findall(sentence))),
        frozenset(values),
        frozenset(_NAME.findall(sentence)),
        tuple(match[0].rstrip(".:") for match in _TOKEN.finditer(lower)),
        tuple(
            sentence[negation.end() : negation.end() + _NEGATED_CHARS]
            for negation in NEGATION.finditer(sentence)
        ),
        CORRECTION.search(sentence) is not None,
    )


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 4 and word.endswith("s") else word
