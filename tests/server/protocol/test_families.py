"""Sub-agents of a parent session: separate budgets, linked receipts and one common search."""

import json

from mcp import Client
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, answer_of, connect, conversation

CALLS = 6


def renamed(messages: list[Json], label: str) -> list[Json]:
    """Return the conversation with other module names."""
    renamed_messages: list[Json] = json.loads(
        json.dumps(messages).replace("module_", f"{label}_module_")
    )
    return renamed_messages


async def compacted(client: Client, session: str, target: int, parent: str | None) -> Json:
    call_arguments: Json = {
        "messages": renamed(conversation(CALLS), session),
        "session_id": session,
        "target_tokens": target,
        "reply": "receipt",
    }
    if parent is not None:
        call_arguments["options"] = {"parent_session_id": parent}
    return answer_of(await client.call_tool("compact_messages", call_arguments))


async def family(client: Client) -> Json:
    await compacted(client, "parent", 15_000, None)
    small = await compacted(client, "small", 4_000, "parent")
    large = await compacted(client, "large", 9_000, "parent")
    assert small["receipt"]["parent_session_id"] == "parent"
    assert small["tokens"]["upper"] <= 4_000 < large["tokens"]["upper"] <= 9_000
    read = await client.read_resource("transcript://parent")
    document: Json = json.loads(getattr(read.contents[0], "text", ""))
    return document


async def test_parent_resource_lists_the_tokens_of_each_sub_agent(
    config: Config,
) -> None:
    async with connect(config) as client:
        document = await family(client)
        alone = await client.read_resource("transcript://small")
    held = {member["session_id"]: member for member in document["family"]}
    assert list(held) == ["parent", "small", "large"]
    assert held["small"]["parent_session_id"] == "parent"
    assert [held[name]["tokens"]["target"] for name in held] == [15_000, 4_000, 9_000]
    assert 0 < held["small"]["tokens"]["after"] <= 4_000
    assert {member["message_count"] for member in held.values()} == {len(conversation(CALLS))}
    assert "family" not in getattr(alone.contents[0], "text", "")


async def test_receipt_names_the_parent_when_a_later_call_omits_it(
    config: Config,
) -> None:
    async with connect(config) as client:
        await compacted(client, "small", 9_000, "parent")
        await compacted(client, "small", 4_000, None)
        read = await client.read_resource("transcript://small/receipts")
    receipts = getattr(read.contents[0], "text", "").splitlines()
    assert [json.loads(line)["parent_session_id"] for line in receipts] == ["parent", "parent"]
