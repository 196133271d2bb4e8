"""The commands `usage`, `prune`, `pin` and `delete`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from context_compaction import formats
from context_compaction.archive.local.archive import open_archive
from mcp_server_compaction.cli import main

AUGUST = 1_785_542_400.0  # 2026-08-01


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of three sessions with about 100 KB each, the newest with a time in the future."""

    async def fill() -> None:
        async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as opened:
            for name, seconds in (("old", 0.0), ("older", -1e6), ("new", 1e10)):
                raws = [{"role": "user", "content": name + "x" * 20_000} for _ in range(5)]
                messages = formats.parse(raws, format="anthropic")
                with monkeypatch.context() as clock:
                    clock.setattr("time.time", lambda now=AUGUST - 1e7 + seconds: now)
                    await opened.append(name, messages, format="anthropic")

    anyio.run(fill)
    for log in (tmp_path / "a").glob("sessions/*/*/*.jsonl"):
        assert log.stat().st_size > 100_000
    return tmp_path / "a"


def run(archive: Path, *arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["--archive", str(archive), *arguments])
    assert result.exit_code == exit_code, result.output
    return result.output


def names(archive: Path) -> list[str]:
    sessions: list[dict[str, Any]] = json.loads(run(archive, "usage", "--json"))["sessions"]
    return sorted(session["session_id"] for session in sessions)


def pruned(archive: Path, *options: str) -> Sequence[str]:
    return json.loads(run(archive, "prune", "--json", *options))["sessions"]


def test_prune_deletes_the_sessions_that_a_dry_run_lists(archive: Path) -> None:
    assert pruned(archive, "--max-size", "250K", "--dry-run") == ["older"]
    assert names(archive) == ["new", "old", "older"]
    assert "Deleted: 1 of 3 sessions" in run(archive, "prune", "--max-size", "250K")
    assert names(archive) == ["new", "old"]
    assert pruned(archive, "--max-size", "250K") == []


def test_prune_keeps_a_session_when_it_is_pinned(archive: Path) -> None:
    run(archive, "pin", "older")
    assert "pinned\n    older\n" in run(archive, "usage")
    output = run(archive, "prune", "--max-size", "50K", "--dry-run")
    assert "old\n    last" in output
    assert "older\n    last" not in output
    assert "the remaining sessions are pinned" in output
    run(archive, "pin", "--off", "older")
    assert set(pruned(archive, "--max-size", "50K")) == {"older", "old", "new"}


def test_delete_lists_matching_sessions_when_it_asks_for_confirmation(archive: Path) -> None:
    refused = CliRunner().invoke(main, ["--archive", str(archive), "delete", "olde"], input="n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("older\nDelete these sessions permanently?")
    unknown = CliRunner().invoke(main, ["--archive", str(archive), "delete", "absent"])
    assert "no session 'absent'" in unknown.stderr
    assert "permanently" not in unknown.stderr
    confirmed = CliRunner().invoke(main, ["--archive", str(archive), "delete", "olde"], input="y")
    assert confirmed.stdout.startswith("Deleted: 1 sessions")
    assert names(archive) == ["new", "old"]
