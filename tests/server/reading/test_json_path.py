"""Reading one value out of a stored JSON text."""

import json
from typing import Any

import pytest
from context_compaction.errors import QueryError
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.config import Config
from mcp_server_compaction.reading.slices import value_at

from tests.server.helpers import answer_of, connect, conversation, error_of, text_of

DOCUMENT: dict[str, Any] = {
    "items": [{"name": f"n{count}", "size": count, "tags": [count]} for count in range(300)],
    "odd key": {"a.b": {'"quoted"': "deep"}, "ü": None},
    "log": "first line\nsecond line\n",
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", DOCUMENT),
        ("$.items[7].name", "n7"),
        ("items[-1].size", 299),
        ("$.items[1:3].name", ["n1", "n2"]),
        ("$.items[*].tags[0]", list(range(300))),
        ("$.items[298:].tags[*]", [298, 299]),
        ('$["odd key"]["a.b"]["\\"quoted\\""]', "deep"),
        ("$['odd key'].ü", None),
        ("$.items[0].*", ["n0", 0, [0]]),
        ("$.items[*].missing", []),
    ],
)
def test_value_at_returns_the_value_of_a_path(path: str, expected: Any) -> None:
    assert value_at(DOCUMENT, path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.itms", '"items", "odd key", "log"'),
        ("$.items[300]", "a list of 300 elements"),
        ("$.items.name", "a list of 300 elements"),
        ("$.log.length", '"first line'),
        ("$..name", "Invalid json_path"),
        ("$.items[?(@.size>1)]", "Invalid json_path"),
        ("$.items[", "Invalid json_path"),
    ],
)
def test_value_at_describes_the_value_when_a_step_matches_nothing(path: str, expected: str) -> None:
    with pytest.raises(QueryError) as raised:
        value_at(DOCUMENT, path)
    assert expected in str(raised.value)


@given(keys=st.lists(st.text() | st.integers(0, 3), max_size=6), leaf=st.integers())
def test_value_at_returns_any_value_by_its_keys(keys: list[str | int], leaf: int) -> None:
    document: Any = leaf
    for key in reversed(keys):
        document = {key: document} if isinstance(key, str) else [None] * key + [document]
    assert value_at(document, "$" + "".join(f"[{json.dumps(key)}]" for key in keys)) == leaf


async def test_json_path_selects_a_value_before_other_arguments_apply(config: Config) -> None:
    async with connect(config) as client:

        async def read(pointer: str, **part: Any) -> str:
            arguments = {"output_id": pointer, **part}
            return text_of(await client.call_tool("read_persisted_output", arguments))

        stored = answer_of(
            await client.call_tool(
                "persist_large_output", {"output": json.dumps(DOCUMENT), "threshold_tokens": 0}
            )
        )
        output_id = stored["output_id"]
        assert await read(output_id, json_path="$.log") == "first line\nsecond line\n"
        assert await read(output_id, json_path="$.log", tail=1) == "second line\n"
        assert json.loads(await read(output_id, json_path="$.items[2]")) == DOCUMENT["items"][2]
        names = await read(output_id, json_path="$.items[*].name", pattern="n29[0-9]", context=0)
        assert len(names.splitlines()) == 10
        await client.call_tool(
            "compact_messages", {"messages": conversation(2), "session_id": "s", "mode": "record"}
        )
        message_text = await read("transcript://s/messages/0-2", json_path="$[1].content[0].text")
        assert message_text == "I look at module 0."
        for pointer, path, problem in (
            (output_id, "$.nothing", '"odd key"'),
            ("transcript://s/messages/0-0", "$..x", "Invalid json_path"),
        ):
            arguments = {"output_id": pointer, "json_path": path}
            refused = await client.call_tool("read_persisted_output", arguments)
            assert problem in error_of(refused)
        arguments = {"output": "no json", "threshold_tokens": 0}
        stored = answer_of(await client.call_tool("persist_large_output", arguments))
        arguments = {"output_id": stored["output_id"], "json_path": "$.a"}
        refused = await client.call_tool("read_persisted_output", arguments)
        assert "is not JSON" in error_of(refused)
