"""Large content as a row of frames, readable in parts, wherever it is stored.

A stored content is a row of zstd frames of 64 KB each, cut after a newline where there is one, so
that any part is read by decompressing one or two frames (measured: 0.11 ms for 4 KB out of 50 MB,
against 436 ms from a single frame). A skippable frame at the end holds the table of frames, with a
hash of each one's content; `zstd -d` passes over it and restores the content. The record that names
a blob keeps the hash of the table too, so that a part is verified as the whole is.
"""

import struct
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b, sha256

import zstandard

from context_compaction.errors import ArchiveDamagedError

FRAME_BYTES = 64 * 1024
ZSTD_LEVEL = 3  # measured: 3.3x at 105 to 230 MB/s; level 9 gains a sixth at a fifth of the speed

_SKIPPABLE = struct.Struct("<II")  # magic number, length of the payload
_SKIPPABLE_MAGIC = 0x184D2A5E  # one of the sixteen that the zstd format reserves for users
HASH_BYTES = 16
_FOOTER = struct.Struct("<QQI8s")  # content bytes, frame count, CRC-32 of the table, magic
_FOOTER_MAGIC = b"ctxblob1"
# Content offset, file offset, newlines before, hash of the content.
_ENTRY = struct.Struct(f"<QQQ{HASH_BYTES}s")


@dataclass(frozen=True, slots=True)
class FrameTable:
    """Where the frames of a blob begin. The last element of each tuple is the end.

    Attributes:
        content_at: Offset of each frame's content.
        file_at: Offset of each frame in the file.
        newlines_before: Newlines of the content before each frame.
        hashes: Of each frame's content.
        table_hash: Hex hash of the table itself.
    """

    content_at: tuple[int, ...]
    file_at: tuple[int, ...]
    newlines_before: tuple[int, ...]
    hashes: tuple[bytes, ...]
    table_hash: str

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


def line_start(data: bytes, newlines: int) -> int:
    """The byte after the `newlines`-th newline; the end where there are fewer."""
    at = -1
    for _ in range(newlines):
        at = data.find(b"\n", at + 1)
        if at < 0:
            return len(data)
    return at + 1


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


class Blobs(ABC):
    """Large contents under their SHA-256. Every method blocks; several threads may call."""

    @abstractmethod
    def put(self, data: bytes) -> str:
        """Keep `data`, durably; return its SHA-256 in hex. Keeping it again costs nothing.

        Raises:
            ArchiveError: It cannot be stored.
        """

    @abstractmethod
    def _size(self, digest: str) -> int:
        """How many bytes are stored of a blob; raises `NotFoundError` where there is none."""

    @abstractmethod
    def _read_at(self, digest: str, start: int, size_bytes: int) -> bytes:
        """Some of the bytes that are stored of a blob, fewer only where they end."""

    @abstractmethod
    def _place(self, digest: str) -> str:
        """Where a blob is, for a person."""

    def read(self, digest: str, start: int, stop: int, table_hash: str) -> bytes:
        """Bytes [start, stop) of a blob, each frame verified by its hash.

        Args:
            digest: The blob's name.
            start: The first byte.
            stop: The byte after the last one.
            table_hash: What `table_hash` of the blob's table was when it was put.

        Raises:
            NotFoundError: There is no such blob.
            ArchiveDamagedError: Its bytes are not those that were put.
        """
        table = self.table(digest)
        if table.table_hash != table_hash:
            raise self._damaged(digest, "its content does not match its hash")
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
            raise self._damaged(digest, "its content does not match its hash")
        return data

    def newlines_before(self, digest: str, position: int, table_hash: str) -> int:
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
        before = table.newlines_before[frame]
        return table.content_at[frame] + line_start(content, newlines - before)

    def table(self, digest: str) -> FrameTable:
        """The table of a blob's frames.

        Raises:
            NotFoundError: There is no such blob.
            ArchiveDamagedError: The table cannot be read.
        """
        size_bytes = self._size(digest)
        footer_at = size_bytes - _FOOTER.size
        footer = self._read_at(digest, max(footer_at, 0), _FOOTER.size)
        if len(footer) != _FOOTER.size or footer_at < 0:
            raise self._damaged(digest, "it is cut off")
        content_bytes, count, crc, magic = _FOOTER.unpack(footer)
        entries_at = footer_at - (count + 1) * _ENTRY.size
        if magic != _FOOTER_MAGIC or entries_at < 0:
            raise self._damaged(digest, "its table of frames is missing")
        entries = self._read_at(digest, entries_at, footer_at - entries_at)
        if zlib.crc32(entries) != crc:
            raise self._damaged(digest, "its table of frames does not match its checksum")
        content_at, file_at, newlines, hashes = zip(*_ENTRY.iter_unpack(entries), strict=True)
        if content_at[-1] != content_bytes:
            raise self._damaged(digest, "its table of frames contradicts itself")
        return FrameTable(content_at, file_at, newlines, hashes, _hash(entries).hexdigest())

    def _frames(self, digest: str, table: FrameTable, first: int, stop: int) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor()
        base = table.file_at[first]
        packed = self._read_at(digest, base, table.file_at[stop] - base)
        for frame in range(first, stop):
            part = packed[table.file_at[frame] - base : table.file_at[frame + 1] - base]
            try:
                content = decompressor.decompress(part)
            except zstandard.ZstdError as error:
                raise self._damaged(digest, f"frame {frame + 1} cannot be unpacked") from error
            if _hash(content).digest() != table.hashes[frame]:
                raise self._damaged(digest, f"frame {frame + 1} does not match its hash")
            yield content

    def _damaged(self, digest: str, problem: str) -> ArchiveDamagedError:
        return ArchiveDamagedError(
            f"The archive's file {self._place(digest)} is damaged: {problem}. Restore it from a "
            "backup."
        )


def _hash(data: bytes) -> "blake2b":
    return blake2b(data, digest_size=HASH_BYTES)
