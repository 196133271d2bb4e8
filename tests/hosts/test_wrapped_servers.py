"""A user of Claude Desktop wraps four reference servers from npm and PyPI with one command."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction.cli import main
from mcp_server_compaction.hosts.catalog import UserFolders

from tests.server.helpers import text_of

from .clients import INSTALL_SECONDS, HostClient, program_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VERSION = "2026.8.31"
FROM_PYPI = "mcp-server-time==2026.10.19"
PACKAGE = "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming"
PLACES = {
    "darwin": "Library/Application Support/Claude/claude_desktop_config.json",
    "win32": f"{PACKAGE}/Claude/claude_desktop_config.json",
}


def npm_server(name: str, npm_folder: Path) -> str:
    package = f"@modelcontextprotocol/server-{name}@{VERSION}"
    unused: Any = None  # a server is not a host with a model
    return str(program_of(HostClient(package, f"mcp-server-{name}", unused, unused), npm_folder))


@pytest.fixture(scope="module")
def time_server(npm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    npm_server("memory", npm_folder)  # skips if this test is not asked for
    folder = tmp_path_factory.mktemp("time")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/python"), "-m", "pip", "install", "-q", FROM_PYPI]
    done = subprocess.run(install, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip could not install {FROM_PYPI}: {done.stderr[-200:]!r}")
    return str(folder / "bin/mcp-server-time")


@pytest.mark.parametrize("system", PLACES)
def test_user_of_claude_desktop_wraps_four_servers_reads_searches_and_uninstalls(
    npm_folder: Path,
    time_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setattr(
        "mcp_server_compaction.cli.hosts.this_user",
        lambda: UserFolders(tmp_path, tmp_path, {}, system),
    )
    monkeypatch.setattr("mcp_server_compaction.hosts.checking.TOTAL_SECONDS", 100)
    data = tmp_path / "my documents"
    data.mkdir()
    lines = [f"line {number}: value_{number * 7}" for number in range(20_000)]
    (data / "large.txt").write_text("\n".join(lines), encoding="utf-8")
    memory = str(tmp_path / "memory.json")
    servers: dict[str, Any] = {
        "everything": {"command": npm_server("everything", npm_folder), "args": []},
        "filesystem": {"command": npm_server("filesystem", npm_folder), "args": [str(data)]},
        "memory": {
            "command": npm_server("memory", npm_folder),
            "env": {"MEMORY_FILE_PATH": memory},
        },
        "time": {"command": time_server},
    }
    file = tmp_path / PLACES[system]
    file.parent.mkdir(parents=True)
    original = json.dumps({"mcpServers": servers, "globalShortcut": "x"}, indent=2)
    file.write_text(original, encoding="utf-8")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    output = run("install", "claude-desktop", "--wrap")
    assert "Wrapped: everything, filesystem, memory, time" in output
    [entry] = json.loads(file.read_text("utf-8"))["mcpServers"].values()
    anyio.run(_use, entry, str(data / "large.txt"))
    assert "value_139993" in run("search", "value_139993")
    assert "ok " in run("doctor", "claude-desktop")
    run("uninstall", "claude-desktop")
    assert file.read_text("utf-8") == original


async def _use(entry: dict[str, Any], large_file: str) -> None:
    """Use the four servers as the host does."""
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=dict(os.environ), cwd="/"
    )
    with anyio.fail_after(200):
        async with Client(server, mode="legacy") as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {name.partition("__")[0] for name in tools if "__" in name} == {
                "everything", "filesystem", "memory", "time",
            }  # fmt: skip
            result = await client.call_tool("filesystem__read_text_file", {"path": large_file})
            assert len(text_of(result)) < 4_000
            [output_id] = set(re.findall(r"o_[0-9a-f]{24}", text_of(result)))
            part = {"output_id": output_id, "tail": 1}
            last = await client.call_tool("read_persisted_output", part)
            assert text_of(last) == "line 19999: value_139993"
            hits = await client.call_tool("search_transcript", {"query": "value_139986"})
            assert output_id in text_of(hits)
            entity: Any = {"name": "Ann", "entityType": "person", "observations": ["bakes"]}
            await client.call_tool("memory__create_entities", {"entities": [entity]})
            assert "bakes" in text_of(await client.call_tool("memory__read_graph", {}))
            now = await client.call_tool("time__get_current_time", {"timezone": "UTC"})
            assert "UTC" in text_of(now)
            total = await client.call_tool("everything__get-sum", {"a": 2, "b": 3})
            assert "5" in text_of(total)
            prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
            assert "everything__simple-prompt" in prompts
            uri = (await client.list_resources()).resources[0].uri
            assert (await client.read_resource(uri)).contents
