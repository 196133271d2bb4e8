"""A range that the caller chooses: only its messages are summarized, whoever writes the summary."""

import json
from dataclasses import replace
from typing import Any

import anyio
import pytest
from context_compaction import CompactRequest, CompactResult, compact
from context_compaction.archive.archive import Archive
from context_compaction.errors import SettingsError
from context_compaction.policies import POLICIES
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import POLICY_EXAMPLES
from tests.support.authors import TEXT, Author
from tests.support.json_types import Json
from tests.support.promises import check_readback, temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, compacted, lines, user
from tests.support.strategies import FORMATS, conversations

RULE = "Never touch the folder legacy, whatever happens."


def talk() -> list[Json]:
    """Return 14 messages, of which 3 to 10 are a finished detour."""
    return [
        user("Fix the parser."),
        *answered("a", "bash", lines("a"), command="cat parser.py"),
        user(f"First look at the log. {RULE}"),
        *answered("b", "bash", lines("b"), command="cat b.log"),
        assistant("The log names the port 8471."),
        user("Look at the other log."),
        *answered("c", "bash", lines("c"), command="cat c.log"),
        assistant("Both logs are clean."),
        user("Back to the parser."),
        *answered("d", "bash", lines("d"), command="cat lexer.py"),
    ]


@pytest.mark.parametrize("writer", ["extracts", "caller", "model"])
async def test_range_summarizes_only_the_chosen_messages(writer: str) -> None:
    payload = talk()
    options: dict[str, Any] = {"summary": TEXT} if writer == "caller" else {}
    async with temporary_archive() as archive:
        request = CompactRequest(session_id="s", format="anthropic", range=(3, 10), **options)
        model = Author(TEXT) if writer == "model" else None
        result = await compact(payload, request, archive=archive, model=model)
        await check_readback(payload, result, "anthropic", archive)
    summary = result.messages[3]["content"]
    assert result.messages == [*payload[:3], user(summary), *payload[11:]]
    assert 'originals="transcript://s/messages/3-10' in summary
    assert RULE in summary
    assert (TEXT in summary) == (writer != "extracts")
    assert result.receipt["range"] == (3, 10)
    assert result.receipt["writer"] == {
        "extracts": "extractive", "caller": "host", "model": "author",
    }[writer]  # fmt: skip
    assert not result.warnings


async def test_caller_is_asked_for_the_summary_of_the_range_only() -> None:
    payload = talk()
    request = CompactRequest(
        session_id="s", format="anthropic", range=(3, 10), detail="full", summarizer="host"
    )
    async with temporary_archive() as archive:
        asked = await compact(payload, request, archive=archive)
        assert asked.summary_prompt is not None
        shown = asked.summary_prompt.user.partition("<kept-after>")[0]
        assert "cat b.log" in shown
        assert "cat parser.py" not in shown
        token = asked.summary_prompt.continuation
        answer = replace(request, summary=TEXT, continuation=token)
        result = await compact(payload, answer, archive=archive)
    assert TEXT in (result.summary or "")
    assert result.messages[:3] == payload[:3]
    assert result.messages[4:] == payload[11:]
    assert not result.warnings


async def test_range_grows_to_whole_pairs_and_says_so() -> None:
    payload = talk()
    result = await compacted(payload, session_id="s", range=(5, 8))
    assert result.receipt["range"] == (4, 9)
    assert result.messages[:4] == payload[:4]
    assert result.messages[5:] == payload[10:]
    [warning] = result.warnings
    assert warning.startswith("Messages 4 to 9 were summarized instead of messages 5 to 8")


async def test_range_keeps_the_newest_request_and_an_open_call() -> None:
    payload = talk()[:-1]
    result = await compacted(payload, session_id="s", range=(7, 12))
    assert result.receipt["range"] == (7, 10)
    assert payload[11:] == result.messages[-2:]
    assert len(result.warnings) == 1


async def test_range_keeps_the_request_of_the_running_turn_beside_its_summary() -> None:
    payload = [*talk(), *answered("e", "bash", lines("e"), command="cat e.py")]
    result = await compacted(payload, session_id="s", range=(7, 13))
    assert payload[11] in result.messages
    assert result.messages[-2:] == payload[-2:]
    assert not problems(result.messages, "anthropic", original=payload)


async def test_whole_conversation_passed_again_gets_the_summary_of_the_range() -> None:
    payload = talk()
    later = [assistant("The lexer is fine."), user("Then run the tests.")]
    async with temporary_archive() as archive:

        async def call(rows: list[Json], **options: Any) -> CompactResult:
            request = CompactRequest(session_id="s", format="anthropic", **options)
            return await compact(rows, request, archive=archive)

        first = await call(payload, range=(3, 10))
        assert (await call([*payload, *later])).messages == [*first.messages, *later]
        again = await call([*payload, *later], range=(3, 10))
        assert again.messages == [*first.messages, *later]
        assert any("an earlier compaction has replaced them" in w for w in again.warnings)
        assert (await call(payload, range=(3, 10))).messages == first.messages
        # A second range, in the caller's own numbers.
        second = await call([*payload, *later], range=(0, 2))
        assert second.messages[1:] == [*first.messages[3:], *later]
        assert "messages/0-2" in second.messages[0]["content"]


async def test_range_in_a_list_above_its_target_fits_below_the_trigger() -> None:
    payload = [*(row for _ in range(5) for row in talk())]
    window = {"context_window": 26_000, "max_output_tokens": 1_000}
    assert (await compacted(payload, mode="record", **window)).tokens.before > 15_000
    for last, fits in ((58, True), (10, False)):
        result = await compacted(payload, range=(0, last), detail="short", **window)
        assert result.receipt["range"] == (0, last)
        assert result.fits is fits
        assert fits or "call again without range" in result.warnings[-1]


async def test_detail_and_target_limit_the_summary_of_a_range() -> None:
    payload = talk()
    sizes: list[int] = []
    for options in ({"detail": "short"}, {"detail": "normal"}, {"detail": "full"}):
        result = await compacted(payload, range=(0, 10), **options)
        sizes.append(result.tokens.after)
    assert sizes == sorted(set(sizes))
    tiny = await compacted(payload, range=(0, 10), target_tokens=60)
    assert tiny.tokens.after < sizes[0]


@pytest.mark.parametrize("mode", ["full", "auto"])
async def test_detail_decides_how_much_a_compaction_leaves(mode: Any) -> None:
    payload = [row for _ in range(30) for row in talk()]
    sizes = [
        (await compacted(payload, mode=mode, detail=detail, context_window=40_000)).tokens.after
        for detail in ("short", "normal", "full")
    ]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"range": (9, 3)}, "Pass the first number and then the last"),
        ({"range": (3, 14)}, "the list has 14 messages, counted from 0"),
        ({"range": (-1, 2)}, "counted from 0"),
        ({"range": (3, 5), "mode": "micro"}, "Use auto, full or plan"),
        ({"range": (3, 5), "policy": "gentle"}, "Use another policy"),
        ({"range": (3, 5), "prepare": True}, "range was given with prepare"),
        ({"detail": "short", "target_tokens": 900}, "Pass one of them"),
    ],
)
async def test_impossible_range_or_detail_is_refused(options: Json, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        await compacted(talk(), **options)


@pytest.mark.parametrize("format", FORMATS)
@given(
    data=st.data(),
    writer=st.sampled_from(["extracts", "caller", "model"]),
    detail=st.sampled_from(["short", "normal", "full", None]),
    policy=st.sampled_from(sorted(n for n, policy in POLICIES.items() if policy.replaces_history)),
)
@POLICY_EXAMPLES
def test_range_leaves_a_valid_list_and_all_other_messages(
    format: str, data: st.DataObject, writer: str, detail: Any, policy: str
) -> None:
    payload = data.draw(conversations(format).filter(bool))
    first = data.draw(st.integers(0, len(payload) - 1))
    last = data.draw(st.integers(first, len(payload) - 1))
    request = CompactRequest(
        format=format,
        session_id="s",
        context_window=1_000_000,
        range=(first, last),
        detail=detail,
        policy=policy,
        summary=TEXT if writer == "caller" else None,
    )

    async def run() -> None:
        before = json.dumps(payload)
        async with temporary_archive() as archive:
            await check(archive)
        assert json.dumps(payload) == before

    async def check(archive: Archive) -> None:
        model = Author(TEXT) if writer == "model" else None
        result = await compact(payload, request, archive=archive, model=model)
        assert not problems(result.messages, format, original=payload)
        await check_readback(payload, result, format, archive)
        start, stop = result.receipt.get("range") or (0, -1)
        edited = {edit.index for edit in result.edits}
        for index, message in enumerate(payload):
            if not start <= index <= stop and index not in edited:
                assert message in result.messages
        later = CompactRequest(format=format, session_id="s", context_window=1_000_000)
        if policy == "default":  # others clear results at every call
            again = await compact(payload, later, archive=archive)
            assert again.messages == result.messages

    anyio.run(run)
