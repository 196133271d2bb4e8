"""The audit log contains refusals of unknown callers, and they cannot fill the disk."""

import json
import logging
import stat
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest
from mcp_server_compaction.access.principal import audit, audit_logger, write_audit
from mcp_server_compaction.protocol.http_gate import REFUSALS_PER_MINUTE, Gate, Names
from starlette.types import Receive, Scope, Send

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


async def test_audit_log_limits_refusals_per_minute(log: Path) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("The gate refuses every request.")

    gate = Gate(app, Names(frozenset({"here"})), None)
    transport = httpx2.ASGITransport(app=gate)
    async with httpx2.AsyncClient(transport=transport, base_url="http://elsewhere") as http:
        for _ in range(5 * REFUSALS_PER_MINUTE):
            assert (await http.post("/" + "mcp" * 1_000)).status_code == 421
    written = lines(log)
    assert REFUSALS_PER_MINUTE <= len(written) < 2 * REFUSALS_PER_MINUTE
    assert max(len(json.dumps(line)) for line in written) < 400


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
