"""Records: what an archive keeps of a session, one after the other, whatever stores it.

A record has a small head, which holds all that placing a list needs, and a body, which is read when
it is asked for.

Kinds and their heads, beside `n` (the record's number in its session) and `ts` (Unix seconds):

- session: session, parent. Opens every segment.
- message: seq, hash, parent, format, role, tools, and at: when it was archived by our own clock,
  while `ts` is the message's own time. Body: the host's object.
- output: id, sha256, media, bytes, chars, lines, tool, call. Body: see `outputs.py`.
- pin: pinned. Body: nothing.
- counts: by (who counted), format. Body: of messages each [fingerprint, content hash, count]. A
  message that comes again is known by its fingerprint, and neither hashed nor counted anew.
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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from context_compaction.messages.model import JsonObject, is_list, is_object, json_writer, utf8_json

# Outputs above this go to a blob, which is read in parts.
INLINE_LIMIT_BYTES = 32 * 1024
# Strings of messages are read whole, so it pays later: a file costs 1.1 ms and two waits for the
# device (measured at 55 KB), a line in the log 0.1 ms and none; it takes a third of the space.
_STRING_LIMIT_BYTES = 64 * 1024
_SURELY_SHORT_CHARS = _STRING_LIMIT_BYTES // 4
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


_escaped_json = json_writer(ascii_only=True)


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
        if len(value) <= _SURELY_SHORT_CHARS:
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
