"""Sub-agents under a parent: budgets of their own, receipts that name it, one search over all."""

import json

from mcp import Client
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, answer_of, connect, conversation

CALLS = 6


def renamed(messages: list[Json], label: str) -> list[Json]:
    """The same conversation about other modules."""
    told: list[Json] = json.loads(json.dumps(messages).replace("module_", f"{label}_module_"))
    return told


async def compacted(client: Client, session: str, target: int, parent: str | None) -> Json:
    wish: Json = {
        "messages": renamed(conversation(CALLS), session),
        "session_id": session,
        "target_tokens": target,
        "reply": "receipt",
    }
    if parent is not None:
        wish["options"] = {"parent_session_id": parent}
    return answer_of(await client.call_tool("compact_messages", wish))


async def family(client: Client) -> Json:
    await compacted(client, "parent", 15_000, None)
    small = await compacted(client, "small", 4_000, "parent")
    large = await compacted(client, "large", 9_000, "parent")
    assert small["receipt"]["parent_session_id"] == "parent"
    assert small["tokens"]["upper"] <= 4_000 < large["tokens"]["upper"] <= 9_000
    read = await client.read_resource("transcript://parent")
    document: Json = json.loads(getattr(read.contents[0], "text", ""))
    return document


async def test_each_session_keeps_its_own_budget_and_the_parent_tells_what_all_hold(
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


async def test_one_search_finds_what_any_of_them_saw_and_a_child_is_searched_alone(
    config: Config,
) -> None:
    async with connect(config) as client:
        await family(client)

        async def sessions(where: str, query: str) -> set[str]:
            wish = {"query": query, "session_id": where, "limit": 50}
            answer = answer_of(await client.call_tool("search_transcript", wish))
            # transcript://SESSION/…; an output's pointer does not tell its session.
            return {hit.get("session_id") or hit["pointer"].split("/")[2] for hit in answer["hits"]}

        assert await sessions("parent", "checkout test fails") == {"parent", "small", "large"}
        assert await sessions("parent", "small_module_3") == {"small"}
        assert await sessions("large", "checkout test fails") == {"large"}


async def test_a_receipt_in_the_archive_names_the_parent_where_a_later_call_does_not(
    config: Config,
) -> None:
    async with connect(config) as client:
        await compacted(client, "small", 9_000, "parent")
        await compacted(client, "small", 4_000, None)
        read = await client.read_resource("transcript://small/receipts")
    receipts = getattr(read.contents[0], "text", "").splitlines()
    assert [json.loads(line)["parent_session_id"] for line in receipts] == ["parent", "parent"]
