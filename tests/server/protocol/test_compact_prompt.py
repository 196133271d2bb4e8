"""A person asks for a compaction with a focus: from the prompt to a summary that dwells on it."""

import re

import mcp_types as types
import pytest
from mcp import Client

from tests.server.helpers import Json, answer_of, spawned, text_of

pytestmark = pytest.mark.slow

FOCUS = "everything about the login timeouts"
SUBJECTS = ("login timeouts", "invoice rounding", "webhook retries", "locale fallback")


def talk() -> list[Json]:
    """One request and many findings, all of the same form, on each subject in turn."""
    messages: list[Json] = [{"role": "user", "content": "Find out what is wrong."}]
    for n in range(400):
        said = f"the {SUBJECTS[n % 4]} came from handler_{n * 7} in unit_{n}"
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": f"p {n}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": said}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    return [*messages, {"role": "assistant", "content": "That is all."}]


async def summary(client: Client, **arguments: str) -> str:
    wish: Json = {"messages": talk(), "summarizer": "extractive", "reply": "receipt", **arguments}
    return answer_of(await client.call_tool("compact_messages", wish))["summary"]


async def test_the_focus_of_the_prompt_steers_the_summary_without_a_model(
    environment: dict[str, str],
) -> None:
    async with spawned(environment) as client:
        prompt = await client.get_prompt("compact", {"focus": FOCUS})
        content = prompt.messages[0].content
        assert isinstance(content, types.TextContent)
        # What the prompt tells the model to pass on.
        mode = re.findall(r"mode='(\w+)'", content.text)
        instructions = re.findall(r"instructions='([^']+)'", content.text)
        assert (mode, instructions) == (["full"], [FOCUS])
        plain = await summary(client, mode="full", session_id="plain")
        steered = await summary(
            client, mode="full", session_id="steered", instructions=instructions[0]
        )
    assert steered.count("login timeouts") >= 2 * plain.count("login timeouts")
    others = [steered.count(other) for other in SUBJECTS[1:]]
    assert steered.count("login timeouts") > 2 * max(others)


async def test_what_the_focus_left_out_is_still_read_by_the_pointer(
    environment: dict[str, str],
) -> None:
    async with spawned(environment) as client:
        told = await summary(client, mode="full", session_id="s", instructions=FOCUS)
        hits = answer_of(
            await client.call_tool("search_transcript", {"query": "handler_7", "session_id": "s"})
        )["hits"]
        read = await client.call_tool("read_persisted_output", {"output_id": hits[0]["pointer"]})
    assert "transcript://s/messages/1-800" in told
    assert "invoice rounding came from handler_7" in text_of(read)
