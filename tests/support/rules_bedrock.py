"""Rules of Bedrock's Converse API, independent of the product's rules.

If the models of the API differ, the rules of Claude apply, which is the strictest model.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from .json_types import Json, is_list, is_object

# "ContentBlock object at messages.0.content.0 can only set one of the following keys: ..."
_KINDS = {
    "text", "image", "toolUse", "toolResult", "document", "video", "audio", "cachePoint",
    "guardContent", "reasoningContent", "citationsContent", "searchResult",
}  # fmt: skip
_PART_KINDS = {"text", "json", "image", "document", "video", "searchResult"}
_MAX_CACHE_POINTS = 4
_TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_POINT = "cachePoint"
_THINKING = "reasoningContent"


def converse_problems(payload: list[Json], original: list[Json] | None) -> list[str]:
    """Return the problems of a list; see `provider_rules.problems`."""
    shape_problems = [*_shapes(payload)]
    if shape_problems:
        return shape_problems  # The other checks need roles and blocks.
    return [
        *_roles(payload),
        *_contents(payload),
        *_pairs(payload, original),
        *_ids(payload, original),
        *_cache_points(payload, original),
        *_thinking(payload, original),
    ]


def _shapes(payload: list[Json]) -> Iterator[str]:
    for index, message in enumerate(payload):
        # "Value 'system' at 'messages.1.member.role' failed to satisfy constraint: Member must
        # satisfy enum value set: [user, assistant]"
        if message.get("role") not in {"user", "assistant"}:
            yield f"message {index}: unknown role {message.get('role')!r}"
        content = message.get("content")
        # "The content field in the Message object at messages.0 is empty. Add a ContentBlock
        # object to the content field and try again."
        if not is_list(content) or not content:
            yield f"message {index}: no content"
            continue
        for block in content:
            yield from _block_shape(index, message.get("role"), block)


def _block_shape(index: int, role: Any, block: Any) -> Iterator[str]:
    if not is_object(block) or not block:
        yield f"message {index}: a block that is no object, or an empty one"
        return
    if len(_KINDS & block.keys()) > 1:
        yield f"message {index}: a block of two kinds"
    if not isinstance(block.get("text", ""), str):
        yield f"message {index}: a text that is no string"
    if "toolUse" in block:
        yield from _call_shape(index, role, block["toolUse"])
    if "toolResult" in block:
        yield from _result_shape(index, role, block["toolResult"])
    if _THINKING in block and role != "assistant":
        yield f"message {index}: reasoningContent in a message of role {role}"
    yield from _media_shape(index, block)


def _call_shape(index: int, role: Any, call: Json) -> Iterator[str]:
    if role != "assistant":
        yield f"message {index}: toolUse in a message of role {role}"
    if not isinstance(call.get("input"), dict) or not call.get("name"):
        yield f"message {index}: toolUse without a name or an object as input"


def _result_shape(index: int, role: Any, result: Json) -> Iterator[str]:
    if role != "user":
        yield f"message {index}: toolResult in a message of role {role}"
    if result.get("status", "success") not in {"success", "error"}:
        yield f"message {index}: toolResult with the status {result['status']!r}"
    parts = result.get("content")
    if not is_list(parts):
        yield f"message {index}: toolResult content is not a list"
        return
    # "The content field at messages.N.content.0.toolResult cannot be empty when status value is
    # error." (sample-multi-agent-orchestration-chat-on-agentcore #15)
    if not parts and result.get("status") == "error":
        yield f"message {index}: an empty toolResult that is an error"
    for part in parts:
        if len(_PART_KINDS & part.keys()) > 1:
            yield f"message {index}: a part of two kinds"
        # "Provide a json object for the field and try again." (aws-sdk-js-v3 #7330)
        if not isinstance(part.get("json", {}), dict):
            yield f"message {index}: json that is no object"


def _media_shape(index: int, block: Json) -> Iterator[str]:
    image, document = block.get("image"), block.get("document")
    if image and image.get("format") not in {"png", "jpeg", "gif", "webp"}:
        yield f"message {index}: an image in the format {image.get('format')!r}"
    if document and not document.get("name"):
        yield f"message {index}: a document without a name"
    media = image or document
    if media and len(media.get("source", {})) != 1:
        yield f"message {index}: a picture or document without one source"


def _roles(payload: list[Json]) -> Iterator[str]:
    # "A conversation must start with a user message. Try again with a conversation that starts
    # with a user message."
    if payload[0]["role"] != "user":
        yield "message 0: the first message is the assistant's"
    # "A conversation must alternate between user and assistant roles." (langchain-aws #192)
    for index, (before, after) in enumerate(pairwise(payload), 1):
        if before["role"] == after["role"]:
            yield f"message {index}: a second message of role {after['role']}"


def _contents(payload: list[Json]) -> Iterator[str]:
    """Check the contents: only texts in results may be empty (measured: hermes-agent #55092)."""
    for index, message in enumerate(payload):
        blocks = _content_blocks(message)
        if not blocks:
            yield f"message {index}: no content but cache points"
        # "The text field in the ContentBlock object at messages.0.content.0 is blank."
        if any("text" in block and not block["text"].strip() for block in blocks):
            yield f"message {index}: a text block without a visible character"
        # "You must include a text block with a document" (DocumentBlock's reference)
        has_text = any("text" in block for block in blocks)
        if any("document" in block for block in blocks) and not has_text:
            yield f"message {index}: a document without a text"
        # Claude: "the final block in an assistant message cannot be `thinking`"
        if message["role"] == "assistant" and blocks and _THINKING in blocks[-1]:
            yield f"message {index}: ends in reasoning"
    last = _content_blocks(payload[-1])
    # Claude: "final assistant content cannot end with trailing whitespace"
    if payload[-1]["role"] == "assistant" and last:
        text = last[-1].get("text", "")
        if text != text.rstrip():
            yield "the final assistant message ends in whitespace"


def _pairs(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    may_be_open = _ids_in(original[-1], "toolUse") if original else []
    before: Json = {}
    for index, message in enumerate(payload):
        calls, results = _ids_in(before, "toolUse"), _ids_in(message, "toolResult")
        # "Expected toolResult blocks at messages.2.content for the following Ids: ..."
        yield from (f"call {call} has no result after it" for call in set(calls) - set(results))
        # "The number of toolResult blocks at messages.2.content exceeds the number of toolUse
        # blocks of previous turn."
        yield from (f"result {id_} answers no call before it" for id_ in set(results) - set(calls))
        for id_, times in Counter(results).items():
            if times > 1:
                yield f"call {id_} has {times} results"
        # Claude requires results before other content.
        kinds = ["toolResult" in block for block in _content_blocks(message)]
        if kinds != sorted(kinds, reverse=True):
            yield f"message {index}: results follow other content"
        before = message
    # If two open calls had one ID, the second was renamed.
    is_open = _ids_in(before, "toolUse")
    if len(is_open) > len(may_be_open) or set(may_be_open) - set(is_open):
        yield from (f"call {call} at the end has no result" for call in is_open)


def _ids(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that new IDs are legal and unique; IDs of the original list are not checked."""
    known = {id_ for message in original or [] for id_ in _ids_in(message, "toolUse")}
    ids = [id_ for message in payload for id_ in _ids_in(message, "toolUse")]
    # Claude: "`tool_use` ids must be unique"
    yield from (f"call id {id_!r} comes {n} times" for id_, n in Counter(ids).items() if n > 1)
    for id_ in ids:
        if id_ not in known and not _TOOL_USE_ID.fullmatch(id_):
            yield f"call id {id_!r} has characters that are not allowed"


def _cache_points(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that there are at most four cache points, or as many as in the original list."""
    count = _point_count(payload)
    if count > max(_MAX_CACHE_POINTS, _point_count(original or [])):
        yield f"{count} cache points"
    for index, message in enumerate(payload):
        for before, after in pairwise(message["content"]):
            # "Cache point cannot be inserted after reasoning block." (opencode #36517)
            if _POINT in after and _THINKING in before:
                yield f"message {index}: a cache point after reasoning"


def _thinking(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that no reasoning follows the first difference from the original, as for Claude.

    Cache points may move.
    """
    if original is None:
        return
    before, after = _flat(original), _flat(payload)
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    for place, (index, _, block) in enumerate(after):
        if place >= same and _THINKING in block:
            yield f"message {index}: reasoning after something that was changed"


def _content_blocks(message: Json) -> list[Json]:
    """Return the blocks that are no cache points."""
    return [block for block in message.get("content", []) if _POINT not in block]


def _point_count(payload: list[Json]) -> int:
    return sum(_POINT in block for message in payload for block in message.get("content", []))


def _ids_in(message: Json, kind: str) -> list[str]:
    return [
        str(block[kind].get("toolUseId")) for block in _content_blocks(message) if kind in block
    ]


def _flat(payload: list[Json]) -> list[tuple[int, str, Json]]:
    return [
        (index, message["role"], block)
        for index, message in enumerate(payload)
        for block in _content_blocks(message)
    ]
