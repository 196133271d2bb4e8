"""The digest lists what calls and results contain, and invents nothing."""

import json

import pytest
from context_compaction.activity.digest import CommandRun, Digest, MemoryRead, digest

from tests.support.json_types import Json
from tests.support.small import answered, assistant, call, compacted, lines, read, result, user


def digest_of(*parts: list[Json]) -> Digest:
    return digest(read([user("go"), *[message for part in parts for message in part]]))


def test_digest_lists_each_file_once_by_the_kind_of_call() -> None:
    inventory = digest_of(
        answered("a", "Read", "x", file_path="a.py"),
        answered("b", "mcp__fs__read_text_file", "x", path="b.py"),
        answered("c", "Write", "ok", file_path="c.py", content="x"),
        answered("d", "Edit", "ok", file_path="a.py", old_string="x", new_string="y"),
        answered("e", "NotebookEdit", "ok", notebook_path="n.ipynb", new_source="x"),
        answered("f", "Read", "x", file_path="a.py"),
    )
    assert inventory.read == ["a.py", "b.py"]
    assert inventory.written == ["c.py"]
    assert inventory.edited == ["a.py", "n.ipynb"]


def test_digest_lists_all_files_of_a_patch_as_edited() -> None:
    patch = "\n".join([
        "*** Begin Patch",
        "*** Update File: src/a.rs",
        "@@",
        "-old",
        "+new",
        "*** Add File: src/b.rs",
        "+text",
        "*** Delete File: src/c.rs",
        "*** End Patch",
    ])
    inventory = digest_of(answered("a", "apply_patch", "Done!", input=patch))
    assert inventory.edited == ["src/a.rs", "src/b.rs", "src/c.rs"]


def test_digest_lists_commands_with_status_and_error_line() -> None:
    failed = [
        assistant(call("c", "Bash", command="make")),
        user([result("c", "cc -o x\nfatal: no rule", is_error=True)]),
    ]
    inventory = digest_of(
        answered("a", "Bash", "fine", command="ls  -l\n"),
        answered("b", "shell", "AssertionError: 1\nexit code 2", command=["pytest", "-q"]),
        failed,
        [assistant(call("d", "Bash", command="sleep 9"))],
    )
    assert inventory.runs == [
        CommandRun("ls -l", failed=False),
        CommandRun("pytest -q", failed=True, error="AssertionError: 1"),
        CommandRun("make", failed=True, error="fatal: no rule"),
        CommandRun("sleep 9", failed=None),
    ]
    assert inventory.in_flight == ["Bash(sleep 9)"]


@pytest.mark.parametrize(
    "frame",
    [
        "Chunk ID: 5\nWall time: 0.1 seconds\nProcess exited with code {}\nOutput:\n{}",
        "Exit code: {}\nWall time: 0.1 seconds\nTotal output lines: 900\nOutput:\n{}",
        '{{"metadata": {{"exit_code": {}, "duration_seconds": 0.1}}, "output": "{}"}}',
        '{{"exit_code": {}, "stdout": "{}"}}',
    ],
)
@pytest.mark.parametrize("status", [0, 2, -1])
@pytest.mark.parametrize("printed", ["", "ok", "a line of the log\n" * 900])
def test_exit_code_is_read_from_the_frame_of_a_host_when_the_output_is_long(
    frame: str, status: int, printed: str
) -> None:
    text = frame.format(status, json.dumps(printed)[1:-1] if frame.startswith("{") else printed)
    assert digest_of(answered("a", "exec_command", text, cmd="make")).runs[0].failed is (
        status != 0
    )


def test_exit_code_within_a_sentence_is_no_failure() -> None:
    text = "| D25 | No page above 100 KB; `port` ends with exit code 6. Of several the smallest. |"
    assert digest_of(answered("a", "Bash", text, command="x")).runs[0].failed is False


def test_digest_lists_failed_calls_of_other_tools_with_the_error_line() -> None:
    failed = [
        assistant(call("a", "Read", file_path="missing.py")),
        user([result("a", "looking\nerror: no such file", is_error=True)]),
    ]
    inventory = digest_of(failed)
    assert inventory.errors == ["Read(missing.py): error: no such file"]
    assert inventory.read == []


def test_digest_separates_memory_reads_from_other_calls() -> None:
    inventory = digest_of(
        answered("a", "mcp__mem__recall", "x", query="the port"),
        answered("b", "Weather", "x", city="Ulm"),
        answered("c", "Weather", "x", city="Bonn"),
    )
    assert inventory.memory_reads == [MemoryRead("mcp__mem__recall(query=the port)")]
    assert inventory.other_calls == {"Weather": 2}


def test_digest_contains_the_newest_plan() -> None:
    old = [{"content": "draft", "status": "pending"}]
    new = [
        {"content": "draft", "status": "completed"},
        {"content": "test", "status": "in_progress"},
    ]
    inventory = digest_of(
        answered("a", "TodoWrite", "ok", todos=old), answered("b", "TodoWrite", "ok", todos=new)
    )
    assert inventory.plan == ("[completed] draft", "[in_progress] test")
    assert digest_of(answered("a", "update_plan", "ok", plan=[{"step": "one"}])).plan == ("one",)
    assert digest_of(answered("a", "write_todos", "ok", todos="- one\n\n- two\n")).plan == (
        "- one", "- two",
    )  # fmt: skip


async def test_receipt_contains_the_digest_of_the_replaced_messages() -> None:
    payload = [
        user("go"),
        *answered("a", "Read", lines("a"), file_path="a.py"),
        *answered("b", "Bash", lines("b", 2_000), command="make"),
        assistant("done"),
        user("thanks"),
    ]
    answer = await compacted(payload, mode="full")
    assert answer.receipt["digest"]["files"]["read"] == ["a.py"]
    assert answer.receipt["digest"]["runs"] == [{"command": "make", "failed": False, "error": ""}]


def test_error_line_is_the_exception_when_the_output_is_a_traceback() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: no such port'
    failed = [
        assistant(call("a", "Bash", command="python a.py")),
        user([result("a", trace, is_error=True)]),
    ]
    assert digest_of(failed).runs[0].error == "ValueError: no such port"
