"""Records: what an archive keeps of a session, one after the other, whatever stores it.

A record has a small head, which holds all that placing a list needs, and a body, which is read when
it is asked for.

Kinds and their heads, beside `n` (the record's number in its session) and `ts` (Unix seconds):

- session: session, parent. Opens every segment.
- message: seq, hash, parent, format, role, tools, and at: when it was archived by our own clock,
  while `ts` is the message's own time. Body: the host's object.
- output: id, sha256, media, bytes, chars, lines, tool, call. Body: `{"text": ...}` or
  `{"base64": ...}` of a small one, `{"blob": sha256, "table": hash}` of a larger one (`frames.py`).
- pin: pinned. Body: nothing.
- run: head, parent, source, count. The history `head` is `parent` with the last `count` messages of
  the history `source`, which are not written again. Body: nothing.
- receipt: of (the history that was compacted), left (the one that its context is), outputs (the
  ids of what the compaction kept). Body: the receipt.
- context: of, listed (the same list with what replaced its beginning, or ""), entries, each
  [content hash, seq or -1, number of the edited original or -1], and of a message of ours that
  stands for others the head of their history.
  Body: the raw messages of the entries whose seq is -1, in order.

Histories are named by chain hashes (history_hash.py).
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

# Strings of messages are read whole, so it pays later: a file costs 1.1 ms and two waits for the
# device (measured at 55 KB), a line in the log 0.1 ms and none; it takes a third of the space.
_STRING_LIMIT_BYTES = 64 * 1024
_BLOB_KEY = "$blob"
BLOB_MARK = b'$blob":'  # a line without it holds nothing for `restore` to do


@dataclass(frozen=True, slots=True)
class Record:
    """One record to be written.

    Attributes:
        head: What a scan reads of it.
        body: JSON text, as `externalise` returns it, or what makes that: the records of a first
            call hold all of a list, whose text need not be in memory at once.
    """

    head: JsonObject
    body: str | Callable[[], str] = "null"

    def text(self) -> str:
        """The JSON text of the body."""
        return self.body if isinstance(self.body, str) else self.body()


@dataclass(frozen=True, slots=True)
class LinePlace:
    """Where a line is: the segment's file name in its session folder, and its bytes.

    In a database, `segment` is empty and `offset` the record's number.
    """

    segment: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """The head of a record and where its line is."""

    head: JsonObject
    place: LinePlace


_escaped_json = json.JSONEncoder(separators=(",", ":")).encode


def ascii_json(value: Any) -> str:
    """A JSON value without blanks, in ASCII, keys in their own order."""
    data = utf8_json(value)  # in a quarter of the time of the other
    return data.decode("ascii") if data.isascii() else _escaped_json(value)


def externalise(value: Any, put: Callable[[bytes], str]) -> str:
    """The JSON text of `value`, its long strings replaced.

    A string above the limit becomes `{"$blob": its hash}`; `put` keeps its bytes (UTF-8,
    lone surrogates passed) and returns their hash. A key of the host's own that looks like ours
    gets one more "$", which `internalise` removes.
    """
    text = ascii_json(value)
    # One character is found many times faster than a word, and most texts lack it.
    has_key = "$" in text and _BLOB_KEY in text
    if len(text) <= _STRING_LIMIT_BYTES and not has_key:
        return text
    return ascii_json(_externalise(value, put))


def _externalise(value: Any, put: Callable[[bytes], str]) -> Any:
    if isinstance(value, str):
        if len(value) <= _STRING_LIMIT_BYTES // 4:  # a character has at most four bytes
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
    """The value that `externalise` took; `get` returns the bytes of a hash."""
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
    """The head of the record that keeps `blob`, without its number and time.

    Raises:
        SettingsError: The blob's id is not that of its bytes.
    """
    figures = figures_of(blob)
    if blob.output_id != OUTPUT_ID_PREFIX + figures["sha256"][:OUTPUT_ID_HEX_DIGITS]:
        raise SettingsError(
            f"The output id {blob.output_id!r} does not belong to these bytes. "
            "Make blobs with make_blob, which computes the id."
        )
    return {
        "id": blob.output_id,
        "media": blob.media_type,
        "tool": blob.tool_name,
        "call": blob.call_id,
        **figures,
    }


def figures_of(blob: Blob) -> JsonObject:
    """The part of a record's head that describes the bytes themselves."""
    text = None if blob.data.isascii() else decode_text(blob.data)
    return {
        "sha256": sha256(blob.data).hexdigest(),
        "bytes": len(blob.data),
        "chars": len(blob.data) if text is None else len(text),
        "lines": count_lines(blob.data),
    }


def encode_content(data: bytes, blobs: Blobs) -> JsonObject:
    """The body of the record that keeps `data`; `blobs` stores a large one."""
    if len(data) > 32 * 1024:  # read in parts later
        digest = blobs.put(data)
        return {"blob": digest, "table": blobs.open(digest).table_hash}
    text = decode_text(data)
    return {"base64": b64encode(data).decode("ascii")} if text is None else {"text": text}


def decode_text(data: bytes) -> str | None:
    """The text of `data` (UTF-8, lone surrogates passed), None where it is no text."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def count_lines(data: bytes) -> int:
    """How many lines `data` has; none where it is empty."""
    return data.count(b"\n") + (not data.endswith(b"\n")) if data else 0


def info_of(head: JsonObject, session_id: str) -> OutputInfo:
    """The figures of an output, from its record's head."""
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
    """An output that can be read. Every method blocks and raises `ArchiveDamagedError`."""

    info: OutputInfo
    body: JsonObject
    blobs: Blobs

    def read_whole(self) -> bytes:
        """All bytes, verified by their hash."""
        digest = self.body.get("blob")
        if digest is not None:
            return self.blobs.read_whole(digest)
        if "text" in self.body:
            data = str(self.body["text"]).encode("utf-8", "surrogatepass")
        else:
            data = b64decode(self.body["base64"])
        if sha256(data).hexdigest() != self.info.sha256:
            raise ArchiveDamagedError(
                f"Output {self.info.output_id} does not match its hash. Restore the archive "
                "from a backup."
            )
        return data

    def read_bytes(self, start_byte: int, limit_bytes: int | None) -> OutputSlice:
        """At most `limit_bytes` bytes from `start_byte`.

        Raises:
            QueryError: The range lies outside the output.
        """
        size_bytes = self.info.size_bytes
        if not 0 <= start_byte <= size_bytes or (limit_bytes is not None and limit_bytes < 0):
            raise QueryError(
                f"Output {self.info.output_id} has {size_bytes} bytes; start_byte={start_byte} "
                f"and limit_bytes={limit_bytes} do not fit. Give a start from 0 to {size_bytes}."
            )
        stop = size_bytes if limit_bytes is None else min(start_byte + limit_bytes, size_bytes)
        content = self._content(whole=stop - start_byte == size_bytes)
        data = content.read(start_byte, stop)
        return OutputSlice(self.info, data, start_byte, content.newlines_before(start_byte) + 1)

    def read_lines(self, start_line: int, line_count: int | None) -> OutputSlice:
        """At most `line_count` whole lines from `start_line`, counted from 1, or back from -1.

        Raises:
            QueryError: The output has no such line.
        """
        total = self.info.line_count
        first = max(total + start_line + 1, 1) if start_line < 0 else start_line
        if not 1 <= first <= total + 1 or (line_count is not None and line_count < 1):
            raise QueryError(
                f"Output {self.info.output_id} has {total} lines; start_line={start_line} and "
                f"line_count={line_count} do not fit. Give a line from 1 to {total}, or from -1 "
                "backwards."
            )
        stop = total if line_count is None else min(first - 1 + line_count, total)
        content = self._content(whole=stop - first + 1 == total)
        start_byte = content.line_start(first - 1)
        data = content.read(start_byte, content.line_start(stop))
        return OutputSlice(self.info, data, start_byte, first)

    def _content(self, *, whole: bool) -> WholeContent | OpenBlob:
        """What parts are read of; where it is the `whole`, that is verified by the output's id."""
        if whole or "blob" not in self.body:
            return WholeContent(self.read_whole())
        return self.blobs.open(self.body["blob"], self.body["table"])
