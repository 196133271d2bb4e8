"""The command `wrap`: pass messages between a host and wrapped servers, in all MCP versions.

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

The SDK's dispatchers pair requests and responses. Each request has its own task, so responses
can overtake each other.
"""

import itertools
import logging
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import anyio
from anyio import to_thread
from context_compaction import (
    CompactionError,
    JsonObject,
    Settings,
    SettingsError,
    is_list,
    is_object,
)
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.deps import Changes, Deps, open_deps
from mcp_server_compaction.protocol.stdio import log_to_stderr, stdio_streams
from mcp_server_compaction.protocol.tools import call_tool, tool_definitions
from mcp_server_compaction.protocol.tools.archived import OUTPUTS_SESSION, count_text
from mcp_server_compaction.wrap.connections import Host, Upstream, protocol_version
from mcp_server_compaction.wrap.servers import SEPARATOR, WrappedServer
from mcp_server_compaction.wrap.shorten import Limits, shorten

READ_TOOL = "read_persisted_output"
OWN_TOOLS = (READ_TOOL, "search_transcript")
# Before the name of an own tool if the only wrapped server has a tool of that name.
OWN_PREFIX = "compaction_"
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
# Messages that can wait for the host. If there are more, log and progress messages are dropped.
_QUEUED_MESSAGES = 1_000


class Proxy:
    """One connection between a host and wrapped servers.

    Args:
        host: The host.
        servers: The servers: one without a name, or several with names.
        deps: Provides the archive.
        limits: Limits for tool results.
        session_id: ID of the archived session that contains the stored texts.
    """

    def __init__(
        self,
        host: Host,
        servers: Sequence[WrappedServer],
        deps: Deps,
        limits: Limits,
        session_id: str,
    ) -> None:
        self._host = host
        self._upstreams = [Upstream(server, host) for server in servers]
        self._by_name = {upstream.server.name: upstream for upstream in self._upstreams}
        # The only server without a name; None if the servers have names.
        self._single = self._by_name.get("")
        self._deps = deps
        self._limits = limits
        self._session_id = session_id
        self._ids = itertools.count(1)
        self._owners: dict[str, Upstream] = {}

    async def run(self) -> None:
        """Serve the host until it disconnects."""
        async with anyio.create_task_group() as tasks:
            for upstream in self._upstreams:
                tasks.start_soon(upstream.run)
            await self._host.dispatcher.run(self._answer, self._pass_notification)
            tasks.cancel_scope.cancel()

    async def _pass_notification(
        self, _: object, method: str, params: Mapping[str, Any] | None
    ) -> None:
        if method == "notifications/initialized":  # each server gets its own after its handshake
            self._host.is_initialized = True
        elif method != "notifications/cancelled":  # a cancelled request cancels its own
            for upstream in self._upstreams:
                await upstream.notify(method, params)

    async def _answer(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> JsonObject:
        """Answer a request of the host, or pass it to its server."""
        fields = dict(params or {})
        if method == "initialize":
            return await self._hello(fields)
        if self._single is None and method == "server/discover":
            # Several servers may not all have the same version, so the host must shake hands.
            raise MCPError(METHOD_NOT_FOUND, "Send initialize instead.")
        if method in _LISTS:
            return await self._list(method, fields)
        own_name = self._own_names().get(str(fields.get("name")))
        if method == "tools/call" and own_name is not None:
            own: Any = SimpleNamespace(lifespan_context=self._deps, request=None)
            call = CallToolRequestParams(name=own_name, arguments=fields.get("arguments"))
            return _complete(fields, _as_json(await call_tool(own, call)))
        text = f"No wrapped server has what {method} names: {fields.get('name')!r}."
        refusal = MCPError(INVALID_PARAMS, f"{text} Read the lists again.")
        for upstream, request in self._targets(fields):
            try:
                result = await upstream.request(method, request, context.request_id or 0)
            except MCPError as error:
                refusal = error
                continue
            if method == "tools/call":
                return await self._shortened(result, str(request.get("name")), upstream)
            return result
        raise refusal

    def _targets(self, params: JsonObject) -> Iterator[tuple[Upstream, JsonObject]]:
        """Yield the servers that may answer a request, and its parameters with their own names.

        The owner of a name is known. An address whose owner is unknown, and a request of another
        kind, is sent to the next server if one refuses it.
        """
        ref: JsonObject = params["ref"] if is_object(params.get("ref")) else {}
        name, uri = params.get("name", ref.get("name")), params.get("uri", ref.get("uri"))
        if self._single is not None:
            yield self._single, params
        elif isinstance(name, str):
            prefix, _, own_name = name.partition(SEPARATOR)
            named = {"ref": {**ref, "name": own_name}} if ref else {"name": own_name}
            if prefix in self._by_name:
                yield self._by_name[prefix], {**params, **named}
        elif isinstance(uri, str) and uri in self._owners:
            yield self._owners[uri], params
        else:
            yield from ((upstream, params) for upstream in self._upstreams)

    async def _shortened(self, result: JsonObject, name: str, upstream: Upstream) -> JsonObject:
        """Shorten and archive a result; return it unchanged if it cannot be archived."""
        schema = upstream.tools.get(name, {}).get("outputSchema")
        work = partial(shorten, result, self._limits, tool_name=name, output_schema=schema)
        shorter, blobs = await to_thread.run_sync(work)
        if not blobs:
            return result
        try:
            archive = await self._deps.archive()
            await archive.commit(self._session_id, blobs=blobs)
        except CompactionError as error:
            _logger.warning("Cannot shorten a result of %s: %s", name, error)
            return result
        if READ_TOOL in self._own_names():
            return shorter
        text = (
            f"To read the archived text, call {OWN_PREFIX}{READ_TOOL}, because {READ_TOOL} is "
            "another tool of this server."
        )
        note = {"type": "text", "text": text}
        return {**shorter, "content": [*(shorter.get("content") or ()), note]}

    async def _hello(self, params: JsonObject) -> JsonObject:
        found = await self._gather(self._upstreams, lambda upstream: upstream.hello(params))
        if self._single is not None:
            [(_, own)] = found
            return {**own, "capabilities": {"tools": {}, **(own.get("capabilities") or {})}}
        asked = params.get("protocolVersion")
        versions = [str(result.get("protocolVersion") or asked) for _, result in found]
        texts = ((up.server.name, result.get("instructions")) for up, result in found)
        return {
            "protocolVersion": min(versions, default=asked),
            "capabilities": _CAPABILITIES,
            "serverInfo": {
                "name": "mcp-server-compaction",
                "version": version("mcp-server-compaction"),
            },
            "instructions": "\n\n".join(f"# {name}\n{text}" for name, text in texts if text),
        }

    async def _list(self, method: str, params: JsonObject) -> JsonObject:
        """Return the items of all servers that have such a list."""
        field, capability = _LISTS[method]
        asked = [
            upstream
            for upstream in self._upstreams
            if self._single or capability in (upstream.capabilities or {})
        ]
        try:
            found = await self._gather(asked, partial(self._all_pages, method, params, field))
        except MCPError:  # of the only server
            if field != "tools" or field in (self._upstreams[0].capabilities or {field}):
                raise
            found = []
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
        return _complete(params, {**base, field: items})

    async def _all_pages(
        self, method: str, params: JsonObject, field: str, upstream: Upstream
    ) -> JsonObject:
        """Return the first page of a list with the items of all pages."""
        first: JsonObject = {}
        items: list[Any] = []
        for _ in range(_MAX_PAGES):
            page = await upstream.request(method, params, f"compaction-{next(self._ids)}")
            first = first or page
            items += page[field] if is_list(page.get(field)) else []
            if page.get("nextCursor") is None:
                break
            params = {**params, "cursor": page["nextCursor"]}
        return {key: item for key, item in first.items() if key != "nextCursor"} | {field: items}

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
        self, upstreams: Sequence[Upstream], ask: Callable[[Upstream], Awaitable[JsonObject]]
    ) -> list[tuple[Upstream, JsonObject]]:
        """Ask servers at the same time. Several servers may refuse or not answer in time.

        Raises:
            MCPError: The only server refuses.
        """
        if self._single is not None:
            return [(self._single, await ask(self._single))]
        answers: dict[Upstream, JsonObject | None] = {}

        async def keep(upstream: Upstream) -> None:
            try:
                answers[upstream] = await ask(upstream)
            except MCPError:
                answers[upstream] = None

        with anyio.move_on_after(_LIST_SECONDS):
            async with anyio.create_task_group() as tasks:
                for upstream in upstreams:
                    tasks.start_soon(keep, upstream)
        for upstream in upstreams:
            if upstream not in answers:
                _logger.warning("The %s has not answered yet.", upstream.server.title)
        found = ((upstream, answers.get(upstream)) for upstream in upstreams)
        return [(upstream, answer) for upstream, answer in found if answer is not None]

    def _own_names(self) -> dict[str, str]:
        """Return the names of the own tools by the names that the host sees."""
        taken = self._single.tools if self._single is not None else ()
        return {f"{OWN_PREFIX}{name}" if name in taken else name: name for name in OWN_TOOLS}


def _complete(params: JsonObject, result: JsonObject) -> JsonObject:
    """Return a result of the proxy itself, with the field that modern versions require."""
    is_modern = protocol_version(params) in MODERN_PROTOCOL_VERSIONS
    return {"resultType": "complete", **result} if is_modern else result


def _as_json(model: BaseModel) -> JsonObject:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def run_wrap(servers: Sequence[WrappedServer], config: Config, threshold_tokens: int) -> None:
    """Serve one host until it disconnects. Servers that end are started again.

    Raises:
        SettingsError: The only server has no valid address, or its command does not exist.
    """
    for server in servers:
        if server.url and not re.match(r"https?://[^/]", server.url):
            problem = f"Invalid URL {server.url!r} of the {server.title}."
            raise SettingsError(f"{problem} Give an address such as https://host/mcp.")
        if not server.name and server.command and not shutil.which(server.command[0]):
            raise SettingsError(
                f"Cannot start the wrapped server with {server.command[0]!r}: there is no such "
                "program. Give the absolute path of a program after --."
            )
    log_to_stderr()
    anyio.run(_wrap, servers, config, threshold_tokens)


async def _wrap(servers: Sequence[WrappedServer], config: Config, threshold_tokens: int) -> None:
    queue, queued = anyio.create_memory_object_stream[SessionMessage](_QUEUED_MESSAGES)
    async with (
        queue,
        queued,
        stdio_streams() as (from_host, to_host),
        to_host,  # its writer waits until this stream is closed
        open_deps(config, Changes()) as deps,
        anyio.create_task_group() as tasks,
    ):
        deps.first_request.set()  # the wrapped servers answer the host's first request
        count = partial(count_text, model=config.model)
        redacts = config.redaction == "on"
        limits = Limits(threshold_tokens, Settings().preview_chars, count, redacts)
        proxy = Proxy(Host(from_host, queue), servers, deps, limits, OUTPUTS_SESSION)

        async def pass_to_host() -> None:
            async for item in queued:
                await to_host.send(item)

        tasks.start_soon(pass_to_host)
        await proxy.run()
        tasks.cancel_scope.cancel()
