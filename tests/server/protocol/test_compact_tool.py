"""compact_messages over MCP: what goes in, what comes out, in every form of reply."""

import copy
import json
from pathlib import Path

import anyio
import pytest
from context_compaction.splices import Splice, apply_splices
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


async def test_a_conversation_that_fits_comes_back_as_unchanged_without_a_list(
    config: Config, era: Era
) -> None:
    async with connect(config, era) as client:
        result = await client.call_tool("compact_messages", {"messages": conversation(2, 10)})
    answer = answer_of(result)
    assert answer["status"] == "unchanged"
    assert answer["changed"] is False
    assert "messages" not in answer
    assert parsed(result) == answer


async def test_a_conversation_over_the_target_comes_back_smaller(config: Config, era: Era) -> None:
    messages = conversation()
    before = copy.deepcopy(messages)
    async with connect(config, era) as client:
        result = await client.call_tool(
            "compact_messages",
            {"messages": messages, "target_tokens": 12_000, "reply": "messages"},
        )
    answer = answer_of(result)
    assert messages == before
    assert answer["status"] == "compacted"
    assert answer["fits"]
    assert answer["tokens"]["upper"] <= 12_000 < answer["tokens"]["before"]
    assert len(answer["messages"]) == answer["message_count"]
    assert answer["messages"][-1] == messages[-1]


async def test_text_and_structure_say_the_same_but_for_the_list(config: Config, era: Era) -> None:
    async with connect(config, era) as client:
        result = await client.call_tool(
            "compact_messages", {"messages": conversation(), "target_tokens": 12_000}
        )
    answer = answer_of(result)
    del answer["edits"]
    assert parsed(result) == answer
    assert len(text_of(result)) <= MAX_CHARS


async def test_a_model_may_leave_out_messages_of_the_session_so_far(
    config: Config, era: Era
) -> None:
    messages = conversation(4)
    async with connect(config, era) as client:
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


async def test_edits_which_are_usual_applied_to_the_input_give_the_list(
    config: Config,
) -> None:
    messages = conversation()
    arguments: Json = {"messages": messages, "target_tokens": 12_000}
    async with connect(config) as client:
        whole, edits, usual = [
            answer_of(await client.call_tool("compact_messages", {**arguments, **reply}))
            for reply in ({"reply": "messages"}, {"reply": "edits"}, {})
        ]
    splices = [
        Splice(edit["start"], edit["delete_count"], tuple(edit["insert"]))
        for edit in edits["edits"]
    ]
    assert "messages" not in edits
    assert (usual["edits"], usual["context_hash"]) == (edits["edits"], edits["context_hash"])
    assert apply_splices(messages, splices) == whole["messages"]


async def test_what_left_the_context_reads_back_exactly(config: Config, era: Era) -> None:
    messages = conversation()
    async with connect(config, era) as client:
        answer = answer_of(
            await client.call_tool(
                "compact_messages",
                {
                    "messages": messages,
                    "target_tokens": 20_000,
                    "mode": "micro",
                    "reply": "messages",
                },
            )
        )
        kept = {json.dumps(message, sort_keys=True) for message in answer["messages"]}
        changed = [m for m in messages if json.dumps(m, sort_keys=True) not in kept]
        assert changed
        rendered = json.dumps(answer["messages"])
        for message in changed:
            original = message["content"][0]["content"]
            pointer = _pointer_of(rendered, answer, message)
            read = ""
            while len(read) < len(original):
                result = await client.call_tool(
                    "read_persisted_output", {"output_id": pointer, "offset": len(read)}
                )
                read += text_of(result)
            assert read == original


def _pointer_of(rendered: str, answer: Json, message: Json) -> str:
    """The output id in the placeholder that stands for the result of `message`."""
    call_id = message["content"][0]["tool_use_id"]
    (placeholder,) = [
        block["content"]
        for out in answer["messages"]
        if isinstance(out["content"], list)
        for block in out["content"]
        if block.get("tool_use_id") == call_id
    ]
    assert isinstance(placeholder, str)
    assert json.dumps(placeholder)[1:-1] in rendered
    return next(
        word.strip("];,\"'") for word in placeholder.replace('"', " ").split() if word[:2] == "o_"
    )


async def test_new_messages_are_put_behind_the_session_so_far(config: Config) -> None:
    messages = conversation(calls=4)
    async with connect(config) as client:
        first = answer_of(
            await client.call_tool(
                "compact_messages", {"new_messages": messages[:5], "session_id": "grown"}
            )
        )
        second = answer_of(
            await client.call_tool(
                "compact_messages", {"new_messages": messages[5:], "session_id": "grown"}
            )
        )
    assert first["message_count"] == 5
    assert any("not known" in warning for warning in first["warnings"])
    assert second["message_count"] == len(messages)
    assert second["tokens"]["before"] > first["tokens"]["before"]


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

        async def put(*new: Json) -> CallToolResult:
            given: Json = {"new_messages": new, "session_id": "grown"}
            return await client.call_tool("compact_messages", given)

        await put(began[0])
        await put(began[1])
        await put(asked, *FIRST_CALLS[format])
        answer = answer_of(await put(*began))
        error = error_of(await put({"role": "user"}))
    assert (answer["format"], answer["message_count"]) == (format, 7)
    assert "Message 7: `content` is missing" in error


async def test_new_messages_follow_the_compacted_context(config: Config) -> None:
    messages = conversation()
    async with connect(config) as client:
        first = answer_of(
            await client.call_tool(
                "compact_messages",
                {"messages": messages, "session_id": "s", "target_tokens": 12_000},
            )
        )
        second = answer_of(
            await client.call_tool(
                "compact_messages",
                {
                    "session_id": "s",
                    "new_messages": [{"role": "assistant", "content": "I mended it."}],
                },
            )
        )
    assert second["message_count"] == first["message_count"] + 1


async def test_a_transcript_is_read_inside_the_roots_and_answered_with_a_receipt(
    config: Config, files: Path, era: Era
) -> None:
    path = files / "session.json"
    path.write_text(json.dumps(conversation()), encoding="utf-8")
    async with connect(config, era) as client:
        result = await client.call_tool(
            "compact_messages",
            {"transcript_path": str(path), "mode": "full", "target_tokens": 8_000},
        )
    answer = answer_of(result)
    assert answer["status"] == "compacted"
    assert answer["summary"]
    assert "messages" not in answer
    assert parsed(result) == answer
    assert len(text_of(result)) <= MAX_CHARS


async def test_a_transcript_outside_the_roots_is_refused(config: Config, files: Path) -> None:
    path = files.parent / "session.json"
    path.write_text(json.dumps(conversation(2, 5)), encoding="utf-8")
    async with connect(config) as client:
        message = error_of(
            await client.call_tool("compact_messages", {"transcript_path": str(path)})
        )
    assert str(files) in message
    assert "Nothing was changed." in message


async def test_a_plan_writes_nothing(config: Config) -> None:
    arguments = {"messages": conversation(), "mode": "plan", "target_tokens": 12_000}
    async with connect(config) as client:
        answer = answer_of(await client.call_tool("compact_messages", arguments))
        message = error_of(
            await client.call_tool(
                "read_persisted_output",
                {"output_id": f"transcript://{answer['session_id']}/messages/0-1"},
            )
        )
    assert answer["changed"] is False
    assert answer["tokens"]["after"] < answer["tokens"]["before"]
    assert answer["session_id"] in message


async def test_a_caller_that_reads_in_parts_gets_the_prompt_filed(
    config: Config, files: Path
) -> None:
    path = files / "session.json"
    path.write_text(json.dumps(conversation()), encoding="utf-8")
    async with connect(config) as client:
        result = await client.call_tool(
            "compact_messages",
            {
                "transcript_path": str(path),
                "mode": "full",
                "target_tokens": 8_000,
                "summarizer": "host",
            },
        )
        answer = answer_of(result)
        output_id = answer["summary_request"]["user"].split()[-1]
        prompt = await client.call_tool("read_persisted_output", {"output_id": output_id})
    assert len(text_of(result)) <= MAX_CHARS
    assert "checkout" in text_of(prompt)


async def test_options_reach_the_engine(config: Config) -> None:
    messages = conversation()
    async with connect(config) as client:
        plain = answer_of(
            await client.call_tool("compact_messages", {"messages": messages, "mode": "plan"})
        )
        heavy = answer_of(
            await client.call_tool(
                "compact_messages",
                {
                    "messages": messages,
                    "mode": "plan",
                    "options": {"overhead_tokens": 5_000, "model": "gpt-5", "buffer_tokens": 1},
                },
            )
        )
        pinned = answer_of(
            await client.call_tool(
                "compact_messages",
                {
                    "messages": messages,
                    "mode": "full",
                    "target_tokens": 8_000,
                    "reply": "messages",
                    "options": {"pinned": ["Never touch the ledger."]},
                },
            )
        )
    assert heavy["tokens"]["trigger"] != plain["tokens"]["trigger"]
    assert heavy["tokens"]["method"] != plain["tokens"]["method"]
    assert "Never touch the ledger." in json.dumps(pinned["messages"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"messages": [{"role": "user"}]}, "Message 0"),
        ({"messages": [{"role": "user", "content": "x"}], "policy": "absent"}, "policy"),
        (
            {
                "messages": [{"role": "user", "content": "x"}],
                "options": {"keep_recent_results": "three"},
            },
            "whole number",
        ),
    ],
)
async def test_what_the_engine_refuses_reaches_the_model_as_text(
    config: Config, era: Era, arguments: Json, expected: str
) -> None:
    async with connect(config, era) as client:
        message = error_of(await client.call_tool("compact_messages", arguments))
    assert expected in message
    assert message.endswith("Nothing was changed.")


async def test_progress_is_reported_in_rising_steps(config: Config, era: Era) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with connect(config, era) as client:
        await client.call_tool(
            "compact_messages",
            {"messages": conversation(), "target_tokens": 12_000},
            progress_callback=note,
        )
    fractions = [progress for progress, _, _ in seen]
    assert len(fractions) >= 3
    assert fractions == sorted(fractions)
    assert all(total == 1.0 and message for _, total, message in seen)


async def test_a_cancelled_call_leaves_a_usable_archive(config: Config, era: Era) -> None:
    messages = conversation()
    arguments: Json = {"messages": messages, "session_id": "s", "target_tokens": 12_000}
    async with connect(config, era) as client:
        with anyio.CancelScope() as scope:

            async def cancel(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            await client.call_tool("compact_messages", arguments, progress_callback=cancel)
        assert scope.cancelled_caught
        answer = answer_of(await client.call_tool("compact_messages", arguments))
        read = await client.call_tool(
            "read_persisted_output", {"output_id": "transcript://s/messages/0-0", "as_json": True}
        )
    assert answer["status"] == "compacted"
    assert json.loads(text_of(read)) == messages[0]
