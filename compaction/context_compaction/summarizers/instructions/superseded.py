"""Which of the user's sentences a later one replaces, or may replace.

An earlier sentence is gone only where a later one takes it back in plain words and repeats the rest
of it: it negates what the earlier one affirmed ("use spaces instead of tabs"), or it corrects
the one value in which they differ ("actually, the port is 9191"). Two prohibitions both hold, and
a request is never replaced by the next one of its form.

Where a later turn only has the same subject, the words do not distinguish a new value in other
words ("The YAML files get two-space indentation" after "Indent the YAML files with four spaces")
from a second rule beside the first. Then both stay, in the order in which they were said, and no
rule is lost that still holds. Where they share half of their words, and the later one corrects
or names another value of a kind, the older one is surely replaced and can be marked so.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from context_compaction.summarizers.instructions.signs import signs
from context_compaction.summarizers.instructions.topics import Topic, topic_of
from context_compaction.summarizers.instructions.typed_text import without_list_mark

# A shared word weighs 1 where it stands in these two sentences alone, and less the more others have
# it. So much together is one subject.
_SAME_SUBJECT_WEIGHT = 1.0
_SAME_SUBJECT_SHARE = 0.2
_CLOSE_WEIGHT = 2.0
# In long sentences a few shared words are chance: a replaced one shares so much of the longer.
_ALIKE_SHARE = 0.5
# Less does where both name a value of one kind, and another one.
_SAME_KIND_WEIGHT = 0.5
# Of the words of a sentence that corrects a value, so many are those of the corrected one.
_CORRECTED_SHARE = 0.34
# A sentence is compared with the newest of those that have one of its rarest words: so many of each
# of so many words, so that the cost stays linear.
_NEAREST = 20
_RAREST = 6
# Sentences whose reading is kept: pins and writer, and the next compaction, ask for the same ones.
_REMEMBERED = 4_096
_TOKEN = re.compile(r"[^\W_][\w'’./:@#%$€£-]*")
CLAUSE_END = re.compile(r"(?<![,;:.!?])[,;:.!?]++(?:\s|\Z)|[()—，。；：！？、]")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of the user.

    Attributes:
        text: The sentence.
        turn: The number of its message.
        rank: How surely it binds (find.py): what is pasted or chatter ranks low.
    """

    text: str
    turn: int
    rank: float


@dataclass(frozen=True, slots=True)
class Replaced:
    """The older sentences: those that are gone, and those that may hold no more.

    Attributes:
        gone: They hold no more; the later one contains what still holds of them.
        earlier: They may hold no more, in full or in part.
        known: Those of `earlier` that a later sentence surely replaces.
        close: Of all kinds those that share much with the later sentence.
        newer: By older sentence the last one that takes it back, gives another value, corrects it
            or is close.
    """

    gone: frozenset[str]
    earlier: frozenset[str]
    known: frozenset[str]
    close: frozenset[str]
    newer: Mapping[str, str]


def replaced(said: Sequence[Statement]) -> Replaced:
    """Which of `said`, in the order in which it was said, a later one replaces or may replace."""
    known = [_known(item.text) for item in said]
    times = Counter(word for item in known for word in item.subject.words)
    weights = {word: 1 / (count - 1) for word, count in times.items() if count > 1}
    by_word: dict[str, list[int]] = {}
    found: dict[_Change, set[str]] = {change: set() for change in _Change}
    newer_of: dict[str, str] = {}
    for at, newer in enumerate(known):
        shared = sorted(
            (word for word in newer.subject.words if times[word] > 1),
            key=lambda word: (times[word], word),
        )
        near = {other for word in shared[:_RAREST] for other in by_word.get(word, ())[-_NEAREST:]}
        if newer.is_question or said[at].rank < 0:
            near.clear()
        for other in sorted(near):
            older = known[other]
            # What is pasted is no rule.
            if newer.text == older.text or said[other].rank < 0:
                continue
            words = newer.subject.words & older.subject.words
            weight = sum(map(weights.__getitem__, words))
            change = _change(newer, older, weight, is_one_turn=said[at].turn == said[other].turn)
            if change:
                found[change].add(older.text)
                if change is not _Change.POSSIBLE:
                    newer_of[older.text] = newer.text
        for word in shared:
            by_word.setdefault(word, []).append(at)
    gone, known_texts = found[_Change.GONE], found[_Change.KNOWN]
    earlier = set[str]().union(*found.values()) - gone
    return Replaced(
        frozenset(gone),
        frozenset(earlier),
        frozenset(known_texts - gone),
        frozenset(gone | known_texts | found[_Change.CLOSE]),
        newer_of,
    )


class _Change(Enum):
    """What a later sentence does to an older one, surest first."""

    GONE = 1  # takes it back
    KNOWN = 2  # surely takes its place
    CLOSE = 3  # shares much with it
    VALUE = 4  # names another value, or corrects
    POSSIBLE = 5  # speaks of the same


@dataclass(frozen=True, slots=True)
class _Known:
    """A sentence as it was parsed.

    Attributes:
        text: The sentence.
        subject: What it is about.
        values: Its values of all kinds, but for names.
        tokens: Its words in order, in small letters.
        negated: What it negates: for each negation the rest of its clause, where not empty.
        is_negative: Whether it negates anything.
        corrects: Whether it corrects in words.
        is_request: Whether it asks for something to be done now, and states no rule.
        is_question: Whether it asks; who asks has decided nothing.
    """

    text: str
    subject: Topic
    values: frozenset[str]
    tokens: tuple[str, ...]
    negated: tuple[Topic, ...]
    is_negative: bool
    corrects: bool
    is_request: bool
    is_question: bool


@lru_cache(maxsize=_REMEMBERED)
def _known(text: str) -> _Known:
    said = without_list_mark(text)
    known = signs()
    subject = topic_of(said)
    negations = [found.end() for found in known.negation.finditer(said)]
    clauses = (topic_of(CLAUSE_END.split(said[end:], maxsplit=1)[0]) for end in negations)
    asks = known.wish.search(said) is not None or known.errand.search(said) is not None
    return _Known(
        text,
        subject,
        _values(subject),
        tuple(match[0].rstrip(".:") for match in _TOKEN.finditer(said.lower())),
        tuple(clause for clause in clauses if clause.words or _values(clause)),
        bool(negations),
        known.correction.search(said) is not None,
        asks and known.rule.search(said) is None,
        said.endswith(("?", "？")),
    )


def _values(subject: Topic) -> frozenset[str]:
    kinds = (found for kind, found in subject.values.items() if kind != "name")
    return frozenset[str]().union(*kinds)


def _change(newer: _Known, older: _Known, weight: float, *, is_one_turn: bool) -> _Change | None:
    if _takes_back(newer, older):
        return _Change.GONE
    # Said in one breath, both are meant.
    shared = len(newer.subject.words & older.subject.words)
    if is_one_turn or not _competes(newer, older, shared, weight):
        return None
    changes = newer.corrects or _has_other_of_a_kind(newer, older)
    if weight >= _CLOSE_WEIGHT:
        longer = max(len(newer.subject.words), len(older.subject.words))
        return _Change.KNOWN if changes and shared >= longer * _ALIKE_SHARE else _Change.CLOSE
    return _Change.VALUE if changes else _Change.POSSIBLE


def _takes_back(newer: _Known, older: _Known) -> bool:
    """Whether `newer` plainly takes back what `older` affirmed, and repeats the rest of it."""
    if older.is_negative:
        return False
    for negated in newer.negated:
        values = _values(negated)
        is_affirmed = negated.words <= older.subject.words and values <= older.values
        # A bare verb may have another object: "the tests, do not edit them".
        is_plain = newer.corrects or len(negated.words) + len(values) > 1
        rest = older.subject.words - negated.words
        if is_affirmed and (is_plain or not rest) and rest <= newer.subject.words:
            return True
    if not newer.corrects:
        return False
    given = older.values - newer.values
    if len(given) != 1:
        return False
    has_other = any(
        given <= found and newer.subject.values.get(kind, found) - found
        for kind, found in older.subject.values.items()
    )
    rest = older.subject.words - topic_of(*given).words
    share = len(rest) / max(1, len(newer.subject.words))
    return has_other and rest <= newer.subject.words and share >= _CORRECTED_SHARE


def _competes(newer: _Known, older: _Known, shared: int, weight: float) -> bool:
    """Whether both have one subject, so that the newer one may change the older."""
    shorter = min(len(newer.subject.words), len(older.subject.words))
    if shared < shorter * _SAME_SUBJECT_SHARE:
        return False
    if weight + _SAME_KIND_WEIGHT < _SAME_SUBJECT_WEIGHT:
        return False  # most pairs, before anything that takes its time
    has_other = _has_other_of_a_kind(newer, older)
    if newer.is_negative and older.is_negative and not (newer.corrects and has_other):
        return False
    if _are_of_a_series(newer, older):
        return False
    if has_other:
        weight += _SAME_KIND_WEIGHT
    return weight >= _SAME_SUBJECT_WEIGHT


def _has_other_of_a_kind(newer: _Known, older: _Known) -> bool:
    """Whether both name a value of one kind, and another one."""
    values = newer.subject.values
    return any(values.get(kind, found) != found for kind, found in older.subject.values.items())


def _are_of_a_series(newer: _Known, older: _Known) -> bool:
    """Whether both have one form and differ in two places: in what they are about, and what holds.

    "Server A listens on port 8001" and "Server B listens on port 8002". Of requests one place is
    enough: "Please summarise chapter 1" and "Please summarise chapter 2".
    """
    if len(newer.tokens) != len(older.tokens):
        return False
    pairs = enumerate(zip(newer.tokens, older.tokens, strict=True))
    differing = [at for at, (one, other) in pairs if one != other]
    places = sum(1 for at in differing if at - 1 not in differing)
    is_one_form = len(differing) < len(newer.tokens) - len(differing)
    return is_one_form and (places > 1 or older.is_request)
