"""Compactions that one server prepares in the background and another server applies later."""

from mcp_server_compaction.config import Config

from tests.server.helpers import Json, answer_of, connect, conversation, error_of, parsed

LATER: list[Json] = [
    {"role": "assistant", "content": "I mend the timeout."},
    {"role": "user", "content": "And the second one?"},
]


async def test_prepared_compaction_is_applied_by_another_server_to_the_grown_list(
    config: Config,
) -> None:
    messages = conversation()
    call_arguments: Json = {"messages": messages, "session_id": "s", "mode": "full"}
    async with connect(config) as client:
        result = await client.call_tool(
            "compact_messages", {**call_arguments, "options": {"prepare": True}}
        )
    answer = answer_of(result)
    assert parsed(result) == answer
    assert answer["status"] == "prepared"
    assert answer["changed"] is False
    assert "messages" not in answer
    prepared = answer["prepared"]
    assert prepared["message_count"] == len(messages)
    assert prepared["prepared_id"] in answer["next_step"]
    grown = [*messages, *LATER]
    options = {"apply": prepared["prepared_id"]}
    call_arguments = {"messages": grown, "session_id": "s", "options": options, "reply": "messages"}
    async with connect(config) as client:
        applied = answer_of(await client.call_tool("compact_messages", call_arguments))
        changed = [
            *messages[:1],
            {**messages[1], "content": "Something else."},
            *messages[3:],
            *LATER,
        ]
        refused = await client.call_tool(
            "compact_messages", {"messages": changed, "session_id": "s", "options": options}
        )
    assert applied["status"] == "compacted"
    assert applied["boundary"] == answer["boundary"]
    assert applied["messages"][-2:] == LATER
    assert applied["receipt"]["applied"] == prepared["prepared_id"]
    assert "starts with other messages" in error_of(refused)
