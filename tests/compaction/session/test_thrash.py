"""The thrash guard: a context that is full again at once, time after time, and what fills it."""

from pathlib import Path
from typing import Any

from context_compaction.archive.local.archive import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult

from tests.support.json_types import Json
from tests.support.small import assistant, lines, result, user
from tests.support.small import call as tool_call

WINDOW = {"context_window": 40_000, "max_output_tokens": 4_000}


async def call(tmp_path: Path, payload: list[Json], **wishes: Any) -> CompactResult:
    """One call by a process of its own; only old results go, so that sizes can be foreseen."""
    plain = {"scale_to_budget": False, "min_savings_tokens": 0, **wishes.pop("settings", {})}
    wishes["settings"] = plain
    wishes = {"format": "anthropic", "session_id": "s", **WINDOW, **wishes}
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        return await compact(payload, CompactRequest(**wishes), archive=archive)


def answer_of_the_model(number: int, size_lines: int) -> list[Json]:
    """Two reads side by side, and their results."""
    parts = [
        (f"r{number}_{n}", lines(f"r{number}n{n}", size_lines), number * 1_000 + n) for n in (1, 2)
    ]
    return [
        assistant(
            *(
                tool_call(name, "Read", file_path="logs/big.log", offset=offset)
                for name, _, offset in parts
            )
        ),
        user([result(name, text) for name, text, _ in parts]),
    ]


# A compaction leaves some 15,000 tokens free: two answers with large reads fill them.
LARGE, SMALL = 250, 25


async def rounds(
    tmp_path: Path, number: int, size_lines: int = LARGE, **wishes: Any
) -> list[CompactResult]:
    """A session that gets above its trigger so many times."""
    payload: list[Json] = [user("Find the fault in the log.")]
    answers: list[CompactResult] = []
    for step in range(number * 40):
        payload = [*payload, *answer_of_the_model(step, size_lines)]
        answer = await call(tmp_path, payload, **wishes)
        payload = answer.messages
        if answer.receipt.get("refill"):
            answers.append(answer)
        if len(answers) == number:
            break
    return answers


def thrashing(answer: CompactResult) -> list[str]:
    return [warning for warning in answer.warnings if warning.startswith("Thrashing: ")]


async def test_a_context_that_is_full_again_at_once_three_times_in_a_row_is_told_of(
    tmp_path: Path,
) -> None:
    answers = await rounds(tmp_path, 5)
    streaks = [answer.receipt["refill"]["streak"] for answer in answers]
    assert streaks == [0, 1, 2, 3, 4]
    assert [len(thrashing(answer)) for answer in answers] == [0, 0, 0, 1, 1]
    [warning] = thrashing(answers[3])
    assert "3 times in a row the context was full again within 3 turns" in warning
    assert "Read logs/big.log (" in warning
    assert "tokens a turn)" in warning
    assert "persist_large_output" in warning
    assert warning in answers[3].receipt["warnings"]


async def test_the_receipt_says_what_came_since_the_last_compaction(tmp_path: Path) -> None:
    first, second = await rounds(tmp_path, 2)
    assert first.receipt["refill"]["turns"] is None
    refill = second.receipt["refill"]
    assert refill["turns"] == 2
    assert [source["name"] for source in refill["sources"]] == [
        "Read logs/big.log",
        "messages of the assistant",
    ]
    assert refill["sources"][0]["count"] == 4
    assert refill["tokens"] == sum(source["tokens"] for source in refill["sources"])
    assert refill["room_tokens"] == second.tokens.trigger - first.tokens.after


async def test_slow_growth_is_no_thrashing(tmp_path: Path) -> None:
    answers = await rounds(tmp_path, 4, SMALL)
    assert {answer.receipt["refill"]["streak"] for answer in answers} == {0}
    assert not any(map(thrashing, answers))


async def test_calls_below_the_trigger_and_the_same_call_again_change_no_streak(
    tmp_path: Path,
) -> None:
    payload = [user("Find the fault.")]
    payload += [m for step in range(3) for m in answer_of_the_model(step, LARGE)]
    first = await call(tmp_path, payload)
    assert first.receipt["refill"]["streak"] == 0
    payload = [*first.messages, assistant("I look on."), user("Do.")]
    assert (await call(tmp_path, payload)).status == "unchanged"
    payload += [m for step in (4, 5) for m in answer_of_the_model(step, LARGE)]
    second = await call(tmp_path, payload)
    again = await call(tmp_path, payload)
    assert again.recognised is not None
    assert "refill" not in again.receipt
    assert second.receipt["refill"]["streak"] == 1
    assert second.receipt["refill"]["turns"] == 3
    assert again.messages == second.messages


async def test_another_session_has_a_streak_of_its_own(tmp_path: Path) -> None:
    await rounds(tmp_path, 4)
    [first] = await rounds(tmp_path, 1, session_id="other")
    assert first.receipt["refill"]["streak"] == 0
