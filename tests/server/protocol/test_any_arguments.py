"""Any JSON value for any argument of any tool: an answer in time, and never an internal error."""

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.schemas import (
    CompactArguments,
    CompactOptions,
    PersistArguments,
    ReadArguments,
    SearchArguments,
)

from tests.server.helpers import Json, answer_of, connect
from tests.support.fuzz import FUZZ, NIGHTLY_SECONDS, ODD_TEXTS, save_if_failing

pytestmark = pytest.mark.slow


TEXTS = st.sampled_from(ODD_TEXTS)
ODD_NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63, 10**19, 10**400, 1e308, 0.5, -0.0])
PLAIN = st.none() | st.booleans() | ODD_NUMBERS | TEXTS | st.text(max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
BLOCKS: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "x"])},
    optional=dict.fromkeys(
        ("text", "id", "name", "input", "tool_use_id", "content", "thinking", "source"), VALUES
    ),
)
MESSAGES: st.SearchStrategy[list[Json]] = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "toolResult", "model", "system"])},
        optional={
            "content": VALUES | st.lists(BLOCKS, max_size=3),
            "parts": VALUES,
            "timestamp": VALUES,
            "tool_calls": VALUES,
            "toolCallId": VALUES,
        },
    ),
    max_size=4,
)
KINDS: tuple[Any, ...] = (None, True, -1, 10**400, 1e308, "", "\0", "x", [], [[]], {}, {"x": 1})
TOOLS = {
    "compact_messages": CompactArguments,
    "persist_large_output": PersistArguments,
    "read_persisted_output": ReadArguments,
    "search_transcript": SearchArguments,
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, Json]:
    """Draw a tool and a few arguments with odd values. Most calls pass the validation."""
    tool = draw(st.sampled_from(list(TOOLS)))
    names = draw(st.lists(st.sampled_from(list(TOOLS[tool].model_fields)), max_size=4))
    arguments: Json = {name: draw(VALUES) for name in names}
    if tool == "compact_messages":
        arguments = {**arguments, "messages": draw(MESSAGES)}
        own = st.lists(st.sampled_from(list(CompactOptions.model_fields)), max_size=2)
        if draw(st.booleans()):
            arguments["options"] = {name: draw(VALUES) for name in draw(own)}
    elif tool == "read_persisted_output" and draw(st.booleans()):
        arguments["output_id"] = "transcript://s/messages/0-3"
    elif tool == "search_transcript" and draw(st.booleans()):
        arguments["query"] = draw(TEXTS)
    return tool, arguments


async def call(client: Client, tool: str, arguments: Json) -> None:
    await client.call_tool(tool, arguments)  # an internal error would be raised


@pytest.mark.timeout(NIGHTLY_SECONDS)
def test_tools_respond_to_any_value_of_any_argument(config: Config) -> None:
    async def prepare() -> None:
        async with connect(config) as client:
            first_call: Json = {
                "messages": [{"role": "user", "content": "needle_7"}],
                "session_id": "s",
            }
            answer_of(await client.call_tool("compact_messages", first_call))

    async def check(tool: str, arguments: Json) -> None:
        async with connect(config) as client:
            await call(client, tool, arguments)
            await client.list_resources()

    @FUZZ
    @given(calls())
    def run(drawn: tuple[str, Json]) -> None:
        with save_if_failing("arguments", drawn):
            anyio.run(check, *drawn)

    anyio.run(prepare)
    run()


@pytest.mark.parametrize("tool", TOOLS)
async def test_tools_respond_to_values_of_every_type(config: Config, tool: str) -> None:
    async with connect(config) as client:
        for name in TOOLS[tool].model_fields:
            for value in KINDS:
                await call(client, tool, {name: value})
