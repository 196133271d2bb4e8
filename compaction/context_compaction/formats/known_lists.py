"""Lists that this process has read before: each message is parsed once.

A host passes nearly the same list at every call. Its messages are looked up by their `json_key`,
and what is known of them is used again; what was computed of a whole list is found with `once`.

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
from context_compaction.messages.model import JsonObject, Message, Messages

MAX_BYTES = 64 * 1024 * 1024
# What a message costs beside its text, and what it costs in each list.
_FRAME_BYTES = 1_000
_LISTED_BYTES = 300
_T = TypeVar("_T")
_MessageKey: TypeAlias = tuple[str, int, bytes]


@dataclass(eq=False, slots=True)
class KnownList:
    """A list of messages, and what was computed of it as a whole.

    Attributes:
        messages: Its messages.
        computed: The newest value for each name, after what it was computed from.
    """

    messages: Messages
    computed: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])

    def once(self, name: str, given: Any, compute: Callable[[], _T]) -> _T:
        """What `compute` returns; computed again only if `given` is not what it was last time."""
        known = self.computed.get(name)
        if known is None or known[0] != given:
            known = self.computed[name] = given, compute()
        return known[1]


@dataclass(slots=True)
class _Generation:
    """Messages and lists, and their size."""

    messages: dict[_MessageKey, Message] = field(default_factory=dict[_MessageKey, Message])
    lists: dict[bytes, KnownList] = field(default_factory=dict[bytes, KnownList])
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
        keys = [bytes_key(data) if (data := _plain(raw)) else b"" for raw in payload]
        known = self._newer.lists.get(_name(keys, format)) if all(keys) else None
        return known or self._parsed(payload, keys, wire_format)

    def _parsed(
        self, payload: Sequence[JsonObject], keys: Sequence[bytes], wire_format: MessageFormat
    ) -> KnownList:
        found = [
            self._message(raw, key, at, wire_format.name)
            for at, (raw, key) in enumerate(zip(payload, keys, strict=True))
        ]
        messages = tuple(found)
        known = KnownList(messages if wire_format.link is None else wire_format.link(messages))
        names = [message.key for message in found]
        if all(names):
            newer = self._newer
            newer.lists[_name(names, wire_format.name)] = known
            newer.size_bytes += _LISTED_BYTES * len(names)
            if newer.size_bytes > self._half_bytes:
                self._older, self._newer = newer, _Generation()
        return known

    def _message(self, raw: JsonObject, key: bytes, index: int, format: str) -> Message:
        newer, name = self._newer, (format, index, key)
        message = newer.messages.get(name) if key else None
        if message is not None:
            return message
        message = self._older.messages.get(name) if key else None
        data = _plain(raw) if key else b""
        if not data:
            return parse_one(raw, index, format)
        if message is None:
            # Its key is that of the copy: another thread may have changed the original since.
            copy, key = marshal.loads(data), bytes_key(data)  # noqa: S302 - made here
            message = replace(parse_one(copy, index, format), key=key)
            name = format, index, key
        newer.messages[name] = message
        newer.size_bytes += len(data) + _FRAME_BYTES
        return message


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


def _plain(raw: JsonObject) -> bytes:
    """A message as bytes, equal for equal messages alone; empty if that is not certain."""
    try:
        return marshal.dumps(raw, 0)
    except ValueError:  # a subclass, such as OrderedDict, or too deeply nested
        return b""


def _name(keys: Sequence[bytes], format: str) -> bytes:
    return blake2b(b"".join((format.encode(), *keys)), digest_size=16).digest()
