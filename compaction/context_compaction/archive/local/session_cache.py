"""The sessions that this process works with: what is known of each, and how it is written to.

Everything blocks and runs in one thread at a time; `archive.Lanes` sees to that.
"""

from collections import OrderedDict
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from context_compaction.archive.histories import MessageNode
from context_compaction.archive.local.blobs import BlobStore
from context_compaction.archive.local.durable_files import explaining, locked, make_folder
from context_compaction.archive.local.log import (
    SEGMENT_BYTES,
    Writer,
    append_records,
    claim_writer,
    cut_segment,
    read_body,
    read_segment,
    session_folder,
    session_key,
    sync_segments,
)
from context_compaction.archive.local.retention import LOCK_NAME
from context_compaction.archive.local.session_state import LocalState, refresh
from context_compaction.archive.records import LoggedRecord, Record
from context_compaction.archive.session_state import forget_oldest, numbered
from context_compaction.errors import ArchiveError

CACHED_SESSIONS = 8
# Of all of them together: 2.3 KB each (measured), so some 8 MB in each lane.
CACHED_RECORDS = 3_500


class OpenSessions:
    """The sessions under one root; the newest used are kept in memory, bounded in their records."""

    def __init__(self, root: Path, blobs: BlobStore) -> None:
        self.root = root
        self._blobs = blobs
        self._states: OrderedDict[str, LocalState] = OrderedDict()
        self._writer: Writer | None = None

    def close(self) -> None:
        """Release this writer's name to other processes."""
        if self._writer is not None:
            self._writer.release()

    def keys_holding(self, output_id: str) -> list[str]:
        """The keys of the sessions in memory that hold an output."""
        return [key for key, state in self._states.items() if output_id in state.outputs]

    def forget(self, key: str) -> None:
        """Drop a deleted session from memory."""
        self._states.pop(key, None)

    def state(self, session_id: str) -> LocalState:
        """What the log now contains of a session, which need not be there."""
        return self.of_key(session_key(session_id))

    def of_key(self, key: str) -> LocalState:
        """The same, given the hash that names the session's folder."""
        state = self._states.pop(key, None) or LocalState(folder=session_folder(self.root, key))
        self._states[key] = state = refresh(state)
        forget_oldest(self._states, sessions=CACHED_SESSIONS, records=CACHED_RECORDS)
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
                self.sync(state, written)
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
        if self._writer is None:
            self._writer = claim_writer(self.root)
        segment, size = _segment_to_append(state, self._writer.name)
        new = numbered(state, session_id, parent_session_id, records, opens=not size)
        places = append_records(self.root, state.folder.name, segment, size, new)
        for record, place in zip(new, places, strict=True):
            state.learn(LoggedRecord(record.head, place))
        state.read_to[segment] = places[-1].offset + places[-1].length
        if any(record.head["kind"] != "counts" for record in records):
            state.to_sync.add(segment)

    def secure(self, state: LocalState, head: str | None = None) -> None:
        """Make durable the history `head`, so that it may be acknowledged and built upon.

        Without it, all that is known of the session.
        """
        if head is None:
            self.sync(state, state.unsynced())
            return
        self.sync(state, state.unsynced_under(head))
        state.durable.append(head)

    def bodies(self, state: LocalState, records: Sequence[LoggedRecord | MessageNode]) -> list[Any]:
        """The bodies of records."""
        get = self._blobs.read_whole
        return [read_body(state.folder, record.place, get) for record in records]

    def all_records(self, state: LocalState) -> list[LoggedRecord]:
        """See `Sessions.all_records`. Reads the session's log."""
        parts = [read_segment(state.folder, segment) for segment in state.read_to]
        records = [record for part in parts for record in part.records]
        said = [record for record in records if record.head["kind"] != "session"]
        return sorted(said, key=lambda record: record.head["n"])

    def sync(self, state: LocalState, segments: Collection[str]) -> None:
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
