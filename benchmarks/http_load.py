"""Measure the HTTP service under many simultaneous callers, with one process and with several.

Run: python benchmarks/http_load.py [--sessions 64] [--turns 100] [--tokens 50000] [--workers 1 2 4]

Each session has a caller that sends its whole list, which grows by a turn with each call. All
callers call simultaneously. Then eight callers make small calls, first alone and then during the
compaction of a list of five million tokens. Latencies are wall times.

The callers share the cores with the service, so they send prepared bytes and do not parse replies.
Columns of the table:

- CPU: milliseconds of the service for one call, when one caller makes these calls one after
  another, and under load.
- share of the cores: CPU of the service divided by the CPU that the callers did not use.
- useful share: the share if each call under load had the cost of a single caller.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

CORES = len(os.sched_getaffinity(0))
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "http_load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
WORDS = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8").split()
TURN_CHARS = 300
SMALL_CALLERS = 8


def turn(session: int, number: int, chars: int) -> bytes:
    """Return a tool call and its result of about `chars` characters, different for each turn."""
    first = (session * 31 + number * 7) % len(WORDS)
    words = " ".join([*WORDS[first:], *WORDS[:first]])
    text = f"{session}/{number} " + (words * (chars // len(words) + 1))[:chars]
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    messages = ({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]})
    return b",".join(json.dumps(message).encode() for message in messages)


def message_list(session: int, tokens: int) -> bytes:
    """Return a JSON list of about `tokens` tokens without its brackets."""
    start = json.dumps({"role": "user", "content": f"Begin session {session}."}).encode()
    turns = [turn(session, number, 3_600) for number in range(max(tokens // 1_000, 1))]
    return b",".join([start, *turns])


def compact_body(session: str, messages: bytes, **arguments: Any) -> bytes:
    """Return the body of a request to compact `messages`."""
    fields: dict[str, Any] = {"session_id": session, "messages": [], **arguments}
    params: dict[str, Any] = {"name": "compact_messages", "arguments": fields, "_meta": META}
    request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(request).encode().replace(b'"messages": []', b'"messages": [%b]' % messages)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A message list that grows by a turn with each call.

    Attributes:
        session_id: ID of the session.
        data: JSON of the list with all turns.
        stops: Number of bytes of `data` that each call sends.
    """

    session_id: str
    data: bytes
    stops: Sequence[int]

    def body(self, number: int) -> bytes:
        """Return the body of request `number`."""
        return compact_body(self.session_id, self.data[: self.stops[number]])


def conversation(session: int, turns: int, tokens: int) -> Conversation:
    start = message_list(session, tokens)
    additions = [b"," + turn(session, 10_000 + number, TURN_CHARS) for number in range(turns)]
    stops = [*accumulate(map(len, additions), initial=len(start))][1:]
    return Conversation(f"load-{session}", b"".join([start, *additions]), stops)


@contextmanager
def serving(folder: Path, workers: int) -> Generator[tuple[str, str, int]]:
    """Start a service with a new archive; yield its URL, its access token and its process ID."""
    environment = {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(folder / "archive"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    options = ["--workers", str(workers)] if workers > 1 else []
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_server_compaction", "serve", "--http", "--port", "0", *options],
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        url = process.stderr.readline().removeprefix("Serving on ").strip()
        token = (folder / "archive" / "http-token").read_text(encoding="ascii").strip()
        yield url, token, process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def cpu_seconds(group: int) -> float:
    """Return the CPU seconds of all live processes in the process session `group`."""
    total = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == group:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Caller:
    """A connection for calls one after another."""

    def __init__(self, stream: SocketStream, head: str) -> None:
        self._stream = stream
        self._answers = BufferedByteReceiveStream(stream)
        self._head = head

    async def call(self, body: bytes) -> float:
        """Send one request and return the seconds until its reply was complete.

        Raises:
            RuntimeError: If the reply is an error.
        """
        began = time.perf_counter()
        await self._stream.send(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode())
        await self._stream.send(body)
        head = (await self._answers.receive_until(b"\r\n\r\n", 65_536)).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        reply = await self._body(headers)
        is_error = b'"isError":true' in reply or b'"error":' in reply[:60]
        if head.split()[1] != "200" or is_error:
            raise RuntimeError(head + reply[:500].decode())
        return time.perf_counter() - began

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if "content-length" in headers:
            return await self._answers.receive_exactly(int(headers["content-length"]))
        pieces: list[bytes] = []  # the service streams a reply that takes more than 15 seconds
        while size := int(await self._answers.receive_until(b"\r\n", 20), 16):
            pieces.append((await self._answers.receive_exactly(size + 2))[:-2])
        await self._answers.receive_exactly(2)
        return b"".join(pieces)


@asynccontextmanager
async def caller(url: str, token: str) -> AsyncGenerator[Caller]:
    parts = urlsplit(url)
    headers = {
        "Host": parts.netloc,
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "compact_messages",
    }
    lines = [f"POST {parts.path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    async with await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as stream:
        yield Caller(stream, "".join(f"{line}\r\n" for line in lines))


async def grown_lists(
    url: str, token: str, conversations: Sequence[Conversation]
) -> list[list[float]]:
    """Make the calls of all sessions simultaneously; return the seconds of each session's."""
    seconds_by_session: list[list[float]] = [[] for _ in conversations]

    async def converse(conversation: Conversation, seconds: list[float]) -> None:
        async with caller(url, token) as connection:
            numbers = range(len(conversation.stops))
            seconds += [await connection.call(conversation.body(number)) for number in numbers]

    async with anyio.create_task_group() as group:
        for conversation, seconds in zip(conversations, seconds_by_session, strict=True):
            group.start_soon(converse, conversation, seconds)
    return seconds_by_session


async def small_calls(url: str, token: str, count: int) -> list[float]:
    """Make `count` calls of 2,000 characters in eight sessions; return the seconds of each."""
    seconds: list[float] = []

    async def ask(number: int) -> None:
        bodies = [
            compact_body(f"small-{number}", turn(number, turn_number, 2_000))
            for turn_number in range(count // SMALL_CALLERS)
        ]
        async with caller(url, token) as connection:
            seconds.extend([await connection.call(body) for body in bodies])

    async with anyio.create_task_group() as group:
        for number in range(SMALL_CALLERS):
            group.start_soon(ask, number)
    return seconds


async def during_large_call(
    url: str, token: str, count: int, body: bytes
) -> tuple[list[float], float]:
    """Make small calls during a large compaction; return the seconds of each, and of the large."""
    large: list[float] = []
    seconds: list[float] = []
    async with caller(url, token) as connection, anyio.create_task_group() as group:

        async def compact_large() -> None:
            while True:
                large.append(await connection.call(body))

        group.start_soon(compact_large)
        await anyio.sleep(1)  # because sending the large list takes time
        while not large:
            seconds += await small_calls(url, token, count)
        group.cancel_scope.cancel()
    return seconds, large[0]


async def single_caller_seconds(
    url: str, token: str, group: int, conversations: Sequence[Conversation]
) -> float:
    """Return the mean CPU seconds of a call if one caller makes all sessions' calls in turn."""
    turns = len(conversations[0].stops)
    before = cpu_seconds(group)
    async with caller(url, token) as connection:
        for number, conversation in product(range(turns), conversations):
            await connection.call(conversation.body(number))
    return (cpu_seconds(group) - before) / (turns * len(conversations))


def percentile_ms(seconds: Sequence[float], share: float) -> float:
    """Return a percentile of `seconds` in milliseconds."""
    return sorted(seconds)[int(share * (len(seconds) - 1))] * 1e3


async def measure(options: argparse.Namespace, workers: int) -> None:
    """Print the table row of a service with `workers` processes."""
    conversations = [
        conversation(session, options.turns, options.tokens) for session in range(options.sessions)
    ]
    with TemporaryDirectory() as temporary, serving(Path(temporary), workers) as (url, token, pid):
        single = await single_caller_seconds(url, token, pid, conversations)
    large = compact_body("large", message_list(999, options.large_tokens), target_tokens=100_000)
    with TemporaryDirectory() as temporary, serving(Path(temporary), workers) as (url, token, pid):
        before, callers_before, start = cpu_seconds(pid), time.process_time(), time.perf_counter()
        by_session = await grown_lists(url, token, conversations)
        wall = time.perf_counter() - start
        free = wall * CORES - (time.process_time() - callers_before)
        used = cpu_seconds(pid) - before
        seconds = [value for session in by_session for value in session]
        first_ms = max(session[0] for session in by_session) * 1e3
        p50, p99 = percentile_ms(seconds, 0.5), percentile_ms(seconds, 0.99)
        print(
            f"| {workers} | {len(seconds) / wall:.0f} |"
            f" {single * 1e3:.1f} / {used / len(seconds) * 1e3:.1f} |"
            f" {p50:.0f} | {p99:.0f} | {p99 / p50:.1f} | {first_ms:.0f} | {used / free:.2f} |"
            f" {len(seconds) * single / free:.2f} |",
            end="",
            flush=True,
        )
        alone = await small_calls(url, token, options.small)
        crowded, large_seconds = await during_large_call(url, token, options.small, large)
        print(
            f" {percentile_ms(alone, 0.5):.0f} / {percentile_ms(alone, 0.99):.0f} |"
            f" {percentile_ms(crowded, 0.5):.0f} / {percentile_ms(crowded, 0.99):.0f} |"
            f" {percentile_ms(crowded, 0.99) / percentile_ms(alone, 0.99):.1f} |"
            f" {large_seconds:.1f} |"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--small", type=int, default=400)
    parser.add_argument("--large-tokens", type=int, default=5_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, CORES, 2 * CORES])
    options = parser.parse_args()
    print(
        f"{options.sessions} sessions, {options.turns} turns each, lists from"
        f" {options.tokens} tokens; {CORES} cores, load {os.getloadavg()[0]:.1f}\n\n"
        "| processes | calls a second | CPU ms single caller / under load |"
        " p50 ms | p99 ms | p99 / p50 | slowest first call | share of the cores | useful share |"
        " small calls p50 / p99 ms | during a large call | p99 × | large call s |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for workers in options.workers:
        anyio.run(measure, options, workers)


if __name__ == "__main__":
    main()
