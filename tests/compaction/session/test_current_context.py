"""The list that a session continues from, for callers that pass only new messages."""

from typing import Any, Literal

import anyio
import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.compaction.session.turns import turn
from tests.support.json_types import Json
from tests.support.promises import temporary_archive

Mode = Literal["auto", "micro", "full", "record"]
Base = Literal["result", "whole"]
# Number of messages to remove from the end, number of turns to add, the list to change, the mode.
Step = tuple[int, int, Base, Mode]


async def check_steps(steps: list[Step]) -> None:
    request: dict[str, Any] = {"session_id": "s", "format": "anthropic", "context_window": 9_000}
    context, conversation, number = list[Json](), list[Json](), 0
    async with temporary_archive() as archive:
        for removed, turns, base, mode in steps:
            new = [message for n in range(number, number + turns) for message in turn(n, 40)]
            number += turns
            conversation = [*conversation[: -removed or None], *new]
            payload = [*context[: -removed or None], *new] if base == "result" else conversation
            result = await compact(payload, CompactRequest(mode=mode, **request), archive=archive)
            context = list(result.messages)
            expected = result.messages if result.changed else payload
            assert (await archive.context("s"))[1] == expected


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 4, 9, 40]),
        st.integers(1, 4),
        st.sampled_from(["result", "result", "whole"]),
        st.sampled_from(["auto", "auto", "micro", "full", "record"]),
        # `record` returns the list unchanged, although the session has a compacted context.
    ).filter(lambda step: step[2:] != ("whole", "record")),
    min_size=2,
    max_size=8,
)


@pytest.mark.slow
@given(steps=STEPS)
@settings(max_examples=settings().max_examples // 10)
# Removing the compaction's result once restored the removed messages to the context.
@example(steps=[(0, 4, "result", "full"), (40, 1, "result", "auto")])
# A host's whole list continues the results of two compactions in a row.
@example(steps=[(0, 5, "result", "auto"), (0, 4, "result", "auto"), (0, 1, "whole", "auto")])
def test_current_context_is_the_newest_list(steps: list[Step]) -> None:
    anyio.run(check_steps, steps)
