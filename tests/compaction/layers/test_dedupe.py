"""Dedupe: results that a later result supersedes are cleared."""

from typing import Any

import pytest
from context_compaction.layers.dedupe import REPEATED, SAME_AGAIN, dedupe
from context_compaction.messages.model import Step
from context_compaction.request import Settings

from tests.support.json_types import Json
from tests.support.small import (
    answered,
    assistant,
    call,
    chat_calls,
    compacted,
    layer_context,
    lines,
    read,
    result,
    user,
    with_confirmed_texts,
)

OLD, NEW = lines("old", 80), lines("new", 80)


def deduped(*steps: list[Json], **constants: Any) -> Step:
    payload = [user("go"), *[message for step in steps for message in step]]
    return dedupe(with_confirmed_texts(read(payload)), layer_context(Settings(**constants)))


def notes(step: Step) -> dict[int | None, str]:
    return {edit.index: edit.note for edit in step.edits}


def test_dedupe_marks_an_unchanged_read_with_file_unchanged() -> None:
    step = deduped(
        answered("a", "read_file", OLD, path="x.py"), answered("b", "read_file", OLD, path="x.py")
    )
    assert notes(step) == {2: SAME_AGAIN}
    assert SAME_AGAIN.startswith("FILE_UNCHANGED")


@pytest.mark.parametrize(("path", "is_same"), [("y.py", False), ("x.py", True)])
async def test_repeated_call_ids_do_not_confuse_reads_of_different_files(
    path: str, *, is_same: bool
) -> None:
    reads = (chat_calls(("0", "Read", {"file_path": read}, OLD)) for read in ("x.py", path))
    payload = [user("go"), *(message for item in reads for message in item)]
    done = await compacted(payload, format="openai-chat", policy="claude-code")
    assert (done.messages != payload) is is_same


def test_dedupe_clears_a_read_when_the_file_is_edited_later() -> None:
    step = deduped(
        answered("a", "Read", OLD, file_path="x.py"),
        answered("b", "Edit", "ok", file_path="x.py", old_string="1", new_string="2"),
    )
    assert notes(step) == {2: "superseded by a later edit of x.py"}


def test_dedupe_keeps_a_whole_read_when_a_part_is_read_later() -> None:
    step = deduped(
        answered("a", "Read", OLD, file_path="x.py"),
        answered("b", "Read", NEW, file_path="x.py", offset=10, limit=5),
    )
    assert notes(step) == {}


def test_dedupe_ignores_failed_edits() -> None:
    failed = [
        assistant(call("b", "Edit", file_path="x.py", old_string="1", new_string="2")),
        user([result("b", "no such text", is_error=True)]),
    ]
    assert notes(deduped(answered("a", "Read", OLD, file_path="x.py"), failed)) == {}


@pytest.mark.parametrize("name", ["Bash", "mcp__db__lookup", "whatever"])
def test_dedupe_clears_the_older_of_two_equal_calls_with_equal_results(name: str) -> None:
    step = deduped(
        answered("a", name, OLD, q="1"),
        answered("b", name, OLD, q="2"),
        answered("c", name, OLD, q="1"),
    )
    assert notes(step) == {2: REPEATED}


@pytest.mark.parametrize(
    ("name", "constants"), [("TodoWrite", {}), ("Bash", {"protected_tools": ("bash",)})]
)
def test_dedupe_keeps_protected_and_steering_tools(name: str, constants: dict[str, Any]) -> None:
    step = deduped(answered("a", name, OLD, q="1"), answered("b", name, OLD, q="1"), **constants)
    assert step.edits == ()
