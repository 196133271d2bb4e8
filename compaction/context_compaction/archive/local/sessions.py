"""The sessions in a folder: what is known of each, and how it is written to.

Everything blocks. Calls on different sessions may come from several threads at once, those on one
session come one after the other: `archive.py` sees to that.
"""

import os
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from context_compaction.archive.histories import MessageNode
from context_compaction.archive.local.durable_files import explaining, locked, make_folder
from context_compaction.archive.local.log import (
    LOCK_NAME,
    SEGMENT_BYTES,
    BlobStore,
    append_records,
    claim_writer,
    cut_segment,
    read_body,
    read_segment,
    segment_sizes,
    session_folder,
    session_key,
    sync_segments,
)
from context_compaction.archive.records import LoggedRecord, Record
from context_compaction.archive.transcript_state import (
    StateCache,
    TranscriptState,
    numbered,
)
from context_compaction.errors import ArchiveError


@dataclass(slots=True)
class LocalState(TranscriptState):
    """The heads of one session, kept up to date by `refresh`.

    Attributes:
        folder: Where its segments lie.
        sizes: By segment, how large it was when last looked at.
        read_to: By segment, up to where it was read.
        synced_to: By segment, up to where this process knows it to be on the device.
        to_sync: The segments that the write under way has to bring to the device.
    """

    folder: Path = field(kw_only=True)
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    read_to: dict[str, int] = field(default_factory=dict[str, int])
    synced_to: dict[str, int] = field(default_factory=dict[str, int])
    to_sync: set[str] = field(default_factory=set[str])


def refresh(state: LocalState) -> LocalState:
    """`state` with what was logged since; a new one where a segment has shrunk or vanished.

    Raises:
        ArchiveError: The session's folder cannot be read.
    """
    sizes = segment_sizes(state.folder)
    if any(sizes.get(segment, 0) < read_to for segment, read_to in state.read_to.items()):
        state = LocalState(folder=state.folder)
    state.sizes = sizes
    for segment, size in sizes.items():
        read_to = state.read_to.get(segment, 0)
        if size > read_to:
            part = read_segment(state.folder, segment, read_to)
            for record in part.records:
                state.learn(record)
            state.read_to[segment] = part.end
    return state


class LocalSessions:
    """The sessions under one root; the newest used are kept in memory, bounded in their records."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs: BlobStore = BlobStore(root / "blobs")
        self._states = StateCache[LocalState]()
        self._writer: tuple[str, int] | None = None  # name, and the lock file that holds it
        self._writer_lock = Lock()

    def close(self) -> None:
        """Release this writer's name to other processes."""
        if self._writer is not None:
            os.close(self._writer[1])

    def holding(self, output_id: str) -> list[str]:
        """The sessions in memory that hold an output."""
        return [s.session_id for s in self._states.states() if output_id in s.outputs]

    def forget(self, session_ids: Sequence[str]) -> None:
        """Drop deleted sessions from memory."""
        for session_id in session_ids:
            self._states.take(session_key(session_id))

    def state(self, session_id: str) -> LocalState:
        """What the log now contains of a session, which need not be there."""
        key = session_key(session_id)
        known = self._states.take(key) or LocalState(folder=session_folder(self.root, key))
        state = refresh(known)
        self._states.put(key, state)
        return state

    @contextmanager
    def writing(self, session_id: str, *, opens: bool = True) -> Generator[LocalState]:
        """Hold the session's lock; yield its current state; what was written is durable after it.

        Others write to the session while this process waits for the device. Counts alone are not
        waited for: they are made again where they are lost, and sync with what is written next.
        """
        folder = session_folder(self.root, session_key(session_id))
        if not opens and not folder.is_dir():
            yield LocalState(folder=folder)
            return
        with locked(self.root / LOCK_NAME, shared=True):
            with explaining(folder, "Making"):
                make_folder(folder, durable=False)  # with the first segment that is synced there
            with locked(folder / "lock"):
                state = self.state(session_id)
                before = dict(state.read_to)
                state.to_sync.clear()
                yield state
                written = {*state.to_sync}
            try:
                self._sync(state, written)
            except ArchiveError:
                with locked(folder / "lock"):
                    for name in written:
                        cut_segment(folder, name, before.get(name, 0))
                raise

    def write(
        self,
        state: LocalState,
        session_id: str,
        parent_session_id: str | None,
        records: Sequence[Record],
    ) -> None:
        """Number `records`, append them as one call, and learn them; `writing` syncs them."""
        with self._writer_lock:
            self._writer = self._writer or claim_writer(self.root)
        segment, size = _segment_to_append(state, self._writer[0])
        new = numbered(state, session_id, parent_session_id, records, opens=not size)
        places = append_records(self.root, state.folder.name, segment, size, new)
        for record, place in zip(new, places, strict=True):
            state.learn(LoggedRecord(record.head, place))
        state.read_to[segment] = places[-1].offset + places[-1].length
        state.to_sync.add(segment)

    def secure(self, state: LocalState) -> None:
        """Make durable all that is known of the session, so that it may be built upon."""
        ends = state.read_to.items()
        self._sync(state, {name for name, end in ends if state.synced_to.get(name, 0) < end})

    def bodies(self, state: LocalState, records: Sequence[LoggedRecord | MessageNode]) -> list[Any]:
        """The bodies of records."""
        get = self.blobs.read_whole
        return [read_body(state.folder, record.place, get) for record in records]

    def all_records(self, state: LocalState) -> list[LoggedRecord]:
        """See `Sessions.all_records`. Reads the session's log."""
        parts = [read_segment(state.folder, segment) for segment in state.read_to]
        records = [record for part in parts for record in part.records]
        said = [record for record in records if record.head["kind"] != "session"]
        return sorted(said, key=lambda record: record.head["n"])

    def _sync(self, state: LocalState, segments: Collection[str]) -> None:
        """Make durable what was read of `segments`."""
        if not segments:
            return
        is_new = any(name not in state.synced_to for name in segments)
        sync_segments(self.root, state.folder.name, segments, with_names=is_new)
        state.synced_to |= {name: state.read_to[name] for name in segments}


def _segment_to_append(state: LocalState, writer: str) -> tuple[str, int]:
    """This writer's segment and its size: the newest, or a new one where that is full or torn."""
    own = {name: size for name, size in state.sizes.items() if name.startswith(f"{writer}-")}
    newest = max(own, default=None)
    if newest is not None:
        size = own[newest]
        if size == state.read_to.get(newest, 0) and size < SEGMENT_BYTES:
            return newest, size
    return f"{writer}-{len(own) + 1:06}.jsonl", 0
