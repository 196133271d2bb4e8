"""What the user said, word for word: all of it while it fits, else what binds first.

A message is cut where its paragraphs end, so that a sentence which points back keeps what it points
at, and the members of a list stay together. A sentence that may bind is shown alone where there is
no room for what surrounds it. Paragraphs that look pasted are shown by their beginning and end.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from context_compaction.activity.documents import newer_documents
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages, tool_results
from context_compaction.messages.speakers import user_text
from context_compaction.messages.tool_results import said_in_refusal
from context_compaction.summarizers.extractive.fit import BASE_WANT, Line, Place, versions
from context_compaction.summarizers.extractive.said import ends_of, head_of
from context_compaction.summarizers.instructions.find import UserInstructions, find_instructions
from context_compaction.summarizers.instructions.signs import sign
from context_compaction.summarizers.instructions.typed_text import (
    LEFT_OUT,
    sentences_of,
    without_gap,
)
from context_compaction.tokens.counter import MessageCounter

# A part of a message is about so long; a longer paragraph makes several.
_PART_CHARS = 320
# Of a pasted part so much is told at first, and so much where there is room: a long list that was
# typed looks pasted, too.
_PASTED_CHARS = (200, 2_000)
# Of the first request and of the newest so much goes before all else.
_FLOOR_CHARS = 160
_FIRST_WANT, _NEWEST_WANT = -2.0, -3.0
# How much less what was asked one request earlier is wanted, and of pasted text what stands one
# part further in: its later parts come behind what all sections tell in short.
_AGE_WANT = 0.2
_REQUEST_WANT = 0.6
# What may bind goes before what all sections have to tell.
_BINDING_WANT = -0.07
# A sentence below this rank is surely of the moment only, or chatter.
_BINDING_RANK = 1.0
# Of one that stands elsewhere.
_GONE_RANK = -9.0
# The number of a message, and what joins its parts, counts about so much.
_LABEL_TOKENS = 8
# A part no longer than a line is told whole: a sentence in it that points back has its neighbour.
_LINE_CHARS = 120
# What is longer is told once, where it was said last.
_SHORT_CHARS = 48
_EMPTY_CHARS = len("continue with")
# A command to the host.
_COMMAND = re.compile(r"/\w*")
_FIGURE = re.compile(r"[\d/_`]")


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a message."""

    text: str
    rank: float  # how surely it binds: that of its surest sentence
    is_pasted: bool
    binding: str  # its sentences that may bind, in order, with the sign of what is left out


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
    later: Messages,
) -> Iterator[Line]:
    """The user's texts in `messages`, as lines whose place is (position, part).

    The same summary contains the sentences `pinned`; `later` are the messages after these.
    """
    told = _parts_by_message(messages, instructions, pinned, numbers)
    floors = _floors(told, later)
    newer = newer_documents((*messages, *later))
    for age, (at, parts) in enumerate(told.items()):
        if at in newer:
            number = numbers[newer[at]] if newer[at] < len(messages) else None
            whole = " ".join(user_text(messages[at]).split())
            text = placeholders.overtaken_by(number, "replaced") + whole
            texts = (head_of(text, chars) for chars in _PASTED_CHARS)
            yield from versions((at, 0), "", texts, (_request_want(age), BASE_WANT + 4 + age))
            continue
        for nth, (number, part) in enumerate(parts):
            floor = 0.0 if nth else floors.get(at, 0.0)
            yield from _lines_of((at, number), part, age + number / 1_000, floor)


def _parts_by_message(
    messages: Messages,
    instructions: UserInstructions,
    pinned: Collection[str],
    numbers: Sequence[int | None],
) -> dict[int, list[tuple[int, _Part]]]:
    """By position, newest first, the numbered parts of each message that says something new."""
    ranks = {said.text: said.rank for said in instructions.standing}
    shown = {text: f"{instructions.mark_of(text, numbers)}{text}" for text in ranks}
    gone = {*pinned}  # and, from the newest on, what is said again later
    told: dict[int, list[tuple[int, _Part]]] = {}
    heard = set[str]()
    for at in reversed(range(len(messages))):
        text = "\n".join((user_text(messages[at]), *_said_in_refusals(messages[at])))
        if (flat := " ".join(text.split())) in heard:
            continue  # "commit and continue", said again and again
        heard.add(flat)
        found = enumerate(_parts(text, shown, gone, ranks))
        if stays := [(number, part) for number, part in found if part.rank > _GONE_RANK]:
            told[at] = stays
        said = (sentence.text for sentence in sentences_of(text))
        gone.update(one for one in said if len(one) > _SHORT_CHARS)
    return {at: parts for at, parts in told.items() if not _is_empty(parts)} or told


def _floors(
    told: Mapping[int, Sequence[tuple[int, _Part]]], later: Messages
) -> Mapping[int, float]:
    """The wants of the first request and of the newest, whose beginnings go before all else."""
    # "Hello, I need some help." is no goal.
    requests = [at for at, parts in told.items() if not _is_small_talk(parts)] or [*told]
    floors = dict.fromkeys(requests[-1:], _FIRST_WANT)
    if not any(map(placeholders.is_request, later)):
        floors.update(dict.fromkeys(requests[:1], _NEWEST_WANT))
    return floors


def _said_in_refusals(message: Message) -> Iterator[str]:
    """What the user said with refused calls; a tool may pose as the user, so it binds nothing."""
    for result in tool_results(message):
        if result.is_error and (said := said_in_refusal(result)):
            yield f"(with a refused call, by what the host says) {said}"


def rendered(chosen: Mapping[Place, str], labels: Mapping[int, str]) -> list[str]:
    """The chosen parts as one line a message, behind the label of its position."""
    lines: dict[int, str] = {}
    before: Place = (-1, -1)
    for place in sorted(chosen):
        at, number = place
        is_next = number == (before[1] + 1 if at == before[0] else 0)
        told = f"{lines.get(at, '')}{' ' if is_next else f' {LEFT_OUT} '}{chosen[place]}"
        lines[at] = told.replace(f"{LEFT_OUT} {LEFT_OUT}", LEFT_OUT)
        before = place
    return [f"{labels[at]}{line.strip()}" for at, line in lines.items()]


def _lines_of(place: Place, part: _Part, age: float, floor: float) -> Iterator[Line]:
    if floor:
        short = head_of(part.text, _FLOOR_CHARS)
        yield from versions(place, "", (short, part.text), (floor, floor / 10))
    elif part.is_pasted:
        late = place[1] * _AGE_WANT if age >= 1 else 0.0
        wants = BASE_WANT - 1 / (1 + age) + late, BASE_WANT + 4 + age + late
        texts = (ends_of(part.text, chars) for chars in _PASTED_CHARS)
        yield from versions(place, "", texts, wants)
    elif part.rank >= _BINDING_RANK:
        # The surer and the newer, the sooner.
        want = _BINDING_WANT - part.rank / 100 - 1 / (2 + age) / 100
        yield from versions(place, "", (part.binding, part.text), (want, _request_want(age)))
    else:
        yield Line(place, _request_want(age), part.text)


def _request_want(age: float) -> float:
    return min(_REQUEST_WANT + age * _AGE_WANT, 1.9)


def _parts(
    text: str,
    marked: Mapping[str, str],
    gone: Collection[str],
    ranks: Mapping[str, float],
) -> Iterator[_Part]:
    """The parts of one text, its sentences as they are `marked`, with "[…]" for those `gone`."""
    told = _told_sentences(text, marked, gone, ranks)
    for (_, is_pasted), paragraph in groupby(told, key=lambda one: one[0]):
        for said in _in_parts([one[1:] for one in paragraph], is_whole=is_pasted):
            shown = _told(said, _GONE_RANK + 1)
            binding = shown if len(shown) <= _LINE_CHARS else _told(said, _BINDING_RANK)
            yield _Part(shown, max(rank for _, rank in said), is_pasted, binding)


def _told_sentences(
    text: str, marked: Mapping[str, str], gone: Collection[str], ranks: Mapping[str, float]
) -> Iterator[tuple[tuple[int, bool], str, float]]:
    """The sentences of a text with what precedes each, and their ranks.

    First the number of the paragraph of each, and whether it looks pasted.
    """
    flat = " ".join(text.split())
    start = 0
    paragraph = 0, False
    sentences = sentences_of(text)
    spoken = {sentence.paragraph for sentence in sentences if not sentence.is_pasted}
    for sentence in sentences:
        at = flat.find(sentence.text, start)
        if at < 0:  # it was cut
            continue
        # "Only Python 3.11." looks pasted alone, and does not beside what is said with it.
        is_beside = len(sentence.text) <= _SHORT_CHARS and sentence.paragraph in spoken
        paragraph = sentence.paragraph, sentence.is_pasted and not is_beside
        # A summary before may have put a mark there, which is made anew.
        whole = without_gap(sentence.text)
        bare = placeholders.split_mark(whole)[1]
        gap = flat[start:at] if whole == sentence.text else f"{flat[start:at]}{LEFT_OUT} "
        rank = _GONE_RANK if bare in gone else ranks.get(bare, -1.0)
        yield paragraph, f"{gap}{marked.get(bare, bare)}", rank
        start = at + len(sentence.text)
    if rest := flat[start:].strip():
        yield paragraph, f" {rest}", -1.0


def _in_parts(
    said: Sequence[tuple[str, float]], *, is_whole: bool
) -> Iterator[Sequence[tuple[str, float]]]:
    """The sentences of a paragraph in parts of about `_PART_CHARS`; in one if `is_whole`."""
    start = size_chars = 0
    for at, (text, _) in enumerate(said):
        size_chars += len(text)
        if at > start and size_chars > _PART_CHARS and not is_whole:
            yield said[start:at]
            start, size_chars = at, len(text)
    yield said[start:]


def _told(said: Sequence[tuple[str, float]], least_rank: float) -> str:
    """The sentences of a part from a rank on, with "[…]" for the others; `said` has their ranks."""
    told = ""
    for text, rank in said:
        if rank >= least_rank:
            told = f"{told}{text}"
        elif not told.endswith(LEFT_OUT):
            told = f"{told} {LEFT_OUT}"
    return told.strip()


def _flat(parts: Sequence[tuple[int, _Part]]) -> str:
    return " ".join(part.text for _, part in parts)


def _is_small_talk(parts: Sequence[tuple[int, _Part]]) -> bool:
    text = _flat(parts)
    is_short = len(text) <= _SHORT_CHARS and not _FIGURE.search(text)
    return is_short and bool(sign("agreement").search(text))


def _is_empty(parts: Sequence[tuple[int, _Part]]) -> bool:
    """Whether a message says nothing: a command to the host, or two words beside "thanks".

    One that names a figure or may bind says something.
    """
    text = _flat(parts)
    rest = sign("agreement").sub("", text).strip(" ,.!")
    is_short = len(rest) < _EMPTY_CHARS and not _FIGURE.search(text)
    binds = any(part.rank >= _BINDING_RANK for _, part in parts)
    return not binds and (is_short or _COMMAND.fullmatch(text) is not None)
