"""The provider's count is used unchanged; only estimates have a margin."""

from dataclasses import replace
from typing import Any

import anyio
import pytest
from context_compaction import formats
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.tokens.counter import RequestCount, UsageAnchor, counter_for, request_count
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.provider_rules import problems
from tests.support.strategies import FORMATS, conversations

# A provider that counts much less than we do, and one with a long system prompt.
RATIOS = st.floats(0.65, 3)


async def compacted_with_usage(
    payload: list[Json], archive: Any, ratio: float, format: str, **options: Any
) -> CompactResult:
    """Compact `payload` with a usage report of `ratio` times our count for its last message."""
    counted = await compact(payload, CompactRequest(mode="record", format=format), archive=archive)
    usage = {"input_tokens": max(1, int(counted.tokens.before * ratio)), "output_tokens": 0}
    trigger_tokens = int(usage["input_tokens"] * options.pop("trigger_share"))
    request = CompactRequest(
        format=format,
        context_window=50_000_000,
        usage=usage,
        usage_message_index=len(payload) - 1,
        settings={"trigger_tokens": max(1, trigger_tokens)},
        **options,
    )
    result = await compact(payload, request, archive=archive)
    assert not problems(result.messages, format, original=payload)
    assert result.tokens.before == result.tokens.before_upper == usage["input_tokens"]
    assert result.fits == (result.tokens.upper <= result.tokens.limit)
    assert result.fits or result.irreducible
    return result


@pytest.mark.timeout(LIMIT_SECONDS)
@given(format=st.sampled_from(FORMATS), data=st.data(), ratio=RATIOS, share=st.floats(0.2, 0.99))
@EXAMPLES
def test_target_is_met_by_the_count_of_the_provider(
    format: str, data: st.DataObject, ratio: float, share: float
) -> None:
    payload = data.draw(conversations(format))

    async def run() -> None:
        async with temporary_archive() as archive:
            result = await compacted_with_usage(
                payload, archive, ratio, format, trigger_share=share
            )
        if not result.changed:
            assert result.tokens.after == result.tokens.before

    anyio.run(run)


@given(
    tokens=st.lists(st.integers(1, 60), min_size=2, max_size=12),
    total=st.integers(1, 5_000),
    overhead=st.integers(0, 500),
    choices=st.data(),
)
def test_removed_messages_never_increase_the_estimate(
    tokens: list[int], total: int, overhead: int, choices: st.DataObject
) -> None:
    count = counter_for("claude-opus-4-8")
    texts: list[Json] = [{"role": "user", "content": "word " * n} for n in tokens]
    messages = formats.parse(texts, format="anthropic")
    anchor = UsageAnchor(total, choices.draw(st.integers(0, len(messages) - 1)))
    requests: RequestCount = request_count(messages, count, overhead_tokens=overhead, anchor=anchor)
    before = requests.estimate(messages)
    rest = tuple(m for m in messages if choices.draw(st.booleans()))

    after = requests.estimate(rest)

    assert after.tokens <= before.tokens
    assert after.upper <= before.upper
    assert after.tokens <= after.upper
    assert requests.room(rest, after.upper) >= 0
    assert requests.room(rest, after.upper - 2) < 0


def test_room_is_zero_at_the_upper_estimate_without_a_usage_report() -> None:
    count = counter_for("claude-opus-4-8")
    for overhead in range(2_000):
        requests = request_count((), count, overhead_tokens=overhead, anchor=None)
        assert requests.room((), requests.estimate(()).upper) == 0, overhead


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), share=st.floats(0.0, 0.55))
@EXAMPLES
def test_usage_is_reported_and_ignored_when_far_below_the_estimate(
    format: str, data: st.DataObject, share: float
) -> None:
    payload = data.draw(conversations(format))

    async def run() -> None:
        async with temporary_archive() as archive:
            plain = CompactRequest(mode="record", format=format)
            counted = await compact(payload, plain, archive=archive)
            usage = {"input_tokens": max(1, int(counted.tokens.before * share))}
            request = replace(plain, usage=usage, usage_message_index=len(payload) - 1)
            result = await compact(payload, request, archive=archive)
            assert result.tokens.before == counted.tokens.before
            (warning,) = (text for text in result.warnings if "`usage` reports" in text)
            assert f"{usage['input_tokens']:,} tokens" in warning

    anyio.run(run)
