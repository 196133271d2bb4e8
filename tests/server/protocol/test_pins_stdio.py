"""Pins and losses over real stdio: given by options, told in the receipt, read as a resource."""

import json
import os
import sys
from pathlib import Path

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextResourceContents

from tests.server.helpers import Json, answer_of, conversation, error_of

RULE = "Never touch the production database."
FRENCH = "Speak French."


async def test_pins_outlive_calls_of_a_host_until_it_unpins_them(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_server_compaction"], env=environment
    )
    with anyio.fail_after(150):
        async with Client(server, mode="legacy") as client:

            async def compacted(messages: list[Json], **options: object) -> Json:
                arguments = {"mode": "full", "session_id": "s", "options": options}
                arguments |= {"reply": "messages"}
                arguments |= {"messages": messages} if messages is first else {
                    "new_messages": messages
                }  # fmt: skip
                return answer_of(await client.call_tool("compact_messages", arguments))

            first = conversation()
            more = [{"role": "assistant", "content": f"I note this: {RULE}"}, *conversation()]
            given = await compacted(first, pinned=[FRENCH])
            assert FRENCH in str(given["messages"])
            # The place is that of the new messages, the first of which is marked.
            marked = await compacted(more, pinned_messages=[0])
            assert FRENCH in str(marked["messages"])
            assert f"I note this: {RULE}" in str(marked["messages"])
            ended = await compacted(conversation(), unpin=[FRENCH])
            assert FRENCH not in str(ended["messages"])
            assert f"I note this: {RULE}" in str(ended["messages"])

            resource = await client.read_resource("transcript://s/receipts")
            [content] = resource.contents
            assert isinstance(content, TextResourceContents)
            receipts = [json.loads(line) for line in content.text.splitlines()]
            origins = [
                {pin["text"]: pin["origin"] for pin in receipt["pins"]["carried"]}
                for receipt in receipts
            ]
            assert origins[0] == {FRENCH: "manual"}
            assert origins[1] == {FRENCH: "manual", f"I note this: {RULE}": "marker"}
            assert FRENCH not in origins[2]

            async def losses_of(number: int | str) -> Json:
                resource = await client.read_resource(f"transcript://s/receipts/{number}")
                [content] = resource.contents
                assert isinstance(content, TextResourceContents)
                losses: Json = json.loads(content.text)["losses"]
                return losses

            losses = [await losses_of(number) for number in range(len(receipts))]
            assert all(one["total"] > 0 for one in losses)
            assert await losses_of("last") == losses[-1]
            name = losses[0]["kinds"]["identifier"]["shown"][0]
            found = answer_of(
                await client.call_tool("search_transcript", {"query": name, "session_id": "s"})
            )
            assert any(name in hit["snippet"] for hit in found["hits"])

            wrong = {"messages": first, "options": {"pinned_messages": [999]}}
            refused = error_of(await client.call_tool("compact_messages", wrong))
            assert "pinned_messages names message 999" in refused
