"""Many callers of the HTTP service at once, with one process and with several.

Run: python benchmarks/http_load.py [--sessions 64] [--turns 100] [--tokens 50000] [--workers 2]

Each session is a caller of its own that hands over its whole list, a turn longer at each call; all
of them call at the same time. Then some callers make small calls, alone and beside one that has
lists of five million tokens compacted. Latencies are wall times, as callers feel them; the share
of the cores is that of the service's processes.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import httpx2

CORES = len(os.sched_getaffinity(0))
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "http_load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
WORDS = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8").split()


def turn(session: int, number: int, chars: int) -> list[dict[str, Any]]:
    """A call with its result of about `chars` characters; no two are alike."""
    at = (session * 31 + number * 7) % len(WORDS)
    words = " ".join([*WORDS[at:], *WORDS[:at]])
    text = f"{session}/{number} " + (words * (chars // len(words) + 1))[:chars]
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def listed(session: int, tokens: int) -> list[bytes]:
    """A list of about `tokens` tokens, message by message."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Begin session {session}."}]
    for number in range(max(tokens // 1_000, 1)):
        messages += turn(session, number, 3_600)
    return [json.dumps(message).encode() for message in messages]


def call_body(name: str, **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments, "_meta": META}
    return json.dumps({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": params,
    }).encode()


def compact_body(session: str, messages: Sequence[bytes], **arguments: Any) -> bytes:
    body = call_body("compact_messages", session_id=session, messages=[], **arguments)
    return body.replace(b'"messages": []', b'"messages": [' + b",".join(messages) + b"]")


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


@asynccontextmanager
async def caller(url: str, token: str) -> AsyncGenerator[Any]:
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
    }
    async with httpx2.AsyncClient(headers=headers, timeout=600) as http:

        async def call(tool: str, body: bytes) -> float:
            """Seconds until the answer was there, whole and no error."""
            began = time.perf_counter()
            while True:
                answer = await http.post(url, content=body, headers={"Mcp-Name": tool})
                if answer.status_code != 429:
                    break
                await anyio.sleep(float(answer.headers["Retry-After"]))
            answer.raise_for_status()
            is_wrong = b'"isError":true' in answer.content or b'"error":' in answer.content[:60]
            if is_wrong:
                raise RuntimeError(answer.text[:500])
            return time.perf_counter() - began

        yield call


async def grown_lists(url: str, token: str, sessions: int, turns: int, tokens: int) -> list[float]:
    """Every session hands over its list, a turn longer each time; the seconds of each call."""
    taken: list[float] = []

    async def converse(session: int) -> None:
        messages = listed(session, tokens)
        async with caller(url, token) as call:
            for number in range(turns):
                messages += [json.dumps(m).encode() for m in turn(session, 10_000 + number, 300)]
                body = compact_body(f"load-{session}", messages)
                taken.append(await call("compact_messages", body))

    async with anyio.create_task_group() as group:
        for session in range(sessions):
            group.start_soon(converse, session)
    return taken


async def small_calls(url: str, token: str, count: int, callers: int = 8) -> list[float]:
    taken: list[float] = []

    async def ask(number: int) -> None:
        async with caller(url, token) as call:
            for turn_number in range(count // callers):
                text = turn(number, turn_number, 2_000)
                body = compact_body(f"small-{number}", [json.dumps(m).encode() for m in text])
                taken.append(await call("compact_messages", body))

    async with anyio.create_task_group() as group:
        for number in range(callers):
            group.start_soon(ask, number)
    return taken


async def beside_large(url: str, token: str, count: int, tokens: int) -> tuple[list[float], float]:
    """Small calls while lists of `tokens` tokens are compacted; and what the last of those took."""
    body = compact_body("large", listed(999, tokens), target_tokens=100_000)
    large: list[float] = []
    taken: list[float] = []
    async with caller(url, token) as call, anyio.create_task_group() as group:

        async def work() -> None:
            while True:
                large.append(await call("compact_messages", body))

        group.start_soon(work)
        await anyio.sleep(1)  # the large list is on its way
        while not large:
            taken += await small_calls(url, token, count)
        group.cancel_scope.cancel()
    return taken, large[0]


def ms(seconds: Sequence[float], part: float) -> float:
    return sorted(seconds)[int(part * (len(seconds) - 1))] * 1e3


async def measure(arguments: argparse.Namespace, workers: int) -> None:
    with TemporaryDirectory() as temporary, serving(Path(temporary), workers) as (url, token, pid):
        async with caller(url, token) as call:
            await call("compact_messages", compact_body("warm", listed(0, 1_000)))
        used, began = cpu_seconds(pid), time.perf_counter()
        taken = await grown_lists(url, token, arguments.sessions, arguments.turns, arguments.tokens)
        wall = time.perf_counter() - began
        share = (cpu_seconds(pid) - used) / wall / CORES
        p50, p99 = ms(taken, 0.5), ms(taken, 0.99)
        print(
            f"| {workers} | {len(taken) / wall:.0f} | {p50:.0f} | {p99:.0f} | {p99 / p50:.1f} |"
            f" {share:.2f} |",
            end="",
            flush=True,
        )
        alone = await small_calls(url, token, arguments.small)
        beside, large = await beside_large(url, token, arguments.small, arguments.large_tokens)
        print(
            f" {ms(alone, 0.5):.0f} / {ms(alone, 0.99):.0f} |"
            f" {ms(beside, 0.5):.0f} / {ms(beside, 0.99):.0f} |"
            f" {ms(beside, 0.99) / ms(alone, 0.99):.1f} | {large:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--small", type=int, default=400)
    parser.add_argument("--large-tokens", type=int, default=5_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    print(
        f"{arguments.sessions} sessions, {arguments.turns} turns each, lists from"
        f" {arguments.tokens} tokens; {CORES} cores, load {os.getloadavg()[0]:.1f}\n\n"
        "| workers | calls a second | p50 ms | p99 ms | p99 / p50 | share of the cores |"
        " small calls p50 / p99 ms | beside a large one | p99 × | large call s |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for workers in arguments.workers:
        anyio.run(measure, arguments, workers)


if __name__ == "__main__":
    main()
