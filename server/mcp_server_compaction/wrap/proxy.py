"""Messages between a host and the server behind this one, in both eras of the protocol.

Every message passes as it is, in both directions, but for three: the tool list gains the reading
tool, that tool is answered here, and results of the other tools are demoted if they are large.
Outputs are kept before the result that names them is passed on; if they cannot be kept, the result
passes whole. If the server has a tool with the name of the reading tool, ours has another name.

Log and progress messages are left out if they come faster than the host takes them, because an
answer behind 200,000 of them would come too late. A log message before the next answer counts them.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from context_compaction import Blob, CompactionError, JsonObject, is_list, is_object
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
    PROTOCOL_VERSION_META_KEY,
    CallToolResult,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_server_compaction.protocol.arguments import parse_arguments
from mcp_server_compaction.protocol.deps import Deps
from mcp_server_compaction.protocol.schemas import ReadArguments
from mcp_server_compaction.protocol.tools import tool_definitions
from mcp_server_compaction.protocol.tools.read_persisted_output import read_output
from mcp_server_compaction.protocol.tools.replies import failure
from mcp_server_compaction.wrap.demote import Demotion, demote

READ_TOOL = "read_persisted_output"
# The name of the reading tool before a server that has a tool with that name.
OTHER_READ_TOOL = "compaction_read_persisted_output"
_MAY_BE_LEFT_OUT = frozenset({"notifications/message", "notifications/progress"})
_logger = logging.getLogger(__name__)


class Sender(Protocol):
    """Where messages go."""

    async def send(self, item: SessionMessage, /) -> None:
        """Pass one message on."""
        ...


@dataclass(slots=True)
class Proxy:
    """The state of one connection.

    Attributes:
        host: The queue of messages for the host.
        server: Where messages for the server behind go.
        deps: The archive.
        demotion: How results are demoted.
        session_id: The archive's session that their texts are filed under.
        tasks: Where work runs that other messages need not wait for.
    """

    host: MemoryObjectSendStream[SessionMessage]
    server: Sender
    deps: Deps
    demotion: Demotion
    session_id: str
    tasks: TaskGroup
    # The method, and the tool's name, of each request whose answer is looked at.
    _waiting: dict[RequestId, tuple[str, str]] = field(
        default_factory=dict[RequestId, tuple[str, str]]
    )
    _reads: dict[RequestId, anyio.CancelScope] = field(
        default_factory=dict[RequestId, anyio.CancelScope]
    )
    _tools: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    _version: str | None = None
    _left_out: int = 0  # log and progress messages

    async def from_host(self, message: JSONRPCMessage) -> None:
        """Pass a message of the host on, or answer it here."""
        match message:
            case JSONRPCRequest(method="tools/call", params=dict() as params) if (
                params.get("name") == self._read_tool()
            ):
                self.tasks.start_soon(self._answer_read, message.id, params)
                return
            case JSONRPCRequest(method="tools/list" | "tools/call" | "initialize"):
                name = (message.params or {}).get("name")
                self._waiting[message.id] = message.method, str(name or "")
            case JSONRPCNotification(method="notifications/cancelled", params=dict() as params):
                request_id: Any = params.get("requestId")
                if isinstance(request_id, str | int):
                    self._waiting.pop(request_id, None)
                    if scope := self._reads.get(request_id):
                        scope.cancel()
                        return
            case _:
                pass
        await self.server.send(SessionMessage(message, self._metadata(message)))

    async def from_server(self, message: JSONRPCMessage) -> None:
        """Pass a message of the server on, a large result demoted."""
        if isinstance(message, JSONRPCNotification) and message.method in _MAY_BE_LEFT_OUT:
            try:
                self.host.send_nowait(SessionMessage(message))
            except anyio.WouldBlock:
                self._left_out += 1
            return
        if isinstance(message, JSONRPCError) and message.id is not None:
            self._waiting.pop(message.id, None)
        elif isinstance(message, JSONRPCResponse):
            method, tool_name = self._waiting.pop(message.id, ("", ""))
            if method == "tools/call":
                # Others need not wait while tokens are counted and a text is kept.
                self.tasks.start_soon(self._pass_result, message, tool_name)
                return
            if method == "tools/list":
                message = self._with_reading_tool(message)
            elif method:
                self._version = message.result.get("protocolVersion")
        await self._send(message)

    async def _send(self, message: JSONRPCMessage) -> None:
        """Queue a message for the host, and before it how many others were left out."""
        if self._left_out:
            text = (
                f"{self._left_out} log and progress messages of the server behind were left out: "
                "they came faster than they could be passed on."
            )
            self._left_out = 0
            _logger.warning(text)
            params = {"level": "warning", "logger": "mcp-server-compaction", "data": text}
            note = JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)
            await self.host.send(SessionMessage(note))
        await self.host.send(SessionMessage(message))

    async def _pass_result(self, message: JSONRPCResponse, tool_name: str) -> None:
        schema = self._tools.get(tool_name, {}).get("outputSchema")
        work = partial(
            demote, message.result, self.demotion, tool_name=tool_name, output_schema=schema
        )
        # What is far below the threshold needs no thread: nothing of it is counted.
        is_short = len(str(message.result)) <= self.demotion.threshold_tokens // 4
        result: JsonObject = message.result
        blobs: tuple[Blob, ...] = ()
        if not is_short:
            result, blobs = await to_thread.run_sync(work)
        if blobs:
            try:
                archive = await self.deps.archive()
                await archive.commit(self.session_id, blobs=blobs)
            except CompactionError as error:
                _logger.warning("A result of %s passes whole: %s", tool_name, error)
            else:
                if self._read_tool() != READ_TOOL:
                    text = (
                        f"Read it with {OTHER_READ_TOOL}: {READ_TOOL} is another tool, of the "
                        "server behind."
                    )
                    note = {"type": "text", "text": text}
                    result = {**result, "content": [*(result.get("content") or ()), note]}
                message = message.model_copy(update={"result": result})
        await self._send(message)

    def _read_tool(self) -> str:
        """The name of the reading tool."""
        return OTHER_READ_TOOL if READ_TOOL in self._tools else READ_TOOL

    def _with_reading_tool(self, message: JSONRPCResponse) -> JSONRPCResponse:
        """The tool list with the reading tool at its end."""
        tools: Any = message.result.get("tools")
        if not is_list(tools):
            return message
        listed = {str(tool.get("name")): tool for tool in tools if is_object(tool)}
        self._tools |= listed
        if message.result.get("nextCursor") is not None:
            return message
        reading_tool = {**_reading_tool(), "name": self._read_tool()}
        result = {**message.result, "tools": [*tools, reading_tool]}
        return message.model_copy(update={"result": result})

    async def _answer_read(self, request_id: RequestId, params: Mapping[str, Any]) -> None:
        with anyio.CancelScope() as scope:
            self._reads[request_id] = scope
            try:
                result = await self._read(params.get("arguments") or {})
            finally:
                del self._reads[request_id]
            answer = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            if _protocol_version(params) not in MODERN_PROTOCOL_VERSIONS:
                answer.pop("resultType", None)
            else:
                answer["resultType"] = "complete"
            await self._send(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=answer))

    async def _read(self, arguments: JsonObject) -> CallToolResult:
        try:
            archive = await self.deps.archive()
            return await read_output(archive, parse_arguments(ReadArguments, arguments))
        except CompactionError as error:
            return failure(error, is_read_only=True)

    def _metadata(self, message: JSONRPCMessage) -> ClientMessageMetadata:
        """The headers that Streamable HTTP wants to see beside a message."""
        params: JsonObject = getattr(message, "params", None) or {}
        version = _protocol_version(params) or self._version
        headers = {MCP_PROTOCOL_VERSION_HEADER: version} if version else {}
        if version in MODERN_PROTOCOL_VERSIONS and isinstance(message, JSONRPCRequest):
            headers[MCP_METHOD_HEADER] = message.method
            name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
            tool = self._tools.get(str(params.get("name")))
            if message.method == "tools/call" and tool:
                declared = x_mcp_header_map(tool.get("inputSchema"))
                headers |= mcp_param_headers(declared, params.get("arguments") or {})
        return ClientMessageMetadata(headers=headers)


def _protocol_version(params: Mapping[str, Any]) -> str | None:
    """The version that a request of the modern era names."""
    meta = params.get("_meta")
    return meta.get(PROTOCOL_VERSION_META_KEY) if is_object(meta) else None


def _reading_tool() -> JsonObject:
    [tool] = [tool for tool in tool_definitions() if tool.name == READ_TOOL]
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)
