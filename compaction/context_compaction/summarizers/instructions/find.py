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
from context_compaction.messages.model import Message, Messages, Text
from context_compaction.messages.speakers import user_texts
from context_compaction.summarizers.instructions import typed_text
from context_compaction.summarizers.instructions.own_words import LEFT_OUT, own_words
from context_compaction.summarizers.instructions.signs import Sign, sign
from context_compaction.summarizers.instructions.superseded import (
    CLAUSE_END,
    UserInstruction,
    changes,
)
from context_compaction.summarizers.instructions.typed_text import Sentence, words_of

# A sentence with at least this rank is a rule by its words, wherever it stands.
SURE_RANK = 2.0
# What adds to the rank of a sentence; of the signs of a rule each, up to three.
_TYPED, _LAST, _RULE, _SURE, _QUESTION, _PASTED = 0.75, 0.25, 0.75, 1.0, -1.25, -2.0
_WEIGHTS: Mapping[Sign, float] = {
    "correction": 0.5, "errand": -0.75, "about_oneself": -0.5, "agreement": -1.5,
}  # fmt: skip
# So many words on a subject name something that a later "it" can mean.
_NAMING_WORDS = 2
# What is quoted, or said aside, is not what a sentence lays down.
_ASIDE = re.compile(r'"[^"]*"|„[^“”]*[“”]|“[^”]*”|«[^»]*»|「[^」]*」|\([^()]*\)')
_QUESTION_MARKS = ("?", "？")
_SYSTEM = -1


@dataclass(frozen=True, slots=True)
class UserInstructions:
    """The user's sentences that bind, and those that no longer do."""

    standing: tuple[UserInstruction, ...]  # that may still bind, as they were said last
    # Those that are surely lasting rules, and whole. One that points back ("It must never delete
    # the others.") speaks of what was named before it, and is none; one that may be out of date
    # stands among the user's words, where the order tells.
    rules: tuple[UserInstruction, ...]
    # Those that a later one surely replaces, each with the position of its message; None where that
    # follows the messages.
    replaced: Mapping[str, int | None]
    # By sentence the mark that precedes it in every summary: the one that a previous summary put
    # there, or that it plainly replaces a sentence of the system prompt.
    marks: Mapping[str, str]

    def mark_of(self, text: str, numbers: Sequence[int | None]) -> str:
        """The mark that precedes the sentence `text` in every summary; "" for most.

        `numbers` are those of the messages in the transcript.
        """
        if text in self.replaced:
            at = self.replaced[text]
            # Much of what stands beside a new value mostly holds: "one commit per item, prefix x".
            return placeholders.superseded_mark(None if at is None else numbers[at], "changed")
        return self.marks.get(text, "")


def find_instructions(
    messages: Messages,
    *,
    later: Messages = (),
    system: str = "",
    is_typed: bool = True,
) -> UserInstructions:
    """The user's sentences in `messages`, ranked; those in `later` only correct.

    The rules of the `system` prompt are not returned, since the host sends it with every call; a
    user's sentence that replaces one of them surely binds. What the user quoted or pasted in a
    marked form is left out, unless `is_typed` is false.
    """
    found: dict[str, UserInstruction] = {}
    marks: dict[str, str] = {}
    for turn, sentence in _sentences(system, (*messages, *later), is_typed=is_typed):
        mark, text = placeholders.split_mark(typed_text.without_gap(sentence.text))
        if turn >= len(messages) and text in found and found[text].turn != _SYSTEM:
            continue
        found.pop(text, None)  # said again: it counts as said last, and holds again
        found[text] = _instruction(text, sentence, turn)
        marks[text] = mark
    replaced: dict[str, int | None] = {}
    doubted: set[str] = set()
    typed = [said for said in found.values() if said.rank >= 0 and not said.is_pasted]
    # Who asks has decided nothing.
    decided = [said for said in typed if not said.text.endswith(_QUESTION_MARKS)]
    for older, newer, is_sure in changes(decided):
        new, rank, is_lasting = found[newer.text], older.rank, False
        if not is_sure:
            doubted.add(older.text)
            is_lasting = older.is_lasting
        elif older.turn == _SYSTEM:
            marks[newer.text] = placeholders.DIFFERS
            rank, is_lasting = SURE_RANK, True
        else:
            replaced[older.text] = newer.turn if newer.turn < len(messages) else None
        is_lasting = is_lasting or new.is_lasting
        found[newer.text] = replace(new, rank=max(new.rank, rank), is_lasting=is_lasting)
    standing = tuple(said for said in found.values() if 0 <= said.turn < len(messages))
    rules = (
        said
        for said in standing
        if said.rank >= SURE_RANK and said.is_lasting
        if said.text not in doubted and said.text not in replaced
        if not said.text.endswith(LEFT_OUT) and not _points_back(said.text)
    )
    return UserInstructions(standing, tuple(rules), replaced, marks)


def instructions_in(text: str) -> tuple[UserInstruction, ...]:
    """The sentences of `text`, whoever wrote it, ranked as if the user had said them."""
    said = Message("user", (Text(typed_text.unbroken(text), author="user"),))
    return find_instructions((said,), is_typed=False).standing


def has_sign(said: UserInstruction) -> bool:
    """Whether any word of a sentence lays down something, wherever it stands."""
    return said.rank - _PASTED * said.is_pasted > _TYPED + _LAST


def _sentences(
    system: str, messages: Messages, *, is_typed: bool
) -> Iterator[tuple[int, Sentence]]:
    """The sentences of the system prompt and of the user, each with the number of its message."""
    yield from ((_SYSTEM, sentence) for sentence in typed_text.sentences_of(system))
    for turn, message in enumerate(messages):
        texts = user_texts(message)
        if is_typed and len(texts) > 1:  # an extract of ours comes by lines, also within a fence
            own = {*own_words("\n".join(texts)).split("\n")}
            texts = [text for text in texts if "\n" in text or text in own]
        for text in texts:
            sentences = typed_text.sentences_of(text, is_typed=is_typed)
            yield from ((turn, sentence) for sentence in sentences)


def _instruction(text: str, sentence: Sentence, turn: int) -> UserInstruction:
    rank, is_lasting = _by_words(text)
    rank += _LAST * sentence.is_last + _PASTED * sentence.is_pasted
    if sentence.is_listed_rule:
        rank = max(rank, SURE_RANK)
    is_lasting = is_lasting or sentence.is_listed_rule
    return UserInstruction(text, turn, rank, is_lasting, sentence.is_pasted)


@lru_cache(maxsize=16_384)  # pins and writer, and the next compaction, ask for the same
def _by_words(text: str) -> tuple[float, bool]:
    """The rank of a sentence by its words alone, and whether it states a lasting rule."""
    said = _ASIDE.sub("", typed_text.without_list_mark(text))
    rules = len({match[0].lower() for match in sign("rule").finditer(said)})
    found: set[Sign] = {name for name in _WEIGHTS if sign(name).search(said)}
    is_question = text.endswith(_QUESTION_MARKS)
    rank = (
        _TYPED
        + _RULE * min(rules, 3)
        + _SURE * any(sign(name).search(said) for name in ("lasting", "sure"))
        + _QUESTION * is_question
        + sum(_WEIGHTS[name] for name in found)
        # Wishes of one's own are worded like rules.
        + _WEIGHTS["about_oneself"] * (rules > 0 and "about_oneself" in found)
    )
    if is_question or text.endswith((":", "：")) or found & {"agreement", "errand"}:
        return rank, False
    return rank, any(_is_head(said, match.start()) for match in sign("lasting").finditer(said))


def _is_head(said: str, stop: int) -> bool:
    """Whether a sign at `stop` applies to `said` itself: not reported, in no subordinate clause."""
    if sign("telling").search(said, 0, stop):
        return False
    if said.startswith((",", "–", "—"), stop):
        # After a condition or two words, not the next of many requests.
        return bool(sign("under").match(said)) or len(words_of(said[:stop])) < _NAMING_WORDS
    clause = max((end.end() for end in CLAUSE_END.finditer(said, 0, stop)), default=0)
    return sign("under").search(said, clause, stop) is None


def _points_back(text: str) -> bool:
    """Whether `text` names nothing before a word that needs a name ("Don't mention it again.")."""
    word = sign("points").search(text)
    if word is None or text.startswith(":", word.end()):
        return False
    is_object = CLAUSE_END.match(text, word.end()) is not None  # "Don't come back to it."
    return len(words_of(text[: word.start()])) < _NAMING_WORDS + is_object
