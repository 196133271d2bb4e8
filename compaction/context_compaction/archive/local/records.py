r"""One line of the log: JSON with a checksum, a small head and a body.

    {"crc":"1a2b3c4d","kind":"message","n":7,...,"body":{...}}\n

`crc` is the CRC-32 of everything after it (from `"kind"` to the last brace). The head is small and
holds all that a scan needs, so the body, which is last, is parsed only when it is read. The
last record of a call has `"last":true`; readers take whole calls only, so that a call that was cut
off (by a kill, a full disk) is absent, not half there.

Kinds and their heads, beside `n` (the record's number in its session) and `ts` (Unix seconds):

- session: v, session, parent. Opens every segment.
- message: seq, hash, parent, format, role, tools, and at: when it was archived by our own clock,
  while `ts` is when it was said. Body: the host's object.
- output: id, sha256, media, bytes, chars, lines, tool, call. Body: see `outputs.py`.
- pin: pinned. Body: nothing.
- run: head, parent, source, count. The history `head` is `parent` with the last `count` messages of
  the history `source`, which are not written again. Body: nothing.
- receipt: of (the history that was compacted), left (the one that its context is), outputs (the
  ids of what the compaction kept). Body: the receipt.
- context: of, listed (the same list with what stood for its beginning, or ""), entries, each
  [content hash, seq or -1, number of the edited original or -1], and of a message of ours that
  stands for others the head of their history.
  Body: the raw messages of the entries whose seq is -1, in order.

Histories are named by chain hashes (history_hash.py). Logs of earlier versions lack `run`, `of`,
`left`, `outputs` and the fourth part of an entry: what they hold is read by number, and no summary
is made from what they say of branches.

Non-ASCII text is escaped, so lone surrogates survive and a newline always ends a line.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from context_compaction.errors import ArchiveDamagedError
from context_compaction.messages.model import JsonObject, is_list, is_object

RECORD_VERSION = 1


# Strings above this go to a blob of their own. FACTS part 2, section 4: below 16 to 32 KB a line
# in the log is cheaper than a file.
INLINE_LIMIT_BYTES = 32 * 1024
_OPENING = b'{"crc":"'
_CRC_END = len(_OPENING) + 8
_BODY = b',"body":'
_BLOB_KEY = "$blob"
BLOB_MARK = b'$blob":'  # a line without it holds nothing for `restore` to do


@dataclass(frozen=True, slots=True)
class Record:
    """One record to be written; `body` is JSON text, as `externalise` gives it."""

    head: JsonObject
    body: str = "null"


@dataclass(frozen=True, slots=True)
class LinePlace:
    """Where a line is: the segment's file name in its session folder, and its bytes."""

    segment: str
    offset: int
    length: int


# Reads the JSON value that begins at a place of a text, and looks at nothing around it.
_parse = json.JSONDecoder().raw_decode


# JSON without blanks, in ASCII, keys in their own order. One encoder for all: `json.dumps` makes a
# new one each time.
ascii_json: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode


def encode_line(record: Record, *, last: bool) -> bytes:
    """The line of `record`, with its newline."""
    head = record.head | {"last": True} if last else record.head
    rest = ascii_json(head)[1:-1] + _BODY.decode() + record.body + "}"
    data = rest.encode("ascii")
    return _OPENING + b'%08x",' % zlib.crc32(data) + data + b"\n"


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


def externalise(value: Any, put: Callable[[bytes], str]) -> str:
    """The JSON text of `value`, its long strings replaced.

    A string above `INLINE_LIMIT_BYTES` becomes `{"$blob": its hash}`; `put` keeps its bytes (UTF-8,
    lone surrogates passed) and returns their hash. A key of the host's own that looks like ours
    gets one more "$", which `restore` takes away.
    """
    text = ascii_json(value)
    if len(text) <= INLINE_LIMIT_BYTES and _BLOB_KEY not in text:
        return text
    return ascii_json(_externalise(value, put))


def _externalise(value: Any, put: Callable[[bytes], str]) -> Any:
    if isinstance(value, str):
        if len(value) <= INLINE_LIMIT_BYTES // 4:
            return value
        data = value.encode("utf-8", "surrogatepass")
        return {_BLOB_KEY: put(data)} if len(data) > INLINE_LIMIT_BYTES else value
    if is_object(value):
        return {
            "$" + key if _is_blob_key(key) else key: _externalise(item, put)
            for key, item in value.items()
        }
    if is_list(value):
        return [_externalise(item, put) for item in value]
    return value


def internalise(value: Any, get: Callable[[str], bytes]) -> Any:
    """What `externalise` was given; `get` returns the bytes of a hash."""
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
