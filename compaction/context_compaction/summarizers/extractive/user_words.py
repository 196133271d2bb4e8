"""What the user said, word for word: all of it while it fits, else what binds first.

A message is cut where its paragraphs end, so that a sentence which points back keeps what it points
at, and the members of a list stay together. A sentence that may bind is shown alone where there is
no room for what surrounds it. Paragraphs that look pasted are shown by their beginning and end.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages
from context_compaction.messages.speakers import user_text
from context_compaction.summarizers.extractive.fit import (
    BASE_WANT,
    SMALL_TALK_WANT,
    Line,
    Place,
    versions,
)
from context_compaction.summarizers.extractive.said import ends_of, head_of
from context_compaction.summarizers.instructions.find import UserInstructions, find_instructions
from context_compaction.summarizers.instructions.signs import signs
from context_compaction.summarizers.instructions.typed_text import (
    LEFT_OUT,
    sentences_of,
    without_gap,
)
from context_compaction.tokens.counter import MessageCounter

# A part of a message is about so long; a longer paragraph makes several.
_PART_CHARS = 320
# Of a pasted part so much is told at first, so much where there is room, and so much where room is
# left at the end: a long list that was typed looks pasted, too.
_PASTED_CHARS = (200, 600, 2_000)
_FLOOR_CHARS = 160
# How much less what was asked one request earlier is wanted.
_AGE_WANT = 0.2
# A sentence below this rank is surely of the moment only, or chatter.
_BINDING_RANK = 1.0
# Of one that stands elsewhere.
_GONE_RANK = -9.0
_REQUEST_WANT = 0.6
# The number of a message, and what joins its parts, counts about so much.
_LABEL_TOKENS = 8
# A part no longer than a line is told whole: a sentence in it that points back has its neighbour.
_LINE_CHARS = 120
# What may bind goes before what all sections have to tell.
_BINDING_WANT = -0.07
_SMALL_TALK_CHARS = 48
_EMPTY_CHARS = len("continue with")
# A command to the host.
_COMMAND = re.compile(r"/\w*")
_FIGURE = re.compile(r"[\d/_`]")


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a message.

    Attributes:
        text: Its text.
        rank: How surely it binds: that of its surest sentence.
        is_pasted: Whether it looks pasted.
        binding: Its sentences that may bind, in order, with the sign of what is left out.
    """

    text: str
    rank: float
    is_pasted: bool
    binding: str


def binding_tokens(messages: Messages, count: MessageCounter) -> int:
    """About what the sentences of `messages` count that may bind, with the labels before them."""
    standing = find_instructions(messages).standing
    return sum(
        count.text(said.text) + _LABEL_TOKENS for said in standing if said.rank >= _BINDING_RANK
    )


def user_lines(
    messages: Messages,
    instructions: UserInstructions,
    pinned: Collection[str],
    numbers: Sequence[int | None],
    *,
    has_later: bool,
) -> list[Line]:
    """The user's texts in `messages`, as lines whose place is (position, part).

    Args:
        messages: The conversation.
        instructions: Which of the user's sentences are marked.
        pinned: Sentences that the same summary contains already.
        numbers: For each message its number in the transcript.
        has_later: Whether a request of the user stays in the context after it.
    """
    ranks = {said.text: said.rank for said in instructions.standing}
    shown = {text: f"{instructions.mark_of(text, numbers)}{text}" for text in ranks}
    texts = {at: text for at, message in enumerate(messages) if (text := user_text(message))}
    # Said again, it counts as said last.
    said_at = {
        sentence.text: at
        for at, text in texts.items()
        for sentence in sentences_of(text)
        if len(sentence.text) > _SMALL_TALK_CHARS
    }

    def parts_of(at: int) -> list[_Part]:
        def is_gone(said: str) -> bool:
            return said in pinned or said_at.get(said, at) > at

        return _parts(texts[at], shown, is_gone, ranks)

    parts = {at: parts_of(at) for at in texts}
    parts = {at: found for at, found in parts.items() if any(map(_is_there, found))}
    last = {_flat(found): at for at, found in parts.items()}
    parts = {at: found for at, found in parts.items() if last[_flat(found)] == at}
    requests = [at for at in parts if not _is_small_talk(_flat(parts[at]))] or list(parts)
    if len(requests) < len(parts):  # what says nothing alone is left out
        parts = {at: found for at, found in parts.items() if not _is_empty(found)}
    floors: list[tuple[int, float]] = [(requests[0], -2.0)] if requests else []
    if requests and not has_later:
        floors.append((requests[-1], -3.0))
    lines = [
        line
        for age, (at, found) in enumerate(reversed(parts.items()))
        for number, part in enumerate(found)
        for line in _lines_of(
            (at, number), part, age + number / 1_000, number > 0 and found[number - 1].is_pasted
        )
    ]
    for at, want in floors:
        there = [n for n, part in enumerate(parts[at]) if _is_there(part)]
        number = next((n for n in there if not parts[at][n].is_pasted), there[0])
        text = parts[at][number].text
        short = head_of(text, _FLOOR_CHARS)
        lines = [line for line in lines if line.place != (at, number)]
        lines.append(Line((at, number), want, short))
        if short != text:
            lines.append(Line((at, number), want / 10, text, is_fuller=True))
    return lines


def rendered(chosen: Mapping[Place, str], labels: Sequence[str]) -> list[str]:
    """The chosen parts as one line a message."""
    lines: list[str] = []
    before: Place = (-1, -1)
    for place in sorted(chosen):
        at, number = place
        if at == before[0]:
            gap = " " if number == before[1] + 1 else f" {LEFT_OUT} "
            joined = f"{lines[-1]}{gap}{chosen[place]}"
            lines[-1] = joined.replace(f"{LEFT_OUT} {LEFT_OUT}", LEFT_OUT)
        else:
            gap = f"{LEFT_OUT} " if number and not chosen[place].startswith(LEFT_OUT) else ""
            lines.append(f"{labels[at]}{gap}{chosen[place]}")
        before = place
    return lines


def _lines_of(place: Place, part: _Part, age: float, is_behind_paste: bool) -> Iterable[Line]:
    at, number = place
    if not _is_there(part):
        return
    if is_behind_paste and part.rank < _BINDING_RANK and len(part.text) < _SMALL_TALK_CHARS:
        # "What is it?" says nothing without what was pasted before it.
        yield Line(place, BASE_WANT - 1 / (2 + age), part.text, under=(at, number - 1))
    elif part.is_pasted:
        wants = BASE_WANT - 1 / (1 + age), BASE_WANT + 3 + age, BASE_WANT + 6 + age
        yield from versions(place, "", part.text, _PASTED_CHARS, wants, shorten=ends_of)
    elif part.rank < _BINDING_RANK and _is_small_talk(part.text):
        yield Line(place, SMALL_TALK_WANT + age, part.text)
    else:
        as_request = min(_REQUEST_WANT + age * _AGE_WANT, 1.9)
        as_rule = _rule_want(part.rank, age)
        if as_rule < as_request and part.binding != part.text:
            yield Line(place, as_rule, part.binding)
            yield Line(place, as_request, part.text, is_fuller=True)
        else:
            yield Line(place, min(as_rule, as_request), part.text)


def _rule_want(rank: float, age: float) -> float:
    """The want of a sentence that may bind: the surer and the newer, the smaller."""
    newness = 1 / (2 + age) / 100
    return _BINDING_WANT - rank / 100 - newness if rank >= _BINDING_RANK else BASE_WANT


def _parts(
    text: str,
    marked: Mapping[str, str],
    is_gone: Callable[[str], bool],
    ranks: Mapping[str, float],
) -> list[_Part]:
    """The parts of one text, its sentences as they are `marked`, with "[…]" for those gone."""
    flat = " ".join(text.split())
    start = 0
    paragraph = 0, False
    said: list[tuple[tuple[int, bool], str, float]] = []
    sentences = sentences_of(text)
    spoken = {sentence.paragraph for sentence in sentences if not sentence.is_pasted}
    for sentence in sentences:
        at = flat.find(sentence.text, start)
        if at < 0:  # it was cut
            continue
        # "Only Python 3.11." looks pasted alone, and does not beside what is said with it.
        is_beside = len(sentence.text) <= _SMALL_TALK_CHARS and sentence.paragraph in spoken
        paragraph = sentence.paragraph, sentence.is_pasted and not is_beside
        # A summary before may have put a mark there, which is made anew.
        whole = without_gap(sentence.text)
        bare = placeholders.split_mark(whole)[1]
        gap = flat[start:at] if whole == sentence.text else f"{flat[start:at]}{LEFT_OUT} "
        rank = _GONE_RANK if is_gone(bare) else ranks.get(bare, -1.0)
        said.append((paragraph, f"{gap}{marked.get(bare, bare)}", rank))
        start = at + len(sentence.text)
    if rest := flat[start:].strip():
        said.append((paragraph, f" {rest}", -1.0))
    parts: list[_Part] = []
    part: list[tuple[str, float]] = []
    for (place, told, rank), after in zip_longest(said, said[1:]):
        part.append((told, rank))
        size_chars = sum(len(text) for text, _ in part)
        is_full = after is not None and size_chars + len(after[1]) > _PART_CHARS and not place[1]
        if after is None or after[0] != place or is_full:
            shown, surest = _told(part, _GONE_RANK + 1), max(rank for _, rank in part)
            binding = shown if len(shown) <= _LINE_CHARS else _told(part, _BINDING_RANK)
            parts.append(_Part(shown, surest, place[1], binding))
            part = []
    return parts


def _told(said: Sequence[tuple[str, float]], least_rank: float) -> str:
    """The sentences of a part from a rank on, with "[…]" for the others; `said` has their ranks."""
    told = ""
    for text, rank in said:
        if rank >= least_rank:
            told = f"{told}{text}"
        elif not told.endswith(LEFT_OUT):
            told = f"{told} {LEFT_OUT}"
    return told.strip()


def _is_there(part: _Part) -> bool:
    """Whether anything of `part` is to be told here."""
    return part.rank > _GONE_RANK


def _flat(parts: Sequence[_Part]) -> str:
    return " ".join(part.text for part in parts)


def _is_empty(parts: Sequence[_Part]) -> bool:
    """Whether a message is a command to the host, or too short to say anything ("Thanks!")."""
    text = _flat(parts)
    is_short = len(text) < _EMPTY_CHARS and not _FIGURE.search(text)
    is_short = is_short and all(part.rank < _BINDING_RANK for part in parts)
    return is_short or _COMMAND.fullmatch(text) is not None


def _is_small_talk(text: str) -> bool:
    if _COMMAND.fullmatch(text):
        return True
    if len(text) > _SMALL_TALK_CHARS or _FIGURE.search(text):
        return False
    return len(text) < _EMPTY_CHARS or signs().agreement.search(text) is not None
