"""Every summary has loaded skills and background work, within a share of its token limit."""

import pytest
from context_compaction import formats
from context_compaction.messages.model import Messages
from context_compaction.summarizers.extractive.render import extract
from context_compaction.tokens.counter import counter_for

from tests.support.json_types import Json
from tests.support.small import answered

COUNT = counter_for(None)


def filler(turns: int = 15, name: str = "f") -> list[Json]:
    messages: list[Json] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Look at part {turn} of {name}."})
        lines = "\n".join(f"line {n} of {turn}: {n * 7919 % 997}" for n in range(120))
        messages += answered(f"{name}{turn}", "Bash", lines, command=f"cat {name}{turn}")
        messages.append({"role": "assistant", "content": f"Part {turn} of {name} is unchanged."})
    return messages


def summary_of(rows: list[Json], max_tokens: int) -> str:
    messages: Messages = formats.parse(rows, format="anthropic")
    return extract(messages, range(len(messages)), max_tokens, COUNT)


SKILL = "# Release\n\nRun `make verify` before a tag.\n\nSign with the key KUDU-77."
CASES = {
    "skill": (answered("a", "Skill", SKILL, skill="release"), "KUDU-77"),
    "command": (
        answered("a", "Bash", "Command running in background with ID: bash_7", command="npm start",
                 run_in_background=True),
        "bash_7",
    ),
    "agent": (
        answered("a", "Task", "Async agent launched.\nagentId: dingo4", prompt="Soak."),
        "dingo4",
    ),
    "session": (
        answered("a", "exec_command", "Wall time\nProcess running with session ID 48213", cmd="x"),
        "48213",
    ),
}  # fmt: skip


@pytest.mark.parametrize("tokens", [1_500, 4_000, 10_000])
@pytest.mark.parametrize("case", CASES)
def test_summary_has_skill_and_running_work_at_every_size(case: str, tokens: int) -> None:
    messages, name = CASES[case]
    text = summary_of([*filler(2, "a"), *messages, *filler()], tokens)
    assert name in text


@pytest.mark.parametrize(
    "end",
    [
        answered("z", "TaskOutput", "status: completed", task_id="bash_7"),
        answered("z", "KillShell", "Successfully killed shell: bash_7", shell_id="bash_7"),
        [{
            "role": "user",
            "content": "<task-notification><task-id>bash_7</task-id><status>completed</status>"
            "</task-notification>",
        }],
    ],
)  # fmt: skip
def test_summary_drops_background_work_when_it_has_ended(end: list[Json]) -> None:
    messages, name = CASES["command"]
    assert name in summary_of([*filler(2, "a"), *messages, *filler()], 1_500)
    text = summary_of([*filler(2, "a"), *messages, *end, *filler()], 1_500)
    assert f"with ID: {name}" not in text


def test_summary_keeps_background_work_when_its_output_is_polled() -> None:
    messages, name = CASES["command"]
    polled = answered("z", "BashOutput", "<status>running</status>\n3 tests failed", bash_id=name)
    assert f"with ID: {name}" in summary_of([*filler(2, "a"), *messages, *polled, *filler()], 1_500)


def test_skills_get_a_limited_share_of_the_summary() -> None:
    long = "\n\n".join(f"Rule {n}: " + "see the guide of the release team. " * 9 for n in range(60))
    skills = [row for n in range(8) for row in answered(f"s{n}", "Skill", long, skill=f"skill{n}")]
    text = summary_of([*filler(2), *skills, *filler(15, "b")], 4_000)
    attached = "".join(part for part in text.split("\n[") if "see the guide" in part)
    assert 0 < COUNT.text(attached) < 1_300
    assert "Part 14 of b" in text
