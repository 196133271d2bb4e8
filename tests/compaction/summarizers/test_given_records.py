"""What the agent put down in a call or filed by it stays; no value is told as Python does."""

import json
import re
from typing import Any

import pytest
from context_compaction import CompactRequest, compact, formats
from context_compaction.messages.model import text_of
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.tokens.counter import counter_for
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cpu_time import assert_growth
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import read

COUNT = counter_for("gpt-4o")
FINDINGS = [
    {"file": "src/writer.go", "line": 1057, "summary": "endOverride never resets isTransparent."},
    {"file": "src/engine.go", "line": 387, "summary": "A palette reference bypasses the collapse."},
    {
        "file": "src/segment.go",
        "line": 251,
        "summary": "Render returns before the flags are reset.",
    },
]
PYTHON = re.compile(r"\{'|\['|'\]|'\}|\b(?:None|True|False)\b")
WORDS = st.text(st.sampled_from("abc xyz"), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def called(call_id: str, name: str, given: Any, answer: str = "Done.") -> list[Json]:
    call = {"type": "tool_use", "id": call_id, "name": name, "input": given}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": answer}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def asked(text: str) -> Json:
    return {"role": "user", "content": text}


def said(text: str) -> Json:
    return {"role": "assistant", "content": text}


def written(messages: list[Json], max_tokens: int = 1_000, **wishes: Any) -> str:
    parsed = formats.parse(messages, format="anthropic")
    return writer.write(SummaryInput(parsed, max_tokens, **wishes), COUNT)


@pytest.mark.parametrize("is_turn_prefix", [True, False])
def test_records_given_to_a_tool_stand_with_the_state_as_header_and_rows(
    is_turn_prefix: bool,
) -> None:
    talk = [asked("Fix what the review found."), *called("a", "ReportX", {"findings": FINDINGS})]
    text = written([*talk, said("I begin with the writer.")], is_turn_prefix=is_turn_prefix)
    assert "ReportX [1]: findings: 3 records: file | line | summary" in text
    for found in FINDINGS:
        assert f"{found['file']} | {found['line']} | {found['summary']}" in text
    assert text.index("Where it stands") < text.index("ReportX [1]") if "## " in text else True


def test_a_value_behind_a_long_text_is_not_cut_off_with_it() -> None:
    records = [
        {"file": f"part{n}.py", "scenario": f"case {n} " * 40, "verdict": f"REFUTED-{n}"}
        for n in range(3)
    ]
    text = written([asked("Review it."), *called("a", "ReportX", {"findings": records})])
    assert all(f"part{n}.py | REFUTED-{n} | case {n} case" in text for n in range(3))


def test_of_records_the_newest_are_told_whole_and_older_ones_in_short() -> None:
    older = [{"id": n, "note": f"note {n} of the first survey " * 9} for n in range(12)]
    talk = [asked("Survey it."), *called("a", "survey_note", {"notes": older}), said("Noted.")]
    talk += [asked("Review it."), *called("b", "ReportX", {"findings": FINDINGS}), said("Found.")]
    text = written(talk)
    assert "survey_note [1]: notes: 12 records: id | note" in text
    assert "11 | note 11" not in text
    assert all(str(found["summary"]) in text for found in FINDINGS)


def test_records_of_a_plan_a_question_a_refused_call_and_a_command_are_told_as_before() -> None:
    todos = [{"content": "Read the engine.", "status": "pending"} for _ in range(3)]
    talk = [asked("Go on."), *called("a", "TodoWrite", {"todos": todos})]
    assert "TodoWrite [1]" not in written([*talk, said("Reading.")])
    refused = called("b", "ReportX", {"findings": FINDINGS})
    refused[1]["content"][0]["is_error"] = True
    assert "3 records" not in written([asked("Go on."), *refused, said("Refused.")])
    ran = called("c", "run_command", {"command": "ls", "env": FINDINGS})
    assert "3 records" not in written([asked("Go on."), *ran, said("Listed.")])


async def test_records_survive_the_second_compaction() -> None:
    long = [{**found, "scenario": f"{found['summary']} " * 40} for found in FINDINGS]
    talk = [asked("Fix what the review found."), *called("a", "ReportX", {"findings": long})]
    talk += [said("I begin."), asked("Go on."), said("Yes.")]
    request = CompactRequest(
        context_window=200_000, mode="full", format="anthropic", session_id="s"
    )
    async with temporary_archive() as archive:
        first = await compact(talk, request, archive=archive)
        more = [asked("And the rest?"), said("It follows."), asked("Good."), said("So it is.")]
        second = await compact([*first.messages, *more], request, archive=archive)
    text = text_of(read(second.messages)[0].blocks)
    assert all(str(found["summary"]) in text for found in FINDINGS)


@settings(max_examples=60)
@given(
    st.sampled_from(["ReportX", "book_flight", "bash", "TodoWrite", "memory_add", "exec"]),
    st.dictionaries(
        st.sampled_from(["todos", "command", "input", "notes", "id"]), VALUES, max_size=4
    ),
    st.sampled_from(["Done.", "Error: no such thing", '{"id": "a1b2c3"}', ""]),
    st.booleans(),
)
def test_no_value_is_told_as_python_writes_it(
    name: str, given: dict[str, Any], answer: str, has_answer: bool
) -> None:
    call = called("a", name, given, answer)
    talk = [asked("Do it."), *(call if has_answer else call[:1])]
    assert not PYTHON.search(written(talk))
    assert not PYTHON.search(written([*talk, said("It is."), asked("And on."), said("Yes.")]))


BODY = (
    "An empty prompt made it fail, and `PROMPT` hid that.\n\n- `prompt: inputs.prompt || event` on "
    "comments, as before\n- open: the job for forks still runs `v1`"
)
ROWS = ("`PROMPT` hid that.", "open: the job for forks still runs `v1`")
WAYS_TO_FILE = {
    "quoted": 'gh issue create --title Prompts --body "' + BODY.replace("`", r"\`") + '"',
    "document": f"gh pr create --title Mend --body \"$(cat <<'EOF'\n{BODY}\nEOF\n)\" 2>&1 | tail",
    "standard input": f"gh pr create --title Mend --body-file - <<'EOF'\n{BODY}\nEOF",
    "file": f"cat > /tmp/body.md <<'EOF'\n{BODY}\nEOF\ngh pr edit 8 --body-file /tmp/body.md",
    "field": f"gh api repos/a/b/issues/1/comments -f body='{BODY}'",
    "commit": f"git commit -F - <<'EOF'\nci: mend it\n\n{BODY}\n\nSigned-off-by: A <a@b>\nEOF",
    "second message": f"git commit -m 'ci: mend the prompt' -m '{BODY}'",
    "bare": f"bd note ab-1 $'{BODY}'".replace("\n", "\\n"),
}


@pytest.mark.parametrize("command", WAYS_TO_FILE.values(), ids=WAYS_TO_FILE)
def test_what_the_agent_files_is_told_as_its_words_once(command: str) -> None:
    talk = [asked("Mend it."), *called("a", "bash", {"command": command}), asked("Go on.")]
    text = written([*talk, said("I go on.")], 900)
    for row in ROWS:
        assert text.count(row) == 1
    assert "agent filed [1]: " in text
    assert "Signed-off-by" not in text


def test_a_text_is_filed_as_the_shell_joins_it() -> None:
    command = f"gh issue comment 46 --body 'It'\"'\"'s so. {BODY}'"
    talk = [asked("Mend it."), *called("a", "bash", {"command": command}), asked("Go on.")]
    text = written([*talk, said("I go on.")], 900)
    assert "agent filed [1]: It's so. An empty prompt made it fail, and `PROMPT` hid that." in text


def test_what_was_not_filed_is_not_told_as_filed() -> None:
    failed = called("a", "bash", {"command": WAYS_TO_FILE["quoted"]}, "Exit code 1\nno network")
    talk = [asked("Mend it."), *failed, asked("Go on."), said("I go on.")]
    assert "filed" not in written(talk, 900)


@pytest.mark.parametrize(
    "unit", ['"$(cat <<A\n', " -m 'a", " -F - <<A\n", "git ", "a note 'a", "a note ''"]
)
def test_texts_to_file_without_an_end_cost_little_time(unit: str) -> None:
    def write(chars: int) -> None:
        command = unit * (chars // len(unit))
        written([asked("Mend it."), *called("a", "bash", {"command": command}), asked("Go on.")])

    assert_growth(write, 3_000, power=2)


def test_of_a_record_no_status_of_the_records_in_it_is_told_as_its_own() -> None:
    blocked = {"id": "ab-12", "status": "in_progress", "dependency_type": "blocks"}
    issue = {"id": "ab-15", "status": "closed", "dependencies": [blocked]}
    shown = json.dumps([issue | {"description": "It is a long story. " * 60}])
    talk = [asked("Look."), *called("a", "tracker_show", {"id": "ab-15"}, shown), asked("Go on.")]
    text = written([*talk, said("I go on.")], 300)
    assert "status closed; dependencies ab-12; dependency_type blocks" in text


REPORT = """I have read all of it. Here is what I found:

## Engine
- `executeRemediation()` in `src/engine.ts` splits issues by `issueType`, 10 a batch.
- The answer's `issueIndex` counts from 1 in the sorted list.

| Label | File |
|---|---|
| `STEP_LABELS` has none for `consolidating_files` | `src/Progress.tsx` |
agentId: a6b37c0 (for resuming to continue this agent's work if needed)
<usage>total_tokens: 97631
tool_uses: 21</usage>"""


def test_a_finding_at_the_beginning_of_a_long_turn_precedes_the_pages_of_a_report() -> None:
    found = "Found it: `root()` in `nav.ts` matches `shared-folder` too, since it is a substring."
    steps = [called(f"c{n}", "Bash", {"command": f"run {n}"}, "ok") for n in range(50)]
    for n, (step, _) in enumerate(steps):
        step["content"].insert(0, {"type": "text", "text": f"`step_{n}` did not help."})
    report = "\n".join(f"- `cause_{n}` is in `part_{n}.ts`." for n in range(400))
    messages = [
        asked("Make the tests pass."),
        said(found),
        *(message for step in steps for message in step),
        *called("t1", "Task", {"prompt": "Why does it answer 500?"}, report),
        said("Good; I test the upload of `a.txt` directly."),
    ]
    assert found in written(messages, 2_200)


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Task", {"description": "Explore", "prompt": "Read the engine", "subagent_type": "Plan"}),
        ("Agent", {"prompt": "Read the engine"}),
        ("read_agent", {"agent_id": "explore-1"}),
        ("delegate_task", {"message": "Read the engine"}),
    ],
)
@pytest.mark.parametrize("is_running", [True, False])
def test_what_another_agent_reports_is_told_like_the_agents_words(
    tool: str, given: Json, is_running: bool
) -> None:
    messages = [
        asked("Explore the remediation and plan its change."),
        *called("t1", tool, given, REPORT),
        said("Two parts of it have to change, see above; I go on with the plan."),
    ]
    messages += [] if is_running else [asked("Now the tests."), said("They are in `a.test.ts`.")]
    text = written(messages)
    assert "reported to the agent [1]: " in text
    assert "`issueIndex` counts from 1" in text
    assert "`STEP_LABELS` has none" in text
    assert "tool_uses" not in text
    assert "a6b37c0" not in text


@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        ("TaskList", "\n".join(f"#{n}. [pending] Mend `module_{n}.py`" for n in range(9))),
        ("Agent", f"Async agent launched successfully.\nagentId: a6bb5f48a96\n{'Wait. ' * 40}"),
        ("task", f"Agent started in background with agent_id: explore-1. {'Wait. ' * 40}"),
    ],
)
def test_a_list_of_tasks_and_an_agent_that_begins_are_no_reports(tool: str, answer: str) -> None:
    call = called("t1", tool, {"prompt": "Explore"}, answer)
    assert "reported to" not in written([asked("What is left?"), *call, said("All nine.")])


def test_the_agents_own_words_come_before_what_was_reported_to_it() -> None:
    reports = [
        *called("t1", "Task", {"prompt": "Review"}, "`a.py:9` leaks a lock. " * 20),
        *called("t2", "Task", {"prompt": "Review"}, "`b.py:7` never ends. " * 20),
    ]
    own = (
        "The lock of `a.py:9` is fine, it is reentrant; `b.py:7` ends by `stop()`. Both were wrong."
    )
    messages = [asked("Review it."), *reports, said(own), asked("And `c.py`?"), said("It is fine.")]
    assert [own in written(messages, tokens) for tokens in (90, 400)] == [True, True]
    assert "leaks a lock" not in written(messages, 90)


async def test_a_model_reads_a_report_as_words_and_not_as_a_clipped_result() -> None:
    report = "\n".join(f"Fact {n}: `part_{n}()` calls `part_{n + 1}()` twice." for n in range(120))
    messages = [asked("Explore the parts."), *called("t", "Task", {"prompt": "Explore"}, report)]
    for at in range(30):
        listing = "\n".join(f"src/part_{n}.py:{at}: x = {n}" for n in range(900))
        messages += called(f"b{at}", "Bash", {"command": f"grep -rn x{at} src"}, listing)
    messages += [said("Explored."), asked("Go on."), said("I do."), asked("And the tests?")]
    request = CompactRequest(format="anthropic", target_tokens=3_000, summarizer="host")
    async with temporary_archive() as archive:
        asked_for = (await compact(messages, request, archive=archive)).summary_prompt
    assert asked_for is not None
    told = asked_for.user.partition('from="another agent">')[2].partition("</part>")[0]
    assert told == report
    assert "characters left out" in asked_for.user.partition('n="4"')[2]


@pytest.mark.parametrize("is_in_turns", [True, False])
def test_commands_that_passed_in_several_turns_are_told(is_in_turns: bool) -> None:
    ran = (
        ("cd /app && go test ./sem -run TestGolden -update 2>&1 | tail -3", "ok"),
        ("ls -la", "total 3"),
        ("golangci-lint run", "Exit code 1\nError: a.go:3: unused"),
    )
    messages: list[Json] = [asked("Mend it.")]
    for at in range(4):
        for nth, (command, answer) in enumerate((*ran, (f"go run ./probe {at}", "1 edge"))):
            talk = called(f"t{at}_{nth}", "Bash", {"command": command}, answer)
            talk[1]["content"][0]["is_error"] = answer.startswith("Exit code")
            messages += talk
        messages += [said("Done."), asked(f"Go on with {at}.")] if is_in_turns else []
    text = written([*messages, said("Done."), asked("Go on."), said("I do.")])
    told = [row for row in text.splitlines() if row.startswith("passed again and again")]
    line = "passed again and again: go test ./sem -run TestGolden -update"
    assert told == ([line] if is_in_turns else [])
