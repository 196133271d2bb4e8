"""Code that all formats share: the description of a format, and helpers to read and write JSON.

Each read helper turns a wrong value into an error that names the right value. No helper copies a
value or looks deeper than its argument, so the cost of a message does not grow with nesting.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn, TypeVar, cast

from context_compaction.errors import InvalidMessageError
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Messages,
    Role,
    Text,
    ToolCall,
    compact_json,
    is_list,
    is_object,
)
from context_compaction.messages.tool_pairs import ProviderRules

Rendered = TypeVar("Rendered", bound=Any)
BlockType = TypeVar("BlockType")

MESSAGE_REMEDY = 'Give an object such as {"role": "user", "content": "..."}.'
UNKNOWN_IMAGE = "image/*"
UNKNOWN_FILE = "application/octet-stream"

# The JSON parser of the server has the same limit. Much of the code walks a message by recursion,
# for which Python has room for about a thousand calls.
_MAX_NESTING = 200
_LEAVES = frozenset({str, int, float, bool, type(None)})
_HOLDERS: tuple[type[JsonObject], type[list[Any]]] = dict, list
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
    recognises: Callable[[JsonObject], int]
    parse: "Callable[[Node], Message]"
    render_edited: Callable[[Message], list[JsonObject]]
    system_prompt: Literal["list", "beside", "nowhere"]
    link: Callable[[Messages], Messages] | None = None

    def parse_message(self, raw: JsonObject, index: int) -> Message:
        """Parse the raw message at `index` of a list; raises `InvalidMessageError`."""
        return self.parse(Node(raw, index))

    def render_message(self, message: Message) -> list[JsonObject]:
        """Return the host's own object if the message is not edited; else render it."""
        if message.source is not None and not message.edited:
            return [message.source]
        return self.render_edited(message)


def type_name(value: object) -> str:
    """Return the JSON name of a value's type, for error messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {"str": "a string", "int": "a number", "float": "a number"}
    names |= {"list": "an array", "dict": "an object"}
    name = type(value).__name__
    return names.get(name, name)


def object_or_none(value: object) -> JsonObject | None:
    """Return `value` if it is a JSON object, else None."""
    return cast(JsonObject, value) if isinstance(value, dict) else None


def list_or_none(value: object) -> Sequence[Any] | None:
    """Return `value` if it is a JSON array, else None."""
    return cast(Sequence[Any], value) if isinstance(value, list) else None


def objects_in(values: object) -> list[JsonObject]:
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
        if is_object(item):
            waiting += reversed([(key, inner) for key, inner in item.items()])
        elif is_list(item):
            waiting += [(name, inner) for inner in reversed(item)]
        elif item is not None and not isinstance(item, bool) and item != "":
            yield name, item


def plain_text(value: object) -> str:
    """Return each string and number of a JSON value on a line, after its key."""
    return "\n".join(f"{name}: {leaf}" if name else str(leaf) for name, leaf in leaves(value))


def nests_too_deep(value: object) -> bool:
    """Whether arrays and objects are nested more than `_MAX_NESTING` levels deep."""
    level: list[JsonObject | list[Any]] = [value] if isinstance(value, _HOLDERS) else []
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

    raw: JsonObject
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

    def role(self, roles: Mapping[str, Role], remedy: str) -> Role:
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
    ) -> "tuple[Text | BlockType, ...]":
        """Return the blocks under `key`: a string is one text, an array has a block each."""
        value = self.raw.get(key)
        if isinstance(value, str):
            return (Text(value),)
        return tuple(map(parse, self.objects(key, "Give a string or an array of blocks.")))

    @property
    def _prefix(self) -> str:
        return f"{self.where}: " if self.where else ""


def require_object(value: object, index: int, where: str, remedy: str) -> JsonObject:
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
    return value if isinstance(value, str) else compact_json(value)


def string_or_list(
    blocks: Sequence[BlockType], original: object, render: Callable[[BlockType], Rendered]
) -> str | list[Rendered]:
    """Render content in the shape it had: a string stays a string while it is one text.

    Args:
        blocks: The content.
        original: Content of the host; None for content that this library made, which becomes a
            string if it can.
        render: Renders one block.
    """
    if original is None or isinstance(original, str):
        if not blocks:
            return ""
        first = blocks[0]
        if len(blocks) == 1 and isinstance(first, Text) and first.source is None:
            return first.text
    return [render(block) for block in blocks]


def render_block(block: Block, changes: Callable[[Any], JsonObject]) -> JsonObject:
    """Return the host's own block if it is not edited; else a copy of it with `changes`."""
    if block.source is not None and not block.edited:
        return block.source
    return {**(block.source or {}), **changes(block)}


def object_arguments(call: ToolCall) -> JsonObject:
    """Return the arguments of a call for a format that accepts only objects."""
    arguments = object_or_none(call.arguments)
    return {"input": call.arguments} if arguments is None else arguments


def image_from_url(url: str, source: JsonObject) -> Image:
    """Return the image in a `data:` URL or at an address."""
    parts = _split_data_url(url)
    if parts is None:
        return Image(UNKNOWN_IMAGE, url=url, source=source)
    return Image(parts[0] or UNKNOWN_IMAGE, data=parts[1], source=source)


def document_from_data(file_data: str, source: JsonObject) -> Document:
    """Return the file in OpenAI's `file_data`: a `data:` URL, or bare base64 text."""
    media_type, data = _split_data_url(file_data) or (UNKNOWN_FILE, file_data)
    return Document(media_type or UNKNOWN_FILE, data=data, source=source)


def _split_data_url(url: str) -> tuple[str, str] | None:
    """Return media type and base64 text of a `data:` URL; None for another URL or encoding."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url[len("data:") :].partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return head.removesuffix(";base64").partition(";")[0], data


def media_url(media: Image | Document) -> str:
    """Return the address of an image or file, or a `data:` URL with its content."""
    return media.url or f"data:{media.media_type};base64,{media.data or ''}"


def media_file_name(document: Document) -> str:
    """Return a file name with the ending of the media type, because OpenAI requires a name."""
    return f"document.{document.media_type.rpartition('/')[2] or 'bin'}"


def describe_media(media: Image | Document) -> str:
    """Return one line in place of media that a format or role does not accept."""
    kind = "image" if isinstance(media, Image) else "document"
    where = f" at {media.url}" if media.url else f", {len(media.data or '')} base64 characters"
    return f"[{kind}: {media.media_type}{where}]"
