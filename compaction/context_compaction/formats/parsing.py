"""Checks shared by the formats: each turns a wrong value into an error that says what is right.

Nothing here copies or walks deeper than the one value it is asked about, so a message's cost does
not grow with what it nests.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast

from context_compaction.errors import InvalidMessageError
from context_compaction.messages.model import (
    Block,
    JsonObject,
    Role,
    Text,
    ToolCall,
    compact_json,
)

Rendered = TypeVar("Rendered", bound=Any)
BlockType = TypeVar("BlockType")


def type_name(value: object) -> str:
    """The JSON name of a value's type, for error messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {"str": "a string", "int": "a number", "float": "a number"}
    names |= {"list": "an array", "dict": "an object"}
    name = type(value).__name__
    return names.get(name, name)


def object_or_none(value: object) -> JsonObject | None:
    """`value` if it is a JSON object."""
    return cast(JsonObject, value) if isinstance(value, dict) else None


def list_or_none(value: object) -> Sequence[Any] | None:
    """`value` if it is a JSON array."""
    return cast(Sequence[Any], value) if isinstance(value, list) else None


def objects_in(values: object) -> list[JsonObject]:
    """The JSON objects with anything in them in an array; none where `values` is no array."""
    return [found for value in list_or_none(values) or () if (found := object_or_none(value))]


def text_or_none(value: object) -> str | None:
    """`value` if it is a string; safe to look up in a table, which an array is not."""
    return value if isinstance(value, str) else None


# What the parser of the server's frames takes too. Much of what follows walks a message by
# recursion, for which Python has room for about a thousand calls.
_MAX_NESTING = 200


_LEAVES = frozenset({str, int, float, bool, type(None)})
_HOLDERS: tuple[type[JsonObject], type[list[Any]]] = dict, list


def nests_too_deep(value: object) -> bool:
    """Whether arrays and objects stand within each other more than `_MAX_NESTING` deep."""
    level: list[JsonObject | list[Any]] = [value] if isinstance(value, _HOLDERS) else []
    for _ in range(_MAX_NESTING):
        level = [
            inner
            for holder in level
            for inner in (holder.values() if isinstance(holder, dict) else holder)
            # Nearly all are strings, and a set tells them apart in a fifth of the time.
            if type(inner) not in _LEAVES and isinstance(inner, _HOLDERS)
        ]
        if not level:
            return False
    return True


@dataclass(slots=True)
class Node:
    """A JSON object in a message that is read.

    Attributes:
        raw: The object.
        index: Position of the message in the list, for errors.
        where: Where in the message it is, for errors; empty for the message itself.
    """

    raw: JsonObject
    index: int
    where: str = ""

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        """Raise the error about this object."""
        raise InvalidMessageError(self.index, f"{self._prefix}{problem}", remedy)

    def text(self, key: str, remedy: str = "") -> str:
        """The string under `key`; it may be empty."""
        value = self.raw.get(key)
        if not isinstance(value, str):
            problem = f"is {type_name(value)}, not a string" if key in self.raw else "is missing"
            self.refuse(f"`{key}` {problem}", remedy or f"Give `{key}` as a string.")
        return value

    def name(self, key: str, remedy: str = "") -> str:
        """The string under `key`, which must not be empty: an id or a name."""
        value = self.text(key, remedy)
        if not value:
            self.refuse(f"`{key}` is empty", remedy or f"Give `{key}` a value.")
        return value

    def role(self, roles: Mapping[str, Role], remedy: str) -> Role:
        """The role that `roles` has for the one under "role"."""
        name = self.name("role", remedy)
        if name not in roles:
            self.refuse(f"the role {name!r} is unknown in this format", remedy)
        return roles[name]

    def kind(self) -> str:
        """The type of a block. Later errors about the block name it."""
        kind = self.name("type", 'Give a block such as {"type": "text", "text": "..."}.')
        self.where = f"{self.where} ({kind})"
        return kind

    def object(self, key: str, remedy: str = "Give an object.") -> "Node":
        """The object under `key`."""
        raw = require_object(self.raw.get(key), self.index, f"{self._prefix}`{key}`", remedy)
        return Node(raw, self.index, self.where)

    def objects(self, key: str, remedy: str) -> "Iterator[Node]":
        """The objects of the array under `key`."""
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
        """The content under `key`: a string is one text, an array has a block in each element."""
        value = self.raw.get(key)
        if isinstance(value, str):
            return (Text(value),)
        return tuple(map(parse, self.objects(key, "Give a string or an array of blocks.")))

    @property
    def _prefix(self) -> str:
        return f"{self.where}: " if self.where else ""


def require_object(value: object, index: int, where: str, remedy: str) -> JsonObject:
    """`value`, which must be a JSON object."""
    found = object_or_none(value)
    if found is None:
        problem = f"{where} is {type_name(value)}, not an object"
        raise InvalidMessageError(index, problem, remedy)
    return found


def sane_seconds(value: object, *, per_second: int = 1) -> float | None:
    """The Unix time that `value` gives, `per_second` units a second; None where it cannot be.

    Hosts mistake seconds, milliseconds and microseconds for each other. What lies before 2000 or
    after 2100 is such a mistake, and would file a session under a time of its own.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared as it is: an integer may be too large for a float.
    # From the year 2000 to 2100.
    if not 946_684_800.0 * per_second <= value <= 4_102_444_800.0 * per_second:
        return None
    return value / per_second


def parse_time(value: object) -> float | None:
    """Unix time of an ISO 8601 string, taken as UTC where it names no zone; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return sane_seconds((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def refuse_constant(constant: str) -> NoReturn:
    """For `json.loads`: NaN and the infinities, which Python reads, are no JSON."""
    raise ValueError(f"{constant} is not a JSON value")


def loads_or_text(text: str) -> Any:
    """The JSON value of `text`, or `text` itself where it is none, only a string, or too deep.

    A string in `ToolCall.arguments` is therefore always the text as the host wrote it.
    """
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) or nests_too_deep(value) else value


def dumps(value: object) -> str:
    """`value` as compact JSON text; a string is taken as text already."""
    return value if isinstance(value, str) else compact_json(value)


def string_or_list(
    blocks: Sequence[BlockType], original: object, render: Callable[[BlockType], Rendered]
) -> str | list[Rendered]:
    """Content in the shape it had: a string stays one while a single bare text is all there is.

    `original` is what the host wrote, None for content of our own making (as for a string).
    """
    if original is None or isinstance(original, str):
        if not blocks:
            return ""
        only = blocks[0]
        if len(blocks) == 1 and isinstance(only, Text) and only.source is None:
            return only.text
    return [render(block) for block in blocks]


def render_block(block: Block, changes: Callable[[Any], JsonObject]) -> JsonObject:
    """The host's own block if nobody edited it; else a copy of it with `changes`."""
    if block.source is not None and not block.edited:
        return block.source
    return {**(block.source or {}), **changes(block)}


def object_arguments(call: ToolCall) -> JsonObject:
    """The arguments of a call for a format that takes only objects."""
    arguments = object_or_none(call.arguments)
    return {"input": call.arguments} if arguments is None else arguments
