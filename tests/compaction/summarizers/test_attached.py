"""Every summary has loaded skills, within a share of its token limit."""

import pytest
from context_compaction import formats
from context_compaction.messages.model import Messages
from context_compaction.messages.speakers import HOST_SUMMARY_HEADS
from context_compaction.summarizers.extractive.render import extract
from context_compaction.tokens.counter import counter_for
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, compacted, lines

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


@pytest.mark.parametrize("tokens", [1_500, 4_000, 10_000])
def test_summary_has_loaded_skill_at_every_size(tokens: int) -> None:
    skill = answered("a", "Skill", SKILL, skill="release")
    text = summary_of([*filler(2, "a"), *skill, *filler()], tokens)
    assert "KUDU-77" in text


def test_skills_get_a_limited_share_of_the_summary() -> None:
    long = "\n\n".join(f"Rule {n}: " + "see the guide of the release team. " * 9 for n in range(60))
    skills = [row for n in range(8) for row in answered(f"s{n}", "Skill", long, skill=f"skill{n}")]
    text = summary_of([*filler(2), *skills, *filler(15, "b")], 4_000)
    attached = "".join(part for part in text.split("\n[") if "see the guide" in part)
    assert 0 < COUNT.text(attached) < 1_300
    assert "Part 14 of b" in text


@pytest.mark.parametrize("tokens", [1_500, 4_000, 10_000])
@pytest.mark.parametrize("head", HOST_SUMMARY_HEADS)
def test_summary_has_newest_summary_of_the_host_at_every_size(tokens: int, head: str) -> None:
    def summary(fact: str) -> Json:
        reminder = {"type": "text", "text": "<system-reminder>It is 10:12 now.</system-reminder>"}
        text = f"{head} that ran out of context.\n\nSummary:\n\n1. The release needs {fact}."
        return {"role": "user", "content": [reminder, {"type": "text", "text": text}]}

    text = summary_of([summary("KUDU-1"), *filler(2, "a"), summary("KUDU-77"), *filler()], tokens)
    assert "KUDU-77" in text
    assert "KUDU-1." not in text


@given(
    skill_lines=st.integers(1, 40),
    log_lines=st.integers(50, 400),
    window_tokens=st.integers(20_000, 60_000),
)
@settings(max_examples=12)
async def test_skill_that_fits_its_share_stays_whole_beside_new_results(
    skill_lines: int, log_lines: int, window_tokens: int
) -> None:
    rules = "\n".join(f"Step {n}: check part {n} of the release." for n in range(skill_lines))
    skill = {"type": "text", "text": f"Base directory for this skill: /skills/release\n\n{rules}"}
    call, result = answered("k", "Skill", "Launching skill: release", skill="release")
    messages: list[Json] = [
        {"role": "user", "content": "Use the skill release."},
        call,
        {**result, "content": [*result["content"], skill]},
        {"role": "assistant", "content": "I follow the skill."},
        {"role": "user", "content": "Now release it."},
    ]
    for number in range(40):
        messages += answered(f"b{number}", "Bash", lines(f"part {number}", log_lines))
    done = await compacted(messages, format="anthropic", context_window=window_tokens)
    shown = sum(line in str(done.messages) for line in rules.split("\n"))
    room_tokens = done.tokens.target
    if done.changed and COUNT.text(rules) < room_tokens * 0.12:
        assert shown == skill_lines
    assert not done.changed or shown > 0
