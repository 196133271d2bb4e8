"""The last of several waits with equal short output replaces the earlier ones."""

import json

import pytest
from context_compaction import CompactRequest, CompactResult, compact
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.small import lines
from tests.support.strategies import FORMATS

REPORT = (
    "Two of the five shards are copied, and the third has begun: the disk is the bottleneck. " * 4
)


def wait(number: int, remark: str = "Still running.", output_text: str = "") -> Step:
    output = (
        output_text
        or f"Chunk ID: {number:06x}\nWall time: 30.00{number} seconds\nRunning, session 7"
    )
    call = Call("write_stdin", {"session_id": 7, "chars": ""}, (Part("text", output),))
    return Step((call,), remark)


def run_command(command: str, text: str) -> Step:
    return Step((Call("Bash", {"command": command}, (Part("text", text),)),), "I look.")


def session(waits: list[Step], format: str = "anthropic") -> list[Json]:
    steps = (run_command("copy.sh", lines("copied", 300)), *waits, run_command("du", "4 GB"))
    request = (Part("text", "Copy the shards."),)
    return render(
        [Turn(request, steps, "Done."), Turn((Part("text", "Thanks."),), answer="")], format
    )


async def compacted(payload: list[Json], format: str = "anthropic") -> CompactResult:
    request = CompactRequest(format=format, mode="micro", session_id="s")
    async with temporary_archive() as archive:
        return await compact(payload, request, archive=archive)


def text_of(result: CompactResult) -> str:
    return json.dumps(result.messages, ensure_ascii=False)


@pytest.mark.parametrize("format", FORMATS)
async def test_repeated_waits_are_removed_except_for_the_last(format: str) -> None:
    payload = session([wait(n) for n in range(8)], format)
    result = await compacted(payload, format)
    text = text_of(result)
    assert "30.007" in text
    assert not any(f"30.00{n}" in text for n in range(7))
    assert "[Messages removed: " in text
    assert text.count("Still running.") == 1


@pytest.mark.parametrize(
    "waits",
    [
        [wait(1), wait(2)],
        [
            wait(n, output_text=f"step {word}")
            for n, word in enumerate(("one", "two", "three", "four"))
        ],
        [step for n in range(4) for step in (wait(n), run_command(f"ls {n}", "ok"))],
        [wait(n, output_text=lines(f"part {n}", 20)) for n in range(4)],
        [wait(n, remark=f"{n}: {REPORT}") for n in range(4)],
    ],
    ids=["twice", "new output", "work between", "long outputs", "reports"],
)
async def test_calls_with_new_output_are_not_waits(waits: list[Step]) -> None:
    assert "[Messages removed: " not in text_of(await compacted(session(waits)))


async def test_user_messages_between_waits_stay() -> None:
    turns = [
        Turn((Part("text", f"Hurry {n}."),), tuple(wait(n) for n in range(4)), "") for n in range(3)
    ]
    payload = [message for turn in turns for message in render([turn], "anthropic")]
    for number, message in enumerate(payload):
        payload[number] = json.loads(json.dumps(message).replace("toolu_", f"toolu_{number // 9}_"))
    first = session([])[:-1]
    text = text_of(await compacted([*first, *payload]))
    assert "[Messages removed: " in text
    assert all(f"Hurry {n}." in text for n in range(3))


@given(
    format=st.sampled_from(FORMATS),
    series=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    target_tokens=st.integers(300, 6_000),
)
@settings(max_examples=20)
async def test_promises_hold_with_waits(format: str, series: list[int], target_tokens: int) -> None:
    steps = [
        step
        for number, size in enumerate(series)
        for step in (*map(wait, range(size)), run_command(f"part {number}", lines(f"{number}", 40)))
    ]
    request = CompactRequest(format=format, target_tokens=target_tokens, session_id="s")
    async with temporary_archive() as archive:
        await check_promises(session(steps, format), request, archive)
