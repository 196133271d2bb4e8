"""Which of the user's sentences no longer hold, or may not, because a later one says otherwise.

A later sentence takes the place of an earlier one where the evidence is plain: another value in the
same words, a name or value that is negated, a correction in words, "now" in a sentence of the same
form. Then the earlier one is gone.

Where a later turn only speaks of the same subject, nothing in the words tells a new value in other
words ("The YAML files get two-space indentation" after "Indent the YAML files with four spaces")
from a second rule beside the first. Then the earlier one stays, marked as earlier: never both as
equally true, and no rule is lost that still holds.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from context_compaction.summarizers.rule_words import CORRECTION, NEGATION, NOW
from context_compaction.summarizers.subjects import Subject, subject_of

# Of the words of the shorter sentence, so many must be shared where the newer one corrects, without
# another value and with one.
_CORRECTION_SHARE = 0.5
_CORRECTED_VALUE_SHARE = 0.34
_MIN_SHARED_WORDS = 2
# A shared word weighs 1 where it stands in these two sentences alone, and less the more others have
# it. So much together is one subject.
_SAME_SUBJECT_WEIGHT = 1.0
_SAME_SUBJECT_SHARE = 0.2
_CLOSE_WEIGHT = 2.0
_SAME_KIND_WEIGHT = 0.5
_CORRECTION_WEIGHT = 0.5
# What ranks lower replaces nothing, unless it corrects in words.
_STATEMENT_RANK = 0.5
# A sentence is compared with the newest of those that have one of its rarest words: so many of each
# of so many words, so that the cost stays linear.
_NEAREST = 20
_RAREST = 6
# Sentences of one form: what differs is at most so many words on each side.
_DIFFERENT_WORDS = 4
# A negated name stands at most so many characters behind its negation.
_NEGATED_CHARS = 30
# Sentences whose reading is kept: pins and writer, and the next compaction, ask for the same ones.
_REMEMBERED = 4_096
_TOKEN = re.compile(r"[^\W_][\w'’./:@#%$€£-]*")


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence of the user.

    Attributes:
        text: The sentence.
        turn: The number of the message that it stands in.
        rank: How surely it binds (binding.py): what is pasted or chatter ranks low.
    """

    text: str
    turn: int
    rank: float


@dataclass(frozen=True, slots=True)
class Replaced:
    """The older sentences: those that are gone, and those that only came earlier.

    Attributes:
        gone: They hold no more.
        earlier: They may hold no more, in full or in part.
        newer: Of both kinds those that share much with a later sentence, with that one.
    """

    gone: frozenset[str]
    earlier: frozenset[str]
    newer: Mapping[str, str]


def replaced(said: Sequence[Said]) -> Replaced:
    """Which of `said`, in the order in which it was said, a later sentence takes the place of."""
    known = [_known(item.text) for item in said]
    times = Counter(word for item in known for word in item.subject.words)
    by_word: dict[str, list[int]] = {}
    gone: set[str] = set()
    earlier: set[str] = set()
    takes_place: dict[str, str] = {}
    for at, newer in enumerate(known):
        shared = sorted(
            (word for word in newer.subject.words if times[word] > 1),
            key=lambda word: (times[word], word),
        )
        near = {other for word in shared[:_RAREST] for other in by_word.get(word, ())[-_NEAREST:]}
        states = newer.corrects or said[at].rank >= _STATEMENT_RANK
        if newer.is_question or not states:
            near.clear()
        for other in sorted(near):
            older = known[other]
            if newer.text == older.text:
                continue
            words = newer.subject.words & older.subject.words
            weight = sum(1 / (times[word] - 1) for word in words)
            if _replaces(newer, older, len(words), weight):
                gone.add(older.text)
                takes_place[older.text] = newer.text
            elif _may_be_marked(said[at], said[other]) and _is_on_subject(
                newer, older, len(words), weight
            ):
                earlier.add(older.text)
                if weight >= _CLOSE_WEIGHT:
                    takes_place[older.text] = newer.text
        for word in shared:
            by_word.setdefault(word, []).append(at)
    return Replaced(frozenset(gone), frozenset(earlier - gone), takes_place)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is read from a sentence.

    Attributes:
        text: The sentence.
        subject: What it is about.
        values: Its values of all kinds, but for names.
        tokens: Its words in order, in small letters.
        negated: What stands behind each negation.
        corrects: Whether it corrects in words.
        says_now: Whether it has a weaker sign of a correction.
        is_question: Whether it asks; who asks has decided nothing.
    """

    text: str
    subject: Subject
    values: frozenset[str]
    tokens: tuple[str, ...]
    negated: tuple[str, ...]
    corrects: bool
    says_now: bool
    is_question: bool


@lru_cache(maxsize=_REMEMBERED)
def _known(text: str) -> _Known:
    subject = subject_of(text)
    kinds = (found for kind, found in subject.values.items() if kind != "name")
    negations = (found.end() for found in NEGATION.finditer(text))
    return _Known(
        text,
        subject,
        frozenset[str]().union(*kinds),
        tuple(match[0].rstrip(".:") for match in _TOKEN.finditer(text.lower())),
        tuple(text[end : end + _NEGATED_CHARS].lower() for end in negations),
        CORRECTION.search(text) is not None,
        NOW.search(text) is not None,
        text.endswith(("?", "？")),
    )


def _replaces(newer: _Known, older: _Known, shared: int, weight: float) -> bool:
    """Whether `older` is gone for certain; they share so many subject words, of such weight."""
    share = shared / max(1, min(len(newer.subject.words), len(older.subject.words)))
    if newer.says_now and _is_same_form(newer.tokens, older.tokens):
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
    if newer.corrects and weight >= _SAME_SUBJECT_WEIGHT:
        return share >= (_CORRECTED_VALUE_SHARE if other_value else _CORRECTION_SHARE)
    # The same words but for the value: neither says something else besides.
    return other_value and newer.subject.words == older.subject.words


def _may_be_marked(newer: Said, older: Said) -> bool:
    """Said in one breath, both are meant; and what is pasted is no rule."""
    return newer.turn != older.turn and older.rank >= 0


def _is_on_subject(newer: _Known, older: _Known, shared: int, weight: float) -> bool:
    """Whether both speak of one thing."""
    shorter = min(len(newer.subject.words), len(older.subject.words))
    if shared < shorter * _SAME_SUBJECT_SHARE:
        return False
    if _has_other_of_a_kind(newer.subject, older.subject):
        weight += _SAME_KIND_WEIGHT
    if newer.corrects or newer.says_now:
        weight += _CORRECTION_WEIGHT
    return weight >= _SAME_SUBJECT_WEIGHT


def _has_other_of_a_kind(newer: Subject, older: Subject) -> bool:
    """Whether both name a value of one kind, and another one."""
    return any(newer.values.get(kind, found) != found for kind, found in older.values.items())


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


def _negates(newer: _Known, older: _Known) -> bool:
    """Whether `newer` says no to a name or value that `older` gave."""
    named = older.subject.values.get("name", frozenset()) | older.values
    return any(name.lower() in near for near in newer.negated for name in named)
