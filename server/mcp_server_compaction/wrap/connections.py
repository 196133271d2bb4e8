"""Both ends of the proxy: the host, and wrapped servers over stdio or Streamable HTTP.

Messages of all servers go to the host, but no flood blocks it. A server that ends is started again.
"""

import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, cast

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ObjectReceiveStream, ObjectSendStream, Process
from anyio.streams.memory import MemoryObjectSendStream
from context_compaction import JsonObject, is_object
from context_compaction.system import IS_WINDOWS, find_program
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import create_windows_process, terminate_windows_process_tree
from mcp.shared import inbound
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_server_compaction.protocol.stdio import Refusal, answered_id, parse_frame
from mcp_server_compaction.wrap.servers import WrappedServer

_CONNECT_SECONDS = 30.0
# Time for a program to end, and again after SIGTERM.
_END_SECONDS = 2.0
_CHUNK_BYTES = 1024 * 1024
# Passes the method and the parameters of a notification on.
Notify: TypeAlias = Callable[[str, Mapping[str, Any] | None], Awaitable[None]]
_DROPPABLE = frozenset({"notifications/message", "notifications/progress"})
_logger = logging.getLogger(__name__)
# The time before a restart doubles, unless the server ran for the longest of these times.
_RESTART_SECONDS = 0.5
_MAX_RESTART_SECONDS = 60.0
# A request waits this long to learn why the connection has ended.
_PROBLEM_SECONDS = 10.0
# Error of the SDK for a request whose connection ends. Servers use the same code for other errors.
_CLOSED = (types.CONNECTION_CLOSED, "Connection closed")


async def parsed(item: Any) -> types.JSONRPCMessage | None:
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
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=problem)
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


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
                case types.JSONRPCNotification(method=method) if (
                    method != "notifications/cancelled"
                ):
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


class Host(ObjectSendStream[SessionMessage]):
    """The host of all servers, and the queue of messages to it.

    If the queue is full, log and progress messages are dropped.

    Args:
        incoming: Messages of the host.
        queue: Queue of messages to the host.

    Attributes:
        dispatcher: Pairs requests and responses in both directions.
        is_initialized: Whether the host has finished its handshake.
    """

    def __init__(
        self, incoming: ObjectReceiveStream[Any], queue: MemoryObjectSendStream[SessionMessage]
    ) -> None:
        self.dispatcher = JSONRPCDispatcher(incoming, self)
        self.is_initialized = False
        self._queue = queue
        self._dropped_count = 0

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Queue a notification, or drop it if the queue is full and it may be dropped.

        Nothing happens if the host has disconnected.
        """
        item = _notification(method, params)
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            if method not in _DROPPABLE:
                await self.send(item)
                return
            try:
                self._queue.send_nowait(item)
            except anyio.WouldBlock:
                self._dropped_count += 1

    async def send(self, item: SessionMessage) -> None:
        """Queue a message, after a warning if other messages were dropped."""
        if self._dropped_count:
            text = (
                f"Dropped {self._dropped_count} log and progress messages of the wrapped server, "
                "because the host did not read them fast enough."
            )
            self._dropped_count = 0
            _logger.warning(text)
            await self._queue.send(log_message("warning", text))
        await self._queue.send(item)

    async def aclose(self) -> None:
        """Close the queue. Its reader still gets the queued messages."""
        await self._queue.aclose()

    async def ask(self, _: object, method: str, params: Mapping[str, Any] | None) -> JsonObject:
        """Pass a server's request to the host, and return the result."""
        return await self.dispatcher.send_raw_request(method, params)

    async def ignore(self, _: object, method: str, params: Mapping[str, Any] | None) -> None:
        """Do nothing with a server's cancellation, because `ask` notices it."""

    async def announce(self) -> None:
        """Tell the host that all lists may have changed, because a server is there or back."""
        for name in ("tools", "prompts", "resources") if self.is_initialized else ():
            await self.dispatcher.notify(f"notifications/{name}/list_changed", None)


def log_message(level: str, text: str) -> SessionMessage:
    """Return a log message of the proxy for the host."""
    params = {"level": level, "logger": "mcp-server-compaction", "data": text}
    return _notification("notifications/message", params)


def _notification(method: str, params: Mapping[str, Any] | None) -> SessionMessage:
    fields = {} if params is None else {"params": dict(params)}
    return SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method=method, **fields))


class Upstream:
    """Connection to one wrapped server, which is made again whenever it ends.

    Args:
        server: The server.
        host: Takes requests and notifications of the server.

    Attributes:
        server: The server.
        tools: The listed tools by their own names.
    """

    def __init__(self, server: WrappedServer, host: Host) -> None:
        self.server = server
        self.tools: dict[str, JsonObject] = {}
        self._host = host
        self._host_params: JsonObject | None = None
        self._is_opened = anyio.Event()
        self._hello: JsonObject | None = None
        # The present connection, or why there is none. An event tells that either has changed.
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._problem = ""
        self._changed = anyio.Event()

    @property
    def capabilities(self) -> JsonObject | None:
        """The server's capabilities; None before the handshake."""
        return None if self._hello is None else self._hello.get("capabilities") or {}

    async def hello(self, host_params: JsonObject) -> JsonObject:
        """Return the server's answer to the host's `initialize`.

        Raises:
            MCPError: The server cannot be reached, or it refuses the connection.
        """
        self._host_params = host_params
        self._is_opened.set()
        while self._hello is None and not self._problem:
            await self._changed.wait()
        if self._hello is None:
            raise MCPError(types.INTERNAL_ERROR, self._problem)
        return self._hello

    async def request(
        self, method: str, params: JsonObject, request_id: types.RequestId
    ) -> JsonObject:
        """Send a request when the server is there, and return its result.

        Raises:
            MCPError: The server returned an error, or the connection ended.
        """
        while self._dispatcher is None and not self._problem:
            await self._changed.wait()
        dispatcher = self._dispatcher
        if dispatcher is None:
            raise MCPError(types.INTERNAL_ERROR, self._problem)
        options: CallOptions = {"request_id": request_id}
        options["headers"] = self._headers(method, params)
        try:
            return await dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            if (error.code, error.message) != _CLOSED:
                raise
            with anyio.move_on_after(_PROBLEM_SECONDS):
                while self._dispatcher is dispatcher or not self._problem:
                    await self._changed.wait()
            raise MCPError(error.code, self._problem or error.message, error.data) from error

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification if the server is there."""
        if self._dispatcher is not None:
            options: CallOptions = {"headers": self._headers(method, params or {})}
            await self._dispatcher.notify(method, params, options)

    async def run(self) -> None:
        """Connect to the server, and connect again whenever the connection ends."""
        delay = 0.0
        while True:
            started = anyio.current_time()
            try:
                async with connect(self.server, self._host.notify) as (incoming, outgoing):
                    problem = await self._exchange(incoming, outgoing)
            except OSError as error:
                problem = str(error)
            is_stable = anyio.current_time() - started > _MAX_RESTART_SECONDS
            delay = 0.0 if is_stable else delay
            delay = min(max(2 * delay, _RESTART_SECONDS), _MAX_RESTART_SECONDS)
            text = f"The {self.server.title} {problem}. Next attempt in {delay:g} s."
            _logger.warning("%s", text)
            self._set(None, f"{text} Then try again.")
            self._hello = None
            await self._host.send(log_message("error", text))
            await anyio.sleep(delay)
            self._set(None, "")

    def _set(self, dispatcher: JSONRPCDispatcher[Any] | None, problem: str) -> None:
        self._dispatcher, self._problem = dispatcher, problem
        self._changed.set()
        self._changed = anyio.Event()

    async def _exchange(self, incoming: ObjectReceiveStream[Any], outgoing: Any) -> str:
        """Pass messages until the connection ends, and return why it ended."""
        dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(incoming, outgoing)
        host, problem = self._host, "ended"

        async def run(*, task_status: Any) -> None:
            await dispatcher.run(host.ask, host.ignore, task_status=task_status)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            await tasks.start(run)
            if self._host_params is None:  # a host with a modern version sends no handshake
                self._set(dispatcher, "")
                await self._is_opened.wait()
            try:
                await self._shake_hands(dispatcher)
            except MCPError as error:
                if error.code != types.CONNECTION_CLOSED:
                    problem = f"refused the connection ({error.message})"
                tasks.cancel_scope.cancel()
        return problem

    async def _shake_hands(self, dispatcher: JSONRPCDispatcher[Any]) -> None:
        params = self._host_params or {}
        options: CallOptions = {"request_id": "compaction-initialize"}
        options["headers"] = self._headers("initialize", {})
        self._hello = await dispatcher.send_raw_request("initialize", params, options)
        options = {"headers": self._headers("notifications/initialized", {})}
        await dispatcher.notify("notifications/initialized", None, options)
        self._set(dispatcher, "")
        await self._host.announce()

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that Streamable HTTP requires. A local process gets none of them."""
        version = protocol_version(params) or (self._hello or {}).get("protocolVersion")
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: version} if version else {}
        if version in MODERN_PROTOCOL_VERSIONS and not method.startswith("notifications/"):
            headers[inbound.MCP_METHOD_HEADER] = method
            name = params.get(inbound.NAME_BEARING_METHODS.get(method, ""))
            if isinstance(name, str):
                headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(name)
            tool = self.tools.get(str(params.get("name")))
            if method == "tools/call" and tool:
                declared = inbound.x_mcp_header_map(tool.get("inputSchema"))
                headers |= inbound.mcp_param_headers(declared, params.get("arguments") or {})
        return headers


def protocol_version(params: Mapping[str, Any]) -> str | None:
    """Return the MCP version that a request names; None before 2026-07-28."""
    meta = params.get("_meta")
    return meta.get(types.PROTOCOL_VERSION_META_KEY) if is_object(meta) else None
