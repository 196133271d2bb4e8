"""Policy three-layer, from the rules of S2."""

import pytest

from tests.support.policy_tables import archived_marker, long_talk, results_of, shape, steps, under
from tests.support.small import assistant, user

LONG = ["".join(f"{name}{n:04}" for n in range(40)) for name in "abcde"]


async def test_results_except_the_newest_three_become_one_line_on_every_turn() -> None:
    result = await under("three-layer", steps(LONG, name="read_notes"))
    assert results_of(result.messages) == [
        f"[Previous: used read_notes] {archived_marker(LONG[0])}",
        f"[Previous: used read_notes] {archived_marker(LONG[1])}",
        *LONG[2:],
    ]


async def test_three_results_are_unchanged() -> None:
    result = await under("three-layer", steps(LONG[:3]))
    assert result.status == "unchanged"


@pytest.mark.parametrize(("size_chars", "is_cleared"), [(99, False), (100, False), (101, True)])
async def test_result_becomes_a_line_when_it_has_more_than_100_characters(
    size_chars: int, is_cleared: bool
) -> None:
    # Hexadecimal digits, which have more tokens than the line that replaces them.
    border = "".join(f"{n * 7919 % 65_536:04x}" for n in range(26))[:size_chars]
    payload = steps([border, *LONG[:3]])
    result = await under("three-layer", payload, settings={"estimator": "auto"})
    expected = f"[Previous: used bash] {archived_marker(border)}" if is_cleared else border
    assert results_of(result.messages)[0] == expected


@pytest.mark.parametrize(
    ("tokens", "status"), [(49_999, "unchanged"), (50_000, "unchanged"), (50_001, "compacted")]
)
async def test_a_summary_replaces_everything_above_50_000_tokens(tokens: int, status: str) -> None:
    payload = long_talk(tokens)
    result = await under("three-layer", payload, context_window=200_000)
    assert result.tokens.trigger == 50_000
    assert result.status == status
    if status == "compacted":
        assert shape(result.messages) == ["summary", "acknowledgement", "user"]
        assert result.messages[-1] is payload[-1]


async def test_the_compact_tool_asks_for_the_same_summary_at_any_size() -> None:
    payload = [user("Say hi. " + "x" * 900), assistant("hi " * 300)]
    result = await under("three-layer", payload, mode="full")
    assert shape(result.messages) == ["summary", "acknowledgement"]
