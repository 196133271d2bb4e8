"""Stored outputs: their records, and exact parts of them by byte and by line.

The body of an output's record is `{"text": ...}` or `{"base64": ...}` for a small one, and
`{"blob": sha256, "table": hash}` for a larger one (see `frames.py`). Lines are split at newlines
alone; what follows the last newline is a line of its own.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256

from context_compaction.archive import OutputInfo, OutputSlice
from context_compaction.archive.frames import Blobs, OpenBlob, WholeContent
from context_compaction.archive.records import INLINE_LIMIT_BYTES
from context_compaction.errors import ArchiveDamagedError, QueryError, SettingsError
from context_compaction.messages.edits import OUTPUT_ID_HEX_DIGITS, OUTPUT_ID_PREFIX, Blob
from context_compaction.messages.model import JsonObject


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
    if len(data) > INLINE_LIMIT_BYTES:
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
