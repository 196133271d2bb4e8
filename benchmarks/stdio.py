"""What a call over stdio costs the server's process, beside a bare server of the SDK in one run.

    python benchmarks/stdio.py [CALLS]

CPU of the server's process (Linux), threads included, medians; a list of 200K tokens. The bare
server has one tool that takes the list and gives its length, and one that says a word again.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.synthetic import synthetic_session

TOKENS = 200_000
DEFAULT_CALLS = 9
REST_SECONDS = 1.0  # between the greeting and the first call
MOST_REST_SECONDS = 30.0
MAX_SAME = 1.5  # times the bare server that takes the list
MAX_DELTA = 3.0  # times a trivial call
MAX_FIRST_SECONDS = 0.1
# Below its trigger throughout; a session for the calls with the list, one for those without.
SAME, DELTA = ({"context_window": 4_000_000, "session_id": name} for name in ("same", "delta"))

BARE_SERVER = """
from typing import Any
from mcp.server import MCPServer

server = MCPServer("bare")

@server.tool()
def take(messages: list[dict[str, Any]]) -> int:
    '''The length of a list.'''
    return len(messages)

@server.tool()
def echo(text: str) -> str:
    '''Say it again.'''
    return text

server.run("stdio")
"""
BARE = [sys.executable, "-c", BARE_SERVER]
OWN = [sys.executable, "-m", "mcp_server_compaction", "--import-sessions", "off"]


class Server:
    """One process, spoken to in lines."""

    def __init__(self, command: Sequence[str], archive: str) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MCP_COMPACTION_ARCHIVE": archive},
        )
        self._clock = (~self._process.pid << 3) | 2  # what clock_getcpuclockid(3) gives for it
        self._calls = 0
        greeting = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "1"},
        }
        self.ask("initialize", greeting)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[float, float, int]:
        """CPU and wall-clock seconds of a call, and the bytes of its answer."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def ask(self, method: str, params: Mapping[str, Any]) -> tuple[float, float, int]:
        """The same for any request."""
        self._calls += 1
        request = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}
        cpu, wall = time.clock_gettime(self._clock), time.perf_counter()
        self._send(request)
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            answer = json.loads(line)
            if answer.get("id") == self._calls:
                break
        assert not answer["result"].get("isError"), line[:1_000]
        wall = time.perf_counter() - wall
        return time.clock_gettime(self._clock) - cpu, wall, len(line)

    def rest(self) -> float:
        """Seconds until it has nothing to do: `REST_SECONDS`, more where the machine is busy."""
        began = time.perf_counter()
        time.sleep(REST_SECONDS)
        used = -1.0
        while time.perf_counter() - began < MOST_REST_SECONDS:
            before, used = used, time.clock_gettime(self._clock)
            if before == used:
                break
            time.sleep(0.1)
        return time.perf_counter() - began

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def measure(calls: int, payload: list[dict[str, Any]]) -> dict[str, float]:
    """Milliseconds of CPU; of the first call wall-clock too."""
    cpu: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        bare, own = Server(BARE, folder), Server(OWN, f"{folder}/archive")
        try:
            rested = own.rest()
            small = {"messages": payload[:2], "session_id": "first", "reply": "receipt"}
            first_cpu, first_wall, _ = own.call("compact_messages", small)
            for _ in range(2):  # fills what is remembered
                bare.call("take", {"messages": payload})
                own.call("compact_messages", {"messages": payload, **SAME})
            own.call("compact_messages", {"messages": payload, **DELTA})
            more = [{"role": "user", "content": "And the next file, please."}]
            size = 0
            for _ in range(calls):
                rows = {
                    "bare, a word": bare.call("echo", {"text": "word"}),
                    "bare, the list": bare.call("take", {"messages": payload}),
                    "same list": own.call("compact_messages", {"messages": payload, **SAME}),
                    "delta": own.call("compact_messages", {"new_messages": more, **DELTA}),
                }
                for name, row in rows.items():
                    cpu.setdefault(name, []).append(row[0])
                size = max(size, rows["same list"][2])
        finally:
            bare.stop()
            own.stop()
    figures = {name: statistics.median(values) * 1000 for name, values in cpu.items()}
    return {
        **figures,
        "rested before, s": rested,
        "first call": first_cpu * 1000,
        "first call, wall": first_wall * 1000,
        "bytes of an answer": size,
    }


def main() -> int:
    """Measure, print, and exit with 1 where a limit is broken."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_CALLS
    found = measure(calls, synthetic_session(TOKENS, seed=7))
    for name, figure in found.items():
        print(f"{name:<20}{figure:>10.1f}")
    same = found["same list"] / found["bare, the list"]
    delta = found["delta"] / found["bare, a word"]
    print(f"same list {same:.2f} x the bare server that takes it (limit {MAX_SAME})")
    print(f"delta {delta:.2f} x a trivial call (limit {MAX_DELTA})")
    is_within = same <= MAX_SAME and delta <= MAX_DELTA
    return 0 if is_within and found["first call"] <= MAX_FIRST_SECONDS * 1000 else 1


if __name__ == "__main__":
    sys.exit(main())
