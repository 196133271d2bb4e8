"""History hashes: equal messages give equal hashes, whatever markers the host adds."""

import copy
import json
from hashlib import blake2b
from typing import Any

import pytest
from context_compaction import formats
from context_compaction.messages.raw import history_hash
from context_compaction.session.resume import derived_id
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json, is_list, is_object
from tests.support.strategies import FORMATS, conversations, well_formed_json

MARKER = {"type": "ephemeral"}
TEXT_TYPE = {"openai-responses": "input_text"}


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_history_hash_ignores_cache_markers_and_text_blocks(
    format: str, data: st.DataObject
) -> None:
    payload = data.draw(conversations(format))
    flags = st.lists(st.booleans(), min_size=len(payload), max_size=len(payload))
    marked = [
        _marked(message, format) if is_marked else message
        for message, is_marked in zip(payload, data.draw(flags), strict=True)
    ]
    assert history_hash(marked) == history_hash(payload)
    ids = {derived_id(formats.parse(messages, format=format)) for messages in (payload, marked)}
    assert len(ids) == 1


def test_history_hash_includes_an_argument_named_cache_control() -> None:
    def call(value: str) -> Json:
        use = {"type": "tool_use", "id": "a", "name": "put", "input": {"cache_control": value}}
        return {"role": "assistant", "content": [use]}

    assert history_hash([call("no-store")]) != history_hash([call("no-cache")])


@settings(max_examples=50, deadline=None)
@given(first=st.lists(st.text(), max_size=4), second=st.lists(st.text(), max_size=4))
def test_history_hash_differs_when_content_differs(first: list[str], second: list[str]) -> None:
    names = [history_hash([_content(word) for word in words]) for words in (first, second)]
    assert (names[0] == names[1]) == (first == second)


@settings(max_examples=60, deadline=None)
@given(value=well_formed_json(), number=st.floats(), words=st.text())
def test_history_hash_uses_sorted_ascii_json(value: Any, number: float, words: str) -> None:
    message = {"role": "user", "content": words, "z": value, "a": [number, "\x7f\u2028\ud800"]}
    written = json.dumps(message, sort_keys=True, separators=(",", ":"))
    known = blake2b(written.encode("ascii"), digest_size=16).hexdigest()
    assert history_hash([message]) == blake2b(known.encode("ascii"), digest_size=16).hexdigest()


def _content(words: str) -> Json:
    return {"role": "user", "content": words}


def _marked(message: Json, format: str) -> Json:
    """Return `message` as a host writes it after it added a cache marker."""
    marked = copy.deepcopy(message)
    content: Any = marked.get("content")
    if isinstance(content, str):
        content = marked["content"] = [{"type": TEXT_TYPE.get(format, "text"), "text": content}]
    if format == "bedrock-converse":
        content.append({"cachePoint": {"type": "default"}})
    elif is_list(content) and content and is_object(content[-1]):
        content[-1]["cache_control"] = MARKER
    else:
        marked["cache_control"] = MARKER
    return dict(reversed(marked.items()))
