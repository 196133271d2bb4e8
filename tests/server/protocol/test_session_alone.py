"""A call that names a session but no messages or no window, and short pointers in the tools."""

from typing import Any

import pytest
from mcp import Client
from mcp_server_compaction.client import APPLIED, CompactionClient
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, answer_of, connect, conversation, error_of, text_of

SESSION = "d703a1a9-0000-4000-8000-000000000001"


async def compact(client: Client, **arguments: Any) -> Json:
    return answer_of(await client.call_tool("compact_messages", arguments))


@pytest.mark.parametrize("arguments", [{}, {"mode": "full"}, {"mode": "record"}, {"mode": "plan"}])
async def test_session_alone_means_its_context(config: Config, arguments: Json) -> None:
    async with connect(config) as client:
        first = await compact(
            client, messages=conversation(), session_id="s", target_tokens=12_000, reply="messages"
        )
        alone = await compact(client, session_id="s", **arguments)
        assert alone["message_count"] <= len(first["messages"])
        if not alone["changed"]:
            grown = await compact(client, session_id="s", new_messages=[], **arguments)
            assert alone["tokens"] == grown["tokens"]
        refused = await client.call_tool("compact_messages", {"session_id": "nobody", **arguments})
    assert "no session 'nobody'" in error_of(refused)


async def test_every_reply_to_new_messages_has_a_context_hash(config: Config) -> None:
    async with connect(config) as client:
        reply = await compact(
            client, messages=conversation(), session_id="s", context_window=30_000, reply="edits"
        )
        for number in range(3):
            added = [
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": "Next."},
            ]
            reply = await compact(
                client,
                new_messages=added,
                session_id="s",
                options={"context_hash": reply["context_hash"]},
                mode="full" if number == 1 else "auto",
            )


async def test_window_of_a_session_is_reused_and_reported(config: Config) -> None:
    messages = conversation()
    async with connect(config) as client:
        first = await compact(client, messages=messages, session_id="s", context_window=24_000)
        other = await compact(client, messages=messages, session_id="t")
    async with connect(config) as client:  # a new server reads it from the archive
        again = await compact(client, session_id="s")
        assert again["tokens"]["trigger"] == first["tokens"]["trigger"]
        assert any("context_window is 24000" in warning for warning in again["warnings"])
        named = await compact(client, session_id="s", context_window=64_000)
        assert named["tokens"]["trigger"] > again["tokens"]["trigger"]
        assert not named["warnings"]
        last = await compact(client, session_id="s")
        assert last["tokens"]["trigger"] == named["tokens"]["trigger"]
        model = await compact(client, session_id="s", options={"model": "gpt-4o"})
        assert model["tokens"]["trigger"] > named["tokens"]["trigger"]
        assert not other["warnings"]


async def test_answer_says_that_an_earlier_compaction_is_used(config: Config) -> None:
    async with connect(config) as client:
        arguments = {"messages": conversation(), "session_id": "s", "context_window": 24_000}
        first, again = await compact(client, **arguments), await compact(client, **arguments)
        compaction = CompactionClient(client, session_id="s", context_window=24_000)
        await compaction.fit(conversation())
    assert "Nothing new was compacted" not in first["next_step"]
    assert again["tokens"]["before"] == again["tokens"]["after"]
    assert again["next_step"].startswith("Nothing new was compacted: the first ")
    assert compaction.answer["next_step"] == APPLIED


async def test_short_pointers_are_read_by_the_tools(config: Config) -> None:
    async with connect(config) as client:
        await compact(client, messages=conversation(), session_id=SESSION)
        pointer = f"transcript://{SESSION}/messages/0-1"

        async def read(output_id: str) -> Any:
            return await client.call_tool("read_persisted_output", {"output_id": output_id})

        expected = text_of(await read(pointer))
        for short in ("d703a1a9/0-1", "d703/0-1", "d703a1a9/messages/0-1"):
            result = await read(short)
            assert text_of(result) == expected
            assert f"{SESSION}/messages/0-1" in text_of(result, 1)
        listed = text_of(await read(f"transcript://{SESSION}/files"))
        assert text_of(await read("d703a1a9/files")) == listed
        for wrong, reason in {
            "d703a1a9": "is a session",
            "nobody/0-1": "no session 'nobody'",
            "d703a1a9/900-901": "but none of",
        }.items():
            message = error_of(await read(wrong))
            assert reason in message
            assert "Nothing was changed" not in message
        found = await client.call_tool(
            "search_transcript", {"query": "the", "session_id": "d703a1a9"}
        )
        assert answer_of(found)["total"] > 0


async def test_undo_returns_the_list_before_the_compaction(config: Config) -> None:
    messages = conversation()
    async with connect(config) as client:
        first = await compact(client, messages=messages, session_id="s", mode="full")
        assert first["status"] == "compacted"
        options = {"restore": "transcript://s/messages/1-1"}
        restored = await compact(client, session_id="s", mode="undo", options=options)
        assert messages[1] in restored["messages"]
        assert f"{options['restore']} is back in the list" in restored["next_step"]
        undone = await compact(client, session_id="s", mode="undo", reply="messages")
        assert undone["messages"] == messages
        assert "Compaction 0 was taken back" in undone["next_step"]
        later = await compact(client, messages=messages, session_id="s")
        assert later["status"] == "unchanged"
        refused = await client.call_tool("compact_messages", {"session_id": "s", "mode": "undo"})
    assert "no compaction that can be undone" in error_of(refused)
