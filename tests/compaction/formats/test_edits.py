"""An edited message renders as a copy of the host's object that differs only in the edits."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from context_compaction import formats
from context_compaction.errors import InvalidMessageError
from context_compaction.messages.model import (
    Block,
    Image,
    JsonObject,
    Message,
    Text,
    ToolCall,
    ToolResult,
    edit_message,
    edit_result,
    make_message,
    tool_results,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import FORMATS, conversations, nested

VALID = {format: conversations(format) for format in FORMATS}
NOTE = "[cleared]"


def _edited(raw: JsonObject, format: str, change: Callable[[Block], Block | None]) -> JsonObject:
    """Return the raw message after `change` replaced each block, or removed it by None."""
    before = copy.deepcopy(raw)
    [message] = formats.parse([raw], format=format)
    changed = [change(block) for block in message.blocks]
    blocks = [block for block in changed if block is not None]
    [rendered] = formats.render((edit_message(message, blocks),), format=format)
    assert raw == before
    return rendered


def _clear(block: Block) -> Block:
    return edit_result(block, NOTE) if isinstance(block, ToolResult) else block


def _shorten(block: Block) -> Block:
    if isinstance(block, ToolCall):
        return replace(block, arguments={"clipped": "…"}, edited=True)
    return block


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_edited_message_renders_equal_when_its_blocks_are_unchanged(data: st.DataObject) -> None:
    format = data.draw(st.sampled_from(FORMATS))
    payload = data.draw(VALID[format])
    messages = formats.parse(payload, format=format)
    edited = tuple(edit_message(message, message.blocks) for message in messages)
    rendered = formats.render(edited, format=format)
    assert rendered == payload


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_cleared_results_are_parsed_as_their_placeholder(data: st.DataObject) -> None:
    format = data.draw(st.sampled_from(FORMATS))
    messages = formats.parse(data.draw(VALID[format]), format=format)
    cleared = tuple(
        edit_message(message, tuple(map(_clear, message.blocks))) for message in messages
    )
    again = formats.parse(formats.render(cleared, format=format), format=format)
    results = [result for message in again for result in tool_results(message)]
    assert all(result.content == (Text(NOTE),) for result in results)
    assert len(results) == sum(len(tool_results(message)) for message in messages)


RESULTS: list[tuple[str, JsonObject, list[str], Any]] = [
    (
        "anthropic",
        {
            "role": "user",
            "extra": 1,
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "long", "is_error": False,
                 "cache_control": {"type": "ephemeral"}},
                {"type": "hologram"},
            ],
        },
        ["content", "0", "content"],
        NOTE,
    ),
    (
        "openai-chat",
        {"role": "tool", "tool_call_id": "c", "content": "long", "name": "f", "agent": "main"},
        ["content"],
        NOTE,
    ),
    (
        "openai-responses",
        {"type": "function_call_output", "id": "fco", "call_id": "c", "output": "long",
         "status": "completed"},
        ["output"],
        NOTE,
    ),
    (
        "openai-responses",
        {"type": "shell_call_output", "call_id": "c", "max_output_length": 9, "output": [
            {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 2}}]},
        ["output"],
        [{"stdout": NOTE, "stderr": "", "outcome": {"type": "exit", "exit_code": 2}}],
    ),
    (
        "gemini",
        {"role": "user", "parts": [
            {"functionResponse": {"name": "f", "id": "1", "response": {"result": "long"}}},
            {"text": "and now?"}]},
        ["parts", "0", "functionResponse", "response"],
        {"result": NOTE},
    ),
    (
        "pi",
        {"role": "toolResult", "toolCallId": "c", "toolName": "bash", "details": {"x": 1},
         "isError": False, "timestamp": 5, "content": [{"type": "text", "text": "long"}]},
        ["content"],
        [{"type": "text", "text": NOTE}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("format", "raw", "path", "expected"), RESULTS)
def test_cleared_result_keeps_its_shape_and_other_fields(
    format: str, raw: JsonObject, path: list[str], expected: Any
) -> None:
    cleared: Any = copy.deepcopy(raw)
    holder = cleared
    for step in path[:-1]:
        holder = holder[int(step)] if step.isdigit() else holder[step]
    holder[path[-1]] = expected
    assert _edited(raw, format, _clear) == cleared


CALLS: list[tuple[str, JsonObject, JsonObject]] = [
    (
        "anthropic",
        {"role": "assistant", "id": "msg", "content": [
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": "x"}]},
        {"role": "assistant", "id": "msg", "content": [
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"clipped": "…"},
             "caller": "x"}]},
    ),
    (
        "openai-chat",
        {"role": "assistant", "content": None, "refusal": None, "audio": {"id": "au"},
         "tool_calls": [
            {"id": "c", "type": "function", "index": 0,
             "function": {"name": "f", "arguments": "{}", "x": 1}}]},
        {"role": "assistant", "content": None, "refusal": None, "audio": {"id": "au"},
         "tool_calls": [
            {"id": "c", "type": "function", "index": 0,
             "function": {"name": "f", "arguments": '{"clipped":"…"}', "x": 1}}]},
    ),
    (
        "openai-responses",
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "f",
         "arguments": '{"clipped":"…"}'},
    ),
    (
        "gemini",
        {"role": "model", "parts": [
            {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}]},
        {"role": "model", "parts": [
            {"functionCall": {"name": "f", "args": {"clipped": "…"}}, "thoughtSignature": "s"}]},
    ),
    (
        "pi",
        {"role": "assistant", "stopReason": "toolUse", "content": [
            {"type": "toolCall", "id": "c", "name": "f", "arguments": {}, "partialJson": ""}]},
        {"role": "assistant", "stopReason": "toolUse", "content": [
            {"type": "toolCall", "id": "c", "name": "f", "arguments": {"clipped": "…"},
             "partialJson": ""}]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("format", "raw", "expected"), CALLS)
def test_edited_arguments_are_rendered_in_the_shape_of_the_format(
    format: str, raw: JsonObject, expected: JsonObject
) -> None:
    assert _edited(raw, format, _shorten) == expected


def test_cleared_screenshot_becomes_a_blank_one_with_its_placeholder_after_it() -> None:
    output = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    raw = {"type": "computer_call_output", "call_id": "c", "output": output}
    [message] = formats.parse([raw], format="openai-responses")
    edited = edit_message(message, tuple(map(_clear, message.blocks)))
    shown, note = formats.render((edited,), format="openai-responses")
    assert shown["output"]["type"] == "computer_screenshot"
    assert shown["output"]["image_url"].startswith("data:image/png;base64,")
    assert shown["output"] != output
    assert note["content"] == [{"type": "input_text", "text": NOTE}]


def test_gemini_response_loses_its_images_when_it_is_cleared() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    response = {"name": "f", "response": {"output": "x"}, "parts": [picture]}
    raw = {"role": "user", "parts": [{"functionResponse": response}]}
    cleared = _edited(raw, "gemini", _clear)["parts"][0]["functionResponse"]
    assert cleared == {"name": "f", "response": {"output": NOTE}}

    def keep_picture(block: Block) -> Block:
        assert isinstance(block, ToolResult)
        images = tuple(part for part in block.content if isinstance(part, Image))
        return edit_result(block, (Text(NOTE), *images))

    edited = _edited(raw, "gemini", keep_picture)["parts"][0]["functionResponse"]
    assert edited["parts"] == [picture]


@pytest.mark.parametrize("format", FORMATS)
def test_added_block_is_rendered_next_to_the_hosts_own_blocks(format: str) -> None:
    key = "parts" if format == "gemini" else "content"
    own = {"type": "text", "text": "hi", "x": 1}
    if format in {"gemini", "bedrock-converse"}:
        del own["type"]
    raw = {"role": "user", key: [own], "y": 2}
    [message] = formats.parse([raw], format=format)
    [rendered] = formats.render(
        (edit_message(message, (*message.blocks, Text(NOTE))),), format=format
    )
    assert rendered[key][0] is own
    assert rendered[key][1]["text"] == NOTE
    assert rendered["y"] == 2


def test_text_next_to_a_result_becomes_a_separate_message() -> None:
    for raw in (
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "toolResult", "toolCallId": "c", "toolName": "f", "content": "x"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ):
        [message] = formats.parse([raw])
        format = formats.detect([raw])
        edited = edit_message(message, (*message.blocks, Text(NOTE)))
        first, second = formats.render((edited,), format=format)
        assert first is raw
        assert NOTE in json.dumps(second)
        assert formats.render((edit_message(message, ()),), format=format) == []


def test_rendering_is_refused_when_arguments_are_nested_too_deeply() -> None:
    deep = Message("assistant", (ToolCall("c", "f", nested(50_000)),))
    with pytest.raises(InvalidMessageError, match="Message 1: it nests too deeply"):
        formats.render((make_message("user", "hi"), deep), format="openai-chat")
