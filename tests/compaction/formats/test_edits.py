"""An edited message is written from a copy of the host's own: only what was edited differs."""

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
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    Text,
    Thinking,
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
    """The one raw message that `raw` becomes when each block is changed, or dropped on None."""
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


def _only_calls(block: Block) -> Block | None:
    return block if isinstance(block, ToolCall) else None


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_message_marked_as_edited_but_equal_is_written_equal(data: st.DataObject) -> None:
    format = data.draw(st.sampled_from(FORMATS))
    payload = data.draw(VALID[format])
    messages = formats.parse(payload, format=format)
    edited = tuple(edit_message(message, message.blocks) for message in messages)
    rendered = formats.render(edited, format=format)
    assert rendered == payload


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_cleared_results_are_read_back_as_what_replaced_them(data: st.DataObject) -> None:
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
        "anthropic",
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [
                    {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
            ],
        },
        ["content", "0", "content"],
        [{"type": "text", "text": NOTE}],
    ),
    (
        "openai-chat",
        {"role": "tool", "tool_call_id": "c", "content": "long", "name": "f", "agent": "main"},
        ["content"],
        NOTE,
    ),
    (
        "openai-chat",
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "long"}]},
        ["content"],
        [{"type": "text", "text": NOTE}],
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
        {"type": "custom_tool_call_output", "call_id": "c", "output": [
            {"type": "input_text", "text": "long"}]},
        ["output"],
        [{"type": "input_text", "text": NOTE}],
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
        "gemini",
        {"role": "function", "parts": [
            {"function_response": {"name": "f", "response": {"rows": [1, 2], "ok": True}}}]},
        ["parts", "0", "function_response", "response"],
        {"output": NOTE},
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
def test_a_cleared_result_keeps_its_shape_and_all_other_fields(
    format: str, raw: JsonObject, path: list[str], expected: Any
) -> None:
    wanted: Any = copy.deepcopy(raw)
    place = wanted
    for step in path[:-1]:
        place = place[int(step)] if step.isdigit() else place[step]
    place[path[-1]] = expected
    assert _edited(raw, format, _clear) == wanted


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
        "openai-chat",
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "custom", "custom": {"name": "f", "input": "free text"}}]},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "custom",
             "custom": {"name": "f", "input": '{"clipped":"…"}'}}]},
    ),
    (
        "openai-chat",
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "content": None,
         "function_call": {"name": "f", "arguments": '{"clipped":"…"}'}},
    ),
    (
        "openai-responses",
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "f",
         "arguments": '{"clipped":"…"}'},
    ),
    (
        "openai-responses",
        {"type": "apply_patch_call", "call_id": "c", "operation": {"diff": "+"}},
        {"type": "apply_patch_call", "call_id": "c", "operation": {"clipped": "…"}},
    ),
    (
        "gemini",
        {"role": "model", "parts": [
            {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}]},
        {"role": "model", "parts": [
            {"functionCall": {"name": "f", "args": {"clipped": "…"}}, "thoughtSignature": "s"}]},
    ),
    (
        "gemini",
        {"role": "model", "parts": [{"function_call": {"id": "1", "name": "f", "args": {}}}]},
        {"role": "model", "parts": [
            {"function_call": {"id": "1", "name": "f", "args": {"clipped": "…"}}}]},
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
def test_edited_arguments_are_written_in_the_formats_own_way(
    format: str, raw: JsonObject, expected: JsonObject
) -> None:
    assert _edited(raw, format, _shorten) == expected


def test_text_that_replaces_a_string_stays_a_string() -> None:
    for format in ("anthropic", "openai-chat", "openai-responses", "pi"):
        raw = {"role": "user", "content": "long", "x": 1}
        rendered = _edited(raw, format, lambda _: Text(NOTE))
        assert rendered == {"role": "user", "content": NOTE, "x": 1}


def test_text_that_replaces_a_block_keeps_the_blocks_other_fields() -> None:
    raw: JsonObject = {
        "role": "assistant",
        "content": [{"type": "text", "text": "long", "citations": [1], "cache_control": {}}],
    }

    def rewrite(block: Block) -> Block:
        assert isinstance(block, Text)
        return replace(block, text=NOTE, edited=True)

    rendered = _edited(raw, "anthropic", rewrite)
    assert rendered["content"] == [{**raw["content"][0], "text": NOTE}]


def test_a_dropped_thinking_block_leaves_the_others_as_they_were() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    redacted = {"type": "redacted_thinking", "data": "zzz"}
    call: JsonObject = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    raw: JsonObject = {"role": "assistant", "content": [thinking, redacted, call]}
    rendered = _edited(raw, "anthropic", _only_calls)
    assert rendered == {"role": "assistant", "content": [call]}
    assert rendered["content"][0] is call


def test_dropped_thinking_and_refusal_leave_their_chat_fields() -> None:
    call: JsonObject = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    raw: JsonObject = {
        "role": "assistant",
        "content": [{"type": "text", "text": "x"}],
        "reasoning_content": "hm",
        "refusal": "no",
        "tool_calls": [call],
    }
    rendered = _edited(raw, "openai-chat", _only_calls)
    assert rendered == {"role": "assistant", "content": None, "tool_calls": [call]}


def test_edited_thinking_keeps_its_kind() -> None:
    def rewrite(block: Block) -> Block:
        assert isinstance(block, Thinking)
        return replace(block, signature="new", edited=True)

    raw: JsonObject = {
        "role": "assistant",
        "content": [
            {"type": "redacted_thinking", "data": "old"},
            {"type": "thinking", "thinking": "", "signature": "old"},
        ],
    }
    assert _edited(raw, "anthropic", rewrite)["content"] == [
        {"type": "redacted_thinking", "data": "new"},
        {"type": "thinking", "thinking": "", "signature": "new"},
    ]
    item: JsonObject = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "old"}
    assert _edited(item, "openai-responses", rewrite) == {**item, "encrypted_content": "new"}


def test_a_long_command_output_of_pi_is_edited_alone() -> None:
    raw = {"role": "bashExecution", "command": "make", "output": "long", "exitCode": 0}
    [message] = formats.parse([raw], format="pi")
    command, _ = message.blocks
    edited = edit_message(message, (command, Text(NOTE)))
    assert formats.render((edited,), format="pi") == [{**raw, "output": NOTE}]


def test_a_cleared_screenshot_stays_one_and_its_pointer_follows() -> None:
    output = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    raw = {"type": "computer_call_output", "call_id": "c", "output": output}
    [message] = formats.parse([raw], format="openai-responses")
    edited = edit_message(message, tuple(map(_clear, message.blocks)))
    shown, note = formats.render((edited,), format="openai-responses")
    assert shown["output"]["type"] == "computer_screenshot"
    assert shown["output"]["image_url"].startswith("data:image/png;base64,")
    assert shown["output"] != output
    assert note["content"] == [{"type": "input_text", "text": NOTE}]


def test_a_gemini_response_loses_its_pictures_when_it_is_cleared() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    response = {"name": "f", "response": {"output": "x"}, "parts": [picture]}
    raw = {"role": "user", "parts": [{"functionResponse": response}]}
    cleared = _edited(raw, "gemini", _clear)["parts"][0]["functionResponse"]
    assert cleared == {"name": "f", "response": {"output": NOTE}}

    def keep_picture(block: Block) -> Block:
        assert isinstance(block, ToolResult)
        kept = tuple(part for part in block.content if isinstance(part, Image))
        return edit_result(block, (Text(NOTE), *kept))

    kept = _edited(raw, "gemini", keep_picture)["parts"][0]["functionResponse"]
    assert kept["parts"] == [picture]


@pytest.mark.parametrize("format", FORMATS)
def test_a_block_added_to_a_hosts_message_is_written_fresh_beside_the_others(format: str) -> None:
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


FRESH = (
    make_message("user", "go"),
    Message("assistant", (Text("ok"), ToolCall("a", "f", {"x": 1}), ToolCall("b", "g", {}))),
    Message(
        "user",
        (
            ToolResult("a", (Text("1"),), name="f"),
            ToolResult("b", (Text("2"),), True, "g"),
            Text("well?"),
        ),
    ),
)


def test_messages_of_our_own_are_written_in_each_format() -> None:
    assert formats.render(FRESH, format="anthropic") == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "g", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True},
            {"type": "text", "text": "well?"}]},
    ]  # fmt: skip
    assert formats.render(FRESH, format="openai-chat") == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "ok", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "well?"},
    ]  # fmt: skip
    assert formats.render(FRESH, format="openai-responses") == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "well?"}]},
    ]  # fmt: skip
    assert formats.render(FRESH, format="gemini") == [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [
            {"text": "ok"},
            {"functionCall": {"id": "a", "name": "f", "args": {"x": 1}}},
            {"functionCall": {"id": "b", "name": "g", "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "a", "name": "f", "response": {"output": "1"}}},
            {"functionResponse": {"id": "b", "name": "g", "response": {"error": "2"}}},
            {"text": "well?"}]},
    ]  # fmt: skip
    assert formats.render(FRESH, format="bedrock-converse") == [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [
            {"text": "ok"},
            {"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": 1}}},
            {"toolUse": {"toolUseId": "b", "name": "g", "input": {}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}},
            {"toolResult": {"toolUseId": "b", "content": [{"text": "2"}], "status": "error"}},
            {"text": "well?"}]},
    ]  # fmt: skip
    assert formats.render(FRESH, format="pi") == [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "ok"},
            {"type": "toolCall", "id": "a", "name": "f", "arguments": {"x": 1}},
            {"type": "toolCall", "id": "b", "name": "g", "arguments": {}}]},
        {"role": "toolResult", "toolCallId": "a", "toolName": "f", "isError": False,
         "content": [{"type": "text", "text": "1"}]},
        {"role": "toolResult", "toolCallId": "b", "toolName": "g", "isError": True,
         "content": [{"type": "text", "text": "2"}]},
        {"role": "user", "content": [{"type": "text", "text": "well?"}]},
    ]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_pictures_and_files_of_our_own_are_read_back(format: str) -> None:
    message = Message(
        "user",
        (
            Image("image/png", data="AAAA"),
            Image("image/png", url="https://x/y.png"),
            Document("application/pdf", data="BBBB"),
            Document("text/plain", text="plain"),
            Document("application/pdf", url="https://x/y.pdf"),
        ),
    )
    rendered = formats.render((message,), format=format)
    assert json.loads(json.dumps(rendered)) == rendered
    read = [block for again in formats.parse(rendered, format=format) for block in again.blocks]
    assert read[0] == Image("image/png", data="AAAA")
    assert len(read) == 5
    for needle in ("BBBB", "plain", "https://x/y.png", "https://x/y.pdf"):
        # pi has no files: a line says what stood there.
        assert needle in json.dumps(rendered) or format == "pi"


def test_an_unnamed_call_that_we_answer_gets_a_response_without_an_id() -> None:
    call: JsonObject = {"functionCall": {"name": "f", "args": {}}}
    messages = formats.parse([{"role": "model", "parts": [call]}])
    [made] = messages[0].blocks
    assert isinstance(made, ToolCall)
    answer = Message("user", (ToolResult(made.call_id, (Text("none"),)),))
    [_, rendered] = formats.render((*messages, answer), format="gemini")
    assert rendered["parts"] == [
        {"functionResponse": {"name": "f", "response": {"output": "none"}}}
    ]


def test_an_edited_opaque_block_is_written_as_it_is() -> None:
    for format in FORMATS:
        block = Opaque("hologram", {"type": "hologram", "x": 1}, edited=True)
        [rendered] = formats.render((Message("user", (block,)),), format=format)
        assert json.dumps(block.source) in json.dumps(rendered)


def test_thinking_of_our_own_is_written_where_a_format_has_it() -> None:
    message = Message("assistant", (Thinking("hm", "s"), Text("hi")))
    written = {
        "anthropic": {"type": "thinking", "thinking": "hm", "signature": "s"},
        "openai-chat": {"reasoning_content": "hm"},
        "openai-responses": {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "s",
        },
        "gemini": {"text": "hm", "thought": True, "thoughtSignature": "s"},
        "pi": {"type": "thinking", "thinking": "hm", "thinkingSignature": "s"},
        "bedrock-converse": {
            "reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}
        },
    }
    for format, block in written.items():
        rendered = formats.render((message,), format=format)
        assert json.dumps(block).strip("{}") in json.dumps(rendered)


def test_sound_of_our_own_is_written_for_chat_as_sound() -> None:
    message = Message("user", (Document("audio/wav", data="AAAA"),))
    assert formats.render((message,), format="openai-chat")[0]["content"] == [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    ]


def test_an_older_function_call_that_we_answer_gets_a_function_message() -> None:
    raw = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    messages = formats.parse([raw], format="openai-chat")
    [made] = messages[0].blocks
    assert isinstance(made, ToolCall)
    answer = Message("user", (ToolResult(made.call_id, (Text("none"),)),))
    [_, rendered] = formats.render((*messages, answer), format="openai-chat")
    assert rendered == {"role": "function", "name": "f", "content": "none"}


def test_text_beside_a_result_goes_to_a_message_of_its_own() -> None:
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


def test_a_summary_of_pi_is_edited_in_its_own_field() -> None:
    raw = {"role": "compactionSummary", "summary": "long", "tokensBefore": 9}
    rendered = _edited(raw, "pi", lambda _: Text(NOTE))
    assert rendered == {**raw, "summary": NOTE}


def test_arguments_that_nest_too_deeply_are_refused_by_index_when_they_are_written() -> None:
    deep = Message("assistant", (ToolCall("c", "f", nested(50_000)),))
    with pytest.raises(InvalidMessageError, match="Message 1: it nests too deeply"):
        formats.render((make_message("user", "hi"), deep), format="openai-chat")


def test_arguments_that_are_text_are_written_as_that_text() -> None:
    call = Message("assistant", (ToolCall("c", "f", "{broken"),))
    [chat] = formats.render((call,), format="openai-chat")
    assert chat["tool_calls"][0]["function"]["arguments"] == "{broken"
    [item] = formats.render((call,), format="openai-responses")
    assert item["arguments"] == "{broken"


def test_a_part_of_a_message_item_is_edited_in_place() -> None:
    raw: JsonObject = {"role": "user", "content": [
        {"type": "input_text", "text": "long", "x": 1},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
    ]}  # fmt: skip

    def change(block: Block) -> Block:
        if isinstance(block, Text):
            return replace(block, text=NOTE, edited=True)
        assert isinstance(block, Image)
        return replace(block, url="https://x/small.png", edited=True)

    assert _edited(raw, "openai-responses", change)["content"] == [
        {"type": "input_text", "text": NOTE, "x": 1},
        {"type": "input_image", "image_url": "https://x/small.png", "detail": "low"},
    ]
