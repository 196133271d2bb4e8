"""Retention from the command line: what is there, what would go, and what went."""

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
    """Three sessions of some 100 KB, archived a month apart, the newest in the far future."""

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
    found: list[dict[str, Any]] = json.loads(run(archive, "usage", "--json"))["sessions"]
    return sorted(session["session_id"] for session in found)


def pruned(archive: Path, *options: str) -> Sequence[str]:
    return json.loads(run(archive, "prune", "--json", *options))["sessions"]


def test_a_dry_run_names_what_a_prune_then_deletes(archive: Path) -> None:
    assert pruned(archive, "--max-size", "250K", "--dry-run") == ["older"]
    assert names(archive) == ["new", "old", "older"]
    assert "Deleted 1 of 3 sessions" in run(archive, "prune", "--max-size", "250K")
    assert names(archive) == ["new", "old"]
    assert pruned(archive, "--max-size", "250K") == []


def test_a_pinned_session_outlives_age_and_size(archive: Path) -> None:
    run(archive, "pin", "older")
    assert "pinned\n    older\n" in run(archive, "usage")
    output = run(archive, "prune", "--max-size", "50K", "--dry-run")
    assert "old\n    last" in output
    assert "older\n    last" not in output
    assert "What is left is pinned" in output
    run(archive, "pin", "--off", "older")
    assert set(pruned(archive, "--max-size", "50K")) == {"older", "old", "new"}


def test_who_is_asked_sees_what_would_go_and_no_script_does(archive: Path) -> None:
    asked = CliRunner().invoke(main, ["--archive", str(archive), "delete", "olde"], input="n")
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert asked.stderr.startswith("older\nDelete these sessions for good?")
    nothing = CliRunner().invoke(main, ["--archive", str(archive), "delete", "absent"])
    assert "no session 'absent'" in nothing.stderr
    assert "for good" not in nothing.stderr
    gone = CliRunner().invoke(main, ["--archive", str(archive), "delete", "olde"], input="y")
    assert gone.stdout.startswith("Deleted 1 sessions")
    assert names(archive) == ["new", "old"]
