"""Background compaction: prepare now, apply later."""

import copy
import json
import time
from dataclasses import replace
from typing import Any

import anyio
import pytest
from context_compaction.compaction_state import LIFETIME_SECONDS, states_of
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session.resume import find_prepared
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES
from tests.support.json_types import Json
from tests.support.promises import check_readback, refusable, temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, call, lines, session, user
from tests.support.strategies import FORMATS, conversations, hostile_conversations

PREPARE = CompactRequest(format="anthropic", session_id="s", mode="full", prepare=True)


def later() -> list[Json]:
    steps = answered("d", "Read", lines("docs", 20), file_path="docs.md")
    return [assistant("I begin."), user("Be brief."), *steps, assistant("Done.")]


def apply_request(prepared: CompactResult, **options: Any) -> CompactRequest:
    assert prepared.prepared is not None
    options = {"format": "anthropic", "session_id": "s"} | options
    return CompactRequest(apply=prepared.prepared.prepared_id, **options)


async def test_prepared_list_replaces_only_its_messages_when_applied() -> None:
    payload = session()
    async with temporary_archive() as archive:
        prepared = await compact(payload, PREPARE, archive=archive)
        _, context = await archive.context("s")
        assert prepared.status == "prepared"
        assert not prepared.changed
        assert prepared.messages == context == payload
        assert prepared.prepared is not None
        assert prepared.prepared.message_count == len(payload)
        assert prepared.tokens.after < prepared.tokens.before
        grown = [*payload, *later()]
        as_given = copy.deepcopy(grown)
        result = await compact(grown, apply_request(prepared), archive=archive)
        _, context = await archive.context("s")
    assert grown == as_given
    assert result.status == "compacted"
    assert result.messages == context
    assert "<context_summary" in str(result.messages[0])
    tail = result.messages[-len(later()) :]
    assert all(
        message is original for message, original in zip(tail, grown[len(payload) :], strict=True)
    )
    assert result.boundary is not None
    assert result.boundary == prepared.boundary
    assert result.summary == prepared.summary
    assert result.receipt["applied"] == prepared.prepared.prepared_id


async def test_prepare_leaves_a_pending_call() -> None:
    open_calls = assistant(call("x", "Bash", command="make"), call("y", "Bash", command="ls"))
    payload = [*session(), assistant("I look."), user("Go on."), open_calls]
    results = user([
        {"type": "tool_result", "tool_use_id": "x", "content": "ok"},
        {"type": "tool_result", "tool_use_id": "y", "content": "a b"},
    ])
    async with temporary_archive() as archive:
        prepared = await compact(payload, PREPARE, archive=archive)
        grown = [*payload, results]
        result = await compact(grown, apply_request(prepared), archive=archive)
        read = await archive.read_messages("s", 0, 100)
    assert prepared.prepared is not None
    assert prepared.prepared.message_count == len(payload) - 1
    assert result.messages[-2] is open_calls
    assert result.messages[-1] is results
    assert not problems(result.messages, "anthropic", original=grown)
    assert len(read) == len(grown)  # the pending call, too


async def test_apply_is_refused_when_the_list_starts_differently() -> None:
    payload = session()
    changed = [user("Fix the lexer."), *payload[1:]]
    async with temporary_archive() as archive:
        prepared = await compact(payload, PREPARE, archive=archive)
        with pytest.raises(
            SettingsError, match="for 27 messages, but the list starts with other messages"
        ):
            await compact(changed, apply_request(prepared), archive=archive)
        with pytest.raises(SettingsError, match="the list has only 4"):
            await compact(payload[:4], apply_request(prepared), archive=archive)
        archived = await archive.read_messages("s", 0, 100)
        # The refusals leave the prepared compaction usable.
        result = await compact([*payload, *later()], apply_request(prepared), archive=archive)
    assert changed[0] in [message.raw for message in archived]
    assert result.status == "compacted"


async def test_apply_is_refused_in_another_session_and_when_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = session()
    async with temporary_archive() as archive:
        prepared = await compact(payload, PREPARE, archive=archive)
        with pytest.raises(NotFoundError, match="Session other has no prepared compaction"):
            await compact(payload, apply_request(prepared, session_id="other"), archive=archive)
        receipts = await archive.receipts("s")
    assert prepared.prepared is not None
    prepared_id = prepared.prepared.prepared_id
    late = time.time() + LIFETIME_SECONDS + 5
    with pytest.raises(SettingsError, match="has expired after 24 hours"):
        find_prepared(states_of(receipts), prepared_id, payload, "s", late)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prepare": True, "apply": "p_1"}, "given together"),
        ({"prepare": True, "mode": "plan"}, "no outcome to store"),
        ({"apply": "p_1", "mode": "full"}, "Remove the mode"),
    ],
)
async def test_contradicting_options_are_refused(options: Json, message: str) -> None:
    async with temporary_archive() as archive:
        with pytest.raises(SettingsError, match=message):
            await compact(session(), CompactRequest(session_id="s", **options), archive=archive)
        with pytest.raises(NotFoundError):
            await archive.session_info("s")


async def test_prepare_warns_when_nothing_has_to_be_done() -> None:
    async with temporary_archive() as archive:
        request = replace(PREPARE, mode="auto", context_window=200_000)
        result = await compact([user("Hello.")], request, archive=archive)
    assert result.status == "unchanged"
    assert result.prepared is None
    assert any("Nothing was prepared" in warning for warning in result.warnings)


async def test_apply_warns_when_newer_messages_exceed_the_target() -> None:
    payload = session()
    steps = [answered(f"d{n}", "Bash", lines(f"m{n}", 150), command=f"go {n}") for n in range(9)]
    grown = [*payload, *(message for step in steps for message in step)]
    async with temporary_archive() as archive:
        prepared = await compact(payload, PREPARE, archive=archive)
        result = await compact(grown, apply_request(prepared, target_tokens=9_000), archive=archive)
        request = CompactRequest(format="anthropic", session_id="s", target_tokens=9_000)
        second = await compact(result.messages, request, archive=archive)
    assert result.status == "compacted"
    assert not result.fits
    assert any("Compact it without apply" in warning for warning in result.warnings)
    assert second.fits


async def test_prepared_host_summary_is_applied_later() -> None:
    payload = session()
    words = "## Goal\nThe parser was fixed by rewriting its lexer."
    async with temporary_archive() as archive:
        ask = replace(PREPARE, summarizer="host")
        asked = await compact(payload, ask, archive=archive)
        assert asked.summary_prompt is not None
        given = replace(ask, summary=words, continuation=asked.summary_prompt.continuation)
        prepared = await compact(payload, given, archive=archive)
        result = await compact([*payload, *later()], apply_request(prepared), archive=archive)
    assert words in (result.summary or "")
    assert result.receipt["writer"] == "host"


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), hostile=st.booleans(), share=st.sampled_from([0.8, 0.4, 0.1]))
@EXAMPLES
def test_apply_is_valid_and_lossless_wherever_it_was_prepared(
    format: str, data: st.DataObject, hostile: bool, share: float
) -> None:
    source = hostile_conversations if hostile else conversations
    payload: list[Json] = data.draw(source(format))
    stop = data.draw(st.integers(0, len(payload)))

    async def run() -> None:
        async with temporary_archive() as archive:
            request = CompactRequest(format=format, session_id="s")
            counted = await compact(payload, replace(request, mode="record"), archive=archive)
            target = max(1, int(counted.tokens.before * share))
            ask = replace(request, target_tokens=target, mode="full", prepare=True)
            prepared = await compact(payload[:stop], ask, archive=archive)
            if prepared.prepared is None:
                return
            count = prepared.prepared.message_count
            apply = replace(request, apply=prepared.prepared.prepared_id)
            result = await compact(payload, apply, archive=archive)
            if result.status == "no_progress":
                return
            faults = problems(result.messages, format, original=payload)
            assert not faults, faults
            edited = {edit.index for edit in result.edits}
            present = {id(message) for message in result.messages}
            for index in range(count, len(payload)):
                assert index in edited or id(payload[index]) in present
            await check_readback(payload, result, format, archive)
            again = await compact(payload, apply, archive=archive)
            assert json.dumps(again.messages) == json.dumps(result.messages)

    with refusable(payload):
        anyio.run(run)
