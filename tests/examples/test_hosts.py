"""The ready host configurations are what their hosts read, and start this server."""

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / "examples" / "hosts"

# Under which key each host looks for its servers.
SERVERS_KEYS = {
    "claude-code.mcp.json": "mcpServers",
    "claude_desktop_config.json": "mcpServers",
    "codex-config.toml": "mcp_servers",
    "cursor-mcp.json": "mcpServers",
    "gemini-settings.json": "mcpServers",
    "opencode.json": "mcp",
    "vscode-mcp.json": "servers",
}


def entry_of(name: str) -> dict[str, Any]:
    """Return the server entry of a configuration, which must have exactly one."""
    text = (HOSTS / name).read_text(encoding="utf-8")
    document = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    assert list(document) == [SERVERS_KEYS[name]]
    (entry,) = document[SERVERS_KEYS[name]].values()
    return entry


def command_of(name: str) -> list[str]:
    """The command line that the host starts."""
    entry = entry_of(name)
    if isinstance(entry["command"], str):
        return [entry["command"], *entry["args"]]
    return entry["command"]


def test_configurations_are_all_tested_and_documented() -> None:
    files = {path.name for path in HOSTS.iterdir()} - {"README.md"}
    assert files == set(SERVERS_KEYS)
    explained = (HOSTS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\|[^|]+\| `([^`]+)` \|", explained, re.MULTILINE)) == files


@pytest.mark.parametrize("name", SERVERS_KEYS)
def test_a_host_starts_the_script_that_the_package_installs(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert command_of(name)[0] in project["scripts"]


@pytest.mark.parametrize("name", ["claude-code.mcp.json", "vscode-mcp.json"])
def test_configuration_names_the_transport_if_its_host_requires_it(name: str) -> None:
    assert entry_of(name)["type"] == "stdio"


async def test_the_registered_commands_start_a_server_with_four_tools(tmp_path: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    commands = {tuple(command_of(name)) for name in SERVERS_KEYS}
    assert commands
    for command, *arguments in commands:
        script = shutil.which(command, path=scripts)
        assert script is not None
        server = StdioServerParameters(
            command=script, args=arguments, env={"HOME": str(tmp_path)}, cwd=tmp_path
        )
        with anyio.fail_after(150):
            async with Client(server, mode="legacy") as client:
                tools = await client.list_tools()
        assert len(tools.tools) == 4
