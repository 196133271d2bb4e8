"""Format archived messages as plain text for people and models: texts, calls and results.

Signatures, usage figures, encoded data and terminal colours are omitted; the JSON lines of a
message contain every byte. No text is truncated.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from context_compaction import (
    FORMATS,
    TERMINAL_CODE,
    Block,
    Document,
    Image,
    InvalidMessageError,
    JsonObject,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_encoded,
    is_list,
    is_object,
    role_of,
    tool_calls,
)

from mcp_server_compaction.protocol.sessions import iso_time

# A longer diff replaces all lines, because comparing takes time proportional to their square.
_MAX_COMPARED_LINES = 200
_MAX_LIST_CHARS = 400  # a longer list has one line for each item
_OLD, _NEW = "old", "new"  # prefixes of the arguments of edits: old_string, oldText, old_str, …


def message_texts(rows: Iterable[tuple[str, str, JsonObject, float | None]]) -> list[str]:
    """Return the text of each message: a heading and its blocks.

    Args:
        rows: Name in the heading, format, JSON object and Unix time of each message.
    """
    tool_names: dict[str, str] = {}
    return [_message_text(*row, tool_names) for row in rows]


def _message_text(
    name: str, format: str, raw: JsonObject, seconds: float | None, tool_names: dict[str, str]
) -> str:
    """Return the text of a message, and add the names of its calls to `tool_names` by call ID."""
    time = "" if seconds is None else f" {iso_time(seconds)}"
    try:
        message = FORMATS[format].parse_message(raw, 0)
    except InvalidMessageError:  # invalid messages are archived, too
        return "".join(f"{line}\n" for line in (f"[{name}]{time}", *_value_lines("message", raw)))
    tool_names |= {call.call_id: call.name for call in tool_calls(message)}
    lines = [f"[{name}] {role_of(message)}{time}"]
    for block in message.blocks:
        lines += _block_lines(block, tool_names)
    return TERMINAL_CODE.sub("", "".join(f"{line}\n" for line in lines))


def block_text(block: Block) -> str:
    """Return the content of a block without its heading; for a call, its arguments."""
    match block:
        case Text() | Thinking():
            return block.text
        case ToolCall():
            return "\n".join(_argument_lines(block.arguments))
        case ToolResult():
            return "\n".join(map(block_text, block.content))
        case Opaque():
            return json.dumps(block.source, ensure_ascii=False, indent=2)
        case Image() | Document():
            return "\n".join(_block_lines(block, {}))


def _block_lines(block: Block, tool_names: Mapping[str, str]) -> list[str]:
    match block:
        case Text():
            return _lines(block.text)
        case Thinking():
            return ["(thinking)", *_lines(block.text), "(end of thinking)"] if block.text else []
        case ToolCall():
            return [f"> {block.name} {block.call_id}".rstrip(), *_argument_lines(block.arguments)]
        case ToolResult():
            tool = block.name or tool_names.get(block.call_id, "")
            heading = " ".join(word for word in ("< result", tool, block.call_id) if word)
            lines = [line for part in block.content for line in _block_lines(part, tool_names)]
            return [f"{heading}, an error" if block.is_error else heading, *lines]
        case Image():
            return [f"({block.media_type or 'image'} {block.url or ''}".rstrip() + ")"]
        case Document():
            heading = f"({block.media_type or 'document'} {block.url or ''}".rstrip() + ")"
            return [heading, *_lines(block.text or "")]
        case Opaque():
            fields = {k: _without_encoded(v) for k, v in block.source.items() if k != "type"}
            return [f"({block.kind})", *_argument_lines(fields)]


def _without_encoded(value: Any) -> Any:
    """Return a JSON value in which a length replaces each encoded string."""
    if is_object(value):
        return {key: _without_encoded(item) for key, item in value.items()}
    if is_list(value):
        return [_without_encoded(item) for item in value]
    if isinstance(value, str) and is_encoded(value):
        return f"({len(value):,} encoded characters; read them as JSON)"
    return value


def _argument_lines(arguments: Any) -> list[str]:
    """Return the arguments of a call, short ones on one line each, and edits as diffs."""
    if not is_object(arguments):
        return _value_lines("", arguments)
    edits = edited_texts(arguments)
    new_keys = {*edits.values()}
    lines: list[str] = []
    for key, value in arguments.items():
        if key in edits:
            new_key = edits[key]
            lines += [f"{key} -> {new_key}:", *diff_lines(value, arguments[new_key])]
        elif key not in new_keys:
            lines += _value_lines(key, value)
    return lines


def edited_texts(arguments: JsonObject) -> dict[str, str]:
    """Return each argument with an old text, and the argument with the new text for it."""
    return {
        key: new_key
        for key in arguments
        if key.startswith(_OLD)
        and isinstance(arguments[key], str)
        and isinstance(arguments.get(new_key := _NEW + key.removeprefix(_OLD)), str)
    }


def _value_lines(name: str, value: Any) -> list[str]:
    """Return a named value: on one line, or on its own lines if it contains line breaks."""
    heading = f"{name}: " if name else ""
    if isinstance(value, str):
        lines = _lines(value)
        if len(lines) < 2:
            return [f"{heading}{value}"]
        return [f"{name}:", *lines] if name else lines
    if is_object(value) and _has_lines(value):
        return [f"{name}:", *_argument_lines(value)] if name else _argument_lines(value)
    if is_list(value) and (_has_lines(value) or len(json.dumps(value)) > _MAX_LIST_CHARS):
        return [line for n, item in enumerate(value) for line in _value_lines(f"{name}[{n}]", item)]
    return [heading + json.dumps(value, ensure_ascii=False)]


def _has_lines(value: Any) -> bool:
    """Whether a value contains a string with a line break, or an edit."""
    if isinstance(value, str):
        return "\n" in value
    if is_object(value):
        return any(key.startswith(_OLD) for key in value) or any(map(_has_lines, value.values()))
    return is_list(value) and any(map(_has_lines, value))


def diff_lines(old: str, new: str) -> Iterator[str]:
    """Yield every line of both texts: common lines after " ", removed after "-", added after "+".

    Only the part between the common first and last lines is compared.
    """
    before, after = _lines(old), _lines(new)
    start = shared_count(before, after)
    end_count = shared_count(before[start:][::-1], after[start:][::-1])
    stop = len(before) - end_count
    yield from (f" {line}" for line in before[:start])
    yield from _changes(before[start:stop], after[start : len(after) - end_count])
    yield from (f" {line}" for line in before[stop:])


def shared_count(before: Sequence[object], after: Sequence[object]) -> int:
    """Return how many items at the start of both sequences are equal."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(before), len(after)))


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    if len(before) + len(after) <= _MAX_COMPARED_LINES:
        # All lines are the context of one change, below three lines of headings.
        lines = difflib.unified_diff(before, after, n=len(before), lineterm="")
        yield from islice(lines, 3, None)
    else:
        yield from (f"-{line}" for line in before)
        yield from (f"+{line}" for line in after)


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []
