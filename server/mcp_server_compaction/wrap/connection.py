"""Connections to wrapped servers: programs over stdio, and addresses over Streamable HTTP."""

import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, cast

import anyio
import anyio.lowlevel
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ObjectReceiveStream, ObjectSendStream, Process
from context_compaction.system import IS_WINDOWS, find_program
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import create_windows_process, terminate_windows_process_tree
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCNotification
from pydantic import ValidationError

from mcp_server_compaction.protocol.stdio import Refusal, answered_id, parse_frame
from mcp_server_compaction.wrap.servers import WrappedServer

_CONNECT_SECONDS = 30.0
# Time for a program to end, and again after SIGTERM.
_END_SECONDS = 2.0
_CHUNK_BYTES = 1024 * 1024
# Passes the method and the parameters of a notification on.
Notify: TypeAlias = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]


async def parsed(item: Any) -> JSONRPCMessage | None:
    """Parse a line, or a message that the SDK could not parse; None if it is not a message.

    A text that was cut inside an emoji has half of a surrogate pair, which most hosts accept. A
    response that cannot be parsed at all becomes an error, because the caller waits for it.
    """
    if isinstance(item, SessionMessage):
        return item.message
    if isinstance(item, bytes):
        line = item
    elif isinstance(item, ValidationError):
        value: Any = item.errors(include_url=False)[0]["input"]
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        line = text.encode("utf-8", "replace")
    else:
        return None
    # In a thread, because parsing 60 MB takes a third of a second.
    is_long = len(line) > _CHUNK_BYTES
    frame = await to_thread.run_sync(parse_frame, line) if is_long else parse_frame(line)
    if not isinstance(frame, Refusal):
        return frame
    request_id = answered_id(line.decode("utf-8", "replace"))
    if request_id is None:
        return None  # for example a line of a log
    problem = f"The response of the wrapped server {frame.problem}."
    error = ErrorData(code=INTERNAL_ERROR, message=problem)
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


@asynccontextmanager
async def connect(server: WrappedServer, notify: Notify) -> AsyncGenerator[Any]:
    """Connect to a server, and yield a stream of its messages and a stream of messages to it.

    Args:
        server: The server.
        notify: Receives the notifications of the server. The next message is read afterwards.

    Raises:
        OSError: The program cannot be started, or the address cannot be reached any more.
    """
    if server.url is None:
        async with _program(server) as process:
            yield Messages(_lines(process.stdout), notify), _Input(process)
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    # Reading has no timeout, because the host has its own limits for slow tools.
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)
    hooks = {"response": [_check_session]}
    try:
        async with (
            httpx2.AsyncClient(
                headers=dict(server.headers), timeout=timeout, event_hooks=hooks
            ) as client,
            # Events have no size limit, because the proxy is for large results.
            streamable_http_client(server.url, http_client=client, max_sse_event_size=None) as pair,
        ):
            incoming, outgoing = pair
            yield Messages(aiter(incoming), notify), outgoing
    except ExceptionGroup as group:
        failures, others = group.split(httpx2.HTTPError)
        if others is not None or failures is None:
            raise
        raise OSError(f"cannot be reached at {server.url}") from group


async def _check_session(response: Any) -> None:
    """End the connection if the server was started again and does not know the session any more."""
    if response.status_code == 404 and "mcp-session-id" in response.request.headers:
        response.raise_for_status()


@asynccontextmanager
async def _program(server: WrappedServer) -> AsyncGenerator[Process]:
    """Start the wrapped server, and stop it at the end of the block.

    The SDK's `stdio_client` is not used, because its time grows with the square of a line's length.
    """
    name, *arguments = server.command
    try:
        environment = {**os.environ, **server.env}
        if IS_WINDOWS:  # in a job, so that its children end with it
            program = find_program(name)
            started = await create_windows_process(program, arguments, environment, cwd=server.cwd)
            process = cast("Process", started)
        else:
            process = await anyio.open_process(
                [name, *arguments],
                stderr=sys.stderr,
                cwd=server.cwd,
                env=environment,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise OSError(f"cannot be started with {name!r} ({error})") from error
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: Process) -> None:
    """Close the input of a program, and stop the program if it does not end by itself."""
    if process.stdin is not None:
        await process.stdin.aclose()
    with anyio.move_on_after(_END_SECONDS):
        # The output is read, because a program that waits to write does not notice a closed input.
        async for _ in _lines(process.stdout):
            pass
        await process.wait()
    if process.returncode is None:
        if IS_WINDOWS:
            await terminate_windows_process_tree(process)
        else:
            await terminate_posix_process_tree(process, _END_SECONDS)
    await process.aclose()


async def _lines(output: ByteReceiveStream | None) -> AsyncIterator[bytes]:
    """Yield the lines of a program's output. The parts of a long line are joined only once."""
    parts: list[bytes] = []
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while output is not None:
            first, *others = (await output.receive(_CHUNK_BYTES)).split(b"\n")
            parts.append(first)
            if others:
                yield b"".join(parts)
                for line in others[:-1]:
                    yield line
                parts = others[-1:]


class Messages(ObjectReceiveStream[SessionMessage]):
    """The requests and responses in a server's output. Everything else is skipped.

    Notifications are passed on before the next message is read. If the host does not take them,
    a flood of them therefore waits in its server, and no task or memory is needed for each.

    Args:
        items: The output: lines, or messages of the SDK.
        notify: Receives the notifications.
    """

    def __init__(self, items: AsyncIterator[Any], notify: Notify) -> None:
        self._items = items
        self._notify = notify

    async def receive(self) -> SessionMessage:
        """Return the next message."""
        async for item in self._items:
            await anyio.lowlevel.checkpoint()  # the other servers must not wait for a flood
            message = await parsed(item)
            match message:
                case None:
                    pass
                # The dispatcher needs a cancellation.
                case JSONRPCNotification(method=method) if method != "notifications/cancelled":
                    await self._notify(method, message.params)
                case _:
                    return SessionMessage(message)
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        """Do nothing, because the connection is closed as a whole."""


class _Input(ObjectSendStream[SessionMessage]):
    """Stream of messages to a program."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, item: SessionMessage) -> None:
        """Write one message. Nothing happens if the program has ended; its output shows that."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        if self._process.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await self._process.stdin.send(text.encode() + b"\n")

    async def aclose(self) -> None:
        """Do nothing, because the connection is closed as a whole."""
