"""A list that has no provider's shape has no format."""

from collections.abc import Callable
from typing import Any

import pytest
from context_compaction import formats
from context_compaction.errors import InvalidMessageError, UnknownFormatError
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES
from tests.support.json_types import Json
from tests.support.strategies import FORMATS, conversations

USER: Json = {"role": "user", "content": "Audit the files."}
LIBRARIES: dict[str, tuple[list[Json], str]] = {
    "pydantic-ai": (
        [
            {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Audit."}]},
            {"kind": "response", "parts": [{"part_kind": "text", "content": "Done."}]},
        ],
        "pydantic-ai's own .*_map_messages",
    ),
    "LangChain, messages_to_dict": (
        [{"type": "human", "data": {"content": "Audit."}}, {"type": "ai", "data": {}}],
        "convert_to_openai_messages",
    ),
    "LangChain, model_dump": (
        [{"content": "Audit.", "additional_kwargs": {}, "type": "human", "id": None}],
        "convert_to_openai_messages",
    ),
    "LangChain, dumpd": (
        [{"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {}}],
        "convert_to_openai_messages",
    ),
    "Vercel, UIMessage": (
        [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Audit."}]}],
        "Vercel AI SDK's own",
    ),
    "Vercel, ModelMessage": (
        [
            USER,
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {}}],
            },
        ],
        "Message 1 .* Vercel AI SDK's own",
    ),
    "Haystack": (
        [{"role": "user", "meta": {}, "name": None, "content": [{"text": "Audit."}]}],
        "to_openai_dict_format",
    ),
    "LlamaIndex": (
        [{"role": "user", "blocks": [{"block_type": "text", "text": "Audit."}]}],
        "to_openai_message_dicts",
    ),
    "AutoGen": ([{"source": "user", "content": "Audit.", "type": "UserMessage"}], "its fields are"),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_list_of_an_agent_library_is_refused_with_the_way_to_convert_it(library: str) -> None:
    payload, remedy = LIBRARIES[library]

    with pytest.raises(UnknownFormatError, match=remedy):
        formats.detect(payload)


def _wrapped(message: Json) -> Json:
    return {"type": str(message.get("role", "item")), "data": message}


def _with_other_kinds(message: Json) -> Json:
    """Return the message with the kind of each block in another field."""

    def renamed(block: Any) -> Any:
        return {"variety": block.get("type", "text"), "body": str(block)}

    held: Json = {
        key: [renamed(block) for block in message[key]] if isinstance(message[key], list) else [{}]
        for key in ("content", "parts")
        if key in message
    }
    return {"author": message.get("role"), **held}


def _classes(message: Json) -> Json:
    return {"type": "ChatMessage", "source": message.get("role"), "content": str(message)}


SHAPES: list[Callable[[Json], Json]] = [_wrapped, _with_other_kinds, _classes]


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), shape=st.sampled_from(SHAPES))
@EXAMPLES
def test_detect_refuses_a_conversation_in_another_shape(
    format: str, data: st.DataObject, shape: Callable[[Json], Json]
) -> None:
    payload = data.draw(conversations(format))

    with pytest.raises((UnknownFormatError, InvalidMessageError)):
        formats.detect([shape(message) for message in payload])
