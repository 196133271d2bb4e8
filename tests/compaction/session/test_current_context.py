"""The list that a session continues from, for callers that pass only new messages."""

from typing import Any, Literal

import anyio
import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.session.resume import current_context
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, lines, user

Mode = Literal["auto", "micro", "full", "record"]
Base = Literal["answer", "whole"]
# How many messages are taken away, how many turns are added behind, to which list, and the mode.
Step = tuple[int, int, Base, Mode]


def turn(number: int) -> list[Json]:
    return [
        user(f"Task {number}: look at f{number}.py."),
        *answered(f"r{number}", "Read", lines(f"n{number}", 40), file_path=f"f{number}.py"),
        assistant(f"I have seen f{number}.py."),
    ]


async def walk(steps: list[Step]) -> None:
    request: dict[str, Any] = {"session_id": "s", "format": "anthropic", "context_window": 9_000}
    answer, whole, number = list[Json](), list[Json](), 0
    async with temporary_archive() as archive:
        for back, turns, base, mode in steps:
            kept = (answer if base == "answer" else whole)[: -back or None]
            new = [message for at in range(number, number + turns) for message in turn(at)]
            number += turns
            given_list = [*kept, *new]
            whole = [*(whole[: -back or None] if base == "answer" else kept), *new]
            result = await compact(
                given_list, CompactRequest(mode=mode, **request), archive=archive
            )
            answer = list(result.messages)
            expected = result.messages if result.changed else given_list
            assert (await current_context("s", archive)).messages == expected
            assert (await archive.context("s"))[1] == expected


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 4, 9, 40]),
        st.integers(1, 4),
        st.sampled_from(["answer", "answer", "whole"]),
        st.sampled_from(["auto", "auto", "micro", "full", "record"]),
        # What is only recorded comes back as it was, though the session goes on from a context.
    ).filter(lambda step: step[2:] != ("whole", "record")),
    min_size=2,
    max_size=8,
)


@pytest.mark.slow
@given(steps=STEPS)
@settings(max_examples=settings().max_examples // 4)
# It went back to before the compaction, and what it had taken away stood in its context again.
@example(steps=[(0, 4, "answer", "full"), (40, 1, "answer", "auto")])
# A host's whole list goes on from what two compactions left, one after the other.
@example(steps=[(0, 5, "answer", "auto"), (0, 4, "answer", "auto"), (0, 1, "whole", "auto")])
def test_current_context_is_the_newest_list(
    steps: list[Step],
) -> None:
    anyio.run(walk, steps)
