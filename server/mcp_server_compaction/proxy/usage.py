"""Read an answer of a provider after it has passed: its text, and the usage that it reports."""

import json
from typing import Any

import httpx2
import zstandard
from context_compaction import JsonObject, is_object


def decoded(response: httpx2.Response, data: bytes) -> bytes:
    """Return the answer `data` without its Content-Encoding; empty if it cannot be decoded."""
    try:
        if response.headers.get("content-encoding") == "zstd":  # httpx2 needs Python 3.14 for it
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        return httpx2.Response(200, headers=response.headers, content=data).content
    except (httpx2.DecodingError, zstandard.ZstdError):
        return b""


def usage_in(answer: bytes) -> JsonObject:
    """Return the usage in a complete answer, which may be a stream; empty if it reports none."""
    usage: JsonObject = {}
    is_stream = not answer.lstrip().startswith(b"{")
    for line in answer.split(b"\n") if is_stream else (answer,):
        for holder in _holders(line.removeprefix(b"data:")) if b'"usage"' in line else ():
            found = holder.get("usage") if is_object(holder) else None
            if is_object(found):
                usage |= {name: value for name, value in found.items() if value is not None}
    return usage


def _holders(text: bytes) -> list[Any]:
    """Return the objects of an event or answer that may have a usage."""
    try:
        event: Any = json.loads(text)
    except ValueError:
        return []
    return [event, event.get("message"), event.get("response")] if is_object(event) else []
