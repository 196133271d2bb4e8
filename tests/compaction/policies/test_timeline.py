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


def one_turn(calls: int, tokens: int = 900) -> list[Json]:
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
    given = await timeline(payload)
    assert given.tokens.before == tokens
    assert given.tokens.trigger == 9_000
    assert given.status == status


async def test_the_system_prompt_counts() -> None:
    payload = turns(17)  # 8 690 tokens
    assert (await timeline(payload)).status == "unchanged"
    assert (await timeline(payload, system=chars(400))).status == "compacted"


async def test_last_six_turns_stay_when_they_are_more_than_70_percent() -> None:
    payload = turns(7, 1_300)
    given = await timeline(payload)
    assert given.messages[1:] == payload[-12:]


# The seven cases of the paper.


async def test_insert_summary_and_keep_cut_point() -> None:
    payload = turns(18)
    given = await timeline(payload)
    assert shape(given.messages)[0] == "summary"
    assert given.boundary is not None
    cut = given.boundary.first_kept_index
    assert given.messages[1] is payload[cut]


async def test_split_turn_prefix_summary() -> None:
    payload = one_turn(10)
    given = await timeline(payload)
    assert given.boundary is not None
    assert given.boundary.is_split_turn
    assert shape(given.messages) == ["summary", *["call", "result"] * 7]
    summary = given.messages[0]["content"]
    assert "## Turn Context (split turn)" in summary
    assert "Refactor the parser, and keep the public names." in summary


@pytest.mark.parametrize("mode", ["auto", "full"])
async def test_no_compaction_under_limit(mode: str) -> None:
    payload = turns(4)
    given = await timeline(payload, mode=mode)
    if mode == "auto":
        assert given.status == "unchanged"
        assert all(one is other for one, other in zip(payload, given.messages, strict=True))
    else:
        assert shape(given.messages)[0] == "summary"


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
            one_turn(6),
            CompactRequest(policy="default", mode="micro", format="anthropic", session_id="s",
                           settings={**CHARS4, "min_result_tokens": 100}),
            archive=archive,
        )  # fmt: skip
        given = await compact(
            [*hidden.messages, assistant("Done."), user("Go on.")],
            CompactRequest(
                policy="timeline", mode="full", format="anthropic", session_id="s",
                settings=request.settings,
            ),
            archive=archive,
        )  # fmt: skip
    found = given.receipt["digest"]["hidden"]
    assert len(found) == 3
    assert all(text.startswith("[Old tool result cleared: bash, 3600 chars") for text in found)


@pytest.mark.parametrize("tokens", [600, 900, 1_300])
async def test_tool_call_boundary_preserved(tokens: int) -> None:
    given = await timeline(one_turn(12, tokens))
    assert shape(given.messages)[1] == "call"


async def test_cache_points_retained_after_render() -> None:
    marker = {"type": "ephemeral"}
    payload = turns(18)
    payload[0] = user([{**text(chars(500)), "cache_control": marker}])
    payload[-2] = user([{**text(chars(500)), "cache_control": marker}])
    given = await timeline(payload)
    assert json.dumps(given.messages).count("cache_control") == 2
    assert given.messages[0]["content"][0]["cache_control"] == marker
    assert given.messages[-2] is payload[-2]


# Further rules.


async def test_hooks_are_called_before_and_after() -> None:
    told: list[tuple[str, CompactionStats]] = []

    async def before(stats: CompactionStats) -> None:
        told.append(("before", stats))

    async def after(stats: CompactionStats) -> None:
        told.append(("after", stats))

    request = CompactRequest(
        policy="timeline", format="anthropic", settings={**CHARS4, **SHORT},
        context_window=10_000, max_output_tokens=1_000,
    )  # fmt: skip
    async with temporary_archive() as archive:
        hooks: Any = {"before_compaction": before, "after_compaction": after}
        quiet = await compact(turns(4), request, archive=archive, **hooks)
        assert (quiet.status, told) == ("unchanged", [])
        given = await compact(turns(18), request, archive=archive, **hooks)
    [(first, at_start), (second, at_end)] = told
    assert (first, second) == ("before", "after")
    assert at_start == CompactionStats(given.tokens.before, given.tokens.before, 10, 0)
    assert at_end == CompactionStats(given.tokens.before, given.tokens.after, 10, 1)


async def test_timeline_checkpoint_replaces_the_running_turn_by_a_ledger() -> None:
    payload = one_turn(10)
    given = await under("timeline-checkpoint", payload, settings=SHORT, **WINDOW)
    assert shape(given.messages)[:3] == ["user", "checkpoint", "call"]
    assert given.messages[0] is payload[0]
    assert "run 0" in given.messages[1]["content"]
