"""Records: the entries of a session's log, in order, for every kind of archive.

A record has a small head, which contains everything needed to place a message list, and a body,
which is read only on request.

Kinds and their heads. Each head also has `n` (the record's number in its session) and `ts` (Unix
time in seconds):

- session: session, parent. The first record of every segment.
- message: seq, hash, parent, format, role, tools, and `at`, the time of archiving by the archive's
  clock (`ts` is the message's own time). Body: the host's message object.
- output: id, sha256, media, bytes, chars, lines, tool, call. A small body is
  `{"text": ...}` or `{"base64": ...}`, a large one `{"blob": sha256, "table": hash}`
  (`frames.py`).
- pin: pinned. Whether the session is protected from pruning. No body.
- run: head, parent, source, count. The branch `head` is `parent` plus the last `count` messages of
  the branch `source`, which are not written again. No body.
- receipt: of (head of the compacted branch), left (head of the resulting context), outputs (IDs of
  the outputs that the compaction stored). Body: the receipt.
- context: of, listed (head of the same list after its start was replaced, or ""), entries. An entry
  is [content hash, seq or -1, number of the edited original or -1]; a message that replaces others
  adds the head of the replaced branch. Body: the messages of the entries with seq -1, in order.

Branches are identified by chain hashes (history_hash.py).
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from context_compaction.archive import OutputInfo, OutputSlice
from context_compaction.archive.frames import Blobs, OpenBlob, WholeContent
from context_compaction.errors import ArchiveDamagedError, QueryError, SettingsError
from context_compaction.messages.edits import OUTPUT_ID_HEX_DIGITS, OUTPUT_ID_PREFIX, Blob
from context_compaction.messages.model import JsonObject, is_list, is_object, utf8_json

# Larger than the limit of outputs, because strings of messages are always read whole. A blob file
# costs 1.1 ms and two device syncs (measured at 55 KB), a line in the log 0.1 ms and no further
# sync; the blob takes a third of the space.
_STRING_LIMIT_BYTES = 64 * 1024
_BLOB_KEY = "$blob"
BLOB_MARK = b'$blob":'  # `internalise` has nothing to do for a line without this text


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


def externalise(value: Any, put: Callable[[bytes], str]) -> str:
    """Return the JSON text of `value`, with long strings moved to blobs.

    A string above the limit becomes `{"$blob": its hash}`. `put` stores its bytes (UTF-8, lone
    surrogates allowed) and returns their hash. If the value itself contains the key "$blob", the
    key gets one more "$", which `internalise` removes.
    """
    text = ascii_json(value)
    # Search for one character first, because that is much faster and most texts lack it.
    has_key = "$" in text and _BLOB_KEY in text
    if len(text) <= _STRING_LIMIT_BYTES and not has_key:
        return text
    return ascii_json(_externalise(value, put))


def _externalise(value: Any, put: Callable[[bytes], str]) -> Any:
    if isinstance(value, str):
        if len(value) <= _STRING_LIMIT_BYTES // 4:  # in UTF-8 a character has at most four bytes
            return value
        data = value.encode("utf-8", "surrogatepass")
        return {_BLOB_KEY: put(data)} if len(data) > _STRING_LIMIT_BYTES else value
    if is_object(value):
        return {
            "$" + key if _is_blob_key(key) else key: _externalise(item, put)
            for key, item in value.items()
        }
    if is_list(value):
        return [_externalise(item, put) for item in value]
    return value


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

    def read_whole(self) -> bytes:
        """Return the whole content, verified by its hash."""
        digest = self.body.get("blob")
        if digest is not None:
            return self.blobs.read_whole(digest)
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
        content = self._content(whole=stop - start_byte == size_bytes)
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
        content = self._content(whole=stop - first + 1 == total)
        start_byte = content.line_start(first - 1)
        data = content.read(start_byte, content.line_start(stop))
        return OutputSlice(self.info, data, start_byte, first)

    def _content(self, *, whole: bool) -> WholeContent | OpenBlob:
        """Return the content to read from. The `whole` content is verified by the output's hash."""
        if whole or "blob" not in self.body:
            return WholeContent(self.read_whole())
        return self.blobs.open(self.body["blob"], self.body["table"])
