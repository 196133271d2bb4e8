"""Which of the user's sentences a later one replaces, or may replace.

An earlier sentence is surely replaced only where a later turn takes it back in plain words: it
denies what the earlier one affirmed ("use spaces instead of tabs"), or a value in it ("8, not 5"),
it tells to forget it, or a new rule corrects an older one. It is marked then with the message that
did it. Two prohibitions both hold, and a request is never replaced by the next one of its form.

Where a later turn only has the same subject, the words do not distinguish a new value in other
words ("The YAML files get two-space indentation" after "Indent the YAML files with four spaces")
from a second rule beside the first. Then both stay, in the order in which they were said, and no
rule is lost that still holds; but what may hold no more does not stand among the surest rules.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from context_compaction.summarizers.instructions.signs import sign
from context_compaction.summarizers.instructions.typed_text import (
    values_of,
    without_list_mark,
    words_of,
)

_AND = re.compile(r"\s(?:and|or|und|oder|et|ou|y|o|e|и|или)\s")
CLAUSE_END = re.compile(r"(?<![,;:.!?])[,;:.!?]++(?:\s|\Z)|[()—，。；：！？、]")


@dataclass(frozen=True, slots=True)
class UserInstruction:
    """A sentence of the user, on one line."""

    text: str
    turn: int  # the number of its message among all that are looked at; -1 for the system prompt
    rank: float  # how surely it binds: higher precedes lower; what is pasted or chatter ranks low
    is_lasting: bool  # it states a rule for all later work
    is_pasted: bool = False  # it rather looks so than typed


def changes(
    said: Sequence[UserInstruction], *, nearest: int = 20, rarest: int = 6
) -> Iterator[tuple[UserInstruction, UserInstruction, bool]]:
    """Each of `said`, in the order of saying, that one of a later turn changes, with the later.

    The last is whether that surely takes its place; else it only has the same subject. A sentence
    is compared with the `nearest` of those that have one of its `rarest` terms, so that the cost
    stays linear.
    """
    known = [_reading(item.text) for item in said]
    times = Counter(term for item in known for term in item.terms)
    by_term: dict[str, list[int]] = {}
    for at, (new, newer) in enumerate(zip(said, known, strict=True)):
        shared = sorted(
            (term for term in newer.terms if times[term] > 1), key=lambda term: (times[term], term)
        )
        near: set[int] = set()
        if _may_change(newer, times):
            near |= {
                other for term in shared[:rarest] for other in by_term.get(term, ())[-nearest:]
            }
        binds = new.is_lasting or any(newer.denied) or newer.corrects
        for old, older in ((said[other], known[other]) for other in sorted(near)):
            # What is said in one breath is all meant, and talk changes a rule at most.
            if old.turn == new.turn or not (binds or old.is_lasting):
                continue
            is_sure = _change(newer, older, times, new, old)
            if is_sure is not None:
                yield old, new, is_sure
        for term in shared:
            by_term.setdefault(term, []).append(at)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A sentence as it was parsed."""

    words: frozenset[str]
    values: frozenset[str]
    terms: frozenset[str]  # both: what it may share with others
    denied: tuple[frozenset[str], ...]  # for each negation the terms of the rest of its clause
    forgotten: tuple[frozenset[str], ...]  # of each part of a clause with "forget" the words
    corrects: bool  # in words


@lru_cache(maxsize=16_384)  # pins and writer, and the next compaction, ask for the same
def _reading(text: str) -> _Reading:
    said = without_list_mark(text)
    denied: list[frozenset[str]] = []
    forgotten: list[frozenset[str]] = []
    for found in sign("negation").finditer(said):
        clause = CLAUSE_END.split(said[found.end() :], maxsplit=1)[0]
        denied.append(words_of(clause) | values_of(clause))
        if sign("correction").match(said, found.start()):
            forgotten += map(words_of, _AND.split(clause))
    words, values = words_of(said), values_of(said)
    corrects = sign("correction").search(said) is not None
    return _Reading(words, values, words | values, tuple(denied), tuple(forgotten), corrects)


def _may_change(newer: _Reading, times: Mapping[str, int]) -> bool:
    """Whether `_change` may find an older sentence, by how often the terms of `newer` occur.

    It is false for most of thousands of sentences of one form, which then cost no comparison.
    """
    weight = sum(1 / (times[word] - 1) for word in newer.words if times[word] > 1)
    is_shared = (all(times[term] > 1 for term in part) for part in newer.denied if part)
    return newer.corrects or bool(newer.forgotten) or weight > 0.99 or any(is_shared)


def _change(
    newer: _Reading,
    older: _Reading,
    times: Mapping[str, int],
    new: UserInstruction,
    old: UserInstruction,
) -> bool | None:
    """Whether the newer sentence replaces the older; None where their subjects differ."""
    if newer.corrects and older.corrects and newer.words == older.words:
        return None  # of a series: "Update module 1.", "Update module 2."
    if old.is_lasting and any(len(part & older.words) > 1 for part in newer.forgotten):
        return True
    if (newer.denied or newer.corrects) and _takes_back(newer, older):
        return True
    common = newer.words & older.words
    # A shared word weighs 1 where only these two sentences have it, and less the more others do.
    if len(common) < 2 or sum(1 / (times[word] - 1) for word in common) < 1:
        return None
    has_other = bool(newer.values and older.values - newer.values)
    if newer.denied and older.denied and not (newer.corrects and has_other):
        return None
    if newer.corrects or new.is_lasting:
        return newer.corrects and new.is_lasting and old.is_lasting
    longer = max(len(newer.words), len(older.words))
    is_said_anew = old.is_lasting and has_other and len(common) >= longer / 2
    return False if is_said_anew else None


def _takes_back(newer: _Reading, older: _Reading) -> bool:
    """Whether `newer` plainly takes back what `older` affirmed, or a value in it."""
    other = newer.values - older.values
    denied = [part for part in newer.denied if part and part <= older.terms]
    if other and newer.words & older.words and any(part & older.values for part in denied):
        return True  # "The default is 8, not 5."
    gone = [] if older.denied else denied
    lost = older.values - newer.values
    if newer.corrects and other and len(lost) == 1:
        rest = older.words - words_of(" ".join(lost))
        if len(newer.words) <= 3 * len(rest):
            gone.append(older.terms - rest)
    return any(older.terms - part <= newer.terms for part in gone)
