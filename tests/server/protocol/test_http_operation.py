"""The HTTP service in operation: termination, probes, workers, a missing archive."""

import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx2
import pytest
from anyio import to_thread
from context_compaction import Archive, ArchiveBusyError, open_archive
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp_server_compaction.access.principal import Principal, caller
from mcp_server_compaction.protocol import http_service
from mcp_server_compaction.protocol.deps import Changes
from mcp_server_compaction.protocol.http_listening import bind, on_one_address
from mcp_server_compaction.protocol.http_service import Readiness

from tests.server.helpers import Era, answer_of, conversation
from tests.server.http import Service, over_http, serving
from tests.server.protocol.test_http import call, served

AGENTS = 3
TURNS = 4


@pytest.mark.slow
@pytest.mark.posix("signals")
async def test_service_finishes_requests_and_closes_listeners_when_it_is_terminated(
    tmp_path: Path,
) -> None:
    arguments = {"session_id": "s", "messages": conversation(30, 200), "target_tokens": 20_000}
    listen = call("subscriptions/listen", "", notifications={"resourcesListChanged": True})
    compact = call("tools/call", "compact_messages", arguments=arguments)
    statuses: list[int] = []
    with serving(tmp_path) as service, anyio.fail_after(150):
        async with (
            httpx2.AsyncClient(headers=service.headers(), timeout=150) as http,
            anyio.create_task_group() as group,
        ):

            async def ask() -> None:
                statuses.append((await http.post(service.url, **compact)).status_code)

            async with http.stream("POST", service.url, **listen) as stream:
                lines_received = stream.aiter_lines()
                await anext(lines_received)  # it listens
                group.start_soon(ask)
                async for line in lines_received:
                    if "list_changed" in line:  # the call is about to be answered
                        break
                service.process.send_signal(signal.SIGTERM)
                with pytest.raises(httpx2.RemoteProtocolError):
                    async for _ in lines_received:
                        pass
        await to_thread.run_sync(service.process.wait, 150)
    assert statuses == [200]


async def test_probes_time_out_and_share_one_request_when_the_archive_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_service, "READINESS_SECONDS", 0.05)
    asked = 0
    responds_again = anyio.Event()

    async def hanging() -> Archive:
        nonlocal asked
        asked += 1
        await responds_again.wait()
        raise ArchiveBusyError("No connection became free.")

    checks = Readiness(hanging)
    with anyio.fail_after(150):
        async with checks.checking():
            assert [await checks.check() for _ in range(3)] == [False] * 3
            assert asked == 1
            responds_again.set()
            assert not await checks.check()  # it says that it is away
            assert asked <= 2


async def test_service_is_not_ready_when_the_archive_is_missing(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("no folder", encoding="ascii")
    async with served(tmp_path) as http:
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert str(tmp_path) not in answer.text  # anybody may ask that


async def test_tenant_without_listeners_uses_no_memory() -> None:
    def buses() -> int:
        gc.collect()
        return sum(isinstance(candidate, InMemorySubscriptionBus) for candidate in gc.get_objects())

    changes, before = Changes(), buses()
    for number in range(50):
        reset = caller.set(Principal(f"tenant-{number}", "robin", frozenset()))
        lines_received: list[object] = []
        leave, leave_too = (
            changes.bus.subscribe(lines_received.append),
            changes.bus.subscribe(lines_received.append),
        )
        leave()
        leave()
        await changes.updated("transcript://s")
        assert len(lines_received) == 1
        leave_too()
        caller.reset(reset)
    assert buses() <= before + 1  # the bus of the last tenant


@pytest.mark.slow
async def test_metrics_contain_stage_durations_and_archive_errors(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--metrics") as service, anyio.fail_after(150):
        async with httpx2.AsyncClient(headers=service.headers(), timeout=150) as http:
            arguments = {"session_id": "s", "messages": conversation(20), "target_tokens": 8_000}
            compact = call("tools/call", "compact_messages", arguments=arguments)
            assert (await http.post(service.url, **compact)).status_code == 200
            missing = call("tools/call", "read_persisted_output", arguments={"output_id": "o_0"})
            assert (await http.post(service.url, **missing)).json()["result"]["isError"]
            (tmp_path / "archive" / "sessions").rename(tmp_path / "archive" / "elsewhere")
            (tmp_path / "archive" / "sessions").write_text("no folder", encoding="ascii")
            arguments["session_id"] = "another"
            compact = call("tools/call", "compact_messages", arguments=arguments)
            assert (await http.post(service.url, **compact)).json()["result"]["isError"]
            text = (await http.get(f"{service.base}/metrics")).text
    for stage in ("wait", "read", "archive", "clear", "summarize", "save"):
        assert f'stage="{stage}"' in text
    errors = [line for line in text.splitlines() if "archive_errors_total{" in line]
    assert [line.rpartition(" ")[2] for line in errors] == ["1.0"]
    assert 'service_name="mcp-server-compaction"' in text


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


async def send_message(service: Service, era: Era, session: str, text: str) -> None:
    """Send one message over a new connection, again if a worker died meanwhile."""
    arguments = {"session_id": session, "new_messages": [{"role": "user", "content": text}]}
    for attempt in range(10):
        try:
            async with over_http(service, mode="auto" if era == "modern" else "legacy") as client:
                answer_of(await client.call_tool("compact_messages", arguments))
                return
        except Exception:  # of the transport, the client, or a group of both
            if attempt == 9:
                raise


@pytest.mark.slow
@pytest.mark.posix("several HTTP processes")
async def test_any_worker_handles_any_call_and_a_killed_worker_is_replaced(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--workers", "2") as service, anyio.fail_after(240):
        await send_message(service, "modern", "agent-0", "the first word")
        before = await to_thread.run_sync(_workers, service)
        assert len(before) == 2
        all_sent = anyio.Event()
        sent: dict[str, list[str]] = {f"agent-{number}": [] for number in range(AGENTS)}

        async def converse(session: str) -> None:
            for number in range(TURNS):
                era: Era = "legacy" if number % 2 else "modern"
                await send_message(service, era, session, f"{session} says {number}")
                sent[session].append(f"{session} says {number}")
                if all(sent.values()):
                    all_sent.set()

        async with anyio.create_task_group() as group:
            for session in sent:
                group.start_soon(converse, session)
            await all_sent.wait()
            os.kill(before[0], signal.SIGKILL)
        while before[0] in (after := _workers(service)) or len(after) < 2:
            await anyio.lowlevel.checkpoint()
        for number in range(4):
            await send_message(service, "legacy", "agent-0", f"last words {number}")
        async with open_archive(tmp_path / "archive") as archive:
            for session, texts in sent.items():
                stored = await archive.read_messages(session, 0, 100)
                assert {*texts} <= {message.raw["content"] for message in stored}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux divides connections")
def test_connections_are_divided_among_the_workers() -> None:
    listeners = on_one_address(bind("127.0.0.1", 0), 2)
    for listener in listeners:
        listener.listen(64)
        listener.setblocking(False)
    address = listeners[0].getsockname()
    streams = [socket.create_connection(address) for _ in range(40)]
    for listener in listeners:
        streams += [listener.accept()[0] for _ in range(5)]
    for stream in [*streams, *listeners]:
        stream.close()
