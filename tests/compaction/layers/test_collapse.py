"""Collapse: finished sub-tasks become one line each, with a pointer to the originals."""

import re
from dataclasses import replace
from typing import Any

import anyio
import pytest
from context_compaction.archive.archive import Archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES
from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, lines, user

ITEMS = ("Write the lexer", "Write the parser", "Write the printer")


def plan(call_id: str, *states: str, name: str = "TodoWrite") -> list[Json]:
    todos = [{"content": text, "status": state} for text, state in zip(ITEMS, states, strict=True)]
    return answered(call_id, name, "Todos have been modified.", todos=todos)


def work(label: str, calls: int = 6) -> list[Json]:
    """Return steps whose results are too small to be cleared, and that change a file."""
    change = {"file_path": f"{label}.py", "old_string": "x", "new_string": "y"}
    return [
        message
        for n in range(calls)
        for message in [
            *answered(f"{label}{n}", "Read", lines(f"{label}{n}", 30), file_path=f"{label}{n}.py"),
            *answered(f"{label}w{n}", "Edit", "ok", **change),
        ]
    ]


def session(calls: int = 6) -> list[Json]:
    return [
        user("Write a compiler."),
        *plan("p0", "in_progress", "pending", "pending"),
        *work("lexer", calls),
        *plan("p1", "completed", "in_progress", "pending"),
        *work("parser", calls),
        *answered("commit", "Bash", "done", command="git commit -m parser"),
        *plan("p2", "completed", "completed", "in_progress"),
        *work("printer", calls),
        *plan("p3", "completed", "completed", "completed"),
        assistant("All is written."),
        user("Now the docs."),
    ]


# With the thresholds of a large window, no result of these conversations is cleared.
OPTIONS = CompactRequest(
    format="anthropic",
    session_id="s",
    settings={"scale_to_budget": False, "min_savings_tokens": 0},
)


async def aimed(payload: list[Json], share: float, archive: Archive) -> CompactRequest:
    counted = await compact(payload, replace(OPTIONS, mode="record"), archive=archive)
    return replace(OPTIONS, target_tokens=max(1, int(counted.tokens.before * share)))


async def compacted(payload: list[Json], share: float, **changes: Any) -> CompactResult:
    async with temporary_archive() as archive:
        options = replace(await aimed(payload, share, archive), **changes)
        return await check_promises(payload, options, archive)


def collapsed_lines(answer: CompactResult) -> list[str]:
    found = [message["content"] for message in answer.messages]
    return [text for text in found if str(text).startswith("[Finished sub-task: ")]


async def test_collapse_replaces_all_finished_sub_tasks_except_the_newest() -> None:
    answer = await compacted(session(), 0.8)
    assert [layer.name for layer in answer.layers] == ["collapse"]
    assert answer.fits
    lexer, parser = collapsed_lines(answer)
    assert re.fullmatch(
        r"\[Finished sub-task: Write the lexer; 24 messages; calls Read x6, Edit x6; "
        r"changed lexer\.py; originals: transcript://s/messages/3-26@[0-9a-f]{12}\]",
        lexer,
    )
    assert "Write the parser" in parser
    assert "ran git commit -m parser" in parser
    assert answer.messages[:3] == session()[:3]
    assert answer.messages[-26:] == session()[-26:]


async def test_history_is_summarized_from_originals_when_collapsing_is_not_enough() -> None:
    answer = await compacted(session(), 0.2)
    assert collapsed_lines(answer) == []
    assert "summarize" in [layer.name for layer in answer.layers]
    assert "collapse" not in [layer.name for layer in answer.layers]


async def test_collapse_keeps_user_messages_in_a_sub_task() -> None:
    content = user("Name the token class Tok, please.")
    payload = session()
    payload[15:15] = [content]
    answer = await compacted(payload, 0.8)
    assert content in answer.messages
    assert len(collapsed_lines(answer)) == 3  # one line before the user's message and one after


async def test_later_summary_reads_the_originals_of_a_collapsed_sub_task() -> None:
    async with temporary_archive() as archive:
        options = await aimed(session(), 0.8, archive)
        first = await compact(session(), options, archive=archive)
        assert collapsed_lines(first)
        grown = [*first.messages, assistant("I begin."), user("Go on.")]
        second = await compact(grown, replace(OPTIONS, mode="full"), archive=archive)
    assert second.boundary is not None
    assert second.boundary.start_seq == 0
    assert "lexer.py" in (second.summary or "")  # the originals of the line were read again
    assert not problems(second.messages, "anthropic", original=grown)


STATES = st.sampled_from(["pending", "in_progress", "completed"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plan"), st.tuples(STATES, STATES, STATES)),
        st.tuples(st.just("work"), st.integers(1, 3)),
        st.tuples(st.just("agent"), st.integers(1, 2)),
        st.tuples(st.just("say"), st.text(min_size=1, max_size=20).filter(str.strip)),
    ),
    min_size=3,
    max_size=12,
)


def played(steps: list[tuple[str, Any]]) -> list[Json]:
    out: list[Json] = [user("Begin.")]
    for n, (kind, detail) in enumerate(steps):
        match kind:
            case "plan":
                out += plan(f"p{n}", *detail)
            case "work":
                out += work(f"w{n}_", detail)
            case "agent":
                for k in range(detail):
                    out += answered(f"a{n}_{k}", "Task", lines(f"r{n}_{k}", 20), prompt="Do it.")
            case _:
                out += [assistant("Yes."), user(detail)]
    return out


@pytest.mark.timeout(240)
@given(steps=STEPS, share=st.sampled_from([0.9, 0.7, 0.5, 0.3]))
@EXAMPLES
def test_promises_hold_when_sub_tasks_are_collapsed(
    steps: list[tuple[str, Any]], share: float
) -> None:
    anyio.run(compacted, played(steps), share)
