"""Lists that this process has read before: each message is parsed once.

A host passes nearly the same list at every call. Its messages are looked up by their `json_key`,
and what is known of them is used again; what was computed of a whole list is found with `once`.
A message that equals the known one at its place needs no hash, unless it contains numbers: to
Python, 1, 1.0 and true are equal.

Messages are parsed from private copies. So nothing that a caller later changes in its list, or in
a result, changes what is known. What goes out is made by `as_given`, of the caller's own objects.
"""

import marshal
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

from context_compaction.formats import check_count, format_named, parse_one
from context_compaction.formats.base import MessageFormat
from context_compaction.messages.cache import bytes_key
from context_compaction.messages.model import JsonObject, Message, Messages, is_list, is_object

MAX_BYTES = 64 * 1024 * 1024
# What a message costs beside its text, and what it costs in each list.
_FRAME_BYTES = 1_000
_LISTED_BYTES = 300
_T = TypeVar("_T")
_Plain: TypeAlias = tuple[JsonObject | None, bytes, bool]
_MessageKey: TypeAlias = tuple[str, int, bytes]


_Known: TypeAlias = tuple[Message, bool]


@dataclass(eq=False, slots=True)
class KnownList:
    """A list of messages, and what was computed of it as a whole.

    Attributes:
        messages: Its messages.
        plain: For each of them its private copy, its key, and whether it is free of numbers.
        computed: The newest value for each name, after what it was computed from.
    """

    messages: Messages
    plain: Sequence[_Plain] = ()
    computed: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])

    def once(self, name: str, given: Any, compute: Callable[[], _T]) -> _T:
        """What `compute` returns; computed again only if `given` is not what it was last time."""
        known = self.computed.get(name)
        if known is None or known[0] != given:
            known = self.computed[name] = given, compute()
        return known[1]


@dataclass(slots=True)
class _Generation:
    """Messages and lists, the newest list for each first message, and the size of all."""

    messages: dict[_MessageKey, _Known] = field(default_factory=dict[_MessageKey, _Known])
    lists: dict[bytes, KnownList] = field(default_factory=dict[bytes, KnownList])
    newest: dict[bytes, KnownList] = field(default_factory=dict[bytes, KnownList])
    size_bytes: int = 0


class KnownLists:
    """Lists by their content. Those not used for longest are dropped, half of the bytes at a time.

    Threads may share it: at worst they parse a message twice.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._half_bytes = max_bytes // 2
        self._newer, self._older = _Generation(), _Generation()

    def read(self, payload: Sequence[JsonObject], format: str) -> KnownList:
        """The parsed list; raises what `formats.parse` raises."""
        check_count(len(payload))
        wire_format = format_named(format)
        keys = self._keys(payload, format)
        known = self._newer.lists.get(_name(keys, format)) if all(keys) else None
        return known or self._parsed(payload, keys, wire_format)

    def _keys(self, payload: Sequence[JsonObject], format: str) -> list[bytes]:
        keys = list(map(_key, payload[:1]))
        first = _name(keys, format)
        begun = self._newer.newest.get(first) or self._older.newest.get(first)
        plain = begun.plain[1:] if begun else ()
        for raw, (copy, key, is_text) in zip(payload[1:], plain, strict=False):
            keys.append(key if is_text and raw == copy else _key(raw))
        return [*keys, *map(_key, payload[len(keys) :])]

    def _parsed(
        self, payload: Sequence[JsonObject], keys: Sequence[bytes], wire_format: MessageFormat
    ) -> KnownList:
        found = [
            self._message(raw, key, at, wire_format.name)
            for at, (raw, key) in enumerate(zip(payload, keys, strict=True))
        ]
        messages = tuple(message for message, _ in found)
        if wire_format.link is not None:
            messages = wire_format.link(messages)
        known = KnownList(messages, [(one.source, one.key, is_text) for one, is_text in found])
        names = [message.key for message, _ in found]
        if all(names):
            newer = self._newer
            newer.lists[_name(names, wire_format.name)] = known
            newer.newest[_name(names[:1], wire_format.name)] = known
            newer.size_bytes += _LISTED_BYTES * len(names)
            if newer.size_bytes > self._half_bytes:
                self._older, self._newer = newer, _Generation()
        return known

    def _message(self, raw: JsonObject, key: bytes, index: int, format: str) -> _Known:
        newer, name = self._newer, (format, index, key)
        known = newer.messages.get(name) if key else None
        if known is not None:
            return known
        known = self._older.messages.get(name) if key else None
        data = _bytes(raw) if key else b""
        if not data:
            return parse_one(raw, index, format), False
        if known is None:
            # Its key is that of the copy: another thread may have changed the original since.
            copy, key = marshal.loads(data), bytes_key(data)  # noqa: S302 - made here
            known = replace(parse_one(copy, index, format), key=key), not _has_numbers(copy)
            name = format, index, key
        newer.messages[name] = known
        newer.size_bytes += len(data) + _FRAME_BYTES
        return known


KNOWN_LISTS = KnownLists()


def as_given(
    message: Message, rendered: list[JsonObject], payload: Sequence[JsonObject]
) -> list[JsonObject]:
    """`rendered` from `message` of the list `payload`, without any part of a private copy."""
    if message.index is None:
        return rendered
    if len(rendered) == 1 and rendered[0] is message.source:
        return [payload[message.index]]
    return deepcopy(rendered)


def _has_numbers(value: Any) -> bool:
    """Whether a JSON value contains numbers or truth values."""
    if is_object(value):
        return any(map(_has_numbers, value)) or any(map(_has_numbers, value.values()))
    if is_list(value):
        return any(map(_has_numbers, value))
    return not isinstance(value, str) and value is not None


def _key(raw: JsonObject) -> bytes:
    """The `json_key` of a message; empty if it is not plain JSON."""
    data = _bytes(raw)
    return bytes_key(data) if data else b""


def _bytes(raw: JsonObject) -> bytes:
    """A message as bytes, equal for equal messages alone; empty if that is not certain."""
    try:
        return marshal.dumps(raw, 0)
    except ValueError:  # a subclass, such as OrderedDict, or too deeply nested
        return b""


def _name(keys: Sequence[bytes], format: str) -> bytes:
    return blake2b(b"".join((format.encode(), *keys)), digest_size=16).digest()
