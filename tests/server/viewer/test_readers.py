"""What readers answered is shown as it was last measured."""

import json
import subprocess
import sys
from pathlib import Path

from tests.server.viewer.site import Site

ROOT = Path(__file__).resolve().parents[3]


async def test_the_readers_page_has_the_points_that_the_benchmark_gives(site: Site) -> None:
    shown = await site.json("/readers")
    page = await site.html("/readers")
    for name, row in shown["rows"].items():
        assert f'<th scope="row">{name}</th>' in page
        for given in row.values():
            assert f"{given['points']} of {given['of']}" in page


def test_the_page_is_of_the_answers_that_are_published() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/readers/score.py", "--json"],
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=150,
        check=True,
    )
    kept = ROOT / "server" / "mcp_server_compaction" / "viewer" / "readers.json"
    assert json.loads(done.stdout) == json.loads(kept.read_text(encoding="utf-8"))
