"""Which of the user's sentences a later one replaces, or may replace.

An earlier sentence is surely replaced only where a later turn takes it back in plain words: it
negates what the earlier one affirmed ("use spaces instead of tabs"), or a value in it ("8, not 5"),
it tells to forget it, or a new rule corrects an older one. It is marked then with the message that
did it. Two prohibitions both hold, and a request is never replaced by the next one of its form.

Where a later turn only has the same subject, the words do not distinguish a new value in other
words ("The YAML files get two-space indentation" after "Indent the YAML files with four spaces")
from a second rule beside the first. Then both stay, in the order in which they were said, and no
rule is lost that still holds; but what may hold no more does not stand among the surest rules.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from context_compaction.summarizers.instructions.signs import signs
from context_compaction.summarizers.instructions.topics import Topic, topic_of
from context_compaction.summarizers.instructions.typed_text import without_list_mark

# A shared word weighs 1 where it stands in these two sentences alone, and less the more others have
# it. So much together is one subject.
_SAME_SUBJECT_WEIGHT = 1.0
# A rule that is said anew shares so much of the longer sentence.
_ALIKE_SHARE = 0.5
# Of the words of a sentence that corrects a value, so many are those of the corrected one.
_CORRECTED_SHARE = 0.34
# A sentence is compared with the newest of those that have one of its rarest words: so many of each
# of so many words, so that the cost stays linear.
_NEAREST = 20
_RAREST = 6
# Sentences whose reading is kept: pins and writer, and the next compaction, ask for the same ones.
_REMEMBERED = 4_096
_TOKEN = re.compile(r"[^\W_][\w'’./:@#%$€£-]*")
_AND = re.compile(r"\s(?:and|or|und|oder|et|ou|y|o|e|и|или)\s")
CLAUSE_END = re.compile(r"(?<![,;:.!?])[,;:.!?]++(?:\s|\Z)|[()—，。；：！？、]")


@dataclass(frozen=True, slots=True)
class UserInstruction:
    """A sentence of the user.

    Attributes:
        text: The sentence, on one line.
        turn: The number of its message among all that are looked at.
        rank: How surely it binds: higher precedes lower; what is pasted or chatter ranks low.
        is_lasting: Whether it states a rule for all later work.
    """

    text: str
    turn: int
    rank: float
    is_lasting: bool


class Change(Enum):
    """What a later sentence does to an older one."""

    RESTATED = 1  # is the same rule with another value
    REPLACED = 2  # takes the place of what it says, or of a part
    DOUBTED = 3  # corrects, or lays down a rule on its subject
    ALIKE = 4  # shares much with it

    @property
    def is_sure(self) -> bool:
        """Whether the older sentence holds no more."""
        return self in (Change.RESTATED, Change.REPLACED)


def changes(said: Sequence[UserInstruction]) -> Iterator[tuple[str, str, Change]]:
    """Each of `said`, in the order of saying, that a later one changes, with the later one."""
    known = [_known(item.text) for item in said]
    times = Counter(word for item in known for word in item.shared)
    weights = {word: 1 / (count - 1) for word, count in times.items() if count > 1}
    by_word: dict[str, list[int]] = {}
    for at, newer in enumerate(known):
        shared = sorted(
            (word for word in newer.shared if times[word] > 1),
            key=lambda word: (times[word], word),
        )
        near = {other for word in shared[:_RAREST] for other in by_word.get(word, ())[-_NEAREST:]}
        for other in sorted(near):
            older = known[other]
            if newer.text == older.text or newer.is_question or older.is_question:
                continue
            if said[at].turn == said[other].turn:  # said in one breath, both are meant
                continue
            weight = sum(map(weights.__getitem__, newer.subject.words & older.subject.words))
            change = _change(newer, older, weight, said[at], said[other])
            if change:
                yield older.text, newer.text, change
        for word in shared:
            by_word.setdefault(word, []).append(at)


@dataclass(frozen=True, slots=True)
class _Known:
    """A sentence as it was parsed.

    Attributes:
        text: The sentence.
        subject: What it is about.
        tokens: Its words in order, in small letters.
        negated: What it negates: for each negation the rest of its clause, where not empty.
        forgotten: The subject words of each part of a clause that begins with "forget".
        is_negative: Whether it negates anything.
        corrects: Whether it corrects in words.
        is_question: Whether it asks; who asks has decided nothing.
    """

    text: str
    subject: Topic
    tokens: tuple[str, ...]
    negated: tuple[Topic, ...]
    forgotten: tuple[frozenset[str], ...]
    is_negative: bool
    corrects: bool
    is_question: bool

    @property
    def may_take_back(self) -> bool:
        """Whether it negates or corrects anything."""
        return bool(self.negated or self.forgotten or self.corrects)

    @property
    def shared(self) -> frozenset[str]:
        """What it may share with others: subject words and values."""
        return self.subject.words | self.subject.figures


@lru_cache(maxsize=_REMEMBERED)
def _known(text: str) -> _Known:
    said = without_list_mark(text)
    known = signs()
    subject = topic_of(said)
    negations = list(known.negation.finditer(said))
    behind = [CLAUSE_END.split(said[found.end() :], maxsplit=1)[0] for found in negations]
    clauses = [topic_of(clause) for clause in behind]
    corrects = known.correction.search(said) is not None
    return _Known(
        text,
        subject,
        tuple(match[0].rstrip(".:") for match in _TOKEN.finditer(said.lower())),
        tuple(clause for clause in clauses if clause.words or clause.figures),
        tuple(
            topic_of(part).words
            for found, clause in zip(negations, behind, strict=True)
            if known.correction.match(said, found.start())
            and not topic_of(CLAUSE_END.split(said[: found.start()])[-1]).words
            for part in _AND.split(clause)
        ),
        bool(negations),
        corrects,
        said.endswith(("?", "？")),
    )


def _change(
    newer: _Known, older: _Known, weight: float, new: UserInstruction, old: UserInstruction
) -> Change | None:
    # Most pairs share too little, and nothing is taken back in plain words.
    if weight < _SAME_SUBJECT_WEIGHT and not newer.may_take_back:
        return None
    shared = newer.subject.words & older.subject.words
    forgets = any(len(words & shared) > 1 for words in newer.forgotten)
    has_other = _has_other_of_a_kind(newer, older)
    if (old.is_lasting and forgets) or _takes_back(newer, older, has_other=has_other):
        return Change.REPLACED
    is_near = new.is_lasting or newer.corrects or has_other
    if not is_near or not _competes(newer, older, weight, has_other=has_other):
        return None
    longer = max(len(newer.subject.words), len(older.subject.words))
    if old.is_lasting and has_other and len(shared) >= longer * _ALIKE_SHARE:
        return Change.RESTATED
    # What is asked for in between leaves a rule as it is.
    if len(shared) < 2 or not (newer.corrects or new.is_lasting):
        return Change.ALIKE
    is_new_rule = new.is_lasting and old.is_lasting and newer.corrects
    return Change.REPLACED if is_new_rule else Change.DOUBTED


def _takes_back(newer: _Known, older: _Known, *, has_other: bool) -> bool:
    """Whether `newer` plainly takes back what `older` affirmed, or a value in it."""
    for negated in newer.negated:
        values = negated.figures
        if not (negated.words <= older.subject.words and values <= older.subject.figures):
            continue
        if values and has_other and newer.subject.words & older.subject.words:
            return True  # "The default is 8, not 5."
        # A bare verb may have another object: "the tests, do not edit them".
        is_plain = newer.corrects or len(negated.words) + len(values) > 1
        rest = older.subject.words - negated.words
        if not older.is_negative and (is_plain or not rest) and rest <= newer.subject.words:
            return True
    if not newer.corrects or not has_other:
        return False
    given = older.subject.figures - newer.subject.figures
    if len(given) != 1:
        return False
    rest = older.subject.words - topic_of(*given).words
    return rest <= newer.subject.words and len(rest) >= len(newer.subject.words) * _CORRECTED_SHARE


def _competes(newer: _Known, older: _Known, weight: float, *, has_other: bool) -> bool:
    """Whether both have one subject, so that the newer one may change the older."""
    if weight < _SAME_SUBJECT_WEIGHT:
        return False
    if newer.is_negative and older.is_negative and not (newer.corrects and has_other):
        return False
    return not _are_of_a_series(newer, older)


def _has_other_of_a_kind(newer: _Known, older: _Known) -> bool:
    """Whether both name a value of one kind, and another one."""
    values = newer.subject.values
    return any(values.get(kind, found) != found for kind, found in older.subject.values.items())


def _are_of_a_series(newer: _Known, older: _Known) -> bool:
    """Whether both have one form and differ in two places: in what they are about, and what holds.

    "Server A listens on port 8001" and "Server B listens on port 8002".
    """
    if len(newer.tokens) != len(older.tokens):
        return False
    pairs = enumerate(zip(newer.tokens, older.tokens, strict=True))
    differing = [at for at, (one, other) in pairs if one != other]
    places = sum(1 for at in differing if at - 1 not in differing)
    is_one_form = len(differing) < len(newer.tokens) - len(differing)
    return is_one_form and places > 1
