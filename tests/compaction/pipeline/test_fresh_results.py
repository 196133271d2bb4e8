"""Fresh tool results stay whole until the model has seen them."""

from typing import Any, Literal

import anyio
import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS
from tests.support.json_types import Json
from tests.support.policy_tables import CHARS4
from tests.support.promises import temporary_archive
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.small import answered, user
from tests.support.strategies import FORMATS

LINE = "A sentence of the manual that matters.\n"
SCALED_POLICIES = [name for name, policy in POLICIES.items() if policy.settings.scale_to_budget]
OWN_TOOLS = [
    "read_persisted_output",
    "mcp__x__read_persisted_output",
    "compaction_search_transcript",
]
WINDOWS = st.sampled_from([16_000, 32_000, 60_000, 200_000, 1_000_000])
FRESH_MODES: tuple[Literal["auto", "micro"], ...] = ("auto", "micro")


def output(tokens: float) -> Part:
    """Return lines with `tokens` tokens, counted as characters / 4."""
    text = (LINE * (int(tokens * 4) // len(LINE) + 1))[: int(tokens * 4)]
    return Part("text", text.rstrip())


def fresh_turn(request_tokens: float, result_tokens: float, results: int, tool: str) -> Turn:
    """Return a request and tool results that the model has not seen yet."""
    part = output(result_tokens / results)
    calls = tuple(Call(tool, {"path": f"f{n}.md"}, (part,)) for n in range(results))
    return Turn((output(request_tokens),), (Step(calls),), "")


def check_changes(turn: Turn, format: str, *, changes: bool, **options: Any) -> None:
    """Assert whether compacting `turn` changes it, and that the result fits."""
    payload: list[Json] = render([turn], format)

    async def run() -> None:
        async with temporary_archive() as archive:
            request = CompactRequest(format=format, settings=CHARS4, **options)
            result = await compact(payload, request, archive=archive)
        assert result.changed == changes
        assert result.fits

    anyio.run(run)


def trigger_of(window: int, policy: str) -> int:
    """Return the trigger of `policy` in a window."""

    async def run() -> int:
        async with temporary_archive() as archive:
            request = CompactRequest(
                mode="plan", policy=policy, context_window=window, settings=CHARS4
            )
            payload: list[Json] = [{"role": "user", "content": "hi"}]
            return (await compact(payload, request, archive=archive)).tokens.trigger

    return anyio.run(run)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("policy", SCALED_POLICIES)
@given(
    format=st.sampled_from(FORMATS),
    window=WINDOWS,
    used=st.floats(0.01, 0.9),
    share=st.floats(0.05, 0.95),
    results=st.integers(1, 4),
    mode=st.sampled_from(FRESH_MODES),
)
@EXAMPLES
def test_fresh_result_stays_whole_below_the_trigger(
    policy: str,
    format: str,
    window: int,
    used: float,
    share: float,
    results: int,
    mode: Literal["auto", "micro"],
) -> None:
    trigger = trigger_of(window, policy) - 400  # room for the frames of messages
    # `micro` keeps the newest three results and clears older ones.
    count = min(results, 3) if mode == "micro" else results
    turn = fresh_turn(trigger * used, trigger * (1 - used) * share, count, "read_file")
    check_changes(turn, format, changes=False, policy=policy, context_window=window, mode=mode)


@pytest.mark.parametrize("lines", [60, 120])
async def test_edits_come_in_batches_when_results_are_large(lines: int) -> None:
    statuses: list[str] = []
    messages = [{"role": "user", "content": "Read the manual."}]
    async with temporary_archive() as archive:
        for number in range(20):
            step = Turn(
                (), (Step((Call("read", {"page": number}, (Part("text", LINE * lines),)),)),)
            )
            messages = [*messages, *render([step], "anthropic")[-3:-1]]
            request = CompactRequest(context_window=12_000, settings=CHARS4, session_id="s")
            result = await compact(messages, request, archive=archive)
            messages, statuses = result.messages, [*statuses, result.status]
    assert 2 <= statuses.count("compacted") <= 10


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("policy", POLICIES)
@given(
    format=st.sampled_from(FORMATS),
    window=WINDOWS,
    share=st.floats(0.1, 0.95),
    results=st.integers(1, 5),
    tool=st.sampled_from(OWN_TOOLS),
    mode=st.sampled_from(FRESH_MODES),
)
@EXAMPLES
def test_result_of_own_tool_stays_until_the_model_has_seen_it(
    policy: str,
    format: str,
    window: int,
    share: float,
    results: int,
    tool: str,
    mode: Literal["auto", "micro"],
) -> None:
    trigger = trigger_of(window, policy) - 400
    turn = fresh_turn(20, (trigger - 20) * share, results, tool)
    check_changes(turn, format, changes=False, policy=policy, context_window=window, mode=mode)


def test_result_limit_of_the_caller_is_not_scaled() -> None:
    turn = fresh_turn(100, 3_000, 1, "read_file")
    settings = {**CHARS4, "persist_result_tokens": 2_000}
    payload = render([turn], "anthropic")

    async def run() -> bool:
        async with temporary_archive() as archive:
            request = CompactRequest(context_window=200_000, settings=settings)
            return (await compact(payload, request, archive=archive)).changed

    assert anyio.run(run)


@pytest.mark.parametrize("window", [16_000, 24_000, 32_000, 40_000, 60_000])
async def test_loop_of_reads_shows_enough_of_each_result(window: int) -> None:
    payload: list[Json] = [user("Read all files and summarize them.")]
    async with temporary_archive() as archive:
        for number, count in enumerate([60, 150, 300, 500, 250, 60, 300]):
            text = "\n".join(f"{n}\tfile {number} line {n}: value_{n * 37}" for n in range(count))
            payload += answered(f"c{number}", "Read", text, file_path=f"/w/f{number}.txt")
            request = CompactRequest(
                session_id="s", context_window=window, max_output_tokens=2_000, format="anthropic"
            )
            payload = (await compact(payload, request, archive=archive)).messages
            # A short result stays whole, a long result shows at least a page.
            assert str(payload[-1]).count(f"file {number} line ") >= min(count, window // 500)
