"""What calls changed in files that were never shown comes back, and nothing twice."""

import json
from collections.abc import Callable

import pytest
from context_compaction import formats
from context_compaction.activity.file_replay import replay_files
from context_compaction.layers.recent_files import not_shown, recent_files
from context_compaction.messages.model import Messages
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, lines, read, user

OLD = "def area(a):\n    return a"
NEW = "def area(a, b):\n    return a * b"


def edited(number: str, old: str, new: str) -> list[Json]:
    return answered(number, "Edit", "ok", file_path="far.py", old_string=old, new_string=new)


def patch_of(old: str, new: str) -> str:
    body = "\n".join([
        *(f"-{row}" for row in old.split("\n")),
        *(f"+{row}" for row in new.split("\n")),
    ])
    return f"*** Begin Patch\n*** Update File: far.py\n@@\n{body}\n*** End Patch"


def patched(number: str, old: str, new: str) -> list[Json]:
    return answered(number, "apply_patch", "Success.", input=patch_of(old, new))


async def filled(payload: list[Json], target_tokens: int) -> tuple[str, str]:
    """The whole text of `payload` compacted, and that of the files in it that came back."""
    request = CompactRequest(
        session_id="s", mode="full", model="gpt-4o", target_tokens=target_tokens,
        summarizer="extractive",
    )  # fmt: skip
    async with temporary_archive() as archive:
        text = str((await compact(payload, request, archive=archive)).messages)
    return text, text.partition("<restored_files>")[2].partition("</restored_files>")[0]


@pytest.mark.parametrize("change", [edited, patched])
async def test_what_was_changed_in_a_file_that_was_never_shown_comes_back(
    change: Callable[[str, str, str], list[Json]],
) -> None:
    messages = [
        user("Mend it."),
        *change("1", OLD, NEW),
        *change("2", "x = 1", "x = 2"),
        *[m for n in range(9) for m in answered(f"c{n}", "Bash", lines(f"n{n}", 90))],
        assistant("It is mended."),
        user("And the tests?"),
    ]
    _, copy = await filled(messages, 3_000)
    assert "Parts of: far.py (" in copy
    told = copy.partition("Changed last, where is not known:")[2]
    assert told.index("x = 2") < told.index("return a * b")
    assert "return a\\n" not in copy


async def test_a_plan_that_lacks_later_changes_comes_back_with_what_these_left() -> None:
    plan = "# Plan\n\n- one\n- two\n"

    def noted(number: str, old: str, new: str) -> list[Json]:
        change = {"file_path": "PLAN.md", "old_string": old, "new_string": new}
        return answered(number, "Edit", "ok", **change)

    messages = [
        user("Work it off."),
        *answered("1", "Write", "ok", file_path="PLAN.md", content=plan),
        *noted("2", "- six", "- six is done in part_7"),
        *noted("3", "- one", "- one is done"),
        *[m for n in range(9) for m in answered(f"c{n}", "Bash", lines(f"n{n}", 90))],
        assistant("It is done."),
        user("And now?"),
    ]
    _, copy = await filled(messages, 3_000)
    whole, _, beside = copy.partition("End of file: PLAN.md")
    assert "unsure: without the last changes, [4]" in whole
    assert "- one is done" in whole
    assert "part_7" not in whole
    assert "part_7" in beside.partition("Changed last, where is not known:")[2]


async def test_what_the_tail_shows_of_such_a_change_is_not_given_a_second_time() -> None:
    noise = [m for n in range(9) for m in answered(f"c{n}", "Bash", lines(f"n{n}", 90))]
    messages = [user("Mend it."), *edited("1", OLD, NEW), *noise, *edited("2", "x = 1", "x = 200")]
    text, copy = await filled(messages, 3_000)
    assert "return a * b" in copy
    assert (text.count("x = 200"), copy.count("x = 200")) == (1, 0)


SCRIPT = f"text(await tools.apply_patch({json.dumps(patch_of(OLD, NEW))}));"
SCRIPTED: list[Json] = [
    {"type": "message", "role": "user", "content": "Mend it."},
    {"type": "custom_tool_call", "call_id": "1", "name": "exec", "input": SCRIPT},
    {"type": "custom_tool_call_output", "call_id": "1", "output": "Script completed"},
]


@pytest.mark.parametrize(
    "messages",
    [
        read([user("Mend it."), *edited("1", OLD, NEW)]),
        read([user("Mend it."), *patched("1", OLD, NEW)]),
        formats.parse(SCRIPTED, format="openai-responses"),
    ],
)
def test_a_call_of_the_tail_shows_its_change_unless_it_is_clipped(messages: Messages) -> None:
    recent = recent_files(replay_files(messages), messages=messages)
    assert [file.path for file in recent] == ["far.py"]
    assert not_shown(recent, messages, first_kept=1) == []
    clipped = read([user("Mend it."), *answered("1", "Edit", "ok", input="… [clipped: 90 chars]")])
    assert not_shown(recent, clipped, first_kept=1) == recent


def test_a_change_that_the_tail_shows_long_before_its_file_was_used_last_is_shown() -> None:
    noise = [m for n in range(9) for m in answered(f"c{n}", "Bash", lines(f"n{n}", 9))]
    elsewhere = answered("2", "Read", "    80\tx = 1", file_path="far.py", offset=80, limit=1)
    messages = read([user("Mend it."), *edited("1", OLD, NEW), *noise, *elsewhere])
    recent = recent_files(replay_files(messages), messages=messages)
    assert [file.changes for file in recent] == [[NEW]]
    assert not_shown(recent, messages, first_kept=1) == []
    assert not_shown(recent, messages, first_kept=3) == recent


def test_a_file_of_the_work_whose_writing_is_clipped_in_the_tail_comes_back() -> None:
    written = answered("1", "Write", "ok", file_path="new.py", content=NEW)
    messages = read([user("Write it."), *written])
    recent = recent_files(replay_files(messages), messages=messages)
    assert not_shown(recent, messages, first_kept=1) == []
    clipped = answered("1", "Write", "ok", file_path="new.py", content="… [clipped: 90 chars]")
    assert not_shown(recent, read([user("Write it."), *clipped]), first_kept=1) == recent


def test_a_doubt_is_told_of_what_is_older_than_it_alone() -> None:
    switched = answered("s", "Bash", "", command="git checkout -q v1")

    def note(*parts: list[Json]) -> str:
        messages = read([user("go"), *(row for part in parts for row in part), assistant("On.")])
        return recent_files(replay_files(messages), messages=messages)[0].note

    assert "unsure" in note(edited("1", OLD, NEW), switched)
    assert "unsure" not in note(switched, edited("1", OLD, NEW))
