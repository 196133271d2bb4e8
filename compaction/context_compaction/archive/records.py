"""Records, the entries of a session's log, and large contents, for every kind of archive.

A record has a small head, which contains everything needed to place a message list, and a body,
which is read only on request.

Kinds and their heads. Each head also has `n` (the record's number in its session) and `ts` (Unix
time in seconds):

- session: session, parent. The first record of every segment.
- message: seq, hash, parent, format, role, tools, and `at`, the time of archiving by the archive's
  clock (`ts` is the message's own time). Body: the host's message object.
- output: id, sha256, media, bytes, chars, lines, tool, call. A small body is
  `{"text": ...}` or `{"base64": ...}`, a large one `{"blob": sha256, "table": hash}`
  (a blob, see below).
- pin: pinned. Whether the session is protected from pruning. No body.
- run: head, parent, source, count. The branch `head` is `parent` plus the last `count` messages of
  the branch `source`, which are not written again. No body.
- receipt: of (head of the compacted branch), left (head of the resulting context), outputs (IDs of
  the outputs that the compaction stored). Body: the receipt.
- context: of, listed (head of the same list after its start was replaced, or ""), entries. An entry
  is [content hash, seq or -1, number of the edited original or -1]; a message that replaces others
  adds the head of the replaced branch. Body: the messages of the entries with seq -1, in order.

Branches are identified by chain hashes (history_hash.py).

A large content is a blob: a sequence of zstd frames of at most 64 KB of content, cut after a
newline if possible, so that any part can be read alone. Reading 4 KB out of 50 MB decompresses one
or two frames (measured: 0.11 ms, against 436 ms from a single frame). A skippable frame at the end
contains the frame table, with a hash of each frame's content; `zstd -d` skips it and restores the
content. The record that refers to a blob has the hash of the table, so a part is verified as
strictly as the whole.
"""

import json
import struct
import zlib
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Any

import zstandard

from context_compaction.archive.values import OutputInfo, OutputSlice
from context_compaction.errors import ArchiveDamagedError, QueryError, SettingsError
from context_compaction.messages.edits import OUTPUT_ID_HEX_DIGITS, OUTPUT_ID_PREFIX, Blob
from context_compaction.messages.model import JsonObject, is_list, is_object, utf8_json

# Larger than the limit of outputs, because strings of messages are always read whole. A blob file
# costs 1.1 ms and two device syncs (measured at 55 KB), a line in the log 0.1 ms and no further
# sync; the blob takes a third of the space.
_STRING_LIMIT_BYTES = 64 * 1024
_BLOB_KEY = "$blob"
_BLOB_MARK = f'{_BLOB_KEY}":'  # `internalise` has nothing to do for a text without it


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write.

    Attributes:
        head: The part that is read when a session is loaded.
        body: JSON text, as `externalise` returns it, or a function that returns the text. A
            function keeps the text of a long message list from being in memory all at once.
    """

    head: JsonObject
    body: str | Callable[[], str] = "null"

    def text(self) -> str:
        """Return the JSON text of the body."""
        return self.body if isinstance(self.body, str) else self.body()


@dataclass(frozen=True, slots=True)
class LinePlace:
    """Position of a record's line in the log.

    Attributes:
        segment: File name of the segment in its session folder; empty in a database.
        offset: Offset of the line in bytes; in a database the record's number.
        length: Length of the line in bytes; 0 in a database.
    """

    segment: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """The head of a stored record and the position of its line."""

    head: JsonObject
    place: LinePlace


_escaped_json = json.JSONEncoder(separators=(",", ":")).encode


def ascii_json(value: Any) -> str:
    """Return a JSON value as compact ASCII text, with its keys in the given order."""
    data = utf8_json(value)  # takes a quarter of the time of json.JSONEncoder
    return data.decode("ascii") if data.isascii() else _escaped_json(value)


def externalise(value: Any, store_blob: Callable[[bytes], str]) -> str:
    """Return the JSON text of `value`, with long strings moved to blobs.

    A string above the limit becomes `{"$blob": its hash}`. `store_blob` stores its bytes (UTF-8,
    lone surrogates allowed) and returns their hash. If the value itself contains the key "$blob",
    the key gets one more "$", which `internalise` removes.
    """
    text = ascii_json(value)
    # Search for one character first, because that is much faster and most texts lack it.
    has_key = "$" in text and _BLOB_KEY in text
    if len(text) <= _STRING_LIMIT_BYTES and not has_key:
        return text
    return ascii_json(_externalise(value, store_blob))


def _externalise(value: Any, store_blob: Callable[[bytes], str]) -> Any:
    if isinstance(value, str):
        if len(value) <= _STRING_LIMIT_BYTES // 4:  # in UTF-8 a character has at most four bytes
            return value
        data = value.encode("utf-8", "surrogatepass")
        return {_BLOB_KEY: store_blob(data)} if len(data) > _STRING_LIMIT_BYTES else value
    if is_object(value):
        return {
            "$" + key if _is_blob_key(key) else key: _externalise(item, store_blob)
            for key, item in value.items()
        }
    if is_list(value):
        return [_externalise(item, store_blob) for item in value]
    return value


def parse_body(text: str, get: Callable[[str], bytes]) -> Any:
    """Return the value that was passed to `externalise`, from its JSON text."""
    body = json.loads(text)
    return internalise(body, get) if _BLOB_MARK in text else body


def internalise(value: Any, get: Callable[[str], bytes]) -> Any:
    """Return the value that was passed to `externalise`; `get` returns the bytes of a hash."""
    if is_object(value):
        if value.keys() == {_BLOB_KEY}:
            return get(value[_BLOB_KEY]).decode("utf-8", "surrogatepass")
        return {
            key[1:] if _is_blob_key(key) else key: internalise(item, get)
            for key, item in value.items()
        }
    if is_list(value):
        return [internalise(item, get) for item in value]
    return value


def _is_blob_key(key: str) -> bool:
    return key.endswith(_BLOB_KEY) and key.lstrip("$") == "blob"


_FRAME_BYTES = 64 * 1024

_SKIPPABLE = struct.Struct("<II")  # one of the sixteen magic numbers for users, size
_HASH_BYTES = 16
_FOOTER = struct.Struct("<QQI8s")  # content bytes, frame count, CRC-32 of the table, magic
_FOOTER_MAGIC = b"ctxblob1"
_CONTENT_MISMATCH = "its content does not match its hash"
# Content offset, file offset, newlines before the frame, hash of the frame's content.
_ENTRY = struct.Struct(f"<QQQ{_HASH_BYTES}s")


def pack(data: bytes) -> bytes:
    """Return the stored form of `data`."""
    # Measured: 3.3x at 105 to 230 MB/s; level 9 saves another sixth at a fifth of the speed.
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    frames: list[bytes] = []
    table: list[bytes] = []
    content_offset = file_offset = newlines = 0
    while content_offset < len(data):
        end = content_offset + _FRAME_BYTES
        if end < len(data):
            end = data.rfind(b"\n", content_offset, end) + 1 or end
        content = data[content_offset:end]
        frame = compressor.compress(content)
        entry = content_offset, file_offset, newlines, _hash(content).digest()
        table.append(_ENTRY.pack(*entry))
        frames.append(frame)
        content_offset += len(content)
        file_offset += len(frame)
        newlines += content.count(b"\n")
    table.append(_ENTRY.pack(content_offset, file_offset, newlines, bytes(_HASH_BYTES)))
    entries = b"".join(table)
    payload = entries + _FOOTER.pack(len(data), len(frames), zlib.crc32(entries), _FOOTER_MAGIC)
    return b"".join(frames) + _SKIPPABLE.pack(0x184D2A5E, len(payload)) + payload


@dataclass(frozen=True, slots=True)
class ContentInMemory:
    """A content in memory, with the read methods of `OpenBlob`."""

    data: bytes

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop)."""
        return self.data[start:stop]

    def newlines_before(self, position: int) -> int:
        """Return the number of newlines before byte `position`."""
        return self.data.count(b"\n", 0, position)

    def line_start(self, newlines: int) -> int:
        """Return the offset after the given number of newlines, or the size if there are fewer."""
        index = -1
        for _ in range(newlines):
            index = self.data.find(b"\n", index + 1)
            if index < 0:
                return len(self.data)
        return index + 1


@dataclass(frozen=True, slots=True)
class OpenBlob:
    """A stored content whose frame table was read. The last element of each tuple is the end.

    Attributes:
        blobs: The store of the blob.
        digest: SHA-256 of the content, in hex.
        content_offsets: Offset of each frame's content, in bytes.
        file_offsets: Offset of each frame in the stored form, in bytes.
        newline_counts: Number of newlines in the content before each frame.
        hashes: Hash of each frame's content.
        table_hash: Hash of the frame table, in hex.
    """

    blobs: "Blobs"
    digest: str
    content_offsets: tuple[int, ...]
    file_offsets: tuple[int, ...]
    newline_counts: tuple[int, ...]
    hashes: tuple[bytes, ...]
    table_hash: str

    @property
    def size_bytes(self) -> int:
        """Size of the content in bytes."""
        return self.content_offsets[-1]

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop), after verifying the hash of each frame.

        Raises:
            ArchiveDamagedError: A frame does not match its hash.
        """
        stop = min(stop, self.size_bytes)
        if start >= stop:
            return b""
        first = bisect_right(self.content_offsets, start) - 1
        last = bisect_right(self.content_offsets, stop - 1) - 1
        base = self.content_offsets[first]
        return b"".join(self._frames(first, last + 1))[start - base : stop - base]

    def newlines_before(self, position: int) -> int:
        """Return the number of newlines before byte `position`; raises what `read` raises."""
        frame = bisect_right(self.content_offsets, position) - 1
        before = self.read(self.content_offsets[frame], position)
        return self.newline_counts[frame] + before.count(b"\n")

    def line_start(self, newlines: int) -> int:
        """Return the offset after the given number of newlines, or the size if there are fewer."""
        if newlines == 0:
            return 0
        if newlines > self.newline_counts[-1]:
            return self.size_bytes
        # The last frame with fewer newlines before it contains the wanted newline.
        frame = bisect_right(self.newline_counts, newlines - 1) - 1
        content = ContentInMemory(b"".join(self._frames(frame, frame + 1)))
        start = content.line_start(newlines - self.newline_counts[frame])
        return self.content_offsets[frame] + start

    def _frames(self, first: int, stop: int) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor()
        base = self.file_offsets[first]
        stored = self.blobs.read_at(self.digest, base, self.file_offsets[stop] - base)
        for frame in range(first, stop):
            part = stored[self.file_offsets[frame] - base : self.file_offsets[frame + 1] - base]
            try:
                content = decompressor.decompress(part)
            except zstandard.ZstdError as error:
                problem = f"frame {frame + 1} cannot be decompressed"
                raise self.blobs.damage_error(self.digest, problem) from error
            if _hash(content).digest() != self.hashes[frame]:
                problem = f"frame {frame + 1} does not match its hash"
                raise self.blobs.damage_error(self.digest, problem)
            yield content


class Blobs(ABC):
    """A store of large contents by SHA-256. All methods block and may run in several threads."""

    @abstractmethod
    def put(self, data: bytes) -> str:
        """Store `data` durably and return its SHA-256 in hex. Storing it again costs little.

        Raises:
            ArchiveError: The content cannot be stored.
        """

    @abstractmethod
    def _size(self, digest: str) -> int:
        """Return the stored size of a blob in bytes; raise `NotFoundError` if it is missing."""

    @abstractmethod
    def read_at(self, digest: str, start: int, size_bytes: int) -> bytes:
        """Return bytes of the stored form of a blob; fewer only at its end."""

    @abstractmethod
    def _label(self, digest: str) -> str:
        """Return the name of a blob for error messages."""

    def read_all(self, digest: str) -> bytes:
        """Return the whole content of a blob, verified by its digest.

        Raises:
            NotFoundError: The blob is missing.
            ArchiveDamagedError: The content does not match its digest.
        """
        blob = self.open(digest)
        data = blob.read(0, blob.size_bytes)
        if sha256(data).hexdigest() != digest:
            raise self.damage_error(digest, _CONTENT_MISMATCH)
        return data

    def open(self, digest: str, table_hash: str | None = None) -> OpenBlob:
        """Return a blob that can be read in parts, after verifying its frame table.

        Args:
            digest: SHA-256 of the content, in hex.
            table_hash: Hash of the table as returned when the blob was stored. None skips this
                check.

        Raises:
            NotFoundError: The blob is missing.
            ArchiveDamagedError: The table cannot be read or does not match `table_hash`.
        """
        footer_offset = self._size(digest) - _FOOTER.size
        footer = self.read_at(digest, max(footer_offset, 0), _FOOTER.size)
        if len(footer) != _FOOTER.size or footer_offset < 0:
            raise self.damage_error(digest, "it is truncated")
        content_bytes, count, crc, magic = _FOOTER.unpack(footer)
        entries_offset = footer_offset - (count + 1) * _ENTRY.size
        if magic != _FOOTER_MAGIC or entries_offset < 0:
            raise self.damage_error(digest, "its frame table is missing")
        entries = self.read_at(digest, entries_offset, footer_offset - entries_offset)
        if zlib.crc32(entries) != crc:
            raise self.damage_error(digest, "its frame table does not match its checksum")
        offsets, file_offsets, newlines, hashes = zip(*_ENTRY.iter_unpack(entries), strict=True)
        name = _hash(entries).hexdigest()
        blob = OpenBlob(self, digest, offsets, file_offsets, newlines, hashes, name)
        if blob.size_bytes != content_bytes:
            raise self.damage_error(digest, "its frame table contradicts its size")
        if table_hash not in {None, blob.table_hash}:
            raise self.damage_error(digest, _CONTENT_MISMATCH)
        return blob

    def damage_error(self, digest: str, problem: str) -> ArchiveDamagedError:
        """Return the error for a damaged blob."""
        return ArchiveDamagedError(
            f"The archive's {self._label(digest)} is damaged: {problem}. Restore it from a backup."
        )


def _hash(data: bytes) -> "blake2b":
    return blake2b(data, digest_size=_HASH_BYTES)


def describe_blob(blob: Blob) -> JsonObject:
    """Return the head of the output record for `blob`, without its number and time.

    Raises:
        SettingsError: The blob's ID does not match its bytes.
    """
    figures = figures_of(blob)
    if blob.output_id != OUTPUT_ID_PREFIX + figures["sha256"][:OUTPUT_ID_HEX_DIGITS]:
        raise SettingsError(
            f"The output ID {blob.output_id!r} does not match the content. Create the blob with "
            "make_blob, which computes the ID."
        )
    return {
        "id": blob.output_id,
        "media": blob.media_type,
        "tool": blob.tool_name,
        "call": blob.call_id,
        **figures,
    }


def figures_of(blob: Blob) -> JsonObject:
    """Return the fields of an output record's head that describe the content."""
    text = None if blob.data.isascii() else decode_text(blob.data)
    return {
        "sha256": sha256(blob.data).hexdigest(),
        "bytes": len(blob.data),
        "chars": len(blob.data) if text is None else len(text),
        "lines": count_lines(blob.data),
    }


def encode_content(data: bytes, blobs: Blobs) -> JsonObject:
    """Return the body of the output record for `data`; a large content is stored in `blobs`."""
    if len(data) > 32 * 1024:  # can be read in parts later
        digest = blobs.put(data)
        return {"blob": digest, "table": blobs.open(digest).table_hash}
    text = decode_text(data)
    return {"base64": b64encode(data).decode("ascii")} if text is None else {"text": text}


def decode_text(data: bytes) -> str | None:
    """Return `data` decoded as UTF-8 with lone surrogates allowed. None if it is not UTF-8."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def count_lines(data: bytes) -> int:
    """Return the number of lines in `data`; 0 if it is empty."""
    return data.count(b"\n") + (not data.endswith(b"\n")) if data else 0


def info_of(head: JsonObject, session_id: str) -> OutputInfo:
    """Return the description of an output from its record's head."""
    return OutputInfo(
        output_id=head["id"],
        sha256=head["sha256"],
        media_type=head["media"],
        size_bytes=head["bytes"],
        size_chars=head["chars"],
        line_count=head["lines"],
        session_id=session_id,
        tool_name=head["tool"],
        call_id=head["call"],
    )


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An output that can be read. All methods block and may raise `ArchiveDamagedError`."""

    info: OutputInfo
    body: JsonObject
    blobs: Blobs

    def read_all(self) -> bytes:
        """Return the whole content, verified by its hash."""
        digest = self.body.get("blob")
        if digest is not None:
            return self.blobs.read_all(digest)
        if "text" in self.body:
            data = str(self.body["text"]).encode("utf-8", "surrogatepass")
        else:
            data = b64decode(self.body["base64"])
        if sha256(data).hexdigest() != self.info.sha256:
            raise ArchiveDamagedError(
                f"The output {self.info.output_id} does not match its hash. Restore the archive "
                "from a backup."
            )
        return data

    def read_bytes(self, start_byte: int, limit_bytes: int | None) -> OutputSlice:
        """Return at most `limit_bytes` bytes from `start_byte`. None means no limit.

        Raises:
            QueryError: The range is outside the output.
        """
        size_bytes = self.info.size_bytes
        if not 0 <= start_byte <= size_bytes or (limit_bytes is not None and limit_bytes < 0):
            raise QueryError(
                f"start_byte={start_byte} and limit_bytes={limit_bytes} are outside the output "
                f"{self.info.output_id}, which has {size_bytes} bytes. Give a start from 0 to "
                f"{size_bytes}."
            )
        stop = size_bytes if limit_bytes is None else min(start_byte + limit_bytes, size_bytes)
        content = self._content(read_all=stop - start_byte == size_bytes)
        data = content.read(start_byte, stop)
        return OutputSlice(self.info, data, start_byte, content.newlines_before(start_byte) + 1)

    def read_lines(self, start_line: int, line_count: int | None) -> OutputSlice:
        """Return at most `line_count` whole lines from `start_line`. None means no limit.

        Lines count from 1, or backwards from -1, the last line.

        Raises:
            QueryError: The output has no such line.
        """
        total = self.info.line_count
        first = max(total + start_line + 1, 1) if start_line < 0 else start_line
        if not 1 <= first <= total + 1 or (line_count is not None and line_count < 1):
            raise QueryError(
                f"start_line={start_line} and line_count={line_count} are outside the output "
                f"{self.info.output_id}, which has {total} lines. Give a line from 1 to {total}, "
                f"or from -1 to -{total}."
            )
        stop = total if line_count is None else min(first - 1 + line_count, total)
        content = self._content(read_all=stop - first + 1 == total)
        start_byte = content.line_start(first - 1)
        data = content.read(start_byte, content.line_start(stop))
        return OutputSlice(self.info, data, start_byte, first)

    def _content(self, *, read_all: bool) -> ContentInMemory | OpenBlob:
        """Return the content to read from: with `read_all` all of it, verified by its hash."""
        if read_all or "blob" not in self.body:
            return ContentInMemory(self.read_all())
        return self.blobs.open(self.body["blob"], self.body["table"])
