"""Hooks in real hosts: large outputs become markers, and a later session finds earlier messages."""

import sys
from pathlib import Path

import pytest
from mcp_server_compaction.hosts.catalog import HOSTS, UserFolders

from .clients import CLIENTS, Installed, installed, program_of
from .scripted_host_model import FIND, PRINT, serve_host_model

FACT = "The release is called ZEBRA-77 and must never be pushed to the branch main."

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def _run(host: Installed, *arguments: str) -> str:
    return host.run([sys.executable, "-m", "mcp_server_compaction", *arguments])


def _configuration(host: Installed, name: str) -> dict[Path, bytes]:
    """Return the existing files that `install` may write."""
    folders = UserFolders(host.home, host.project, environment={})
    hooks = HOSTS[name].hooks
    assert hooks is not None
    paths = {HOSTS[name].file(folders, "user"), hooks.file(folders, "user")}
    return {path: path.read_bytes() for path in paths if path is not None and path.exists()}


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini-cli", "opencode"])
def test_hooks_shorten_a_large_output_and_archive_the_session(
    name: str, npm_folder: Path, tmp_path: Path
) -> None:
    program = program_of(CLIENTS[name], npm_folder)
    with serve_host_model() as model:
        host = installed(name, program, tmp_path, model.url)
        before = _configuration(host, name)
        _run(host, "install", name, "--hooks")

        host.ask(f"{FACT} {PRINT}.")
        assert "line 1 of the long log" in model.sent()
        assert "line 500 of the long log" not in model.sent()
        assert "read_persisted_output" in model.sent()

        host.wait_until_archived("ZEBRA-77 and must never be pushed")
        if name != "codex":  # it sends the first request before it has the server's tools
            host.ask(f"{FIND} ZEBRA-77.")
            assert "must never be pushed" in model.sent()

        _run(host, "uninstall", name)
        after = _configuration(host, name)
        assert {path: after[path] for path in before} == before
        assert not [path for path, text in after.items() if b"compaction" in text]
        assert {path.name for path in tmp_path.iterdir()} == {"home", "project"}
        assert not list(host.project.iterdir())
