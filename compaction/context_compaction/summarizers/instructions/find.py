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

SURE_RANK = 2.0
"""From this rank on, a sentence is a rule by its words alone."""

# What is added to the rank of a sentence. `_RULE` counts for up to three signs of a rule.
_TYPED, _LAST, _RULE, _SURE, _QUESTION, _PASTED = 0.75, 0.25, 0.75, 1.0, -1.25, -2.0
_SIGN_WEIGHTS: Mapping[Sign, float] = {
    "correction": 0.5, "errand": -0.75, "about_oneself": -0.5, "agreement": -1.5,
}  # fmt: skip
# This many subject words name something that a later "it" can mean.
_NAMING_WORDS = 2
# Quoted or parenthesized text, which is no rule by itself.
_ASIDE = re.compile(r'"[^"]*"|„[^“”]*[“”]|“[^”]*”|«[^»]*»|「[^」]*」|\([^()]*\)')
_QUESTION_MARKS = ("?", "？")
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
    for turn, sentence in _sentences(system, (*messages, *later), is_typed=is_typed):
        unmarked = sentence.text.removeprefix(OMISSION).lstrip()
        mark, text = placeholders.split_mark(unmarked)
        if turn >= len(messages) and text in found and found[text].turn != _SYSTEM_TURN:
            continue
        found.pop(text, None)  # a repeated sentence counts at its last occurrence
        found[text] = _instruction(text, sentence, turn)
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
            rank, is_lasting = SURE_RANK, True
        else:
            replaced[older.text] = newer.turn if newer.turn < len(messages) else None
        rank = max(rank, current.rank)
        found[newer.text] = replace(current, rank=rank, is_lasting=is_lasting)
    candidates = tuple(one for one in found.values() if 0 <= one.turn < len(messages))
    uncertain = doubtful | replaced.keys()
    rules = tuple(one for one in candidates if one.text not in uncertain and _is_sure_rule(one))
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
) -> Iterator[tuple[int, Sentence]]:
    """Yield the sentences of the system prompt and of the user, each with its turn."""
    yield from ((_SYSTEM_TURN, sentence) for sentence in sentences_of(system))
    for turn, message in enumerate(messages):
        texts = user_texts(message)
        if is_typed and len(texts) > 1:  # an extract of this library has one text for each line
            own_lines = {*own_words("\n".join(texts)).split("\n")}
            texts = [text for text in texts if "\n" in text or text in own_lines]
        for text in texts:
            yield from ((turn, one) for one in sentences_of(text, is_typed=is_typed))


def _instruction(text: str, sentence: Sentence, turn: int) -> UserInstruction:
    rank, is_lasting = _rank_by_words(text)
    rank += _LAST * sentence.is_last + _PASTED * sentence.is_pasted
    if sentence.is_listed_rule:
        rank, is_lasting = max(rank, SURE_RANK), True
    return UserInstruction(text, turn, rank, is_lasting, sentence.is_pasted)


@lru_cache(
    maxsize=16_384
)  # pins, the summary and the next compaction ask for these sentences again
def _rank_by_words(text: str) -> tuple[float, bool]:
    """Return the rank of a sentence by its words, and whether it states a lasting rule."""
    content = _ASIDE.sub("", without_list_mark(text))
    rule_signs = {match[0].lower() for match in sign_pattern("rule").finditer(content)}
    signs = {sign for sign in _SIGN_WEIGHTS if sign_pattern(sign).search(content)}
    is_sure = any(sign_pattern(sign).search(content) for sign in ("lasting", "sure"))
    is_question = text.endswith(_QUESTION_MARKS)
    rank = _TYPED + _RULE * min(len(rule_signs), 3) + _SURE * is_sure + _QUESTION * is_question
    rank += sum(_SIGN_WEIGHTS[sign] for sign in signs)
    if rule_signs and "about_oneself" in signs:
        rank += _SIGN_WEIGHTS["about_oneself"]  # because wishes for oneself are worded like rules
    if is_question or text.endswith((":", "：")) or signs & {"agreement", "errand"}:
        return rank, False
    lasting = sign_pattern("lasting").finditer(content)
    return rank, any(_applies_to_sentence(content, match.start()) for match in lasting)


def _applies_to_sentence(content: str, start: int) -> bool:
    """Whether a sign at `start` applies to the whole sentence: no report, no subordinate clause."""
    if sign_pattern("telling").search(content, 0, start):
        return False
    under = sign_pattern("under")
    if content.startswith((",", "–", "—"), start):
        # A sign of a rule after a condition or one word. Elsewhere it belongs to one of many
        # requests.
        return bool(under.match(content)) or len(subject_words(content[:start])) < _NAMING_WORDS
    clause = max((end.end() for end in CLAUSE_END.finditer(content, 0, start)), default=0)
    return under.search(content, clause, start) is None


def _is_sure_rule(sentence: UserInstruction) -> bool:
    """Whether a sentence is certainly a lasting rule, is whole, and is clear alone."""
    is_rule = sentence.rank >= SURE_RANK and sentence.is_lasting
    return is_rule and not sentence.text.endswith(OMISSION) and not _points_back(sentence.text)


def _points_back(text: str) -> bool:
    """Whether `text` names nothing before a word that needs a name ("Don't mention it again.")."""
    pointer = sign_pattern("points").search(text)
    if pointer is None or text.startswith(":", pointer.end()):
        return False
    is_object = CLAUSE_END.match(text, pointer.end()) is not None  # "Don't come back to it."
    return len(subject_words(text[: pointer.start()])) < _NAMING_WORDS + is_object
