"""A malformed message is refused by its index, with what is wrong and what would be right."""

import contextlib
import json
from typing import Any

import pytest
from context_compaction import formats
from context_compaction.errors import CompactionError, InvalidMessageError, UnknownFormatError
from context_compaction.formats.session_files.read import parse_file
from hypothesis import given, settings
from hypothesis import strategies as st

FINE: dict[str, Any] = {
    "anthropic": {"role": "user", "content": "hi"},
    "openai-chat": {"role": "user", "content": "hi"},
    "openai-responses": {"role": "user", "content": "hi"},
    "gemini": {"role": "user", "parts": [{"text": "hi"}]},
    "pi": {"role": "user", "content": "hi"},
    "bedrock-converse": {"role": "user", "content": [{"text": "hi"}]},
}


def _user(*blocks: object) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _says(**fields: object) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **fields}


def _call(**function: object) -> dict[str, Any]:
    return _says(tool_calls=[{"id": "c", "type": "function", "function": function}])


def _parts(*parts: object) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


ANTHROPIC: list[tuple[Any, str]] = [
    ("text", "the message is a string, not an object"),
    (None, "the message is null, not an object"),
    ({"content": "hi"}, "`role` is missing"),
    ({"role": 1, "content": "hi"}, "`role` is a number, not a string"),
    ({"role": "tool", "content": "hi"}, "the role 'tool' is unknown"),
    ({"role": "user"}, "`content` is missing"),
    ({"role": "user", "content": None}, "`content` is null, not an array"),
    ({"role": "user", "content": True}, "`content` is a boolean, not an array"),
    ({"role": "user", "content": {"type": "text"}}, "`content` is an object, not an array"),
    ({"role": "user", "content": float("nan")}, "`content` is a number, not an array"),
    (_user("hi"), "content[0] is a string, not an object"),
    (_user({"type": "text", "text": "a"}, {"text": "b"}), "content[1]: `type` is missing"),
    (_user({"type": "text"}), "content[0] (text): `text` is missing"),
    (_user({"type": "text", "text": 5}), "`text` is a number, not a string"),
    (_user({"type": "thinking", "thinking": None}), "`thinking` is null, not a string"),
    (_user({"type": "thinking", "thinking": "", "signature": 1}), "`signature` is not a string"),
    (_user({"type": "image"}), "`source` is null, not an object"),
    (_user({"type": "image", "source": {"type": "base64"}}), "`media_type` is missing"),
    (_user({"type": "tool_use", "name": "f", "input": {}}), "`id` is missing"),
    (_user({"type": "tool_use", "id": "", "name": "f", "input": {}}), "`id` is empty"),
    (_user({"type": "tool_use", "id": "t", "input": {}}), "`name` is missing"),
    (_user({"type": "tool_use", "id": "t", "name": "f", "input": "{}"}), "`input` is a string"),
    (_user({"type": "tool_result", "content": "x"}), "`tool_use_id` is missing"),
    (_user({"type": "tool_result", "tool_use_id": "t", "content": 3}), "`content` is a number"),
    (
        _user({"type": "tool_result", "tool_use_id": "t", "content": ["x"]}),
        "`content`[0] is a string, not an object",
    ),
    (_user({"type": "tool_result", "tool_use_id": "t", "is_error": "no"}), "`is_error` is not a b"),
]
CHAT: list[tuple[Any, str]] = [
    ([], "the message is an array, not an object"),
    ({"role": "robot", "content": "hi"}, "the role 'robot' is unknown"),
    ({"role": "user", "content": None}, "`content` is null"),
    ({"role": "user"}, "`content` is missing"),
    ({"role": "tool", "content": "x"}, "`tool_call_id` is missing"),
    ({"role": "tool", "tool_call_id": "c"}, "`content` is missing"),
    ({"role": "function", "content": "x"}, "`name` is missing"),
    (_user({"type": "image_url", "image_url": "https://x"}), "`image_url` is a string, not an o"),
    (_user({"type": "input_audio", "input_audio": {}}), "`data` is missing"),
    (_says(tool_calls={}), "`tool_calls` is an object, not an array"),
    (_says(tool_calls=["x"]), "tool_calls[0] is a string"),
    (_says(tool_calls=[{"type": "function"}]), "tool_calls[0]: `id` is missing"),
    (_says(tool_calls=[{"id": "c"}]), "tool_calls[0]: `function` is null"),
    (_call(arguments="{}"), "`name` is missing"),
    (_call(name="f", arguments={}), "`arguments` is an object, not a string"),
    (_call(name="f"), "`arguments` is missing"),
    (_says(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f"}}]), "`input` is mis"),
    (_says(function_call="f"), "`function_call` is a string"),
]
RESPONSES: list[tuple[Any, str]] = [
    ({}, "neither `type` nor `role`"),
    ({"type": 4}, "`type` is not a string"),
    ({"type": "message", "role": "tool", "content": "x"}, "the role 'tool' is unknown"),
    ({"type": "message", "role": "user"}, "`content` is missing"),
    ({"role": "user", "content": [{"type": "input_text"}]}, "`text` is missing"),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, "`call_id` is missing"),
    ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "`name` is missing"),
    ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "is an object"),
    ({"type": "function_call_output", "output": "x"}, "`call_id` is missing"),
    ({"type": "function_call_output", "call_id": "c"}, "`output` is null"),
    ({"type": "local_shell_call_output", "output": "x"}, "`id` is missing"),
    ({"type": "computer_call_output", "call_id": "c", "output": "x"}, "output is a string"),
    ({"type": "shell_call_output", "call_id": "c", "output": 1}, "`output` is a number"),
    ({"type": "reasoning", "summary": ["x"]}, "summary[0] is a string"),
]
GEMINI: list[tuple[Any, str]] = [
    ({"role": "assistant", "parts": []}, "the role 'assistant' is unknown"),
    ({"role": ["user"], "parts": []}, "is unknown in the format gemini"),
    ({"role": "user"}, "`parts` is null, not an array"),
    ({"role": "user", "parts": {"text": "x"}}, "`parts` is an object"),
    (_parts("hi"), "parts[0] is a string"),
    (_parts({}), "parts[0] is an empty object"),
    (_parts({"text": 3}), "`text` is a number"),
    (_parts({"functionCall": "f"}), "parts[0] (functionCall) is a string"),
    (_parts({"function_call": {"args": {}}}), "parts[0] (function_call): `name` is missing"),
    (_parts({"functionCall": {"name": "f", "args": "x"}}), "`args` is a string"),
    (_parts({"functionCall": {"name": "f", "id": 3}}), "`id` is a number"),
    (_parts({"functionResponse": {"response": {}}}), "`name` is missing"),
    (_parts({"functionResponse": {"name": "f", "response": "x"}}), "`response` is a string"),
    (_parts({"inlineData": {"data": "AA"}}), "`mimeType` is missing"),
    (_parts({"fileData": {"mimeType": "image/png"}}), "`fileUri` is missing"),
]
PI: list[tuple[Any, str]] = [
    ({"role": "system", "content": "x"}, "the role 'system' is unknown"),
    ({"role": "user"}, "`content` is missing"),
    ({"role": "assistant", "content": [{"type": "toolCall", "name": "f"}]}, "`id` is missing"),
    (
        {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "f"}]},
        "`arguments` is null, not an object",
    ),
    ({"role": "toolResult", "toolName": "f", "content": []}, "`toolCallId` is missing"),
    ({"role": "toolResult", "toolCallId": "c", "toolName": "f"}, "`content` is null"),
    ({"role": "bashExecution", "command": "ls"}, "`output` is missing"),
    ({"role": "compactionSummary"}, "`summary` is missing"),
    (_user({"type": "image", "data": "AA"}), "`mimeType` is missing"),
]
CONVERSE: list[tuple[Any, str]] = [
    ({"role": "system", "content": [{"text": "x"}]}, "the role 'system' is unknown"),
    ({"role": "user"}, "`content` is null, not an array"),
    ({"role": "user", "content": "hi"}, "`content` is a string, not an array"),
    (_user("hi"), "content[0] is a string"),
    (_user({}), "content[0] is an empty object"),
    (_user({"text": 3}), "content[0] (text): `text` is a number"),
    (_user({"guardContent": {"text": {"text": None}}}), "`text` is null"),
    (_user({"image": {"format": "png"}}), "`source` is null, not an object"),
    (_user({"image": {"format": "png", "source": {"bytes": b"PNG"}}}), "`bytes` is bytes"),
    (_user({"document": {"source": {"s3Location": {}}}}), "`uri` is missing"),
    (_user({"toolUse": {"name": "f", "input": {}}}), "`toolUseId` is missing"),
    (_user({"toolUse": {"toolUseId": "t", "input": {}}}), "`name` is missing"),
    (_user({"toolResult": {"content": []}}), "`toolUseId` is missing"),
    (_user({"toolResult": {"toolUseId": "t", "content": "x"}}), "`content` is a string"),
    (
        _user({"toolResult": {"toolUseId": "t", "content": [{"text": 1}]}}),
        "content[0] (toolResult): content[0] (text): `text` is a number",
    ),
    (_user({"reasoningContent": {"reasoningText": {}}}), "`text` is missing"),
    (_user({"reasoningContent": {"redactedContent": b"x"}}), "`redactedContent` is bytes"),
]
CASES = [
    (format, message, problem)
    for format, cases in {
        "anthropic": ANTHROPIC,
        "openai-chat": CHAT,
        "openai-responses": RESPONSES,
        "gemini": GEMINI,
        "pi": PI,
        "bedrock-converse": CONVERSE,
    }.items()
    for message, problem in cases
]


@pytest.mark.parametrize(("format", "message", "problem"), CASES)
def test_a_malformed_message_is_named_with_its_problem_and_a_remedy(
    format: str, message: Any, problem: str
) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        formats.parse([FINE[format], message], format=format)
    assert caught.value.index == 1
    assert problem in caught.value.problem
    assert caught.value.remedy.endswith(".")
    assert str(caught.value).startswith("Message 1: ")


@pytest.mark.parametrize(("format", "message", "problem"), CASES)
def test_it_is_refused_without_a_format_name_too(format: str, message: Any, problem: str) -> None:
    payload = [FINE[format], message]
    outcome = _outcome(payload)
    if isinstance(outcome, str):
        # What one format refuses may be right in another: then the list is in that one.
        assert outcome != format
        assert len(formats.parse(payload, format=outcome)) == 2
    else:
        assert "Message 1" in str(outcome)


def _outcome(payload: list[Any]) -> str | CompactionError:
    try:
        formats.parse(payload)
    except CompactionError as error:
        return error
    return formats.detect(payload)


_KEYS = st.sampled_from([
    "role", "content", "type", "text", "id", "name", "input", "tool_use_id", "source", "message",
    "tool_calls", "function", "arguments", "tool_call_id", "function_call", "call_id", "output",
    "summary", "parts", "functionCall", "functionResponse", "response", "inlineData", "toolCallId",
    "toolName", "command", "toolUse", "toolResult", "toolUseId", "cachePoint",
    "image", "document", "bytes", "reasoningContent", "reasoningText", "guardContent", "json",
    "payload", "parentId", "timestamp", "subtype", "messages", "encrypted",
])  # fmt: skip
_WORDS = st.sampled_from([
    "user", "assistant", "tool", "model", "toolResult", "text", "tool_use", "tool_result", "image",
    "function_call", "function_call_output", "computer_call_output", "shell_call_output",
    "reasoning", "thinking", "document", "session", "compaction", "session_meta", "response_item",
    "compacted", "bashExecution", "base64", "x",
])  # fmt: skip
_LEAVES = st.none() | st.booleans() | st.integers(0, 3) | _WORDS
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=10,
)
_ROWS = st.lists(st.dictionaries(_KEYS, _VALUES, max_size=5), min_size=1, max_size=3)


@given(_ROWS)
@settings(max_examples=200, deadline=None)
def test_no_input_makes_reading_fail_without_an_error_of_ours(rows: list[Any]) -> None:
    for format in (None, *formats.FORMATS):
        with contextlib.suppress(CompactionError):
            messages = formats.parse(rows, format=format)
            assert formats.render(messages, format=format or formats.detect(rows)) == rows
    with contextlib.suppress(CompactionError):
        assert parse_file("\n".join(map(json.dumps, rows)), name="file").messages


def test_a_first_message_that_is_no_message_gets_the_list_of_formats() -> None:
    with pytest.raises(UnknownFormatError, match=r"its fields are \['text', 'who'\].*gemini"):
        formats.parse([{"who": "me", "text": "hi"}])


def test_a_first_message_with_a_role_gets_its_own_problem() -> None:
    with pytest.raises(InvalidMessageError, match="Message 0: `content` is a number"):
        formats.parse([{"role": "user", "content": 5}])
