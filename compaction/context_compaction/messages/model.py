"""The one immutable model of a conversation, whatever format it came in.

`formats/` turns a provider's JSON into these types and back. A message keeps the host's own object
in `source`; a message that nobody edited is rendered as that very object. Layers never assign: they
make an edited copy with `edit_message`, and rendering then starts from a copy of `source`, so that
fields and blocks we do not know survive.

Roles are three. Tool results, which some formats carry in messages of a role of their own, are in
messages of the role "user" here (Anthropic's convention); `system` covers OpenAI's "developer".
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeGuard, TypeVar, cast

JsonObject: TypeAlias = dict[str, Any]
Role: TypeAlias = Literal["system", "user", "assistant"]
_P = ParamSpec("_P")
_T = TypeVar("_T")


# Who said a text. Not the role: hosts hand over much in the user's name that no user typed.
Author: TypeAlias = Literal["user", "agent", "tool", "host", "project", "compaction"]


# What a repair puts in for a result that the list does not have.
NO_RESULT = "[No result was recorded for this call.]"


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text.

    Attributes:
        text: The text.
        source: The host's own block, None where the content was a bare string.
        edited: Whether `text` differs from what `source` has.
        author: Who said it, where that is known to be another than the message's role says;
            `speakers.py` tells of any text. "project" is for its rules, which stay at any cut;
            "compaction" is for texts that we put there.
    """

    text: str
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)
    author: Author | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of the model. `signature` also holds encrypted content; `text` may be empty."""

    text: str
    signature: str | None = None
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: `data` is base64 text as the host wrote it, or None where `url` points to it."""

    media_type: str
    data: str | None = None
    url: str | None = None
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Document:
    """A file given to the model (PDF, text, audio): base64 `data`, plain `text`, or a `url`."""

    media_type: str
    data: str | None = None
    text: str | None = None
    url: str | None = None
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block of a kind that we do not know, or must never edit (server tools, compaction blocks).

    `kind` is the host's type name; `source` is the block itself and takes part in equality.
    `loads_tools`: it is a hosted tool search that loads tools, or its call, and stays at any cut.
    """

    kind: str
    source: JsonObject
    edited: bool = field(default=False, compare=False)
    loads_tools: bool = field(default=False, compare=False)


Part: TypeAlias = Text | Image | Document | Opaque


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's wish to run a tool.

    `arguments` is the parsed JSON value (an object in nearly every case), or the text itself where
    it does not parse or the tool takes free text. `loads_tools`: it stays at any cut with its
    result, which loads tools into the conversation. `memo` is the cache of `memoized_on_call`.
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
    """What a tool answered. String content is one `Text` without a source; a list keeps its parts.

    `name` is the tool's name where the format writes it beside the result, else None: use
    `pairing.index_calls` to find it by the call. `loads_tools`: as that of its call.
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
    """One entry of a conversation. `blocks` is a tuple so that no layer can edit in place.

    Attributes:
        role: Who speaks.
        blocks: The content, in order; may be empty.
        source: The host's own object, None for a message that we made.
        edited: Whether `blocks` differ from what `source` has.
        index: Position in the list that came in, from 0; None for a message that we made.
        timestamp_seconds: When it was written (Unix time), where the file says so.
        key: The `json_key` of `source`, where it is known.
    """

    role: Role
    blocks: tuple[Block, ...]
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    edited: bool = field(default=False, compare=False)
    index: int | None = field(default=None, compare=False)
    timestamp_seconds: float | None = field(default=None, compare=False)
    key: bytes = field(default=b"", compare=False, repr=False)


Messages: TypeAlias = tuple[Message, ...]


def edit_message(message: Message, blocks: Sequence[Block]) -> Message:
    """A copy of `message` with other blocks, marked as edited."""
    # Written out: `replace` takes four times as long, and a compaction edits most messages.
    return Message(
        message.role,
        tuple(blocks),
        source=message.source,
        edited=True,
        index=message.index,
        timestamp_seconds=message.timestamp_seconds,
    )


def edit_result(result: ToolResult, content: str | tuple[Part, ...]) -> ToolResult:
    """A copy of `result` with other content, marked as edited. A string becomes one `Text`."""
    parts: tuple[Part, ...] = (Text(content),) if isinstance(content, str) else content
    return ToolResult(
        result.call_id, parts, result.is_error, result.name, source=result.source, edited=True
    )


def make_message(role: Role, text: str) -> Message:
    """A message of our own making, with one text block and no source."""
    return Message(role, (Text(text, author="compaction"),))


def leading_system_count(messages: Sequence[Message]) -> int:
    """How many system messages `messages` begins with; 0 where there are no others."""
    return next((at for at, message in enumerate(messages) if message.role != "system"), 0)


def tool_calls(message: Message) -> tuple[ToolCall, ...]:
    """The calls that `message` makes, in order."""
    return tuple([block for block in message.blocks if isinstance(block, ToolCall)])


def memoized_on_call(
    call: ToolCall,
    make: Callable[Concatenate[ToolCall, _P], _T],
    *given: _P.args,
    **more: _P.kwargs,
) -> _T:
    """What `make` returns for `call` and the very objects `given`, worked out once.

    Every layer and every writer asks the same of the same call.
    """
    known = call.memo.get(make.__name__)
    if known is None or not all(map(is_, known[0], given)):
        known = call.memo[make.__name__] = given, make(call, *given, **more)
    return known[1]


def tool_results(message: Message) -> tuple[ToolResult, ...]:
    """The results that `message` carries, in order."""
    return tuple([block for block in message.blocks if isinstance(block, ToolResult)])


def is_rules(block: Block) -> TypeGuard[Text]:
    """Whether `block` holds rules of the project, which stay at any cut."""
    return isinstance(block, Text) and block.author == "project"


def is_synthetic_result(result: ToolResult) -> bool:
    """Whether `result` is what a repair put in, and no tool's answer."""
    only = result.content[0] if len(result.content) == 1 else None
    return isinstance(only, Text) and only.text == NO_RESULT


def named_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of `call` by name; empty where they are not a JSON object."""
    arguments: object = call.arguments
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}


def text_of(blocks: Sequence[Block]) -> str:
    """The text blocks among `blocks`, joined by newlines; everything else is left out."""
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def starts_turn(message: Message) -> bool:
    """Whether a turn begins here: the user speaks, rather than a tool answering.

    What the host says beside a result begins none.
    """
    if message.role != "user":
        return False
    blocks = [block for block in message.blocks if not isinstance(block, ToolResult)]
    if len(blocks) < len(message.blocks):
        return any(not isinstance(one, Text) or one.author != "host" for one in blocks)
    return bool(blocks)


compact_json: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode


def utf8_json(value: Any) -> bytes:
    """A JSON value as UTF-8 without white space; lone surrogates pass."""
    # Imported here for those who start and write none, and whole, which is looked up soonest. It
    # takes a third of the time.
    import pydantic_core

    try:
        return pydantic_core.to_json(value)
    except ValueError:
        return compact_json(value).encode("utf-8", "surrogatepass")


def is_object(value: object) -> TypeGuard[JsonObject]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a JSON value is a list."""
    return isinstance(value, list)
