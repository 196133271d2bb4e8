"""The tenant in the archive's address applies to every way to serve one user."""

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from context_compaction import ArchiveError, open_archive
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.hook import HookCall

from tests.server.helpers import answer_of, connect, conversation
from tests.server.viewer.site import running_site
from tests.support.postgres import named_database


async def test_tenant_of_the_address_applies_over_stdio_in_the_viewer_and_in_hooks(
    postgres_address: str, tmp_path: Path
) -> None:
    address = f"{postgres_address}&tenant=acme"
    config = replace(Config(archive_folder=tmp_path), archive_address=address)
    async with connect(config) as client:
        given = {"messages": conversation(4), "session_id": "of-acme", "mode": "record"}
        answer_of(await client.call_tool("compact_messages", given))
    async with running_site(config) as site:
        assert "of-acme" in (await site.http.get("/")).text
    hook = HookCall("Stop", "claude-code", tmp_path, "off", {}, "of-acme", address)
    async with hook.opened() as archive:
        assert await archive.read_messages("of-acme", 0, 0)
    async with open_archive(postgres_address) as archive:
        assert (await archive.sessions())[0] == []


async def test_database_without_an_encoding_is_refused_when_opened(
    postgres_server: str,
) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE any_bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
        )
    try:
        with pytest.raises(ArchiveError, match="SQL_ASCII"):
            async with open_archive(named_database(postgres_server, "any_bytes", "postgres")):
                pass
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute("DROP DATABASE any_bytes (FORCE)")
