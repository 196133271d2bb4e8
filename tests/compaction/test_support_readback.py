"""The list of removed texts is correct in every format."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.corpus import sample_transcripts
from tests.support.readback import Removed, removed_texts
from tests.support.strategies import FORMATS, conversations, hostile_conversations
from tests.support.synthetic import synthetic_session

Json = dict[str, Any]


def test_unchanged_conversation_has_no_removed_texts() -> None:
    for transcript in sample_transcripts():
        assert removed_texts(transcript.payload, transcript.payload, transcript.format) == []


def test_a_cleared_result_names_each_of_its_parts() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iV"}}
    parts = [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]
    before = [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a", "content": parts}]}]  # fmt: skip
    after = [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a", "content": "cleared: one, two"}]}]  # fmt: skip
    found = removed_texts(before, after, "anthropic")
    assert Removed("result", "one", 0) in found
    assert Removed("result", "two", 0) in found
    assert Removed("media", "iV", 0) in found


def test_clipped_arguments_and_stripped_thinking_are_named() -> None:
    call = {"type": "tool_use", "id": "a", "name": "Write", "input": {"path": "p", "content": "cc"}}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    clipped = {**call, "input": {"path": "p", "content": "c…"}}
    found = removed_texts(
        [{"role": "assistant", "content": [thinking, call]}],
        [{"role": "assistant", "content": [clipped]}],
        "anthropic",
    )
    assert found == [Removed("thinking", "hm", 0), Removed("arguments", "cc", 0)]


def test_arguments_in_a_json_string_are_read_string_by_string() -> None:
    def call(arguments: str) -> Json:
        function = {"name": "f", "arguments": arguments}
        return {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]}

    before = [call(json.dumps({"path": "p", "content": "a\nb"}))]
    after = [call(json.dumps({"content": "…", "path": "p"}))]
    assert removed_texts(before, after, "openai-chat") == [Removed("arguments", "a\nb", 0)]
    assert removed_texts([call("no json")], [], "openai-chat") == [
        Removed("arguments", "no json", 0)
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_every_removed_text_occurs_in_the_original_conversation(format: str) -> None:
    @settings(max_examples=10, deadline=None)
    @given(conversations(format))
    def holds(conversation: list[Json]) -> None:
        raw = json.dumps(conversation, ensure_ascii=False)
        for removed in removed_texts(conversation, [], format):
            # Arguments may be a JSON string inside the JSON.
            once = json.dumps(removed.text, ensure_ascii=False)[1:-1]
            twice = json.dumps(json.dumps(removed.text), ensure_ascii=False)[3:-3]
            assert once in raw or twice in raw
        assert removed_texts(conversation, conversation, format) == []

    holds()


@pytest.mark.parametrize("format", FORMATS)
def test_dropped_message_is_reported_unless_another_has_the_same_text(format: str) -> None:
    @settings(max_examples=10, deadline=None)
    @given(hostile_conversations(format), st.integers(0, 50))
    def holds(conversation: list[Json], place: int) -> None:
        dropped = place % max(1, len(conversation))
        remaining = conversation[:dropped] + conversation[dropped + 1 :]
        removed_words = {removed.text for removed in removed_texts(conversation, remaining, format)}
        all_texts = {removed.text for removed in removed_texts(conversation, [], format)}
        remaining_texts = {removed.text for removed in removed_texts(remaining, [], format)}
        assert removed_words == all_texts - remaining_texts

    holds()


def test_a_synthetic_session_is_the_same_for_the_same_seed_and_of_the_size_asked_for() -> None:
    session = synthetic_session(50_000, seed=7)
    assert session == synthetic_session(50_000, seed=7)
    assert session != synthetic_session(50_000, seed=8)
    assert 50_000 <= len(json.dumps(session)) / 4 < 80_000
