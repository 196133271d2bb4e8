"""The command `wrap`: serve a host over stdio through a proxy in front of other MCP servers."""

import re
import shutil
from collections.abc import Sequence
from functools import partial

import anyio
from context_compaction import Settings, SettingsError
from mcp.shared.message import SessionMessage

from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.deps import open_deps
from mcp_server_compaction.protocol.logs import log_to_stderr
from mcp_server_compaction.protocol.notifications import Changes
from mcp_server_compaction.protocol.stdio import stdio_streams
from mcp_server_compaction.protocol.tools.persist_large_output import OUTPUTS_SESSION, count_text
from mcp_server_compaction.wrap.host import Host
from mcp_server_compaction.wrap.proxy import Proxy
from mcp_server_compaction.wrap.servers import WrappedServer
from mcp_server_compaction.wrap.shorten import Limits

# Messages that can wait for the host. If there are more, log and progress messages are dropped.
_QUEUED_MESSAGES = 1_000


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
