"""A malformed message is refused with its index, its problem and a remedy."""

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


def _assistant(**fields: object) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **fields}


def _call(**function: object) -> dict[str, Any]:
    return _assistant(tool_calls=[{"id": "c", "type": "function", "function": function}])


def _parts(*parts: object) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


ANTHROPIC: list[tuple[Any, str]] = [
    ("text", "the message is a string, not an object"),
    ({"content": "hi"}, "`role` is missing"),
    ({"role": "tool", "content": "hi"}, "the role 'tool' is unknown"),
    ({"role": "user", "content": None}, "`content` is null, not an array"),
    ({"role": "user", "content": {"type": "text"}}, "`content` is an object, not an array"),
    (_user("hi"), "content[0] is a string, not an object"),
    (_user({"type": "text"}), "content[0] (text): `text` is missing"),
    (_user({"type": "thinking", "thinking": None}), "`thinking` is null, not a string"),
    (_user({"type": "image"}), "`source` is null, not an object"),
    (_user({"type": "tool_use", "name": "f", "input": {}}), "`id` is missing"),
    (_user({"type": "tool_use", "id": "t", "input": {}}), "`name` is missing"),
    (_user({"type": "tool_result", "content": "x"}), "`tool_use_id` is missing"),
    (
        _user({"type": "tool_result", "tool_use_id": "t", "content": ["x"]}),
        "content[0] is a string, not an object",
    ),
    (_user({"type": "tool_result", "tool_use_id": "t", "is_error": "no"}), "`is_error` is not a b"),
]
CHAT: list[tuple[Any, str]] = [
    ([], "the message is an array, not an object"),
    ({"role": "user", "content": None}, "`content` is null"),
    ({"role": "tool", "content": "x"}, "`tool_call_id` is missing"),
    ({"role": "function", "content": "x"}, "`name` is missing"),
    (_user({"type": "input_audio", "input_audio": {}}), "`data` is missing"),
    (_assistant(tool_calls=["x"]), "tool_calls[0] is a string"),
    (_assistant(tool_calls=[{"id": "c"}]), "tool_calls[0]: `function` is null"),
    (_call(name="f", arguments={}), "`arguments` is an object, not a string"),
    (
        _assistant(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f"}}]),
        "`input` is mis",
    ),
]
RESPONSES: list[tuple[Any, str]] = [
    ({}, "neither `type` nor `role`"),
    ({"type": "message", "role": "tool", "content": "x"}, "the role 'tool' is unknown"),
    ({"role": "user", "content": [{"type": "input_text"}]}, "`text` is missing"),
    ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "`name` is missing"),
    ({"type": "function_call_output", "output": "x"}, "`call_id` is missing"),
    ({"type": "local_shell_call_output", "output": "x"}, "`id` is missing"),
    ({"type": "shell_call_output", "call_id": "c", "output": 1}, "`output` is a number"),
]
GEMINI: list[tuple[Any, str]] = [
    ({"role": "assistant", "parts": []}, "the role 'assistant' is unknown"),
    ({"role": "user"}, "`parts` is missing"),
    (_parts("hi"), "parts[0] is a string"),
    (_parts({"text": 3}), "`text` is a number"),
    (_parts({"function_call": {"args": {}}}), "parts[0] (function_call): `name` is missing"),
    (_parts({"functionCall": {"name": "f", "id": 3}}), "`id` is a number"),
    (_parts({"functionResponse": {"name": "f", "response": "x"}}), "`response` is a string"),
    (_parts({"fileData": {"mimeType": "image/png"}}), "`fileUri` is missing"),
]
PI: list[tuple[Any, str]] = [
    ({"role": "system", "content": "x"}, "the role 'system' is unknown"),
    (
        {"role": "assistant", "content": [{"type": "toolCall", "arguments": {}}]},
        "`id` is missing",
    ),
    (
        {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "f"}]},
        "`arguments` is null, not an object",
    ),
    ({"role": "toolResult", "toolCallId": "c", "toolName": "f"}, "`content` is missing"),
    ({"role": "compactionSummary"}, "`summary` is missing"),
]
CONVERSE: list[tuple[Any, str]] = [
    ({"role": "system", "content": [{"text": "x"}]}, "the role 'system' is unknown"),
    ({"role": "user", "content": "hi"}, "`content` is a string, not an array"),
    (_user({}), "content[0]: the block is an empty object"),
    (_user({"guardContent": {"text": {"text": None}}}), "`text` is null"),
    (_user({"image": {"format": "png", "source": {"bytes": b"PNG"}}}), "`bytes` is bytes"),
    (_user({"toolUse": {"name": "f", "input": {}}}), "`toolUseId` is missing"),
    (_user({"toolResult": {"content": []}}), "`toolUseId` is missing"),
    (
        _user({"toolResult": {"toolUseId": "t", "content": [{"text": 1}]}}),
        "content[0] (toolResult): content[0] (text): `text` is a number",
    ),
    (_user({"reasoningContent": {"reasoningText": {}}}), "`text` is missing"),
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
def test_malformed_message_is_refused_with_its_problem_and_a_remedy(
    format: str, message: Any, problem: str
) -> None:
    with pytest.raises(InvalidMessageError) as caught:
        formats.parse([FINE[format], message], format=format)
    assert caught.value.index == 1
    assert problem in caught.value.problem
    assert caught.value.remedy.endswith(".")
    assert str(caught.value).startswith("Message 1: ")


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
@settings(max_examples=80, deadline=None)
def test_parsing_raises_only_library_errors_when_the_input_is_odd(rows: list[Any]) -> None:
    for format in (None, *formats.FORMATS):
        with contextlib.suppress(CompactionError):
            messages = formats.parse(rows, format=format)
            assert formats.render(messages, format=format or formats.detect(rows)) == rows
    with contextlib.suppress(CompactionError):
        assert parse_file("\n".join(map(json.dumps, rows)), name="file").messages


def test_error_lists_all_formats_when_the_first_message_fits_none() -> None:
    with pytest.raises(UnknownFormatError, match=r"its fields are \['text', 'who'\].*gemini"):
        formats.parse([{"who": "me", "text": "hi"}])
