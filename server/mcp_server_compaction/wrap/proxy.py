"""Pass messages between a host and wrapped servers, in older and in modern MCP versions.

Messages pass unchanged in both directions, except:

- The tool list also contains the tools that read and search the archive. Calls of these tools are
  answered here.
- Large results of other tools are shortened. A shortened result is sent only after its texts were
  archived. If the archive refuses them, the full result is sent.
- Log and progress messages are dropped if the host does not read them fast enough, because a
  response behind 200,000 such messages would be too late. A log message reports how many were
  dropped.
- Lists of tools, prompts and resources have one page, with the items of all servers. The name of a
  tool or prompt begins with the name of its server, if the server has one.
- The IDs of requests to the host are replaced, because two servers may use the same ID.

Responses can overtake each other, because each request has its own task.
"""

import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from context_compaction import CompactionError, JsonObject, is_list, is_object
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from mcp_server_compaction.protocol.deps import Deps
from mcp_server_compaction.protocol.tools import call_tool, tool_definitions
from mcp_server_compaction.wrap.servers import SEPARATOR, WrappedServer
from mcp_server_compaction.wrap.shorten import Limits, shorten
from mcp_server_compaction.wrap.upstream import Answer, Reply, Upstream, protocol_version

READ_TOOL = "read_persisted_output"
OWN_TOOLS = (READ_TOOL, "search_transcript")
# Before the name of an own tool if the only wrapped server has a tool of that name.
OWN_PREFIX = "compaction_"
_DROPPABLE = frozenset({"notifications/message", "notifications/progress"})
# Field of each list, and the capability without which a server has no such list.
_LISTS = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
}
_CAPABILITIES: JsonObject = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
# With several servers, a list or the handshake waits this long for the slowest.
_LIST_SECONDS = 20.0
_MAX_PAGES = 100
# Tool names that are longer are refused by some hosts and models.
_MAX_NAME_CHARS = 64
_logger = logging.getLogger(__name__)


class Proxy:
    """One connection between a host and wrapped servers.

    Args:
        host: Queue of messages to the host.
        servers: The servers: one without a name, or several with names.
        deps: Provides the archive.
        limits: Limits for tool results.
        session_id: ID of the archived session that contains the stored texts.
        tasks: Task group for work during which other messages pass.
    """

    def __init__(
        self,
        host: MemoryObjectSendStream[SessionMessage],
        servers: Sequence[WrappedServer],
        deps: Deps,
        limits: Limits,
        session_id: str,
        tasks: TaskGroup,
    ) -> None:
        self.upstreams = [Upstream(one, self.from_server, self._announce) for one in servers]
        self._by_name = {upstream.server.name: upstream for upstream in self.upstreams}
        # The only server without a name; None if the servers have names.
        self._single = self._by_name.get("")
        self._host = host
        self._deps = deps
        self._limits = limits
        self._session_id = session_id
        self._tasks = tasks
        self._ids = itertools.count(1)
        # Requests of servers to the host: the server and its own ID, by the ID for the host.
        self._asked: dict[RequestId, tuple[Upstream, RequestId]] = {}
        self._owners: dict[str, Upstream] = {}
        self._is_initialized = False
        self._dropped_count = 0

    async def from_host(self, message: JSONRPCMessage) -> None:
        """Pass a message of the host to its server, or answer it."""
        if isinstance(message, JSONRPCRequest):
            await self._from_host_request(message)
        elif isinstance(message, JSONRPCNotification):
            params = message.params or {}
            if message.method == "notifications/initialized":
                self._is_initialized = True  # each server gets its own after its handshake
                return
            request_id: Any = params.get("requestId")
            is_cancel = message.method == "notifications/cancelled"
            if is_cancel and not isinstance(request_id, str | int):
                return
            for upstream in self.upstreams:
                if not is_cancel or upstream.cancel(request_id):
                    upstream.post(message)
        elif message.id in self._asked:
            upstream, request_id = self._asked.pop(message.id)
            upstream.post(message.model_copy(update={"id": request_id}))

    async def from_server(self, upstream: Upstream, message: JSONRPCMessage) -> None:
        """Pass a request or notification of a server to the host."""
        if isinstance(message, JSONRPCNotification) and message.method in _DROPPABLE:
            try:
                self._host.send_nowait(SessionMessage(message))
            except anyio.WouldBlock:
                self._dropped_count += 1
            await anyio.lowlevel.checkpoint()  # the other servers must not wait for a flood
            return
        if isinstance(message, JSONRPCRequest):
            new_id = f"{upstream.server.name}-{next(self._ids)}"
            self._asked[new_id] = upstream, message.id
            message = message.model_copy(update={"id": new_id})
        elif isinstance(message, JSONRPCNotification) and (params := message.params):
            key = upstream, params.get("requestId")
            asked = next((new for new, old in self._asked.items() if old == key), None)
            if message.method == "notifications/cancelled" and asked is not None:
                del self._asked[asked]
                message = message.model_copy(update={"params": {**params, "requestId": asked}})
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
            await self._host.send(SessionMessage(note))
        await self._host.send(SessionMessage(message))

    async def _announce(self) -> None:
        """Tell the host that all lists may have changed, because a server is back."""
        if self._is_initialized:
            for name in ("tools", "prompts", "resources"):
                method = f"notifications/{name}/list_changed"
                await self._send(JSONRPCNotification(jsonrpc="2.0", method=method))

    async def _from_host_request(self, message: JSONRPCRequest) -> None:
        params = message.params or {}
        if message.method == "initialize":
            for upstream in self.upstreams:
                upstream.open(params)
            self._tasks.start_soon(self._answer_initialize, message)
            return
        if self._single is None and message.method == "server/discover":
            # Several servers may not all have the same version, so the host must shake hands.
            await self._send(_error(message, METHOD_NOT_FOUND, "Send initialize instead."))
            return
        if message.method in _LISTS:
            self._tasks.start_soon(self._answer_list, message)
            return
        name = self._own_names().get(str(params.get("name")))
        if message.method == "tools/call" and name is not None:
            self._tasks.start_soon(self._answer_own, message, name)
            return
        targets = [*self._targets(message)]
        if not targets:
            text = f"No wrapped server has what {message.method} names: {params.get('name')!r}."
            await self._send(_error(message, INVALID_PARAMS, f"{text} Read the lists again."))
            return
        (first, request), *others = targets
        # Posted here, because requests must reach a server in their order.
        self._tasks.start_soon(self._answer_routed, request, first.post(request), first, others)

    def _targets(self, message: JSONRPCRequest) -> Iterator[tuple[Upstream, JSONRPCRequest]]:
        """Yield the servers that may answer a request, and the request with their own names.

        The owner of a name is known. An address whose owner is unknown, and a request of another
        kind, is sent to the next server if one refuses it.
        """
        params: JsonObject = message.params or {}
        ref: JsonObject = params["ref"] if is_object(params.get("ref")) else {}
        name, uri = params.get("name", ref.get("name")), params.get("uri", ref.get("uri"))
        if self._single is not None:
            yield self._single, message
        elif isinstance(name, str):
            prefix, _, own_name = name.partition(SEPARATOR)
            if prefix in self._by_name:
                named: JsonObject = {"name": own_name}
                if ref:
                    named = {"ref": {**ref, "name": own_name}}
                request = message.model_copy(update={"params": {**params, **named}})
                yield self._by_name[prefix], request
        elif isinstance(uri, str) and uri in self._owners:
            yield self._owners[uri], message
        else:
            for upstream in self.upstreams:
                yield upstream, message

    async def _answer_routed(
        self,
        request: JSONRPCRequest,
        reply: Reply,
        upstream: Upstream,
        others: Sequence[tuple[Upstream, JSONRPCRequest]],
    ) -> None:
        answer = await reply.get()
        for other, again in others:
            if not isinstance(answer, JSONRPCError):
                break
            answer = await other.post(again).get()
        if isinstance(answer, JSONRPCResponse) and request.method == "tools/call":
            name = str((request.params or {}).get("name"))
            # A character has at most four tokens, so a short result is not large without counting.
            if _has_chars(answer.result, self._limits.threshold_tokens // 4):
                schema = upstream.tools.get(name, {}).get("outputSchema")
                result = await self._shortened(answer.result, name, schema)
                answer = answer.model_copy(update={"result": result})
        if answer is not None:
            await self._send(answer)

    async def _shortened(self, result: JsonObject, tool_name: str, schema: Any) -> JsonObject:
        """Shorten and archive a result; return it unchanged if it cannot be archived."""
        work = partial(shorten, result, self._limits, tool_name=tool_name, output_schema=schema)
        shorter, blobs = await to_thread.run_sync(work)
        if not blobs:
            return result
        try:
            archive = await self._deps.archive()
            await archive.commit(self._session_id, blobs=blobs)
        except CompactionError as error:
            _logger.warning("Cannot shorten a result of %s: %s", tool_name, error)
            return result
        if READ_TOOL in self._own_names():
            return shorter
        text = (
            f"To read the archived text, call {OWN_PREFIX}{READ_TOOL}, because {READ_TOOL} is "
            "another tool of this server."
        )
        note = {"type": "text", "text": text}
        return {**shorter, "content": [*(shorter.get("content") or ()), note]}

    async def _answer_initialize(self, message: JSONRPCRequest) -> None:
        answers = await self._gather(self.upstreams, lambda upstream: upstream.hello.get())
        results = [
            (upstream.server.name, answer.result)
            for upstream, answer in answers
            if isinstance(answer, JSONRPCResponse)
        ]
        if self._single is not None:
            answer: Any = answers[0][1].model_copy(update={"id": message.id})
            if results:
                own = results[0][1]
                capabilities: JsonObject = {"tools": {}, **(own.get("capabilities") or {})}
                changed: JsonObject = {**own, "capabilities": capabilities}
                answer = answer.model_copy(update={"result": changed})
            await self._send(answer)
            return
        asked = (message.params or {}).get("protocolVersion")
        versions = [str(result.get("protocolVersion") or asked) for _, result in results]
        texts = ((name, result.get("instructions")) for name, result in results)
        result: JsonObject = {
            "protocolVersion": min(versions, default=asked),
            "capabilities": _CAPABILITIES,
            "serverInfo": {
                "name": "mcp-server-compaction",
                "version": version("mcp-server-compaction"),
            },
            "instructions": "\n\n".join(f"# {name}\n{text}" for name, text in texts if text),
        }
        await self._send(JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result))

    async def _answer_list(self, message: JSONRPCRequest) -> None:
        """Answer with the items of all servers that have such a list."""
        field, capability = _LISTS[message.method]
        asked = [
            upstream
            for upstream in self.upstreams
            if self._single or capability in (upstream.capabilities or {})
        ]
        answers = await self._gather(asked, partial(self._all_pages, message, field))
        error = next((one for _, one in answers if isinstance(one, JSONRPCError)), None)
        found = [(up, one.result) for up, one in answers if isinstance(one, JSONRPCResponse)]
        known = self.upstreams[0].capabilities
        has_none = field == "tools" and known is not None and field not in known
        if self._single is not None and error is not None and not has_none:
            await self._send(error.model_copy(update={"id": message.id}))
            return
        items = [
            self._shown(upstream, field, item)
            for upstream, result in found
            for item in result[field]
            if is_object(item)
        ]
        if field == "tools":
            definitions = {tool.name: tool for tool in tool_definitions()}
            items += [
                _as_json(definitions[name].model_copy(update={"name": shown}))
                for shown, name in self._own_names().items()
            ]
        base = found[0][1] if self._single is not None and found else {}
        await self._send(_response(message, {**base, field: items}))

    async def _all_pages(
        self, message: JSONRPCRequest, field: str, upstream: Upstream
    ) -> Answer | None:
        """Return the first page of a list with the items of all pages."""
        first: JsonObject = {}
        items: list[Any] = []
        cursor: JsonObject = {}  # a request without parameters has no field for them
        for _ in range(_MAX_PAGES):
            request = message.model_copy(update={"id": f"compaction-{next(self._ids)}", **cursor})
            answer = await upstream.post(request).get()
            if not isinstance(answer, JSONRPCResponse):
                return answer
            first = first or answer.result
            page: Any = answer.result.get(field)
            items += page if is_list(page) else []
            if answer.result.get("nextCursor") is None:
                break
            params = {**(message.params or {}), "cursor": answer.result["nextCursor"]}
            cursor = {"params": params}
        result = {key: item for key, item in first.items() if key != "nextCursor"}
        return _response(message, {**result, field: items})

    def _shown(self, upstream: Upstream, field: str, item: JsonObject) -> JsonObject:
        """Return an item of a list with its name for the host, and remember its owner."""
        name, uri = str(item.get("name")), item.get("uri")
        if field == "tools":
            upstream.tools[name] = item
        if isinstance(uri, str) and self._owners.setdefault(uri, upstream) is not upstream:
            text = "The %s also has the resource %s; requests go to the %s."
            titles = upstream.server.title, self._owners[uri].server.title
            _logger.warning(text, titles[0], uri, titles[1])
        if not upstream.server.name or field not in {"tools", "prompts"}:
            return item
        name = f"{upstream.server.name}{SEPARATOR}{name}"
        if len(name) > _MAX_NAME_CHARS:
            text = "The name %s has more than %d characters. Give its server a shorter name."
            _logger.warning(text, name, _MAX_NAME_CHARS)
        return {**item, "name": name}

    async def _gather(
        self, upstreams: Sequence[Upstream], ask: Callable[[Upstream], Awaitable[Answer | None]]
    ) -> list[tuple[Upstream, Any]]:
        """Ask servers at the same time; leave out those that do not answer in time."""
        answers: dict[Upstream, Answer | None] = {}

        async def keep(upstream: Upstream) -> None:
            answers[upstream] = await ask(upstream)

        with anyio.move_on_after(math.inf if self._single else _LIST_SECONDS):
            async with anyio.create_task_group() as tasks:
                for upstream in upstreams:
                    tasks.start_soon(keep, upstream)
        for upstream in upstreams:
            if upstream not in answers:
                _logger.warning("The %s has not answered yet.", upstream.server.title)
        return [(upstream, answers[upstream]) for upstream in upstreams if upstream in answers]

    def _own_names(self) -> dict[str, str]:
        """Return the names of the own tools by the names that the host sees."""
        taken = self._single.tools if self._single is not None else ()
        return {f"{OWN_PREFIX}{name}" if name in taken else name: name for name in OWN_TOOLS}

    async def _answer_own(self, message: JSONRPCRequest, name: str) -> None:
        context: Any = SimpleNamespace(lifespan_context=self._deps, request=None)
        arguments = (message.params or {}).get("arguments")
        try:
            params = CallToolRequestParams(name=name, arguments=arguments)
            reply = await call_tool(context, params)
        except ValidationError as error:
            await self._send(_error(message, INVALID_PARAMS, str(error)))
        # Every other exception is a fault, which must not end the connections of the servers.
        except Exception:
            _logger.exception("%s failed unexpectedly", name)
            text = f"{name} failed because of a fault in the proxy. See its log on standard error."
            await self._send(_error(message, INTERNAL_ERROR, text))
        else:
            await self._send(_response(message, _as_json(reply)))


def _has_chars(value: Any, count: int) -> bool:
    """Whether the texts in a JSON value have more than `count` characters."""
    values = [value]
    while values and count >= 0:
        item = values.pop()
        if is_object(item):
            values += [*item, *item.values()]
        elif is_list(item):
            values += item
        count -= len(item) if isinstance(item, str) else 1
    return count < 0


def _response(request: JSONRPCRequest, result: JsonObject) -> JSONRPCResponse:
    if protocol_version(request.params or {}) in MODERN_PROTOCOL_VERSIONS:
        result = {"resultType": "complete", **result}
    return JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)


def _error(request: JSONRPCRequest, code: int, text: str) -> JSONRPCError:
    error = ErrorData(code=code, message=text)
    return JSONRPCError(jsonrpc="2.0", id=request.id, error=error)


def _as_json(model: BaseModel) -> JsonObject:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
