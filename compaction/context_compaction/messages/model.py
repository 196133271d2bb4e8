"""The immutable model of a conversation and of its edits, independent of the provider's format.

`formats/` parses a provider's JSON into these types and renders it again. A message keeps the
host's own object in `source`, and an unedited message is rendered as that object. Layers never
assign to a message. They create a copy with `edit_message`, which is rendered from a copy of
`source`, so that unknown fields and blocks survive.

A layer returns a `Step`: the new messages, an `Edit` for each change, and a `Blob` for content that
leaves the context.

There are three roles. Tool results are always in messages of the role "user" (Anthropic's
convention), and `system` includes OpenAI's "developer".
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from operator import is_
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeGuard, TypeVar, cast

JsonObject: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["system", "user", "assistant"]
_P = ParamSpec("_P")
_T = TypeVar("_T")

# The author of a text. The role does not prove it, because hosts put their own texts and tool
# output into user messages.
Author: TypeAlias = Literal["user", "agent", "tool", "host", "project", "compaction"]

# Longer names, labels and lines are cut where they are only shown.
SHOWN_CHARS = 160
# Names, marks and errors are only sought in so much of one text.
SEARCHED_CHARS = 100_000
# Content of a result that `repair` adds to a call without a result.
NO_RESULT = "[No result was recorded for this call.]"
JSON_MEDIA_TYPE = "application/json"
OUTPUT_ID_PREFIX = "o_"
# 96 bits of the SHA-256; the archive stores the full hash.
OUTPUT_ID_HEX_DIGITS = 24


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text.

    Attributes:
        text: The text.
        source: The host's own block; None if the content was a string.
        edited: Whether `text` differs from the text in `source`.
        author: The author, if it is known to differ from the role of the message. "project" marks
            project rules, which survive every cut. "compaction" marks text of this library.
    """

    text: str
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)
    author: Author | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of the model.

    Attributes:
        text: The reasoning; may be empty.
        signature: The provider's signature, or the encrypted reasoning.
        source: The host's own block.
        edited: Whether the block differs from `source`.
    """

    text: str
    signature: str | None = None
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Image:
    """An image: either `data` as base64 text, or a `url`."""

    media_type: str
    data: str | None = None
    url: str | None = None
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Document:
    """A file passed to the model, such as PDF, text or audio: base64 `data`, `text`, or a `url`."""

    media_type: str
    data: str | None = None
    text: str | None = None
    url: str | None = None
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block of an unknown kind, or one that is never edited: server tools, compaction blocks.

    Attributes:
        kind: The host's name of the block type.
        source: The block itself, which takes part in equality.
        edited: Whether the block differs from the host's block.
        loads_tools: Whether it is a hosted tool search that loads tools, or the call of one, which
            survives every cut.
    """

    kind: str
    source: JsonObject
    edited: bool = field(default=False, compare=False)
    loads_tools: bool = field(default=False, compare=False)


Part: TypeAlias = Text | Image | Document | Opaque


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request of the model to run a tool.

    Attributes:
        call_id: The ID that the result repeats.
        name: Name of the tool.
        arguments: The parsed JSON value, usually an object. The raw text if it is not JSON.
        source: The host's own block.
        edited: Whether the call differs from `source`.
        loads_tools: Whether the result loads tools, so that call and result survive every cut.
        memo: Cache of `memoized_on_call`.
    """

    call_id: str
    name: str
    arguments: Any
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)
    loads_tools: bool = field(default=False, compare=False)
    memo: dict[str, Any] = field(
        default_factory=dict[str, Any], init=False, compare=False, repr=False
    )


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call.

    Attributes:
        call_id: ID of the call.
        content: The parts. A string becomes one `Text` without a source.
        is_error: Whether the host marks the call as failed.
        name: Name of the tool, if the format writes it in the result. `tool_pairs.index_calls`
            finds the name of every result.
        source: The host's own block.
        edited: Whether the result differs from `source`.
        loads_tools: Whether the result loads tools, so that it survives every cut.
    """

    call_id: str
    content: tuple[Part, ...]
    is_error: bool = False
    name: str | None = None
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)
    loads_tools: bool = field(default=False, compare=False)


Block: TypeAlias = Text | Thinking | Image | Document | Opaque | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """An entry of a conversation. `blocks` is a tuple, so no layer can edit it in place.

    Attributes:
        role: Role of the message.
        blocks: The content, in order; may be empty.
        source: The host's own object; None for a message created by this library.
        edited: Whether `blocks` differ from the content of `source`.
        index: Index in the input list, from 0; None for a message created by this library.
        timestamp_seconds: Unix time of the message, if the session file contains it.
        key: The `json_key` of `source`; empty if it is unknown.
    """

    role: Role
    blocks: tuple[Block, ...]
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)
    index: int | None = field(default=None, compare=False)
    timestamp_seconds: float | None = field(default=None, compare=False)
    key: bytes = field(default=b"", compare=False, repr=False)


Messages: TypeAlias = tuple[Message, ...]


def one_line(text: str) -> str:
    """Return the beginning of `text` on one line, to be shown."""
    flat = " ".join(text[: 4 * SHOWN_CHARS].split())
    return flat if len(flat) <= SHOWN_CHARS else flat[: SHOWN_CHARS - 1] + "…"


def edit_message(message: Message, blocks: Sequence[Block]) -> Message:
    """Return a copy of `message` with other blocks, marked as edited."""
    # Not `dataclasses.replace`, because it takes four times as long and a compaction edits most
    # messages.
    return Message(
        message.role,
        tuple(blocks),
        source=message.source,
        edited=True,
        index=message.index,
        timestamp_seconds=message.timestamp_seconds,
    )


def is_same(blocks: Sequence[object], other_blocks: Sequence[object]) -> bool:
    """Whether two sequences contain the very same objects in the same order."""
    return len(blocks) == len(other_blocks) and all(map(is_, blocks, other_blocks))


def edit_result(result: ToolResult, content: str | tuple[Part, ...]) -> ToolResult:
    """Return a copy of `result` with other content, marked as edited. A string becomes a `Text`."""
    parts: tuple[Part, ...] = (Text(content),) if isinstance(content, str) else content
    return ToolResult(
        result.call_id, parts, result.is_error, result.name, source=result.source, edited=True
    )


def make_message(role: Role, text: str) -> Message:
    """Return a message of this library, with one text block and no source."""
    return Message(role, (Text(text, author="compaction"),))


def leading_system_count(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the start; 0 if there are no other messages."""
    indices = (index for index, message in enumerate(messages) if message.role != "system")
    return next(indices, 0)


def tool_calls(message: Message) -> tuple[ToolCall, ...]:
    """Return the calls in `message`, in order."""
    return tuple([block for block in message.blocks if isinstance(block, ToolCall)])


def memoized_on_call(
    call: ToolCall,
    compute: Callable[Concatenate[ToolCall, _P], _T],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _T:
    """Return `compute(call, *args, **kwargs)`, computed once per call and `args` objects.

    Every layer and every writer asks the same questions about a call.
    """
    entry = call.memo.get(compute.__name__)
    if entry is None or not all(map(is_, entry[0], args)):
        entry = call.memo[compute.__name__] = args, compute(call, *args, **kwargs)
    return entry[1]


def tool_results(message: Message) -> tuple[ToolResult, ...]:
    """Return the results in `message`, in order."""
    return tuple([block for block in message.blocks if isinstance(block, ToolResult)])


def is_rules(block: Block) -> TypeGuard[Text]:
    """Whether `block` contains project rules, which survive every cut."""
    return isinstance(block, Text) and block.author == "project"


def is_synthetic_result(result: ToolResult) -> bool:
    """Whether a repair added `result` to a call without a result."""
    only = result.content[0] if len(result.content) == 1 else None
    return isinstance(only, Text) and only.text == NO_RESULT


def named_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of `call` by name; empty if they are not a JSON object."""
    arguments: object = call.arguments
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}


def text_of(blocks: Sequence[Block]) -> str:
    """Return the text blocks among `blocks`, joined by newlines."""
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def result_text(result: ToolResult) -> str:
    """Return the text parts of a result, joined by newlines."""
    if len(result.content) == 1 and isinstance(result.content[0], Text):
        return result.content[0].text  # the usual case, kept fast
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def full_text_of(message: Message) -> str:
    """Return the text of a message, including its tool results."""
    contents = (
        block.content if isinstance(block, ToolResult) else (block,) for block in message.blocks
    )
    return "\n".join(filter(None, map(text_of, contents)))


def media_json(part: Image | Document | Opaque) -> str:
    """Return the host's JSON of a part that is not text."""
    raw = part.source
    if raw is None and not isinstance(part, Opaque):
        media = {"media_type": part.media_type, "data": part.data, "url": part.url}
        raw = {"type": type(part).__name__.lower(), **media}
    return json.dumps(raw, ensure_ascii=False)


def starts_turn(message: Message) -> bool:
    """Whether `message` starts a turn: the user speaks.

    Tool results, and text of the host next to them, do not start a turn.
    """
    if message.role != "user":
        return False
    blocks = [block for block in message.blocks if not isinstance(block, ToolResult)]
    if len(blocks) < len(message.blocks):
        return any(not isinstance(block, Text) or block.author != "host" for block in blocks)
    return bool(blocks)


compact_json: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode


def utf8_json(value: Any) -> bytes:
    """Return a JSON value as UTF-8 without white space. Lone surrogates are passed through."""
    # Imported here, because many programs never write JSON and the import is slow. It takes a third
    # of the time of `json`.
    import pydantic_core

    try:
        return pydantic_core.to_json(value)
    except ValueError:
        return compact_json(value).encode("utf-8", "surrogatepass")


def _whole_or_text(number: str) -> int | str:
    try:
        return int(number)
    except ValueError:  # more digits than Python reads
        return number


def _finite_or_text(number: str) -> float | str:
    return value if isfinite(value := float(number)) else number


_decoder = json.JSONDecoder(
    parse_constant=str, parse_int=_whole_or_text, parse_float=_finite_or_text
)  # one for all lines, because `json.loads` creates a new one for each call


def decode_json(text: str) -> Any:
    """Return the value of a JSON text. Numbers that JSON or Python lacks become text."""
    return _decoder.decode(text)


def is_object(value: object) -> TypeGuard[JsonObject]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a JSON value is a list."""
    return isinstance(value, list)


def strings_in(value: object) -> Iterator[str]:
    """Yield the strings in a JSON value, in order."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif is_object(item):
            waiting += reversed(item.values())
        elif is_list(item):
            waiting += reversed(item)


def output_id_of(data: bytes) -> str:
    """Return the ID of the output `data`: a hash, so it is known before anything is written."""
    digest = hashlib.sha256(data).hexdigest()
    return OUTPUT_ID_PREFIX + digest[:OUTPUT_ID_HEX_DIGITS]


@dataclass(frozen=True, slots=True)
class Blob:
    """Content that leaves the context and stays readable under `output_id`.

    Attributes:
        output_id: The ID, which is a hash of `data`.
        data: The bytes. Text is UTF-8 with lone surrogates passed through ("surrogatepass"). An
            image, a document or an unknown block is stored as its JSON.
        media_type: "text/plain", or "application/json" for a part that is not text.
        tool_name: Name of the tool that produced the content.
        call_id: ID of the call that produced the content.
        seq: Number of the archived message that contained it. The output gets its time.
    """

    output_id: str
    data: bytes
    media_type: str = "text/plain"
    tool_name: str | None = None
    call_id: str | None = None
    seq: int | None = None


def make_blob(
    text: str,
    *,
    media_type: str = "text/plain",
    tool_name: str | None = None,
    call_id: str | None = None,
) -> Blob:
    """Return the blob that stores `text`, byte for byte."""
    data = text.encode("utf-8", "surrogatepass")
    return Blob(output_id_of(data), data, media_type, tool_name, call_id)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change made by a layer.

    Attributes:
        layer: Name of the layer.
        action: The change in one word: "persisted", "cleared", "clipped", "summarized", "dropped",
            "restored", "named", "stripped", "repaired", "offloaded", "collapsed",
            "added".
        index: Index in the input list, from 0; None for an addition.
        tokens_before: Estimated tokens before the change.
        tokens_after: Estimated tokens after the change.
        pointers: Output IDs or `transcript://` ranges of the original.
        tool_name: Tool of the changed call or result; None for other content.
        note: A short reason for people.
    """

    layer: str
    action: str
    index: int | None
    tokens_before: int
    tokens_after: int
    pointers: tuple[str, ...] = ()
    tool_name: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of a layer.

    Attributes:
        messages: The new list; the input object if nothing changed.
        edits: The changes.
        blobs: The content to archive.
    """

    messages: Messages
    edits: tuple[Edit, ...] = ()
    blobs: tuple[Blob, ...] = ()


def first_difference(before: Messages, after: Messages) -> int:
    """Return the first index with different objects; the shorter length if there is none."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (a, b) in pairs if a is not b), min(len(before), len(after)))
