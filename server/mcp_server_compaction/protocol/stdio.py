"""The frames of standard input: each is a message, or is answered with what is wrong with it.

The SDK passes over a line that it cannot read without a word, and the host waits for its own time
limit, on every turn, since what broke the line stays in its conversation. Writing, and keeping
standard output for the protocol alone, is left to the SDK.
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
from context_compaction.messages.model import JsonObject, is_list, is_object
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

# A conversation of ten million tokens is some 50 MB. What is longer is read past, not kept.
MAX_FRAME_BYTES = 256 * 1024 * 1024

_logger = logging.getLogger(__name__)

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
# One escape of a JSON string at a time, so that a backslash that is escaped itself begins none.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_ID = re.compile(r'"id"\s{0,9}:\s{0,9}("[^"\\]{0,200}"|-?[0-9]{1,18}(?![0-9.eE]))')
ODD_ID = "has an id that is neither a string nor an integer"
TOO_DEEP = "nests more than 200 levels deep: give what nests so deep as a string"
_TAIL_CHARS = 400  # an id that stands behind the parameters is looked for in so much of the end


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that is no message.

    Attributes:
        problem: What is wrong with it.
        answer: What to send back; None where nobody waits for an answer.
    """

    problem: str
    answer: JSONRPCError | None


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
                    if found.answer is not None:
                        await wire.send(SessionMessage(found.answer))
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
    """The message on a line, or why it is none; None where the line is empty.

    Halves of surrogate pairs, which hosts write when they cut a text within an emoji, become
    U+FFFD: no later step could pass them on.
    """
    if not line.strip():
        return None
    if len(line) >= MAX_FRAME_BYTES:
        problem = f"has more than {MAX_FRAME_BYTES} bytes: send less at a time"
        head = line[:_TAIL_CHARS].decode("utf-8", "replace")
        return _refusal(INVALID_REQUEST, problem, id_in(head))
    try:
        message = _message(line)
    except ValueError:
        text = without_halves(line.decode("utf-8", "replace"))
        try:
            message = _message(text)
        except ValueError as error:
            return _explain(text, error)
    # The SDK takes a request with such an id for a notification.
    seems_odd = isinstance(message, JSONRPCNotification) and b'"id"' in line
    if seems_odd and has_odd_id(json.loads(line.decode("utf-8", "replace"))):
        return _refusal(INVALID_REQUEST, ODD_ID, None)
    return message


def _message(line: bytes | str) -> JSONRPCMessage:
    """What a line holds. A long list is made once, then only looked at.

    Raises:
        ValueError: It is no JSON, or no message; pydantic's own error in the second case.
    """
    return jsonrpc_message_adapter.validate_python(from_json(line), by_name=False)


def without_halves(text: str) -> str:
    """JSON of the same length with U+FFFD for the escapes of halves of surrogate pairs."""
    return _ESCAPE.sub(_without_half, text) if _HALF.search(text) else text


def _without_half(escape: re.Match[str]) -> str:
    return "\\ufffd" if escape["half"] else escape[0]


def has_odd_id(message: JsonObject) -> bool:
    """Whether a message names an id that cannot be used; without any it is a notification."""
    found = message.get("id")
    return "id" in message and (not isinstance(found, str | int) or isinstance(found, bool))


def is_too_deep(error: ValueError) -> bool:
    """Whether pydantic's parser refuses a text for its depth."""
    return "recursion limit" in str(error)


def _explain(text: str, error: ValueError) -> Refusal:
    """Why a line is no message, with the id to answer under as far as it can be found."""
    if not isinstance(error, ValidationError):
        problem = TOO_DEEP if is_too_deep(error) else f"is not JSON that can be read: {error}"
        return _refusal(PARSE_ERROR, problem, id_in(text))
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _refusal(PARSE_ERROR, "is not JSON that can be read", id_in(text))
    problem = why_no_message(value)
    if not is_object(value):
        return _refusal(INVALID_REQUEST, problem, None)
    refusal = _refusal(INVALID_REQUEST, problem, id_of(value))
    # Nobody waits for an answer to a notification, and an answer is never answered.
    is_request = "id" in value and not {"result", "error"} & value.keys()
    return refusal if is_request else Refusal(problem, None)


def _refusal(code: int, problem: str, request_id: RequestId | None) -> Refusal:
    error = ErrorData(code=code, message=f"The line {problem}. Nothing was done.")
    return Refusal(problem, JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def why_no_message(value: object) -> str:
    """What is wrong with a JSON value that is no message."""
    if is_list(value):
        return "is a list: send one message at a time"
    if not is_object(value):
        return "is no JSON object"
    return (
        'is no JSON-RPC message: it needs "jsonrpc": "2.0", a method that is a string, and '
        "params, if any, that are an object"
    )


def id_of(value: object) -> RequestId | None:
    """The id to answer what was sent under; None where it names none that can be used."""
    return value.get("id") if is_object(value) and not has_odd_id(value) else None


def answered_id(text: str) -> RequestId | None:
    """The id of the request that a line answers, which need not be JSON; None of any other line."""
    is_answer = '"jsonrpc"' in text and re.search(r'"(?:result|error)"\s{0,9}:', text) is not None
    return id_in(text) if is_answer else None


def id_in(text: str) -> RequestId | None:
    """The id of a request that cannot be read: before its parameters, or else at its end."""
    head = text[: text.find('"params"')] if '"params"' in text else text
    found = _ID.search(head[:_TAIL_CHARS])
    if found is None:
        found = next(iter([*_ID.finditer(text[-_TAIL_CHARS:])][::-1]), None)
    if found is None:
        return None
    return found[1][1:-1] if found[1].startswith('"') else int(found[1])
