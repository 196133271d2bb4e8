"""Many callers of the HTTP service at once, with one process and with several.

Run: python benchmarks/http_load.py [--sessions 64] [--turns 100] [--tokens 50000] [--workers 1 2 4]

Each session is a caller of its own that hands over its whole list, a turn longer at each call; all
of them call at the same time. Then some callers make small calls, alone and beside one that has
lists of five million tokens compacted. Latencies are wall times, as callers feel them.

The callers are on the same cores. They send bytes that were made before, read no more of an answer
than its head and its size, and their CPU is taken off: the share is what the service's processes
used of what the callers left. "By single calls" is the same with the CPU that a call of one session
costs whose caller is alone. "By the same calls" takes what these very calls cost when one caller
makes them, one after the other, the sessions in turn, over a new archive: each session has its dear
first call there too, and lists as long, so that what is missing from the share of the cores is what
load itself costs.
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
SINGLE_CALLS = 40


def turn(session: int, number: int, chars: int) -> bytes:
    """A call with its result of about `chars` characters; no two are alike."""
    at = (session * 31 + number * 7) % len(WORDS)
    words = " ".join([*WORDS[at:], *WORDS[:at]])
    text = f"{session}/{number} " + (words * (chars // len(words) + 1))[:chars]
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    messages = ({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]})
    return b",".join(json.dumps(message).encode() for message in messages)


def listed(session: int, tokens: int) -> bytes:
    """A list of about `tokens` tokens, without its brackets."""
    begun = json.dumps({"role": "user", "content": f"Begin session {session}."}).encode()
    turns = [turn(session, number, 3_600) for number in range(max(tokens // 1_000, 1))]
    return b",".join([begun, *turns])


def compact_body(session: str, messages: bytes, **arguments: Any) -> bytes:
    """The request that has a list compacted."""
    given: dict[str, Any] = {"session_id": session, "messages": [], **arguments}
    params: dict[str, Any] = {"name": "compact_messages", "arguments": given, "_meta": META}
    request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(request).encode().replace(b'"messages": []', b'"messages": [%b]' % messages)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A list that grows by a turn at each call.

    Attributes:
        name: Its session.
        whole: The list when all turns are in it.
        stops: Where it ends at each call.
    """

    name: str
    whole: bytes
    stops: Sequence[int]

    def body(self, number: int) -> bytes:
        """The request of one call."""
        return compact_body(self.name, self.whole[: self.stops[number]])


def conversation(session: int, turns: int, tokens: int) -> Conversation:
    begun = listed(session, tokens)
    more = [b"," + turn(session, 10_000 + number, TURN_CHARS) for number in range(turns)]
    stops = [*accumulate(map(len, more), initial=len(begun))][1:]
    return Conversation(f"load-{session}", b"".join([begun, *more]), stops)


@contextmanager
def serving(folder: Path, workers: int) -> Generator[tuple[str, str, int]]:
    """A service over a new archive: its address, its token and its process."""
    environment = {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(folder / "archive"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    more = ["--workers", str(workers)] if workers > 1 else []
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_server_compaction", "serve", "--http", "--port", "0", *more],
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
    """What the processes of a session have used."""
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
    """One connection, on which one call follows another."""

    def __init__(self, stream: SocketStream, head: str) -> None:
        self._stream = stream
        self._answers = BufferedByteReceiveStream(stream)
        self._head = head

    async def call(self, body: bytes) -> float:
        """Seconds until the answer was there, whole and no error."""
        began = time.perf_counter()
        await self._stream.send(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode())
        await self._stream.send(body)
        head = (await self._answers.receive_until(b"\r\n\r\n", 65_536)).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        answer = await self._body(headers)
        is_wrong = b'"isError":true' in answer or b'"error":' in answer[:60]
        if head.split()[1] != "200" or is_wrong:
            raise RuntimeError(head + answer[:500].decode())
        return time.perf_counter() - began

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if "content-length" in headers:
            return await self._answers.receive_exactly(int(headers["content-length"]))
        pieces: list[bytes] = []  # a call that took more than 15 seconds is answered as a stream
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
    lines = [f"POST {parts.path} HTTP/1.1", *(f"{name}: {said}" for name, said in headers.items())]
    async with await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as stream:
        yield Caller(stream, "".join(f"{line}\r\n" for line in lines))


async def grown_lists(
    url: str, token: str, conversations: Sequence[Conversation]
) -> list[list[float]]:
    """Every session hands over its list, a turn longer each time; the seconds of each's calls."""
    taken: list[list[float]] = [[] for _ in conversations]

    async def converse(given: Conversation, seconds: list[float]) -> None:
        async with caller(url, token) as one:
            numbers = range(len(given.stops))
            seconds += [await one.call(given.body(number)) for number in numbers]

    async with anyio.create_task_group() as group:
        for given, seconds in zip(conversations, taken, strict=True):
            group.start_soon(converse, given, seconds)
    return taken


async def small_calls(url: str, token: str, count: int, callers: int = 8) -> list[float]:
    """Calls of 2,000 characters, each the one list of its session; the seconds of each."""
    taken: list[float] = []

    async def ask(number: int) -> None:
        nonlocal taken
        bodies = [
            compact_body(f"small-{number}", turn(number, turn_number, 2_000))
            for turn_number in range(count // callers)
        ]
        async with caller(url, token) as one:
            taken += [await one.call(body) for body in bodies]

    async with anyio.create_task_group() as group:
        for number in range(callers):
            group.start_soon(ask, number)
    return taken


async def beside_large(url: str, token: str, count: int, body: bytes) -> tuple[list[float], float]:
    """Small calls while large lists are compacted; and what the first of those took."""
    large: list[float] = []
    taken: list[float] = []
    async with caller(url, token) as one, anyio.create_task_group() as group:

        async def work() -> None:
            while True:
                large.append(await one.call(body))

        group.start_soon(work)
        await anyio.sleep(1)  # the large list is on its way
        while not large:
            taken += await small_calls(url, token, count)
        group.cancel_scope.cancel()
    return taken, large[0]


async def single_call_seconds(url: str, token: str, group: int, tokens: int) -> float:
    """The CPU of a call that a caller makes when no other does."""
    alone = conversation(1_000, SINGLE_CALLS + 1, tokens)
    async with caller(url, token) as one:
        await one.call(alone.body(0))
        used = cpu_seconds(group)
        for number in range(SINGLE_CALLS):
            await one.call(alone.body(number + 1))
    return (cpu_seconds(group) - used) / SINGLE_CALLS


async def same_call_seconds(
    url: str, token: str, group: int, conversations: Sequence[Conversation]
) -> float:
    """The CPU of a call when one caller makes those of all sessions, these in turn."""
    turns = len(conversations[0].stops)
    used = cpu_seconds(group)
    async with caller(url, token) as one:
        for number, given in product(range(turns), conversations):
            await one.call(given.body(number))
    return (cpu_seconds(group) - used) / (turns * len(conversations))


def ms(seconds: Sequence[float], part: float) -> float:
    return sorted(seconds)[int(part * (len(seconds) - 1))] * 1e3


async def measure(arguments: argparse.Namespace, workers: int) -> None:
    conversations = [
        conversation(session, arguments.turns, arguments.tokens)
        for session in range(arguments.sessions)
    ]
    with TemporaryDirectory() as temporary, serving(Path(temporary), workers) as (url, token, pid):
        same = await same_call_seconds(url, token, pid, conversations)
    large = compact_body("large", listed(999, arguments.large_tokens), target_tokens=100_000)
    with TemporaryDirectory() as temporary, serving(Path(temporary), workers) as (url, token, pid):
        single = await single_call_seconds(url, token, pid, arguments.tokens)
        used, own, began = cpu_seconds(pid), time.process_time(), time.perf_counter()
        by_session = await grown_lists(url, token, conversations)
        wall = time.perf_counter() - began
        left = wall * CORES - (time.process_time() - own)
        used = cpu_seconds(pid) - used
        taken = [seconds for session in by_session for seconds in session]
        first, p50, p99 = max(one[0] for one in by_session), ms(taken, 0.5), ms(taken, 0.99)
        print(
            f"| {workers} | {len(taken) / wall:.0f} |"
            f" {single * 1e3:.1f} / {same * 1e3:.1f} / {used / len(taken) * 1e3:.1f} |"
            f" {p50:.0f} | {p99:.0f} | {p99 / p50:.1f} | {first * 1e3:.0f} | {used / left:.2f} |"
            f" {len(taken) * single / left:.2f} | {len(taken) * same / left:.2f} |",
            end="",
            flush=True,
        )
        alone = await small_calls(url, token, arguments.small)
        beside, seconds = await beside_large(url, token, arguments.small, large)
        print(
            f" {ms(alone, 0.5):.0f} / {ms(alone, 0.99):.0f} |"
            f" {ms(beside, 0.5):.0f} / {ms(beside, 0.99):.0f} |"
            f" {ms(beside, 0.99) / ms(alone, 0.99):.1f} | {seconds:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--small", type=int, default=400)
    parser.add_argument("--large-tokens", type=int, default=5_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, CORES, 2 * CORES])
    arguments = parser.parse_args()
    print(
        f"{arguments.sessions} sessions, {arguments.turns} turns each, lists from"
        f" {arguments.tokens} tokens; {CORES} cores, load {os.getloadavg()[0]:.1f}\n\n"
        "| workers | calls a second | CPU ms alone / the same calls / loaded |"
        " p50 ms | p99 ms | p99 / p50 |"
        " slowest first call | share of the cores | by single calls | by the same calls |"
        " small calls p50 / p99 ms | beside a large one | p99 × | large call s |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for workers in arguments.workers:
        anyio.run(measure, arguments, workers)


if __name__ == "__main__":
    main()
