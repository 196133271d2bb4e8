"""Faults that were found from outside, each through an MCP client."""

from typing import Any

from mcp import Client
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, connect
from tests.support.small import agent, answered, user


async def compact(client: Client, messages: list[Json], **given: Any) -> Json:
    """Return the structured reply, or the text of the error under "error"."""
    reply = await client.call_tool(
        "compact_messages", {"messages": messages, "reply": "messages", **given}
    )
    if reply.is_error:
        return {"error": str(reply.content)}
    assert reply.structured_content is not None
    return reply.structured_content


def call(number: Any, name: str, arguments: Json, result: str) -> list[Json]:
    """A call and its result."""
    return answered(f"t{number}", name, result, **arguments)


def filler(count: int, word: str) -> list[Json]:
    """Return turns of about 600 tokens, each about another file."""
    return [
        message
        for i in range(count)
        for message in (
            user(f"step {i}: look at {word}_{i}.py please. " + "It has many lines of code. " * 40),
            agent(f"{word}_{i}.py has function f{i}. " + "It does things with values. " * 40),
        )
    ]


async def test_conversations_with_equal_beginnings_stay_separate(
    config: Config,
) -> None:
    secret = user("My account is ACME-4711 and you must never call me before noon.")
    hello = user("Hello, I need help.")
    first = [hello, agent("Sure."), secret, agent("Noted."), user("thanks")]
    async with connect(config) as client:
        await compact(client, first, context_window=16000)
        begun = [hello, agent("Of course."), *filler(8, "beta"), user("go on")]
        begun_reply = await compact(client, begun, context_window=16000, mode="full")
        grown = [*begun_reply["messages"], agent("done"), *filler(8, "gamma"), user("and now?")]
        grown_reply = await compact(client, grown, context_window=16000, mode="full")
        assert begun_reply["session_id"] == grown_reply["session_id"]
        read = await client.call_tool(
            "read_persisted_output",
            {"output_id": grown_reply["boundary"]["pointer"], "pattern": "ACME"},
        )
    assert not read.is_error
    for reply in (begun_reply, grown_reply, read.content):
        assert "ACME-4711" not in str(reply)
    assert "beta_0.py" in str(grown_reply["messages"]), "the text of the session itself is retained"


async def test_text_that_the_user_edited_away_does_not_return(config: Config) -> None:
    start = [user("Port the parser."), agent("Which library?")]
    abandoned = user("Never touch OLDBRANCH_secret.py, always use zebra_lib.")
    variants: Json = {"context_window": 16000, "session_id": "s1"}
    async with connect(config) as client:
        await compact(client, [*start, abandoned, agent("Fine.")], **variants)
        edited = [*start, user("Use the standard library."), agent("Fine."), *filler(8, "beta")]
        new = await compact(client, [*edited, user("go on")], mode="full", **variants)
        grown = [*new["messages"], agent("done"), *filler(8, "gamma"), user("next?")]
        again = await compact(client, grown, mode="full", **variants)
        read = await client.call_tool(
            "read_persisted_output", {"output_id": again["boundary"]["pointer"]}
        )
    assert not read.is_error
    for reply in (new, again, read.content):
        assert "zebra_lib" not in str(reply)
