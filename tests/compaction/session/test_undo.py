"""Undo returns the list before a compaction, followed by everything since, byte for byte."""

from dataclasses import replace
from typing import Any

import anyio
import pytest
from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    Mode,
    NotFoundError,
    SettingsError,
    compact,
)
from context_compaction.messages.raw import without_cache_markers
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.provider_rules import problems
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS, conversations

TURNS = 4
WINDOW = 12_000
LIMIT_SECONDS = 7_200 if settings().max_examples > 1_000 else 240


def turns(count: int) -> list[Turn]:
    """Return turns of which `TURNS` exceed the trigger of a window of `WINDOW` tokens."""
    found: list[Turn] = []
    for number in range(count):
        output = f"line {number}: test_{number} passed in the module parser_{number}\n" * 60
        call = Call("Bash", {"command": f"make test-{number}"}, (Part("text", output),))
        words = f"Part {number} was read, and the tokens of part {number} were counted. " * 12
        answer = words.strip()
        request = (Part("text", f"Task {number}: go on with part {number}."),)
        found.append(Turn(request, steps=(Step((call,)),), answer=answer))
    return found


def request_for(format: str, **values: Any) -> CompactRequest:
    return CompactRequest(format=format, session_id="s", context_window=WINDOW, **values)


def plain(messages: list[Json]) -> list[Json]:
    """Return messages without cache markers, which hosts move at every call."""
    return [without_cache_markers(message) for message in messages]


@pytest.mark.parametrize("passes_whole_list", [True, False])
@pytest.mark.parametrize("format", FORMATS)
async def test_undo_returns_the_list_before_each_compaction_and_everything_since(
    format: str, passes_whole_list: bool
) -> None:
    whole = render(turns(TURNS * 4), format)
    step = len(whole) // 4
    lists: dict[int, list[Json]] = {}  # the list before each compaction, and everything since
    results: dict[int, CompactResult] = {}
    async with temporary_archive() as archive:
        current: list[Json] = []
        for start in range(0, len(whole), step):
            new = whole[start : start + step]
            lists = {number: [*messages, *new] for number, messages in lists.items()}
            seen = [*current, *new]
            given = whole[: start + step] if passes_whole_list else seen
            number = len(results)
            result = await compact(given, request_for(format, mode="full"), archive=archive)
            assert result.status == "compacted"
            lists[number], results[number] = seen, result
            current = result.messages
        given = whole if passes_whole_list else current
        for number in reversed(results):
            wide = replace(request_for(format, mode="undo", undo=number), context_window=500_000)
            undone = await compact(given, wide, archive=archive)
            assert undone.status == "undone"
            assert undone.messages == lists[number]
            given = given if passes_whole_list else undone.messages
            again = await compact(given, replace(wide, mode="auto", undo=None), archive=archive)
            assert again.messages == undone.messages


@pytest.mark.parametrize("format", FORMATS)
async def test_list_that_was_undone_compacts_again_to_the_same_bytes(format: str) -> None:
    before = render(turns(TURNS), format)
    async with temporary_archive() as archive:
        first = await compact(before, request_for(format, mode="full"), archive=archive)
        undone = await compact(first.messages, request_for(format, mode="undo"), archive=archive)
        assert plain(undone.messages) == plain(before)
        again = await compact(before, request_for(format, mode="full"), archive=archive)
    assert again.messages == first.messages
    assert problems(again.messages, format) == []


@pytest.mark.parametrize("passes_whole_list", [True, False])
async def test_auto_compacts_an_undone_list_only_when_it_exceeds_the_window(
    passes_whole_list: bool,
) -> None:
    whole = render(turns(TURNS * 3), "anthropic")
    count = len(whole) // 3
    async with temporary_archive() as archive:
        first = await compact(whole[:count], request_for("anthropic"), archive=archive)
        assert first.status == "compacted"  # the list exceeds the trigger
        given = whole[:count] if passes_whole_list else first.messages
        undo = request_for("anthropic", mode="undo")
        undone = await compact(given, undo, archive=archive)
        assert plain(undone.messages) == plain(whole[:count])
        same = await compact(undone.messages, request_for("anthropic"), archive=archive)
        assert same.status == "unchanged"
        grown = await compact(whole, request_for("anthropic"), archive=archive)
        assert grown.status == "compacted"
        assert grown.fits
        full = await compact(whole[:count], request_for("anthropic", mode="full"), archive=archive)
        assert full.status == "compacted"


# By format that accepts a string for a text: the type of a text block of the user.
TEXT_TYPES = {"anthropic": "text", "openai-chat": "text", "openai-responses": "input_text"}


def in_other_form(message: Json, format: str) -> Json:
    """Return a message with its text as a block if it is a string, and the other way round."""
    kind = TEXT_TYPES.get(format)
    if format == "openai-responses" and message.get("role") == "assistant":
        kind = "output_text"
    for key in ("content", "output"):
        match message.get(key):
            case str(words) if words and kind:
                return {**message, key: [{"type": kind, "text": words}]}
            case [{"type": found, "text": words, **more}] if found == kind and not more:
                return {**message, key: words}
            case _:
                pass
    return message


@st.composite
def additions(draw: st.DrawFn) -> tuple[str, list[list[Json]]]:
    """Generate a format, and the messages that a host adds before each of some compactions.

    Some repeat all messages so far, with the other form of their texts.
    """
    format = draw(st.sampled_from(FORMATS))
    added = draw(st.lists(conversations(format), min_size=1, max_size=3))
    if draw(st.booleans()):
        place = draw(st.integers(1, len(added)))
        repeated = [in_other_form(m, format) for messages in added[:place] for m in messages]
        added.insert(place, repeated)
    return format, added


@pytest.mark.timeout(LIMIT_SECONDS)
@settings(
    max_examples=settings().max_examples // 4,  # each example compacts up to three times
    phases=[phase for phase in Phase if phase is not Phase.explain],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(added=additions(), mode=st.sampled_from(["full", "micro"]))
def test_undo_gives_back_any_conversation(added: tuple[str, list[list[Json]]], mode: Mode) -> None:
    format, lists = added
    request = CompactRequest(format=format, session_id="s", mode=mode, target_tokens=2_000)

    async def run() -> None:
        async with temporary_archive() as archive:
            await check_undo(lists, request, archive)

    anyio.run(run)


async def check_undo(added: list[list[Json]], request: CompactRequest, archive: Archive) -> None:
    """Compact after each addition, then undo each compaction and compare the lists."""
    lists: list[list[Json]] = []
    current: list[Json] = []
    for new in added:
        lists = [[*messages, *new] for messages in lists]
        current = [*current, *new]
        try:
            result = await compact(current, request, archive=archive)
        except SettingsError:  # system messages alone exceed the target
            return
        if result.status == "compacted":
            lists.append(current)
        current = result.messages
    for before in reversed(lists):
        undo = replace(request, mode="undo", target_tokens=None, context_window=10_000_000)
        undone = await compact(current, undo, archive=archive)
        assert plain(undone.messages) == plain(before)
        current = undone.messages
        again = await compact(current, replace(undo, mode="auto"), archive=archive)
        assert again.status in ("unchanged", "repaired")


async def test_undo_refuses_what_the_window_or_the_list_does_not_allow() -> None:
    whole = render(turns(TURNS * 2), "anthropic")
    async with temporary_archive() as archive:
        with pytest.raises(NotFoundError, match="no compaction"):
            await compact(whole, request_for("anthropic", mode="undo"), archive=archive)
        first = await compact(whole, request_for("anthropic"), archive=archive)
        with pytest.raises(SettingsError, match="has room for"):
            await compact(first.messages, request_for("anthropic", mode="undo"), archive=archive)
        wrong = request_for("anthropic", mode="undo", undo=7)
        with pytest.raises(NotFoundError, match="no compaction 7"):
            await compact(first.messages, wrong, archive=archive)
        again = await compact(whole, request_for("anthropic"), archive=archive)
    assert again.messages == first.messages
