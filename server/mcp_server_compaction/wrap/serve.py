"""`wrap`: run a proxy over stdio before a program or an address."""

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
from mcp_server_compaction.wrap.demote import Demotion
from mcp_server_compaction.wrap.proxy import Proxy

_CONNECT_SECONDS = 30.0
_END_SECONDS = 2.0  # a program has this long to end by itself, and as long after SIGTERM
# Messages that may wait for the host. When it is full, log and progress messages are left out.
_QUEUED_MESSAGES = 1_000
_CHUNK_BYTES = 1024 * 1024


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
    queue, queued = anyio.create_memory_object_stream[SessionMessage](_QUEUED_MESSAGES)
    async with (
        queue,
        queued,
        _streams(behind) as (from_server, to_server),
        stdio_streams() as (from_host, to_host),
        to_host,  # its writer waits until this is closed
        open_deps(config, Changes()) as deps,
        anyio.create_task_group() as tasks,
    ):
        deps.greeted.set()  # by the server behind
        # The vocabulary is loaded by the first text that is counted.
        count = partial(count_text, model=config.model)
        redacts = config.redaction == "on"
        demotion = Demotion(threshold_tokens, Settings().preview_chars, count, redacts)
        proxy = Proxy(queue, to_server, deps, demotion, OUTPUTS_SESSION, tasks)

        async def pass_from_host() -> None:
            nonlocal hung_up
            async for item in from_host:
                if isinstance(item, SessionMessage):
                    await proxy.from_host(item.message)
            hung_up = True
            tasks.cancel_scope.cancel()

        async def pass_from_server() -> None:
            async for item in from_server:
                message = item.message if isinstance(item, SessionMessage) else _read_again(item)
                if message is not None:
                    await proxy.from_server(message)
            tasks.cancel_scope.cancel()

        async def pass_to_host() -> None:
            async for item in queued:
                await to_host.send(item)

        tasks.start_soon(pass_to_host)
        tasks.start_soon(pass_from_host)
        tasks.start_soon(pass_from_server)
    return hung_up


def _read_again(item: bytes | Exception) -> JSONRPCMessage | None:
    """Read a message that came as a line, or that the SDK could not read; None if it is no message.

    A text that was cut within an emoji has half of a surrogate pair. Most hosts read that, and
    whoever made the call waits for the answer: if that cannot be read at all, for an error.
    """
    if isinstance(item, bytes):
        line = item
    elif isinstance(item, ValidationError):
        given: Any = item.errors(include_url=False)[0]["input"]
        text = given if isinstance(given, str) else json.dumps(given, default=str)
        line = text.encode("utf-8", "replace")
    else:
        return None
    found = parse_frame(line)
    if not isinstance(found, Refusal):
        return found
    answered = answered_id(line.decode("utf-8", "replace"))
    if answered is None:
        return None  # a line of its log, say
    problem = f"The answer of the server behind {found.problem}."
    error_data = ErrorData(code=INTERNAL_ERROR, message=problem)
    return JSONRPCError(jsonrpc="2.0", id=answered, error=error_data)


@asynccontextmanager
async def _streams(behind: Behind) -> AsyncGenerator[Any]:
    """The messages of the server behind, and where messages for it go."""
    if behind.url is None:
        async with _program(behind.command) as process:
            yield _lines(process.stdout), _Input(process)
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    # Tools may take their time; the host has limits of its own.
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)
    async with (
        httpx2.AsyncClient(headers=behind.headers, timeout=timeout) as client,
        # A large result is what this is for: no event is too large.
        streamable_http_client(behind.url, http_client=client, max_sse_event_size=None) as streams,
    ):
        yield streams


@asynccontextmanager
async def _program(command: Sequence[str]) -> AsyncGenerator[Process]:
    """The server behind as a program, which has ended when the block is left.

    Not the SDK's `stdio_client`: the time that it takes for a line grows with its length squared.
    """
    name, *arguments = command
    try:
        found = get_windows_executable_command(name) if sys.platform == "win32" else name
        process = await anyio.open_process(
            [found, *arguments], stderr=sys.stderr, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"The server behind the proxy cannot be started by {name!r}: {error}. "
            "Give the absolute path of a program after --."
        ) from error
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: Process) -> None:
    """Close the input of a program, and stop the program if it does not end then."""
    if process.stdin is not None:
        await process.stdin.aclose()
    with anyio.move_on_after(_END_SECONDS):
        # A program that waits for its output to be read does not see that its input has ended.
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
    """The lines of a program's output; a long line is joined once, when its end is there."""
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
    """Where messages for a program go."""

    process: Process

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; nothing if the program has ended, which its output shows as well."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        if self.process.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self.process.stdin.send(text.encode() + b"\n")
