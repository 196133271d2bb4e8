"""Records, the entries of a session's log, and large contents, for every kind of archive.

A record has a small head, which contains everything needed to place a message list, and a body,
which is read only on request.

Kinds and their heads. Each head also has `n` (the record's number in its session) and `ts` (Unix
time in seconds):

- session: session, parent. The first record of every segment.
- message: seq, hash, parent, format, role, tools, chars (of its text), and `at`, the time of
  archiving by the archive's clock (`ts` is the message's own time). A message of the user may have
  a `title` for the session, and a message whose record was damaged and that was stored again has
  `copy`. Body: the host's message object.
- output: id, sha256, media, bytes, chars, lines, tool, call, and if it describes the session, its
  title or its host and folder. A small body is `{"text": ...}` or `{"base64": ...}`, a large one
  the list of its parts (see below).
- pin: pinned. Whether the session is protected from pruning. No body.
- run: head, parent, source, count. The branch `head` is `parent` plus the last `count` messages of
  the branch `source`, which are not written again. No body.
- receipt: of (head of the compacted branch), left (head of the resulting context), outputs (IDs of
  the outputs that the compaction stored). Body: the receipt.
- context: of, listed (head of the same list after its start was replaced, or ""), entries. An entry
  is [content hash, seq or -1, number of the edited original or -1]; a message that replaces others
  adds the head of the replaced branch. Body: the messages of the entries with seq -1, in order.

Branches are identified by chain hashes (history_hash.py).

A large string or part is a blob: compressed with zstd and named by the SHA-256 of its content. A
large output has parts of 256 KB, cut after a newline if possible, so that 4 KB out of 50 MB are
read from one or two blobs. The record has for each part `{"blob": sha256, "bytes": ...,
"newlines": ...}`, so a part is verified as strictly as the whole.
"""

import json
import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import zstandard

from context_compaction.archive.values import OutputInfo, OutputSlice
from context_compaction.errors import ArchiveDamagedError, NotFoundError, QueryError, SettingsError
from context_compaction.formats.base import leaves
from context_compaction.messages import model
from context_compaction.messages.model import (
    OUTPUT_ID_HEX_DIGITS,
    OUTPUT_ID_PREFIX,
    Blob,
    JsonObject,
    Message,
    is_list,
    is_object,
    utf8_json,
)

# Larger than the limit of outputs, because strings of messages are always read whole. A blob file
# costs 1.1 ms and two device syncs (measured at 55 KB), a line in the log 0.1 ms and no further
# sync; the blob takes a third of the space.
_STRING_LIMIT_BYTES = 64 * 1024
_PART_BYTES = 256 * 1024  # of an output; one part is read and verified in about 1 ms
TITLE_CHARS = 80
# Images, signatures and encrypted content have no words to search for.
_ENCODED = re.compile(r"(?:data:[^,]{0,100},)?[A-Za-z0-9+/_-]{200,}={0,2}")
_BLOB_KEY = "$blob"
_BLOB_MARK = f'{_BLOB_KEY}":'  # `parse_body` restores nothing in a text without it


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
    the key gets one more "$", which `parse_body` removes.
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
    """Return the value that was passed to `externalise`; `get` returns the bytes of a hash."""
    if _BLOB_MARK not in text:
        return json.loads(text)

    def restore(value: JsonObject) -> Any:
        if value.keys() == {_BLOB_KEY}:
            return get(value[_BLOB_KEY]).decode("utf-8", "surrogatepass")
        return {key[1:] if _is_blob_key(key) else key: item for key, item in value.items()}

    return json.loads(text, object_hook=restore)


def _is_blob_key(key: str) -> bool:
    return key.endswith(_BLOB_KEY) and key.lstrip("$") == "blob"


def role_of(message: Message) -> str:
    """Return the role for searches: "tool" for a message of tool results, else the message's."""
    if message.role == "user" and message.blocks and not model.starts_turn(message):
        return "tool"
    return message.role


def tools_of(messages: Sequence[Message], start: int = 0) -> list[list[str]]:
    """Return for each message from `start` the names of the tools of its calls and results."""
    new, names, tools = messages[start:], dict[str, str](), list[list[str]]()
    blocks = [block for message in new for block in message.blocks]
    earlier_ids = {block.call_id for block in blocks if isinstance(block, model.ToolResult)}
    earlier_ids -= {block.call_id for block in blocks if isinstance(block, model.ToolCall)}
    for message in reversed(messages[:start]):
        if earlier_ids <= names.keys():
            break
        for call in model.tool_calls(message):
            names.setdefault(call.call_id, call.name)
    for message in new:
        named: dict[str, None] = {}
        for block in message.blocks:
            if isinstance(block, model.ToolCall):
                named[block.name] = None
                names[block.call_id] = block.name
            elif isinstance(block, model.ToolResult):
                named[block.name or names.get(block.call_id, "")] = None
        tools.append([*filter(None, named)])
    return tools


def title_of(text: str) -> str:
    """Return the first line of the user's words as a title; "" for a command of the host."""
    line = " ".join(text.strip().split("\n", 1)[0].split())
    if line.startswith("/") and line[1:].replace("-", "").replace(":", "").isidentifier():
        return ""
    line = line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"
    # Databases refuse lone surrogates and zeros.
    return line.encode("utf-8", "replace").decode().replace("\0", "?")


def text_size_chars(message: Message) -> int:
    """Return about how many characters of text a message has."""
    return sum(len(text) for block in message.blocks for text in block_texts(block))


def is_encoded(text: str) -> bool:
    """Whether `text` is an image, a signature or encrypted content."""
    return _ENCODED.fullmatch(text) is not None


def block_texts(block: model.Block) -> list[str]:
    """Return the texts of a block, as searches find them."""
    match block:
        case model.Text() | model.Thinking():
            return [block.text]
        case model.ToolCall():
            return [block.name, *all_strings(block.arguments)]
        case model.ToolResult():
            return ["\n".join(text for part in block.content for text in block_texts(part))]
        case model.Image():
            return [block.url or ""]
        case model.Document():
            return [block.url or "", block.text or ""]
        case model.Opaque():
            return [string for string in all_strings(block.source) if not is_encoded(string)]


def all_strings(value: Any) -> list[str]:
    """Return all strings and numbers among the values of a JSON value, in order."""
    return [str(leaf) for _, leaf in leaves(value)]


class Blobs(ABC):
    """A store of large contents by SHA-256. All methods block and may run in several threads."""

    @abstractmethod
    def put(self, data: bytes) -> str:
        """Store `data` durably and return its SHA-256 in hex. Storing it again costs little.

        Raises:
            ArchiveError: The content cannot be stored.
        """

    @abstractmethod
    def _packed(self, digest: str) -> bytes | None:
        """Return the stored form of a blob; None if it is missing."""

    @abstractmethod
    def _label(self, digest: str) -> str:
        """Return the name of a blob for error messages."""

    def get(self, digest: str) -> bytes:
        """Return the content of a blob, verified by its digest.

        Raises:
            NotFoundError: The blob is missing.
            ArchiveDamagedError: The content does not match its digest.
        """
        packed, data = self._packed(digest), None
        if packed is None:
            raise NotFoundError(
                f"The archive's {self._label(digest)} is missing. Restore it from a backup."
            )
        with suppress(zstandard.ZstdError):
            data = zstandard.ZstdDecompressor().decompress(packed)
        if data is None or sha256(data).hexdigest() != digest:
            raise ArchiveDamagedError(
                f"The archive's {self._label(digest)} is damaged: its content does not match its "
                "hash. Restore it from a backup."
            )
        return data


def pack(data: bytes) -> bytes:
    """Return the stored form of `data`."""
    # Measured: 3.3x at 105 to 230 MB/s; level 9 saves another sixth at a fifth of the speed.
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)


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
        "lines": blob.data.count(b"\n") + (blob.data[-1:] not in (b"", b"\n")),
    }


def encode_content(data: bytes, store_blob: Callable[[bytes], str]) -> Any:
    """Return the body of the output record for `data`; `store_blob` stores parts of large data."""
    if len(data) > 32 * 1024:  # can be read in parts later
        return [
            {"blob": store_blob(part), "bytes": len(part), "newlines": part.count(b"\n")}
            for part in _parts(data)
        ]
    text = decode_text(data)
    return {"base64": b64encode(data).decode("ascii")} if text is None else {"text": text}


def _parts(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        stop = start + _PART_BYTES
        if stop < len(data):
            stop = data.rfind(b"\n", start, stop) + 1 or stop
        yield data[start:stop]
        start = stop


def decode_text(data: bytes) -> str | None:
    """Return `data` decoded as UTF-8 with lone surrogates allowed. None if it is not UTF-8."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


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
class _Part:
    """A part of an output, with its length in bytes, its number of newlines, and its content."""

    size_bytes: int
    newlines: int
    load: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An output that can be read. All methods block and may raise `ArchiveDamagedError`."""

    info: OutputInfo
    body: Any
    blobs: Blobs

    def read_all(self) -> bytes:
        """Return the whole content, verified by its hash."""
        return self._verified(b"".join(part.load() for part in self._parts()))

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
        return self._slice(start_byte, stop)

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
        return self._slice(self._line_start(first - 1), self._line_start(stop))

    def _slice(self, start: int, stop: int) -> OutputSlice:
        """Return bytes [start, stop) with the number of the first line."""
        if stop - start == self.info.size_bytes:
            return OutputSlice(self.info, self.read_all(), 0, 1)
        offset, newlines = 0, 0
        pieces: list[bytes] = []
        for part in self._parts():
            end = offset + part.size_bytes
            if end <= start:
                newlines += part.newlines
            elif offset < stop or not pieces:
                data = part.load()
                newlines += data.count(b"\n", 0, start - offset) if offset < start else 0
                pieces.append(data[max(0, start - offset) : max(0, stop - offset)])
            offset = end
        return OutputSlice(self.info, b"".join(pieces), start, newlines + 1)

    def _line_start(self, newlines: int) -> int:
        """Return the offset after this number of newlines, or the size if there are fewer."""
        offset = 0
        for part in self._parts() if newlines else ():
            if newlines <= part.newlines:
                data, index = part.load(), -1
                for _ in range(newlines):
                    index = data.index(b"\n", index + 1)
                return offset + index + 1
            offset, newlines = offset + part.size_bytes, newlines - part.newlines
        return offset

    def _parts(self) -> list[_Part]:
        if is_list(self.body):
            return [
                _Part(part["bytes"], part["newlines"], partial(self.blobs.get, part["blob"]))
                for part in self.body
            ]
        if "text" in self.body:
            data = str(self.body["text"]).encode("utf-8", "surrogatepass")
        else:
            data = b64decode(self.body["base64"])
        return [_Part(len(data), data.count(b"\n"), lambda: self._verified(data))]

    def _verified(self, data: bytes) -> bytes:
        if sha256(data).hexdigest() != self.info.sha256:
            raise ArchiveDamagedError(
                f"The output {self.info.output_id} does not match its hash. Restore the archive "
                "from a backup."
            )
        return data
