"""Search results: no calls of the tools themselves, times, and missing words."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import run_process
from mcp import Client
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, answer_of, connect, spawned
from tests.support.small import agent, answered, text, user


def call(number: int, name: str, arguments: Json, result: str, words: str = "") -> list[Json]:
    asked, given = answered(f"t{number}", name, result, **arguments)
    return [agent([*([text(words)] if words else []), *asked["content"]]), given]


async def record(client: Client, session_id: str, messages: list[Json], **more: Any) -> None:
    call_arguments = {"messages": messages, "session_id": session_id, "mode": "record", **more}
    answer_of(await client.call_tool("compact_messages", call_arguments))


async def search(client: Client, query: str, **more: Any) -> Json:
    return answer_of(await client.call_tool("search_transcript", {"query": query, **more}))


def seqs(answer: Json) -> list[int]:
    return sorted(int(hit["pointer"].rpartition("/")[2]) for hit in answer["hits"])


@pytest.mark.parametrize("prefix", ["", "mcp__compaction__", "compaction."])
async def test_search_excludes_calls_of_its_own_tools(config: Config, prefix: str) -> None:
    messages = [user("The token is ZEBRA_99."), agent("Noted.")]
    search_arguments = {"query": "ZEBRA_99"}
    messages += call(1, f"{prefix}search_transcript", search_arguments, "No matches for: ZEBRA_99")
    words = "I look that up."
    messages += call(
        2, f"{prefix}read_persisted_output", search_arguments, "1:ZEBRA_99 is the token", words
    )
    messages += call(3, f"{prefix}persist_large_output", {"output": "ZEBRA_99"}, "o_1 ZEBRA_99")
    messages += call(4, f"{prefix}compact_messages", {"instructions": "ZEBRA_99"}, "ZEBRA_99")
    messages += call(5, "research_transcript", search_arguments, "another tool's ZEBRA_99")
    async with connect(config) as client:
        await record(client, "s", messages)
        for kind, order in (("words", "relevance"), ("phrase", "recent"), ("regex", "recent")):
            how = {"kind": kind, "order": order}
            assert seqs(await search(client, "ZEBRA_99", **how)) == [0, 10, 11], how
            tool = f"{prefix}search_transcript"
            assert seqs(await search(client, "ZEBRA_99", tool=tool, **how)) == [2, 3], how
        assert seqs(await search(client, "look that up")) == [4]


async def test_search_note_separates_missing_words_and_words_found_elsewhere(
    config: Config,
) -> None:
    async with connect(config) as client:
        await record(client, "one", [user("The theme is dark."), agent("Noted, the theme.")])
        await record(client, "two", [user("The window is light.")])
        there = await search(client, "dark", session_id="two")
        mixed = await search(client, "window dark zzyzx", session_id="two")
        role = await search(client, "dark", role="assistant")
        nowhere = await search(client, "zzyzx", session_id="two")
    assert "elsewhere in the archive: dark" in there["note"]
    assert "Nowhere" not in there["note"] + role["note"]
    assert "elsewhere in the archive: dark" in role["note"]
    assert "No matches for: zzyzx." in mixed["note"]
    assert "elsewhere in the archive: dark" in mixed["note"]
    assert "No matches for: zzyzx." in nowhere["note"]
    assert "elsewhere" not in nowhere["note"]


async def test_a_hit_that_ends_with_a_question_shows_the_answer_of_its_own_history(
    config: Config,
) -> None:
    start = [user("Hello."), agent("Which harbour do you mean?")]
    async with connect(config) as client:
        await record(client, "s", [*start, user("Ostende."), agent("Is the harbour deep?")])
        await record(client, "s", [*start, user("Rotterdam, at the lock.")])
        first, last = sorted(
            (await search(client, "harbour"))["hits"], key=lambda hit: hit["pointer"]
        )
        answer = await search(client, "Rotterdam")
    assert first["next"]["snippet"] == "Ostende."
    assert first["next"]["role"] == "user"
    assert first["next"]["pointer"].startswith("transcript://s/messages/2@")
    assert "next" not in last  # the message with the next number is in another branch
    assert "next" not in answer["hits"][0]


@pytest.mark.slow
async def test_an_output_has_the_time_of_its_message(
    environment: dict[str, str], files: Path
) -> None:
    log = "".join(f"needle_{n} in the log of the build\n" for n in range(4_000))
    messages = [user("Build it."), *call(1, "Bash", {"command": "make"}, log), agent("Done.")]
    messages += [user("Go on."), agent("Yes.")]
    rows = [
        {
            "type": message["role"],
            "message": message,
            "uuid": f"u{n}",
            "parentUuid": f"u{n - 1}" if n else None,
            "sessionId": "old",
            "timestamp": f"2025-03-01T10:00:{n:02}Z",
        }
        for n, message in enumerate(messages)
    ]
    path = files / "old.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    imported = await run_process(
        [sys.executable, "-m", "mcp_server_compaction", "import", str(path)], env=environment
    )
    assert imported.returncode == 0
    async with spawned({**environment, "MCP_COMPACTION_ROOTS": str(files)}) as client:
        (hit,) = (await search(client, "needle_17"))["hits"]
        call_arguments = {"transcript_path": str(path), "mode": "micro", "target_tokens": 2_000}
        call_arguments["session_id"] = hit["pointer"].split("/")[2]
        answer = answer_of(await client.call_tool("compact_messages", call_arguments))
        hits = (await search(client, "needle_17", until="2025-03-02"))["hits"]
    assert answer["status"] == "compacted"
    assert {hit["time"] for hit in hits} == {"2025-03-01T10:00"}
    assert any(hit["pointer"].startswith("o_") for hit in hits)


async def test_search_note_mentions_omitted_parts_of_an_output(
    config: Config,
) -> None:
    log = "\n".join(f"{n} the quokka hops" for n in range(20_000))
    async with connect(config) as client:
        await client.call_tool("persist_large_output", {"output": log, "session_id": "s"})
        many = await search(client, "quokka")
        last = await search(client, "19999")
    assert many["total"] > len(many["hits"]) == 3
    assert "next_cursor" not in many
    assert many["note"].startswith("At most 3 parts of one output are listed. ")
    assert "parts" not in last["note"]
