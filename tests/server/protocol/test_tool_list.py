"""The tool list: its token count, and strict arguments."""

import cProfile
import json
import re
from typing import Any

import pytest
from context_compaction import SettingsError
from context_compaction.policies import POLICIES
from context_compaction.tokens.counter import counter_for
from context_compaction.tokens.vocabulary import load_o200k
from mcp.shared.exceptions import MCPError
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.schemas import CompactArguments, CompactOptions, parse_arguments
from mcp_types import INVALID_PARAMS

from tests.server.helpers import Era, connect, error_of

MAX_LIST_TOKENS = 1_400
NAMES = ["compact_messages", "persist_large_output", "read_persisted_output", "search_transcript"]


async def test_both_eras_see_the_same_four_tools(config: Config, era: Era) -> None:
    async with connect(config, era) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == NAMES


async def test_definitions_cost_at_most_1400_tokens(config: Config) -> None:
    async with connect(config) as client:
        tools = (await client.list_tools()).tools
    encode = load_o200k().encode
    costs = [
        len(encode(f"{tool.name}\n{tool.description}\n{json.dumps(tool.input_schema)}"))
        for tool in tools
    ]
    assert sum(costs) <= MAX_LIST_TOKENS
    assert counter_for().text("one") == 1 or sum(costs) > 4  # the vocabulary really counted


async def test_policy_argument_has_the_figures_of_the_policies(config: Config) -> None:
    async with connect(config) as client:
        [compact, *_] = (await client.list_tools()).tools
    description: str = compact.input_schema["properties"]["policy"]["description"]
    figures = re.findall(r"\b\d+K\b", description)
    assert figures == ["200K", "170K", "51K", "84K", "13K"]
    described = POLICIES["default"].description + POLICIES["economy"].description
    assert all(figure in described for figure in figures)


async def test_tools_have_annotations_and_allow_no_unknown_arguments(config: Config) -> None:
    async with connect(config) as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        assert tool.title
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is not None
        assert tool.annotations.open_world_hint is False
        assert tool.input_schema["additionalProperties"] is False
        # No client of the HTTP server sends arguments in headers.
        assert "x-mcp-header" not in json.dumps(tool.input_schema)


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("search_transcript", {"query": "x", "sesion_id": "s"}, "session_id"),
        ("read_persisted_output", {"output_id": "o_1", "lines": 3}, "start_line"),
        ("compact_messages", {"mesages": []}, "messages"),
        ("persist_large_output", {"output": "x", "treshold_tokens": 1}, "threshold_tokens"),
    ],
)
async def test_an_unknown_argument_is_refused_with_the_nearest_known_ones(
    config: Config, tool: str, arguments: dict[str, object], expected: str
) -> None:
    async with connect(config) as client:
        message = error_of(await client.call_tool(tool, arguments))
    assert expected in message
    writes = tool in ("compact_messages", "persist_large_output")
    assert ("Nothing was changed." in message) == writes
    assert "\n" not in message


async def test_an_unknown_tool_is_an_error_of_the_protocol_that_names_the_known_ones(
    config: Config, era: Era
) -> None:
    async with connect(config, era) as client:
        for name in ("compact_message", "tools/list", "", "Wärme 🔥"):
            with pytest.raises(MCPError, match=r"^Unknown tool: .*compact_messages") as refused:
                await client.call_tool(name, {})
            assert refused.value.error.code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("search_transcript", {}, "query: this argument is required"),
        ("search_transcript", {"query": "x", "limit": 0}, "limit: "),
        ("search_transcript", {"query": "x", "kind": "fuzzy"}, "'words'"),
        ("search_transcript", {"query": "x", "since": "yesterday"}, "ISO 8601"),
        (
            "search_transcript",
            {"query": "x", "since": "2026-02-01", "until": "2026-01-01"},
            "later",
        ),
        ("compact_messages", {}, "exactly one of messages"),
        ("compact_messages", {"new_messages": []}, "session_id"),
        ("compact_messages", {"messages": "hello"}, "messages: "),
        ("compact_messages", {"messages": [], "options": {"modle": "x"}}, "model"),
        ("compact_messages", {"messages": [], "options": {"keep_recent_result": 1}}, "keep_recent"),
        ("persist_large_output", {}, "either output or path"),
        ("persist_large_output", {"output": "x", "path": "y"}, "either output or path"),
        ("read_persisted_output", {"output_id": "nonsense"}, "Invalid pointer"),
        ("read_persisted_output", {"output_id": "o_00", "offset": 1, "tail": 1}, "at most one"),
        ("read_persisted_output", {"output_id": "o_00", "context": 1}, "pattern"),
    ],
)
async def test_a_wrong_argument_is_explained_on_one_line(
    config: Config, tool: str, arguments: dict[str, object], expected: str
) -> None:
    async with connect(config) as client:
        message = error_of(await client.call_tool(tool, arguments))
    assert expected in message
    writes = tool in ("compact_messages", "persist_large_output")
    assert message.endswith("Nothing was changed.") == writes
    assert "\n" not in message
    assert "pydantic" not in message


async def test_lists_and_objects_may_come_as_json_text(config: Config) -> None:
    async with connect(config) as client:
        message = error_of(
            await client.call_tool("compact_messages", {"messages": "[]", "options": '{"bad": 1}'})
        )
    assert "'bad'" in message


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (CompactArguments, "messages"),
        (CompactArguments, "new_messages"),
        (CompactOptions, "tools"),
        (CompactOptions, "pinned"),
    ],
)
def test_a_list_of_wrong_elements_is_refused_at_the_first(model: Any, name: str) -> None:
    counts: list[int] = []
    for size in (10, 10, 100_000):
        profile = cProfile.Profile()
        with profile, pytest.raises(SettingsError, match=rf"^{name}\.0: [^;]*\.$"):
            parse_arguments(model, {name: [0] * size})
        counts.append(sum(entry.callcount for entry in profile.getstats()))
    assert counts[2] <= 1.1 * counts[1]
