"""Fixtures of the server's tests: both eras of the protocol, and separate folders."""

import os
from pathlib import Path

import pytest
from context_compaction.file_access import roots_of
from mcp_server_compaction.config import Config

from .helpers import Era


@pytest.fixture(params=["modern", "legacy"])
def era(request: pytest.FixtureRequest) -> Era:
    """Version of the protocol: the current one, or the older one with a handshake."""
    return request.param


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The only folder whose files the server may read."""
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


@pytest.fixture
def config(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return the configuration of a server with an empty archive."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Config(archive_folder=tmp_path / "archive", roots=roots_of([files]))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a server process that accesses only the test's folder."""
    return {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
