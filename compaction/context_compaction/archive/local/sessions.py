"""Sessions in a folder: their loaded state, and how records are written to them.

All methods block. Calls on different sessions may run in several threads at once; `archive.py`
ensures that calls on one session run one after the other.

Writers share the archive's lock, and a deletion holds it exclusively. While a deletion decides that
no session refers to a blob, no writer can therefore be about to add a reference. Reading the logs
for their references takes long, so it is done before the lock is taken. Under the lock only later
records are read.
"""

import os
import platform
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

from context_compaction import system
from context_compaction.archive.local import durable_files, log
from context_compaction.archive.records import LinePlace, LoggedRecord, Record
from context_compaction.archive.transcript_state import Description, StateCache, TranscriptState
from context_compaction.archive.transcripts import TranscriptStore, numbered
from context_compaction.archive.values import Health
from context_compaction.errors import ArchiveError, NotFoundError
from context_compaction.request import check_session_id
from context_compaction.system import open_file, sync_path, unlock_file


@dataclass(slots=True)
class LocalState(TranscriptState):
    """The record heads of one session; `refresh` adds later records.

    Attributes:
        log_folder: Folder of the session's segments.
        sizes: Size of each segment in bytes at the last refresh.
        read_to: Offset in bytes up to which each segment was read.
        synced_to: Offset in bytes up to which this process knows each segment to be durable.
    """

    log_folder: Path = field(kw_only=True)
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    read_to: dict[str, int] = field(default_factory=dict[str, int])
    synced_to: dict[str, int] = field(default_factory=dict[str, int])


def refresh(state: LocalState) -> LocalState:
    """Return `state` with new records added, or a new state if a segment shrank or vanished.

    Raises:
        ArchiveError: The session's folder cannot be read.
    """
    sizes = log.segment_sizes(state.log_folder)
    if any(sizes.get(segment, 0) < read_to for segment, read_to in state.read_to.items()):
        state = LocalState(log_folder=state.log_folder)
    state.sizes = sizes
    for segment, size in sizes.items():
        read_to = state.read_to.get(segment, 0)
        if size > read_to:
            part = log.read_segment(state.log_folder, segment, read_to)
            for record in part.records:
                state.learn(record)
            state.read_to[segment] = part.end
    return state


class LocalStore(TranscriptStore[LocalState]):
    """All transcripts under one root. Recently used states stay in memory."""

    def __init__(self, root: Path, *, redacts: bool) -> None:
        self.root: Path = root
        self.redacts = redacts
        self.blobs = log.BlobStore(root / "blobs")
        self._states = StateCache[LocalState]()
        self._writer: tuple[str, int] | None = None  # writer name, open lock file
        self._writer_lock = Lock()

    def close(self) -> None:
        """Release this process's writer name."""
        if self._writer is not None:
            unlock_file(self._writer[1])

    def holding(self, output_id: str) -> list[str]:
        """Return the IDs of the sessions in memory that contain an output."""
        return [s.session_id for s in self._states.states() if output_id in s.outputs]

    def forget(self, session_ids: Sequence[str]) -> None:
        """Remove deleted sessions from memory."""
        for session_id in session_ids:
            self._states.take(log.session_key(session_id))

    def state(self, session_id: str) -> LocalState:
        """See `TranscriptStore.state`."""
        key = log.session_key(session_id)
        known = self._states.take(key) or LocalState(log_folder=log.session_folder(self.root, key))
        state = refresh(known)
        self._states.put(key, state)
        return state

    @contextmanager
    def writing(self, session_id: str) -> Generator[LocalState]:
        """See `TranscriptStore.writing`. What the block writes is durable after the block.

        Other processes can write to the session while this process waits for the device.
        """
        folder = log.session_folder(self.root, log.session_key(session_id))
        with durable_files.locked(self.root / log.LOCK_NAME, shared=True):
            with durable_files.explaining(folder, "Creating"):
                durable_files.make_folder(
                    folder, durable=False
                )  # the first sync of a segment syncs the names
            with durable_files.locked(folder / "lock"):
                state = self.state(session_id)
                self.secure(state)
                before = dict(state.read_to)
                yield state
                written = [name for name, end in state.read_to.items() if end != before.get(name)]
            try:
                self._sync(state, written)
            except ArchiveError:
                with durable_files.locked(folder / "lock"):
                    for segment in written:
                        with durable_files.explaining(folder / segment, "Writing"):
                            os.truncate(folder / segment, before.get(segment, 0))
                raise

    def write(
        self,
        state: LocalState,
        session_id: str,
        parent_session_id: str | None,
        records: Sequence[Record],
    ) -> None:
        """See `TranscriptStore.write`. The end of `writing` syncs the records."""
        with self._writer_lock:
            self._writer = self._writer or _claim_writer(self.root / "writers")
        segment, size = _segment_to_append(state, self._writer[0])
        new = numbered(state, session_id, parent_session_id, records, opens=not size)
        path, end, places = state.log_folder / segment, size, list[LinePlace]()
        with durable_files.explaining(path, "Writing"):
            handle = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                # A buffer, because a first call may contain a very long message list.
                with os.fdopen(handle, "wb", buffering=1024 * 1024) as file:
                    for count, record in enumerate(new, start=1):
                        line = log.encode_line(record, last=count == len(new))
                        places.append(LinePlace(segment, end, len(line)))
                        end += len(line)
                        file.write(line)
            except BaseException:
                os.truncate(path, size)
                raise
        for record, place in zip(new, places, strict=True):
            state.learn(LoggedRecord(record.head, place))
        state.read_to[segment] = end
        self._states.put(state.log_folder.name, state)  # again, because it has grown

    def secure(self, state: LocalState) -> None:
        """See `TranscriptStore.secure`: sync everything that was read but may not be durable."""
        ends = state.read_to.items()
        self._sync(state, {name for name, end in ends if state.synced_to.get(name, 0) < end})

    def bodies(self, state: LocalState, places: Sequence[LinePlace]) -> list[Any]:
        """See `TranscriptStore.bodies`."""
        return log.read_bodies(state.log_folder, places, self.blobs.get)

    def all_records(self, state: LocalState) -> list[LoggedRecord]:
        """See `TranscriptStore.all_records`. Reads the session's whole log."""
        parts = [log.read_segment(state.log_folder, segment) for segment in state.read_to]
        records = (record for part in parts for record in part.records)
        content = (record for record in records if record.head["kind"] != "session")
        return sorted(content, key=lambda record: record.head["n"])

    def _sync(self, state: LocalState, segments: Collection[str]) -> None:
        """Make the records that were read from `segments` durable, and notify searchers.

        A process may be killed, or still wait, between its write and its sync. Other processes can
        already read its records, so a process that builds on them makes them durable first and then
        notifies searchers: whatever was acknowledged is found.
        """
        if not segments:
            return
        folder = state.log_folder
        for segment in segments:
            with durable_files.explaining(folder / segment, "Syncing"):
                sync_path(folder / segment)
        if not state.synced_to.keys() >= {*segments}:  # a new segment
            with durable_files.explaining(folder, "Syncing"):
                durable_files.sync_folders(folder, self.root)
        log.notify_searchers(folder)
        state.synced_to |= {name: state.read_to[name] for name in segments}


def _claim_writer(folder: Path) -> tuple[str, int]:
    """Return a writer name that no live process holds, and the open lock file that reserves it.

    Names are reused, so that a short process (a hook) continues the segments of an earlier process
    instead of adding a new file for each call.
    """
    machine = blake2b(platform.node().encode(), digest_size=4).hexdigest()
    with durable_files.explaining(folder, "Creating a writer's lock in"):
        durable_files.make_folder(folder)
        number = 0
        while (lock := durable_files.try_lock(folder / f"{machine}-{number:03x}.lock")) is None:
            number += 1
    return f"{machine}-{number:03x}", lock


def _segment_to_append(state: LocalState, writer: str) -> tuple[str, int]:
    """Return the writer's newest segment and its size, or a new one if that is torn."""
    own = {name: size for name, size in state.sizes.items() if name.startswith(f"{writer}-")}
    newest = max(own, default=None)
    if newest is not None:
        size = own[newest]
        if size == state.read_to.get(newest, 0):
            return newest, size
    return f"{writer}-{len(own) + 1:06}.jsonl", 0


# Deletion and health ------------------------------------------------------------------------------


_TRASH_NAME = "trash"


class BlobReferences:
    """The digests of the blobs that each session refers to, by session key."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read_to: dict[Path, int] = {}
        self.by_session: dict[str, set[str]] = {}

    def update(self) -> None:
        """Read everything that was logged since the last call.

        Raises:
            ArchiveError: The log cannot be read.
        """
        for folder in log.session_folders(self._root):
            digests = self.by_session.setdefault(folder.name, set())
            for segment, size in log.segment_sizes(folder).items():
                path = folder / segment
                start = self._read_to.get(path, 0)
                with durable_files.explaining(path, "Reading"):
                    data = durable_files.read_at(path, start, size - start)
                self._read_to[path] = start + data.rfind(b"\n") + 1  # reads a torn line again
                digests.update(digest.decode() for digest in log.BLOB_REFERENCE.findall(data))


def delete_sessions(root: Path, session_ids: Sequence[str]) -> int:
    """Remove sessions and every blob without a reference; return the number of freed bytes.

    A session's folder is moved away in one step, so the session is removed as a whole or not at
    all. Remains of killed processes (blobs, temporary files, moved folders) are removed as well.

    Raises:
        SettingsError: An ID is not a valid session ID.
        NotFoundError: A session does not exist; nothing was removed.
        ArchiveBusyError: Other processes kept writing for too long.
        ArchiveError: A folder or file cannot be read or removed.
    """
    keys = [log.session_key(check_session_id(session_id)) for session_id in session_ids]
    for session_id, key in zip(session_ids, keys, strict=True):
        if not refresh(LocalState(log_folder=log.session_folder(root, key))).exists:
            raise NotFoundError.of_session(session_id)
    references = BlobReferences(root)
    references.update()
    with durable_files.locked(root / log.LOCK_NAME):
        return _delete(root, keys, references)


def finish_deletion(root: Path) -> None:
    """Remove the remains of a killed deletion; do nothing if other processes use the archive.

    Raises:
        ArchiveError: A folder or file cannot be read or removed.
    """
    # A user who may only read leaves it to the next user who may write.
    if not (root / _TRASH_NAME).exists() or not os.access(root, os.W_OK):
        return
    lock = durable_files.try_lock(root / log.LOCK_NAME)
    if lock is None:
        return
    try:
        _delete(root, (), BlobReferences(root))
    finally:
        system.unlock_file(lock)


def _delete(root: Path, keys: Sequence[str], references: BlobReferences) -> int:
    """See `delete_sessions`; the caller holds the archive's lock."""
    trash = root / _TRASH_NAME
    freed = 0
    with durable_files.explaining(root, "Deleting in"):
        references.update()
        system.delete_folder(trash)  # from a killed deletion
        durable_files.make_folder(trash)
        for key in keys:
            folder = log.session_folder(root, key)
            freed += sum(log.segment_sizes(folder).values())
            system.delete_folder(root / "hooks" / key)  # notes of the hosts' hooks on the session
            with suppress(FileNotFoundError):
                system.replace_file(folder, trash / key)
                system.sync_folder(folder.parent)
                log.notify_searchers(folder)
            references.by_session.pop(key, None)
        system.sync_folder(trash)
        referenced = set[str]().union(*references.by_session.values())
        for path in (root / "blobs").glob("??/*"):  # also temporary files
            if path.suffix != ".zst" or path.stem not in referenced:
                freed += path.stat().st_size
                system.delete_file(path)
        system.delete_folder(trash)
    return freed


def blob_bytes(root: Path) -> dict[str, int]:
    """Return the size of each blob file in bytes, by digest."""
    with durable_files.explaining(root, "Measuring"):
        return {path.stem: path.stat().st_size for path in (root / "blobs").glob("??/*.zst")}


def examine(root: Path, index_folder: Path) -> Health:
    """See `Archive.health`. Reads the whole log and verifies each line, at about 200 MB/s.

    Raises:
        ArchiveError: A folder or file cannot be read.
    """
    sessions: list[Description] = []
    outputs: set[str] = set()
    problems: list[str] = []
    log_bytes = 0
    for folder in log.session_folders(root):
        sessions.append(Description())
        for segment, size in log.segment_sizes(folder).items():
            log_bytes += size
            part = log.read_segment(folder, segment)
            problems += [
                f"{folder / segment}: line {line} does not match its checksum and is ignored."
                for line in part.damaged_lines
            ]
            if part.end < size:
                problems.append(
                    f"{folder / segment}: the last {size - part.end} bytes are an interrupted "
                    "call. They are ignored; nothing that was acknowledged is lost."
                )
            for record in part.records:
                sessions[-1].learn_head(record.head)
                if record.head["kind"] == "output":
                    outputs.add(record.head["id"])
    # Imported here because only searches and this function need SQLite.
    from context_compaction.archive.local.index_file import index_bytes

    return Health(
        location=str(root),
        session_count=sum(bool(session.session_id) for session in sessions),
        message_count=sum(session.message_count for session in sessions),
        output_count=len(outputs),
        log_bytes=log_bytes,
        blob_bytes=sum(blob_bytes(root).values()),
        index_bytes=index_bytes(index_folder),
        problems=tuple(problems),
    )
