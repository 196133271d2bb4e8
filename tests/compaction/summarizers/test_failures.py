"""A failure is told until a run of the same command, of more words or of less, passes."""

from collections.abc import Sequence

import pytest
from context_compaction.activity.error_line import outcome_line
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.summarizers.extractive.deeds import failures_in, open_failures
from context_compaction.summarizers.extractive.turns import turns_of
from context_compaction.tokens.counter import counter_for
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import assistant, call, read, result, user

COMMANDS = st.sampled_from([
    "make", "make lint", "npm run", "npm run lint", "npm run lint --fix", "npm run build",
    "npm test", "pytest", "pytest tests", "pytest tests api",
])  # fmt: skip
LINES = st.lists(COMMANDS, min_size=1, max_size=2, unique=True).map(" && ".join)
RUNS = st.lists(st.tuples(LINES, st.booleans()), max_size=12)


def ran(runs: Sequence[tuple[str, bool]]) -> list[Json]:
    """Commands that failed or passed, in one turn."""
    talk: list[Json] = [user("Go.")]
    for n, (line, failed) in enumerate(runs):
        told = f"Error: {n} is bad" if failed else "3 passed"
        talk.append(assistant(call(f"c{n}", "Bash", command=line)))
        talk.append(user([result(f"c{n}", told, is_error=failed)]))
    return talk


def words_of(command: str) -> list[str]:
    """The words that tell which run it is."""
    return [word for word in command.split() if word[0] != "-"]


def is_same(one: str, other: str) -> bool:
    """Whether two commands are the same run: one begins like the other, and with its program."""
    words, others = words_of(one), words_of(other)
    size = min(len(words), len(others))
    return words[:2] == others[:2] and words[:size] == others[:size]


def told(runs: Sequence[tuple[str, bool]]) -> tuple[list[tuple[int, int]], list[tuple[int, str]]]:
    """The runs that failed last and those that passed them, in order; and what fails still."""
    failing: dict[str, int] = {}
    passed: list[tuple[int, int]] = []
    for n, (line, failed) in enumerate(runs):
        commands = line.split(" && ")
        if failed:
            known = next((one for one in failing if words_of(one) == words_of(commands[-1])), None)
            failing[known or commands[-1]] = n
            continue
        ended = [one for one in failing if any(is_same(one, other) for other in commands)]
        passed += [(failing.pop(one), n) for one in ended]
    return passed, [(n, one) for one, n in failing.items()]


@given(RUNS, st.frozensets(COMMANDS, max_size=2))
def test_a_failure_is_told_until_the_same_command_passes_or_is_tried_later(
    runs: list[tuple[str, bool]], later: frozenset[str]
) -> None:
    messages = read(ran(runs))
    turns = turns_of(messages, range(len(messages)), {})
    passed, failing = told(runs)
    number = {2 * n + 1: n for n in range(len(runs))}
    found = [one for turn in turns for one in failures_in(turn, {})]
    assert [(number[one.action.number], one.passed and number[one.passed]) for one in found] == [
        *passed,
        *((n, None) for n, _ in failing),
    ]
    still = [
        n
        for n, _ in failing
        if not any(is_same(one, key) for one in runs[n][0].split(" && ") for key in later)
    ]
    assert [number[one.action.number] for one in open_failures(turns, later)] == still


@pytest.mark.parametrize(
    ("answer", "is_told"),
    [
        ("Exit code 1\nSwitched to a new branch 'v2'\n---created---", False),
        ("Exit code 128\nfatal: a branch named 'v2' already exists", True),
    ],
)
def test_a_command_beside_looks_failed_only_where_a_line_names_the_error(
    answer: str, is_told: bool
) -> None:
    command = "git checkout -b v2 && echo ---created--- && ls testdata"
    asked = assistant(call("a", "Bash", command=command))
    talk = [user("Begin."), asked, user([result("a", answer, is_error=True)])]
    parsed = read([*talk, assistant("Begun."), user("Go on."), assistant("I do.")])
    text = writer.write(SummaryInput(parsed, 400), counter_for(""))
    assert ("failed: git checkout -b v2" in text) is is_told


COUNTED = """
  1 failed
    [chromium] › tests/share.spec.ts:338:3 › 6.1 Alice takes the folder back
  6 did not run
  13 passed (43.1s)
"""


@pytest.mark.parametrize("above", ["TimeoutError: 10000ms exceeded.", "\x1b[2mthe page\x1b[22m"])
def test_a_run_that_counts_failures_did_not_pass_behind_a_pipe_either(above: str) -> None:
    rows = "\n".join(f"case {n} of the table" for n in range(20))
    line = "npx playwright test share.spec.ts 2>&1 | tail -50"
    talk = [user("Run it."), assistant(call("a", "Bash", command=line))]
    talk.append(user([result("a", f"{rows}\n{above}{COUNTED}")]))
    parsed = read([*talk, assistant("I look at it.")])
    text = writer.write(SummaryInput(parsed, 700, is_turn_prefix=True), counter_for(""))
    assert "open: failed: npx playwright test share.spec.ts 2>&1 | tail -50 [1] -> " in text
    assert "1 failed" in text
    assert "-> … 13 passed" not in text


def test_what_failed_and_what_did_not_run_is_told_beside_what_passed() -> None:
    outcome = "1 failed; 6 did not run; 13 passed (43.1s)"
    assert outcome_line(COUNTED, failed=False) == outcome
    assert outcome_line(f"{COUNTED}\nagain\n{COUNTED}", failed=False) == outcome
    assert outcome_line(f"{COUNTED}\nagain\n 14 passed (3s)", failed=False) == "14 passed (3s)"
    assert outcome_line(" 5 pass\n 1 fail\n 9 expect() calls", failed=False) == "5 pass; 1 fail"
