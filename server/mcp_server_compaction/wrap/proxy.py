"""Pass messages between a host and a wrapped server, in older and in modern MCP versions.

Messages pass unchanged in both directions, except:

- The tool list also contains the reading tool, and calls of that tool are answered here. If the
  wrapped server has a tool with the same name, the reading tool is renamed.
- Large results of other tools are shortened. A shortened result is sent only after its texts were
  archived. If the archive refuses them, the full result is sent.
- Log and progress messages are dropped if the host does not read them fast enough, because a
  response behind 200,000 such messages would be too late. A log message reports how many were
  dropped.

Results can overtake each other, because each is shortened in its own task.
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
from context_compaction import CompactionError, JsonObject, is_list, is_object
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
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from mcp_server_compaction.protocol.arguments import parse_arguments
from mcp_server_compaction.protocol.deps import Deps
from mcp_server_compaction.protocol.schemas import ReadArguments
from mcp_server_compaction.protocol.tools import tool_definitions
from mcp_server_compaction.protocol.tools.read_persisted_output import read_output
from mcp_server_compaction.protocol.tools.replies import failure
from mcp_server_compaction.wrap.shorten import Limits, shorten

READ_TOOL = "read_persisted_output"
# Name of the reading tool if the wrapped server has a tool named `READ_TOOL`.
OTHER_READ_TOOL = "compaction_read_persisted_output"
_DROPPABLE = frozenset({"notifications/message", "notifications/progress"})
_logger = logging.getLogger(__name__)


class Sender(Protocol):
    """A stream that sends messages."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message."""
        ...


@dataclass(slots=True)
class Proxy:
    """One connection between a host and a wrapped server.

    Attributes:
        host: Queue of messages to the host.
        server: Stream of messages to the wrapped server.
        deps: Provides the archive.
        limits: Limits for tool results.
        session_id: ID of the archived session that contains the stored texts.
        tasks: Task group for work during which other messages pass.
    """

    host: MemoryObjectSendStream[SessionMessage]
    server: Sender
    deps: Deps
    limits: Limits
    session_id: str
    tasks: TaskGroup
    # Method and tool name of each open request whose response may be changed or is needed here.
    _waiting: dict[RequestId, tuple[str, str]] = field(
        default_factory=dict[RequestId, tuple[str, str]]
    )
    _tools: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    _version: str | None = None
    _dropped_count: int = 0

    async def from_host(self, message: JSONRPCMessage) -> None:
        """Pass a message of the host to the server, or answer it."""
        match message:
            case JSONRPCRequest(method="tools/call", params=dict() as params) if (
                params.get("name") == self._read_tool_name()
            ):
                self.tasks.start_soon(self._answer_read, message.id, params)
                return
            case JSONRPCRequest(method="tools/list" | "tools/call" | "initialize"):
                name = (message.params or {}).get("name")
                self._waiting[message.id] = message.method, str(name or "")
            case JSONRPCNotification(method="notifications/cancelled", params=dict() as params):
                request_id: Any = params.get("requestId")
                if isinstance(request_id, str | int):
                    # A host ignores a late response to a canceled request.
                    self._waiting.pop(request_id, None)
            case _:
                pass
        await self.server.send(SessionMessage(message, self._metadata(message)))

    async def from_server(self, message: JSONRPCMessage) -> None:
        """Pass a message of the server to the host, with shortened results."""
        if isinstance(message, JSONRPCNotification) and message.method in _DROPPABLE:
            try:
                self.host.send_nowait(SessionMessage(message))
            except anyio.WouldBlock:
                self._dropped_count += 1
            return
        if isinstance(message, JSONRPCError) and message.id is not None:
            self._waiting.pop(message.id, None)
        elif isinstance(message, JSONRPCResponse):
            method, tool_name = self._waiting.pop(message.id, ("", ""))
            if method == "tools/call":
                # In a task, because counting tokens and archiving a text take time.
                self.tasks.start_soon(self._pass_result, message, tool_name)
                return
            if method == "tools/list":
                message = self._with_reading_tool(message)
            elif method == "initialize":
                self._version = message.result.get("protocolVersion")
        await self._send(message)

    async def _send(self, message: JSONRPCMessage) -> None:
        """Queue a message for the host, after a warning if other messages were dropped."""
        if self._dropped_count:
            text = (
                f"Dropped {self._dropped_count} log and progress messages of the wrapped server, "
                "because the host did not read them fast enough."
            )
            self._dropped_count = 0
            _logger.warning(text)
            params = {"level": "warning", "logger": "mcp-server-compaction", "data": text}
            note = JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)
            await self.host.send(SessionMessage(note))
        await self.host.send(SessionMessage(message))

    async def _pass_result(self, message: JSONRPCResponse, tool_name: str) -> None:
        # A character has at most four tokens, so a short result is not large without counting.
        if len(str(message.result)) > self.limits.threshold_tokens // 4:
            result = await self._shortened(message.result, tool_name)
            message = message.model_copy(update={"result": result})
        await self._send(message)

    async def _shortened(self, result: JsonObject, tool_name: str) -> JsonObject:
        """Shorten and archive a result; return it unchanged if it cannot be archived."""
        schema = self._tools.get(tool_name, {}).get("outputSchema")
        work = partial(shorten, result, self.limits, tool_name=tool_name, output_schema=schema)
        shorter, blobs = await to_thread.run_sync(work)
        if not blobs:
            return result
        try:
            archive = await self.deps.archive()
            await archive.commit(self.session_id, blobs=blobs)
        except CompactionError as error:
            _logger.warning("Cannot shorten a result of %s: %s", tool_name, error)
            return result
        if self._read_tool_name() == READ_TOOL:
            return shorter
        text = (
            f"To read the archived text, call {OTHER_READ_TOOL}, because {READ_TOOL} is another "
            "tool of this server."
        )
        note = {"type": "text", "text": text}
        return {**shorter, "content": [*(shorter.get("content") or ()), note]}

    def _read_tool_name(self) -> str:
        """Return the name of the reading tool; `READ_TOOL` before the first tool list."""
        return OTHER_READ_TOOL if READ_TOOL in self._tools else READ_TOOL

    def _with_reading_tool(self, message: JSONRPCResponse) -> JSONRPCResponse:
        """Return a page of the tool list; the last page has the reading tool at its end."""
        tools: Any = message.result.get("tools")
        if not is_list(tools):
            return message
        self._tools |= {str(tool.get("name")): tool for tool in tools if is_object(tool)}
        if message.result.get("nextCursor") is not None:
            return message
        [definition] = [tool for tool in tool_definitions() if tool.name == READ_TOOL]
        reading_tool = _as_json(definition.model_copy(update={"name": self._read_tool_name()}))
        result = {**message.result, "tools": [*tools, reading_tool]}
        return message.model_copy(update={"result": result})

    async def _answer_read(self, request_id: RequestId, params: Mapping[str, Any]) -> None:
        try:
            archive = await self.deps.archive()
            arguments = parse_arguments(ReadArguments, params.get("arguments") or {})
            reply = await read_output(archive, arguments)
        except CompactionError as error:
            reply = failure(error, is_read_only=True)
        result = {**_as_json(reply), "resultType": "complete"}
        if _protocol_version(params) not in MODERN_PROTOCOL_VERSIONS:
            del result["resultType"]  # which older versions do not have
        await self._send(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result))

    def _metadata(self, message: JSONRPCMessage) -> ClientMessageMetadata:
        """Return the headers that Streamable HTTP requires. A local process gets none of them."""
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
    """Return the MCP version that a request names; None before 2026-07-28."""
    meta = params.get("_meta")
    return meta.get(PROTOCOL_VERSION_META_KEY) if is_object(meta) else None


def _as_json(model: BaseModel) -> JsonObject:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
