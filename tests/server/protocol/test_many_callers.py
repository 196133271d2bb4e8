"""Many callers of one HTTP process: who asks for little is not held up by who asks for much."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import httpx2
import pytest
from context_compaction.archive import opening
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol import deps, http_bodies
from mcp_server_compaction.protocol.http_gate import Names
from mcp_server_compaction.protocol.http_service import Service, http_app

from tests.server.helpers import Json, conversation

pytestmark = pytest.mark.slow

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "many", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    """The service in this process, and a client of it."""
    app: Any = http_app(Config(archive_folder=folder / "archive"), Service(), Names(None), None)
    transport = httpx2.ASGITransport(app=app)
    inner = app._app  # the gate passes on requests alone
    async with (
        inner.router.lifespan_context(inner),
        httpx2.AsyncClient(transport=transport, base_url="http://local", timeout=120) as http,
    ):
        yield http


async def compacted(http: httpx2.AsyncClient, session: str, messages: list[Json]) -> None:
    arguments = {"session_id": session, "messages": messages, "target_tokens": 20_000}
    params = {"name": "compact_messages", "arguments": arguments, "_meta": META}
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call"}
    headers |= {"Mcp-Name": "compact_messages", "Accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await http.post("/mcp", json=call, headers=headers)
    assert answer.status_code == 200, answer.text
    assert not answer.json()["result"].get("isError"), answer.text


@pytest.mark.parametrize(
    ("module", "bound"), [(http_bodies, "LARGE_BODY_BYTES"), (deps, "LARGE_REQUEST_BYTES")]
)
async def test_small_calls_are_answered_while_large_ones_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: ModuleType, bound: str
) -> None:
    small, large = conversation(2, 60), conversation(40, 400)
    monkeypatch.setattr(module, bound, len(json.dumps(small)) * 10)
    ended: list[str] = []
    one_large_ended = anyio.Event()
    async with served(tmp_path) as http:

        async def ask(session: str, messages: list[Json]) -> None:
            await compacted(http, session, messages)
            ended.append(session)
            one_large_ended.set()

        with anyio.fail_after(150):
            async with anyio.create_task_group() as group:
                for number in range(16):
                    group.start_soon(ask, f"large-{number}", large)
                await one_large_ended.wait()
                for number in range(8):
                    group.start_soon(ask, f"small-{number}", small)
    until_last_small = ended[: max(n for n, one in enumerate(ended) if one.startswith("small"))]
    assert sum(one.startswith("large") for one in until_last_small) <= 4, ended


async def test_a_known_list_does_not_wait_for_the_first_ones_of_others(tmp_path: Path) -> None:
    known, first = conversation(4, 60), conversation(40, 100)
    ended: list[str] = []
    one_ended = anyio.Event()
    async with served(tmp_path) as http:

        async def ask(session: str) -> None:
            await compacted(http, session, first)
            ended.append(session)
            one_ended.set()

        await compacted(http, "known", known[:-2])
        with anyio.fail_after(150):
            async with anyio.create_task_group() as group:
                for number in range(24):
                    group.start_soon(ask, f"first-{number}")
                await one_ended.wait()
                await compacted(http, "known", known)
                ended.append("known")
    assert ended.index("known") <= 8, ended


async def test_pages_and_tools_share_one_open_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[str] = []
    really = opening.open_archive

    def counted(place: str, **options: Any) -> Any:
        opened.append(place)
        return really(place, **options)

    monkeypatch.setattr(opening, "open_archive", counted)
    async with served(tmp_path) as http:
        await compacted(http, "s", conversation(2, 60))
        assert (await http.get("/readyz")).text == "ready"
    assert len(opened) == 1
