"""What binds: sentences of the user that state rules, preferences, decisions and corrections.

No pattern knows every phrasing. So it is a ranking, not a filter: every sentence that a user typed
is a candidate, and what does not fit is left out from the end of the list. Patterns of many
languages recognise what is surely a rule, and what is chatter or the business of the moment; the
other signs need no language: whether the sentence looks typed, and whether it is alone or
at the end of its turn.

`find_instructions` is what other parts use: a `UserInstruction` whose rank is `SURE_RANK` or more
is a rule by its words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages
from context_compaction.messages.speakers import user_texts
from context_compaction.summarizers.instructions import typed_text
from context_compaction.summarizers.instructions.signs import signs
from context_compaction.summarizers.instructions.superseded import (
    CLAUSE_END,
    Change,
    UserInstruction,
    changes,
)
from context_compaction.summarizers.instructions.topics import topic_of
from context_compaction.summarizers.instructions.typed_text import Sentence

# A sentence with at least this rank is a rule by its words, wherever it stands.
SURE_RANK = 2.0
# What a sentence begins with for being typed at all.
_TYPED_RANK = 0.75
# Sentences whose rank by words is kept: pins and writer, and the next compaction, ask for the same.
_REMEMBERED = 4_096
_SURE_WEIGHT = 1.0
_CORRECTION_WEIGHT = 0.5
_ERRAND_WEIGHT = -0.75
_AGREEMENT_WEIGHT = -1.5
# What is quoted, or said aside, is not what a sentence lays down.
_ASIDE = re.compile(r'"[^"]*"|\([^()]*\)')
# So many words on a subject name something that a later "it" can mean.
_NAMING_WORDS = 2


@dataclass(frozen=True, slots=True)
class UserInstructions:
    """The user's sentences that bind, and those that no longer do.

    Attributes:
        standing: The sentences that may still bind, in the order in which they were said last.
        rules: Those that are surely lasting rules, and whole. One that points back ("It must never
            delete the others.") speaks of what was named before it, and is none; one that may be
            out of date stands among the user's words, where the order tells.
        replaced: Those that a later one surely replaces, each with the position of its message;
            None where that follows the messages.
        marks: By sentence the mark that precedes it in every summary: the one that a previous
            summary put there, or that it plainly replaces a sentence of the system prompt.
    """

    standing: tuple[UserInstruction, ...]
    rules: tuple[UserInstruction, ...]
    replaced: Mapping[str, int | None]
    marks: Mapping[str, str]

    def mark_of(self, text: str, numbers: Sequence[int | None]) -> str:
        """The mark that precedes the sentence `text` in every summary; "" for most.

        Args:
            text: The sentence.
            numbers: For each message its number in the transcript.
        """
        if text in self.replaced:
            at = self.replaced[text]
            return placeholders.replaced_by(None if at is None else numbers[at])
        return self.marks.get(text, "")


def find_instructions(
    messages: Messages,
    *,
    later: Messages = (),
    system: str = "",
) -> UserInstructions:
    """The user's sentences in `messages`, ranked.

    Args:
        messages: The conversation.
        later: The messages after it; they only correct.
        system: The text of the system prompt. Its rules are not returned, since the host sends it
            with every call; a user's sentence that replaces one of them surely binds.
    """
    found: dict[str, UserInstruction] = {}
    marks: dict[str, str] = {}
    pasted: set[str] = set()
    for turn, whole in _sentences(messages):
        mark, text = placeholders.split_mark(typed_text.without_gap(whole.text))
        found.pop(text, None)  # said again: it counts as said last, and holds again
        found[text] = _instruction(replace(whole, text=text), turn)
        marks[text] = mark
        if whole.is_pasted:
            pasted.add(text)
    candidates = [said for said in found.values() if said.rank >= 0 and said.text not in pasted]
    corrections = [
        _instruction(sentence, len(messages) + at)
        for at, sentence in _sentences(later)
        if not sentence.is_pasted and sentence.text not in found
    ]
    marks.update(dict.fromkeys(_differing(system, candidates), placeholders.DIFFERS))
    taken_back: dict[str, int | None] = {}
    doubted: set[str] = set()
    for older, newer, change in changes([*candidates, *corrections]):
        if change is Change.DOUBTED:
            doubted.add(older)
        elif change.is_sure and older in found:
            taken_back[older] = found[newer].turn if newer in found else None
        if older in found and newer in found:
            is_restated = change is Change.RESTATED
            found[newer] = _raised(found[newer], found[older].rank, is_lasting=is_restated)
    for text, mark in marks.items():
        if mark == placeholders.DIFFERS:
            found[text] = _raised(found[text], SURE_RANK, is_lasting=True)
    rules = (
        said
        for said in found.values()
        if said.rank >= SURE_RANK and said.is_lasting
        if said.text not in doubted and said.text not in taken_back
        if not said.text.endswith(typed_text.LEFT_OUT) and not _points_back(said.text)
    )
    return UserInstructions(tuple(found.values()), tuple(rules), taken_back, marks)


def _raised(said: UserInstruction, rank: float, *, is_lasting: bool) -> UserInstruction:
    """`said`, which takes the place of a rule of this `rank` and binds as that did."""
    return replace(said, rank=max(said.rank, rank), is_lasting=said.is_lasting or is_lasting)


def _sentences(messages: Messages) -> Iterator[tuple[int, Sentence]]:
    """The sentences that the user said, each with the number of its message."""
    for turn, message in enumerate(messages):
        for text in user_texts(message):
            yield from ((turn, sentence) for sentence in typed_text.sentences_of(text))


def _instruction(sentence: Sentence, turn: int) -> UserInstruction:
    text = sentence.text
    rank = _TYPED_RANK + _words_rank(text)
    if sentence.is_pasted:
        rank -= 2.0
    if sentence.is_last:
        rank += 0.25
    if sentence.is_listed_rule:
        rank = max(rank, SURE_RANK)
    return UserInstruction(text, turn, rank, sentence.is_listed_rule or is_lasting(text))


def _differing(system: str, said: Sequence[UserInstruction]) -> frozenset[str]:
    """The texts of `said` that plainly replace a sentence of the system prompt."""
    rules = dict.fromkeys(sentence.text for sentence in typed_text.sentences_of(system))
    if not rules:
        return frozenset()
    asked = [UserInstruction(rule, -1, 0.0, is_lasting(rule)) for rule in rules]
    found = changes([*asked, *(item for item in said if item.text not in rules)])
    sure = {older: newer for older, newer, change in found if change.is_sure}
    return frozenset(sure[rule] for rule in rules if rule in sure) - set(rules)


@lru_cache(maxsize=_REMEMBERED)
def is_lasting(text: str) -> bool:
    """Whether a sentence states a lasting rule: no report, no wish and no question."""
    said = _ASIDE.sub("", typed_text.without_list_mark(text))
    known = signs()
    if (
        text.endswith(("?", "？", ":", "："))
        or known.agreement.search(said)
        or known.errand.search(said)
    ):
        return False
    return any(_is_head(said, sign.start()) for sign in known.lasting.finditer(said))


def _is_head(said: str, stop: int) -> bool:
    """Whether a sign at `stop` applies to `said` itself: not reported, in no subordinate clause."""
    known = signs()
    if known.telling.search(said, 0, stop):
        return False
    if said.startswith(
        (",", "–", "—"), stop
    ):  # after a condition or two words, not the next of many requests
        return bool(known.under.match(said)) or len(topic_of(said[:stop]).words) < _NAMING_WORDS
    clause = max((end.end() for end in CLAUSE_END.finditer(said, 0, stop)), default=0)
    return known.under.search(said, clause, stop) is None


def _points_back(text: str) -> bool:
    """Whether `text` names nothing before a word that needs a name ("Don't mention it again.")."""
    word = signs().points.search(text)
    if word is None or text.startswith(":", word.end()):
        return False
    is_object = CLAUSE_END.match(text, word.end()) is not None  # "Don't come back to it."
    return len(topic_of(text[: word.start()]).words) < _NAMING_WORDS + is_object


@lru_cache(maxsize=_REMEMBERED)
def _words_rank(text: str) -> float:
    """The rank by the words alone, in the languages that signs.py knows."""
    text = typed_text.without_list_mark(text)
    known = signs()
    rules = len({match[0].lower() for match in known.rule.finditer(text)})
    rank = min(rules, 3) * 0.75
    if known.lasting.search(text) or known.sure.search(text):
        rank += _SURE_WEIGHT
    if known.correction.search(text):
        rank += _CORRECTION_WEIGHT
    if known.errand.search(text):
        rank += _ERRAND_WEIGHT
    if known.about_oneself.search(text):
        rank -= 1.0 if rules else 0.5
    if known.agreement.search(text):
        rank += _AGREEMENT_WEIGHT
    return rank - 1.25 if text.endswith(("?", "？")) else rank
