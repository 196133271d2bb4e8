"""search_transcript over MCP."""

from pathlib import Path
from typing import Any, cast

import pytest
from context_compaction import open_archive
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import Query, SearchPage
from context_compaction.formats import parse
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.tools.archived import search_briefly

from tests.server.helpers import (
    Era,
    Json,
    answer_of,
    connect,
    conversation,
    parsed,
    text_of,
)

MESSAGES = conversation(calls=6, result_lines=30)


@pytest.fixture
def base() -> Json:
    return {"messages": MESSAGES, "mode": "record", "session_id": "s"}


async def test_pointer_of_a_hit_reads_back(config: Config, era: Era, base: Json) -> None:
    async with connect(config, era) as client:
        await client.call_tool("compact_messages", base)
        result = await client.call_tool("search_transcript", {"query": "value_3_17"})
        answer = answer_of(result)
        hit = answer["hits"][0]
        read = await client.call_tool("read_persisted_output", {"output_id": hit["pointer"]})
    assert "value_3_17" in hit["snippet"]
    assert "value_3_17" in text_of(read)
    assert hit["pointer"].startswith("transcript://s/messages/")
    assert parsed(result) == answer


@pytest.mark.parametrize(
    "query",
    [
        {"query": "checkout test fails"},
        {"query": "checkout test fails", "kind": "phrase"},
        {"query": r"module_\d\.py", "kind": "regex"},
        {"query": "module_3.py", "order": "recent"},
        {"query": "module", "role": "assistant"},
        {"query": "value_2_5", "since": "2020-01-01", "until": "2099-12-31"},
    ],
)
async def test_search_of_any_kind_finds_the_text_in_a_short_reply(
    config: Config, base: Json, query: Json
) -> None:
    async with connect(config) as client:
        await client.call_tool("compact_messages", base)
        result = await client.call_tool("search_transcript", query)
    assert answer_of(result)["hits"]
    assert len(text_of(result)) <= 8_000


async def test_scan_that_stops_returns_a_cursor_to_continue(
    config: Config, base: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("SCAN_CHARS", 2_000), ("ROWS_PER_BATCH", 2)):
        monkeypatch.setattr(f"context_compaction.archive.search.patterns.{name}", most)
    # Of two branches neither is required, so every text is read.
    arguments: Json = {"query": "(checkout.*fails)|quuxplugh", "kind": "regex"}
    hits: list[Json] = []
    notes: list[str] = []
    async with connect(config) as client:
        await client.call_tool("compact_messages", base)
        while True:
            answer = answer_of(await client.call_tool("search_transcript", arguments))
            hits += answer["hits"]
            notes.append(answer["note"])
            if "next_cursor" not in answer:
                break
            arguments["cursor"] = answer["next_cursor"]
    assert notes[0].startswith("No matches so far: the search stopped at its limit")
    assert len(hits) == 1


class _DeletedOnceFound:
    """An archive of which a session is deleted right after the first search has found it."""

    def __init__(self, archive: Archive, session_id: str) -> None:
        self._archive = archive
        self._sessions = [session_id]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def search(self, query: Query) -> SearchPage:
        page = await self._archive.search(query)
        while self._sessions:
            await self._archive.delete([self._sessions.pop()])
        return page


async def test_a_session_that_is_deleted_while_it_is_found_takes_no_other_hits_with_it(
    tmp_path: Path,
) -> None:
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        for name in ("kept", "deleted"):
            messages = parse([{"role": "user", "content": f"a quokka, {name}"}], format="anthropic")
            await archive.append(name, messages, format="anthropic")
        passing = cast("Archive", _DeletedOnceFound(archive, "deleted"))
        found = await search_briefly(passing, Query("quokka"))
    assert [hit.pointer for hit in found.hits] == ["transcript://kept/messages/0"]


async def test_terminal_colours_are_removed_from_passages_and_messages(
    config: Config,
) -> None:
    printed = "\x1b[31m FAIL\x1b[39m \x1b[2mtests/test_price.py\x1b[22m rounding\n" * 40
    async with connect(config) as client:
        sent = {"messages": [{"role": "user", "content": printed}], "mode": "record"}
        session = answer_of(await client.call_tool("compact_messages", sent))["session_id"]
        found = answer_of(await client.call_tool("search_transcript", {"query": "rounding"}))
        pointer = {"output_id": f"transcript://{session}/messages/0"}
        read = text_of(await client.call_tool("read_persisted_output", pointer))
        exact = text_of(
            await client.call_tool("read_persisted_output", pointer | {"as_json": True})
        )
    assert " FAIL tests/test_price.py rounding" in found["hits"][0]["snippet"]
    assert " FAIL tests/test_price.py rounding" in read
    assert "\x1b" not in found["hits"][0]["snippet"] + read
    assert "\\u001b[31m" in exact
