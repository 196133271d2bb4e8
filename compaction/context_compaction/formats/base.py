"""Code that all formats share: the description of a format, and helpers to read and write JSON.

Each read helper turns a wrong value into an error that names the right value. No helper copies a
value or looks deeper than its argument, so the cost of a message does not grow with nesting.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn, TypeVar, cast

from context_compaction.errors import InvalidMessageError
from context_compaction.messages import model
from context_compaction.messages.tool_pairs import ProviderRules

BlockType = TypeVar("BlockType", bound=model.Block)

MESSAGE_REMEDY = 'Give an object such as {"role": "user", "content": "..."}.'
UNKNOWN_IMAGE = "image/*"
UNKNOWN_FILE = "application/octet-stream"

# The JSON parser of the server has the same limit. Much of the code walks a message by recursion,
# for which Python has room for about a thousand calls.
_MAX_NESTING = 200
_LEAVES = frozenset({str, int, float, bool, type(None)})
_HOLDERS: tuple[type[model.JsonObject], type[list[Any]]] = dict, list
_TYPE_NAMES: Mapping[type, str] = {
    type(None): "null", bool: "a boolean", str: "a string", int: "a number", float: "a number",
    list: "an array", dict: "an object",
}  # fmt: skip
_SANE_SECONDS = (946_684_800.0, 4_102_444_800.0)  # The years 2000 and 2100


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """The message format of one provider.

    Attributes:
        name: Value of `format` that selects it.
        rules: Rules of the provider for a message list.
        recognises: Says how well a raw message fits: 0 not at all, 1 possibly, 2 only this format
            has such a message.
        parse: Parses a raw message; raises `InvalidMessageError`.
        render_edited: Renders a new or edited message as one raw message or several.
        system_prompt: Place of the system prompt: in the "list", "beside" it in a field of the
            request, or "nowhere", as in a session file. A system message from another format stays
            in the list, or becomes text of the user.
        link: Gives IDs to calls and results that have none; None if all have IDs.
    """

    name: str
    rules: ProviderRules
    recognises: Callable[[model.JsonObject], int]
    parse: "Callable[[Node], model.Message]"
    render_edited: Callable[[model.Message], list[model.JsonObject]]
    system_prompt: Literal["list", "beside", "nowhere"]
    link: Callable[[model.Messages], model.Messages] | None = None

    def parse_message(self, raw: model.JsonObject, index: int) -> model.Message:
        """Parse the raw message at `index` of a list; raises `InvalidMessageError`."""
        return self.parse(Node(raw, index))

    def render_message(self, message: model.Message) -> list[model.JsonObject]:
        """Return the host's own object if the message is not edited; else render it."""
        if message.source is not None and not message.edited:
            return [message.source]
        return self.render_edited(message)


def type_name(value: object) -> str:
    """Return the JSON name of a value's type, for error messages."""
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def object_or_none(value: object) -> model.JsonObject | None:
    """Return `value` if it is a JSON object, else None."""
    return cast(model.JsonObject, value) if isinstance(value, dict) else None


def system_text(value: object) -> str | None:
    """Return the text of a system prompt: a string, text blocks, or Gemini's parts."""
    if value is None or isinstance(value, str):
        return value
    holder = object_or_none(value)
    blocks = objects_in(value if holder is None else holder.get("parts"))
    texts = [text for block in blocks if (text := text_or_none(block.get("text"))) is not None]
    return "\n".join(texts) or None


def list_or_none(value: object) -> Sequence[Any] | None:
    """Return `value` if it is a JSON array, else None."""
    return cast(Sequence[Any], value) if isinstance(value, list) else None


def objects_in(values: object) -> list[model.JsonObject]:
    """Return the nonempty JSON objects in an array; empty if `values` is no array."""
    return [item for value in list_or_none(values) or () if (item := object_or_none(value))]


def text_or_none(value: object) -> str | None:
    """Return `value` if it is a string, else None; unlike an array, both can be looked up."""
    return value if isinstance(value, str) else None


def leaves(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the strings and numbers of a JSON value in order, each with the nearest key above."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, item = waiting.pop()
        if model.is_object(item):
            waiting += reversed([(key, inner) for key, inner in item.items()])
        elif model.is_list(item):
            waiting += [(name, inner) for inner in reversed(item)]
        elif item is not None and not isinstance(item, bool) and item != "":
            yield name, item


def plain_text(value: object) -> str:
    """Return each string and number of a JSON value on a line, after its key."""
    return "\n".join(f"{name}: {leaf}" if name else str(leaf) for name, leaf in leaves(value))


def nests_too_deep(value: object) -> bool:
    """Whether arrays and objects are nested more than `_MAX_NESTING` levels deep."""
    level: list[model.JsonObject | list[Any]] = [value] if isinstance(value, _HOLDERS) else []
    for _ in range(_MAX_NESTING):
        level = [
            inner
            for holder in level
            for inner in (holder.values() if isinstance(holder, dict) else holder)
            # Most values are strings. Looking up their type takes a fifth of the time.
            if type(inner) not in _LEAVES and isinstance(inner, _HOLDERS)
        ]
        if not level:
            return False
    return True


@dataclass(slots=True)
class Node:
    """A JSON object in a message that is being parsed.

    Attributes:
        raw: The object.
        index: Position of the message in the list, for errors.
        where: Place of the object in the message, for errors; empty for the message itself.
    """

    raw: model.JsonObject
    index: int
    where: str = ""

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        """Raise the error about this object."""
        raise InvalidMessageError(self.index, f"{self._prefix}{problem}", remedy)

    def text(self, key: str, remedy: str = "") -> str:
        """Return the string under `key`, which may be empty."""
        value = self.raw.get(key)
        if not isinstance(value, str):
            problem = f"is {type_name(value)}, not a string" if key in self.raw else "is missing"
            self.refuse(f"`{key}` {problem}", remedy or f"Give `{key}` as a string.")
        return value

    def name(self, key: str, remedy: str = "") -> str:
        """Return the nonempty string under `key`: an ID or a name."""
        value = self.text(key, remedy)
        if not value:
            self.refuse(f"`{key}` is empty", remedy or f"Give `{key}` a value.")
        return value

    def role(self, roles: Mapping[str, model.Role], remedy: str) -> model.Role:
        """Return the role to which `roles` maps the value of "role"."""
        name = self.name("role", remedy)
        if name not in roles:
            self.refuse(f"the role {name!r} is unknown in this format", remedy)
        return roles[name]

    def kind(self) -> str:
        """Return the type of a block; later errors about the block name it."""
        kind = self.name("type", 'Give a block such as {"type": "text", "text": "..."}.')
        self.where = f"{self.where} ({kind})"
        return kind

    def object(self, key: str, remedy: str = "Give an object.") -> "Node":
        """Return the object under `key`."""
        raw = require_object(self.raw.get(key), self.index, f"{self._prefix}`{key}`", remedy)
        return Node(raw, self.index, self.where)

    def objects(self, key: str, remedy: str) -> "Iterator[Node]":
        """Yield the objects of the array under `key`."""
        values = list_or_none(self.raw.get(key))
        if values is None:
            kind = type_name(self.raw.get(key))
            problem = f"is {kind}, not an array" if key in self.raw else "is missing"
            self.refuse(f"`{key}` {problem}", remedy)
        for n, value in enumerate(values):
            where = f"{self._prefix}{key}[{n}]"
            yield Node(require_object(value, self.index, where, remedy), self.index, where)

    def content(
        self, parse: "Callable[[Node], BlockType]", key: str = "content"
    ) -> "tuple[model.Text | BlockType, ...]":
        """Return the blocks under `key`: a string is one text, an array has a block each."""
        value = self.raw.get(key)
        if isinstance(value, str):
            return (model.Text(value),)
        return tuple(map(parse, self.objects(key, "Give a string or an array of blocks.")))

    @property
    def _prefix(self) -> str:
        return f"{self.where}: " if self.where else ""


def require_object(value: object, index: int, where: str, remedy: str) -> model.JsonObject:
    """Return `value` if it is a JSON object; raises `InvalidMessageError`."""
    raw = object_or_none(value)
    if raw is None:
        problem = f"{where} is {type_name(value)}, not an object"
        raise InvalidMessageError(index, problem, remedy)
    return raw


def sane_seconds(value: object, *, per_second: int = 1) -> float | None:
    """Return the Unix time of `value`; None if it is no number or not between 2000 and 2100.

    Hosts confuse seconds, milliseconds and microseconds. Such a time would sort a session wrongly.

    Args:
        value: A time.
        per_second: Units of `value` per second.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared before the division, because an integer may be too large for a float.
    first, last = _SANE_SECONDS
    if not first * per_second <= value <= last * per_second:
        return None
    return value / per_second


def parse_time(value: object) -> float | None:
    """Return the Unix time of an ISO 8601 string, UTC by default; None for another value."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return sane_seconds((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def refuse_constant(constant: str) -> NoReturn:
    """Raise `ValueError` for NaN and the infinities, which `json.loads` accepts by default."""
    raise ValueError(f"{constant} is not a JSON value")


def loads_or_text(text: str) -> Any:
    """Return the JSON value of `text`; `text` itself if it is a string, nested too deep or no JSON.

    So a string in `ToolCall.arguments` is always the text as the host wrote it.
    """
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) or nests_too_deep(value) else value


def dumps(value: object) -> str:
    """Return `value` as compact JSON; a string is returned unchanged."""
    return value if isinstance(value, str) else model.compact_json(value)


def string_or_list(
    blocks: Sequence[BlockType], original: object, changes: Callable[[BlockType], model.JsonObject]
) -> str | list[model.JsonObject]:
    """Render content in the shape it had: a string stays a string while it is one text.

    Args:
        blocks: The content.
        original: Content of the host; None for content that this library made, which becomes a
            string if it can.
        changes: Returns the fields of an edited block; see `render_block`.
    """
    if original is None or isinstance(original, str):
        if not blocks:
            return ""
        first = blocks[0]
        if len(blocks) == 1 and isinstance(first, model.Text) and first.source is None:
            return first.text
    return [render_block(block, changes) for block in blocks]


def render_block(
    block: BlockType, changes: Callable[[BlockType], model.JsonObject]
) -> model.JsonObject:
    """Return the host's own block if it is not edited; else a copy of it with `changes`."""
    if block.source is not None and not block.edited:
        return block.source
    return {**(block.source or {}), **changes(block)}


def object_arguments(call: model.ToolCall) -> model.JsonObject:
    """Return the arguments of a call for a format that accepts only objects."""
    arguments = object_or_none(call.arguments)
    return {"input": call.arguments} if arguments is None else arguments


def image_from_url(url: str, source: model.JsonObject) -> model.Image:
    """Return the image in a `data:` URL or at an address."""
    parts = _split_data_url(url)
    if parts is None:
        return model.Image(UNKNOWN_IMAGE, url=url, source=source)
    return model.Image(parts[0] or UNKNOWN_IMAGE, data=parts[1], source=source)


def document_from_data(file_data: str, source: model.JsonObject) -> model.Document:
    """Return the file in OpenAI's `file_data`: a `data:` URL, or bare base64 text."""
    media_type, data = _split_data_url(file_data) or (UNKNOWN_FILE, file_data)
    return model.Document(media_type or UNKNOWN_FILE, data=data, source=source)


def _split_data_url(url: str) -> tuple[str, str] | None:
    """Return media type and base64 text of a `data:` URL; None for another URL or encoding."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url[len("data:") :].partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return head.removesuffix(";base64").partition(";")[0], data


def images_have(key: str, content: object) -> bool:
    """Whether each image of a content has the field `key`."""
    return all(key in b for b in objects_in(content) if b.get("type") == "image")


def media_url(media: model.Image | model.Document) -> str:
    """Return the address of an image or file, or a `data:` URL with its content."""
    return media.url or f"data:{media.media_type};base64,{media.data or ''}"


def media_file_name(document: model.Document) -> str:
    """Return a file name with the ending of the media type, because OpenAI requires a name."""
    return f"document.{document.media_type.rpartition('/')[2] or 'bin'}"


def describe_media(media: model.Image | model.Document) -> str:
    """Return one line in place of media that a format or role does not accept."""
    kind = "image" if isinstance(media, model.Image) else "document"
    where = f" at {media.url}" if media.url else f", {len(media.data or '')} base64 characters"
    return f"[{kind}: {media.media_type}{where}]"


# IDs of calls -------------------------------------------------------------------------------------


_PREFIX = "unnamed_"


def is_generated(call_id: str) -> bool:
    """Whether this module generated `call_id`, rather than the host."""
    return call_id.startswith(_PREFIX)


def host_id(call_id: str) -> str:
    """Return an ID for a format in which calls have IDs."""
    return "call_" + call_id.removeprefix(_PREFIX) if is_generated(call_id) else call_id


def name_of(result: model.ToolResult) -> str:
    """Return the tool's name for a format in which results have one."""
    if result.name:
        return result.name
    return result.call_id.split("_", 3)[3] if is_generated(result.call_id) else result.call_id


def link(messages: model.Messages) -> model.Messages:
    """Return the messages with an ID for each call and result whose ID is empty.

    A result answers the first open call of its name in the assistant messages directly before it.
    A result without such a call gets an unused ID, so that repair finds it. A call with a synthetic
    result moves to the end of the open calls, because the result of the tool may follow.
    """
    if not any(_lacks_id(block) for message in messages for block in message.blocks):
        return messages
    linked: list[model.Message] = []
    open_calls: list[model.ToolCall] = []
    previous_role = ""
    for position, message in enumerate(messages):
        if message.role == "assistant" and previous_role != "assistant":
            open_calls = []
        previous_role = message.role
        blocks = tuple(
            _link_block(block, f"{_PREFIX}{position}_{n}_", open_calls)
            for n, block in enumerate(message.blocks)
        )
        linked.append(replace(message, blocks=blocks))
    return tuple(linked)


def _lacks_id(block: model.Block) -> bool:
    return isinstance(block, model.ToolCall | model.ToolResult) and not block.call_id


def _link_block(block: model.Block, prefix: str, open_calls: list[model.ToolCall]) -> model.Block:
    """Return `block` with an ID; adds a call to `open_calls` or removes the answered call."""
    if isinstance(block, model.ToolCall):
        call = block if block.call_id else replace(block, call_id=f"{prefix}{block.name}")
        open_calls.append(call)
        return call
    if not isinstance(block, model.ToolResult):
        return block
    for call in open_calls:
        if call.call_id == block.call_id or (not block.call_id and call.name == block.name):
            open_calls.remove(call)
            if model.is_synthetic_result(block):
                open_calls.append(call)
            return replace(block, call_id=call.call_id)
    return block if block.call_id else replace(block, call_id=f"{prefix}{block.name or ''}")


# Detection ----------------------------------------------------------------------------------------

BLOCK_TYPES: dict[str, frozenset[str]] = {
    "anthropic": frozenset({
        "text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use",
        "mcp_tool_use", "mcp_tool_result", "image", "document", "search_result",
    }),
    "openai-chat": frozenset({"text", "image_url", "input_audio", "file", "refusal"}),
    "openai-responses": frozenset({
        "input_text", "output_text", "input_image", "input_file", "input_audio", "refusal",
        "computer_screenshot",
    }),
    "pi": frozenset({"text", "thinking", "toolCall", "image"}),
}  # fmt: skip


def weigh_content(content: object, format: str) -> int:
    """Return how well content fits `format`: 0 not at all, 1 possibly, 2 only this format has it.

    A string fits every format. A value that is neither string nor array fits no format, and neither
    does a block without a type. Unknown block types decide nothing, because providers often add
    types.
    """
    if isinstance(content, str):
        return 1
    blocks = list_or_none(content)
    if blocks is None:
        return 0
    kinds = {text_or_none((object_or_none(block) or {}).get("type")) for block in blocks}
    if None in kinds or kinds & _ONLY_ELSEWHERE[format]:
        return 0
    return 2 if kinds & _ONLY_HERE[format] else 1


def _types_elsewhere(format: str) -> frozenset[str]:
    return frozenset[str]().union(*(kinds for name, kinds in BLOCK_TYPES.items() if name != format))


_ONLY_HERE = {name: kinds - _types_elsewhere(name) for name, kinds in BLOCK_TYPES.items()}
_ONLY_ELSEWHERE = {name: _types_elsewhere(name) - kinds for name, kinds in BLOCK_TYPES.items()}
