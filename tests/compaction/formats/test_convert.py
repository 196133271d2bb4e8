"""Converted messages are valid for their new provider and have the same content."""

import json

import pytest
from context_compaction import formats
from context_compaction.errors import InvalidMessageError
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


def _texts_of(messages: Messages) -> list[str]:
    """Return the texts of the conversation in order, with results and with names of calls."""
    texts: list[str] = []
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Text):
                texts.append(block.text)
            elif isinstance(block, ToolCall):
                texts.append(block.name)
            elif isinstance(block, ToolResult):
                texts.extend(part.text for part in block.content if isinstance(part, Text))
    return [text for text in texts if text.strip()]


@pytest.mark.parametrize("to", FORMATS)
def test_converted_transcript_is_valid_in_every_format(to: str) -> None:
    valid = [found for found in all_transcripts() if not problems(found.payload, found.format)]
    assert len(valid) > 200
    for transcript in valid:
        messages = formats.parse(transcript.payload, format=transcript.format)
        rendered = formats.render(convert(messages, to=to), format=to)
        assert problems(rendered, to) == [], transcript.name


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("transcript", sample_transcripts(), ids=lambda found: found.name)
def test_conversion_keeps_texts_calls_and_results(transcript: Transcript, to: str) -> None:
    messages = formats.parse(transcript.payload, format=transcript.format)
    again = formats.parse(formats.render(convert(messages, to=to), format=to), format=to)
    _, turns = split_system(messages)
    after = set(_texts_of(again))
    assert [text for text in _texts_of(turns) if text not in after] == []
    for read in (tool_calls, tool_results):
        assert sum(len(read(m)) for m in again) == sum(len(read(m)) for m in messages)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_converted_list_is_valid_when_the_original_is(data: st.DataObject) -> None:
    format, to = data.draw(st.sampled_from(FORMATS)), data.draw(st.sampled_from(FORMATS))
    payload = data.draw(VALID[format])
    messages = formats.parse(payload, format=format)
    rendered = formats.render(convert(messages, to=to), format=to)
    is_waiting = problems(payload, format) != []  # The last call may have no result yet.
    assert is_waiting or problems(rendered, to) == []
    assert formats.parse(rendered, format=to) or not rendered


def test_system_message_becomes_labelled_text_when_the_format_has_none_in_its_list() -> None:
    messages = (make_message("system", "Be brief."), make_message("user", "hi"))
    for to in ("openai-chat", "openai-responses"):
        assert convert(messages, to=to) == messages
    for to in ("anthropic", "gemini", "pi"):
        assert convert(messages, to=to) == (
            make_message("user", "<system>\nBe brief.\n</system>"),
            make_message("user", "hi"),
        )


def test_thinking_and_unknown_blocks_stay_only_when_the_target_is_the_origin() -> None:
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
    assert json.loads(_texts_of((other,))[0]) == server


def test_media_becomes_text_when_the_assistant_sends_it() -> None:
    shown = Message("assistant", (Image("image/png", data="AAAA"), Document("text/x", text="t")))
    [message] = convert((shown,), to="anthropic")
    assert message.blocks == (Text("[image: image/png, 4 base64 characters]"), Text("t"))


def test_conversion_is_refused_when_a_block_is_nested_too_deeply() -> None:
    deep = Opaque("hologram", {"type": "hologram", "x": nested(50_000)})
    messages = (make_message("user", "hi"), Message("user", (deep,)))
    with pytest.raises(InvalidMessageError, match="Message 1: it nests too deeply"):
        convert(messages, to="openai-chat")
