"""What was counted before: the counts of a process, by content hash.

A conversation is counted again at every turn, and nearly all of it was there the last time.
"""

import hashlib
import threading
from collections import OrderedDict

MEMO_ENTRIES = 50_000  # about 10 MB


class CountMemo:
    """Counts by key, the least recently used thrown out first. Safe to share between threads."""

    def __init__(self, max_entries: int = MEMO_ENTRIES) -> None:
        self._max_entries = max_entries
        self._counts: OrderedDict[tuple[str, str | bytes], int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    def get(self, key: tuple[str, str | bytes]) -> int | None:
        """The count under `key`, if it is still known."""
        with self._lock:
            count = self._counts.get(key)
            if count is not None:
                self._counts.move_to_end(key)
            return count

    def put(self, key: tuple[str, str | bytes], count: int) -> None:
        """Keep `count` under `key`."""
        with self._lock:
            self._counts[key] = count
            if len(self._counts) > self._max_entries:
                self._counts.popitem(last=False)


SHARED_MEMO = CountMemo()


def text_hash(text: str) -> bytes:
    """16 bytes that stand for `text`."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
