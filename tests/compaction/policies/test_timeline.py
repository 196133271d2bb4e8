"""Policy timeline, from the rules of S4. Its seven cases have the paper's names."""

import json
from typing import Any

import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactionStats

from tests.support.json_types import Json
from tests.support.policy_tables import CHARS4, SHORT, WINDOW, chars, shape, timeline, under
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, text, user


def turn(number: int, tokens: int = 500) -> list[Json]:
    """Return a request of `tokens` tokens and its answer: `tokens` + 10 tokens in all."""
    return [user(chars(tokens, chr(97 + number % 26))), assistant("Done, yes.")]


def turns(number: int, tokens: int = 500) -> list[Json]:
    return [message for n in range(number) for message in turn(n, tokens)]


def long_turn(calls: int, tokens: int = 900) -> list[Json]:
    """Return a request and `calls` calls, whose results have `tokens` tokens each."""
    messages = [user("Refactor the parser, and keep the public names.")]
    for number in range(calls):
        messages += answered(
            f"c{number}", "bash", chars(tokens, chr(97 + number)), command=f"run {number}"
        )
    return messages


@pytest.mark.parametrize(
    ("tokens", "status"), [(8_999, "unchanged"), (9_000, "unchanged"), (9_001, "compacted")]
)
async def test_timeline_acts_above_0_9_of_the_window(tokens: int, status: str) -> None:
    frames = 10 + 7 * 4
    payload = [*turns(3, 1_000), user("")]
    payload[-1] = user(chars(tokens - frames - 3 * 1_002))
    compaction = await timeline(payload)
    assert compaction.tokens.before == tokens
    assert compaction.tokens.trigger == 9_000
    assert compaction.status == status


async def test_the_system_prompt_counts() -> None:
    payload = turns(17)  # 8 690 tokens
    assert (await timeline(payload)).status == "unchanged"
    assert (await timeline(payload, system=chars(400))).status == "compacted"


async def test_last_six_turns_stay_when_they_are_more_than_70_percent() -> None:
    payload = turns(7, 1_300)
    compaction = await timeline(payload)
    assert compaction.messages[1:] == payload[-12:]


# The seven cases of the paper.


async def test_insert_summary_and_keep_cut_point() -> None:
    payload = turns(18)
    compaction = await timeline(payload)
    assert shape(compaction.messages)[0] == "summary"
    assert compaction.boundary is not None
    cut = compaction.boundary.first_kept_index
    assert compaction.messages[1] is payload[cut]


async def test_split_turn_prefix_summary() -> None:
    payload = long_turn(10)
    compaction = await timeline(payload)
    assert compaction.boundary is not None
    assert compaction.boundary.is_split_turn
    assert shape(compaction.messages) == ["summary", *["call", "result"] * 7]
    summary = compaction.messages[0]["content"]
    assert "## Turn Context (split turn)" in summary
    assert "Refactor the parser, and keep the public names." in summary


@pytest.mark.parametrize("mode", ["auto", "full"])
async def test_no_compaction_under_limit(mode: str) -> None:
    payload = turns(4)
    compaction = await timeline(payload, mode=mode)
    if mode == "auto":
        assert compaction.status == "unchanged"
        assert all(a is b for a, b in zip(payload, compaction.messages, strict=True))
    else:
        assert shape(compaction.messages)[0] == "summary"


async def test_compaction_after_existing_summary() -> None:
    request = CompactRequest(
        policy="timeline", format="anthropic", session_id="s", settings={**CHARS4, **SHORT},
        context_window=10_000, max_output_tokens=1_000,
    )  # fmt: skip
    async with temporary_archive() as archive:
        first = await compact(turns(18), request, archive=archive)
        grown = [*first.messages, *turns(6)]
        second = await compact(grown, request, archive=archive)
    assert shape(second.messages).count("summary") == 1
    assert shape(second.messages)[0] == "summary"
    assert first.boundary is not None
    assert second.boundary is not None
    assert second.boundary.start_seq == first.boundary.start_seq == 0
    assert second.boundary.stop_seq > first.boundary.stop_seq


async def test_hidden_blocks_surfaced_in_digest() -> None:
    request = CompactRequest(
        policy="timeline", format="anthropic", session_id="s", settings={**CHARS4, **SHORT}
    )
    async with temporary_archive() as archive:
        hidden = await compact(
            long_turn(6),
            CompactRequest(policy="default", mode="micro", format="anthropic", session_id="s",
                           settings={**CHARS4, "min_result_tokens": 100}),
            archive=archive,
        )  # fmt: skip
        compaction = await compact(
            [*hidden.messages, assistant("Done."), user("Go on.")],
            CompactRequest(
                policy="timeline", mode="full", format="anthropic", session_id="s",
                settings=request.settings,
            ),
            archive=archive,
        )  # fmt: skip
    hidden_blocks = compaction.receipt["digest"]["hidden"]
    assert len(hidden_blocks) == 3
    assert all(
        text.startswith("[Old tool result cleared: bash, 3600 chars") for text in hidden_blocks
    )


@pytest.mark.parametrize("tokens", [600, 900, 1_300])
async def test_tool_call_boundary_preserved(tokens: int) -> None:
    compaction = await timeline(long_turn(12, tokens))
    assert shape(compaction.messages)[1] == "call"


async def test_cache_points_retained_after_render() -> None:
    marker = {"type": "ephemeral"}
    payload = turns(18)
    payload[0] = user([{**text(chars(500)), "cache_control": marker}])
    payload[-2] = user([{**text(chars(500)), "cache_control": marker}])
    compaction = await timeline(payload)
    assert json.dumps(compaction.messages).count("cache_control") == 2
    assert compaction.messages[0]["content"][0]["cache_control"] == marker
    assert compaction.messages[-2] is payload[-2]


# Other rules of the paper.


async def test_hooks_are_called_before_and_after() -> None:
    calls: list[tuple[str, CompactionStats]] = []

    async def before(stats: CompactionStats) -> None:
        calls.append(("before", stats))

    async def after(stats: CompactionStats) -> None:
        calls.append(("after", stats))

    request = CompactRequest(
        policy="timeline", format="anthropic", settings={**CHARS4, **SHORT},
        context_window=10_000, max_output_tokens=1_000,
    )  # fmt: skip
    async with temporary_archive() as archive:
        hooks: Any = {"before_compaction": before, "after_compaction": after}
        quiet = await compact(turns(4), request, archive=archive, **hooks)
        assert (quiet.status, calls) == ("unchanged", [])
        compaction = await compact(turns(18), request, archive=archive, **hooks)
    [(start_name, start), (end_name, end)] = calls
    assert (start_name, end_name) == ("before", "after")
    assert start == CompactionStats(compaction.tokens.before, compaction.tokens.before, 10, 0)
    assert end == CompactionStats(compaction.tokens.before, compaction.tokens.after, 10, 1)


async def test_timeline_checkpoint_replaces_the_running_turn_by_a_ledger() -> None:
    payload = long_turn(10)
    compaction = await under("timeline-checkpoint", payload, settings=SHORT, **WINDOW)
    assert shape(compaction.messages)[:3] == ["user", "checkpoint", "call"]
    assert compaction.messages[0] is payload[0]
    assert "run 0" in compaction.messages[1]["content"]
