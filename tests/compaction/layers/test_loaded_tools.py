"""References to loaded tools survive, and the host's remarks next to them are not requests."""

from typing import Any, cast

import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, call, compacted, lines, result, text, user

REMARKS = [
    "Tool loaded.",
    "2 tools loaded: Read, Grep",
    "<system-reminder>Be brief.</system-reminder>",
]
ASKED = "Count the zebra rows."


def references(*names: str) -> list[Json]:
    return [{"type": "tool_reference", "tool_name": name} for name in names]


def steps(label: str, number: int) -> list[Json]:
    return [
        message
        for n in range(number)
        for message in answered(f"{label}{n}", "Bash", lines(f"{label}{n}", 60), command=f"go {n}")
    ]


def searched(call_id: str, remark: str, *names: str) -> list[Json]:
    """Return a tool search in parallel with another call, with a remark of the host."""
    calls = assistant(call(call_id, "ToolSearch", query="select"), call(f"{call_id}b", "Bash"))
    reported = [result(call_id, references(*names)), result(f"{call_id}b", lines(call_id, 60))]
    return [calls, user([*reported, text(remark)])]


def alone(messages: list[Json], words: str) -> bool:
    return any(item["content"] in (words, [text(words)]) for item in messages)


@pytest.mark.parametrize(
    ("mode", "before"), [("micro", 3), ("full", 0), ("full", 8), ("reactive", 3)]
)
@pytest.mark.parametrize("remark", REMARKS)
async def test_loaded_tools_survive_every_compaction(remark: str, mode: Any, before: int) -> None:
    request = CompactRequest(
        format="anthropic", mode=mode, context_window=14_000, max_output_tokens=1_000
    )
    payload = [user(ASKED), *steps("a", before), *searched("s", remark, "WebFetch", "Grep")]
    async with temporary_archive() as archive:
        for number in range(3):
            payload += [*searched(f"t{number}", remark, f"Tool{number}"), *steps(f"c{number}_", 8)]
            answer = await compact(payload, request, archive=archive)
            payload = answer.messages
            assert problems(payload, "anthropic") == []
            assert not alone(payload, remark)
            assert ASKED in str(payload)
            loaded = ["WebFetch", "Grep", *(f"Tool{n}" for n in range(number + 1))]
            assert all(str(references(name)[0]) in str(payload) for name in loaded)


async def test_request_next_to_loaded_tools_stays_a_request() -> None:
    payload = [user("Look."), *searched("s", ASKED, "WebFetch"), *steps("c", 12)]
    request = CompactRequest(format="anthropic", mode="full", context_window=14_000)
    async with temporary_archive() as archive:
        answer = await check_promises(payload, request, archive)
    assert alone(answer.messages, ASKED)
    assert "tool_reference" in str(answer.messages)


async def test_newest_reference_to_a_tool_survives() -> None:
    payload = [user(ASKED)]
    for number in range(6):
        payload += [*searched(f"s{number}", "Tool loaded.", "WebFetch"), *steps(f"c{number}_", 3)]
    answer = await compacted(payload, mode="full", context_window=14_000)
    assert str(answer.messages).count("tool_reference") == 1


def hosted_search(format: str, number: int, *names: str) -> list[Json]:
    """A search that the provider runs, and a call of the tool that it loads."""
    if format == "openai-responses":
        tools: list[Json] = [{"type": "function", "name": name, "parameters": {}} for name in names]
        search: Json = {"type": "tool_search_call", "id": f"tsc_{number}", "call_id": None}
        output: Json = {"type": "tool_search_output", "id": f"tso_{number}", "call_id": None}
        return [
            {**search, "execution": "server", "arguments": {"paths": [*names]}},
            {**output, "execution": "server", "tools": tools},
        ]
    found = {"type": "tool_search_tool_search_result", "tool_references": references(*names)}
    blocks: list[Json] = [
        {"type": "server_tool_use", "id": f"srv_{number}", "name": "tool_search", "input": {}},
        {"type": "tool_search_tool_result", "tool_use_id": f"srv_{number}", "content": found},
        text(f"Found {names[0]}."),
    ]
    return [{"role": "assistant", "content": blocks}]


def hosted_steps(format: str, number: int) -> list[Json]:
    """Turns that use loaded tools, in the given format."""
    if format == "anthropic":
        turns = [[user(f"Turn {number}.{n}."), *steps(f"t{number}_{n}_", 3)] for n in range(3)]
        return [message for turn in turns for message in turn]
    items: list[Json] = []
    for n in range(9):
        call_id = f"call_{number}_{n}"
        called: Json = {"type": "function_call", "call_id": call_id, "name": "Bash"}
        output: Json = {"type": "function_call_output", "call_id": call_id}
        items += [] if n % 3 else [{"role": "user", "content": f"Turn {number}.{n}."}]
        items += [{**called, "arguments": "{}"}, {**output, "output": lines(call_id, 60)}]
    return items


@pytest.mark.parametrize("format", ["anthropic", "openai-responses"])
@pytest.mark.parametrize("mode", ["micro", "full", "reactive", "auto"])
async def test_tools_of_hosted_searches_stay_loaded_when_the_search_is_summarized(
    format: str, mode: Any
) -> None:
    request = CompactRequest(
        format=format, mode=mode, context_window=14_000, max_output_tokens=1_000
    )
    payload: list[Json] = [{"role": "user", "content": ASKED}]
    async with temporary_archive() as archive:
        for number in range(3):
            before = [*payload, *hosted_search(format, number, f"Tool{number}", "Grep")]
            before += hosted_steps(format, number)
            payload = (await compact(before, request, archive=archive)).messages
            assert problems(payload, format, original=before) == []
            for name in ("Grep", *(f"Tool{n}" for n in range(number + 1))):
                assert name in str(loading_parts(payload)), name


def loading_parts(payload: list[Json]) -> list[Json]:
    """The results of hosted searches, each of which must follow its call."""
    kinds = ("tool_search_tool_result", "tool_search_output")
    parts = [block for message in payload for block in blocks_in(message)]
    results = [part for part in parts if part.get("type") in kinds]
    calls = {part.get("id") for part in parts}
    for part in results:
        if "tool_use_id" in part:
            assert part["tool_use_id"] in calls
        else:
            assert part["id"].replace("tso", "tsc") in calls
    return results


def blocks_in(message: Json) -> list[Json]:
    content = message.get("content")
    return cast("list[Json]", content) if isinstance(content, list) else [message]
