"""`install HOST --wrap` moves the other servers behind ours, and `uninstall` returns them."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_server_compaction.hosts import config_text
from mcp_server_compaction.hosts.catalog import UserFolders
from mcp_server_compaction.wrap.servers import read_servers

from tests.server.hosts.test_install import CASES, Run, files_below, home, run, write_file

__all__ = ["home", "run"]  # fixtures

# Configuration file below the home folder on each system, and the table of servers.
PLACES = {
    ("claude-desktop", "darwin"): "Library/Application Support/Claude/claude_desktop_config.json",
    ("claude-desktop", "win32"): "AppData/Roaming/Claude/claude_desktop_config.json",
    ("claude-desktop", "linux"): ".config/Claude/claude_desktop_config.json",
    ("cursor", "darwin"): ".cursor/mcp.json",
    ("cursor", "win32"): ".cursor/mcp.json",
    ("vscode", "darwin"): "Library/Application Support/Code/User/mcp.json",
    ("vscode", "win32"): "AppData/Roaming/Code/User/mcp.json",
    ("zed", "darwin"): ".config/zed/settings.json",
    ("zed", "win32"): "AppData/Roaming/Zed/settings.json",
    ("windsurf", "darwin"): ".codeium/windsurf/mcp_config.json",
    ("windsurf", "win32"): ".codeium/windsurf/mcp_config.json",
    ("goose", "darwin"): ".config/goose/config.yaml",
    ("goose", "win32"): "AppData/Roaming/Block/goose/config/config.yaml",
}
SECTIONS = {"vscode": "servers", "zed": "context_servers", "goose": "extensions"}
JSON_TEXT = """{
  // my servers
  "SECTION": {
    "files": {
      "command": "npx", // the newest
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/some where"],
      "env": {"TOKEN": "secret"}
    },
    "remote": {"url": "https://host/mcp", "headers": {"Authorization": "Bearer x"}},
    "signs-in": {"url": "https://host/mcp"},
    "old": {"type": "sse", "url": "https://host/sse"}
  },
  "theme": "dark"
}
"""
YAML_TEXT = """# my servers
SECTION:
    developer:
        enabled: true
        type: builtin
    files:  # mine
        type: stdio
        cmd: npx
        args: ['-y', "@modelcontextprotocol/server-filesystem"]
        envs: {TOKEN: secret}
    remote:
        type: streamable_http
        uri: https://host/mcp
        headers: {Authorization: Bearer x}
theme: dark
"""


def sample(host: str) -> str:
    text = YAML_TEXT if host == "goose" else JSON_TEXT
    return text.replace("SECTION", SECTIONS.get(host, "mcpServers"))


def value_of(path: Path) -> dict[str, Any]:
    format = "yaml" if path.suffix == ".yaml" else "json"
    return config_text.value_of(format, path.read_text("utf-8"), path)


def wrapped_file(entry: dict[str, Any]) -> Path:
    words = entry["args"]
    assert words[-3:-1] == ["wrap", "--config"]
    return Path(words[-1])


@pytest.mark.parametrize(("host", "system"), PLACES)
def test_wrap_moves_the_other_servers_and_uninstall_returns_them_exactly(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch, host: str, system: str
) -> None:
    monkeypatch.setattr(
        "mcp_server_compaction.cli.hosts.this_user",
        lambda: UserFolders(home, home / "project", {}, system),
    )
    file = write_file(home / PLACES[host, system], sample(host))
    before = files_below(home)
    original = value_of(file)
    section = SECTIONS.get(host, "mcpServers")
    output = run("install", host, "--wrap")
    assert "Wrapped: files, remote" in output
    servers = value_of(file)[section]
    assert set(servers) == set(original[section]) - {"files", "remote"} | {"compaction"}
    listed, _ = read_servers(wrapped_file(servers["compaction"]))
    assert [server.name for server in listed] == ["files", "remote"]
    assert listed[0].env == {"TOKEN": "secret"}
    assert listed[1].headers == {"Authorization": "Bearer x"}
    assert run("install", host, "--wrap").endswith("nothing was changed.\n")
    run("uninstall", host)
    assert files_below(home) == before


@pytest.mark.parametrize("host", ["claude-desktop", "goose"])
def test_uninstall_returns_servers_and_keeps_what_the_user_changed_since(
    home: Path, run: Run, host: str
) -> None:
    file = write_file(home / next(case.file for case in CASES if case.name == host), sample(host))
    run("install", host, "--wrap", "files")
    text = file.read_text("utf-8")
    assert "remote" in text
    write_file(file, text.replace("dark", "light").replace("my servers", "all my servers"))
    run("install", host, "--wrap")  # again, for the server that was left out
    assert "remote" not in value_of(file)[SECTIONS.get(host, "mcpServers")]
    write_file(file, file.read_text("utf-8").replace("light", "bright"))
    run("uninstall", host)
    expected = sample(host).replace("dark", "bright").replace("my servers", "all my servers")
    assert file.read_text("utf-8") == expected


def test_uninstall_returns_servers_when_the_user_rewrote_the_file(home: Path, run: Run) -> None:
    file = write_file(home / PLACES["claude-desktop", "linux"], sample("claude-desktop"))
    original = value_of(file)
    run("install", "claude-desktop", "--wrap")
    value = value_of(file)
    value["mcpServers"]["added"] = {"command": "mine"}
    write_file(file, json.dumps(value))
    run("uninstall", "claude-desktop")
    original["mcpServers"]["added"] = {"command": "mine"}
    assert value_of(file) == original


@pytest.mark.parametrize(
    ("content", "names", "error"),
    [
        ("{}", [], "has no other server"),
        ('{"mcpServers": {"a": {"command": "x"}}}', ["b"], "Its servers are: a"),
        ('{"mcpServers": {"a": {"command": "x", "args": ["${env:A}"]}}}', [], "variables"),
        ('{"mcpServers": {"a": {"url": "https://h/mcp"}}}', [], "--wrap a"),
        ('{"mcpServers": {"a": {"command": "x", "disabled": true}}}', [], "is disabled"),
    ],
)
def test_wrap_changes_no_file_when_no_server_can_be_wrapped(
    home: Path, run: Run, content: str, names: list[str], error: str
) -> None:
    write_file(home / ".cursor/mcp.json", content)
    before = files_below(home)
    assert error in run("install", "cursor", "--wrap", *names, code=2)
    assert files_below(home) == before


def test_install_without_a_host_lists_the_hosts_on_this_machine(home: Path, run: Run) -> None:
    assert "Found no host" in run("install", code=2)
    write_file(home / ".cursor/mcp.json", "{}")
    (home / ".codex").mkdir()
    error = run("install", code=2)
    assert [line.split()[-1] for line in error.splitlines()[-2:]] == ["codex", "cursor"]
