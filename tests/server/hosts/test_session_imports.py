"""Automatic import of hosts' sessions by a real server, in a temporary home folder."""

import json
from pathlib import Path

import anyio
import pytest
from context_compaction.archive.archive import Archive
from context_compaction.archive.local.archive import open_archive
from mcp import Client
from mcp_server_compaction.hosts.session_imports import SessionImports

from tests.server.helpers import Json, answer_of, spawned

pytestmark = pytest.mark.slow


def line(number: int, role: str, text: str, session: str) -> str:
    return json.dumps({
        "type": role,
        "uuid": f"{session}-{number}",
        "parentUuid": f"{session}-{number - 1}" if number else None,
        "sessionId": session,
        "timestamp": "2026-11-22T10:00:00Z",
        "message": {"role": role, "content": text},
    }) + "\n"  # fmt: skip


@pytest.fixture
def home_environment(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Return the environment in which a host starts the server."""
    environment = {
        **environment,
        "HOME": str(tmp_path / "home"),
        "MCP_COMPACTION_IMPORT_SESSIONS": "",
    }
    (tmp_path / "home/.claude/projects/p").mkdir(parents=True)
    return environment


@pytest.fixture
def session(home_environment: dict[str, str]) -> Path:
    path = Path(home_environment["HOME"], ".claude/projects/p/s-1.jsonl")
    path.write_text(
        line(0, "user", "The password of the printer is ZEBRA_TOKEN_99.", "s-1")
        + line(1, "assistant", "I have noted it.", "s-1"),
        "utf-8",
    )
    return path


async def hits(client: Client, query: str) -> list[Json]:
    return answer_of(await client.call_tool("search_transcript", {"query": query}))["hits"]


async def first_hit(client: Client, query: str) -> Json:
    """Search until there is a hit, because a search waits only a limited time for new lines."""
    while not (results := await hits(client, query)):
        pass  # `spawned` has a time limit
    return results[0]


async def test_search_finds_new_lines_of_a_session_next_to_unreadable_files(
    home_environment: dict[str, str], session: Path
) -> None:
    (session.parent / "torn.jsonl").write_bytes(b'{"type": "user", "message"\xff')
    (session.parent / "folder.jsonl").mkdir()
    (session.parent / "locked.jsonl").write_text("{}", "utf-8")
    (session.parent / "locked.jsonl").chmod(0)
    (session.parent / "gone.jsonl").symlink_to(session.parent / "nowhere")
    async with spawned(home_environment) as client:
        assert "printer" in (await first_hit(client, "ZEBRA_TOKEN_99"))["snippet"]
        with session.open("a", encoding="utf-8") as file:
            file.write(line(2, "user", "And GIRAFFE_TOKEN_7 is the scanner's.", "s-1"))
        assert "scanner" in (await first_hit(client, "GIRAFFE_TOKEN_7"))["snippet"]


async def test_search_imports_nothing_when_the_import_is_off(
    home_environment: dict[str, str], session: Path
) -> None:
    async with spawned({**home_environment, "MCP_COMPACTION_IMPORT_SESSIONS": "off"}) as client:
        assert await hits(client, "ZEBRA_TOKEN_99") == []
    assert not await anyio.Path(home_environment["MCP_COMPACTION_ARCHIVE"], "imports").exists()


async def test_import_logs_a_skipped_line_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    lines = [line(1, "user", "one", "s"), "torn\n", line(2, "assistant", "two", "s")]
    (folder / "s.jsonl").write_text("".join(lines), "utf-8")
    async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:

        async def opened() -> Archive:
            return archive

        imports = SessionImports(tmp_path / "a", [folder], opened)
        await imports.catch_up(10)
        with (folder / "s.jsonl").open("a", encoding="utf-8") as file:
            file.write(line(3, "user", "three", "s"))
        await imports.catch_up(10)
    assert caplog.text.count("line 2 is no JSON object and is skipped") == 1
