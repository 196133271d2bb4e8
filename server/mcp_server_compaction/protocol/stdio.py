"""JSON-RPC messages from standard input: each is read, or refused with the reason.

The SDK ignores a line that it cannot read. The host would then wait until its own timeout, on every
turn, because the broken text stays in its conversation. The SDK still writes to standard output and
reserves it for the protocol. The log of the process goes to standard error.
"""

import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream
from context_compaction import JsonObject, decode_json, is_object
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

_logger = logging.getLogger(__name__)

_ID = re.compile(r'"id"\s{0,9}:\s{0,9}(?:"([^"\\]{0,200})"|(-?[0-9]{1,18})(?![0-9.eE]))')
_END_CHARS = 400  # at each end of an unreadable message, where its ID is searched
_NO_MESSAGE = (
    'is no JSON-RPC message. It needs "jsonrpc": "2.0", a "method" that is a string, and "params", '
    "if any, that are an object"
)
_TOO_DEEP = "is nested more than 200 levels deep. Send deeply nested data as a string"
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why data is no valid message.

    Attributes:
        problem: The reason, as the predicate of a sentence.
        code: Error code of JSON-RPC.
        request_id: ID of the request. None if it is unknown.
        is_request: Whether the sender waits for a response. False for notifications and responses.
    """

    problem: str
    code: int = types.INVALID_REQUEST
    request_id: types.RequestId | None = None
    is_request: bool = True

    @property
    def error(self) -> types.JSONRPCError:
        """The response to the sender."""
        error = types.ErrorData(
            code=self.code, message=f"The message {self.problem}. Nothing was done."
        )
        return types.JSONRPCError(jsonrpc="2.0", id=self.request_id, error=error)


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[Streams]:
    """Yield the messages of standard input, and a stream for messages to standard output.

    A process may use this only once at a time.
    """
    sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    # closefd=False, because a thread may still wait for a line when the server ends.
    file = os.fdopen(sys.stdin.fileno(), "rb", closefd=False)

    async def read() -> None:
        async with sender:
            while line := await to_thread.run_sync(file.readline, abandon_on_cancel=True):
                message = parse_frame(line)
                if isinstance(message, Refusal):
                    _logger.warning("A line of standard input %s.", message.problem)
                    if message.is_request:
                        await output.send(SessionMessage(message.error))
                elif message is not None:
                    await sender.send(SessionMessage(message))

    # The SDK gets an empty input, so that it only writes.
    empty_input = anyio.wrap_file(io.StringIO())
    async with (
        stdio_server(stdin=empty_input) as (unused, output),
        unused,
        receiver,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read)
        yield receiver, output
        tasks.cancel_scope.cancel()


def parse_frame(line: bytes) -> types.JSONRPCMessage | Refusal | None:
    """Return the message on a line, or why the line is no message. None for an empty line."""
    if not line.strip():
        return None
    value = read_message(line)
    if isinstance(value, Refusal):
        return value
    try:
        return types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        return _no_message(value)


def read_message(data: bytes) -> JsonObject | Refusal:
    """Return the JSON object of a message, or why it is no message.

    Lone surrogates become U+FFFD, because no later step can send them. A number with more digits
    than Python reads becomes a string.
    """
    try:
        value: Any = from_json(data)
    except ValueError:
        text = data.decode("utf-8", "replace")
        try:
            value = from_json(_readable(text))
        except (ValueError, RecursionError) as error:
            is_too_deep = "recursion" in str(error)
            problem = _TOO_DEEP if is_too_deep else f"is not valid JSON: {error}"
            return Refusal(problem, types.PARSE_ERROR, id_in(text))
    if not is_object(value):
        return Refusal("is no JSON object. Send one message at a time")
    # The SDK would treat a request with an invalid ID as a notification.
    if "method" in value and "id" in value and not _is_id(value["id"]):
        return Refusal("has an id that is neither a string nor an integer")
    params = value.get("params")
    is_call = isinstance(value.get("method"), str) and (params is None or is_object(params))
    is_response = is_object(value.get("result")) or is_object(value.get("error"))
    if value.get("jsonrpc") != "2.0" or not (is_call or is_response):
        return _no_message(value)
    return value


def _no_message(value: JsonObject) -> Refusal:
    is_request = "id" in value and not {"result", "error"} & value.keys()
    request_id: Any = value.get("id")
    return Refusal(
        _NO_MESSAGE, request_id=request_id if _is_id(request_id) else None, is_request=is_request
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _readable(text: str) -> str:
    """Return JSON with lone surrogates replaced, and numbers that are too long as strings.

    A host writes lone surrogates if it cuts within an emoji.
    """
    unescaped = json.dumps(decode_json(text), ensure_ascii=False)
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def answered_id(text: str) -> types.RequestId | None:
    """Return the ID of the request that a line answers. The line need not be valid JSON."""
    is_response = '"jsonrpc"' in text and re.search(r'"(?:result|error)"\s{0,9}:', text) is not None
    return id_in(text) if is_response else None


def id_in(text: str) -> types.RequestId | None:
    """Return the ID of an unreadable request, from before its parameters or from its end."""
    match = _ID.search(text.partition('"params"')[0][:_END_CHARS])
    if match is None:
        match = next(iter([*_ID.finditer(text[-_END_CHARS:])][::-1]), None)
    if match is None:
        return None
    name, number = match.groups()
    return name if number is None else int(number)


class _RepeatFilter(logging.Filter):
    """A filter that passes a limited number of messages of each kind in a minute.

    Hosts store standard error, and repeated failures of one caller must not fill the disk.
    """

    def __init__(self, limit: int = 20, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._limit = limit
        self._clock = clock
        self._counts: dict[tuple[str, str], int] = {}
        self._reset_time = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write `record`. The last record before the limit says so."""
        if self._clock() >= self._reset_time:
            self._counts.clear()
            self._reset_time = self._clock() + 60.0  # a minute
        kind = (record.name, str(record.msg)[:80])
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count == self._limit:
            record.msg = f"{record.getMessage()} (similar messages are omitted for a minute)"
            record.args = None
            record.exc_info = None
        return count <= self._limit


def log_to_stderr() -> None:
    """Write warnings to standard error, with a limit for each kind of message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    handler.addFilter(_RepeatFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
