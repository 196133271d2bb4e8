"""Cache of the message lists that this process parsed.

A host passes almost the same list at every call. Parsed messages are looked up by `json_key`, and
`CachedList.once` looks up values that were computed from a whole list.

Messages are parsed from private copies, so a caller that later changes its list or a result does
not change the cache. `as_given` puts the caller's own objects into a result.
"""

import marshal
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

from context_compaction.formats import check_count, format_named, parse_message
from context_compaction.messages.cache import RecentCache, bytes_key
from context_compaction.messages.model import JsonObject, Message, Messages

MAX_BYTES = 64 * 1024 * 1024
_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class CachedList:
    """A parsed message list with values that were computed from it.

    Attributes:
        messages: The parsed messages.
        computed: By name, the inputs of the newest computation and its value.
    """

    messages: Messages
    computed: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])

    def once(self, name: str, inputs: Any, compute: Callable[[], _T]) -> _T:
        """Return the value of `compute`, which is called again only if `inputs` changed."""
        cached = self.computed.get(name)
        if cached is None or cached[0] != inputs:
            cached = self.computed[name] = inputs, compute()
        return cached[1]


class ListCache:
    """Parsed lists and messages by content.

    Args:
        max_bytes: Size of the cache in bytes.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._messages: RecentCache[Message] = RecentCache(max_bytes // 2)
        self._lists: RecentCache[CachedList] = RecentCache(max_bytes // 2)

    def read(self, payload: Sequence[JsonObject], format: str) -> CachedList:
        """Return the parsed list; raises what `formats.parse` raises."""
        check_count(len(payload))
        link = format_named(format).link

        def parse() -> CachedList:
            # Parsed from `data`, because another thread may have changed `payload` since.
            raws = marshal.loads(data) if data else payload  # noqa: S302 - made here
            is_copy = bool(data)
            messages = tuple(self._message(raw, n, format, is_copy) for n, raw in enumerate(raws))
            return CachedList(messages if link is None else link(messages))

        # One hash of the whole list is cheaper than one of each message, and most lists are cached.
        data = _bytes(list(payload))
        if not data:
            return parse()
        name = blake2b(data, digest_size=16, key=format.encode()).digest()
        # A list keeps its messages alive, so their size is part of its size.
        return self._lists.get_or_compute(name, parse, len(data) + 300 * len(payload))

    def _message(self, raw: JsonObject, index: int, format: str, is_copy: bool) -> Message:
        data = _bytes(raw)
        if not data:
            return parse_message(raw, index, format)
        key = bytes_key(data)

        def parse() -> Message:
            copy = raw if is_copy else marshal.loads(data)  # noqa: S302 - made here
            return _with_key(parse_message(copy, index, format), key)

        # A parsed message takes about 1,000 bytes in addition to its text.
        return self._messages.get_or_compute((format, index, key), parse, len(data) + 1_000)


LIST_CACHE = ListCache()


def as_given(
    message: Message, rendered: list[JsonObject], payload: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return a rendered message without any part of the private copies of the cache.

    Args:
        message: A message of the list `payload`.
        rendered: What it renders as.
        payload: The caller's list.
    """
    if message.index is None:
        return rendered
    if not message.edited and len(rendered) == 1 and rendered[0] is message.source:
        return [payload[message.index]]
    return deepcopy(rendered)


def _with_key(message: Message, key: bytes) -> Message:
    # Not `dataclasses.replace`, because it takes four times as long.
    return Message(
        message.role,
        message.blocks,
        source=message.source,
        edited=message.edited,
        index=message.index,
        timestamp_seconds=message.timestamp_seconds,
        key=key,
    )


def _bytes(value: Any) -> bytes:
    """Return bytes that are equal only for equal JSON values; empty if that is not certain."""
    try:
        return marshal.dumps(value, 0)
    except ValueError:  # A subclass such as OrderedDict, or too deep nesting
        return b""
