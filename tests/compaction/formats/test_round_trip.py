"""Messages without edits render unchanged, and every format is detected from its shape."""

import copy

import pytest
from context_compaction import formats
from context_compaction.errors import InvalidMessageError, UnknownFormatError
from context_compaction.messages.model import (
    Document,
    Image,
    JsonObject,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    tool_calls,
    tool_results,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.corpus import Transcript, all_transcripts, sample_transcripts
from tests.support.strategies import FORMATS, conversations, hostile_conversations, nested

# Built once, because building a strategy takes longer than drawing from it.
VALID = {format: conversations(format) for format in FORMATS}
HOSTILE = {format: hostile_conversations(format) for format in FORMATS}


def _calling(arguments: JsonObject) -> JsonObject:
    call = {"type": "tool_use", "id": "t", "name": "ls", "input": arguments}
    return {"role": "assistant", "content": [call]}


@pytest.mark.parametrize("transcript", all_transcripts(), ids=lambda found: found.name)
def test_real_transcript_renders_as_the_hosts_own_objects(
    transcript: Transcript,
) -> None:
    messages = formats.parse(transcript.payload, format=transcript.format)
    rendered = formats.render(messages, format=transcript.format)
    assert all(after is before for after, before in zip(rendered, transcript.payload, strict=True))
    assert [message.index for message in messages] == list(range(len(messages)))


@pytest.mark.parametrize("transcript", sample_transcripts(), ids=lambda found: found.name)
def test_format_of_a_real_transcript_is_detected(transcript: Transcript) -> None:
    found = formats.detect(transcript.payload)
    ambiguous = all(
        message["role"] in {"user", "assistant"} and isinstance(message["content"], str)
        for message in transcript.payload
    )
    assert found == ("anthropic" if ambiguous else transcript.format)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_parse_and_render_leave_any_list_unchanged(data: st.DataObject) -> None:
    format = data.draw(st.sampled_from(FORMATS))
    payload = data.draw(VALID[format] | HOSTILE[format])
    before = copy.deepcopy(payload)
    rendered = formats.render(formats.parse(payload, format=format), format=format)
    assert all(after is own for after, own in zip(rendered, payload, strict=True))
    assert payload == before


@pytest.mark.parametrize("format", FORMATS)
@given(st.data())
@settings(max_examples=6, deadline=None)
def test_results_have_the_ids_of_their_calls_when_the_list_is_valid(
    format: str, data: st.DataObject
) -> None:
    payload = data.draw(VALID[format])
    messages = formats.parse(payload, format=format)
    calls = {call.call_id for message in messages for call in tool_calls(message)}
    results = {result.call_id for message in messages for result in tool_results(message)}
    assert results <= calls
    assert "" not in calls
    assert not calls or formats.detect(payload) == format


@pytest.mark.parametrize(
    ("extra", "format"),
    [
        ({"role": "system", "content": "Be brief."}, "openai-chat"),
        ({"role": "developer", "content": "Be brief."}, "openai-chat"),
        ({"role": "user", "content": "hi", "name": "Ada"}, "openai-chat"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, "openai-responses"),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, "openai-responses"),
        ({"id": "msg_123"}, "openai-responses"),
        ({"role": "assistant", "content": [], "stopReason": "aborted"}, "pi"),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
            "anthropic",
        ),
    ],
)
def test_format_is_detected_when_one_message_is_typical_of_it(
    extra: JsonObject, format: str
) -> None:
    assert formats.detect([{"role": "user", "content": "hi"}, extra]) == format


def test_messages_of_two_formats_are_refused_at_the_first_difference() -> None:
    payload: list[JsonObject] = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"type": "reasoning", "summary": []},
    ]
    with pytest.raises(InvalidMessageError) as caught:
        formats.parse(payload)
    assert caught.value.index == 1
    contents: list[JsonObject] = [
        {"role": "system", "content": "Be brief.", "tool_calls": None},
        _calling({}),
    ]
    with pytest.raises(UnknownFormatError, match=r"Message 1 fits no format.*openai-chat"):
        formats.parse(contents)


def test_empty_list_has_no_format_and_no_messages() -> None:
    with pytest.raises(UnknownFormatError, match="empty"):
        formats.detect([])
    assert formats.parse([]) == ()


def test_anthropic_blocks_are_parsed_by_type() -> None:
    server: JsonObject = {
        "type": "server_tool_use",
        "id": "srv_1",
        "name": "web_search",
        "input": {},
    }
    unknown = {"type": "hologram", "x": 1}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}
    [first, second] = formats.parse([
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "zzz"},
                {"type": "text", "text": "hi", "citations": []},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}},
                server,
                unknown,
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "a", "is_error": True},
                {"type": "document", "source": pdf},
                {"type": "document", "source": {"type": "text", "data": "plain"}},
                {"type": "document", "source": {"type": "file", "file_id": "f"}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                {"type": "image", "source": {"type": "file", "file_id": "f"}},
            ],
        },
    ])
    assert first.blocks == (
        Thinking("hm", "s"),
        Thinking("", "zzz"),
        Text("hi"),
        ToolCall("t1", "ls", {"path": "."}),
        Opaque("server_tool_use", server),
        Opaque("hologram", unknown),
    )
    result, *media = second.blocks
    assert result == ToolResult("t1", (Text("a"),), is_error=True)
    assert [type(block) for block in media] == [Document, Document, Opaque, Image, Opaque]


def test_chat_parts_fields_and_calls_become_blocks() -> None:
    [user, assistant, tool] = formats.parse(
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                    {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}},
                    {"type": "file", "file": {"file_data": "data:application/pdf;base64,CC"}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "refusal": "no",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "function": {"name": "g", "arguments": "{broken"}},
                    {"id": "c", "type": "custom", "custom": {"name": "h", "input": "1"}},
                    {"id": "d", "function": {"name": "i", "arguments": '{"x": NaN}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "ok"}]},
        ],
        format="openai-chat",
    )
    assert user.blocks[:4] == (
        Image("image/png", data="AAAA"),
        Image("image/*", url="https://x/y.png"),
        Document("audio/mp3", data="BBBB"),
        Document("application/pdf", data="CC"),
    )
    assert isinstance(user.blocks[4], Opaque)
    assert assistant.blocks == (
        Thinking("hm"),
        Opaque("refusal", {"refusal": "no"}),
        ToolCall("a", "f", {}),
        ToolCall("b", "g", "{broken"),
        ToolCall("c", "h", "1"),
        ToolCall("d", "i", '{"x": NaN}'),
    )
    assert (tool.role, tool.blocks) == ("user", (ToolResult("a", (Text("ok"),)),))


def test_older_function_call_is_matched_by_order_and_name() -> None:
    payload: list[JsonObject] = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "one"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": None},
    ]
    messages = formats.parse(payload)
    first = tool_calls(messages[0])[0].call_id
    assert tool_results(messages[1])[0].call_id == first
    assert tool_results(messages[3])[0].call_id == tool_calls(messages[2])[0].call_id != first
    assert formats.parse(payload) == messages


def test_parallel_gemini_calls_are_matched_by_name_and_order_when_they_have_no_ids() -> None:
    def call(name: str) -> JsonObject:
        return {"functionCall": {"name": name, "args": {}}}

    def response(name: str, text: str) -> JsonObject:
        return {"functionResponse": {"name": name, "response": {"output": text}}}

    messages = formats.parse([
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [call("read"), call("list"), call("read")]},
        {
            "role": "user",
            "parts": [response("list", "l"), response("read", "1"), response("read", "2")],
        },
        {"role": "function", "parts": [response("read", "of no call")]},
    ])
    read_1, listed, read_2 = [made.call_id for made in tool_calls(messages[1])]
    assert [result.call_id for result in tool_results(messages[2])] == [listed, read_1, read_2]
    assert tool_results(messages[3])[0].call_id not in {read_1, listed, read_2, ""}


def test_gemini_parts_are_parsed_in_both_spellings() -> None:
    blocks = [
        formats.parse([{"role": "model", "parts": parts}])[0].blocks
        for parts in (
            [
                {"functionCall": {"id": "1", "name": "f"}},
                {"inlineData": {"mimeType": "image/png", "data": "AA"}},
                {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://x"}},
                {"text": "hm", "thought": True, "thoughtSignature": "s"},
                {"executableCode": {"code": "1"}},
            ],
            [
                {"function_call": {"id": "1", "name": "f"}},
                {"inline_data": {"mime_type": "image/png", "data": "AA"}},
                {"file_data": {"mime_type": "application/pdf", "file_uri": "gs://x"}},
                {"text": "hm", "thought": True, "thought_signature": "s"},
                {"executable_code": {"code": "1"}},
            ],
        )
    ]
    assert blocks[0][:4] == (
        ToolCall("1", "f", {}),
        Image("image/png", data="AA"),
        Document("application/pdf", url="gs://x"),
        Thinking("hm", "s"),
    )
    assert blocks[0][:4] == blocks[1][:4]
    assert isinstance(blocks[1][4], Opaque)


def test_responses_items_become_one_message_each() -> None:
    payload: list[JsonObject] = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}],
         "encrypted_content": "e"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "free"},
        {"type": "local_shell_call", "call_id": "3", "action": {"command": ["ls"]}},
        {"type": "shell_call", "call_id": "4", "action": {"commands": ["ls"]}},
        {"type": "computer_call", "call_id": "5", "action": {"type": "screenshot"}},
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "2",
         "output": [{"type": "input_text", "text": "two"}]},
        {"type": "local_shell_call_output", "id": "3", "output": "three"},
        {"type": "shell_call_output", "call_id": "4",
         "output": [{"stdout": "fo", "stderr": "ur", "outcome": {"type": "exit", "exit_code": 0}}]},
        {"type": "computer_call_output", "call_id": "5",
         "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}},
        {"type": "web_search_call", "id": "w"},
        {"id": "msg_1"},
        {"type": "brand_new_item"},
    ]  # fmt: skip
    messages = formats.parse(payload, format="openai-responses")
    assert messages[1].blocks == (Thinking("hm", "e"),)
    assert [tool_calls(message)[0] for message in messages[2:7]] == [
        ToolCall("1", "f", {"a": 1}),
        ToolCall("2", "g", "free"),
        ToolCall("3", "local_shell", {"command": ["ls"]}),
        ToolCall("4", "shell", {"commands": ["ls"]}),
        ToolCall("5", "computer", {"type": "screenshot"}),
    ]
    assert [tool_results(message)[0].content for message in messages[7:12]] == [
        (Text("one"),),
        (Text("two"),),
        (Text("three"),),
        (Text("fo\nur"),),
        (Image("image/png", data="AA"),),
    ]
    kinds = [block.kind for message in messages[12:] for block in message.blocks
             if isinstance(block, Opaque)]  # fmt: skip
    assert kinds == ["web_search_call", "item_reference", "brand_new_item"]


def test_message_is_refused_only_when_it_is_nested_too_deeply() -> None:
    payload = [_calling(nested(190))]
    [message] = formats.render(formats.parse(payload), format="anthropic")
    assert message is payload[0]
    with pytest.raises(InvalidMessageError, match="Message 0: it nests too deeply"):
        formats.parse([_calling(nested(50_000))])
