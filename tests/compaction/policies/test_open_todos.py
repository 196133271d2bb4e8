"""Open items of the todo list are repeated at each turn if the policy says so."""

import json
from pathlib import Path
from typing import Any

import pytest
from context_compaction import (
    CompactRequest,
    CompactResult,
    compact,
    convert,
    formats,
    open_archive,
)

from tests.support.json_types import Json
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, call, result, text, user

NOTE = "Open items of the todo list:"


def planned(call_id: str, *states: str) -> list[Json]:
    todos = [{"content": f"Step {n}", "status": state} for n, state in enumerate(states)]
    return answered(call_id, "TodoWrite", "ok", todos=todos)


def as_format(messages: list[Json], name: str) -> list[Json]:
    parsed = formats.parse(messages, format="anthropic")
    return formats.render(convert(parsed, to=name, origin="anthropic"), format=name)


STARTED = [
    user("Prepare it."), *planned("t", "completed", "in_progress", "pending"),
    assistant("Listed."), user("Go on."),
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(formats.FORMATS))
@pytest.mark.parametrize("adopts", [True, False])
async def test_request_has_one_todo_note_when_the_host_adopts_the_list_or_not(
    tmp_path: Path, name: str, adopts: bool
) -> None:
    request = CompactRequest(policy="claude-code", format=name, session_id="s")
    own = adopted = as_format(STARTED, name)
    async with open_archive(tmp_path) as archive:
        for turn in range(4):
            result = await compact(adopted if adopts else own, request, archive=archive)
            assert json.dumps(result.messages).count(NOTE) == turn + 1
            again = await compact(result.messages, request, archive=archive)
            assert again.messages == result.messages
            new = [
                *answered(f"c{turn}", "Bash", "a b", command="ls"),
                assistant("Done."),
                user("Go on."),
            ]
            more = as_format(new, name)
            adopted, own = [*result.messages, *more], [*own, *more]


async def compact_list(tmp_path: Path, messages: list[Json], **options: Any) -> CompactResult:
    fields: Json = {"policy": "claude-code", "format": "anthropic", **options}
    request = CompactRequest(**fields)
    async with open_archive(tmp_path) as archive:
        return await compact(messages, request, archive=archive)


async def test_todo_note_lists_the_newest_open_items_after_a_compaction(tmp_path: Path) -> None:
    work = [row for n in range(9) for row in answered(f"c{n}", "Bash", f"{n} " * 900, command="ls")]
    messages = [*STARTED, *planned("u", "completed", "completed", "in_progress"), *work]
    for end in ([], [assistant("Done."), user("Go on.")]):
        result = await compact_list(tmp_path, [*messages, *end], mode="full", target_tokens=3_000)
        note = json.dumps(result.messages).partition(NOTE)[2].partition("</open_todos>")[0]
        assert "[in_progress] Step 2" in note
        assert "Step 1" not in note


@pytest.mark.parametrize(
    ("messages", "policy"),
    [
        (STARTED, "default"),
        (
            [*STARTED, *planned("u", "completed", "done"), assistant("Ended."), user("Next.")],
            "claude-code",
        ),
        ([user("Hello."), assistant("Hi."), user("Next.")], "claude-code"),
    ],
)
async def test_todo_note_is_absent_without_open_items_or_the_setting(
    tmp_path: Path, messages: list[Json], policy: str
) -> None:
    result = await compact_list(tmp_path, messages, policy=policy)
    assert result.messages == messages


@pytest.mark.parametrize("name", sorted(formats.FORMATS))
async def test_todo_note_never_separates_a_call_from_its_result(tmp_path: Path, name: str) -> None:
    results = user([result("c", "a b"), text("And now?")])
    messages = as_format([*STARTED, assistant(call("c", "Bash", command="ls")), results], name)
    request = CompactRequest(policy="claude-code", format=name, session_id="s")
    async with open_archive(tmp_path) as archive:
        answer = await compact(messages, request, archive=archive)
    assert NOTE in json.dumps(answer.messages)
    assert not problems(answer.messages, name, original=messages)
