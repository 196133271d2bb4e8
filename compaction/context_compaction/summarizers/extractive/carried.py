"""What a later summary needs of messages that were summarised: the same messages, made short.

A summary is not made of the summary before, or facts would erode; nor of the whole conversation, or
a session's compactions would grow dearer with its age. It is made of what came since, and of this:
of the newest messages every call and the two ends of every answer; of older ones what the user said
while it fits, then what binds of it. The size has a bound. Pure.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any

from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, output_id_of
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    compact_json,
    is_object,
    is_rules,
)
from context_compaction.messages.speakers import passages_of, user_text
from context_compaction.messages.tool_pairs import with_unique_call_ids
from context_compaction.messages.tool_results import result_text
from context_compaction.summarizers.extractive.paragraphs import LEFT_OUT
from context_compaction.summarizers.instructions.find import SURE_RANK, find_instructions
from context_compaction.summarizers.instructions.typed_text import sentences_of

# Most characters of one text of the user's, and of a tool's, a host's or an argument.
_WORD_CHARS, _OUTPUT_CHARS = 6_000, 600
# The tool that the archive keeps it under.
SUMMARIZED_MESSAGES = "summarized messages"
_MEDIA_TYPE = "application/zlib"


@dataclass(frozen=True, slots=True)
class Carried:
    """Messages made short, oldest first."""

    messages: Messages = ()
    numbers: tuple[int | None, ...] = ()  # in the transcript
    is_short: bool = True  # whole originals are carried in the same form


def carried_of(
    messages: Messages,
    numbers: Sequence[int | None],
    *,
    work_chars: int = 56_000,
) -> Carried:
    """`messages` made short; the oldest may be carried ones already.

    The newest are kept until they have `work_chars`, of the older ones only the user's words.
    """
    messages = with_unique_call_ids(messages)
    kept: list[tuple[int, Message]] = []
    left_chars, first = work_chars, len(messages)
    while first and left_chars > 0:
        first -= 1
        blocks = tuple(_shorter(messages[first]))
        if blocks and not placeholders.is_synthetic(messages[first]):
            kept.append((first, Message(messages[first].role, blocks)))
            left_chars -= len(compact_json([*map(_row, blocks)]))
    kept += _older_words(messages[:first])
    kept.reverse()
    return Carried(tuple(message for _, message in kept), tuple(numbers[at] for at, _ in kept))


def as_json(carried: Carried) -> JsonObject:
    """`carried` as the archive keeps it: {"messages": [[number, role, blocks]]}."""
    pairs = zip(carried.numbers, carried.messages, strict=True)
    return {"messages": [[number, one.role, [*map(_row, one.blocks)]] for number, one in pairs]}


def packed(told: JsonObject) -> Blob:
    """The archive's blob of `as_json`'s value; packed, so that a search finds nothing twice."""
    data = zlib.compress(json.dumps(told, separators=(",", ":")).encode("ascii"))
    return Blob(output_id_of(data), data, _MEDIA_TYPE, SUMMARIZED_MESSAGES)


def unpacked(data: bytes) -> Carried:
    """The messages that the data of a blob of `packed` contain.

    Raises:
        ValueError: `data` is not of such a blob.
    """
    try:
        rows: list[list[Any]] = json.loads(zlib.decompress(data))["messages"]
        return Carried(
            tuple(Message(role, tuple(map(_block, blocks))) for _, role, blocks in rows),
            tuple(number for number, _, _ in rows),
        )
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"These are no shortened messages: {error}.") from error


def _row(block: Block) -> list[Any]:
    match block:
        case ToolCall():
            return ["call", block.call_id, block.name, block.arguments]
        case ToolResult():
            hidden = placeholders.is_placeholder(block)
            media = [*map(_row, _media(block.content))]
            return ["result", block.call_id, result_text(block), block.is_error, hidden, media]
        case Text():
            return ["text", block.text, block.author]
        case Image() | Document():  # that there was one
            return ["image" if isinstance(block, Image) else "document", block.media_type]
        case _:  # nothing else is carried
            return []


def _block(row: Sequence[Any]) -> Block:
    kind, *rest = row
    if kind == "text":
        return Text(rest[0], author=rest[1])
    if kind == "call":
        return ToolCall(*rest)
    if kind in ("image", "document"):
        return _medium(row)
    call_id, text, is_error, hidden, media = rest
    told = Text(text, author="compaction" if hidden else None)
    return ToolResult(call_id, (told, *map(_medium, media)), is_error)


def _media(blocks: Iterable[Block]) -> list[Image | Document]:
    """The pictures and documents of `blocks`, without their data."""
    return [
        Image(block.media_type) if isinstance(block, Image) else Document(block.media_type)
        for block in blocks
        if isinstance(block, Image | Document)
    ]


def _medium(row: Sequence[Any]) -> Image | Document:
    kind, media_type = row
    return Image(media_type) if kind == "image" else Document(media_type)


def _shorter(message: Message) -> Iterator[Block]:
    """The blocks of `message`, shortened."""
    for block in filterfalse(is_rules, message.blocks):  # those stay as a message
        match block:
            case Text() if message.role == "user":
                # An extract of a long request says line by line who speaks.
                for author, text in passages_of(message, block):
                    if author == "user":
                        yield Text(_ends_of(text, _WORD_CHARS), author=block.author)
                    elif text.strip():
                        yield Text(_ends_of(text, _OUTPUT_CHARS), author=author)
            case Text() if block.text.strip():
                yield Text(_ends_of(block.text, 1_500), author=block.author)
            case ToolCall():
                yield ToolCall(block.call_id, block.name, _arguments(block.arguments))
            case ToolResult() if placeholders.is_placeholder(block):
                yield ToolResult(block.call_id, block.content, block.is_error)
            case ToolResult():
                text = _ends_of(result_text(block), _OUTPUT_CHARS)
                yield ToolResult(
                    block.call_id, (Text(text), *_media(block.content)), block.is_error
                )
            case _:  # nothing else is carried
                yield from _media([block])


def _arguments(given: Any) -> Any:
    """The arguments of a call, each cut to its two ends where it is long."""

    def short(value: Any) -> Any:
        if isinstance(value, str):
            return _ends_of(value, _OUTPUT_CHARS)
        text = compact_json(value)
        return value if len(text) <= _WORD_CHARS else _ends_of(text, _OUTPUT_CHARS)

    return {key: short(value) for key, value in given.items()} if is_object(given) else short(given)


def _ends_of(text: str, chars: int) -> str:
    """`text`, or its first and last whole lines within `chars`, with a mark between."""
    if len(text) <= chars:
        return text
    head, tail = text[: chars // 2], text[len(text) - chars // 2 :]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail else tail
    return f"{head}\n{LEFT_OUT}\n{tail}"


def _older_words(
    messages: Messages, *, words_chars: int = 10_000, binding_chars: int = 8_000
) -> Iterator[tuple[int, Message]]:
    """What the user said in older messages, newest first: all while it fits, then what binds.

    And the beginning of the first of all.
    """
    said = [(at, text) for at, one in enumerate(messages) if (text := user_text(one))]
    while said and (words_chars := words_chars - len(_ends_of(said[-1][1], _WORD_CHARS))) >= 0:
        at, text = said.pop()
        yield at, Message("user", (Text(_ends_of(text, _WORD_CHARS)),))
    found = find_instructions(tuple(messages[at] for at, _ in said))
    sure = {item.text for item in found.standing if item.rank >= SURE_RANK}
    for at, text in reversed(said):
        told = " ".join(one.text for one in sentences_of(text, is_typed=True) if one.text in sure)
        if at == said[0][0]:
            told = told or _ends_of(text, _OUTPUT_CHARS)
        binding_chars -= len(told)
        if told and binding_chars >= 0:
            yield at, Message("user", (Text(told),))
