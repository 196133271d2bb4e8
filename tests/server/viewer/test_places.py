"""Sessions of this machine's hosts: archived while one looks, with their host and folder."""

import json
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from mcp_server_compaction.config import Config
from mcp_server_compaction.viewer.places import Place, Places

from tests.server.viewer.site import Json, visiting

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def write(path: Path, *lines: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def test_a_session_file_says_which_host_held_it_and_in_which_folder(tmp_path: Path) -> None:
    claude = tmp_path / ".claude/projects/-home-ada-shop" / f"{ID}.jsonl"
    write(claude, {"type": "summary"}, {"type": "user", "cwd": "/home/ada/shop"})
    codex = tmp_path / f".codex/sessions/2026/11/22/rollout-2026-11-22T10-00-00-{ID[:-1]}f.jsonl"
    write(codex, {"type": "session_meta", "payload": {"cwd": "/srv/api"}}, "no object", 3)
    write(tmp_path / ".pi/agent/sessions/--x--/2026-11-22T10_pi1.jsonl", {"no": "folder"})
    found = Places(tmp_path).find([ID, f"{ID[:-1]}f", "pi1", f"{ID}.agent-1", "elsewhere"])
    assert found == {
        ID: Place("Claude Code", "/home/ada/shop"),
        f"{ID[:-1]}f": Place("Codex", "/srv/api"),
        "pi1": Place("pi", ""),
        f"{ID}.agent-1": Place("Claude Code", "/home/ada/shop"),
    }
    assert Places(tmp_path / "nobody").find([ID]) == {}


async def test_what_a_host_writes_appears_by_itself_with_its_place(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    said = [
        {"type": "user", "sessionId": ID, "uuid": "a", "parentUuid": None, "cwd": "/home/ada/shop",
         "timestamp": "2026-11-22T10:00:00Z",
         "message": {"role": "user", "content": "Paint the shop green."}},
        {"type": "assistant", "sessionId": ID, "uuid": "b", "parentUuid": "a",
         "timestamp": "2026-11-22T10:00:09Z",
         "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}},
    ]  # fmt: skip
    write(tmp_path / "home/.claude/projects/-home-ada-shop" / f"{ID}.jsonl", *said)
    async with visiting(replace(config, imports_sessions=True)) as site:
        with anyio.fail_after(150):
            listed: list[Json] = []
            while not listed:
                listed = (await site.json("/"))["sessions"]
        assert (listed[0]["host"], listed[0]["folder"]) == ("Claude Code", "/home/ada/shop")
        assert "Paint the shop green." in await site.html("/")
    async with visiting(config) as site:  # elsewhere nobody's folders are looked into
        assert "host" not in (await site.json("/"))["sessions"][0]
