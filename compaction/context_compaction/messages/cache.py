"""What was counted before: counts by content hash, and within one call by object.

A conversation is counted again at every turn, and nearly all of it was there the last time. Within
a call its layers weigh the same messages again and again.
"""

import hashlib
import marshal
from collections.abc import Callable, Hashable, Sequence
from functools import cache, wraps
from threading import Lock
from typing import Any, Generic, TypeAlias, TypeVar

from context_compaction.messages.model import utf8_json

MAX_ENTRIES = 12_000  # about 2 MB, no key being longer than a hash: a list of 2M tokens
MAX_MESSAGES = 6_000  # where there is one entry for each message: a list of 5M tokens

Key: TypeAlias = bytes | int
_T = TypeVar("_T")


class RecentCache(Generic[_T]):
    """Values by key; those that were not asked for longest go first, half of them at a time.

    Threads may share it: at worst they compute something twice.
    """

    def __init__(self, max_size: int = MAX_ENTRIES) -> None:
        self._half = max_size // 2
        self._newer: dict[Hashable, _T] = {}
        self._older: dict[Hashable, _T] = {}
        self._newer_size = 0

    def get_or_compute(self, key: Hashable, compute: Callable[[], _T], size: int = 1) -> _T:
        """The value under `key`, which counts as `size`; computed where it is not known."""
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
    """Counts of frozen objects, by identity.

    It keeps each object alive, or another could come to stand at its address; so let it live for
    one call.
    """

    def __init__(self, begin_with: "ObjectCache | None" = None) -> None:
        self._known: dict[int, int] = dict(begin_with._known) if begin_with else {}
        self._alive: list[object] = list(begin_with._alive) if begin_with else []

    def get_or_compute(self, of: _T, compute: Callable[[_T], int]) -> int:
        """What `compute` gives for `of`, computed once."""
        known = self._known.get(id(of))
        if known is None:
            known = compute(of)
            self.learn(of, known)
        return known

    def total(self, of: Sequence[_T], compute: Callable[[_T], int]) -> int:
        """The sum of what `compute` gives for each of `of`."""
        try:
            return sum(map(self._known.__getitem__, map(id, of)))  # in C: mostly all are known
        except KeyError:
            return sum(self.get_or_compute(one, compute) for one in of)

    def learn(self, of: object, count: int) -> None:
        """Take over a count that was made before."""
        self._alive.append(of)
        self._known[id(of)] = count


@cache
def cache_for(method: str) -> CountCache:  # noqa: ARG001 - the key of the cache
    """The cache of this process for one way of counting, named by its method."""
    return CountCache()


def text_key(text: str) -> Key:
    """The key of `text`: its hash, so that a cache keeps no texts."""
    # Python keeps it with the text, so a text is hashed once however often it is asked for. Who
    # does not know this process's secret can make no two texts alike.
    return hash(text) << 32 | len(text)


def json_key(value: Any) -> bytes:
    """The key of a JSON value: 16 bytes.

    It hashes marshal's bytes, which are made five times faster than JSON. Version 0 depends on
    nothing but the value; the bytes themselves are never stored nor read back.
    """
    try:
        data = marshal.dumps(value, 0)
    except ValueError:  # a subclass, such as OrderedDict
        data = utf8_json(value)
    return bytes_key(data)


def bytes_key(data: bytes) -> bytes:
    """The `json_key` of the value that marshal writes as `data`."""
    return hashlib.blake2b(data, digest_size=16, person=b"json").digest()


def run_once(make: Callable[[], _T]) -> Callable[[], _T]:
    """`make`, run by whoever calls first, in any thread; the others wait for what it returns.

    For what takes long to load, and for packages whose files import each other: two threads that
    import these at once get half of them.
    """
    lock = Lock()
    made: list[_T] = []

    @wraps(make)
    def get() -> _T:
        if not made:
            with lock:
                if not made:
                    made.append(make())
        return made[0]

    return get
