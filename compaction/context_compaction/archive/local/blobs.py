"""Large content, stored once under its SHA-256, readable in parts.

    blobs/ab/abcdef....zst

A file is a row of zstd frames of 64 KB of content each, cut after a newline where there is one, so
that any part is read by decompressing one or two frames (measured: 0.11 ms for 4 KB out of 50 MB,
against 436 ms from a single frame). A skippable frame at the end holds the table of frames, with a
hash of each one's content; `zstd -d` passes over it and restores the content. The log keeps the
hash of the table beside the blob's name, so that a part is verified as the whole is. Files of
before that (`ctxblob1`) have no hashes in their table, and their parts a checksum alone.
"""

import struct
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path

import zstandard

from context_compaction.archive.local.durable_files import (
    explaining,
    make_folder,
    put_file,
    sync_folder,
    sync_folders,
)
from context_compaction.errors import ArchiveDamagedError, NotFoundError

FRAME_BYTES = 64 * 1024
CACHED_TABLES = 16  # 20 KB for an output of 50 MB
ZSTD_LEVEL = 3  # measured: 3.3x at 105 to 230 MB/s; level 9 gains a sixth at a fifth of the speed

_SKIPPABLE = struct.Struct("<II")  # magic number, length of the payload
_SKIPPABLE_MAGIC = 0x184D2A5E  # one of the sixteen that the zstd format reserves for users
HASH_BYTES = 16
_FOOTER = struct.Struct("<QQI8s")  # content bytes, frame count, CRC-32 of the table, magic
_FOOTER_MAGIC = b"ctxblob2"
# Content offset, file offset, newlines before, hash of the content.
_ENTRIES = {b"ctxblob1": struct.Struct("<QQQ"), _FOOTER_MAGIC: struct.Struct(f"<QQQ{HASH_BYTES}s")}
_ENTRY = _ENTRIES[_FOOTER_MAGIC]


@dataclass(frozen=True, slots=True)
class FrameTable:
    """Where the frames of a blob begin. The last element of each tuple is the end.

    Attributes:
        content_at: Offset of each frame's content.
        file_at: Offset of each frame in the file.
        newlines_before: Newlines of the content before each frame.
        hashes: Of each frame's content; empty for a file that has none.
        table_hash: Hex hash of the table itself; "" for a file without hashes.
    """

    content_at: tuple[int, ...]
    file_at: tuple[int, ...]
    newlines_before: tuple[int, ...]
    hashes: tuple[bytes, ...] = ()
    table_hash: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of the content."""
        return self.content_at[-1]


def split_frames(data: bytes) -> Iterator[bytes]:
    """`data` in pieces of at most `FRAME_BYTES`, cut after the last newline that fits."""
    start = 0
    while start < len(data):
        end = min(start + FRAME_BYTES, len(data))
        if end < len(data):
            end = data.rfind(b"\n", start, end) + 1 or end
        yield data[start:end]
        start = end


def pack(data: bytes) -> bytes:
    """The file that holds `data`."""
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
    frames: list[bytes] = []
    table: list[bytes] = []
    content_at = file_at = newlines = 0
    for piece in split_frames(data):
        frame = compressor.compress(piece)
        table.append(_ENTRY.pack(content_at, file_at, newlines, _hash(piece).digest()))
        frames.append(frame)
        content_at += len(piece)
        file_at += len(frame)
        newlines += piece.count(b"\n")
    table.append(_ENTRY.pack(content_at, file_at, newlines, bytes(HASH_BYTES)))
    entries = b"".join(table)
    payload = entries + _FOOTER.pack(len(data), len(frames), zlib.crc32(entries), _FOOTER_MAGIC)
    return b"".join(frames) + _SKIPPABLE.pack(_SKIPPABLE_MAGIC, len(payload)) + payload


class BlobStore:
    """The folder of blobs. Every method blocks; one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: OrderedDict[str, FrameTable] = OrderedDict()
        self._durable: set[Path] = set()  # folders whose names are on the device
        self._decompressor = zstandard.ZstdDecompressor()
        # Its digest, number and content: the parts of an output are read one after another.
        self._last_frame: tuple[str, int, bytes] = ("", 0, b"")

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
            make_folder(path.parent)
            is_new = not path.exists()
            if is_new:
                put_file(path, pack(data))
            # Another process may have written it, or made the folder, a moment ago, and the name
            # not be durable yet. A folder's own name needs that once, as it is never removed.
            if path.parent not in self._durable:
                sync_folders(path.parent, self._folder.parent)
                self._durable.add(path.parent)
            elif not is_new:
                sync_folder(path.parent)
        if is_new:
            return digest
        if self.table(digest).size_bytes != len(data):
            raise _damaged(path, "it should hold other content")
        return digest

    def read(self, digest: str, start: int, stop: int, table_hash: str = "") -> bytes:
        """Bytes [start, stop) of a blob, each frame verified by its hash.

        Args:
            digest: The blob's name.
            start: The first byte.
            stop: The byte after the last one.
            table_hash: What `table_hash` of the blob's table was when it was put; "" leaves each
                frame to its checksum, which shows damage, but not another file in its place.

        Raises:
            NotFoundError: There is no such blob.
            ArchiveDamagedError: Its bytes are not those that were put.
        """
        table = self.table(digest)
        if table_hash and table.table_hash != table_hash:
            raise _damaged(self._path(digest), "its content does not match its hash")
        stop = min(stop, table.size_bytes)
        if start >= stop:
            return b""
        first = bisect_right(table.content_at, start) - 1
        last = bisect_right(table.content_at, stop - 1) - 1
        content = b"".join(self._frames(digest, table, first, last + 1))
        base = table.content_at[first]
        return content[start - base : stop - base]

    def read_whole(self, digest: str) -> bytes:
        """All of a blob, verified by its name.

        Raises:
            NotFoundError: There is no such blob.
            ArchiveDamagedError: Its bytes are not those of its name.
        """
        table = self.table(digest)
        data = b"".join(self._frames(digest, table, 0, len(table.content_at) - 1))
        if sha256(data).hexdigest() != digest:
            raise _damaged(self._path(digest), "its content does not match its hash")
        return data

    def newlines_before(self, digest: str, position: int, table_hash: str = "") -> int:
        """How many newlines are before byte `position`; see `read` for the hash."""
        table = self.table(digest)
        frame = bisect_right(table.content_at, position) - 1
        base = table.content_at[frame]
        before = self.read(digest, base, position, table_hash)
        return table.newlines_before[frame] + before.count(b"\n")

    def line_start(self, digest: str, newlines: int) -> int:
        """The byte after the `newlines`-th newline; 0 for 0, the end where there are fewer."""
        table = self.table(digest)
        if newlines == 0:
            return 0
        if newlines > table.newlines_before[-1]:
            return table.size_bytes
        # The last frame that begins with fewer newlines before it holds the newline in question.
        frame = bisect_right(table.newlines_before, newlines - 1) - 1
        (content,) = self._frames(digest, table, frame, frame + 1)
        at = -1
        for _ in range(newlines - table.newlines_before[frame]):
            at = content.index(b"\n", at + 1)
        return table.content_at[frame] + at + 1

    def table(self, digest: str) -> FrameTable:
        """The table of a blob's frames; those last used are kept in memory.

        Raises:
            NotFoundError: There is no such blob.
            ArchiveDamagedError: The table cannot be read.
        """
        table = self._tables.pop(digest, None) or self._read_table(self._path(digest))
        self._tables[digest] = table
        if len(self._tables) > CACHED_TABLES:
            self._tables.popitem(last=False)
        return table

    def _read_table(self, path: Path) -> FrameTable:
        with explaining(path, "Reading"):
            try:
                with path.open("rb") as file:
                    footer_at = file.seek(0, 2) - _FOOTER.size
                    file.seek(max(footer_at, 0))
                    footer = file.read()
                    if len(footer) != _FOOTER.size:
                        raise _damaged(path, "it is cut off")
                    size_bytes, count, crc, magic = _FOOTER.unpack(footer)
                    entry = _ENTRIES.get(magic, _ENTRY)
                    entries_at = footer_at - (count + 1) * entry.size
                    if magic not in _ENTRIES or entries_at < 0:
                        raise _damaged(path, "its table of frames is missing")
                    file.seek(entries_at)
                    entries = file.read(footer_at - entries_at)
            except FileNotFoundError:
                raise NotFoundError(
                    f"The archive's file {path} is missing. Restore it from a backup."
                ) from None
        if zlib.crc32(entries) != crc:
            raise _damaged(path, "its table of frames does not match its checksum")
        content_at, file_at, newlines, *hashes = zip(*entry.iter_unpack(entries), strict=True)
        if content_at[-1] != size_bytes:
            raise _damaged(path, "its table of frames contradicts itself")
        if not hashes:
            return FrameTable(content_at, file_at, newlines)
        return FrameTable(content_at, file_at, newlines, hashes[0], _hash(entries).hexdigest())

    def _frames(self, digest: str, table: FrameTable, first: int, stop: int) -> Iterator[bytes]:
        path = self._path(digest)
        with explaining(path, "Reading"), path.open("rb") as file:
            for frame in range(first, stop):
                if self._last_frame[:2] != (digest, frame):
                    file.seek(table.file_at[frame])
                    packed = file.read(table.file_at[frame + 1] - table.file_at[frame])
                    try:
                        content = self._decompressor.decompress(packed)
                    except zstandard.ZstdError as error:
                        raise _damaged(path, f"frame {frame + 1} cannot be unpacked") from error
                    if table.hashes and _hash(content).digest() != table.hashes[frame]:
                        raise _damaged(path, f"frame {frame + 1} does not match its hash")
                    self._last_frame = (digest, frame, content)
                yield self._last_frame[2]

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.zst"


def _hash(data: bytes) -> "blake2b":
    return blake2b(data, digest_size=HASH_BYTES)


def _damaged(path: Path, problem: str) -> ArchiveDamagedError:
    return ArchiveDamagedError(
        f"The archive's file {path} is damaged: {problem}. Restore it from a backup."
    )
