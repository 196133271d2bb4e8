"""What was counted before: counts by content hash, and within one call by object.

A conversation is counted again at every turn, and nearly all of it was there the last time. Within
a call its layers weigh the same messages again and again.
"""

import hashlib
import marshal
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar

from context_compaction.messages.model import compact_json

MEMO_ENTRIES = 50_000  # about 8 MB
# A shorter text is its own key; of a longer one the memo keeps a hash, not the text.
HASH_FROM_CHARS = 200

Key: TypeAlias = str | bytes
_T = TypeVar("_T")


class RecentCache(Generic[_T]):
    """Figures by key; what was not asked for lately is forgotten.

    There are two generations of half the size. A full young one becomes the old one, and what is
    asked for moves from old to young: close to least-recently-used, without a list to keep in
    order. Threads may share it: at worst they compute something twice.
    """

    def __init__(self, max_entries: int = MEMO_ENTRIES) -> None:
        self._generation_entries = max_entries // 2
        self._young: dict[Key, _T] = {}
        self._old: dict[Key, _T] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> _T | None:
        """The figure under `key`, if it is still known."""
        figure = self._young.get(key)
        if figure is None:
            figure = self._old.get(key)
            if figure is not None:
                self.put(key, figure)
        return figure

    def put(self, key: Key, figure: _T) -> None:
        """Keep `figure` under `key`."""
        if len(self._young) >= self._generation_entries:
            self._old = self._young
            self._young = {}
        self._young[key] = figure

    def figure(self, value: Any, compute: Callable[[Any], _T]) -> _T:
        """What `compute` gives for a JSON value, computed once."""
        key = json_key(value)
        figure = self.get(key)
        if figure is None:
            figure = compute(value)
            self.put(key, figure)
        return figure


CountCache: TypeAlias = RecentCache[int]


class ObjectCache:
    """Figures of frozen objects, told apart by identity.

    It keeps each object alive, or another could come to stand at its address; so let it live for
    one call.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, int]] = {}

    def figure(self, of: _T, compute: Callable[[_T], int]) -> int:
        """What `compute` gives for `of`, computed once."""
        known = self._known.get(id(of))
        if known is None:
            known = self._known[id(of)] = (of, compute(of))
        return known[1]


@cache
def cache_for(method: str) -> CountCache:  # noqa: ARG001 - the key of the cache
    """The memo of this process for one way of counting, named by its method."""
    return CountCache()


def text_key(text: str) -> Key:
    """What stands for `text` in a memo."""
    if len(text) <= HASH_FROM_CHARS:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def json_key(value: Any) -> Key:
    """What stands for a JSON value in a memo.

    It hashes marshal's bytes, which are made five times faster than JSON. Version 0 depends on
    nothing but the value; the bytes are never stored nor read back.
    """
    try:
        data = marshal.dumps(value, 0)
    except ValueError:  # a subclass, such as OrderedDict
        data = compact_json(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16, person=b"json").digest()
