"""The list of removed texts is correct in every format."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.readback import Removed, removed_texts
from tests.support.strategies import FORMATS, conversations, hostile_conversations

Json = dict[str, Any]


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
