"""Two services on one PostgreSQL lose no data when one service and the database are killed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_team_service_keeps_each_acknowledged_message_once_when_processes_die() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/team.py", "--agents", "3", "--turns", "12"],
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "72 acknowledged messages: 0 lost, 0 twice, 0 out of order" in done.stdout
    assert "PostgreSQL is restarted" in done.stdout
