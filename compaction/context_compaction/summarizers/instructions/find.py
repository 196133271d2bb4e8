"""Find what binds: sentences in which the user states rules, preferences, decisions, corrections.

No pattern knows every phrasing, so this is a ranking and not a filter. Every sentence that a user
typed is a candidate, and the sentences with the lowest rank are dropped first. Patterns in many
languages recognize sure rules, small talk and the business of the moment. The other evidence needs
no language: whether a sentence looks typed, and whether it ends the turn.

A later turn replaces a sentence for certain only if it takes the sentence back in plain words. It
denies its content ("use spaces instead of tabs"), denies a value in it ("8, not 5"), says to forget
it, or is a new rule that corrects it. Two prohibitions both hold. A request is never replaced by
the next request of that form. If a later turn only shares the subject, words do not distinguish a
new value from a second rule. Then both sentences stay in their order, and the older one no longer
counts as one of the surest rules.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache

from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages, Text
from context_compaction.messages.speakers import user_texts
from context_compaction.summarizers.instructions.sentences import (
    OMISSION,
    Sentence,
    Sign,
    lower_case,
    own_words,
    sentences_of,
    sign_pattern,
    subject_words,
    values_in,
    without_list_mark,
)

CERTAIN_RANK = 2.0
"""From this rank on, a sentence is a rule by its words alone."""
BINDING_RANK = 1.0
"""Sentences with a lower rank are small talk, or hold only for the moment."""

# What is added to the rank of a sentence. `_RULE` counts for up to three signs of a rule.
_TYPED, _LAST, _RULE, _CERTAIN, _QUESTION, _PASTED = 0.75, 0.25, 0.75, 1.0, -1.25, -2.0
_SIGN_WEIGHTS: Mapping[Sign, float] = {
    "correction": 0.5, "errand": -0.75, "about_oneself": -0.5, "agreement": -1.5,
}  # fmt: skip
_OTHER_SIGNS: tuple[Sign, ...] = ("correction", "errand", "agreement")
# Quoted or parenthesized text, which is no rule by itself.
_ASIDE = re.compile(r'"[^"]*"|„[^“”]*[“”]|“[^”]*”|«[^»]*»|「[^」]*」|\([^()]*\)')
_QUESTION_MARKS = ("?", "？")
_SYSTEM_TURN = -1
_CONJUNCTION = re.compile(r"\s(?:and|or|und|oder|et|ou|y|o|e|и|или)\s")
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


@dataclass(frozen=True, slots=True)
class UserInstructions:
    """The user's sentences that bind or once bound.

    Attributes:
        candidates: All sentences that may bind, each at its last occurrence.
        rules: The candidates that are certainly lasting rules. Not among them: sentences that point
            back ("Never delete it."), and sentences that may be out of date.
        replaced: For each sentence that a later one certainly replaces, the position of the later
            message.
        marks: For each sentence, the mark that every summary shows before it. An earlier summary
            set it, or the sentence conflicts with the system prompt.
    """

    candidates: tuple[UserInstruction, ...]
    rules: tuple[UserInstruction, ...]
    replaced: Mapping[str, int]
    marks: Mapping[str, str]

    def mark_of(self, text: str, numbers: Sequence[int | None]) -> str:
        """Return the mark before the sentence `text` in every summary. "" for most sentences.

        `numbers` are the numbers of the messages in the transcript.
        """
        if text in self.replaced:
            return placeholders.superseded_mark(numbers[self.replaced[text]])
        return self.marks.get(text, "")


def find_instructions(
    messages: Messages, *, system: str = "", is_typed: bool = True
) -> UserInstructions:
    """Return the ranked sentences of the user in `messages`.

    Args:
        messages: The messages to read.
        system: The system prompt. Its rules are not returned, because the host sends them with
            every call. A user's sentence that replaces such a rule certainly binds.
        is_typed: Whether to skip text that the user quoted or pasted in a marked form.
    """
    found: dict[str, UserInstruction] = {}
    marks: dict[str, str] = {}
    for turn, sentences in _sentences(system, messages, is_typed=is_typed):
        for mark, instruction in _instructions(turn, sentences):
            text = instruction.text
            found.pop(text, None)  # a repeated sentence counts at its last occurrence
            found[text] = instruction
            marks[text] = mark
    replaced: dict[str, int] = {}
    doubtful: set[str] = set()
    decisions = [
        sentence
        for sentence in found.values()
        if sentence.rank >= 0 and not sentence.is_pasted
        if not sentence.text.endswith(_QUESTION_MARKS)  # because a question decides nothing
    ]
    for older, newer, is_certain in _changes(decisions):
        current = found[newer.text]
        rank, is_lasting = older.rank, current.is_lasting
        if not is_certain:
            doubtful.add(older.text)
            is_lasting = is_lasting or older.is_lasting
        elif older.turn == _SYSTEM_TURN:
            marks[newer.text] = placeholders.DIFFERS
            rank, is_lasting = CERTAIN_RANK, True
        else:
            replaced[older.text] = newer.turn
        rank = max(rank, current.rank)
        found[newer.text] = replace(current, rank=rank, is_lasting=is_lasting)
    candidates = tuple(sentence for sentence in found.values() if sentence.turn != _SYSTEM_TURN)
    uncertain = doubtful | replaced.keys()
    rules = tuple(
        sentence
        for sentence in candidates
        if sentence.text not in uncertain and _is_certain_rule(sentence)
    )
    return UserInstructions(candidates, rules, replaced, marks)


def instructions_in(text: str) -> tuple[UserInstruction, ...]:
    """Return the sentences of `text` by any author, ranked like sentences of the user."""
    message = Message("user", (Text(text, author="user"),))
    return find_instructions((message,), is_typed=False).candidates


def has_rule_sign(sentence: UserInstruction) -> bool:
    """Whether any word of the sentence is a sign of a rule."""
    return sentence.rank - _PASTED * sentence.is_pasted > _TYPED + _LAST


def _sentences(
    system: str, messages: Messages, *, is_typed: bool
) -> Iterator[tuple[int, Sequence[Sentence]]]:
    """Yield the sentences of each text of the system prompt and of the user, with its turn."""
    yield _SYSTEM_TURN, sentences_of(system)
    for turn, message in enumerate(messages):
        texts = user_texts(message)
        if is_typed and len(texts) > 1:  # an extract of this library has one text for each line
            own_lines = {*own_words("\n".join(texts)).split("\n")}
            texts = [text for text in texts if "\n" in text or text in own_lines]
        for text in texts:
            yield turn, sentences_of(text, is_typed=is_typed)


def _instructions(
    turn: int, sentences: Sequence[Sentence]
) -> Iterator[tuple[str, UserInstruction]]:
    """Yield the mark and the instruction of each sentence of one text.

    The statement after a rule on the same line binds as well, because it often has the reason or an
    exception.
    """
    rule_line: int | None = None
    for sentence in sentences:
        unmarked = sentence.text.removeprefix(OMISSION).lstrip()
        mark, text = placeholders.split_mark(unmarked)
        instruction = _instruction(text, sentence, turn)
        is_rule = not sentence.is_pasted and instruction.rank >= _TYPED + _RULE
        if sentence.line == rule_line and _may_explain(instruction):
            instruction = replace(instruction, rank=max(instruction.rank, BINDING_RANK))
        rule_line = sentence.line if is_rule else None
        yield mark, instruction


def _may_explain(sentence: UserInstruction) -> bool:
    """Whether a sentence after a rule may be its reason: no question, thanks or pasted text."""
    is_question = sentence.text.endswith(_QUESTION_MARKS)
    is_agreement = sign_pattern("agreement").search(lower_case(sentence.text)) is not None
    return not (sentence.is_pasted or is_question or is_agreement)


def _instruction(text: str, sentence: Sentence, turn: int) -> UserInstruction:
    rank, is_lasting = _rank_by_words(text)
    rank += _LAST * sentence.is_last + _PASTED * sentence.is_pasted
    if sentence.is_listed_rule:
        rank, is_lasting = max(rank, CERTAIN_RANK), True
    return UserInstruction(text, turn, rank, is_lasting, sentence.is_pasted)


@lru_cache(maxsize=16_384)  # the next compaction asks for these sentences again
def _rank_by_words(text: str) -> tuple[float, bool]:
    """Return the rank of a sentence by its words, and whether it states a lasting rule."""
    content = _ASIDE.sub("", without_list_mark(text))
    lower = lower_case(content)
    personal = [
        match
        for match in sign_pattern("about_oneself").finditer(lower)
        # A report about oneself after the statement is a reason: "Be brief, I'm in a hurry."
        if len(subject_words(content[: match.start()])) < 2
    ]
    rule_matches = [
        match
        for match in sign_pattern("rule").finditer(lower)
        # "I don't" is no prohibition.
        if not any(span.start() <= match.start() < span.end() for span in personal)
    ]
    rule_signs = {match[0] for match in rule_matches}
    signs: set[Sign] = {sign for sign in _OTHER_SIGNS if sign_pattern(sign).search(lower)}
    if personal:
        signs.add("about_oneself")
    is_lasting = sign_pattern("lasting").search(lower) is not None
    is_certain = is_lasting or sign_pattern("sure").search(lower) is not None
    head, _, tag = text.replace("，", ", ").rpartition(", ")
    # One word at the end only asks for consent: "Leave the config alone, okay?"
    asks_consent = " " in head and tag.rstrip(" ?？").isalpha()
    is_question = text.endswith(_QUESTION_MARKS) and not asks_consent
    rank = _TYPED + _RULE * min(len(rule_signs), 3) + _CERTAIN * is_certain
    rank += _SIGN_WEIGHTS["correction"] * ("correction" in signs)
    penalties = [_SIGN_WEIGHTS[sign] for sign in signs if sign != "correction"]
    penalties += [_QUESTION] * is_question
    if is_certain or (rule_matches and CLAUSE_END.search(content, 0, rule_matches[-1].start())):
        # The penalties are for the first clause, so a rule in another one loses only once.
        rank += min(penalties, default=0.0)
    else:
        rank += sum(penalties)
        if rule_signs and personal:
            rank += _SIGN_WEIGHTS["about_oneself"]  # wishes for oneself are worded like rules
    if is_question or text.endswith((":", "：")) or signs & {"agreement", "errand"}:
        return rank, False
    return rank, is_lasting


def _is_certain_rule(sentence: UserInstruction) -> bool:
    """Whether a sentence is certainly a lasting rule, and is whole."""
    is_rule = sentence.rank >= CERTAIN_RANK and sentence.is_lasting
    return is_rule and not sentence.text.endswith(OMISSION)


# Changes of earlier sentences ------------------------------------------------------------------


def _changes(
    sentences: Sequence[UserInstruction], *, nearest: int = 10, rarest: int = 4
) -> Iterator[tuple[UserInstruction, UserInstruction, bool]]:
    """Yield each sentence that a later turn changes, and the later sentence.

    The third value is whether the later sentence replaces the older one for certain. If not, both
    only share a subject. To keep the cost linear, a sentence is compared with the `nearest`
    sentences before it that share one of its `rarest` terms.
    """
    contents = [_content_of(sentence.text) for sentence in sentences]
    counts = Counter(term for content in contents for term in content.terms)
    # The more sentences have a word, the less it says about the subject.
    telling = {term for term, count in counts.items() if count <= 3}
    indices_by_term: dict[str, list[int]] = {}
    for index, (newer, content) in enumerate(zip(sentences, contents, strict=True)):
        shared = [term for term in content.terms if counts[term] > 1]
        shared.sort(key=lambda term: (counts[term], term))
        candidates: set[int] = set()
        for term in shared[:rarest]:
            candidates.update(indices_by_term.get(term, ())[-nearest:])
        binds = newer.is_lasting or any(content.denied) or content.corrects
        for candidate in sorted(candidates):
            older = sentences[candidate]
            # All sentences of one turn hold together, and small talk changes only rules.
            if older.turn == newer.turn or not (binds or older.is_lasting):
                continue
            is_certain = _replaces(newer, content, older, contents[candidate], telling)
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


@lru_cache(maxsize=16_384)  # the next compaction asks for these sentences again
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
    corrects = correction.search(lower) is not None
    words, values = subject_words(text), values_in(text)
    return _Content(words, values, words | values, tuple(denied), tuple(forgotten), corrects)


def _replaces(
    newer: UserInstruction,
    new: _Content,
    older: UserInstruction,
    old: _Content,
    telling: Set[str],
) -> bool | None:
    """Whether the newer sentence replaces the older one. None if their subjects differ.

    `telling` are the words that few sentences have.
    """
    if new.corrects and old.corrects and new.words == old.words:
        return None  # a series: "Update module 1.", "Update module 2."
    forgotten = new.forgotten if older.is_lasting else ()
    if forgotten and any(len(part & old.words) > 1 for part in forgotten):
        return True
    if (new.denied or new.corrects) and _withdraws(new, old):
        return True
    common = new.words & old.words
    if len(common) < 2 or common.isdisjoint(telling):
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
    denied = [part for part in new.denied if part and part <= old.terms]
    has_other_value = not new.values <= old.values
    is_related = denied and has_other_value and new.words & old.words
    if is_related and any(part & old.values for part in denied):
        return True  # "The default is 8, not 5."
    if (
        denied
        and not old.denied
        and any(
            old.terms - part <= new.terms or (new.corrects and 2 * len(part) > len(old.terms) > 2)
            for part in denied
        )
    ):
        return True  # "Use spaces instead of tabs.", "No more deploys on Fridays."
    missing_values = old.values - new.values
    if not (new.corrects and has_other_value and len(missing_values) == 1):
        return False
    subject = old.words - subject_words(" ".join(missing_values))
    # A long sentence also has the words of a short one by chance.
    return subject <= new.words and len(new.words) <= 3 * len(subject)
