"""A tool call without a result stays, in every format, under every policy and mode."""

from typing import get_args

import anyio
import pytest
from context_compaction import formats
from context_compaction.messages.model import (
    NO_RESULT,
    Messages,
    ToolCall,
    tool_calls,
    tool_results,
)
from context_compaction.pipeline.compact import compact
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS, Mode
from tests.support.json_types import Json
from tests.support.promises import refusable, temporary_archive
from tests.support.provider_rules import problems
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS

MODES = st.sampled_from([*get_args(Mode), "auto"])
SHARES = st.sampled_from([0.7, 0.3, 0.05])
OUTPUT = "a line of output about the build\n"


def finished(number: int, lines: int) -> Turn:
    """Return a request, a call with its result, and an answer."""
    read = Call(
        "read_file", {"path": f"f{number}.py"}, (Part("text", f"{number}: {OUTPUT * lines}"),)
    )
    return Turn((Part("text", f"Look at f{number}.py."),), (Step((read,)),), f"f{number} is fine.")


def running(calls: int) -> Turn:
    """Return a request and parallel calls, whose results `without_results` removes."""
    bash_calls = [
        Call("bash", {"command": f"make {n}"}, (Part("text", f"made {n}"),)) for n in range(calls)
    ]
    return Turn((Part("text", "Make them all."),), (Step(tuple(bash_calls)),), "")


def without_results(payload: list[Json], format: str, count: int) -> tuple[list[Json], list[Json]]:
    """Split `payload` into a list without its last `count` results, and messages with them."""
    messages = formats.parse(payload, format=format)
    results = tool_results(messages[-1])
    if len(results) == 1:  # each result is a separate message
        return payload[:-count], payload[-count:]
    [key] = [key for key in ("content", "parts") if key in payload[-1]]
    early, late_results = payload[-1][key][:-count], payload[-1][key][-count:]
    rest = [{**payload[-1], key: early}] if early else []
    return [*payload[:-1], *rest], [{**payload[-1], key: late_results}]


def newest_calls(messages: Messages) -> list[ToolCall]:
    """Return the newest calls, which only results follow."""
    found_calls: list[ToolCall] = []
    for message in reversed(messages):
        if tool_calls(message):
            found_calls = [*tool_calls(message), *found_calls]
        elif found_calls or message.role == "assistant" or not tool_results(message):
            break
    return found_calls


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    turns=st.lists(st.sampled_from([1, 5, 60]), max_size=4),
    calls=st.integers(1, 3),
    missing=st.integers(1, 3),
    mode=MODES,
    share=SHARES,
)
@EXAMPLES
def test_pending_call_stays_and_accepts_its_result(
    policy: str,
    format: str,
    turns: list[int],
    calls: int,
    missing: int,
    mode: Mode,
    share: float,
) -> None:
    missing = min(missing, calls)
    script = [finished(n, lines) for n, lines in enumerate(turns)]
    payload, late_results = without_results(
        render([*script, running(calls)], format), format, missing
    )
    expected = [("bash", {"command": f"make {n}"}) for n in range(calls)]

    async def run() -> None:
        async with temporary_archive() as archive:
            counting = CompactRequest(mode="record", format=format)
            counted = await compact(payload, counting, archive=archive)
            request = CompactRequest(
                mode=mode,
                format=format,
                policy=policy,
                target_tokens=max(1, int(counted.tokens.before * share)),
            )
            result = await compact(payload, request, archive=archive)
            pending = newest_calls(formats.parse(result.messages, format=format))
            assert [(call.name, call.arguments) for call in pending] == expected
            grown = [*result.messages, *late_results]
            if missing == calls:
                assert not problems(grown, format, original=payload)
            again = await compact(grown, counting, archive=archive)
            assert not problems(again.messages, format, original=grown)
            text = str(again.messages)
            assert NO_RESULT not in text
            assert all(f"made {n}" in text for n in range(calls - missing, calls))

    with refusable(payload):
        anyio.run(run)
