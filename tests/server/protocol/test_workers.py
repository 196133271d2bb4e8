"""Several processes serve one archive: any answers any call, and one that is killed is replaced."""

import os
import signal
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import pytest
from context_compaction.archive.local.archive import open_archive

from tests.server.helpers import Era, answer_of
from tests.server.http import Service, over_http, serving

pytestmark = pytest.mark.slow

AGENTS = 4
TURNS = 6


def _workers(service: Service) -> list[int]:
    """The processes that answer."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(service.process.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split(None, 1) for line in listed.stdout.splitlines()]
    return [int(pid) for pid, arguments in lines if "spawn_main" in arguments]


async def _say(service: Service, era: Era, session: str, text: str) -> None:
    """Hand in one message over a connection of its own, again where a worker died meanwhile."""
    arguments = {"session_id": session, "new_messages": [{"role": "user", "content": text}]}
    for attempt in range(10):
        try:
            async with over_http(service, mode="auto" if era == "modern" else "legacy") as client:
                answer_of(await client.call_tool("compact_messages", arguments))
                return
        except Exception:  # of the transport, the client, or a group of both
            if attempt == 9:
                raise


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_any_worker_answers_any_call_and_a_killed_one_is_replaced(
    era: Era, tmp_path: Path
) -> None:
    with serving(tmp_path, "--workers", "2") as service, anyio.fail_after(240):
        before = await anyio.to_thread.run_sync(_workers, service)
        assert len(before) == 2
        everybody_spoke = anyio.Event()
        said: dict[str, list[str]] = {f"agent-{number}": [] for number in range(AGENTS)}

        async def converse(session: str) -> None:
            for number in range(TURNS):
                await _say(service, era, session, f"{session} says {number}")
                said[session].append(f"{session} says {number}")
                if all(said.values()):
                    everybody_spoke.set()

        async with anyio.create_task_group() as group:
            for session in said:
                group.start_soon(converse, session)
            await everybody_spoke.wait()
            os.kill(before[0], signal.SIGKILL)
        async with open_archive(tmp_path / "archive") as archive:
            for session, texts in said.items():
                kept = await archive.read_messages(session, 0, 2 * TURNS)
                assert {message.raw["content"] for message in kept} == {*texts}
        await _say(service, era, "agent-0", "the last word")
        while before[0] in (after := _workers(service)) or len(after) < 2:
            await anyio.lowlevel.checkpoint()
        await _say(service, era, "agent-0", "to whoever is there")


async def test_a_worker_that_ends_before_it_is_ready_leaves_nothing_open(tmp_path: Path) -> None:
    def held() -> int:
        handles = Path(f"/proc/{service.process.pid}/fd").iterdir()
        return sum(one.is_socket() for one in handles)

    with serving(tmp_path, "--workers", "2") as service, anyio.fail_after(150):
        before = held()
        for _ in range(3):  # the second and the third are hardly started
            newest = _workers(service)[-1]
            os.kill(newest, signal.SIGKILL)
            while newest in _workers(service) or len(_workers(service)) < 2:
                await anyio.lowlevel.checkpoint()
        while held() > before:
            await _say(service, "modern", "agent", "to whoever is there")


async def test_each_worker_has_as_many_connections_and_one_that_replaces_another_gets_some(
    tmp_path: Path,
) -> None:
    def held() -> list[int]:
        """How many sockets each worker has open."""
        handles = [[*Path(f"/proc/{pid}/fd").iterdir()] for pid in _workers(service)]
        return [sum(one.is_socket() for one in those) for those in handles]

    with serving(tmp_path, "--workers", "2") as service, anyio.fail_after(150):
        address = urlsplit(service.url)
        async with AsyncExitStack() as connections:

            async def connect(count: int) -> list[int]:
                """Open so many connections; how many more sockets each worker has then."""
                before = held()
                for _ in range(count):
                    opening = anyio.connect_tcp(address.hostname or "", address.port or 0)
                    await connections.enter_async_context(await opening)
                while sum(now := held()) < sum(before) + count:
                    await anyio.lowlevel.checkpoint()
                return [after - one for one, after in zip(before, now, strict=True)]

            assert await connect(8) == [4, 4]
            first = _workers(service)[0]
            os.kill(first, signal.SIGKILL)
            while first in _workers(service) or len(_workers(service)) < 2:
                await anyio.lowlevel.checkpoint()
            await _say(service, "modern", "agent", "to whoever is there")
