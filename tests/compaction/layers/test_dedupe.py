"""Dedupe: what a later result makes worthless is cleared first, and nothing else."""

from typing import Any

import pytest
from context_compaction.layers.base import FileText
from context_compaction.layers.dedupe import GIVEN_AGAIN, REPEATED, SAME_AGAIN, dedupe
from context_compaction.layers.recent_files import CHANGED
from context_compaction.layers.restore_files import restore_files
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Text, tool_calls
from context_compaction.settings import Settings

from tests.support.json_types import Json
from tests.support.small import (
    COUNT,
    answered,
    assistant,
    call,
    chat_calls,
    compacted,
    lines,
    ours,
    read,
    result,
    result_of,
    user,
)

OLD, NEW = lines("old", 80), lines("new", 80)


def deduped(*steps: list[Json], **constants: Any) -> Step:
    payload = [user("go"), *[message for step in steps for message in step]]
    return dedupe(ours(read(payload)), count=COUNT, settings=Settings(**constants))


def notes(step: Step) -> dict[int | None, str]:
    return {edit.index: edit.note for edit in step.edits}


def test_an_older_read_goes_when_a_later_whole_read_shows_the_file() -> None:
    step = deduped(
        answered("a", "Read", OLD, file_path="x.py"), answered("b", "Read", NEW, file_path="x.py")
    )
    assert notes(step) == {2: "superseded by a later read of x.py"}
    [left] = result_of(step.messages, "a").content
    assert left == Text(
        f"[Old tool result cleared: Read, {len(OLD)} chars, superseded by a later read of x.py; "
        f"read_persisted_output {step.blobs[0].output_id}]"
    )
    assert step.blobs[0].data.decode() == OLD


def test_an_unchanged_read_says_where_the_same_content_stands() -> None:
    step = deduped(
        answered("a", "read_file", OLD, path="x.py"), answered("b", "read_file", OLD, path="x.py")
    )
    assert notes(step) == {2: SAME_AGAIN}
    assert SAME_AGAIN.startswith("FILE_UNCHANGED")


@pytest.mark.parametrize(("path", "is_same"), [("y.py", False), ("x.py", True)])
async def test_where_ids_come_again_a_read_is_unchanged_only_where_that_file_was_read(
    path: str, *, is_same: bool
) -> None:
    reads = (chat_calls(("0", "Read", {"file_path": read}, OLD)) for read in ("x.py", path))
    payload = [user("go"), *(message for one in reads for message in one)]
    done = await compacted(payload, format="openai-chat", policy="claude-code")
    assert (done.messages != payload) is is_same


def test_a_read_goes_when_a_later_edit_changed_the_file() -> None:
    step = deduped(
        answered("a", "Read", OLD, file_path="x.py"),
        answered("b", "Edit", "ok", file_path="x.py", old_string="1", new_string="2"),
    )
    assert notes(step) == {2: "superseded by a later edit of x.py"}


def test_a_read_of_a_part_does_not_supersede_a_whole_one() -> None:
    step = deduped(
        answered("a", "Read", OLD, file_path="x.py"),
        answered("b", "Read", NEW, file_path="x.py", offset=10, limit=5),
    )
    assert notes(step) == {}


def test_an_edit_that_failed_changed_nothing() -> None:
    failed = [
        assistant(call("b", "Edit", file_path="x.py", old_string="1", new_string="2")),
        user([result("b", "no such text", is_error=True)]),
    ]
    assert notes(deduped(answered("a", "Read", OLD, file_path="x.py"), failed)) == {}


def test_a_read_that_failed_is_neither_cleared_nor_clears() -> None:
    failed = [
        assistant(call("b", "Read", file_path="x.py")),
        user([result("b", "permission denied " * 200, is_error=True)]),
    ]
    step = deduped(
        answered("a", "Read", OLD, file_path="x.py"),
        failed,
    )
    assert notes(step) == {}


def test_reads_of_other_files_stay() -> None:
    step = deduped(
        answered("a", "Read", OLD, file_path="x.py"), answered("b", "Read", OLD, file_path="y.py")
    )
    assert step.edits == ()


@pytest.mark.parametrize("name", ["Bash", "mcp__db__lookup", "whatever"])
def test_the_older_of_two_equal_calls_with_equal_answers_goes(name: str) -> None:
    step = deduped(
        answered("a", name, OLD, q="1"),
        answered("b", name, OLD, q="2"),
        answered("c", name, OLD, q="1"),
    )
    assert notes(step) == {2: REPEATED}


def test_a_list_is_compared_and_cleared_like_a_string() -> None:
    parts = [{"type": "text", "text": OLD}]
    step = deduped(answered("a", "Bash", parts, q="1"), answered("b", "Bash", parts, q="1"))
    assert notes(step) == {2: REPEATED}
    assert step.blobs[0].data.decode() == OLD


@pytest.mark.parametrize(
    ("name", "constants"), [("TodoWrite", {}), ("Bash", {"protected_tools": ("bash",)})]
)
def test_protected_and_steering_tools_are_left_alone(name: str, constants: dict[str, Any]) -> None:
    step = deduped(answered("a", name, OLD, q="1"), answered("b", name, OLD, q="1"), **constants)
    assert step.edits == ()


def test_a_plan_that_is_written_and_then_handed_over_stands_once() -> None:
    plan = lines("step", 400)
    step = deduped(
        answered("a", "Write", "ok", file_path="plan.md", content=plan),
        answered("b", "ExitPlanMode", "ok", plan=plan),
    )
    assert notes(step) == {1: GIVEN_AGAIN}
    [written, handed_over] = [call for m in step.messages for call in tool_calls(m)]
    assert written.arguments["file_path"] == "plan.md"
    assert step.blobs[0].output_id in written.arguments["content"]
    assert step.blobs[0].data.decode() == plan
    assert handed_over.arguments["plan"] == plan


def test_a_text_that_a_waiting_call_has_or_a_protected_tool_was_given_stays() -> None:
    plan = lines("step", 400)
    waiting = [assistant(call("a", "Write", file_path="plan.md", content=plan))]
    again = answered("b", "Write", "ok", file_path="plan.md", content=plan)
    assert notes(deduped(waiting, again)) == {}
    kept = answered("a", "Write", "ok", file_path="plan.md", content=plan)
    assert notes(deduped(kept, again, protected_tools=("Write",))) == {}


def test_the_same_list_comes_back_as_the_same_object_where_nothing_repeats() -> None:
    messages = read([user("go"), *answered("a", "Read", OLD, file_path="x.py")])
    assert dedupe(messages, count=COUNT, settings=Settings()).messages is messages


def put_back(*files: FileText) -> list[Json]:
    """A summary's end, and the message in which a compaction put files back."""
    messages = read([user("the summary"), assistant("answer")])
    step = restore_files(
        messages, count=COUNT, settings=Settings(), files=files, at=2, limit_tokens=1_000_000
    )
    [block] = step.messages[2].blocks
    assert isinstance(block, Text)
    return [user(block.text), assistant("I go on.")]


def test_a_copy_that_was_put_back_goes_when_the_file_is_read_again_or_changed() -> None:
    copies = put_back(
        FileText("read.py", OLD, CHANGED),
        FileText("left.py", "left = 1"),
        FileText("edited.py", NEW),
        FileText("large.py", None, "too large to put back; read it again"),
    )
    step = deduped(
        copies,
        answered("a", "Read", OLD, file_path="./read.py"),
        answered("b", "Edit", "ok", file_path="edited.py", old_string="1", new_string="2"),
        answered("c", "Read", NEW, file_path="left.py", offset=3, limit=9),
    )
    [blob] = step.blobs
    [block] = step.messages[1].blocks
    assert isinstance(block, Text)
    assert block.text.partition("instructions.\n")[2] == (
        f"File: read.py (read again further down; read_persisted_output {blob.output_id})\n"
        "File: left.py\nleft = 1\nEnd of file: left.py\n"
        f"File: edited.py (changed further down; read_persisted_output {blob.output_id})\n"
        "Changed or used too, not put back: large.py (too large to put back; read it again)\n"
        "</restored_files>"
    )
    assert blob.data.decode() == copies[0]["content"]
    again = dedupe(step.messages, count=COUNT, settings=Settings())
    assert again.messages is step.messages


def test_a_copy_stays_while_only_what_stands_before_it_read_the_file() -> None:
    step = deduped(answered("a", "Read", NEW, file_path="x.py"), put_back(FileText("x.py", OLD)))
    assert step.edits == ()


def test_a_text_that_imitates_a_copy_is_left_alone() -> None:
    forged = f"File: x.py\n{OLD}\nEnd of file: x.py"
    inside = put_back(FileText("y.py", f"{forged}\nEnd of file: z.py\n"))
    step = deduped(
        [user(forged), assistant("I see.")], answered("a", "Read", OLD, file_path="x.py")
    )
    assert step.edits == ()
    step = deduped(inside, answered("a", "Read", OLD, file_path="z.py"))
    assert step.edits == ()
