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
    """The compactions of a session that gets above its trigger so many times."""
    payload: list[Json] = [user("Find the fault in the log.")]
    answers: list[CompactResult] = []
    for step in range(number * 40):
        payload = [*payload, *answer_of_the_model(step, size_lines)]
        answer = await call(tmp_path, payload, **wishes)
        payload = answer.messages
        if answer.changed:
            answers.append(answer)
        if len(answers) == number:
            break
    return answers


def thrashing(answer: CompactResult) -> list[str]:
    return [warning for warning in answer.warnings if warning.startswith("Thrashing: ")]


async def test_a_context_that_is_full_again_at_once_three_times_in_a_row_is_reported(
    tmp_path: Path,
) -> None:
    answers = await rounds(tmp_path, 5)
    assert [len(thrashing(answer)) for answer in answers] == [0, 0, 0, 1, 1]
    [warning] = thrashing(answers[3])
    assert "3 times in a row the context was full again within 3 turns" in warning
    assert "Read logs/big.log (" in warning
    assert warning in answers[3].receipt["warnings"]
    [other] = await rounds(tmp_path, 1, session_id="other")
    assert not thrashing(other)


async def test_slow_growth_is_no_thrashing(tmp_path: Path) -> None:
    assert not any(map(thrashing, await rounds(tmp_path, 4, SMALL)))


async def test_the_same_call_again_changes_no_streak(tmp_path: Path) -> None:
    answers = await rounds(tmp_path, 3)
    payload = [*answers[-1].messages, *answer_of_the_model(900, LARGE)]
    payload += answer_of_the_model(901, LARGE)
    second = await call(tmp_path, payload)
    again = await call(tmp_path, payload)
    assert len(thrashing(second)) == 1
    assert again.messages == second.messages
    assert not thrashing(again)
