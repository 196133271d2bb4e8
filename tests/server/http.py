"""A server process over HTTP, and clients with its token."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

COMMAND = [sys.executable, "-m", "mcp_server_compaction"]


@dataclass(frozen=True, slots=True)
class Service:
    """A server process that serves HTTP.

    Attributes:
        url: Address of MCP.
        token: The local token.
        process: The process. Standard error contains the output after its first two lines.
    """

    url: str
    token: str
    process: "subprocess.Popen[str]"

    @property
    def base(self) -> str:
        """The address without the path."""
        return self.url.removesuffix("/mcp")

    def headers(self, **more: str) -> dict[str, str]:
        """Return the headers of a caller with a valid token."""
        return {"Authorization": f"Bearer {self.token}", **more}


def environment_of(folder: Path) -> dict[str, str]:
    """Return an environment with an archive in `folder`."""
    return {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(folder / "archive"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


@contextmanager
def serving(folder: Path, *flags: str, limit: str = "") -> Generator[Service]:
    """Yield a service of the archive in `folder`. `limit` is a `ulimit` command."""
    environment = environment_of(folder)
    command = [*COMMAND, "serve", "--http", "--port", "0", *flags]
    if limit:
        command = ["sh", "-c", f'{limit}; exec "$@"', "sh", *command]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        encoding="utf-8",
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("Serving on "), line + process.stderr.read()
    assert "The token is in " in process.stderr.readline()
    token = (folder / "archive" / "http-token").read_text(encoding="ascii").strip()
    try:
        yield Service(line.removeprefix("Serving on ").strip(), token, process)
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=150)
    assert out == ""  # standard output stays empty over HTTP too


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on a free port, shared by independent tests of a module."""
    with serving(tmp_path_factory.mktemp("service")) as served:
        yield served


@asynccontextmanager
async def over_http(service: Service, **options: Any) -> AsyncGenerator[Client]:
    """Yield a client that sends the token."""
    async with (
        httpx2.AsyncClient(headers=service.headers(), timeout=150) as http,
        Client(streamable_http_client(service.url, http_client=http), **options) as client,
    ):
        yield client
