"""The tool compact_messages over MCP, with every kind of input and reply."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from context_compaction.result import Splice, apply_splices
from mcp import Client
from mcp_server_compaction.config import Config
from mcp_types import CallToolResult

from tests.server.helpers import (
    Era,
    Json,
    answer_of,
    connect,
    conversation,
    error_of,
    parsed,
    text_of,
)

MAX_CHARS = 8_000


async def compact(client: Client, **arguments: Any) -> Json:
    return answer_of(await client.call_tool("compact_messages", arguments))


async def test_messages_and_edits_give_the_same_list(config: Config, era: Era) -> None:
    messages = conversation()
    before = copy.deepcopy(messages)
    steps: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    arguments: Json = {"messages": messages, "target_tokens": 12_000, "session_id": "s"}
    async with connect(config, era) as client:
        fits = await compact(client, messages=conversation(2, 10))
        planned = await compact(client, **arguments, mode="plan")
        not_there = error_of(
            await client.call_tool(
                "read_persisted_output", {"output_id": "transcript://s/messages/0-1"}
            )
        )
        as_list = await compact(client, **arguments, reply="messages")
        result = await client.call_tool("compact_messages", arguments, progress_callback=note)
        added = [{"role": "assistant", "content": "I mended it."}]
        grown = await compact(client, session_id="s", new_messages=added)
    assert (fits["status"], fits["changed"], "messages" in fits) == ("unchanged", False, False)
    assert "s" in not_there
    assert not planned["changed"]
    assert planned["tokens"]["after"] < planned["tokens"]["before"]
    assert messages == before
    assert as_list["fits"]
    assert as_list["tokens"]["upper"] <= 12_000 < as_list["tokens"]["before"]
    assert as_list["messages"][-1] == messages[-1]
    assert len(as_list["messages"]) == as_list["message_count"]
    assert grown["message_count"] == as_list["message_count"] + 1
    answer = answer_of(result)
    edits = [Splice(e["start"], e["delete_count"], tuple(e["insert"])) for e in answer["edits"]]
    assert apply_splices(messages, edits) == as_list["messages"]
    assert parsed(result) == {name: answer[name] for name in answer if name != "edits"}
    assert len(text_of(result)) <= MAX_CHARS
    fractions = [progress for progress, _, _ in steps]
    assert len(fractions) >= 3
    assert fractions == sorted(fractions)
    assert all(total == 1.0 and message for _, total, message in steps)


async def test_removed_content_reads_back_exactly(config: Config) -> None:
    messages = conversation()
    async with connect(config) as client:
        call_arguments: Json = {"mode": "micro", "reply": "messages"}
        answer = await compact(client, messages=messages, target_tokens=20_000, **call_arguments)
        changed = [
            (message["content"][0]["content"], shown["content"][0]["content"])
            for message, shown in zip(messages, answer["messages"], strict=True)
            if message != shown
        ]
        assert changed
        for original, placeholder in changed:
            [pointer, *_] = re.findall("o_[0-9a-f]+", placeholder)
            read = ""
            while len(read) < len(original):
                asked = {"output_id": pointer, "offset": len(read)}
                read += text_of(await client.call_tool("read_persisted_output", asked))
            assert read == original


async def test_a_transcript_is_read_inside_the_roots_only_and_its_parts_are_filed(
    config: Config, files: Path
) -> None:
    text = json.dumps(conversation())
    path, outside = files / "session.json", files.parent / "session.json"
    path.write_text(text, encoding="utf-8")
    outside.write_text(text, encoding="utf-8")
    call_arguments: Json = {"transcript_path": str(path), "mode": "full", "target_tokens": 8_000}
    async with connect(config) as client:
        result = await client.call_tool("compact_messages", call_arguments)
        asked = await client.call_tool("compact_messages", {**call_arguments, "summarizer": "host"})
        output_id = answer_of(asked)["summary_request"]["user"].split()[-1]
        prompt = await client.call_tool("read_persisted_output", {"output_id": output_id})
        refused = error_of(
            await client.call_tool("compact_messages", {"transcript_path": str(outside)})
        )
    answer = answer_of(result)
    assert answer["status"] == "compacted"
    assert answer["summary"]
    assert parsed(result) == answer
    assert max(len(text_of(reply)) for reply in (result, asked)) <= MAX_CHARS
    assert "checkout" in text_of(prompt)
    assert str(files) in refused


async def test_options_reach_the_engine_and_its_refusals_the_model(config: Config) -> None:
    messages = conversation()
    options = {"overhead_tokens": 5_000, "model": "gpt-5", "buffer_tokens": 1}
    short = [{"role": "user", "content": "x"}]
    async with connect(config) as client:
        plain = await compact(client, messages=messages, mode="plan")
        heavy = await compact(client, messages=messages, mode="plan", options=options)
        for wrong, expected in (
            ({"messages": [{"role": "user"}]}, "Message 0"),
            ({"messages": short, "policy": "absent"}, "policy"),
            ({"messages": short, "options": {"keep_recent_results": "three"}}, "whole number"),
        ):
            message = error_of(await client.call_tool("compact_messages", wrong))
            assert expected in message
            assert message.endswith("Nothing was changed.")
    assert heavy["tokens"]["trigger"] != plain["tokens"]["trigger"]
    assert heavy["tokens"]["method"] != plain["tokens"]["method"]


async def test_a_cancelled_call_leaves_a_usable_archive(config: Config, era: Era) -> None:
    messages = conversation()
    arguments: Json = {"messages": messages, "session_id": "s", "target_tokens": 12_000}
    async with connect(config, era) as client:
        with anyio.CancelScope() as scope:

            async def cancel(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            await client.call_tool("compact_messages", arguments, progress_callback=cancel)
        assert scope.cancelled_caught
        assert (await compact(client, **arguments))["status"] == "compacted"
        asked = {"output_id": "transcript://s/messages/0-0", "as_json": True}
        read = await client.call_tool("read_persisted_output", asked)
    assert json.loads(text_of(read)) == messages[0]


async def test_a_model_may_leave_out_messages_of_the_session_so_far(config: Config) -> None:
    messages = conversation(4)
    async with connect(config) as client:
        recorded = {"messages": messages, "session_id": "s", "mode": "record"}
        await client.call_tool("compact_messages", recorded)
        asked: Json = {"new_messages": [], "session_id": "s", "options": {"snip_messages": [1]}}
        answer = answer_of(await client.call_tool("compact_messages", asked))
        [boundary] = answer["receipt"]["snip"]["boundary_messages"]
        pointer = boundary.partition("originals: ")[2].rstrip("]")
        read = await client.call_tool("read_persisted_output", {"output_id": pointer})
    assert answer["receipt"]["snip"]["messages"] == 2, "the call and its result"
    assert answer["receipt"]["snip"]["tokens_freed"] > 0
    assert "value_0_1 = compute(7)" in text_of(read)


FIRST_CALLS: dict[str, list[Json]] = {
    "anthropic": conversation(1)[1:3],
    "openai-chat": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "42"},
    ],
    "openai-responses": [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "42"},
    ],
}


@pytest.mark.parametrize("format", FIRST_CALLS)
async def test_a_session_that_began_with_plain_words_goes_on_in_any_format(
    config: Config, format: str
) -> None:
    began = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    asked = {"role": "user", "content": "look"}
    async with connect(config) as client:

        async def add_messages(*new: Json) -> CallToolResult:
            given: Json = {"new_messages": new, "session_id": "grown"}
            return await client.call_tool("compact_messages", given)

        await add_messages(began[0])
        await add_messages(began[1])
        await add_messages(asked, *FIRST_CALLS[format])
        answer = answer_of(await add_messages(*began))
        error = error_of(await add_messages({"role": "user"}))
    assert (answer["format"], answer["message_count"]) == (format, 7)
    assert "Message 7: `content` is missing" in error
