"""What a command printed while later calls waited for it is told as its answer."""

import pytest
from context_compaction.activity.late_answers import answers_of
from context_compaction.messages.tool_results import result_text
from context_compaction.summarizers.extractive.carried import carried_of
from context_compaction.summarizers.extractive.turns import turns_of
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.summarizers.test_extractive import user, written
from tests.support.json_types import Json
from tests.support.small import answered, assistant, read


def codex(status: str, printed: str) -> str:
    return f"Chunk ID: a1\nWall time: 1.0 seconds\nProcess {status}\nOutput:\n{printed}"


def waited(code: int) -> list[Json]:
    """A command that two later calls wait for, and one in between that has its own answer."""
    running, over = "running with session ID 8", f"exited with code {code}"
    return [
        user("Build it."),
        *answered("a", "exec_command", codex(running, "compiling 1\n"), cmd="make release"),
        *answered("b", "write_stdin", codex(running, "compiling 2\n"), session_id=8, chars=""),
        *answered("c", "exec_command", codex("exited with code 0", "v20.1\n"), cmd="node -v"),
        *answered("d", "write_stdin", codex(over, "3 errors\n"), session_id=8, chars=""),
    ]


def test_what_a_command_printed_while_it_was_waited_for_is_told_under_its_own_name() -> None:
    text = written([*waited(0), assistant("Now the next step.")])
    assert "make release [1] -> compiling 1 / compiling 2 / 3 errors" in text
    assert "node -v [5] -> v20.1" in text
    assert "write_stdin" not in text


def test_a_command_that_failed_while_it_was_waited_for_is_open_under_its_own_name() -> None:
    text = written([*waited(2), assistant("Now the next step.")])
    assert "failed: make release [1]" in text
    assert "write_stdin" not in text


@pytest.mark.parametrize("carried", [[2], [3], [2, 3], [4], [2, 2, 4]])
def test_a_command_that_fails_after_compactions_fails_under_its_own_name(
    carried: list[int],
) -> None:
    """The calls that wait for it may stand before them and behind them."""
    longer = [*waited(2)[:5], *waited(2)[3:]]
    longer[5]["content"][0]["id"] = longer[6]["content"][0]["tool_use_id"] = "b2"
    messages, rest = (), read(longer)
    for count in carried:
        whole = (*messages, *rest[:count])
        messages, rest = carried_of(whole, range(len(whole)), (), {}).messages, rest[count:]
    turns = turns_of(whole := (*messages, *rest), range(len(whole)), {})
    told = {one.label: one for turn in turns for one in turn.actions}
    made = told["make release"]
    assert (made.failed, made.text) == (True, "compiling 1\ncompiling 2\ncompiling 2\n3 errors")
    assert not any(one.failed or one.text for name, one in told.items() if "write_stdin" in name)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_every_call_has_its_answer_and_nothing_printed_is_told_twice(
    calls: list[tuple[int, bool]],
) -> None:
    talk = [user("Go.")]
    for n, (session, runs_on) in enumerate(calls):
        status = f"running with session ID {session}" if runs_on else "exited with code 0"
        talk += answered(f"c{n}", "write_stdin", codex(status, f"row{n};\n"), session_id=session)
    answers = answers_of(read(talk))
    assert list(answers) == [f"c{n}" for n in range(len(calls))]
    told = "".join(map(result_text, answers.values()))
    assert all(told.count(f"row{n};") == 1 for n in range(len(calls)))
