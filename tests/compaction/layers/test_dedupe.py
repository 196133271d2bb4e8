"""Dedupe: what a later result makes worthless is cleared first, and nothing else."""

from typing import Any

import pytest
from context_compaction.layers.dedupe import REPEATED, SAME_AGAIN, dedupe
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Text
from context_compaction.settings import Settings

from tests.support.json_types import Json
from tests.support.small import (
    answered,
    assistant,
    call,
    chat_calls,
    compacted,
    layer_context,
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
    return dedupe(ours(read(payload)), layer_context(Settings(**constants)))


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


@pytest.mark.parametrize("name", ["Bash", "mcp__db__lookup", "whatever"])
def test_the_older_of_two_equal_calls_with_equal_answers_goes(name: str) -> None:
    step = deduped(
        answered("a", name, OLD, q="1"),
        answered("b", name, OLD, q="2"),
        answered("c", name, OLD, q="1"),
    )
    assert notes(step) == {2: REPEATED}


@pytest.mark.parametrize(
    ("name", "constants"), [("TodoWrite", {}), ("Bash", {"protected_tools": ("bash",)})]
)
def test_protected_and_steering_tools_are_left_alone(name: str, constants: dict[str, Any]) -> None:
    step = deduped(answered("a", name, OLD, q="1"), answered("b", name, OLD, q="1"), **constants)
    assert step.edits == ()


def test_the_same_list_comes_back_as_the_same_object_where_nothing_repeats() -> None:
    messages = read([user("go"), *answered("a", "Read", OLD, file_path="x.py")])
    assert dedupe(messages, layer_context()).messages is messages
