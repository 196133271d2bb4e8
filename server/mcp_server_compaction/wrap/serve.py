"""`wrap`: run a proxy over stdio before a program or an address."""

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from context_compaction import Settings, SettingsError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage
from pydantic import ValidationError

from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.deps import open_deps
from mcp_server_compaction.protocol.logs import log_to_stderr
from mcp_server_compaction.protocol.notifications import Changes
from mcp_server_compaction.protocol.stdio import (
    Refusal,
    answered_id,
    parse_frame,
    stdio_streams,
)
from mcp_server_compaction.protocol.tools.persist_large_output import UNFILED_SESSION, count_text
from mcp_server_compaction.wrap.demote import Demotion
from mcp_server_compaction.wrap.proxy import Proxy

_CONNECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Behind:
    """The server behind the proxy.

    Attributes:
        command: What starts it over stdio ...
        url: ... or where it answers Streamable HTTP.
        headers: Sent with every request to `url`.
    """

    command: Sequence[str] = ()
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])


def run_wrap(behind: Behind, config: Config, threshold_tokens: int) -> None:
    """Serve one host until it hangs up.

    Where the server behind ends before that, the process ends with code 1, as that server would.

    Raises:
        SettingsError: Its command cannot be started.
    """
    if bool(behind.command) == bool(behind.url):
        raise SettingsError("Give either --url URL or, after --, the command of a server.")
    if behind.url and not re.match(r"https?://[^/]", behind.url):
        raise SettingsError(f"--url is {behind.url!r}. Give an address as https://host/mcp.")
    log_to_stderr()
    if not anyio.run(_wrap, behind, config, threshold_tokens):
        sys.stderr.write("mcp-server-compaction: the server behind the proxy ended.\n")
        sys.stderr.flush()
        os._exit(1)  # a thread still waits for the host's next line, and would be waited for


async def _wrap(behind: Behind, config: Config, threshold_tokens: int) -> bool:
    """Whether the host hung up first."""
    hung_up = False
    async with (
        _streams(behind) as (from_server, to_server),
        stdio_streams() as (from_host, to_host),
        to_host,  # its writer waits until this is closed
        open_deps(config, Changes()) as deps,
        anyio.create_task_group() as tasks,
    ):
        deps.greeted.set()  # by the server behind
        # The vocabulary is loaded by the first text that is counted.
        count = partial(count_text, model=config.model)
        demotion = Demotion(threshold_tokens, Settings().preview_chars, count)
        proxy = Proxy(to_host, to_server, deps, demotion, UNFILED_SESSION, tasks)

        async def pass_from_host() -> None:
            nonlocal hung_up
            async for item in from_host:
                if isinstance(item, SessionMessage):
                    await proxy.from_host(item.message)
            hung_up = True
            tasks.cancel_scope.cancel()

        async def pass_from_server() -> None:
            async for item in from_server:
                message = item.message if isinstance(item, SessionMessage) else _read_anew(item)
                if message is not None:
                    await proxy.from_server(message)
            tasks.cancel_scope.cancel()

        tasks.start_soon(pass_from_host)
        tasks.start_soon(pass_from_server)
    return hung_up


def _read_anew(error: Exception) -> JSONRPCMessage | None:
    """What the server behind said, where the SDK could not read it; None where nobody could.

    A text that was cut within an emoji has half of a surrogate pair. Most hosts read that, and
    whoever made the call waits for the answer: if that cannot be read at all, for an error.
    """
    if not isinstance(error, ValidationError):
        return None
    said: Any = error.errors(include_url=False)[0]["input"]
    text = said if isinstance(said, str) else json.dumps(said, default=str)
    found = parse_frame(text.encode("utf-8", "replace"))
    if not isinstance(found, Refusal):
        return found
    answered = answered_id(text)
    if answered is None:
        return None  # a line of its log, say
    told = f"The answer of the server behind {found.problem}."
    error_data = ErrorData(code=INTERNAL_ERROR, message=told)
    return JSONRPCError(jsonrpc="2.0", id=answered, error=error_data)


@asynccontextmanager
async def _streams(behind: Behind) -> AsyncGenerator[Any]:
    """The messages of the server behind, and where messages for it go."""
    if behind.url is not None:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # Tools may take their time; the host has limits of its own.
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)
        async with (
            httpx2.AsyncClient(headers=behind.headers, timeout=timeout) as client,
            # A large result is what this is for: no event is too large.
            streamable_http_client(
                behind.url, http_client=client, max_sse_event_size=None
            ) as streams,
        ):
            yield streams
        return
    command, *arguments = behind.command
    program = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    try:
        async with stdio_client(program, errlog=sys.stderr) as streams:
            yield streams
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"The server behind the proxy cannot be started by {command!r}: {error}. "
            "Give the absolute path of a program after --."
        ) from error
