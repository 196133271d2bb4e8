"""Archived messages as plain text: every line of their content appears in it."""

import json
from collections.abc import Iterator
from typing import Any

from context_compaction import formats
from context_compaction.messages.model import Block, Document, Text, ToolCall, ToolResult
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_server_compaction.config import Config
from mcp_server_compaction.reading.plain_text import message_texts

from tests.server.helpers import Json, answer_of, connect, text_of
from tests.support.strategies import FORMATS, conversations


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(format=st.sampled_from(FORMATS), data=st.data())
def test_plain_text_contains_every_line_of_a_message(format: str, data: Any) -> None:
    payload: list[Json] = data.draw(conversations(format))
    rows = ((str(number), format, raw, None) for number, raw in enumerate(payload))
    lines = "\n".join(message_texts(rows)).split("\n")
    for message in formats.parse(payload, format=format):
        for text in (text for block in message.blocks for text in _strings_of_block(block)):
            quoted = json.dumps(text, ensure_ascii=False)[1:-1]
            for line in text.split("\n"):
                assert any(text_line.endswith(line) or quoted in text_line for text_line in lines)


def _strings_of_block(block: Block) -> Iterator[str]:
    match block:
        case Text():
            yield block.text
        case ToolCall():
            yield block.name
            yield from _strings(block.arguments)
        case ToolResult():
            for part in block.content:
                yield from _strings_of_block(part)
        case Document():
            yield block.text or ""
        case _:
            return


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _strings(item)


CODE = 'def price(net):\n    """In cents."""\n    return net * 1.19'
MESSAGES: list[Json] = [
    {"role": "user", "content": "Mend the price.\nIt is off by one."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Rounding?", "signature": "c2lnbmF0dXJl"},
            {"type": "text", "text": "I edit it."},
            {
                "type": "tool_use",
                "id": "t1",
                "name": "Edit",
                "input": {
                    "file_path": "price.py",
                    "old_string": CODE,
                    "new_string": CODE.replace("net * 1.19", "round(net * 1.19)"),
                    "replace_all": False,
                },
            },
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok\nsaved"}],
    },
]


def test_plain_text_omits_signatures() -> None:
    rows = ((str(n), "anthropic", raw, None) for n, raw in enumerate(MESSAGES))
    assert "c2lnbmF0dXJl" not in "\n".join(message_texts(rows))


@given(
    old=st.lists(st.sampled_from(["a", "b", "", "c d"]), max_size=30),
    new=st.lists(st.sampled_from(["a", "b", "", "c d"]), max_size=30),
    times=st.sampled_from([1, 40]),
)
def test_diff_contains_every_line_of_both_texts(old: list[str], new: list[str], times: int) -> None:
    before, after = "\n".join(old * times), "\n".join(new * times)
    edit = {"type": "tool_use", "id": "t", "name": "Edit", "input": {"old": before, "new": after}}
    raw: Json = {"role": "assistant", "content": [edit]}
    [text] = message_texts([("0", "anthropic", raw, None)])
    _, _, _, *lines = text.split("\n")[:-1]
    assert "\n".join(line[1:] for line in lines if line[0] in " -") == before
    assert "\n".join(line[1:] for line in lines if line[0] in " +") == after


async def test_line_numbers_of_messages_are_equal_in_ranges_and_matches(
    config: Config,
) -> None:
    request: Json = {"messages": MESSAGES, "session_id": "s", "mode": "record"}
    async with connect(config) as client:
        answer_of(await client.call_tool("compact_messages", request))

        async def read(**part: Any) -> list[str]:
            arguments = {"output_id": "transcript://s/messages/0-2", **part}
            return text_of(await client.call_tool("read_persisted_output", arguments)).splitlines()

        all_lines = await read()
        heading, match = await read(pattern="round\\(", context=0)
        assert heading in {line.replace(":", "-", 1) for line in all_lines}
        number = int(match.split(":")[0])
        assert match == f"{number}:+    return round(net * 1.19)"
        assert await read(start_line=number, limit=1) == [match] == [all_lines[number - 1]]
        assert await read(tail=2) == all_lines[-2:]
        assert [line.split(":")[0] for line in all_lines] == [
            str(n) for n in range(1, len(all_lines) + 1)
        ]
        assert [json.loads(line) for line in await read(as_json=True)] == MESSAGES
        assert await read(
            output_id="transcript://s/messages/1-1", json_path="$.content[1].text"
        ) == ["I edit it."]
        context = await read(output_id="transcript://s/context")
        assert context[0] == "1:[context 0] user"
        resource = await client.read_resource("transcript://s/messages/0-2")
    assert [json.loads(line) for line in resource.contents[0].text.splitlines()] == MESSAGES  # type: ignore[union-attr]
