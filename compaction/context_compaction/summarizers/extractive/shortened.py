"""Shorten summarized messages, so that a later summary can be made from them.

A later summary is not made from the text of the summary before, because facts would erode. It
is not made from the whole conversation either, because compactions would cost more as a session
grows. It is made from the messages since then and from the shortened messages. The newest messages
keep every call and both ends of every result. Older messages keep the user's words while they fit,
then the user's rules. So the size is bounded.
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
from context_compaction.summarizers.instructions.find import CERTAIN_RANK, find_instructions
from context_compaction.summarizers.instructions.own_words import OMISSION
from context_compaction.summarizers.instructions.sentences import sentences_of

SHORTENED_MESSAGES = "summarized messages"
"""The tool name under which the archive stores them."""

# Character limits: for a text of the user; for one of a tool, a host or an argument; for one of the
# agent.
_USER_CHARS, _OUTPUT_CHARS, _AGENT_CHARS = 6_000, 600, 1_500
_MEDIA_TYPE = "application/zlib"


@dataclass(frozen=True, slots=True)
class ShortenedMessages:
    """Messages that an earlier summary replaces.

    Attributes:
        messages: The messages, oldest first.
        numbers: The number of each message in the transcript, if known.
        is_short: Whether they are shortened. False for the whole originals.
    """

    messages: Messages = ()
    numbers: tuple[int | None, ...] = ()
    is_short: bool = True


def shorten_messages(
    messages: Messages,
    numbers: Sequence[int | None],
    *,
    work_chars: int = 56_000,
) -> ShortenedMessages:
    """Return `messages` shortened. The oldest may be shortened already.

    The newest messages are kept up to `work_chars`. Of older ones, only the user's words are kept.
    """
    messages = with_unique_call_ids(messages)
    newest_first: list[tuple[int, Message]] = []
    room_chars, first = work_chars, len(messages)
    while first and room_chars > 0:
        first -= 1
        blocks = tuple(_shortened_blocks(messages[first]))
        if blocks and not placeholders.is_synthetic(messages[first]):
            newest_first.append((first, Message(messages[first].role, blocks)))
            room_chars -= len(compact_json([*map(_block_as_json, blocks)]))
    newest_first += _older_words(messages[:first])
    shortened = newest_first[::-1]
    return ShortenedMessages(
        tuple(message for _, message in shortened), tuple(numbers[index] for index, _ in shortened)
    )


def _older_words(
    messages: Messages, *, words_chars: int = 10_000, rules_chars: int = 8_000
) -> Iterator[tuple[int, Message]]:
    """Yield the user's words in older messages, newest first, with their positions.

    All words are kept up to `words_chars`. After that, only rules are kept, up to `rules_chars`,
    and the beginning of the first message.
    """
    texts = [
        (index, text) for index, message in enumerate(messages) if (text := user_text(message))
    ]
    while texts and (words_chars := words_chars - len(_ends(texts[-1][1], _USER_CHARS))) >= 0:
        index, text = texts.pop()
        yield index, Message("user", (Text(_ends(text, _USER_CHARS)),))
    found = find_instructions(tuple(messages[index] for index, _ in texts))
    rules = {sentence.text for sentence in found.candidates if sentence.rank >= CERTAIN_RANK}
    for index, text in reversed(texts):
        sentences = (sentence.text for sentence in sentences_of(text, is_typed=True))
        shown = " ".join(sentence for sentence in sentences if sentence in rules)
        if index == texts[0][0]:
            shown = shown or _ends(text, _OUTPUT_CHARS)
        rules_chars -= len(shown)
        if shown and rules_chars >= 0:
            yield index, Message("user", (Text(shown),))


def _shortened_blocks(message: Message) -> Iterator[Block]:
    for block in filterfalse(is_rules, message.blocks):  # project rules stay a message
        match block:
            case Text() if message.role == "user":
                yield from _shortened_passages(message, block)
            case Text() if block.text.strip():
                yield Text(_ends(block.text, _AGENT_CHARS), author=block.author)
            case ToolCall():
                yield ToolCall(block.call_id, block.name, _shortened_arguments(block.arguments))
            case ToolResult():
                content = block.content
                if not placeholders.is_placeholder(block):
                    text = _ends(result_text(block), _OUTPUT_CHARS)
                    content = (Text(text), *_without_data(content))
                yield ToolResult(block.call_id, content, block.is_error)
            case _:
                yield from _without_data([block])


def _shortened_passages(message: Message, block: Text) -> Iterator[Text]:
    # An extract of a long request names the author of each line.
    for author, text in passages_of(message, block):
        if author == "user":
            yield Text(_ends(text, _USER_CHARS), author=block.author)
        elif text.strip():
            yield Text(_ends(text, _OUTPUT_CHARS), author=author)


def _shortened_arguments(arguments: Any) -> Any:
    """Return the arguments of a call, each long one cut to both ends of its text."""

    def shortened(value: Any) -> Any:
        if isinstance(value, str):
            return _ends(value, _OUTPUT_CHARS)
        text = compact_json(value)
        return value if len(text) <= _USER_CHARS else _ends(text, _OUTPUT_CHARS)

    if is_object(arguments):
        return {name: shortened(value) for name, value in arguments.items()}
    return shortened(arguments)


def _ends(text: str, max_chars: int) -> str:
    """Return `text`, or its first and last lines within `max_chars` with a mark between."""
    if len(text) <= max_chars:
        return text
    head, tail = text[: max_chars // 2], text[len(text) - max_chars // 2 :]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail else tail
    return f"{head}\n{OMISSION}\n{tail}"


def _without_data(blocks: Iterable[Block]) -> list[Image | Document]:
    """Return the images and documents among `blocks` without their data."""
    return [
        Image(block.media_type) if isinstance(block, Image) else Document(block.media_type)
        for block in blocks
        if isinstance(block, Image | Document)
    ]


def as_json(shortened: ShortenedMessages) -> JsonObject:
    """Return the messages as JSON: {"messages": [[number, role, blocks]]}."""
    pairs = zip(shortened.numbers, shortened.messages, strict=True)
    return {
        "messages": [
            [number, message.role, [*map(_block_as_json, message.blocks)]]
            for number, message in pairs
        ]
    }


def pack(shortened: JsonObject) -> Blob:
    """Return the value of `as_json` as a blob, compressed so that a search finds no text twice."""
    data = zlib.compress(json.dumps(shortened, separators=(",", ":")).encode("ascii"))
    return Blob(output_id_of(data), data, _MEDIA_TYPE, SHORTENED_MESSAGES)


def unpack(data: bytes) -> ShortenedMessages:
    """Return the messages in the data of a blob that `pack` made.

    Raises:
        ValueError: The data is not from such a blob.
    """
    try:
        rows: list[list[Any]] = json.loads(zlib.decompress(data))["messages"]
        return ShortenedMessages(
            tuple(Message(role, tuple(map(_parse_block, blocks))) for _, role, blocks in rows),
            tuple(number for number, _, _ in rows),
        )
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"Cannot read shortened messages: {error}.") from error


def _block_as_json(block: Block) -> list[Any]:
    match block:
        case ToolCall():
            return ["call", block.call_id, block.name, block.arguments]
        case ToolResult():
            is_hidden = placeholders.is_placeholder(block)
            media = [*map(_block_as_json, _without_data(block.content))]
            return ["result", block.call_id, result_text(block), block.is_error, is_hidden, media]
        case Text():
            return ["text", block.text, block.author]
        case Image() | Document():
            return ["image" if isinstance(block, Image) else "document", block.media_type]
        case _:  # no other block is kept
            return []


def _parse_block(row: Sequence[Any]) -> Any:
    kind, *values = row
    match kind:
        case "text":
            return Text(values[0], author=values[1])
        case "call":
            return ToolCall(*values)
        case "image":
            return Image(*values)
        case "document":
            return Document(*values)
        case _:
            call_id, text, is_error, is_hidden, media = values
            content: list[Any] = [Text(text, author="compaction" if is_hidden else None)]
            return ToolResult(call_id, (*content, *map(_parse_block, media)), is_error)
