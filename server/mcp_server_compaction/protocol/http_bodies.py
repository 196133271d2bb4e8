"""The bodies of requests: unpacked, bounded, and clean of what no JSON may hold.

The message list is decoded here, and set aside for its tool. The SDK copies a body four times and
decodes it by Python's own `json`: of a list of 50,000 tokens that took a tenth of a loaded call,
mostly since what the copies drive out of the processor's cache has to be fetched again.
"""

import re
import zlib
from contextlib import nullcontext
from typing import Any

import zstandard
from anyio import CapacityLimiter, to_thread
from context_compaction.messages.model import JsonObject, is_list, is_object
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, RequestId
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_server_compaction.protocol.deps import SET_ASIDE, SetAside
from mcp_server_compaction.protocol.stdio import (
    ODD_ID,
    TOO_DEEP,
    has_odd_id,
    id_in,
    id_of,
    is_too_deep,
    why_no_message,
    without_halves,
)

# A conversation of a million tokens is about 5 MB of JSON; the SDK's default is 4 MiB.
MAX_BODY_BYTES = 64 * 1024 * 1024
# Up to here a body is looked through faster than a thread begins to.
SMALL_BODY_BYTES = 256 * 1024
# Some two million tokens, which take seconds: one such request at a time.
LARGE_BODY_BYTES = 8 * 1024 * 1024
# The tool whose lists are set aside, and the arguments that hold them.
_TOOL = "compact_messages"
_LISTS = ("messages", "new_messages")
_PACKED_BYTES = 1024  # of zstd, which makes 128 KiB of four bytes
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # what RFC 8878 has every reader take
_SEEMS_ODD_ID = re.compile(rb'"id"\s{0,9}:\s{0,9}(?:[ntf\[{]|-?\d{1,30}[.eE])')
_BAD_REQUEST = 400
_SDKS_WORDS = b'"message":"Validation error: '
_LENGTH = b"content-length"
_HALF_BEGINS = re.compile(rb"\\u[dD]")  # found in a third of the time that `in` takes


class CleanBodies:
    """Hands on a request's body in one piece, unpacked (gzip, deflate, zstd).

    Message lists are set aside: see `arguments_of`. Halves of surrogate pairs become what they
    become on stdio. What is larger than a body may be, or packed in another way, is refused. Large
    bodies are answered one after the other, beside the rest.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._large_lane = CapacityLimiter(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the body in, then pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        packing = Headers(scope=scope).get("content-encoding", "identity").strip().lower()
        message, body = await _whole(receive)
        if message["type"] != "http.request":
            return  # the caller has gone
        try:
            if packing == "identity" and len(body) <= SMALL_BODY_BYTES:
                size_bytes, body, aside = _taken(body, packing)
            else:
                size_bytes, body, aside = await to_thread.run_sync(_taken, body, packing)
        except RefusedBodyError as error:
            answer = Response(str(error), error.status, media_type=error.media_type)
            await answer(scope, receive, send)
            return
        plain = [
            (name, value)
            for name, value in scope["headers"]
            if name not in (b"content-encoding", b"content-length")
        ]
        plain.append((b"content-length", str(len(body)).encode()))
        is_given = False

        async def given() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        answers = in_our_words(send, body)
        async with self._large_lane if size_bytes > LARGE_BODY_BYTES else nullcontext():
            await self._app({**scope, "headers": plain, SET_ASIDE: aside}, given, answers)


def in_our_words(send: Send, body: bytes) -> Send:
    """`send` with our words where the SDK refuses a `body` that is no message.

    Its own are a page of pydantic's, one line for each type of message.
    """
    held: Message | None = None

    async def tell(message: Message) -> None:
        nonlocal held
        if message["type"] == "http.response.start" and message["status"] == _BAD_REQUEST:
            held = message
            return
        if held is not None:
            start, held = held, None
            if _SDKS_WORDS in message.get("body", b""):
                value: Any = from_json(body)
                refused = _refused(INVALID_REQUEST, why_no_message(value), id_of(value))
                told = str(refused).encode()
                headers = [pair for pair in start["headers"] if pair[0] != _LENGTH]
                start = {**start, "headers": [*headers, (_LENGTH, str(len(told)).encode())]}
                message = {**message, "body": told}
            await send(start)
        await send(message)

    return tell


class RefusedBodyError(Exception):
    """A request's body that is not accepted.

    Attributes:
        status: The HTTP status.
        media_type: Of the answer: text, or the JSON of the protocol.
    """

    def __init__(self, status: int, why: str, media_type: str = "text/plain") -> None:
        super().__init__(why)
        self.status = status
        self.media_type = media_type


async def _whole(receive: Receive) -> tuple[Message, bytes]:
    """The last message of a request, and its body, up to a little more than it may have."""
    message = await receive()
    pieces = [message.get("body", b"")]
    size_bytes = len(pieces[0])
    while message.get("more_body") and size_bytes <= MAX_BODY_BYTES:
        message = await receive()
        pieces.append(message.get("body", b""))
        size_bytes += len(pieces[-1])
    return message, b"".join(pieces)


def _taken(body: bytes, packing: str) -> tuple[int, bytes, SetAside | None]:
    """The size of a request's body, the body as it is passed on, and what was set aside of it."""
    body = _clean(body, packing)
    arguments, rest = _set_aside(body) if _TOOL.encode() in body else ({}, body)
    if _SEEMS_ODD_ID.search(rest):
        _refuse_odd_id(rest)
    return len(body), rest, SetAside(arguments, len(body)) if arguments else None


def _refuse_odd_id(body: bytes) -> None:
    """Refuse what the SDK takes for a notification, to which nobody gets an answer."""
    try:
        request: Any = from_json(body)
    except ValueError:
        return  # the SDK says what is wrong
    if is_object(request) and "method" in request and has_odd_id(request):
        raise _refused(INVALID_REQUEST, ODD_ID, None)


def _refused(code: int, problem: str, request_id: RequestId | None) -> RefusedBodyError:
    error = ErrorData(code=code, message=f"The request {problem}. Nothing was done.")
    answer = JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
    return RefusedBodyError(400, answer.model_dump_json(exclude_unset=True), "application/json")


def _set_aside(body: bytes) -> tuple[JsonObject, bytes]:
    """The lists in a call of the tool, and the body without them; whatever else as it is."""
    try:
        request: Any = from_json(body)
    except ValueError as error:
        if not is_too_deep(error):
            return {}, body  # the SDK says what is wrong
        request_id = id_in(body.decode("utf-8", "replace"))
        raise _refused(PARSE_ERROR, TOO_DEEP, request_id) from error
    params = request.get("params") if is_object(request) else None
    given = params.get("arguments") if is_object(params) else None
    if not (is_object(params) and is_object(given) and params.get("name") == _TOOL):
        return {}, body
    lists = {name: given.pop(name) for name in _LISTS if is_list(given.get(name))}
    return (lists, to_json(request)) if lists else ({}, body)


def _clean(body: bytes, packing: str) -> bytes:
    body = _unpacked(body, packing)
    if len(body) > MAX_BODY_BYTES:
        raise RefusedBodyError(
            413,
            f"The request has more than {MAX_BODY_BYTES // 1024**2} MiB. Hand in fewer messages at "
            "a time, as new_messages, or upload what is large.",
        )
    if not _HALF_BEGINS.search(body):
        return body
    text = without_halves(body.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape")


def _unpacked(body: bytes, packing: str) -> bytes:
    """The body before it was packed; one byte more than it may have where it is larger."""
    try:
        match packing:
            case "identity" | "":
                return body
            case "gzip" | "x-gzip":
                return _inflated(body, zlib.MAX_WBITS | 16)
            case "deflate":
                return _inflated(body, zlib.MAX_WBITS)
            case "zstd":
                return _unpacked_zstd(body)
            case _:
                raise RefusedBodyError(
                    415, f"Bodies packed as {packing[:40]!r} are not taken; gzip and zstd are."
                )
    except (zlib.error, zstandard.ZstdError) as error:
        raise RefusedBodyError(400, f"The body is no {packing}: {error}.") from error


def _inflated(body: bytes, window_bits: int) -> bytes:
    """What zlib packed, all members of it.

    Raises:
        zlib.error: It is damaged, or ends too early.
    """
    data = b""
    while body and len(data) <= MAX_BODY_BYTES:
        unpacking = zlib.decompressobj(window_bits)
        data += unpacking.decompress(body, MAX_BODY_BYTES + 1 - len(data))
        if not unpacking.eof and len(data) <= MAX_BODY_BYTES:
            raise zlib.error("it ends too early")
        body = unpacking.unused_data
    return data


def _unpacked_zstd(body: bytes) -> bytes:
    """What zstd packed, all frames of it.

    Raises:
        zstandard.ZstdError: It is damaged, or ends too early.
    """
    data = b""
    while body and len(data) <= MAX_BODY_BYTES:
        unpacking = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
        pieces: list[bytes] = []
        size_bytes = len(data)
        view = memoryview(body)
        while len(view) and not unpacking.eof and size_bytes <= MAX_BODY_BYTES:
            pieces.append(unpacking.decompress(view[:_PACKED_BYTES]))
            size_bytes += len(pieces[-1])
            view = view[_PACKED_BYTES:]
        data += b"".join(pieces)
        if not unpacking.eof and len(data) <= MAX_BODY_BYTES:
            raise zstandard.ZstdError("it ends too early")
        body = unpacking.unused_data + bytes(view)
    return data[: MAX_BODY_BYTES + 1]
