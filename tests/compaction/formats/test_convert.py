"""Converted messages are a valid list for the provider they go to, and say the same."""

import json

import pytest
from context_compaction import formats
from context_compaction.errors import InvalidMessageError, UnknownFormatError
from context_compaction.formats.convert import convert, split_system
from context_compaction.messages.model import (
    Document,
    Image,
    JsonObject,
    Message,
    Messages,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    make_message,
    tool_calls,
    tool_results,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.corpus import Transcript, all_transcripts, sample_transcripts
from tests.support.provider_rules import problems
from tests.support.strategies import FORMATS, conversations, nested

VALID = {format: conversations(format) for format in FORMATS}


def _said(messages: Messages) -> list[str]:
    """Texts of the conversation in order, results included, calls by their name."""
    said: list[str] = []
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Text):
                said.append(block.text)
            elif isinstance(block, ToolCall):
                said.append(block.name)
            elif isinstance(block, ToolResult):
                said.extend(part.text for part in block.content if isinstance(part, Text))
    return [text for text in said if text.strip()]


@pytest.mark.parametrize("to", FORMATS)
def test_every_valid_transcript_is_valid_in_every_format(to: str) -> None:
    valid = [found for found in all_transcripts() if not problems(found.payload, found.format)]
    assert len(valid) > 200
    for transcript in valid:
        messages = formats.parse(transcript.payload, format=transcript.format)
        rendered = formats.render(convert(messages, to=to), format=to)
        assert problems(rendered, to) == [], transcript.name


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("transcript", sample_transcripts(), ids=lambda found: found.name)
def test_what_was_said_is_still_said_after_a_conversion(transcript: Transcript, to: str) -> None:
    messages = formats.parse(transcript.payload, format=transcript.format)
    again = formats.parse(formats.render(convert(messages, to=to), format=to), format=to)
    _, spoken = split_system(messages)
    after = set(_said(again))
    assert [text for text in _said(spoken) if text not in after] == []
    for read in (tool_calls, tool_results):
        assert sum(len(read(m)) for m in again) == sum(len(read(m)) for m in messages)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_valid_list_is_valid_in_another_format(data: st.DataObject) -> None:
    format, to = data.draw(st.sampled_from(FORMATS)), data.draw(st.sampled_from(FORMATS))
    payload = data.draw(VALID[format])
    messages = formats.parse(payload, format=format)
    rendered = formats.render(convert(messages, to=to), format=to)
    waits = problems(payload, format) != []  # a last call may wait for its result
    assert waits or problems(rendered, to) == []
    assert formats.parse(rendered, format=to) or not rendered


def test_the_session_of_pi_keeps_its_defects_and_loses_its_empty_messages() -> None:
    [transcript] = [found for found in all_transcripts() if found.name == "pi/session"]
    messages = formats.parse(transcript.payload, format="pi")
    converted = convert(messages, to="anthropic")
    assert all(message.blocks for message in converted)
    assert sum(not message.blocks for message in messages) == 14
    found = problems(formats.render(converted, format="anthropic"), "anthropic")
    assert found != []
    assert all("has no result" in problem for problem in found)


def test_consecutive_replies_and_results_become_one_message_each() -> None:
    items: list[JsonObject] = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": "wait"},
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": "[1]"},
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {"type": "function_call_output", "call_id": "2", "output": "two"},
    ]
    converted = convert(formats.parse(items, format="openai-responses"), to="anthropic")
    assert converted == (
        make_message("user", "go"),
        Message(
            "assistant",
            (Text("wait"), ToolCall("1", "f", {}), ToolCall("2", "g", {"input": [1]})),
        ),
        Message(
            "user",
            (
                ToolResult("1", (Text("one"),), name="f"),
                ToolResult("2", (Text("two"),), name="g"),
            ),
        ),
    )


def test_system_messages_stay_in_openais_lists_and_become_labelled_text_elsewhere() -> None:
    messages = (make_message("system", "Be brief."), make_message("user", "hi"))
    for to in ("openai-chat", "openai-responses"):
        assert convert(messages, to=to) == messages
    for to in ("anthropic", "gemini", "pi"):
        assert convert(messages, to=to) == (
            make_message("user", "<system>\nBe brief.\n</system>"),
            make_message("user", "hi"),
        )


def test_system_text_can_be_taken_out_of_the_list() -> None:
    user = make_message("user", "hi")
    messages = (make_message("system", "One."), user, make_message("system", "Two."))
    assert split_system(messages) == ("One.\n\nTwo.", (user,))
    assert split_system((user,)) == ("", (user,))


def test_ids_that_a_provider_refuses_are_replaced_alike_in_call_and_result() -> None:
    odd = "call_aB|fc_0123456789012345678901234567890123456789"
    messages = (
        Message("assistant", (ToolCall(odd, "f", {}),)),
        Message("user", (ToolResult(odd, (Text("x"),)),)),
    )
    for to in ("anthropic", "openai-chat", "openai-responses"):
        [call] = tool_calls(convert(messages, to=to)[0])
        [result] = tool_results(convert(messages, to=to)[1])
        assert call.call_id == result.call_id
        assert call.call_id.replace("_", "a").replace("-", "a").isalnum()
        assert len(call.call_id) <= 40
        assert convert(messages, to=to) == convert(messages, to=to)


def test_an_id_that_comes_again_gets_a_number() -> None:
    turn = (
        Message("assistant", (ToolCall("c", "f", {}),)),
        Message("user", (ToolResult("c", (Text("x"),)),)),
        make_message("user", "again"),
    )
    converted = convert(turn * 3, to="anthropic")
    calls = [call.call_id for message in converted for call in tool_calls(message)]
    results = [result.call_id for message in converted for result in tool_results(message)]
    assert calls == results == ["c", "c_2", "c_3"]


def test_gemini_calls_without_ids_get_usual_ids_elsewhere_and_none_in_gemini() -> None:
    def call(name: str) -> JsonObject:
        return {"functionCall": {"name": name, "args": {}}}

    def response(name: str) -> JsonObject:
        return {"functionResponse": {"name": name, "response": {"output": name}}}

    payload: list[JsonObject] = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [call("a"), call("b")]},
        {"role": "user", "parts": [response("a"), response("b")]},
    ]
    messages = formats.parse(payload)
    assert formats.render(convert(messages, to="gemini"), format="gemini") == payload
    chat = formats.render(convert(messages, to="openai-chat"), format="openai-chat")
    assert [made["function"]["name"] for made in chat[1]["tool_calls"]] == ["a", "b"]
    assert problems(chat, "openai-chat") == []


def test_thinking_and_unknown_blocks_stay_only_where_they_came_from() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "é"}}
    text = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    raw: JsonObject = {"role": "assistant", "id": "msg", "content": [thinking, server, text]}
    messages = formats.parse([raw])
    [same] = formats.render(
        convert(messages, to="anthropic", origin="anthropic"), format="anthropic"
    )
    assert same == {
        "role": "assistant",
        "content": [thinking, server, {"type": "text", "text": "hi"}],
    }
    [other] = convert(messages, to="openai-chat", origin="anthropic")
    assert not any(isinstance(block, Thinking | Opaque) for block in other.blocks)
    assert json.loads(_said((other,))[0]) == server


def test_pictures_in_parallel_results_follow_all_tool_messages_in_chat() -> None:
    picture = Image("image/png", data="AAAA")
    messages = (
        Message("assistant", (ToolCall("a", "f", {}), ToolCall("b", "g", {}))),
        Message("user", (ToolResult("a", (Text("see"), picture)),)),
        Message("user", (ToolResult("b", (Text("ok"),)),)),
    )
    rendered = formats.render(convert(messages, to="openai-chat"), format="openai-chat")
    assert [message["role"] for message in rendered] == ["assistant", "tool", "tool", "user"]
    assert rendered[3]["content"][0]["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert problems(rendered, "openai-chat") == []


def test_what_the_assistant_shows_becomes_a_line_as_only_users_send_pictures() -> None:
    shown = Message("assistant", (Image("image/png", data="AAAA"), Document("text/x", text="t")))
    [message] = convert((shown,), to="anthropic")
    assert message.blocks == (Text("[image: image/png, 4 base64 characters]"), Text("t"))


def test_arguments_are_objects_afterwards() -> None:
    calls = tuple(
        ToolCall(f"c{n}", "f", given) for n, given in enumerate(({"a": 1}, "x", "", None))
    )
    [message] = convert((Message("assistant", calls),), to="gemini")
    assert [call.arguments for call in tool_calls(message)] == [{"a": 1}, {"input": "x"}, {}, {}]


def test_empty_messages_and_texts_are_dropped() -> None:
    messages = (
        Message("user", (Text(" \n"), Text("hi"))),
        Message("assistant", ()),
        Message("assistant", (Thinking("hm", "s"),)),
    )
    assert convert(messages, to="anthropic") == (make_message("user", "hi"),)


def test_a_block_that_nests_too_deeply_for_text_is_refused_by_index() -> None:
    deep = Opaque("hologram", {"type": "hologram", "x": nested(50_000)})
    messages = (make_message("user", "hi"), Message("user", (deep,)))
    with pytest.raises(InvalidMessageError, match="Message 1: it nests too deeply"):
        convert(messages, to="openai-chat")


def test_an_unknown_target_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownFormatError, match="anthropic"):
        convert((), to="claude")
