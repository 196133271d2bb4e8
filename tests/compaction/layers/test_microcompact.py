"""Microcompact: old tool results are cleared and old calls are clipped in one batch."""

from dataclasses import replace
from typing import Any

import pytest
from context_compaction.layers.microcompact import microcompact
from context_compaction.layers.persist import persist
from context_compaction.messages.model import Step, Text, ToolCall
from context_compaction.request import Settings

from tests.support.json_types import Json
from tests.support.script import TINY_PNG
from tests.support.small import (
    COUNT,
    answered,
    assistant,
    call,
    compacted,
    image,
    layer_context,
    lines,
    read,
    result,
    result_of,
    text,
    user,
)

PLAIN = Settings(min_savings_tokens=0, min_result_tokens=100, keep_recent_results=3)


def steps(number: int, name: str = "Bash", size_lines: int = 80) -> list[Json]:
    return [
        message
        for n in range(number)
        for message in answered(f"c{n}", name, lines(f"n{n}", size_lines), command=f"run {n}")
    ]


def cleared(step: Step) -> list[int | None]:
    return [edit.index for edit in step.edits]


def run(payload: list[Json], settings: Settings = PLAIN, **more: Any) -> Step:
    return microcompact(read(payload), layer_context(settings, **more))


@pytest.mark.parametrize("keep", [0, 1, 3, 9])
def test_microcompact_keeps_the_newest_results(keep: int) -> None:
    step = run([user("go"), *steps(6)], replace(PLAIN, keep_recent_results=keep))
    assert cleared(step) == [2 * n + 2 for n in range(max(0, 6 - keep))]


def test_microcompact_clears_oldest_first_until_the_limit_is_met() -> None:
    payload = [user("go"), *steps(8)]
    before = COUNT.messages(read(payload))
    step = run(payload, limit_tokens=before - 400)
    assert cleared(step) == [2]
    assert COUNT.messages(step.messages) <= before - 400


def test_microcompact_clears_at_least_the_minimum() -> None:
    payload = [user("go"), *steps(8)]
    limit = COUNT.messages(read(payload)) - 1
    assert cleared(run(payload, replace(PLAIN, min_savings_tokens=1_200), limit_tokens=limit)) == [
        2, 4, 6,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["AskUserQuestion", "TodoWrite", "Skill", "update_plan"])
def test_microcompact_keeps_results_of_steering_tools(name: str) -> None:
    assert cleared(run([user("go"), *steps(6, name)])) == []


def test_microcompact_clears_a_result_with_an_image_and_archives_each_part() -> None:
    parts = [text(lines("a")), image(TINY_PNG)]
    step = run([user("go"), *answered("a", "Shot", parts), *steps(3)])
    placeholder = result_of(step.messages, "a").content
    assert isinstance(placeholder[0], Text)
    assert [blob.media_type for blob in step.blobs] == ["text/plain", "application/json"]
    assert all(blob.output_id in placeholder[0].text for blob in step.blobs)
    assert placeholder[0].text.count("\n") == 0


def test_cleared_failed_result_keeps_its_error_line() -> None:
    trace = lines("trace") + "\nValueError: the port is taken\n"
    payload = [
        user("go"),
        assistant(call("a", "Bash", command="serve")),
        user([result("a", trace, is_error=True)]),
        *steps(3),
    ]
    cleared = result_of(run(payload).messages, "a")
    assert cleared.is_error
    assert isinstance(cleared.content[0], Text)
    assert cleared.content[0].text.endswith("\nValueError: the port is taken")


def test_microcompact_clips_and_archives_long_arguments_of_old_calls() -> None:
    source = lines("source", 300)
    payload = [
        user("go"),
        *answered("w", "Write", "ok", file_path="x.py", content=source),
        *steps(3),
    ]
    step = run(payload)
    [clipped] = [b for b in step.messages[1].blocks if isinstance(b, ToolCall)]
    assert clipped.arguments["file_path"] == "x.py"
    head = clipped.arguments["content"]
    assert head.startswith(source[:200])
    assert head.endswith(f"{len(source)} chars; read_persisted_output {step.blobs[0].output_id}]")
    assert step.blobs[0].data.decode() == source
    assert is_unchanged_by_second_run(step)


def is_unchanged_by_second_run(step: Step) -> bool:
    again = microcompact(step.messages, layer_context(PLAIN))
    return again.messages is step.messages


async def test_old_results_are_cleared_below_the_trigger_after_a_long_pause() -> None:
    payload = [user("go"), *steps(6, size_lines=600), user("I am back")]
    fresh = await compacted(payload, idle_seconds=3_600.0)
    cold = await compacted(payload, idle_seconds=3_601.0)
    assert fresh.status == "unchanged"
    assert cold.status == "compacted"
    assert [edit.index for edit in cold.edits] == [2, 4, 6]
    assert [layer.name for layer in cold.layers] == ["microcompact"]


def test_microcompact_clears_the_preview_of_an_old_persisted_result() -> None:
    big = lines("big", 2_000)
    messages = read([
        user("go"),
        *answered("a", "Bash", big),
        *(part for name in "bcd" for part in answered(name, "Bash", "short")),
    ])
    settings = Settings(persist_result_tokens=1_000, preview_chars=8_000)
    persisted = persist(messages, layer_context(settings))
    step = microcompact(
        persisted.messages, layer_context(Settings(min_result_tokens=50, min_savings_tokens=0))
    )
    [blob] = persisted.blobs
    [part] = result_of(step.messages, "a").content
    assert isinstance(part, Text)
    assert part.text == (
        f"[Old tool result cleared: Bash, {len(big)} chars; read_persisted_output {blob.output_id}]"
    )
    assert step.edits[0].pointers == (blob.output_id,)
    assert not step.blobs


@pytest.mark.parametrize(
    ("last_line", "outcome"),
    [
        ("src/a.ts(3,1): error TS2769: No overload\nExit status 1", "src/a.ts(3,1): error TS2769"),
        ("Copyright (c) 2014 Jonathan Ong", ""),
    ],
)
def test_cleared_output_of_a_failed_command_keeps_its_error_line(
    last_line: str, outcome: str
) -> None:
    output = f"{lines('output', 200)}\n{last_line}"
    step = run([user("go"), *answered("seen", "Bash", output, command="npm test"), *steps(3)])
    [cleared_part] = result_of(step.messages, "seen").content
    head, _, line = getattr(cleared_part, "text", "").partition("\n")
    assert head.startswith("[Old tool result cleared: Bash")
    assert line.startswith(outcome)
    assert bool(line) == bool(outcome)
