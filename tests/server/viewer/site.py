"""The viewer in this process, and archives for it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
from context_compaction.archive.opening import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from mcp_server_compaction.access.access_tokens import is_local_token
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.viewer.app import Access, viewer_app

from tests.support.story import story

TOKEN = "t" * 43
BASE = "http://127.0.0.1:8765"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """A running viewer.

    Attributes:
        http: HTTP client that sends the token with each request.
        access: Access control of the viewer.
        stranger: HTTP client without a token.
        archives: The archive of the viewer.
    """

    http: httpx2.AsyncClient
    access: Access
    stranger: httpx2.AsyncClient
    archives: LazyArchive

    async def html(self, address: str) -> str:
        """Return the HTML of a page that exists."""
        reply = await self.http.get(address)
        assert reply.status_code == 200, reply.text
        return reply.text

    async def json(self, address: str) -> Any:
        """Return the JSON of a page that exists."""
        separator = "&" if "?" in address else "?"
        reply = await self.http.get(f"{address}{separator}format=json")
        assert reply.status_code == 200, reply.text
        return reply.json()


@asynccontextmanager
async def running_site(config: Config) -> AsyncGenerator[Site]:
    """Run a viewer of the archive in `config`."""
    archives = LazyArchive(config)
    access = Access(is_local_token(TOKEN), archives.get)
    app = viewer_app(config, access, archives)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with anyio.fail_after(150):
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app), base_url=BASE, headers=headers
            ) as http,
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as stranger,
        ):
            yield Site(http, access, stranger, archives)


async def fill_archive(config: Config) -> None:
    """Archive a session with two compactions, and the session of its sub-agent."""
    messages = story(turns=8)
    half = len(messages) // 2
    async with open_archive(Path(config.archive_folder)) as archive:
        request = CompactRequest(session_id="main", mode="full", pinned=("Never push to main.",))
        first = await compact(messages[:half], request, archive=archive)
        await compact([*first.messages, *messages[half:]], request, archive=archive)
        record = CompactRequest(session_id="sub", parent_session_id="main", mode="record")
        await compact(story(turns=2), record, archive=archive)


async def archive_messages(config: Config, session_id: str, messages: Sequence[Json]) -> None:
    """Archive a message list without compacting it."""
    async with open_archive(Path(config.archive_folder)) as archive:
        request = CompactRequest(session_id=session_id, mode="record", format="anthropic")
        await compact(list(messages), request, archive=archive)
