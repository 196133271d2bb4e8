"""Policy four-layer, from the rules of S3."""

import json

import pytest
from context_compaction.policies import POLICIES

from tests.support.json_types import Json
from tests.support.policy_tables import archived_marker, results_of, shape, steps, under
from tests.support.small import answered, assistant, call, result, user

LONG = ["".join(f"{name}{n:04}" for n in range(50)) for name in "abcde"]


def talk(messages: int) -> list[Json]:
    """Return `messages` messages of the user and the assistant in turn."""
    return [
        user(f"Request {n}.") if n % 2 == 0 else assistant(f"Answer {n}.") for n in range(messages)
    ]


def numbered(size_chars: int) -> str:
    """Return a text of lines that all differ."""
    return "".join(f"{number:09}\n" for number in range(size_chars // 10 + 1))[:size_chars]


def several(sizes_chars: list[int]) -> list[Json]:
    """Return a message with several results."""
    calls = [call(f"c{n}", "bash", command=str(n)) for n in range(len(sizes_chars))]
    results = [result(f"c{n}", numbered(size)) for n, size in enumerate(sizes_chars)]
    return [user("Go on."), assistant(*calls), user(results)]


def test_the_layers_run_in_the_order_budget_snip_micro_summary() -> None:
    assert POLICIES["four-layer"].layers == ("persist", "snip", "microcompact", "summarize")


@pytest.mark.parametrize(("last_chars", "persisted"), [(59_999, 0), (60_000, 0), (60_001, 1)])
async def test_largest_result_is_persisted_above_200_000_characters(
    last_chars: int, persisted: int
) -> None:
    outcome = await under("four-layer", several([50_000, 90_000, last_chars]))
    contents = results_of(outcome.messages)
    assert sum("<persisted-output" in content for content in contents) == persisted
    if persisted:
        assert "<persisted-output" in contents[1]
        assert contents[0] == numbered(50_000)
        assert 1_500 < len(contents[1]) < 2_500


async def test_results_are_persisted_largest_first_until_the_budget_is_met() -> None:
    outcome = await under("four-layer", several([150_000, 120_000, 130_000]))
    assert ["<persisted-output" in content for content in results_of(outcome.messages)] == [
        True,
        False,
        True,
    ]


async def test_fifty_messages_are_unchanged() -> None:
    assert (await under("four-layer", talk(50))).status == "unchanged"


async def test_3_and_47_of_51_messages_stay() -> None:
    payload = talk(51)
    payload[3] = assistant("long " * 100)
    outcome = await under("four-layer", payload)
    assert outcome.messages[:3] == payload[:3]
    assert outcome.messages[4:] == payload[4:]
    [note] = outcome.messages[3:4]
    assert note["role"] == "user"
    assert note["content"].startswith("[Messages removed: 1; originals: transcript://")


async def test_head_includes_the_results_of_its_last_call() -> None:
    payload = [*talk(2), *answered("c", "bash", "ok", command="ls"), *talk(60)[1:]]
    outcome = await under("four-layer", payload)
    assert outcome.messages[:4] == payload[:4]
    assert shape(outcome.messages[:5])[-1] == "snipped"


async def test_tail_includes_the_call_of_its_first_result() -> None:
    payload = [*talk(13), *answered("c", "bash", "ok", command="ls"), *talk(47)[1:]]
    assert len(payload) - 47 == 14  # the paper's tail would start with the result
    outcome = await under("four-layer", payload)
    assert shape(outcome.messages)[3:6] == ["snipped", "call", "result"]
    assert outcome.messages[4:] == payload[13:]


async def test_results_except_the_newest_three_become_one_line() -> None:
    outcome = await under("four-layer", steps(LONG))
    words = "[Earlier tool result compacted. Re-run if needed.]"
    assert results_of(outcome.messages) == [
        f"{words} {archived_marker(LONG[0])}",
        f"{words} {archived_marker(LONG[1])}",
        *LONG[2:],
    ]


@pytest.mark.parametrize(("size_chars", "is_cleared"), [(120, False), (121, True)])
async def test_result_becomes_a_line_when_it_has_more_than_120_characters(
    size_chars: int, is_cleared: bool
) -> None:
    # Hexadecimal digits, which have more tokens than the line that replaces them.
    border = "".join(f"{n * 7919 % 65_536:04x}" for n in range(31))[:size_chars]
    outcome = await under("four-layer", steps([border, *LONG[:3]]), settings={"estimator": "auto"})
    assert (results_of(outcome.messages)[0] != border) is is_cleared


async def test_summary_is_one_user_message() -> None:
    outcome = await under("four-layer", steps(["x" * 4_000] * 3), mode="full")
    assert shape(outcome.messages) == ["summary"]


async def test_after_a_refusal_a_summary_and_the_newest_five_messages_stay() -> None:
    payload = [user("x" * 60_000), assistant("y" * 900), *talk(9)]
    outcome = await under("four-layer", payload, mode="reactive")
    assert shape(outcome.messages)[0] == "summary"
    assert outcome.messages[1:] == payload[-5:]


async def test_after_a_refusal_one_more_message_stays_to_keep_a_pair() -> None:
    payload = [user("x" * 60_000), assistant("y" * 900), user("Go on.")]
    payload += [*answered("c", "bash", "ok", command="ls"), *talk(5)[1:]]
    assert "tool_result" in json.dumps(payload[-5])
    outcome = await under("four-layer", payload, mode="reactive")
    assert outcome.messages[1:] == payload[-6:]
