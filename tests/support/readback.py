"""Find the strings that a compaction removed from a conversation.

Tests use them to prove that nothing is lost: each string must be readable through the product's
tools. This module imports no code of the product.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .json_types import Json, is_list, is_object

Kind: TypeAlias = Literal["text", "result", "thinking", "arguments", "media", "other"]
_Strings: TypeAlias = Iterator[tuple[Kind, str]]

_RESULT_ROLES = {"tool", "toolResult", "function"}
# Fields that describe a block and are not its content.
_LABELS = {
    "type", "role", "id", "call_id", "tool_use_id", "tool_call_id", "toolCallId", "toolName",
    "name", "status", "signature", "thinkingSignature", "thoughtSignature", "encrypted_content",
    "media_type", "mimeType", "toolUseId", "cache_control", "detail", "filename",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Removed:
    """A string that a compaction removed from the content.

    Attributes:
        kind: Its kind; "other" is a string in a block of unknown type.
        text: The string: a text, a text part of a result, base64 data or a data URL as the host
            wrote it, or a string in a call's arguments.
        where: Position of its message in the original list, from 0.
    """

    kind: Kind
    text: str
    where: int


def removed_texts(before: list[Json], after: list[Json], format: str) -> list[Removed]:
    """Return the content strings of `before` that `after` does not contain as complete strings.

    A string that a message of `after` only quotes counts as removed. Each distinct string is
    returned once, with its first position. Empty strings are ignored.
    """
    reader = _READERS[format]
    remaining = {text for message in after for _, text in reader(message)}
    removed: dict[str, Removed] = {}
    for where, message in enumerate(before):
        for kind, text in reader(message):
            if text and text not in remaining:
                removed.setdefault(text, Removed(kind, text, where))
    return list(removed.values())


def _message(message: Json) -> _Strings:
    """Yield the strings of a message of Anthropic, Chat Completions or pi."""
    kind: Kind = "result" if message.get("role") in _RESULT_ROLES else "text"
    yield from _content(message.get("content"), kind)
    calls: list[Json] = message.get("tool_calls") or []
    for call in calls:
        yield from _arguments(call.get("function") or call.get("custom") or {})
    yield from _strings(message.get("reasoning_content"), "thinking")
    if message.get("role") == "bashExecution":
        yield from _strings(message.get("command"), "arguments")
        yield from _strings(message.get("output"), "result")


def _item(item: Json) -> _Strings:
    """Yield the strings of an item of the Responses API."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        yield from _content(item.get("content"), "text")
    elif kind == "reasoning":
        yield from _strings([item.get("summary"), item.get("content")], "thinking")
    elif kind.endswith("_call"):
        yield from _arguments(item)
    elif kind.endswith("_output"):
        yield from _content(item.get("output"), "result")
    else:
        yield from _strings(item, "other")


def _gemini_content(content: Json) -> _Strings:
    parts: list[Json] = content.get("parts") or []
    for part in parts:
        if "text" in part:
            yield ("thinking" if part.get("thought") else "text"), part["text"]
        elif "inlineData" in part:
            yield "media", part["inlineData"]["data"]
        elif "functionCall" in part:
            yield from _strings(part["functionCall"].get("args"), "arguments")
        elif "functionResponse" in part:
            response: Json = part["functionResponse"]
            yield from _strings([response.get("response"), response.get("parts")], "result")
        else:
            yield from _strings(part, "other")


def _converse_message(message: Json) -> _Strings:
    blocks: list[Json] = message.get("content") or []
    for block in blocks:
        yield from _converse_block(block, "text")


def _converse_block(block: Json, kind: Kind) -> _Strings:
    """Yield the strings of a block; `kind` is the kind of its plain text."""
    if "text" in block:
        yield kind, block["text"]
    elif "reasoningContent" in block:
        yield from _strings(block["reasoningContent"].get("reasoningText"), "thinking")
    elif "toolUse" in block:
        yield from _strings(block["toolUse"].get("input"), "arguments")
    elif "toolResult" in block:
        parts: list[Json] = block["toolResult"].get("content") or []
        for part in parts:
            yield from _converse_block(part, "result")
    elif "image" in block or "document" in block:
        media: Json = block.get("image") or block.get("document") or {}
        yield from _strings(media.get("source"), "media")
    elif "json" in block:
        yield from _strings(block["json"], kind)
    elif "cachePoint" not in block:
        yield from _strings(block, "other")


def _content(content: Any, kind: Kind) -> _Strings:
    """Yield the strings of a string or of blocks; `kind` is the kind of plain text."""
    if isinstance(content, str):
        yield kind, content
    elif is_list(content):
        for block in content:
            yield from _block(block, kind)


def _block(block: Json, kind: Kind) -> _Strings:
    name = str(block.get("type"))
    if name in {"text", "input_text", "output_text"}:
        yield kind, block["text"]
    elif name == "thinking":
        yield "thinking", block["thinking"]
    elif name in {"tool_use", "toolCall"}:
        yield from _arguments(block)
    elif name == "tool_result":
        yield from _content(block.get("content"), "result")
    elif name in {"image", "document"}:
        yield from _strings(block.get("source", block.get("data")), "media")
    elif name in {"image_url", "input_image", "file", "input_file"}:
        yield from _strings(block, "media")
    else:
        yield from _strings(block, "other")


def _arguments(call: Json) -> _Strings:
    """Yield every string in a call's arguments; the arguments themselves if they are no JSON."""
    for key in ("arguments", "input", "action"):
        value = call.get(key)
        if isinstance(value, str):
            with suppress(ValueError):  # Custom tools accept free text.
                value = json.loads(value)
        yield from _strings(value, "arguments")


def _strings(value: Any, kind: Kind) -> _Strings:
    """Yield every string in a JSON value, except labels."""
    if isinstance(value, str):
        yield kind, value
    elif is_list(value):
        for item in value:
            yield from _strings(item, kind)
    elif is_object(value):
        for key, item in value.items():
            if kind == "arguments" or key not in _LABELS:
                yield from _strings(item, kind)


_READERS: dict[str, Callable[[Json], _Strings]] = {
    "anthropic": _message,
    "openai-chat": _message,
    "pi": _message,
    "openai-responses": _item,
    "gemini": _gemini_content,
    "bedrock-converse": _converse_message,
}
