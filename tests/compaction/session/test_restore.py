"""Messages and outputs are put back into the list by their pointers, one at a time."""

import json
from dataclasses import replace

import anyio
import pytest
from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    Mode,
    NotFoundError,
    QueryError,
    SettingsError,
    compact,
    make_blob,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.compaction.session.test_undo import TURNS, plain, request_for, turns
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.provider_rules import problems
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS, conversations


def restore(request: CompactRequest, pointer: str) -> CompactRequest:
    wide = replace(request, target_tokens=None, context_window=10_000_000)
    return replace(wide, mode="undo", restore=pointer)


def message_pointer(seq: int) -> str:
    return f"transcript://s/messages/{seq}-{seq}"


def output_ids(result: CompactResult) -> list[str]:
    edits = result.receipt["edits"]
    return [p for edit in edits for p in edit["pointers"] if p.startswith("o_")]


@pytest.mark.parametrize("passes_whole_list", [True, False])
@pytest.mark.parametrize("format", FORMATS)
async def test_summarized_message_is_put_back_with_its_calls_and_results(
    format: str, passes_whole_list: bool
) -> None:
    whole = render(turns(TURNS), format)
    request = request_for(format, mode="full")
    async with temporary_archive() as archive:
        first = await compact(whole, request, archive=archive)
        given = whole if passes_whole_list else first.messages
        removed = [seq for seq, raw in enumerate(whole) if raw not in first.messages]
        for seq in removed[:4]:
            before = given
            try:
                done = await compact(
                    before, restore(request, message_pointer(seq)), archive=archive
                )
            except NotFoundError:  # it came back with its call
                continue
            assert whole[seq] in done.messages
            assert problems(done.messages, format) == []
            given = before if passes_whole_list else done.messages
            auto = replace(request, mode="auto", context_window=500_000)
            again = await compact(given, auto, archive=archive)
            assert again.messages == done.messages, "the next call keeps what was put back"
        undo = replace(request, mode="undo", context_window=500_000)
        undone = await compact(given, undo, archive=archive)
        assert plain(undone.messages) == plain(whole), "the compaction can still be undone"


@pytest.mark.parametrize("format", FORMATS)
async def test_cleared_result_is_put_back_by_its_output(format: str) -> None:
    whole = render(turns(TURNS), format)
    small = {"min_result_tokens": 1, "min_savings_tokens": 1, "keep_recent_results": 1}
    request = request_for(format, mode="micro", settings=small)
    async with temporary_archive() as archive:
        first = await compact(whole, request, archive=archive)
        assert first.status == "compacted"
        output_id, *others = output_ids(first)
        done = await compact(first.messages, restore(request, output_id), archive=archive)
        text = json.dumps(done.messages)
        assert output_id not in text
        assert all(other in text for other in others)
        changed = [m for m in done.messages if m not in first.messages]
        assert changed == [m for m in whole if m in changed]
        assert problems(done.messages, format) == []
        with pytest.raises(NotFoundError, match="Nothing to restore"):
            await compact(done.messages, restore(request, output_id), archive=archive)


@pytest.mark.parametrize("format", FORMATS)
async def test_each_message_of_a_turn_with_thinking_comes_back_alone(format: str) -> None:
    steps = tuple(
        Step((Call("Bash", {"command": f"make {n}"}, (Part("text", "passed\n" * 90),)),), "", "why")
        for n in range(2)
    )
    first = Turn((Part("text", "Run the tests."),), steps=steps, answer="All tests passed.")
    last = Turn((Part("text", "Thank you."),), answer="You are welcome.")
    whole = render([first, last], format)
    request = CompactRequest(format=format, session_id="s", mode="full", target_tokens=400)
    for seq in range(len(whole)):
        async with temporary_archive() as archive:
            compacted = (await compact(whole, request, archive=archive)).messages
            try:
                pointer = restore(request, message_pointer(seq))
                done = await compact(compacted, pointer, archive=archive)
            except NotFoundError:
                assert whole[seq] in compacted
                continue
        assert problems(done.messages, format, original=whole) == []
        assert seq in done.receipt["restored_messages"]


@pytest.mark.timeout(240)
@settings(
    max_examples=settings().max_examples // 4,
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    conversation=st.sampled_from(FORMATS).flatmap(
        lambda format: st.tuples(st.just(format), conversations(format))
    ),
    mode=st.sampled_from(["full", "micro"]),
    places=st.lists(st.integers(0, 30), min_size=1, max_size=3),
)
def test_any_message_is_put_back_into_a_valid_list(
    conversation: tuple[str, list[Json]], mode: Mode, places: list[int]
) -> None:
    format, whole = conversation
    request = CompactRequest(format=format, session_id="s", mode=mode, target_tokens=2_000)

    async def run() -> None:
        async with temporary_archive() as archive:
            await check_restore(whole, request, places, archive)

    anyio.run(run)


async def check_restore(
    whole: list[Json], request: CompactRequest, places: list[int], archive: Archive
) -> None:
    """Compact a list and put messages back, one after the other."""
    try:
        current = (await compact(whole, request, archive=archive)).messages
    except SettingsError:  # system messages alone exceed the target
        return
    for place in places:
        pointer = message_pointer(place % len(whole))
        try:
            done = await compact(current, restore(request, pointer), archive=archive)
        except NotFoundError:
            continue
        assert problems(done.messages, str(request.format), original=whole) == []
        current = done.messages
    undo = replace(request, mode="undo", target_tokens=None, context_window=10_000_000)
    try:
        undone = await compact(current, undo, archive=archive)
    except NotFoundError:  # nothing was compacted
        return
    assert plain(undone.messages) == plain(whole)


async def test_restore_refuses_what_has_no_place_in_the_list() -> None:
    whole = render(turns(TURNS * 2), "anthropic")
    request = request_for("anthropic")
    async with temporary_archive() as archive:
        first = await compact(whole, request, archive=archive)
        for pointer in ("transcript://s/files/a.py", "nothing", "transcript://s/plan"):
            with pytest.raises(QueryError, match="Cannot restore"):
                await compact(first.messages, restore(request, pointer), archive=archive)
        unknown = make_blob("x" * 100).output_id
        other = "transcript://other/messages/1-2"
        for pointer in (unknown, other, message_pointer(999_999), message_pointer(len(whole) - 1)):
            with pytest.raises(NotFoundError, match="Nothing to restore"):
                await compact(first.messages, restore(request, pointer), archive=archive)
        everything = replace(
            restore(request, f"transcript://s/messages/0-{10**11}"), context_window=12_000
        )
        with pytest.raises(SettingsError, match="has room for"):
            await compact(first.messages, everything, archive=archive)
        same = await compact(first.messages, replace(request, mode="auto"), archive=archive)
    assert same.messages == first.messages
