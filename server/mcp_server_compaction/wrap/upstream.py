"""One wrapped server: its handshake, its open requests, and its restart when it ends."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import anyio
from context_compaction import JsonObject, is_object
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_server_compaction.wrap.connection import connect, parsed
from mcp_server_compaction.wrap.servers import WrappedServer

Answer: TypeAlias = JSONRPCResponse | JSONRPCError

_HANDSHAKE_ID = "compaction-initialize"
# Messages that can wait for a server that does not read its input.
_QUEUED_MESSAGES = 1_000
# The time before a restart doubles, unless the server ran for the longest of these times.
_RESTART_SECONDS = 0.5
_MAX_RESTART_SECONDS = 60.0
# Error text of the SDK when a server at an address does not know the session any more.
_SESSION_ENDED = "Session terminated"
_logger = logging.getLogger(__name__)


class Reply:
    """The answer to one request, which arrives later. The first answer counts."""

    def __init__(self) -> None:
        self._arrived = anyio.Event()
        self._answer: Answer | None = None

    @property
    def has_arrived(self) -> bool:
        """Whether `get` returns at once."""
        return self._arrived.is_set()

    def put(self, answer: Answer | None) -> None:
        """Set the answer; None if the request was cancelled."""
        if not self.has_arrived:
            self._answer = answer
            self._arrived.set()

    async def get(self) -> Answer | None:
        """Wait for the answer; None if the request was cancelled."""
        await self._arrived.wait()
        return self._answer


class Upstream:
    """Connection to one wrapped server, which is made again whenever it ends.

    Args:
        server: The server.
        on_message: Takes requests and notifications of the server.
        on_return: Called when the server answers its handshake late, or again after a restart.

    Attributes:
        server: The server.
        hello: The server's answer to the host's `initialize`.
        capabilities: The server's capabilities; None before the handshake.
        tools: The listed tools by their own names.
    """

    def __init__(
        self,
        server: WrappedServer,
        on_message: Callable[["Upstream", JSONRPCMessage], Awaitable[None]],
        on_return: Callable[[], Awaitable[None]],
    ) -> None:
        self.server = server
        self.hello = Reply()
        self.capabilities: JsonObject | None = None
        self.tools: dict[str, JsonObject] = {}
        self._on_message = on_message
        self._on_return = on_return
        self._host_params: JsonObject | None = None
        self._version: str | None = None
        self._waiting: dict[RequestId, Reply] = {}
        self._problem = ""
        self._outbox, self._queued = anyio.create_memory_object_stream[JSONRPCMessage](
            _QUEUED_MESSAGES
        )

    def open(self, host_params: JsonObject) -> None:
        """Start the handshake with the parameters of the host. `hello` has the answer."""
        self._host_params = host_params
        self.hello = Reply()
        if self._problem:
            self.hello.put(_error(_HANDSHAKE_ID, self._problem))
        else:
            self._queue_handshake()

    def post(self, message: JSONRPCMessage) -> Reply:
        """Queue a message for the server. The reply of a request arrives in any case."""
        reply = Reply()
        problem = self._problem
        if isinstance(message, JSONRPCRequest):
            self._waiting[message.id] = reply
        if not problem:
            try:
                self._outbox.send_nowait(message)
            except anyio.WouldBlock:
                problem = f"The {self.server.title} does not read its input. Try again later."
        if problem and isinstance(message, JSONRPCRequest):
            self._settle(_error(message.id, problem))
        return reply

    def cancel(self, request_id: RequestId) -> bool:
        """Forget an open request, and return whether it was open."""
        reply = self._waiting.pop(request_id, None)
        if reply is not None:
            reply.put(None)
        return reply is not None

    async def run(self) -> None:
        """Connect to the server, and connect again whenever the connection ends."""
        delay = 0.0
        with self._outbox, self._queued:
            while True:
                started = anyio.current_time()
                try:
                    async with connect(self.server) as (incoming, outgoing):
                        problem = await self._exchange(incoming, outgoing)
                except OSError as error:
                    problem = str(error)
                is_stable = anyio.current_time() - started > _MAX_RESTART_SECONDS
                delay = 0.0 if is_stable else delay
                delay = min(max(2 * delay, _RESTART_SECONDS), _MAX_RESTART_SECONDS)
                title = self.server.title
                await self._fail(f"The {title} {problem}. Next attempt in {delay:g} s.")
                await anyio.sleep(delay)
                self._problem = ""

    async def _exchange(self, incoming: Any, outgoing: Any) -> str:
        """Pass messages until the connection ends, and return why it ended."""
        problems: list[str] = []

        async def run(passing: Callable[[Any], Awaitable[str]], stream: Any) -> None:
            problems.append(await passing(stream))
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, self._read, incoming)
            tasks.start_soon(run, self._write, outgoing)
        return problems[0]

    async def _read(self, incoming: Any) -> str:
        async for item in incoming:
            message = await parsed(item)
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._settle(message)
                if isinstance(message, JSONRPCError) and message.error.message == _SESSION_ENDED:
                    return "ended the session"
            elif message is not None:
                await self._on_message(self, message)
        return "ended"

    async def _write(self, outgoing: Any) -> str:
        async for message in self._queued:
            if getattr(message, "id", None) != _HANDSHAKE_ID:
                await outgoing.send(SessionMessage(message, self._metadata(message)))
                continue
            answer = await self._shake_hands(message, outgoing)
            if not isinstance(answer, JSONRPCResponse):
                return f"refused the connection ({answer and answer.error.message})"
            if self.hello.has_arrived:
                await self._on_return()
            self.hello.put(answer)
        return "ended"

    def _queue_handshake(self) -> None:
        params = self._host_params
        request = JSONRPCRequest(
            jsonrpc="2.0", id=_HANDSHAKE_ID, method="initialize", params=params
        )
        self._outbox.send_nowait(request)

    async def _shake_hands(self, request: JSONRPCMessage, outgoing: Any) -> Answer | None:
        reply = self._waiting[_HANDSHAKE_ID] = Reply()
        self._version = None
        await outgoing.send(SessionMessage(request, self._metadata(request)))
        answer = await reply.get()
        if isinstance(answer, JSONRPCResponse):
            self._version = answer.result.get("protocolVersion")
            self.capabilities = answer.result.get("capabilities") or {}
            done = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
            await outgoing.send(SessionMessage(done, self._metadata(done)))
        return answer

    async def _fail(self, problem: str) -> None:
        """Answer all open requests with an error, and report the problem to the host."""
        _logger.warning("%s", problem)
        self._problem = problem
        with suppress(anyio.WouldBlock):
            while True:
                self._queued.receive_nowait()
        for request_id in [*self._waiting]:
            self._settle(_error(request_id, f"{problem} Then try again."))
        self.hello.put(_error(_HANDSHAKE_ID, problem))
        if self._host_params is not None:
            self._queue_handshake()
        params = {"level": "error", "logger": "mcp-server-compaction", "data": problem}
        note = JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)
        await self._on_message(self, note)

    def _settle(self, answer: Answer) -> None:
        reply = self._waiting.pop(answer.id, None) if answer.id is not None else None
        if reply is not None:
            reply.put(answer)

    def _metadata(self, message: JSONRPCMessage) -> ClientMessageMetadata:
        """Return the headers that Streamable HTTP requires. A local process gets none of them."""
        params: JsonObject = getattr(message, "params", None) or {}
        version = protocol_version(params) or self._version
        headers = {MCP_PROTOCOL_VERSION_HEADER: version} if version else {}
        if version in MODERN_PROTOCOL_VERSIONS and isinstance(message, JSONRPCRequest):
            headers[MCP_METHOD_HEADER] = message.method
            name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
            tool = self.tools.get(str(params.get("name")))
            if message.method == "tools/call" and tool:
                declared = x_mcp_header_map(tool.get("inputSchema"))
                headers |= mcp_param_headers(declared, params.get("arguments") or {})
        return ClientMessageMetadata(headers=headers)


def protocol_version(params: Mapping[str, Any]) -> str | None:
    """Return the MCP version that a request names; None before 2026-07-28."""
    meta = params.get("_meta")
    return meta.get(PROTOCOL_VERSION_META_KEY) if is_object(meta) else None


def _error(request_id: RequestId, problem: str) -> JSONRPCError:
    error = ErrorData(code=INTERNAL_ERROR, message=problem)
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
