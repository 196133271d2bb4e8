"""The log of a local archive, and the large contents that it refers to.

Each session is a folder of segments, and a segment has one writer at a time:

    sessions/3f/3fa9.../lock                  held while a process writes to the session
    sessions/3f/3fa9.../<writer>-0001.jsonl   one record a line, only appended to
    writers/<writer>.lock                     held by the process that uses the name <writer>
    blobs/ab/abcdef....zst                    a large content in frames, named by its SHA-256

The name of a session's folder is a hash of the session ID, so that no ID is part of a path. Readers
take no lock: they read up to the end of the last complete call. Only one process uses a writer
name, so two processes never append to one file, even if the locks of a network file system fail.

A record is a line of JSON: a checksum, the length of the head, a small head and a body:

    ["1a2b3c4d",25,{"kind":"message","n":7},{...}]

The checksum is the CRC-32 of everything after its comma. The head contains all that loading a
session needs; the body comes last and is parsed only when it is read. The last record of a call has
`"last":true`. Readers take complete calls only, so a call that was interrupted (by a kill or a full
disk) is absent as a whole. Non-ASCII text is escaped, so lone surrogates are preserved and a
newline always ends a line.
"""

import json
import os
import re
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b, sha256
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from context_compaction.archive.local import durable_files
from context_compaction.archive.records import (
    Blobs,
    LinePlace,
    LoggedRecord,
    Record,
    ascii_json,
    pack,
    parse_body,
)
from context_compaction.errors import ArchiveDamagedError
from context_compaction.messages.model import JsonObject
from context_compaction.system import FOLDER_MODE, status_of, sync_folder

# Receives how many units are done, how many there are, and their name; may be called in a thread.
# With no units, the name is that of the work that must end first, or "".
ReportWork: TypeAlias = Callable[[int, int, str], None]

_reporter: ContextVar[ReportWork | None] = ContextVar("reporter", default=None)


@contextmanager
def reporting_work(reporter: ReportWork) -> Generator[None]:
    """Report the progress of all work in the block.

    Args:
        reporter: Receives how many units are done, how many there are, and the name of the units,
            for example `3_000, 10_000, "sessions indexed"`. While the work waits, `0, 0` and what
            it waits for, and then `0, 0, ""`. Threads may call it.
    """
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def report_work(done: int, total: int, unit: str) -> None:
    """Report that `done` of `total` units are done, if the caller asked for reports."""
    reporter = _reporter.get()
    if reporter is not None:
        reporter(done, total, unit)


def report_waiting(is_waiting: bool) -> None:
    """Report that the work must wait for other work, or that it has begun."""
    report_work(0, 0, "other work on this archive" if is_waiting else "")


_CRC_END = len('["1a2b3c4d",')
# A read of more lines than this reports its progress, as often as this.
_REPORT_LINES = 2_000
# As records.py writes them. Quotes in strings are escaped, so only a key in the host's JSON can
# look the same; then a blob is kept that could be removed.
BLOB_REFERENCE: re.Pattern[bytes] = re.compile(rb'blob":"([0-9a-f]{64})"')


def encode_line(record: Record, *, last: bool) -> bytes:
    """Return the line of `record`, with its newline; `last` marks the end of a call."""
    head = ascii_json(record.head | {"last": True} if last else record.head)
    rest = f"{len(head)},{head},{record.text()}]".encode("ascii")
    return b'["%08x",%b\n' % (zlib.crc32(rest), rest)


def decode_line(line: bytes) -> tuple[str, str]:
    """Return the head and the body of a line, as JSON.

    Raises:
        ArchiveDamagedError: The line does not match its checksum.
    """
    rest = line[_CRC_END:].removesuffix(b"\n")
    if line[:_CRC_END] != b'["%08x",' % zlib.crc32(rest):
        raise ArchiveDamagedError(
            "A line of the log does not match its checksum, so it cannot be read. Run the doctor "
            "command to see which line, and restore the archive from a backup."
        )
    size, _, text = rest.decode("ascii").partition(",")
    return text[: int(size)], text[int(size) + 1 : -1]


LOCK_NAME = "lock"


def session_key(session_id: str) -> str:
    """Return the hash that identifies a session in paths and in the index: 32 hex digits."""
    return blake2b(session_id.encode("ascii"), digest_size=16).hexdigest()


def session_folder(root: Path, key: str) -> Path:
    """Return the folder of a session's segments, given the session's key."""
    return root.joinpath("sessions", key[:2], key)


def statuses(folder: Path, root: Path, ending: str = "") -> dict[str, os.stat_result]:
    """Return the status of each file or folder in `folder`; empty without a folder.

    A missing session is normal, but an archive that was moved or removed is not an empty archive.

    Args:
        folder: A folder in the archive.
        root: The archive's folder, which must exist.
        ending: Return only names with this ending.

    Raises:
        ArchiveError: A folder cannot be read.
    """
    with (
        durable_files.explaining(folder, "Reading"),
        suppress(FileNotFoundError),
        os.scandir(folder) as entries,
    ):
        return {e.name: status_of(e) for e in entries if e.name.endswith(ending)}
    with durable_files.explaining(root, "Opening the archive"):
        root.stat()
    return {}


def segment_sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each segment in a session's folder; empty without a folder.

    Raises:
        ArchiveError: The folder cannot be read.
    """
    segments = statuses(folder, folder.parents[2], ".jsonl")
    return {name: status.st_size for name, status in segments.items()}


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Result of reading a segment from some offset.

    Attributes:
        records: The undamaged records, in order.
        end: Offset in bytes after the last complete call, where the next read starts.
        size_bytes: Size in bytes of the complete calls.
        tail_crc: CRC-32 of the line that ends at `end`; 0 if none was read.
        tail_length: Length of that line in bytes.
        damaged_lines: Numbers of the damaged lines. The first line that was read has number 1.
        lines: Lines of `records` if the caller asked for them, otherwise empty.
    """

    records: list[LoggedRecord]
    end: int
    size_bytes: int
    tail_crc: int
    tail_length: int
    damaged_lines: tuple[int, ...]
    lines: Sequence[bytes] = ()


def read_segment(
    folder: Path,
    segment: str,
    start: int = 0,
    *,
    limit_bytes: int | None = None,
    with_lines: bool = False,
) -> SegmentPart:
    """Return the records of the complete calls in a segment from byte `start`.

    With `limit_bytes` the read stops after the call that exceeds the limit.

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
    with durable_files.explaining(path, "Reading"), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(start)
        for number, line in enumerate(file, start=1):
            position += len(line)
            if number % _REPORT_LINES == 0:
                report_work(position >> 20, size >> 20, "MB of the session read")
            if not line.endswith(b"\n"):
                break
            head: JsonObject = {"last": True}
            try:
                head = json.loads(decode_line(line)[0])
            except ArchiveDamagedError:
                # It may be the last line of its call, so the records before it are accepted.
                damaged.append(number)
            else:
                offset = position - len(line)
                pending.append(LoggedRecord(head, LinePlace(segment, offset, len(line))))
                if with_lines:
                    lines.append(line)
            if head.get("last"):
                records += pending
                pending = []
                end = position
                tail = line
                if limit_bytes is not None and end - start >= limit_bytes:
                    break
    lines = lines[: len(records)]
    return SegmentPart(records, end, end - start, zlib.crc32(tail), len(tail), (*damaged,), lines)


def read_bodies(
    folder: Path, places: Sequence[LinePlace], get_blob: Callable[[str], bytes]
) -> list[Any]:
    """Return the bodies of records, in order.

    Args:
        folder: The session's folder.
        places: The places of the records' lines.
        get_blob: Returns the bytes of a string stored as a blob.

    Raises:
        ArchiveDamagedError: A line does not match its checksum.
        ArchiveError: A segment cannot be read.
    """
    bodies: list[Any] = []
    for segment, group in groupby(places, key=attrgetter("segment")):
        path = folder / segment
        with durable_files.explaining(path, "Reading"), path.open("rb") as file:
            for place in group:
                file.seek(place.offset)
                try:
                    bodies.append(parse_body(decode_line(file.read(place.length))[1], get_blob))
                except ArchiveDamagedError as error:
                    raise ArchiveDamagedError(f"{path} at byte {place.offset}: {error}") from error
                if len(bodies) % _REPORT_LINES == 0 or len(bodies) == len(places) > _REPORT_LINES:
                    report_work(len(bodies), len(places), "messages read")
    return bodies


def session_folders(root: Path, prefixes: Iterable[str] | None = None) -> list[Path]:
    """Return the folders of all sessions, or of the sessions whose keys have these `prefixes`.

    Raises:
        ArchiveError: A folder cannot be read.
    """
    outer = root / "sessions"
    with durable_files.explaining(outer, "Listing"):
        if prefixes is None:
            prefixes = sorted(path.name for path in outer.iterdir()) if outer.is_dir() else []
        groups = (sorted((outer / prefix).iterdir()) for prefix in prefixes)
        return [folder for group in groups for folder in group if folder.is_dir()]


def notify_searchers(folder: Path) -> None:
    """Record a change of the session in `folder` in the time stamp of the folder above it.

    A user who may only read has changed nothing, so missing permission is ignored.

    Raises:
        ArchiveError: The time stamp cannot be set.
    """
    # In nanoseconds, because the kernel's own stamps are only as precise as its clock ticks.
    now = time.time_ns()
    with durable_files.explaining(folder.parent, "Syncing"):
        try:
            os.utime(folder.parent, ns=(now, now))
        except OSError as error:
            if error.errno not in durable_files.NOT_PERMITTED:
                raise


def folder_stamps(root: Path) -> dict[str, int]:
    """Return when each outer folder of sessions was last changed, in Unix nanoseconds.

    Raises:
        ArchiveError: The folder cannot be read.
    """
    folders = statuses(root / "sessions", root)
    return {name: status.st_mtime_ns for name, status in folders.items()}


class BlobStore(Blobs):
    """The folder of blobs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._durable: set[Path] = set()  # folders whose names are durable

    def put(self, data: bytes) -> str:
        """Store `data` durably and return its SHA-256 in hex. Storing it again costs little.

        Raises:
            ArchiveFullError: The disk is full.
            ArchiveDamagedError: The file of this digest is damaged.
            ArchiveError: The folder cannot be written.
        """
        digest = sha256(data).hexdigest()
        path = self._path(digest)
        with durable_files.explaining(path, "Writing"):
            self._make_durable(self._folder)
            self._make_durable(path.parent)
            if not path.exists():
                durable_files.put_file(path, pack(data))
                return digest
            # Another process may have written it, and its name may not be durable yet.
            sync_folder(path.parent)
        self.get(digest)  # raises if it is damaged
        return digest

    def _make_durable(self, folder: Path) -> None:
        """Create `folder` and make its name durable; once, because it is never removed."""
        if folder not in self._durable:
            durable_files.make_folder(folder.parent)
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(folder.parent)  # also if another process has created the folder
            self._durable.add(folder)

    def _packed(self, digest: str) -> bytes | None:
        path = self._path(digest)
        with durable_files.explaining(path, "Reading"), suppress(FileNotFoundError):
            return path.read_bytes()
        return None

    def _label(self, digest: str) -> str:
        return f"file {self._path(digest)}"

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.zst"
