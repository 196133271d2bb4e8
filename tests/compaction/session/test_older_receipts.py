"""A call reads old receipts of its branch and ignores receipts of other branches."""

import json

from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, lines, user

FULL = CompactRequest(format="anthropic", session_id="s", context_window=24_000, mode="full")
# More receipts than a call reads by default.
MANY = 12


def work(name: str, turns: int = 6, first: int = 0) -> list[Json]:
    return [
        message
        for n in range(first, first + turns)
        for message in (
            user(f"Look at {name}_{n}.py."),
            *answered(f"{name}{n}", "Read", lines(f"{name}{n}", 60), file_path=f"{name}_{n}.py"),
            assistant(f"{name}_{n}.py is fine."),
        )
    ]


async def test_old_summary_is_proven_in_a_list_that_starts_differently() -> None:
    async with temporary_archive() as archive:
        first = await compact(work("old"), FULL, archive=archive)
        context = first.messages
        for number in range(MANY):
            context = [*context, *work("later", 2, 10 * number)]
            context = (await compact(context, FULL, archive=archive)).messages
        edited = [user("Today is Monday."), assistant("Yes."), *first.messages, *work("more")]
        result = await compact(edited, FULL, archive=archive)
    text = json.dumps(result.messages)
    assert text.count("<context_summary ") == 1
    assert "&lt;context_summary" not in text


async def test_files_of_another_branch_are_not_restored() -> None:
    common = work("common", 2)
    async with temporary_archive() as archive:
        await compact([*common, *work("away", 4)], FULL, archive=archive)
        result = await compact(
            [*common, user("Not that."), *work("here", 4)], FULL, archive=archive
        )
    assert "here_" in json.dumps(result.messages)
    assert "away" not in json.dumps(result.messages)
    assert not any("away" in name for name in result.restored)
