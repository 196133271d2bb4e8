"""One wrapped server: its handshake, its requests, and its restart when it ends."""

import logging
from collections.abc import Mapping
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream
from context_compaction import JsonObject, is_object
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY, RequestId
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_server_compaction.wrap.connection import connect
from mcp_server_compaction.wrap.host import Host, log_message
from mcp_server_compaction.wrap.servers import WrappedServer

# The time before a restart doubles, unless the server ran for the longest of these times.
_RESTART_SECONDS = 0.5
_MAX_RESTART_SECONDS = 60.0
# A request waits this long to learn why the connection has ended.
_PROBLEM_SECONDS = 10.0
# Error of the SDK for a request whose connection ends. Servers use the same code for other errors.
_CLOSED = (CONNECTION_CLOSED, "Connection closed")
_logger = logging.getLogger(__name__)


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
            raise MCPError(INTERNAL_ERROR, self._problem)
        return self._hello

    async def request(self, method: str, params: JsonObject, request_id: RequestId) -> JsonObject:
        """Send a request when the server is there, and return its result.

        Raises:
            MCPError: The server returned an error, or the connection ended.
        """
        while self._dispatcher is None and not self._problem:
            await self._changed.wait()
        dispatcher = self._dispatcher
        if dispatcher is None:
            raise MCPError(INTERNAL_ERROR, self._problem)
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
                if error.code != CONNECTION_CLOSED:
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
        headers = {MCP_PROTOCOL_VERSION_HEADER: version} if version else {}
        if version in MODERN_PROTOCOL_VERSIONS and not method.startswith("notifications/"):
            headers[MCP_METHOD_HEADER] = method
            name = params.get(NAME_BEARING_METHODS.get(method, ""))
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
            tool = self.tools.get(str(params.get("name")))
            if method == "tools/call" and tool:
                declared = x_mcp_header_map(tool.get("inputSchema"))
                headers |= mcp_param_headers(declared, params.get("arguments") or {})
        return headers


def protocol_version(params: Mapping[str, Any]) -> str | None:
    """Return the MCP version that a request names; None before 2026-07-28."""
    meta = params.get("_meta")
    return meta.get(PROTOCOL_VERSION_META_KEY) if is_object(meta) else None
