"""The inventory of a conversation, read from calls and results alone: it invents nothing."""

import json

import pytest
from context_compaction.activity.digest import CommandRun, Digest, MemoryRead, digest

from tests.support.json_types import Json
from tests.support.small import answered, assistant, call, compacted, lines, read, result, user


def of(*parts: list[Json]) -> Digest:
    return digest(read([user("go"), *[message for part in parts for message in part]]))


def test_files_stand_under_what_was_done_to_them_each_once() -> None:
    found = of(
        answered("a", "Read", "x", file_path="a.py"),
        answered("b", "mcp__fs__read_text_file", "x", path="b.py"),
        answered("c", "Write", "ok", file_path="c.py", content="x"),
        answered("d", "Edit", "ok", file_path="a.py", old_string="x", new_string="y"),
        answered("e", "NotebookEdit", "ok", notebook_path="n.ipynb", new_source="x"),
        answered("f", "Read", "x", file_path="a.py"),
    )
    assert found.read == ["a.py", "b.py"]
    assert found.written == ["c.py"]
    assert found.edited == ["a.py", "n.ipynb"]


def test_all_files_of_one_patch_were_changed() -> None:
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
    found = of(answered("a", "apply_patch", "Done!", input=patch))
    assert found.edited == ["src/a.rs", "src/b.rs", "src/c.rs"]


def test_runs_say_how_they_ended() -> None:
    failed = [
        assistant(call("c", "Bash", command="make")),
        user([result("c", "cc -o x\nfatal: no rule", is_error=True)]),
    ]
    found = of(
        answered("a", "Bash", "fine", command="ls  -l\n"),
        answered("b", "shell", "AssertionError: 1\nexit code 2", command=["pytest", "-q"]),
        failed,
        [assistant(call("d", "Bash", command="sleep 9"))],
    )
    assert found.runs == [
        CommandRun("ls -l", failed=False),
        CommandRun("pytest -q", failed=True, error="AssertionError: 1"),
        CommandRun("make", failed=True, error="fatal: no rule"),
        CommandRun("sleep 9", failed=None),
    ]
    assert found.in_flight == ["Bash(sleep 9)"]


@pytest.mark.parametrize(
    "told",
    [
        "Chunk ID: 5\nWall time: 0.1 seconds\nProcess exited with code {}\nOutput:\n{}",
        "Exit code: {}\nWall time: 0.1 seconds\nTotal output lines: 900\nOutput:\n{}",
        '{{"metadata": {{"exit_code": {}, "duration_seconds": 0.1}}, "output": "{}"}}',
        '{{"exit_code": {}, "stdout": "{}"}}',
    ],
)
@pytest.mark.parametrize("status", [0, 2, -1])
@pytest.mark.parametrize("printed", ["", "ok", "a line of the log\n" * 900])
def test_the_status_that_a_host_tells_counts_however_long_the_output_is(
    told: str, status: int, printed: str
) -> None:
    text = told.format(status, json.dumps(printed)[1:-1] if told.startswith("{") else printed)
    assert of(answered("a", "exec_command", text, cmd="make")).runs[0].failed is (status != 0)


def test_a_command_that_still_runs_has_not_failed() -> None:
    text = "Wall time: 10 seconds\nProcess running with session ID 8\nOutput:\n" + "log\n" * 300
    assert of(answered("a", "exec_command", text, cmd="make")).runs[0].failed is False


def test_an_exit_status_that_a_text_speaks_of_is_no_failure() -> None:
    text = "| D25 | No page above 100 KB; `port` ends with exit code 6. Of several the smallest. |"
    assert of(answered("a", "Bash", text, command="x")).runs[0].failed is False


def test_a_zero_exit_status_is_no_failure() -> None:
    assert of(answered("a", "Bash", "done\nexit code 0", command="x")).runs[0].failed is False


def test_what_failed_besides_commands_is_named_with_its_telling_line() -> None:
    failed = [
        assistant(call("a", "Read", file_path="gone.py")),
        user([result("a", "looking\nerror: no such file", is_error=True)]),
    ]
    found = of(failed)
    assert found.errors == ["Read(gone.py): error: no such file"]
    assert found.read == []


def test_memory_tools_and_all_others_are_told_apart() -> None:
    found = of(
        answered("a", "mcp__mem__recall", "x", query="the port"),
        answered("b", "Weather", "x", city="Ulm"),
        answered("c", "Weather", "x", city="Bonn"),
    )
    assert found.memory_reads == [MemoryRead("mcp__mem__recall(query=the port)")]
    assert found.other_calls == {"Weather": 2}


def test_the_newest_plan_counts() -> None:
    old = [{"content": "draft", "status": "pending"}]
    new = [
        {"content": "draft", "status": "completed"},
        {"content": "test", "status": "in_progress"},
    ]
    found = of(
        answered("a", "TodoWrite", "ok", todos=old), answered("b", "TodoWrite", "ok", todos=new)
    )
    assert found.plan == ("[completed] draft", "[in_progress] test")
    assert of(answered("a", "update_plan", "ok", plan=[{"step": "one"}])).plan == ("one",)
    assert of(answered("a", "write_todos", "ok", todos="- one\n\n- two\n")).plan == (
        "- one", "- two",
    )  # fmt: skip


def test_arguments_that_are_no_object_break_nothing() -> None:
    payload = [user("go"), *answered("a", "Weather", "x")]
    payload[1]["content"][0]["input"] = {"deep": [{"x": None}]}
    assert digest(read(payload)).other_calls == {"Weather": 1}


async def test_the_receipt_of_a_summary_carries_the_digest_of_what_it_stands_for() -> None:
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


def test_an_error_is_named_by_its_exception_not_by_the_traceback() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: no such port'
    failed = [
        assistant(call("a", "Bash", command="python a.py")),
        user([result("a", trace, is_error=True)]),
    ]
    assert of(failed).runs[0].error == "ValueError: no such port"
