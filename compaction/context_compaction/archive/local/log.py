"""The log and the large contents that it names.

Each session is a folder of segments, and a segment has one writer at a time:

    sessions/3f/3fa9.../lock                  held while a process writes to the session
    sessions/3f/3fa9.../<writer>-0001.jsonl   one record a line, appended to only
    writers/<writer>.lock                     held by the process that is <writer>
    blobs/ab/abcdef....zst                    a large content in frames, named by its SHA-256

The folder's name is a hash of the session id, so that no id is ever part of a path. Readers take
no lock: they read up to the last whole call. A process that writes is the only one of its writer
id, so no two ever append to one file, even on a shared file system whose locks cannot be trusted.

One record is a line of JSON with a checksum, a small head and a body:

    {"crc":"1a2b3c4d","kind":"message","n":7,...,"body":{...}}

`crc` is the CRC-32 of everything after it (from `"kind"` to the last brace). The head is small and
holds all that a scan needs, so the body, which is last, is parsed only when it is read. The
last record of a call has `"last":true`; readers take whole calls only, so that a call that was cut
off (by a kill, a full disk) is absent, not half there. Non-ASCII text is escaped, so lone
surrogates survive and a newline always ends a line.
"""

import json
import os
import platform
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

from context_compaction.archive.frames import Blobs, pack
from context_compaction.archive.local.durable_files import (
    FILE_MODE,
    FOLDER_MODE,
    explaining,
    make_folder,
    may_be_refused,
    put_file,
    read_at,
    sync_file,
    sync_folder,
    sync_folders,
    try_lock,
    write_all,
)
from context_compaction.archive.records import (
    BLOB_MARK,
    LinePlace,
    LoggedRecord,
    Record,
    ascii_json,
    internalise,
)
from context_compaction.errors import ArchiveBusyError, ArchiveDamagedError, NotFoundError
from context_compaction.messages.model import JsonObject

_OPENING = b'{"crc":"'
_CRC_END = len(_OPENING) + 8
_BODY = b',"body":'

# Reads the JSON value that begins at a place of a text, and looks at nothing around it.
_parse = json.JSONDecoder().raw_decode


def encode_line(record: Record, *, last: bool) -> bytes:
    """The line of `record`, with its newline."""
    head = record.head | {"last": True} if last else record.head
    parts = ascii_json(head)[1:-1].encode("ascii"), _BODY, record.text().encode("ascii"), b"}"
    data = b"".join(parts)
    return b"".join((_OPENING, b'%08x",' % zlib.crc32(data), data, b"\n"))


def decode_head(line: bytes) -> JsonObject | None:
    """The head of a line, without its checksum; None where the line is damaged.

    `line` may end with its newline. A quote inside a JSON string is escaped, so the first
    `,"body":` is the real one.
    """
    rest = _verified_rest(line)
    if rest is None:
        return None
    head: JsonObject = _parse(f"{{{rest[: rest.index(_BODY)].decode('ascii')}}}")[0]
    return head


def decode_body(line: bytes) -> Any:
    """The body of a line.

    Raises:
        ArchiveDamagedError: The line does not match its checksum.
    """
    if _verified_rest(line) is None:
        raise ArchiveDamagedError(
            "A line of the log does not match its checksum, so it cannot be read. "
            "Run the doctor command to see which, and restore it from a backup."
        )
    return parse_body(line)


def parse_body(line: bytes) -> Any:
    """The body of a line whose checksum was found right."""
    return _parse(line.decode("ascii"), line.index(_BODY) + len(_BODY))[0]


def _verified_rest(line: bytes) -> bytes | None:
    line = line.removesuffix(b"\n")
    rest = line[_CRC_END + 2 :]
    if not line.startswith(_OPENING) or line[_CRC_END : _CRC_END + 2] != b'",':
        return None
    if line[len(_OPENING) : _CRC_END] != b"%08x" % zlib.crc32(rest):
        return None
    return rest


SEGMENT_BYTES = 64 * 1024 * 1024
WRITER_SLOTS = 4096
LOCK_NAME = "lock"  # of an archive


def session_key(session_id: str) -> str:
    """The hash that names a session in paths and in the index: 32 hex digits."""
    return blake2b(session_id.encode("ascii"), digest_size=16).hexdigest()


def session_folder(root: Path, key: str) -> Path:
    """The folder of a session's segments, given its key."""
    return root.joinpath("sessions", key[:2], key)


def segment_sizes(folder: Path) -> dict[str, int]:
    """The segments of a session folder and their sizes in bytes; empty where there is none.

    Raises:
        ArchiveError: The folder cannot be read.
    """
    with explaining(folder, "Reading"):
        try:
            with os.scandir(folder) as entries:
                return {
                    entry.name: entry.stat().st_size
                    for entry in entries
                    if entry.name.endswith(".jsonl")
                }
        except FileNotFoundError:
            _check_there(folder.parents[2])
            return {}


def _check_there(root: Path) -> None:
    """A session may be missing; an archive that was moved or removed under us is no empty one.

    Raises:
        ArchiveError: The folder is gone.
    """
    with explaining(root, "Opening the archive"):
        root.stat()


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """What a read of a segment found.

    Attributes:
        records: The undamaged records, in order.
        end: Where the next read begins: after the last whole call.
        tail_crc: CRC-32 of the line that ends there, 0 where none was read.
        tail_length: That line's length.
        damaged: Numbers of the damaged lines, from 1, counted from where the read began.
        lines: The lines of `records`, where the reader asked for them.
    """

    records: list[LoggedRecord]
    end: int
    tail_crc: int
    tail_length: int
    damaged: tuple[int, ...]
    lines: Sequence[bytes] = ()


def read_segment(
    folder: Path,
    segment: str,
    start: int = 0,
    *,
    limit_bytes: int | None = None,
    with_lines: bool = False,
) -> SegmentPart:
    """The records of a segment from byte `start`, in whole calls.

    With `limit_bytes` the read stops after the call that crosses the limit.

    Raises:
        ArchiveError: The segment cannot be read.
    """
    path = folder / segment
    records: list[LoggedRecord] = []
    pending: list[LoggedRecord] = []
    lines: list[bytes] = []
    damaged: list[int] = []
    end = position = start
    tail = b""
    with explaining(path, "Reading"), path.open("rb") as file:
        file.seek(start)
        for number, line in enumerate(file, start=1):
            position += len(line)
            if not line.endswith(b"\n"):
                break
            head = decode_head(line)
            if head is None:
                damaged.append(number)
            else:
                offset = position - len(line)
                pending.append(LoggedRecord(head, LinePlace(segment, offset, len(line))))
                if with_lines:
                    lines.append(line)
            # A damaged line may have been the last of its call: what is before it is whole.
            if head is None or head.get("last"):
                records += pending
                pending = []
                end = position
                tail = line
                if limit_bytes is not None and end - start >= limit_bytes:
                    break
    kept = lines[: len(records)]
    return SegmentPart(records, end, zlib.crc32(tail), len(tail), tuple(damaged), kept)


def read_body(folder: Path, place: LinePlace, get_blob: Callable[[str], bytes]) -> Any:
    """The body of one record; `get_blob` returns the bytes of a string kept as a blob.

    Raises:
        ArchiveDamagedError: The line does not match its checksum.
        ArchiveError: The segment cannot be read.
    """
    path = folder / place.segment
    with explaining(path, "Reading"):
        line = read_at(path, place.offset, place.length)
    try:
        body = decode_body(line)
    except ArchiveDamagedError as error:
        raise ArchiveDamagedError(f"{path} at byte {place.offset}: {error}") from error
    return internalise(body, get_blob) if BLOB_MARK in line else body


def last_notice(root: Path) -> int:
    """When a writer last gave notice to searchers, Unix nanoseconds; 0 where none ever did.

    Raises:
        ArchiveError: The folder cannot be read.
    """
    folder = root / "sessions"
    with explaining(folder, "Reading"):
        try:
            return folder.stat().st_mtime_ns
        except FileNotFoundError:
            _check_there(root)
            return 0


def session_folders(root: Path, prefixes: Iterable[str] | None = None) -> list[Path]:
    """The folders of all sessions, or of those in the outer folders `prefixes`, in order.

    Raises:
        ArchiveError: A folder cannot be read.
    """
    outer = root / "sessions"
    with explaining(outer, "Listing"):
        if prefixes is None:
            prefixes = sorted(path.name for path in outer.iterdir()) if outer.is_dir() else []
        groups = (sorted((outer / prefix).iterdir()) for prefix in prefixes)
        return [folder for group in groups for folder in group if folder.is_dir()]


def folders_naming(root: Path, name: bytes) -> list[Path]:
    """The folders of all sessions with `name` in their log, which is read whole.

    Raises:
        ArchiveError: A segment cannot be read.
    """
    return [folder for folder in session_folders(root) if _names(folder, name)]


def _names(folder: Path, name: bytes) -> bool:
    for segment in segment_sizes(folder):
        path = folder / segment
        # Another process may have deleted the session meanwhile.
        with explaining(path, "Reading"), suppress(FileNotFoundError), path.open("rb") as file:
            if any(name in line for line in file):
                return True
    return False


def append_records(
    root: Path, key: str, segment: str, expected_size: int, records: Sequence[Record]
) -> list[LinePlace]:
    """Append `records` as one call to a segment, made when it is missing; not durable yet.

    The caller holds the session's lock and the writer's, and syncs the segment when it has let go
    of the session's. `expected_size` is where the last whole call ended.

    Raises:
        ArchiveFullError: The disk is full; the segment ends where it ended.
        ArchiveError: The segment cannot be written.
    """
    folder = session_folder(root, key)
    path = folder / segment
    with explaining(path, "Writing"):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        try:
            return _append_lines(handle, segment, expected_size, records)
        except BaseException:
            os.ftruncate(handle, expected_size)
            raise
        finally:
            os.close(handle)


def _append_lines(
    handle: int, segment: str, offset: int, records: Sequence[Record]
) -> list[LinePlace]:
    """Write the lines of `records`, a few at a time: a first call has as many as its whole list."""
    places: list[LinePlace] = []
    waiting: list[bytes] = []
    written_to = offset
    for index, record in enumerate(records):
        line = encode_line(record, last=index == len(records) - 1)
        places.append(LinePlace(segment, offset, len(line)))
        offset += len(line)
        waiting.append(line)
        if offset - written_to >= 1024 * 1024:
            write_all(handle, b"".join(waiting))
            waiting.clear()
            written_to = offset
    write_all(handle, b"".join(waiting))
    return places


def sync_segments(root: Path, key: str, segments: Collection[str], *, with_names: bool) -> None:
    """Bring to the device what was written to a session; `with_names` for a segment that is new.

    A process may have been killed, or be waiting, between its write and its sync; what it wrote can
    be read already, so whoever builds upon it makes it durable first. Searchers get notice then, so
    that whatever was acknowledged is found; who may only read has written nothing, and gives none.

    Raises:
        ArchiveError: A segment cannot be opened or synced.
    """
    folder = session_folder(root, key)
    for segment in segments:
        path = folder / segment
        with explaining(path, "Syncing"):
            handle = os.open(path, os.O_RDONLY)
            try:
                sync_file(handle)
            finally:
                os.close(handle)
    with explaining(folder, "Syncing"):
        if with_names:
            sync_folders(folder, root)
        # A file's growth does not show in any folder. In nanoseconds, as the kernel's own stamps
        # are only as fine as its ticks. The inner one first: whoever sees the outer one sees both.
        now = time.time_ns()
        for noticed in (folder.parent, folder.parent.parent):
            with may_be_refused():
                os.utime(noticed, ns=(now, now))


def cut_segment(folder: Path, segment: str, size_bytes: int) -> None:
    """Remove what follows the first `size_bytes` of a segment; the caller is its writer.

    Raises:
        ArchiveError: The segment cannot be written.
    """
    with explaining(folder / segment, "Writing"):
        os.truncate(folder / segment, size_bytes)


def claim_writer(root: Path) -> tuple[str, int]:
    """The first writer's name of this machine that no live process holds, and its open lock file.

    Names are reused: a short-lived process (a hook) goes on in the segments of the last one rather
    than leave a file of its own behind for each call.

    Raises:
        ArchiveBusyError: Every name is taken.
        ArchiveError: The lock file cannot be made.
    """
    folder = root / "writers"
    machine = blake2b(platform.node().encode(), digest_size=4).hexdigest()
    with explaining(folder, "Making a writer's lock in"):
        make_folder(folder)
        for slot in range(WRITER_SLOTS):
            name = f"{machine}-{slot:03x}"
            lock = try_lock(folder / f"{name}.lock")
            if lock is not None:
                return name, lock
    raise ArchiveBusyError(
        f"{WRITER_SLOTS} processes of this machine write to {root} already. "
        "Stop those that are no longer needed."
    )


class BlobStore(Blobs):
    """The folder of blobs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._durable: set[Path] = set()  # folders whose names are on the device

    def put(self, data: bytes) -> str:
        """Keep `data`, durably; return its SHA-256 in hex. Keeping it again costs nothing.

        Raises:
            ArchiveFullError: The disk is full.
            ArchiveDamagedError: Something else already has this name.
            ArchiveError: The folder cannot be written.
        """
        digest = sha256(data).hexdigest()
        path = self._path(digest)
        with explaining(path, "Writing"):
            self._make_durable(self._folder)
            self._make_durable(path.parent)
            is_new = not path.exists()
            if is_new:
                put_file(path, pack(data))
            else:  # another process may have, a moment ago, and the name not be durable yet
                sync_folder(path.parent)
        if is_new:
            return digest
        if self.open(digest).size_bytes != len(data):
            raise self.damaged(digest, "it should hold other content")
        return digest

    def _make_durable(self, folder: Path) -> None:
        """Make `folder` where it is missing; its name needs that once, as it is never removed."""
        if folder not in self._durable:
            make_folder(folder.parent)
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(folder.parent)  # another process may have made it a moment ago
            self._durable.add(folder)

    def _size(self, digest: str) -> int:
        path = self._path(digest)
        with explaining(path, "Reading"):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                raise NotFoundError(
                    f"The archive's file {path} is missing. Restore it from a backup."
                ) from None

    def read_at(self, digest: str, start: int, size_bytes: int) -> bytes:
        """See `Blobs.read_at`."""
        path = self._path(digest)
        with explaining(path, "Reading"):
            return read_at(path, start, size_bytes)

    def _place(self, digest: str) -> str:
        return str(self._path(digest))

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.zst"
