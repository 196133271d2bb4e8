"""The command `wrap`: serve a host over stdio through a proxy in front of another MCP server."""

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from context_compaction import Settings, SettingsError
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import get_windows_executable_command
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
from mcp_server_compaction.protocol.tools.persist_large_output import OUTPUTS_SESSION, count_text
from mcp_server_compaction.wrap.proxy import Proxy
from mcp_server_compaction.wrap.shorten import Limits

_CONNECT_SECONDS = 30.0
# Time for a program to end, and again after SIGTERM.
_END_SECONDS = 2.0
# Messages that can wait for the host. If there are more, log and progress messages are dropped.
_QUEUED_MESSAGES = 1_000
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WrappedServer:
    """The server that the proxy wraps. It has either a command or a URL.

    Attributes:
        command: Command that starts the server, which then uses stdio.
        url: Address at which the server uses Streamable HTTP.
        headers: Headers of every HTTP request.
    """

    command: Sequence[str] = ()
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])


def run_wrap(server: WrappedServer, config: Config, threshold_tokens: int) -> None:
    """Serve one host until it disconnects.

    If the wrapped server ends first, the process ends with code 1.

    Raises:
        SettingsError: The server has no valid address, or its command cannot be started.
    """
    if bool(server.command) == bool(server.url):
        raise SettingsError("Give either --url URL or, after --, the command of a server.")
    if server.url and not re.match(r"https?://[^/]", server.url):
        problem = f"Invalid --url {server.url!r}. Give an address such as https://host/mcp."
        raise SettingsError(problem)
    log_to_stderr()
    if not anyio.run(_wrap, server, config, threshold_tokens):
        sys.stderr.write("mcp-server-compaction: the wrapped server ended.\n")
        sys.stderr.flush()
        # A normal exit would wait for the thread that reads the host's next line.
        os._exit(1)


async def _wrap(server: WrappedServer, config: Config, threshold_tokens: int) -> bool:
    """Run the proxy, and return whether the host disconnected before the server ended."""
    has_disconnected = False
    queue, queued = anyio.create_memory_object_stream[SessionMessage](_QUEUED_MESSAGES)
    async with (
        queue,
        queued,
        _streams(server) as (from_server, to_server),
        stdio_streams() as (from_host, to_host),
        to_host,  # its writer waits until this stream is closed
        open_deps(config, Changes()) as deps,
        anyio.create_task_group() as tasks,
    ):
        deps.first_request.set()  # the wrapped server answers the host's first request
        count = partial(count_text, model=config.model)
        redacts = config.redaction == "on"
        limits = Limits(threshold_tokens, Settings().preview_chars, count, redacts)
        proxy = Proxy(queue, to_server, deps, limits, OUTPUTS_SESSION, tasks)

        async def pass_from_host() -> None:
            nonlocal has_disconnected
            async for item in from_host:
                if isinstance(item, SessionMessage):
                    await proxy.from_host(item.message)
            has_disconnected = True
            tasks.cancel_scope.cancel()

        async def pass_from_server() -> None:
            async for item in from_server:
                message = item.message if isinstance(item, SessionMessage) else _parsed(item)
                if message is not None:
                    await proxy.from_server(message)
            tasks.cancel_scope.cancel()

        async def pass_to_host() -> None:
            async for item in queued:
                await to_host.send(item)

        for task in (pass_to_host, pass_from_host, pass_from_server):
            tasks.start_soon(task)
    return has_disconnected


def _parsed(item: bytes | Exception) -> JSONRPCMessage | None:
    """Parse a line, or a message that the SDK could not parse; None if it is not a message.

    A text that was cut inside an emoji has half of a surrogate pair, which most hosts accept. A
    response that cannot be parsed at all becomes an error, because the caller waits for it.
    """
    if isinstance(item, bytes):
        line = item
    elif isinstance(item, ValidationError):
        value: Any = item.errors(include_url=False)[0]["input"]
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        line = text.encode("utf-8", "replace")
    else:
        return None
    frame = parse_frame(line)
    if not isinstance(frame, Refusal):
        return frame
    request_id = answered_id(line.decode("utf-8", "replace"))
    if request_id is None:
        return None  # for example a line of a log
    problem = f"The response of the wrapped server {frame.problem}."
    error = ErrorData(code=INTERNAL_ERROR, message=problem)
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


@asynccontextmanager
async def _streams(server: WrappedServer) -> AsyncGenerator[Any]:
    """Connect to the wrapped server, and yield its output stream and its input stream."""
    if server.url is None:
        async with _program(server.command) as process:
            yield _lines(process.stdout), _Input(process)
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    # Reading has no timeout, because the host has its own limits for slow tools.
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)
    async with (
        httpx2.AsyncClient(headers=server.headers, timeout=timeout) as client,
        # Events have no size limit, because the proxy is for large results.
        streamable_http_client(server.url, http_client=client, max_sse_event_size=None) as streams,
    ):
        yield streams


@asynccontextmanager
async def _program(command: Sequence[str]) -> AsyncGenerator[Process]:
    """Start the wrapped server, and stop it at the end of the block.

    The SDK's `stdio_client` is not used, because its time grows with the square of a line's length.
    """
    name, *arguments = command
    try:
        program = get_windows_executable_command(name) if sys.platform == "win32" else name
        process = await anyio.open_process(
            [program, *arguments], stderr=sys.stderr, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"Cannot start the wrapped server with {name!r}: {error}. "
            "Give the absolute path of a program after --."
        ) from error
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
        if sys.platform == "win32":
            process.kill()
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


@dataclass(frozen=True, slots=True)
class _Input:
    """Stream of messages to a program.

    Attributes:
        process: The program.
    """

    process: Process

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message. Nothing happens if the program has ended; its output shows that."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        if self.process.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self.process.stdin.send(text.encode() + b"\n")
