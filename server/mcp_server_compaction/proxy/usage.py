"""Read the usage report in an answer while it passes, without delaying or changing it."""

import json
import zlib
from collections.abc import Callable
from typing import Any

from context_compaction import JsonObject, is_object

# More of one line or of one JSON answer is not examined.
_MAX_BYTES = 8 * 1024 * 1024


class UsageReader:
    """Collects the usage from the pieces of one answer.

    Args:
        encoding: The answer's Content-Encoding.
        is_stream: Whether the answer is a stream of events, each on one line.
    """

    def __init__(self, encoding: str, *, is_stream: bool) -> None:
        self._decode = _decoder(encoding)
        self._is_stream = is_stream
        self._rest = b""
        self._usage: JsonObject = {}

    def read(self, piece: bytes) -> None:
        """Examine the next bytes of the answer."""
        if self._decode is None or len(self._rest) > _MAX_BYTES:
            return
        try:
            text = self._rest + self._decode(piece)
        # Each decoder has its own error. The answer passes anyway.
        except Exception:  # noqa: BLE001
            self._decode, self._rest = None, b""
            return
        *lines, self._rest = text.split(b"\n") if self._is_stream else (text,)
        for line in lines:
            self._read_line(line)

    def finish(self) -> JsonObject:
        """Return the usage in the complete answer; empty if it reports none."""
        self._read_line(self._rest)
        return self._usage

    def _read_line(self, line: bytes) -> None:
        if b'"usage"' not in line:
            return
        try:
            event: Any = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            return
        holders = [event, event.get("message"), event.get("response")] if is_object(event) else []
        for holder in holders:
            usage = holder.get("usage") if is_object(holder) else None
            if is_object(usage):
                self._usage |= {key: value for key, value in usage.items() if value is not None}


def plain(data: bytes, encoding: str) -> bytes:
    """Return an answer without its Content-Encoding; empty if it cannot be decoded."""
    decode = _decoder(encoding)
    try:
        return decode(data) if decode is not None else b""
    except Exception:  # noqa: BLE001 - each decoder has its own error
        return b""


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    match encoding.strip().lower():
        case "" | "identity":
            return bytes
        case "gzip" | "deflate":
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
        case "zstd":
            from zstandard import ZstdDecompressor

            return ZstdDecompressor().decompressobj().decompress
        case _:
            return None
