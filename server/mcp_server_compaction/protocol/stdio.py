"""JSON-RPC messages from outside: each is read, or answered with what is wrong with it.

The SDK ignores a line of standard input that it cannot read. The host then waits for its own time
limit, on every turn, because what broke the line stays in its conversation. Writing to standard
output is left to the SDK, and so is keeping it for the protocol alone.
"""

import io
import json
import logging
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream
from context_compaction import JsonObject, is_list, is_object
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

# A conversation of ten million tokens is about 50 MB. The rest of a longer line is not kept.
MAX_FRAME_BYTES = 256 * 1024 * 1024

_logger = logging.getLogger(__name__)

_ID = re.compile(r'"id"\s{0,9}:\s{0,9}(?:"([^"\\]{0,200})"|(-?[0-9]{1,18})(?![0-9.eE]))')
_END_CHARS = 400  # where the id of a message that cannot be read is looked for
_NO_MESSAGE = (
    'is no JSON-RPC message: it needs "jsonrpc": "2.0", a method that is a string, and params, if '
    "any, that are an object"
)
_TOO_DEEP = "nests more than 200 levels deep: give what nests so deep as a string"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is wrong with something that is no message.

    Attributes:
        problem: What is wrong.
        code: The error code of JSON-RPC.
        request_id: The id to answer, if there is one.
        is_request: Whether an answer is expected: none follows a notification or an answer.
    """

    problem: str
    code: int = INVALID_REQUEST
    request_id: RequestId | None = None
    is_request: bool = True

    @property
    def error(self) -> JSONRPCError:
        """The answer."""
        said = ErrorData(code=self.code, message=f"The message {self.problem}. Nothing was done.")
        return JSONRPCError(jsonrpc="2.0", id=self.request_id, error=said)


Streams: TypeAlias = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Any]


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[Streams]:
    """The messages of standard input, and where messages for standard output go.

    Once at a time in a process.
    """
    sender, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    # closefd=False: a thread may still wait for a line when the server has ended.
    lines = os.fdopen(sys.stdin.fileno(), "rb", closefd=False)

    async def read() -> None:
        async with sender:
            while line := await to_thread.run_sync(_read_line, lines, abandon_on_cancel=True):
                found = parse_frame(line)
                if isinstance(found, Refusal):
                    _logger.warning("A line of standard input %s.", found.problem)
                    if found.is_request:
                        await wire.send(SessionMessage(found.error))
                elif found is not None:
                    await sender.send(SessionMessage(found))

    # The SDK is given an input that has ended, and only writes.
    ended = anyio.wrap_file(io.StringIO())
    async with (
        stdio_server(stdin=ended) as (nothing, wire),
        nothing,
        received,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(read)
        yield received, wire
        tasks.cancel_scope.cancel()


def _read_line(file: io.BufferedReader) -> bytes:
    """A line with its end, cut at `MAX_FRAME_BYTES`; empty where there are no more."""
    line = rest = file.readline(MAX_FRAME_BYTES)
    while len(rest) == MAX_FRAME_BYTES and not rest.endswith(b"\n"):
        rest = file.readline(MAX_FRAME_BYTES)
    return line


def parse_frame(line: bytes) -> JSONRPCMessage | Refusal | None:
    """The message on a line, or why it is none; None where the line is empty."""
    if not line.strip():
        return None
    if len(line) >= MAX_FRAME_BYTES:
        problem = f"has more than {MAX_FRAME_BYTES} bytes: send less at a time"
        return Refusal(problem, request_id=id_in(line[:_END_CHARS].decode("utf-8", "replace")))
    value = read_message(line)
    if isinstance(value, Refusal):
        return value
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        return _no_message(value)


def read_message(data: bytes) -> JsonObject | Refusal:
    """The object of one message in JSON, or why it is none.

    Halves of surrogate pairs become U+FFFD: no later step could pass them on.
    """
    try:
        value: Any = from_json(data)
    except ValueError:
        text = data.decode("utf-8", "replace")
        try:
            value = from_json(_without_halves(text))
        except (ValueError, RecursionError) as error:
            is_too_deep = "recursion" in str(error)
            problem = _TOO_DEEP if is_too_deep else f"is not JSON that can be read: {error}"
            return Refusal(problem, PARSE_ERROR, id_in(text))
    if is_list(value):
        return Refusal("is a list: send one message at a time")
    if not is_object(value):
        return Refusal("is no JSON object")
    # The SDK takes a request with such an id for a notification.
    if "method" in value and "id" in value and not _is_id(value["id"]):
        return Refusal("has an id that is neither a string nor an integer")
    params = value.get("params")
    is_call = isinstance(value.get("method"), str) and (params is None or is_object(params))
    is_answer = is_object(value.get("result")) or is_object(value.get("error"))
    if value.get("jsonrpc") != "2.0" or not (is_call or is_answer):
        return _no_message(value)
    return value


def _no_message(value: JsonObject) -> Refusal:
    is_request = "id" in value and not {"result", "error"} & value.keys()
    request_id: Any = value.get("id")
    return Refusal(
        _NO_MESSAGE,
        request_id=request_id if _is_id(request_id) else None,
        is_request=is_request,
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _without_halves(text: str) -> str:
    """JSON that hosts wrote half of a surrogate pair in, as where a text is cut within an emoji."""
    if "\\u" not in text:
        return text
    written = json.dumps(json.loads(text), ensure_ascii=False)
    return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def answered_id(text: str) -> RequestId | None:
    """The id of the request that a line answers, which need not be JSON; None of any other line."""
    is_answer = '"jsonrpc"' in text and re.search(r'"(?:result|error)"\s{0,9}:', text) is not None
    return id_in(text) if is_answer else None


def id_in(text: str) -> RequestId | None:
    """The id of a request that cannot be read: before its parameters, or else at its end."""
    found = _ID.search(text.partition('"params"')[0][:_END_CHARS])
    if found is None:
        found = next(iter([*_ID.finditer(text[-_END_CHARS:])][::-1]), None)
    if found is None:
        return None
    name, number = found.groups()
    return name if number is None else int(number)
