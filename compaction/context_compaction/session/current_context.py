"""The list that a session continues from, for callers that pass only new messages.

The newest lists of a process stay in memory. A list from memory is used only if the archive names
the session's context by the same hash, so nothing that a caller or another process has changed
since can be taken for it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias
from weakref import ref

from anyio import to_thread

from context_compaction.archive import Store
from context_compaction.errors import NotFoundError
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject
from context_compaction.tokens.counter import json_bytes

MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CurrentContext:
    """The list that a session continues from.

    Attributes:
        format: Its format.
        messages: Its messages. Callers must not change them.
        name: Its hash, as `history_hash` computes it.
    """

    format: str
    messages: Sequence[JsonObject]
    name: str


@dataclass(frozen=True, slots=True)
class _Recent:
    format: str
    messages: Sequence[JsonObject]
    size_bytes: int


_Key: TypeAlias = "tuple[ref[Store], str]"


class RecentLists:
    """The newest list of each session, limited by bytes. Threads may share it."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lists: OrderedDict[_Key, _Recent] = OrderedDict()
        self._lock = Lock()

    def keep(
        self,
        archive: Store,
        session_id: str,
        format: str,
        messages: Sequence[JsonObject],
        size_bytes: int,
    ) -> None:
        """Remember `messages` as the newest list of a session."""
        key = (ref(archive), session_id)
        with self._lock:
            self._drop(key)
            self._lists[key] = _Recent(format, messages, size_bytes)
            self._bytes += size_bytes
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._lists)))

    def get(self, archive: Store, session_id: str) -> _Recent | None:
        """The newest list of a session, if this process knows it."""
        key = (ref(archive), session_id)
        with self._lock:
            if key in self._lists:
                self._lists.move_to_end(key)
            return self._lists.get(key)

    def _drop(self, key: _Key) -> None:
        dropped = self._lists.pop(key, None)
        self._bytes -= dropped.size_bytes if dropped else 0


RECENT_LISTS = RecentLists()


def is_recent(archive: Store, session_id: str) -> bool:
    """Whether this process knows the newest list of a session."""
    return RECENT_LISTS.get(archive, session_id) is not None


async def current_context(session_id: str, archive: Store) -> CurrentContext:
    """What `Store.context` returns; from memory if that is the same list.

    Raises:
        NotFoundError: There is no such session.
    """
    recent = RECENT_LISTS.get(archive, session_id)
    # With redaction, the archive's names are those of the lists before it.
    if recent is not None and archive.redaction != "on":
        name = await archive.context_name(session_id)
        if name == await to_thread.run_sync(history_hash, recent.messages):
            return CurrentContext(recent.format, list(recent.messages), name)
    format_name, messages = await archive.context(session_id)
    name, size_bytes = await to_thread.run_sync(_measured, messages)
    RECENT_LISTS.keep(archive, session_id, format_name, messages, size_bytes)
    return CurrentContext(format_name, messages, name)


async def name_if_current(
    messages: Sequence[JsonObject], session_id: str, archive: Store
) -> str | None:
    """The hash of `messages` if `Store.context` returns this very list; else None."""
    name = await to_thread.run_sync(history_hash, messages)
    try:
        if archive.redaction == "on":
            current = (await current_context(session_id, archive)).name
        else:
            current = await archive.context_name(session_id)
    except NotFoundError:
        return None
    return name if name == current else None


def _measured(messages: Sequence[JsonObject]) -> tuple[str, int]:
    return history_hash(messages), sum(map(json_bytes, messages))
