"""The audit log contains refusals of unknown callers, and they cannot fill the disk."""

import json
import logging
import stat
from collections.abc import Generator
from pathlib import Path

import pytest
from mcp_server_compaction.access.audit import (
    MAX_REFUSALS,
    Refusals,
    audit,
    audit_logger,
    write_audit,
)

from tests.server.access.test_team_service import team_service


@pytest.fixture
def log(tmp_path: Path) -> Generator[Path]:
    before = [*audit_logger.handlers], audit_logger.level, audit_logger.propagate
    write_audit(tmp_path / "audit.log")
    yield tmp_path / "audit.log"
    for handler in {*audit_logger.handlers} - {*before[0]}:
        audit_logger.removeHandler(handler)
        handler.close()
    audit_logger.setLevel(before[1] or logging.NOTSET)
    audit_logger.propagate = before[2]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def test_audit_log_limits_refusals_per_minute_and_counts_the_rest(log: Path) -> None:
    now = 100.0
    refusals = Refusals(clock=lambda: now)
    for _ in range(MAX_REFUSALS + 1_000):
        refusals.log("POST /mcp" * 1_000, "203.0.113.7", 401)
    now += 61
    refusals.log("POST /mcp", "203.0.113.7", 401)
    written = lines(log)
    assert len(written) == MAX_REFUSALS + 1
    assert written[-1]["omitted"] == 1_000
    assert "omitted" not in written[0]
    assert log.stat().st_size < 400 * len(written)


@pytest.mark.posix("an open file can be moved")
def test_audit_log_is_created_again_with_mode_0600_when_it_was_moved(log: Path) -> None:
    audit("search_transcript", "first")
    log.rename(log.with_suffix(".1"))
    audit("search_transcript", "second")
    assert [line["what"] for line in lines(log)] == ["second"]
    assert [line["what"] for line in lines(log.with_suffix(".1"))] == ["first"]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.slow
def test_service_logs_refused_callers_without_their_tokens(tmp_path: Path) -> None:
    with team_service(tmp_path) as team:
        for _ in range(3):
            assert team.ask("a-token-that-is-none", "tools/list").status_code == 401
        assert team.page("/sessions/s").status_code == 401
        assert team.page("/", Host="elsewhere.example.org").status_code == 421
        found = [line for line in lines(tmp_path / "audit.log") if line["outcome"] == "refused"]
    asked = [(line["action"], line["status"]) for line in found]
    assert asked == [("POST /mcp", 401)] * 3 + [("GET /sessions/s", 401), ("GET /", 421)]
    assert {line["what"] for line in found} == {"127.0.0.1"}
    assert "a-token-that-is-none" not in (tmp_path / "audit.log").read_text(encoding="ascii")
