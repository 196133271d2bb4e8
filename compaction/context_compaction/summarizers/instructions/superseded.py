"""Find the user's sentences that later ones replace, or may replace.

A sentence is replaced for certain only if a later turn takes it back in plain words. The later turn
denies the content of the earlier one ("use spaces instead of tabs"), denies a value in it ("8, not
5"), says to forget it, or is a new rule that corrects an older one. Two prohibitions both hold. A
request is never replaced by the next request of that form.

If a later turn only shares the subject, words do not distinguish a new value ("The YAML files get
two-space indentation" after "Indent the YAML files with four spaces") and a second rule. Then both
sentences stay in their order, and the older one no longer counts as one of the surest rules.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from context_compaction.summarizers.instructions.sentences import (
    lower_case,
    sign_pattern,
    subject_words,
    values_in,
    without_list_mark,
)

_CONJUNCTION = re.compile(r"\s(?:and|or|und|oder|et|ou|y|o|e|и|или)\s")
# The least weight of the words that two sentences share. It is just below 1, because the rounding
# error of a sum depends on the order of its terms.
_LEAST_WEIGHT = 0.99
CLAUSE_END = re.compile(r"(?<![,;:.!?])[,;:.!?]++(?:\s|\Z)|[()—，。；：！？、]")


@dataclass(frozen=True, slots=True)
class UserInstruction:
    """A sentence of the user that may bind.

    Attributes:
        text: The sentence on one line.
        turn: Position of its message. -1 for a sentence of the system prompt.
        rank: How surely it binds. Pasted text and chatter rank low.
        is_lasting: Whether it states a rule for all later work.
        is_pasted: Whether it looks pasted, not typed.
    """

    text: str
    turn: int
    rank: float
    is_lasting: bool
    is_pasted: bool = False


def find_changes(
    sentences: Sequence[UserInstruction], *, nearest: int = 20, rarest: int = 6
) -> Iterator[tuple[UserInstruction, UserInstruction, bool]]:
    """Yield each sentence that a later turn changes, and the later sentence.

    The third value is whether the later sentence replaces the older one for certain. If not, both
    only share a subject. To keep the cost linear, a sentence is compared with the `nearest`
    sentences before it that share one of its `rarest` terms.
    """
    contents = [_content_of(sentence.text) for sentence in sentences]
    counts = Counter(term for content in contents for term in content.terms)
    indices_by_term: dict[str, list[int]] = {}
    for index, (newer, content) in enumerate(zip(sentences, contents, strict=True)):
        shared = sorted(
            (term for term in content.terms if counts[term] > 1),
            key=lambda term: (counts[term], term),
        )
        candidates: set[int] = set()
        if _may_change(content, counts):
            for term in shared[:rarest]:
                candidates.update(indices_by_term.get(term, ())[-nearest:])
        binds = newer.is_lasting or any(content.denied) or content.corrects
        for candidate in sorted(candidates):
            older = sentences[candidate]
            # All sentences of one turn hold together, and small talk changes only rules.
            if older.turn == newer.turn or not (binds or older.is_lasting):
                continue
            is_certain = _replaces(newer, content, older, contents[candidate], counts)
            if is_certain is not None:
                yield older, newer, is_certain
        for term in shared:
            indices_by_term.setdefault(term, []).append(index)


@dataclass(frozen=True, slots=True)
class _Content:
    """Content of a sentence, for comparison with other sentences.

    Attributes:
        words: Stems of its subject words.
        values: Values that it names.
        terms: Words and values together.
        denied: For each negation, the terms in the rest of its clause.
        forgotten: For each thing to forget ("forget A and B"), its words.
        corrects: Whether it says that it corrects something.
    """

    words: frozenset[str]
    values: frozenset[str]
    terms: frozenset[str]
    denied: tuple[frozenset[str], ...]
    forgotten: tuple[frozenset[str], ...]
    corrects: bool


@lru_cache(
    maxsize=16_384
)  # pins, the summary and the next compaction ask for these sentences again
def _content_of(text: str) -> _Content:
    text = without_list_mark(text)
    lower = lower_case(text)
    denied: list[frozenset[str]] = []
    forgotten: list[frozenset[str]] = []
    correction = sign_pattern("correction")
    for negation in sign_pattern("negation").finditer(lower):
        clause = CLAUSE_END.split(text[negation.end() :], maxsplit=1)[0]
        denied.append(subject_words(clause) | values_in(clause))
        if correction.match(lower, negation.start()):
            forgotten += map(subject_words, _CONJUNCTION.split(clause))
    words, values = subject_words(text), values_in(text)
    corrects = correction.search(lower) is not None
    return _Content(words, values, words | values, tuple(denied), tuple(forgotten), corrects)


def _may_change(content: _Content, counts: Mapping[str, int]) -> bool:
    """Whether `_replaces` can find an older sentence, judged by how often the terms occur.

    False for most of thousands of sentences of one form, which then need no comparison.
    """
    weight = sum(1 / (counts[word] - 1) for word in content.words if counts[word] > 1)
    is_shared = (all(counts[term] > 1 for term in part) for part in content.denied if part)
    return content.corrects or bool(content.forgotten) or weight >= _LEAST_WEIGHT or any(is_shared)


def _replaces(
    newer: UserInstruction,
    new: _Content,
    older: UserInstruction,
    old: _Content,
    counts: Mapping[str, int],
) -> bool | None:
    """Whether the newer sentence replaces the older one. None if their subjects differ."""
    if new.corrects and old.corrects and new.words == old.words:
        return None  # a series: "Update module 1.", "Update module 2."
    if older.is_lasting and any(len(part & old.words) > 1 for part in new.forgotten):
        return True
    if (new.denied or new.corrects) and _withdraws(new, old):
        return True
    common = new.words & old.words
    # A shared word weighs 1 if only these two sentences have it, and less the more others do.
    weight = sum(1 / (counts[word] - 1) for word in common)
    if len(common) < 2 or weight < _LEAST_WEIGHT:
        return None
    has_other_value = bool(new.values and old.values - new.values)
    if new.denied and old.denied and not (new.corrects and has_other_value):
        return None
    if new.corrects or newer.is_lasting:
        return new.corrects and newer.is_lasting and older.is_lasting
    longer = max(len(new.words), len(old.words))
    is_reworded = older.is_lasting and has_other_value and len(common) >= longer / 2
    return False if is_reworded else None


def _withdraws(new: _Content, old: _Content) -> bool:
    """Whether `new` plainly withdraws the content of `old`, or a value in it."""
    other_values = new.values - old.values
    denied = [part for part in new.denied if part and part <= old.terms]
    if other_values and new.words & old.words and any(part & old.values for part in denied):
        return True  # "The default is 8, not 5."
    withdrawn = [] if old.denied else denied
    missing_values = old.values - new.values
    if new.corrects and other_values and len(missing_values) == 1:
        rest = old.words - subject_words(" ".join(missing_values))
        if len(new.words) <= 3 * len(rest):
            withdrawn.append(old.terms - rest)
    return any(old.terms - part <= new.terms for part in withdrawn)
