"""Everything works offline, and no code opens a connection."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from .helpers import Json, answer_of, conversation, text_of

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "mcp_server_compaction"]

# Read by every Python process at its start: whoever looks up a name or connects is written down.
WITNESS = """
import os, sys

def tell(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        with open(os.environ["WITNESSED"], "a", encoding="utf-8") as file:
            print(event, arguments[1:], file=file)

sys.addaudithook(tell)
"""


@pytest.fixture
def cut_off() -> list[str]:
    """Return the prefix that runs a command without any network interface."""
    prefix = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here to take the network away with")
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespace may be made here: {tried.stderr.strip()}")
    return prefix


@pytest.fixture
def watched(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Return the environment of an observed process, with a key that must not be sent."""
    (tmp_path / "sitecustomize.py").write_text(WITNESS, encoding="utf-8")
    return {
        **environment,
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path[1:]]),
        "WITNESSED": str(tmp_path / "witnessed"),
        "ANTHROPIC_API_KEY": "test-key",
    }


def witnessed(watched: dict[str, str]) -> str:
    path = Path(watched["WITNESSED"])
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_network_guard_detects_connections(cut_off: list[str], watched: dict[str, str]) -> None:
    calling = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=5)"
    done = subprocess.run(
        [*cut_off, sys.executable, "-c", calling],
        env=watched, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert "Network is unreachable" in done.stderr
    assert "192.0.2.1" in witnessed(watched)


def test_command_line_makes_no_connection_and_works_offline(
    cut_off: list[str], watched: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text("\n".join(map(json.dumps, conversation())), encoding="utf-8")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*cut_off, *COMMAND, *arguments],
            env=watched, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "Compacted: " in run("compact", str(file), "--target", "25%")
    assert "value_3_17" in run("search", "value_3_17")
    run("import", str(file))
    run("doctor")
    assert witnessed(watched) == ""


async def test_server_makes_no_connection_and_works_offline(
    cut_off: list[str], watched: dict[str, str]
) -> None:
    command = [*cut_off, *COMMAND]
    server = StdioServerParameters(command=command[0], args=command[1:], env=watched)
    compacting: Json = {"messages": conversation(), "mode": "full", "target_tokens": 12_000}
    with anyio.fail_after(150):
        async with Client(server, mode="legacy") as client:
            answer = answer_of(await client.call_tool("compact_messages", compacting))
            assert (answer["status"], answer["written_by"]) == ("compacted", "extractive")
            search = {"query": "value_3_17"}
            [hit, *_] = answer_of(await client.call_tool("search_transcript", search))["hits"]
            reading = {"output_id": hit["pointer"], "pattern": "value_3_17"}
            assert "value_3_17" in text_of(await client.call_tool("read_persisted_output", reading))
    assert witnessed(watched) == ""
