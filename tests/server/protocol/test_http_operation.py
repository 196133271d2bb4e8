"""A service in operation: told to end, asked whether it is ready, with an archive that is away."""

import gc
import signal
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from context_compaction.archive import Archive
from context_compaction.errors import ArchiveBusyError
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp_server_compaction.access.principal import Principal, caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.operations import readiness
from mcp_server_compaction.operations.readiness import Readiness
from mcp_server_compaction.protocol.http_gate import Names
from mcp_server_compaction.protocol.http_service import Service, http_app
from mcp_server_compaction.protocol.notifications import Changes

from tests.server.helpers import conversation
from tests.server.http import serving
from tests.server.protocol.test_many_callers import META, VERSION


def _call(method: str, name: str, **params: Any) -> dict[str, Any]:
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    headers |= {"Accept": "application/json, text/event-stream"} | (
        {"Mcp-Name": name} if name else {}
    )
    named = {"name": name} if name else {}
    given = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {**named, **params, "_meta": META},
    }
    return {"json": given, "headers": headers}


@pytest.mark.slow
async def test_a_service_that_is_told_to_end_answers_what_it_has_and_waits_for_no_listener(
    tmp_path: Path,
) -> None:
    arguments = {"session_id": "s", "messages": conversation(60, 400), "target_tokens": 20_000}
    listen = _call("subscriptions/listen", "", notifications={"resourcesListChanged": True})
    compact = _call("tools/call", "compact_messages", arguments=arguments)
    statuses: list[int] = []
    with serving(tmp_path) as service, anyio.fail_after(150):
        async with (
            httpx2.AsyncClient(headers=service.headers(), timeout=150) as http,
            anyio.create_task_group() as group,
        ):

            async def ask() -> None:
                statuses.append((await http.post(service.url, **compact)).status_code)

            async with http.stream("POST", service.url, **listen) as stream:
                heard = stream.aiter_lines()
                await anext(heard)  # it listens
                group.start_soon(ask)
                async for line in heard:
                    if "list_changed" in line:  # the call is about to be answered
                        break
                service.process.send_signal(signal.SIGTERM)
                with pytest.raises(httpx2.RemoteProtocolError):
                    async for _ in heard:
                        pass
        await to_thread.run_sync(service.process.wait, 20)
    assert statuses == [200]


async def test_an_archive_that_hangs_makes_no_probe_wait_and_is_asked_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "ANSWER_SECONDS", 0.05)
    asked = 0
    comes_back = anyio.Event()

    async def hanging() -> Archive:
        nonlocal asked
        asked += 1
        await comes_back.wait()
        raise ArchiveBusyError("No connection became free.")

    checks = Readiness(hanging)
    with anyio.fail_after(150):
        async with checks.checking():
            assert [await checks.check() for _ in range(3)] == [False] * 3
            assert asked == 1
            comes_back.set()
            assert not await checks.check()  # it says that it is away
            assert asked <= 2


async def test_an_upload_into_an_archive_that_is_away_is_to_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("no folder", encoding="ascii")
    app = http_app(Config(archive_folder=tmp_path / "archive"), Service(), Names(None), None)
    transport = httpx2.ASGITransport(app=app)
    inner: Any = app
    async with (
        inner._app.router.lifespan_context(inner._app),
        httpx2.AsyncClient(transport=transport, base_url="http://local") as http,
    ):
        answers = [
            await http.post("/upload/outputs", content=b"text"),
            await http.get("/readyz"),
        ]
    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
    assert str(tmp_path) not in answers[1].text  # anybody may ask that


async def test_a_tenant_whose_listeners_are_gone_is_forgotten() -> None:
    def buses() -> int:
        gc.collect()
        return sum(isinstance(one, InMemorySubscriptionBus) for one in gc.get_objects())

    changes, before = Changes(), buses()
    for number in range(50):
        reset = caller.set(Principal(f"tenant-{number}", "robin", frozenset()))
        heard: list[object] = []
        leave, leave_too = changes.bus.subscribe(heard.append), changes.bus.subscribe(heard.append)
        leave()
        leave()
        await changes.updated("transcript://s")
        assert len(heard) == 1
        leave_too()
        caller.reset(reset)
    assert buses() <= before + 1  # that of the last


@pytest.mark.slow
async def test_metrics_tell_how_long_each_stage_took_and_what_the_archive_failed(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, "--metrics") as service, anyio.fail_after(150):
        async with httpx2.AsyncClient(headers=service.headers(), timeout=150) as http:
            arguments = {"session_id": "s", "messages": conversation(20), "target_tokens": 8_000}
            compact = _call("tools/call", "compact_messages", arguments=arguments)
            assert (await http.post(service.url, **compact)).status_code == 200
            missing = _call("tools/call", "read_persisted_output", arguments={"output_id": "o_0"})
            assert (await http.post(service.url, **missing)).json()["result"]["isError"]
            (tmp_path / "archive" / "sessions").rename(tmp_path / "archive" / "elsewhere")
            (tmp_path / "archive" / "sessions").write_text("no folder", encoding="ascii")
            arguments["session_id"] = "another"
            compact = _call("tools/call", "compact_messages", arguments=arguments)
            assert (await http.post(service.url, **compact)).json()["result"]["isError"]
            text = (await http.get(f"{service.base}/metrics")).text
    for stage in ("wait", "read", "archive", "clear", "summarize", "save"):
        assert (
            'compaction_stage_duration_seconds_count{otel_scope_name="mcp_server_compaction"'
            in text
        )
        assert f'stage="{stage}"' in text
    assert [
        line.rpartition(" ")[2] for line in text.splitlines() if "archive_errors_total{" in line
    ] == ["1.0"]
    assert 'service_name="mcp-server-compaction"' in text
