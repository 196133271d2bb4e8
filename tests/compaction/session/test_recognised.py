"""A host that passes its whole conversation gets the earlier result plus the new messages."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from context_compaction.archive.local.archive import open_archive
from context_compaction.errors import InvalidMessageError, SettingsError
from context_compaction.messages.model import Edit
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS
from tests.compaction.session.turns import session
from tests.support.json_types import Json
from tests.support.promises import check_readback, temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import assistant, user
from tests.support.strategies import FORMATS, conversations, hostile_conversations

ListForm = Literal["whole", "compacted"]
SYSTEM_ROLES = ("system", "developer")
AUTO = CompactRequest(
    format="anthropic", session_id="s", context_window=50_000, max_output_tokens=4_000
)


def log_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


async def test_identical_calls_write_nothing(tmp_path: Path) -> None:
    history = session(24)
    broken = [user("Go."), assistant({"type": "tool_use", "id": "x", "name": "Bash", "input": {}})]
    broken += [user("No result."), *session(2)]
    async with open_archive(tmp_path / "a", index_root=tmp_path / "index") as archive:
        for name, payload in (("long", history), ("broken", broken)):
            request = replace(AUTO, session_id=name)
            first = await compact(payload, request, archive=archive)
            assert first.changed
            written = log_bytes(tmp_path / "a")
            for _ in range(3):
                again = await compact(payload, request, archive=archive)
                assert again.messages == first.messages
                assert again.changed
            assert log_bytes(tmp_path / "a") == written
            # A longer list adds only its new messages to the archive.
            grown = [*payload, assistant("Done."), user("Thanks.")]
            result = await compact(grown, request, archive=archive)
            assert result.messages == [*first.messages, *grown[-2:]]
            assert log_bytes(tmp_path / "a") - written < 2_000


async def test_edit_makes_a_branch_only_before_the_boundary() -> None:
    history = session(24)
    async with temporary_archive() as archive:
        first = await compact(history, AUTO, archive=archive)
        edited = [*history[:4], user("Task 1: look at g1.py."), *history[5:], user("More.")]
        edited_result = await compact(edited, AUTO, archive=archive)
        first_branch = await compact([*history, user("One.")], AUTO, archive=archive)
        second_branch = await compact([*history, user("Two.")], AUTO, archive=archive)
    assert edited_result.recognised is None
    assert first_branch.messages == [*first.messages, user("One.")]
    assert second_branch.messages == [*first.messages, user("Two.")]


async def test_full_recompacts_the_list_when_options_differ() -> None:
    history = session(24)
    async with temporary_archive() as archive:
        small = await compact(
            history, replace(AUTO, context_window=None, target_tokens=8_000), archive=archive
        )
        large = await compact(
            history, replace(AUTO, context_window=None, target_tokens=24_000), archive=archive
        )
        grown = await compact([*history, user("More.")], AUTO, archive=archive)
    assert small.tokens.after <= 8_000
    assert 12_000 < large.tokens.after <= 24_000
    assert grown.messages == [*large.messages, user("More.")]


@pytest.mark.parametrize("focus", ["", "Keep the names of files."])
async def test_full_result_stays_in_force_at_the_next_auto_call(focus: str) -> None:
    history = session(24)
    each_turn = replace(AUTO, context_window=None, target_tokens=8_000)
    by_hand = replace(each_turn, mode="full", instructions=focus)
    async with temporary_archive() as archive:
        await compact(history, each_turn, archive=archive)
        asked = await compact(history, by_hand, archive=archive)
        again = await compact(history, each_turn, archive=archive)
        grown = await compact([*history, user("More.")], each_turn, archive=archive)
        receipts = await archive.receipts("s")
    assert asked.tokens.after <= 8_000
    assert again.messages == asked.messages
    assert grown.messages == [*asked.messages, user("More.")]
    assert len(receipts) == 2, "nothing was compacted twice"


async def test_usage_report_applies_only_to_later_messages() -> None:
    history = session(24)
    async with temporary_archive() as archive:
        first = await compact(history, AUTO, archive=archive)
        assert first.tokens.after < 20_000
        reported = replace(
            AUTO,
            usage={"input_tokens": 20_000, "output_tokens": 10},
            usage_message_index=len(history),
        )
        grown = [*history, assistant("I see."), user("More.")]
        after = await compact(grown, reported, archive=archive)
        stale = replace(reported, usage_message_index=3)
        ignored = await compact([*grown, assistant("So.")], stale, archive=archive)
        plain = await compact([*grown, assistant("So.")], AUTO, archive=archive)
    assert after.messages == [*first.messages, *grown[-2:]]
    assert 20_010 < after.tokens.before < 20_100
    assert ignored.tokens == plain.tokens


async def test_plan_reports_the_matched_context_and_writes_nothing(tmp_path: Path) -> None:
    history = session(24)
    async with open_archive(tmp_path / "a", index_root=tmp_path / "index") as archive:
        first = await compact(history, AUTO, archive=archive)
        written = log_bytes(tmp_path / "a")
        grown = [*history, user("More.")]
        plan = await compact(grown, replace(AUTO, mode="plan"), archive=archive)
        assert log_bytes(tmp_path / "a") == written
        record = await compact(grown, replace(AUTO, mode="record"), archive=archive)
    assert plan.status == "planned"
    assert plan.messages == grown
    assert first.tokens.after < plan.tokens.before < first.tokens.after + 100
    # `record` archives and counts the caller's own list and leaves it unchanged.
    assert record.messages == grown
    assert record.tokens.before > first.tokens.before


async def test_pinned_index_refers_to_the_callers_list() -> None:
    history = session(24)
    async with temporary_archive() as archive:
        first = await compact(history, AUTO, archive=archive)
        grown = [*history, user("The key is ZEBRA-7."), *session(1), user("More.")]
        request = replace(AUTO, mode="full", pinned_messages=(len(history), 4))
        result = await compact(grown, request, archive=archive)
    assert first.recognised is None
    assert result.recognised is not None
    assert "The key is ZEBRA-7." in str(result.messages)
    assert "look at f1.py" in str(result.messages)


async def test_prepared_recognised_list_applies_to_either_list() -> None:
    history = session(24)
    async with temporary_archive() as archive:
        first = await compact(history, AUTO, archive=archive)
        grown = [*history, *session(2)]
        prepared = await compact(grown, replace(AUTO, mode="full", prepare=True), archive=archive)
        assert prepared.prepared is not None
        assert prepared.messages == grown
        assert prepared.prepared.message_count == len(grown)
        later = [assistant("Done."), user("Thanks.")]
        apply = replace(AUTO, apply=prepared.prepared.prepared_id)
        from_history = await compact([*grown, *later], apply, archive=archive)
        compacted_list = [*first.messages, *session(2), *later]
        from_compacted = await compact(compacted_list, apply, archive=archive)
    assert from_history.status == "compacted"
    assert from_history.messages[-2:] == later
    assert from_compacted.messages == from_history.messages
    assert from_history.tokens.after < first.tokens.after


@dataclass(frozen=True)
class Growth:
    """The calls in which a host passes a growing list.

    Attributes:
        stops: Number of messages that the conversation has at each call.
        forms: Form of the list that each call passes.
    """

    stops: tuple[int, ...]
    forms: tuple[ListForm, ...]


async def _grow(
    payload: list[Json], growth: Growth, request: CompactRequest, *, has_clock: bool = False
) -> None:
    """Check the results for a growing list, and for its last state passed again.

    If `has_clock`, the first message is a system message with a different time at each call.
    """

    def now(messages: list[Json]) -> list[Json]:
        clock = {"role": "system", "content": f"Be brief. It is {start + 1} o'clock."}
        return [clock, *messages[1:]] if has_clock else messages

    assert request.format is not None
    edits: list[Edit] = []
    context: list[Json] = []
    last: list[Json] = []
    start = 0
    async with temporary_archive() as archive:
        for stop, form in zip(growth.stops, growth.forms, strict=True):
            expected = now([*context, *payload[start:stop]])
            passed = now(payload[:stop]) if form == "whole" else expected
            try:
                result = await compact(passed, request, archive=archive)
            except (InvalidMessageError, SettingsError):
                return  # nested too deeply, or the system message leaves no room
            is_valid = not problems(expected, request.format)
            if is_valid:
                assert not problems(result.messages, request.format, original=expected)
            # Synthetic results for missing ones may raise a list above the trigger.
            is_repaired = any(layer.name == "repair" for layer in result.layers)
            if not result.layers:
                # A result that arrives late replaces the synthetic one, so the whole list that was
                # passed may be valid where the continued context is not.
                allowed = [expected] if is_valid else [expected, passed]
                assert json.dumps(result.messages) in map(json.dumps, allowed)
            elif result.tokens.before_upper <= result.tokens.trigger and not is_repaired:
                assert {layer.name for layer in result.layers} <= {"repair", "persist"}
            last = now(payload[:stop])
            context, start = result.messages, stop
            edits += result.edits
        again = await compact(last, request, archive=archive)
        assert json.dumps(again.messages) == json.dumps(context), "same list, different bytes"
        combined = replace(again, edits=tuple(edits))
        await check_readback(last, combined, request.format, archive)


@st.composite
def growths(draw: st.DrawFn, count: int) -> Growth:
    stops = sorted(draw(st.sets(st.integers(1, max(1, count)), min_size=1, max_size=6)))
    form: st.SearchStrategy[Any] = st.sampled_from(["whole", "whole", "compacted"])
    forms = draw(st.lists(form, min_size=len(stops), max_size=len(stops)))
    return Growth(tuple(stops), tuple(forms))


def _check_growth(
    payload: list[Json], format: str, growth: Growth, trigger: int, *, has_clock: bool = False
) -> None:
    request = CompactRequest(
        format=format,
        session_id="s",
        context_window=100_000,
        settings={"trigger_tokens": trigger},
    )

    anyio.run(partial(_grow, payload, growth, request, has_clock=has_clock))


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), trigger=st.sampled_from([200, 1_000, 4_000]), hostile=st.booleans())
@EXAMPLES
def test_growing_list_keeps_its_context_whole_or_compacted(
    format: str, data: st.DataObject, trigger: int, hostile: bool
) -> None:
    payload = data.draw(hostile_conversations(format) if hostile else conversations(format))
    _check_growth(payload, format, data.draw(growths(len(payload))), trigger)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
@given(data=st.data(), trigger=st.sampled_from([200, 1_000, 4_000]))
@EXAMPLES
def test_growing_list_keeps_its_context_when_the_system_message_changes(
    format: str, data: st.DataObject, trigger: int
) -> None:
    drawn = data.draw(conversations(format))
    payload = [{}, *(message for message in drawn if message.get("role") not in SYSTEM_ROLES)]
    stops = data.draw(growths(len(payload))).stops
    growth = Growth(stops, ("whole",) * len(stops))
    _check_growth(payload, format, growth, trigger, has_clock=True)
