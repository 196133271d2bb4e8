"""A chosen range and a detail of `compact_messages`, through a real MCP client."""

from typing import Any

import pytest
from mcp_server_compaction.config import Config

from tests.compaction.pipeline.test_chosen_range import talk
from tests.server.helpers import Json, answer_of, connect, error_of
from tests.support.authors import TEXT

SESSION = "s"


def options(**values: Any) -> Json:
    return {"session_id": SESSION, "reply": "messages", "options": values}


@pytest.mark.parametrize("summary", [None, TEXT])
async def test_range_replaces_only_its_messages_and_stays_in_later_calls(
    config: Config, summary: str | None
) -> None:
    messages = talk()
    later = [{"role": "assistant", "content": "The lexer is fine."}]
    async with connect(config) as client:
        asked = {"messages": messages, "summary": summary, **options(range=[3, 10])}
        answer = answer_of(await client.call_tool("compact_messages", asked))
        asked = {"messages": [*messages, *later], **options()}
        again = answer_of(await client.call_tool("compact_messages", asked))
        pointer = answer["boundary"]["pointer"]
        read = {"output_id": pointer, "as_json": True, "limit": 100}
        original = await client.call_tool("read_persisted_output", read)
    assert answer["status"] == "compacted"
    assert answer["receipt"]["range"] == [3, 10]
    assert answer["messages"] == [*messages[:3], answer["messages"][3], *messages[11:]]
    assert (TEXT in answer["summary"]) == (summary is not None)
    assert again["messages"] == [*answer["messages"], *later]
    assert "value_b" in str(original.content)


async def test_range_is_counted_in_the_whole_list_with_new_messages(config: Config) -> None:
    messages = talk()
    async with connect(config) as client:
        first = {"messages": messages[:7], "session_id": SESSION, "mode": "record"}
        await client.call_tool("compact_messages", first)
        asked = {"new_messages": messages[7:], **options(range=[3, 6])}
        answer = answer_of(await client.call_tool("compact_messages", asked))
    assert answer["receipt"]["range"] == [3, 6]
    assert answer["messages"][4:] == messages[7:]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"range": [10, 3]}, "Pass the first number and then the last"),
        ({"range": [3, 99]}, "the list has 14 messages"),
        ({"range": [3]}, "range"),
        ({"range": [-1, 3]}, "range"),
        ({"detail": "tiny"}, "detail"),
    ],
)
async def test_impossible_range_or_detail_is_refused(
    config: Config, values: Json, words: str
) -> None:
    async with connect(config) as client:
        asked = {"messages": talk(), **options(**values)}
        assert words in error_of(await client.call_tool("compact_messages", asked))
