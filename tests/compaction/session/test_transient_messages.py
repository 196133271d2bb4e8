"""Compacted messages are recognized when a host adds or rewrites text for a single call.

Many hosts add the time, a reminder or the state of a task list to each request, or rewrite
their system message or first message.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from context_compaction import CompactRequest, CompactResult, compact

from tests.support.json_types import Json
from tests.support.promises import read_pointer, temporary_archive
from tests.support.provider_rules import problems
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS

CALLS = 24


@dataclass(frozen=True)
class Host:
    """A host of one format that sends its whole history at every call.

    Attributes:
        format: Wire format of its messages.
        edit: Function that returns the list for a call, given the host, the history and the
            number of the call.
    """

    format: str
    edit: Callable[["Host", list[Json], int], list[Json]]

    def history(self, turns: int) -> list[Json]:
        return render([turn(number) for number in range(turns)], self.format)

    def user(self, words: str) -> Json:
        (message,) = render([Turn((Part("text", words),), answer="")], self.format)
        return message


def turn(number: int) -> Turn:
    words = f"Part {number} of the parser was read, and its tokens were counted again. " * 40
    return Turn((Part("text", f"Task {number}: go on with part {number}."),), answer=words)


def reminder(call: int) -> str:
    return f"<system-reminder>It is 10:{call:02} now.</system-reminder>"


def unchanged(host: Host, history: list[Json], call: int) -> list[Json]:
    return history


def append(host: Host, history: list[Json], call: int) -> list[Json]:
    return [*history, host.user(reminder(call))]


def insert_before_last(host: Host, history: list[Json], call: int) -> list[Json]:
    return [*history[:-1], host.user(reminder(call)), history[-1]]


def insert_in_middle(host: Host, history: list[Json], call: int) -> list[Json]:
    middle = len(history) // 2
    return [*history[:middle], host.user(reminder(call)), *history[middle:]]


def insert_early(host: Host, history: list[Json], call: int) -> list[Json]:
    return [*history[:2], host.user(reminder(call)), *history[2:]]


def insert_in_some_calls(host: Host, history: list[Json], call: int) -> list[Json]:
    return insert_in_middle(host, history, call) if call % 3 else history


def rewrite_first(host: Host, history: list[Json], call: int) -> list[Json]:
    return [host.user(f"Task 0: go on with part 0. {reminder(call)}"), *history[1:]]


def add_block_to_last(host: Host, history: list[Json], call: int) -> list[Json]:
    request = f"Task {call}: go on with part {call}."
    parts = (Part("text", request), Part("text", reminder(call)))
    (message,) = render([Turn(parts, answer="")], host.format)
    return [*history[:-1], message]


def add_to_request(host: Host, history: list[Json], call: int) -> list[Json]:
    """Return a list with a reminder beside the last request, in its text or in a block."""
    index = max(n for n, message in enumerate(history) if is_request(message))
    words = f"Task {call // 4}: go on."
    text = Part("text", f"{words}\n{reminder(call)}")
    parts = (text,) if call % 3 else (Part("text", words), Part("text", reminder(call)))
    (message,) = render([Turn(parts, answer="")], host.format)
    return [*history[:index], message, *history[index + 1 :]]


def is_request(message: Json) -> bool:
    return "go on." in json.dumps(message)


@pytest.mark.parametrize("format", FORMATS)
async def test_text_beside_the_last_request_causes_no_further_summary_in_a_tool_loop(
    format: str,
) -> None:
    host = Host(format, add_to_request)
    request = CompactRequest(format=format, session_id="s", context_window=14_000)
    summaries: dict[bool, set[str]] = {False: set(), True: set()}
    for is_rewritten, written in summaries.items():
        async with temporary_archive() as archive:
            for call in range(CALLS):
                turns = [loop_turn(number, 4) for number in range(call // 4)]
                history = render([*turns, loop_turn(call // 4, call % 4 + 1)], format)[:-1]
                payload = add_to_request(host, history, call) if is_rewritten else history
                result = await compact(payload, request, archive=archive)
                assert problems(result.messages, format) == []
                written |= {result.summary} if result.summary else set()
    assert summaries[False]
    assert len(summaries[True]) <= len(summaries[False]) + 1


def loop_turn(number: int, steps: int) -> Turn:
    output = "".join(f"line {n} of part {number}: the test passed\n" for n in range(30))
    calls = [
        Call("Bash", {"command": f"make test-{number}-{n}"}, (Part("text", output),))
        for n in range(steps)
    ]
    loop = tuple(Step((call,)) for call in calls)
    return Turn((Part("text", f"Task {number}: go on."),), steps=loop, answer="Done.")


@pytest.mark.parametrize("is_same", [True, False])
async def test_rewritten_words_of_the_user_are_a_new_list(is_same: bool) -> None:
    """The assistant's answers are equal, so only the words tell what the user meant."""
    request = CompactRequest(format="openai-chat", session_id="s", mode="full", target_tokens=2_000)
    talk = render([turn(number) for number in range(6)], "openai-chat")
    *before, last, answer = talk
    words = last["content"] if is_same else "Never touch zebra.py again."
    rewritten = {**last, "content": f"{words}\n{reminder(2)}"}
    async with temporary_archive() as archive:
        await compact([*before, last, answer], request, archive=archive)
        result = await compact(
            [*before, rewritten, answer], replace(request, mode="auto"), archive=archive
        )
    assert (result.recognised is not None) is is_same


async def run_calls(host: Host) -> list[CompactResult]:
    """Return the results for a host that passes its whole list before each model response."""
    request = CompactRequest(
        format=host.format, session_id="s", context_window=14_000, max_output_tokens=1_000
    )
    results: list[CompactResult] = []
    async with temporary_archive() as archive:
        for call in range(CALLS):
            history = host.history(call + 1)[:-1]  # the last request is not answered yet
            payload = host.edit(host, history, call)
            result = await compact(payload, request, archive=archive)
            assert problems(result.messages, host.format) == []
            assert result.fits
            if result.boundary is not None:
                assert await read_pointer(result.boundary.pointer, archive)
            results.append(result)
    return results


_plain_summaries: dict[str, int] = {}


async def plain_summaries(format: str) -> int:
    """Return how many summaries a host causes that adds nothing, counted once per format."""
    if format not in _plain_summaries:
        results = await run_calls(Host(format, unchanged))
        _plain_summaries[format] = summaries_written(results)
    return _plain_summaries[format]


def summaries_written(results: list[CompactResult]) -> int:
    return sum(result.boundary is not None for result in results)


EDITS = (
    append,
    insert_before_last,
    insert_in_middle,
    insert_early,
    insert_in_some_calls,
    rewrite_first,
    add_block_to_last,
)


@pytest.mark.parametrize(
    ("format", "edit"),
    [("anthropic", edit) for edit in EDITS]
    # Formats differ in what a block and a message are.
    + [(f, e) for f in FORMATS if f != "anthropic" for e in (insert_in_middle, add_block_to_last)],
)
async def test_transient_message_causes_no_further_summary(
    format: str, edit: Callable[[Host, list[Json], int], list[Json]]
) -> None:
    expected = await plain_summaries(format)
    results = await run_calls(Host(format, edit))
    assert expected >= 3
    # A reminder takes a few tokens, so one compaction may come a call earlier.
    assert summaries_written(results) <= expected + 1
    for before, after in pairwise(results):
        if after.boundary is None and before.summary is not None:
            assert after.recognised is not None
            assert summary_of(after) == summary_of(before)


def summary_of(result: CompactResult) -> str:
    summaries: list[Any] = [m for m in result.messages if "<context_summary" in json.dumps(m)]
    return json.dumps(summaries)


def bash_turn(number: int) -> Turn:
    output = f"line of log {number}: the test of part {number} passed\n" * 120
    call = Call("Bash", {"command": f"make test-{number}"}, (Part("text", output),))
    return Turn((Part("text", f"Task {number}: test."),), steps=(Step((call,)),), answer="Done.")


@pytest.mark.parametrize("format", FORMATS)
async def test_cleared_results_stay_cleared_when_a_reminder_disappears(format: str) -> None:
    host = Host(format, append)
    before = render([bash_turn(number) for number in range(12)], format)
    after = render([bash_turn(number) for number in range(13)], format)
    fit = CompactRequest(
        format=format, session_id="s", context_window=24_000, max_output_tokens=1_000
    )
    clear = replace(fit, mode="micro")
    async with temporary_archive() as archive:
        first = await compact([*before, host.user(reminder(1))], clear, archive=archive)
        second = await compact([*after, host.user(reminder(2))], fit, archive=archive)
    assert first.edits
    assert first.boundary is None
    assert second.recognised is not None
    assert second.recognised.message_count >= len(before)
    assert second.messages[: len(before)] == first.messages[: len(before)]
