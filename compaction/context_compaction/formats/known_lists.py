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
from typing import Any, TypeVar

from context_compaction.formats import check_count, format_named, parse_one
from context_compaction.messages.cache import RecentCache, bytes_key
from context_compaction.messages.model import JsonObject, Message, Messages

MAX_BYTES = 64 * 1024 * 1024
_T = TypeVar("_T")


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


class KnownLists:
    """Lists by their content, and their messages, in at most so many bytes."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._messages: RecentCache[Message] = RecentCache(max_bytes // 2)
        self._lists: RecentCache[KnownList] = RecentCache(max_bytes // 2)

    def read(self, payload: Sequence[JsonObject], format: str) -> KnownList:
        """The parsed list; raises what `formats.parse` raises."""
        check_count(len(payload))
        link = format_named(format).link

        def parse() -> KnownList:
            # From the bytes that name it: another thread may have changed the list since.
            raws = marshal.loads(data) if data else payload  # noqa: S302 - made here
            messages = tuple(self._message(raw, at, format) for at, raw in enumerate(raws))
            return KnownList(messages if link is None else link(messages))

        # One hash of all is cheaper than one of each, and most lists are known as a whole.
        data = _bytes(list(payload))
        if not data:
            return parse()
        name = blake2b(data, digest_size=16, key=format.encode()).digest()
        # A list keeps its messages alive, so it counts them too.
        return self._lists.get_or_compute(name, parse, len(data) + 300 * len(payload))

    def _message(self, raw: JsonObject, index: int, format: str) -> Message:
        data = _bytes(raw)
        if not data:
            return parse_one(raw, index, format)
        key = bytes_key(data)

        def parse() -> Message:
            copy = marshal.loads(data)  # noqa: S302 - made here
            return replace(parse_one(copy, index, format), key=key)

        # What a message costs beside its text.
        return self._messages.get_or_compute((format, index, key), parse, len(data) + 1_000)


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


def _bytes(value: Any) -> bytes:
    """A JSON value as bytes, equal for equal values alone; empty if that is not certain."""
    try:
        return marshal.dumps(value, 0)
    except ValueError:  # a subclass, such as OrderedDict, or too deeply nested
        return b""
