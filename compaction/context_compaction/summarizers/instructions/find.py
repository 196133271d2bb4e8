"""Find what binds: sentences in which the user states rules, preferences, decisions, corrections.

No pattern knows every phrasing, so this is a ranking and not a filter. Every sentence that a user
typed is a candidate, and the sentences with the lowest rank are dropped first. Patterns in many
languages recognize sure rules, small talk and the business of the moment. The other evidence needs
no language: whether a sentence looks typed, and whether it ends the turn.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages, Text
from context_compaction.messages.speakers import user_texts
from context_compaction.summarizers.instructions.own_words import OMISSION, own_words
from context_compaction.summarizers.instructions.sentences import (
    Sentence,
    Sign,
    join_wrapped_lines,
    lower_case,
    sentences_of,
    sign_pattern,
    subject_words,
    without_list_mark,
)
from context_compaction.summarizers.instructions.superseded import (
    CLAUSE_END,
    UserInstruction,
    find_changes,
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
# This many subject words name something that a later "it" can mean.
_NAMING_WORDS = 2
# Quoted or parenthesized text, which is no rule by itself.
_ASIDE = re.compile(r'"[^"]*"|„[^“”]*[“”]|“[^”]*”|«[^»]*»|「[^」]*」|\([^()]*\)')
_QUESTION_MARKS = ("?", "？")
# A word that only asks for consent: "Leave the config alone, okay?"
_TAG_QUESTION = re.compile(r"\w\s+\S+(?:,\s+|[，、])[^\W\d]+\s*[?？]\Z")
_SYSTEM_TURN = -1


@dataclass(frozen=True, slots=True)
class UserInstructions:
    """The user's sentences that bind or once bound.

    Attributes:
        candidates: All sentences that may bind, each at its last occurrence.
        rules: The candidates that are certainly lasting rules. Not among them: sentences that point
            back ("Never delete it."), and sentences that may be out of date.
        replaced: For each sentence that a later one certainly replaces, the position of the later
            message. None if that message follows the list.
        marks: For each sentence, the mark that every summary shows before it. An earlier summary
            set it, or the sentence conflicts with the system prompt.
    """

    candidates: tuple[UserInstruction, ...]
    rules: tuple[UserInstruction, ...]
    replaced: Mapping[str, int | None]
    marks: Mapping[str, str]

    def mark_of(self, text: str, numbers: Sequence[int | None]) -> str:
        """Return the mark before the sentence `text` in every summary. "" for most sentences.

        `numbers` are the numbers of the messages in the transcript.
        """
        if text in self.replaced:
            position = self.replaced[text]
            # "Changed" and not "replaced", because the rest of a sentence with a new value often
            # holds: "one commit per item, prefix x".
            number = None if position is None else numbers[position]
            return placeholders.superseded_mark(number, "changed")
        return self.marks.get(text, "")


def find_instructions(
    messages: Messages,
    *,
    later: Messages = (),
    system: str = "",
    is_typed: bool = True,
) -> UserInstructions:
    """Return the ranked sentences of the user in `messages`.

    Args:
        messages: The messages to read.
        later: Messages that follow. Their sentences only correct earlier ones.
        system: The system prompt. Its rules are not returned, because the host sends them with
            every call. A user's sentence that replaces such a rule certainly binds.
        is_typed: Whether to skip text that the user quoted or pasted in a marked form.
    """
    found: dict[str, UserInstruction] = {}
    marks: dict[str, str] = {}
    for turn, sentences in _sentences(system, (*messages, *later), is_typed=is_typed):
        for mark, instruction in _instructions(turn, sentences):
            text = instruction.text
            if turn >= len(messages) and text in found and found[text].turn != _SYSTEM_TURN:
                continue
            found.pop(text, None)  # a repeated sentence counts at its last occurrence
            found[text] = instruction
            marks[text] = mark
    replaced: dict[str, int | None] = {}
    doubtful: set[str] = set()
    decisions = [
        sentence
        for sentence in found.values()
        if sentence.rank >= 0 and not sentence.is_pasted
        if not sentence.text.endswith(_QUESTION_MARKS)  # because a question decides nothing
    ]
    for older, newer, is_certain in find_changes(decisions):
        current = found[newer.text]
        rank, is_lasting = older.rank, current.is_lasting
        if not is_certain:
            doubtful.add(older.text)
            is_lasting = is_lasting or older.is_lasting
        elif older.turn == _SYSTEM_TURN:
            marks[newer.text] = placeholders.DIFFERS
            rank, is_lasting = CERTAIN_RANK, True
        else:
            replaced[older.text] = newer.turn if newer.turn < len(messages) else None
        rank = max(rank, current.rank)
        found[newer.text] = replace(current, rank=rank, is_lasting=is_lasting)
    candidates = tuple(
        sentence for sentence in found.values() if 0 <= sentence.turn < len(messages)
    )
    uncertain = doubtful | replaced.keys()
    rules = tuple(
        sentence
        for sentence in candidates
        if sentence.text not in uncertain and _is_certain_rule(sentence)
    )
    return UserInstructions(candidates, rules, replaced, marks)


def instructions_in(text: str) -> tuple[UserInstruction, ...]:
    """Return the sentences of `text` by any author, ranked like sentences of the user."""
    message = Message("user", (Text(join_wrapped_lines(text), author="user"),))
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


@lru_cache(
    maxsize=16_384
)  # pins, the summary and the next compaction ask for these sentences again
def _rank_by_words(text: str) -> tuple[float, bool]:
    """Return the rank of a sentence by its words, and whether it states a lasting rule."""
    content = _ASIDE.sub("", without_list_mark(text))
    lower = lower_case(content)
    personal = [
        match
        for match in sign_pattern("about_oneself").finditer(lower)
        # A report about oneself after the statement is a reason: "Be brief, I'm in a hurry."
        if len(subject_words(content[: match.start()])) < _NAMING_WORDS
    ]
    rule_matches = [
        match
        for match in sign_pattern("rule").finditer(lower)
        # "I don't" is no prohibition.
        if not any(span.start() <= match.start() < span.end() for span in personal)
    ]
    rule_signs = {match[0] for match in rule_matches}
    signs = {sign for sign in _OTHER_SIGNS if sign_pattern(sign).search(lower)}
    if personal:
        signs.add("about_oneself")
    lasting = [match.start() for match in sign_pattern("lasting").finditer(lower)]
    is_certain = bool(lasting) or sign_pattern("sure").search(lower) is not None
    is_question = text.endswith(_QUESTION_MARKS) and not _TAG_QUESTION.search(text)
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
    return rank, any(_applies_to_sentence(content, lower, start) for start in lasting)


def _applies_to_sentence(content: str, lower: str, start: int) -> bool:
    """Whether a sign at `start` applies to the whole sentence: no report, no subordinate clause."""
    if sign_pattern("telling").search(lower, 0, start):
        return False
    under = sign_pattern("under")
    if content.startswith((",", "–", "—"), start):
        # A sign of a rule after a condition or one word. Elsewhere it belongs to one of many
        # requests.
        return bool(under.match(lower)) or len(subject_words(content[:start])) < _NAMING_WORDS
    clause = max((end.end() for end in CLAUSE_END.finditer(content, 0, start)), default=0)
    return under.search(lower, clause, start) is None


def _is_certain_rule(sentence: UserInstruction) -> bool:
    """Whether a sentence is certainly a lasting rule, is whole, and is clear alone."""
    is_rule = sentence.rank >= CERTAIN_RANK and sentence.is_lasting
    return is_rule and not sentence.text.endswith(OMISSION) and not _refers_back(sentence.text)


def _refers_back(text: str) -> bool:
    """Whether `text` names nothing before a word that needs a name ("Don't mention it again.")."""
    pointer = sign_pattern("points").search(lower_case(text))
    if pointer is None or text.startswith(":", pointer.end()):
        return False
    is_object = CLAUSE_END.match(text, pointer.end()) is not None  # "Don't come back to it."
    return len(subject_words(text[: pointer.start()])) < _NAMING_WORDS + is_object
