"""Compacted messages are recognized when a host rewrites messages of the assistant or of tools.

Hosts trim white space, write the arguments of a call again, drop thinking, and shorten old results.
Other words are another conversation, which never gets the summary.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from context_compaction import CompactRequest, compact
from context_compaction.archive.contexts import has_same_request
from context_compaction.messages.model import Message, Text
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS
from tests.support.json_types import Json, is_list, is_object
from tests.support.promises import temporary_archive
from tests.support.provider_rules import problems
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS, conversations

CALLS = 36
Change = Callable[[Any], Any]
Edit = Callable[[int, list[Json]], list[Json]]
DROPPED = object()
ARGUMENTS = ("arguments", "args", "input")


def turn(number: int) -> Turn:
    output = "".join(f"line {n} of part {number}: test {n * number} passed\n" for n in range(50))
    steps = [
        Step(
            (
                Call(
                    "Bash",
                    {"command": f"make t{number}-{n}", "timeout": n},
                    (Part("text", output),),
                ),
            ),
            text=f"I run test {n} of part {number}.",
            thinking=f"Part {number} needs test {n}.",
        )
        for n in range(2)
    ]
    words = f"Part {number} is done and tested. " * 10
    request = (Part("text", f"Task {number}: go on with part {number}."),)
    return Turn(request, tuple(steps), answer=words, thinking=f"All of {number} is done.")


def rewritten(value: Any, change: Change) -> Any:
    """Return a copy of a JSON value with `change` applied to each object; DROPPED removes it."""
    if is_object(value):
        return change({
            key: item if key in ARGUMENTS else rewritten(item, change)
            for key, item in value.items()
        })
    if is_list(value):
        return [new for item in value if (new := rewritten(item, change)) is not DROPPED]
    return value


def is_assistants(message: Json) -> bool:
    return message.get("role") in ("assistant", "model") or message.get("type") == "function_call"


def add_white_space(block: Json) -> Json:
    for key in ("text", "content"):
        if isinstance(block.get(key), str) and "thought" not in block:
            block[key] += " \n"
    return block


def write_arguments_again(block: Json) -> Json:
    if isinstance(block.get("arguments"), str):
        arguments = json.loads(block["arguments"])
        block["arguments"] = json.dumps(dict(reversed(arguments.items())), separators=(",", ":"))
    return block


def drop_thinking(block: Json) -> Any:
    kinds = ("thinking", "redacted_thinking", "reasoning")
    if block.get("type") in kinds or block.get("thought") or "reasoningContent" in block:
        return DROPPED
    return {k: v for k, v in block.items() if k not in ("reasoning_content", "thoughtSignature")}


def rename_ids(block: Json) -> Json:
    keys = ("id", "tool_use_id", "tool_call_id", "call_id", "toolCallId", "toolUseId")
    is_own = not str(block.get("tool_use_id") or block.get("id")).startswith("srv")
    return {
        k: f"{v}x" if k in keys and isinstance(v, str) and is_own else v for k, v in block.items()
    }


def change_results(change: Callable[[str], str], block: Json) -> Json:
    """Return a copy of `block` with another text of its result, if it is the result of a call."""
    is_result = block.get("role") in ("tool", "toolResult") or "toolResult" in block
    is_result |= block.get("type") in ("tool_result", "function_call_output")
    keys = ("content", "output", "response", "text", "toolResult", "functionResponse")

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if is_list(value):
            return [changed(item) for item in value]
        if is_object(value):
            return {k: changed(v) if k in keys else v for k, v in value.items()}
        return value

    return changed(block) if is_result or "functionResponse" in block else block


def clear(text: str) -> str:
    return "[Old tool result content cleared]" if len(text) > 100 else text


def shorten(text: str) -> str:
    if len(text) <= 500:
        return text
    return f"{text[:300]}\n[... 900 characters truncated ...]\n{text[-200:]}"


REWRITES: dict[str, Change] = {
    "white space": add_white_space,
    "arguments": write_arguments_again,
    "thinking": drop_thinking,
    "ids": rename_ids,
    "cleared results": partial(change_results, clear),
    "shortened results": partial(change_results, shorten),
    "trimmed results": partial(change_results, str.rstrip),
}


async def summaries(format: str, edit: Edit, session_id: str | None = "s") -> set[str]:
    """Return the summaries of a loop in which the host passes an edited list at every call."""
    request = CompactRequest(
        format=format, session_id=session_id, context_window=9_000, max_output_tokens=500
    )
    whole = render([turn(number) for number in range(CALLS // 3)], format)
    stops = [
        n + 1 for n, m in enumerate(whole) if not is_assistants(m) and m.get("type") != "reasoning"
    ]
    found: set[str] = set()
    async with temporary_archive() as archive:
        for call, stop in enumerate(stops[:CALLS]):
            result = await compact(edit(call, whole[:stop]), request, archive=archive)
            assert problems(result.messages, format) == []
            found |= summaries_in(result.messages)
    return found


def edited(change: Change, span: slice, messages: Sequence[Json]) -> list[Json]:
    """Return `messages` with a change in those within `span`."""
    within = range(len(messages))[span]
    changed = [rewritten(m, change) if n in within else m for n, m in enumerate(messages)]
    return [message for message in changed if message is not DROPPED]


_plain: dict[str, int] = {}


@pytest.mark.parametrize("name", REWRITES)
@pytest.mark.parametrize("format", FORMATS)
async def test_rewritten_messages_cause_no_further_summary(format: str, name: str) -> None:
    if format not in _plain:
        _plain[format] = len(await summaries(format, lambda _call, messages: messages))
    assert _plain[format] >= 3
    change = REWRITES[name]

    def in_some_calls(call: int, messages: list[Json]) -> list[Json]:
        return edited(change, slice(1, 6 if call % 2 else 1), messages)

    def once_they_are_old(call: int, messages: list[Json]) -> list[Json]:
        return edited(change, slice(0, -4), messages)

    for edit in (in_some_calls, once_they_are_old):
        assert len(await summaries(format, edit)) <= _plain[format], edit.__name__
    if format == "anthropic":
        # Before the first compaction, the changed list may be another session.
        unnamed = await summaries(format, in_some_calls, session_id=None)
        assert len(unnamed) <= _plain[format] + 2


FULL = CompactRequest(format="anthropic", session_id="s", mode="full", target_tokens=2_000)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), name=st.sampled_from([*REWRITES]))
@EXAMPLES
def test_rewritten_conversation_gets_the_same_bytes(
    format: str, data: st.DataObject, name: str
) -> None:
    payload = data.draw(conversations(format))
    anyio.run(_check_same_bytes, payload, replace(FULL, format=format), REWRITES[name])


async def _check_same_bytes(payload: list[Json], request: CompactRequest, change: Change) -> None:
    async with temporary_archive() as archive:
        first = await compact(payload, request, archive=archive)
        if first.boundary is None:
            return
        again = edited(change, slice(0, None), payload)
        auto = replace(request, mode="auto", target_tokens=None, context_window=1_000_000)
        second = await compact(again, auto, archive=archive)
    assert second.recognised is not None
    assert summaries_in(second.messages) == summaries_in(first.messages)


def summaries_in(messages: Sequence[Json]) -> set[str]:
    return {text for text in map(json.dumps, messages) if "<context_summary" in text}


def other_words(block: Json) -> Json:
    keys = ("text", "content", "output", "command", "arguments")
    return {k: f"{v} zebra" if k in keys and isinstance(v, str) else v for k, v in block.items()}


OTHERS: dict[str, Change] = {
    "words": other_words,
    "short results": partial(change_results, lambda _: "ok"),
    "results of another run": partial(change_results, lambda text: text[: len(text) // 2]),
    "errors": partial(change_results, lambda _: "[2 tests failed]"),
    "other order": partial(
        change_results, lambda text: "\n".join(["[lines removed]", *reversed(text.splitlines())])
    ),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("format", FORMATS)
async def test_other_words_are_another_conversation(format: str, name: str) -> None:
    request = replace(FULL, format=format, session_id=None)
    payload = render([turn(number) for number in range(3)], format)
    async with temporary_archive() as archive:
        first = await compact(payload, request, archive=archive)
        assert first.boundary is not None
        for index in range(1, len(payload)):
            other = edited(OTHERS[name], slice(index, index + 1), payload)
            if other == payload or payload[index].get("type") == "reasoning":
                continue
            result = await compact(other, replace(request, mode="plan"), archive=archive)
            assert result.recognised is None, index
            named = replace(request, mode="plan", session_id=first.session_id)
            assert (await compact(other, named, archive=archive)).recognised is None, index


@pytest.mark.timeout(20)
def test_elements_of_a_host_are_compared_in_linear_time() -> None:
    def asked(text: str) -> Message:
        return Message("user", (Text(text),))

    open_tags, words = "<note><b>" * 100_000, "Fix it."
    assert has_same_request(asked(words + open_tags), asked(words + open_tags + "<X>clock</x>"))
    assert has_same_request(asked(words), asked(f"<a><b>1</b></a>{words}<clock>12:00</CLOCK>"))
    assert not has_same_request(asked(words), asked(f"<a>{words}"))
