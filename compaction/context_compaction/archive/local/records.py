r"""One line of the log: JSON with a checksum, a small head and a body.

    {"crc":"1a2b3c4d","kind":"message","n":7,...,"body":{...}}\n

`crc` is the CRC-32 of everything after it (from `"kind"` to the last brace). The head is small and
holds all that a scan needs, so the body, which is last, is parsed only when it is read. The
last record of a call has `"last":true`; readers take whole calls only, so that a call that was cut
off (by a kill, a full disk) is absent, not half there.

Non-ASCII text is escaped, so lone surrogates survive and a newline always ends a line.
"""

import json
import zlib
from typing import Any

from context_compaction.archive.records import Record, ascii_json
from context_compaction.errors import ArchiveDamagedError
from context_compaction.messages.model import JsonObject

_OPENING = b'{"crc":"'
_CRC_END = len(_OPENING) + 8
_BODY = b',"body":'

# Reads the JSON value that begins at a place of a text, and looks at nothing around it.
_parse = json.JSONDecoder().raw_decode


def encode_line(record: Record, *, last: bool) -> bytes:
    """The line of `record`, with its newline."""
    head = record.head | {"last": True} if last else record.head
    parts = ascii_json(head)[1:-1].encode("ascii"), _BODY, record.text().encode("ascii"), b"}"
    data = b"".join(parts)
    return b"".join((_OPENING, b'%08x",' % zlib.crc32(data), data, b"\n"))


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
