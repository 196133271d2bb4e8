"""Trigger and target: the defaults of each policy, and values from the caller."""

from typing import Any

import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest

from tests.support.promises import temporary_archive
from tests.support.small import user

# window - min(max_output, 20 000) - 13 000, as in budget.py.
BUDGET_OF_200K = 170_616


async def trigger_and_target(**options: Any) -> tuple[int, int]:
    async with temporary_archive() as archive:
        request = CompactRequest(mode="record", max_output_tokens=16_384, **options)
        result = await compact([user("Hello.")], request, archive=archive)
    return result.tokens.trigger, result.tokens.target


@pytest.mark.parametrize(
    ("policy", "window", "expected"),
    [
        ("default", 1_000_000, (970_616, 291_184)),
        ("default", 200_000, (BUDGET_OF_200K, 51_184)),
        ("economy", 1_000_000, (420_000, 63_000)),
        ("economy", 200_000, (84_000, 12_600)),
        ("economy", 64_000, (26_880, 8_000)),
        ("economy", 32_000, (13_440, 4_032)),
        ("gentle", 200_000, (BUDGET_OF_200K, 102_369)),
    ],
)
async def test_policy_acts_at_its_share_of_the_window(
    policy: str, window: int, expected: tuple[int, int]
) -> None:
    assert await trigger_and_target(policy=policy, context_window=window) == expected


@pytest.mark.parametrize(
    ("policy", "options", "expected"),
    [
        ("economy", {"target_tokens": 20_000}, (BUDGET_OF_200K, 20_000)),
        ("economy", {"settings": {"trigger_tokens": 100_000}}, (100_000, 15_000)),
        ("economy", {"settings": {"trigger_fraction": 0.7}}, (140_000, 21_000)),
        ("economy", {"settings": {"conversation_fraction": 0.3}}, (60_000, 9_000)),
        ("economy", {"settings": {"target_fraction": 0.05}}, (84_000, 4_200)),
        ("default", {"target_tokens": 20_000}, (BUDGET_OF_200K, 20_000)),
        ("default", {"settings": {"conversation_fraction": 0.3}}, (60_000, 18_000)),
        ("default", {"settings": {"target_fraction": 0.5}}, (BUDGET_OF_200K, 85_308)),
    ],
)
async def test_named_trigger_and_target_are_used(
    policy: str, options: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert await trigger_and_target(policy=policy, context_window=200_000, **options) == expected


@pytest.mark.parametrize("policy", ["default", "economy"])
async def test_policy_description_gives_figures_for_a_200k_window(policy: str) -> None:
    trigger, target = await trigger_and_target(policy=policy, context_window=200_000)
    description = POLICIES[policy].description
    assert f" {trigger // 1_000}K" in description
    assert f" {round(target / 1_000)}K" in description


async def test_system_prompt_and_tools_do_not_count_toward_the_conversation_share() -> None:
    trigger, target = await trigger_and_target(
        policy="economy", context_window=200_000, overhead_tokens=10_000
    )
    assert trigger - target == 84_000 - 12_600
    assert trigger > 84_000 + 10_000
