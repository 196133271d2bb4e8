"""Measure the proxy before a model's API: added latency, memory, and the cost of long sessions.

Run: python benchmarks/proxy.py

The latency is the time from the start of a request to the first byte of the answer, of a provider
on loopback that answers at once, with and without the proxy. The list has about 1 MB and grows by
one call and its result at each request. The cost is simulated: each request pays 0.1 for tokens
that are a prefix of the last request, 1.25 for all others, and 5 for each token of the answer, with
4 bytes a token. So the prompt cache never expires. Tools and system prompt have 29,000 tokens, as
those of Claude Code.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import anyio
from context_compaction import CompactRequest, compact, open_archive

Json = dict[str, Any]
MEASURED = 40
OVERHEAD_BYTES = 4 * 29_000
ANSWER_TOKENS, SUMMARY_TOKENS = 120, 4_000
READ, WRITE, OUT = 0.1, 1.25, 5.0
# Claude Code compacts at its window minus 33,000 tokens.
HOST_TRIGGER_TOKENS = 200_000 - 33_000
# Defaults of Anthropic's clear_tool_uses_20250919.
CLEAR_TRIGGER_TOKENS, CLEAR_KEEP = 100_000, 3


def call_of(number: int) -> list[Json]:
    """Return a call and its result of 11.6 KB."""
    lines = (f"{number * 100 + line}: compiled module_{number}_{line} in {line * 7} ms; no warning"
             for line in range(200))  # fmt: skip
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash"}
    call = [
        {"type": "text", "text": f"Step {number}."},
        {**use, "input": {"command": f"make {number}"}},
    ]
    result = {
        "type": "tool_result",
        "tool_use_id": f"t{number}",
        "content": "\n".join(lines)[:11_600],
    }
    return [{"role": "assistant", "content": call}, {"role": "user", "content": [result]}]


def lists_of(calls: int) -> list[list[Json]]:
    """Return the list of each request of a session."""
    messages: list[Json] = [{"role": "user", "content": "Build everything and report problems."}]
    lists = [messages]
    for number in range(calls):
        messages = [*messages, *call_of(number)]
        lists.append(messages)
    return lists


def cost_of(sent: Sequence[Sequence[Json]], extra: float = 0.0) -> tuple[float, int]:
    """Return the cost in input tokens, and the tokens of the largest request."""
    before, cost, largest = b"", extra, 0
    for messages in sent:
        text = b"".join(json.dumps(message).encode() for message in messages)
        same = OVERHEAD_BYTES + _same_bytes(before, text) if before else 0
        total = OVERHEAD_BYTES + len(text)
        cost += (READ * same + WRITE * (total - same)) / 4 + OUT * ANSWER_TOKENS
        largest, before = max(largest, total // 4), text
    return cost, largest


def _same_bytes(before: bytes, after: bytes) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low


def tokens_of(messages: Sequence[Json]) -> int:
    return (OVERHEAD_BYTES + sum(len(json.dumps(message)) for message in messages)) // 4


def direct(lists: Sequence[list[Json]]) -> tuple[float, int]:
    """Return the cost if the host compacts itself by a summary of its own model."""
    sent, start, extra = list[list[Json]](), 0, 0.0
    summary = {"role": "user", "content": "x" * 4 * SUMMARY_TOKENS}
    for messages in lists:
        now = [summary, *messages[start:]] if start else messages
        if tokens_of(now) > HOST_TRIGGER_TOKENS:
            extra += READ * tokens_of(now) + OUT * SUMMARY_TOKENS
            start = len(messages) - 2
            now = [summary, *messages[start:]]
        sent.append(now)
    return cost_of(sent, extra)


def cleared(lists: Sequence[list[Json]]) -> tuple[float, int]:
    """Return the cost if the provider clears old tool results above its trigger."""
    sent = list[list[Json]]()
    for messages in lists:
        stop = len(messages) - 2 * CLEAR_KEEP if tokens_of(messages) > CLEAR_TRIGGER_TOKENS else 0
        sent.append([_without_result(m) if n < stop else m for n, m in enumerate(messages)])
    return cost_of(sent)


def _without_result(message: Json) -> Json:
    parts = message["content"]
    if isinstance(parts, str) or parts[0]["type"] != "tool_result":
        return message
    return {**message, "content": [{**parts[0], "content": "[cleared to save context]"}]}


async def proxied(lists: Sequence[list[Json]], window: int) -> tuple[float, int]:
    """Return the cost behind the proxy, which calls the library with each list."""
    sent = list[list[Json]]()
    with tempfile.TemporaryDirectory() as folder:
        async with open_archive(Path(folder)) as archive:
            for messages in lists:
                request = CompactRequest(
                    format="anthropic",
                    session_id="s",
                    model="claude-sonnet-4-5",
                    context_window=window,
                    max_output_tokens=32_000,
                    overhead_tokens=OVERHEAD_BYTES // 4,
                    usage={"input_tokens": tokens_of(sent[-1]), "output_tokens": 1}
                    if sent
                    else None,
                    usage_message_index=len(lists[len(sent) - 1]) if sent else None,
                    settings={"thinking": "keep"},
                )
                result = await compact(messages, request, archive=archive)
                sent.append(result.messages)
    return cost_of(sent)


class Provider(BaseHTTPRequestHandler):
    """Answers each request at once."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.rfile.read(size)
        body = b'{"usage": {"input_tokens": %d, "output_tokens": 5}}' % (size // 4)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def milliseconds(url: str, bodies: Sequence[bytes]) -> list[float]:
    """Return the time of each request."""
    times = list[float]()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    for body in bodies:
        headers = {"Content-Type": "application/json", "x-claude-code-session-id": "s"}
        started = time.perf_counter()
        connection.request("POST", "/v1/messages", body, headers)
        connection.getresponse().read()
        times.append((time.perf_counter() - started) * 1_000)
    connection.close()
    return times


def line_of(name: str, times: Sequence[float]) -> str:
    slow = statistics.quantiles(times, n=20)[18]
    return f"| {name} | {statistics.median(times):.0f} | {slow:.0f} |"


def measure_latency() -> None:
    """Print the latency with and without the proxy, and its memory and CPU time."""
    first = 1_000_000 // 11_900
    lists = lists_of(first + MEASURED)[first - 3 :]
    head = {"model": "claude-opus-4-8", "max_tokens": 8_000, "tools": [{"name": "Bash"}]}
    bodies = [json.dumps({**head, "messages": messages}).encode() for messages in lists]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    Thread(target=server.serve_forever, daemon=True).start()
    upstream = f"http://127.0.0.1:{server.server_port}"
    print("| requests of 1.0 to 1.5 MB | median, ms | p95, ms |\n|---|--:|--:|")
    print(line_of("without the proxy", milliseconds(upstream, bodies[4:])))
    memory = ""
    for name, window in (("not compacted", 1_000_000), ("compacted", 200_000)):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "mcp_server_compaction",
                "proxy",
                "--upstream",
                upstream,
            ]
            command += ["--context-window", str(window)]
            environment = {**os.environ, "MCP_COMPACTION_ARCHIVE": folder}
            process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            milliseconds(url, bodies[:4])
            before = _cpu_milliseconds(process.pid)
            print(line_of(f"with the proxy, {name}", milliseconds(url, bodies[4:])))
            cpu = (_cpu_milliseconds(process.pid) - before) / len(bodies[4:])
            status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
            rss = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
            memory += f"{name}: {int(rss) // 1024} MB, {cpu:.0f} ms of CPU a request. "
            process.terminate()
            process.wait()
    print(f"\n{memory}\n")


def _cpu_milliseconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


async def measure_cost() -> None:
    """Print the cost of sessions by each way."""
    print("| calls | way | cost, input tokens | of direct | largest request, tokens |")
    print("|--:|---|--:|--:|--:|")
    for calls in (20, 60, 200):
        lists = lists_of(calls)
        base = direct(lists)[0]
        ways: list[tuple[str, Callable[[], tuple[float, int]]]] = [
            ("direct, the host compacts at 167K", lambda lists=lists: direct(lists)),
            ("Anthropic's clearing edits, defaults", lambda lists=lists: cleared(lists)),
        ]
        rows = [(name, way()) for name, way in ways]
        windows = (160_000, 120_000)
        rows += [(f"proxy, window {size:,}", await proxied(lists, size)) for size in windows]
        for name, (cost, largest) in rows:
            print(f"| {calls} | {name} | {cost:,.0f} | {cost / base:.2f} | {largest:,} |")


if __name__ == "__main__":
    measure_latency()
    anyio.run(measure_cost)
