"""Caches of token counts: by content hash across calls, and by object within a call.

A conversation is counted again at every turn, and nearly all of its messages were counted before.
Within a call, the layers count the same messages many times.
"""

import hashlib
import marshal
from collections.abc import Callable, Hashable, Sequence
from functools import cache, wraps
from threading import Lock
from typing import Any, Generic, TypeAlias, TypeVar

from context_compaction.messages.model import utf8_json

# About 5 MB, because keys are hashes: enough for a list of 20,000 short texts.
MAX_ENTRIES = 40_000
# For caches with one entry per message.
MAX_MESSAGES = MAX_ENTRIES // 2

Key: TypeAlias = bytes | int
_T = TypeVar("_T")


class RecentCache(Generic[_T]):
    """Values by key. The least recently used half is dropped when the cache is full.

    Threads may share it. In the worst case they compute a value twice.
    """

    def __init__(self, max_size: int = MAX_ENTRIES) -> None:
        self._half = max_size // 2
        self._newer: dict[Hashable, _T] = {}
        self._older: dict[Hashable, _T] = {}
        self._newer_size = 0

    def get_or_compute(self, key: Hashable, compute: Callable[[], _T], size: int = 1) -> _T:
        """Return the value of `key`, computed if missing. `size` is its share of the limit."""
        value = self._newer.get(key)
        if value is None:
            value = self._older.get(key)
            self._newer[key] = value = compute() if value is None else value
            self._newer_size += size
            if self._newer_size >= self._half:
                self._older, self._newer, self._newer_size = self._newer, {}, 0
        return value


CountCache: TypeAlias = RecentCache[int]


class ObjectCache:
    """Counts of immutable objects, by identity.

    The cache keeps every object alive, because another object could get the same address. So a
    cache must not outlive its call.
    """

    def __init__(self, begin_with: "ObjectCache | None" = None) -> None:
        self._counts: dict[int, int] = dict(begin_with._counts) if begin_with else {}
        self._alive: list[object] = list(begin_with._alive) if begin_with else []

    def get_or_compute(self, value: _T, compute: Callable[[_T], int]) -> int:
        """Return the count of `value`, computed once."""
        count = self._counts.get(id(value))
        if count is None:
            count = compute(value)
            self.learn(value, count)
        return count

    def total(self, values: Sequence[_T], compute: Callable[[_T], int]) -> int:
        """Return the sum of the counts of `values`."""
        try:
            # This loop runs in C. Usually all counts are known.
            return sum(map(self._counts.__getitem__, map(id, values)))
        except KeyError:
            return sum(self.get_or_compute(value, compute) for value in values)

    def learn(self, value: object, count: int) -> None:
        """Store a count that was computed elsewhere."""
        self._alive.append(value)
        self._counts[id(value)] = count


@cache
def cache_for(method: str) -> CountCache:  # noqa: ARG001 - the key of the cache
    """Return this process's cache for the counting method `method`."""
    return CountCache()


def text_key(text: str) -> Key:
    """Return the cache key of `text`: a hash, so that the cache stores no texts."""
    # Python stores the hash with the string, so each string is hashed once. The hash is keyed with
    # a secret of the process, so nobody can construct a collision.
    return hash(text) << 32 | len(text)


def json_key(value: Any) -> bytes:
    """Return the cache key of a JSON value: 16 bytes.

    The key hashes marshal's bytes, which are five times faster than JSON. Version 0 depends on
    nothing but the value. The bytes are never stored.
    """
    try:
        data = marshal.dumps(value, 0)
    except ValueError:  # a subclass, such as OrderedDict
        data = utf8_json(value)
    return bytes_key(data)


def bytes_key(data: bytes) -> bytes:
    """Return the `json_key` of the value that marshal writes as `data`."""
    return hashlib.blake2b(data, digest_size=16, person=b"json").digest()


def run_once(load: Callable[[], _T]) -> Callable[[], _T]:
    """Return a function that calls `load` once in any thread and then returns its value.

    Other threads wait for the first call. Use it for slow loading, and for imports of packages
    whose modules import each other, because two threads that import them together see half of a
    module.
    """
    lock = Lock()
    values: list[_T] = []

    @wraps(load)
    def get() -> _T:
        if not values:
            with lock:
                if not values:
                    values.append(load())
        return values[0]

    return get
