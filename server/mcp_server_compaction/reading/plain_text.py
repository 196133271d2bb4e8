"""Archived messages as a person or a model reads them: texts, calls and results.

Signatures, usage, encodings and the colours of a terminal stay out; the JSON lines, which can be
asked for, have every byte. No text is cut.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

# More changed lines are not compared, because that takes time in proportion to their square.
_MAX_COMPARED_LINES = 200
_MAX_LIST_CHARS = 400  # on one line; the items of a longer list have lines of their own
_OLD, _NEW = "old", "new"  # how the arguments of edits begin: old_string, oldText, old_str, …


def plain_text(rows: Iterable[tuple[str, str, JsonObject, float | None]]) -> str:
    """Messages, each a heading and its blocks, with a blank line between them.

    Args:
        rows: See `message_texts`.
    """
    return "\n".join(message_texts(rows))


def message_texts(rows: Iterable[tuple[str, str, JsonObject, float | None]]) -> list[str]:
    """Of each message its text: one line as heading, and its blocks.

    Args:
        rows: Of each message its name in the heading, its format, itself, and its time.
    """
    names: dict[str, str] = {}
    return [_message_text(*row, names) for row in rows]


def _message_text(
    name: str, format: str, raw: JsonObject, seconds: float | None, names: dict[str, str]
) -> str:
    """One message; `names` learns the tools of its calls, by call id, for later results."""
    when = "" if seconds is None else f" {iso_time(seconds)}"
    try:
        message = FORMATS[format].parse_message(raw, 0)
    except InvalidMessageError:  # damaged input is archived too
        return "".join(f"{line}\n" for line in (f"[{name}]{when}", *_value_lines("message", raw)))
    names |= {call.call_id: call.name for call in tool_calls(message)}
    lines = [f"[{name}] {role_of(message)}{when}"]
    for block in message.blocks:
        lines += _block_lines(block, names)
    return TERMINAL_CODE.sub("", "".join(f"{line}\n" for line in lines))


def block_text(block: Block) -> str:
    """The content of a block, without the line that names its kind; a call as its arguments."""
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


def _block_lines(block: Block, names: Mapping[str, str]) -> list[str]:
    match block:
        case Text():
            return _lines(block.text)
        case Thinking():
            return ["(thinking)", *_lines(block.text), "(end of thinking)"] if block.text else []
        case ToolCall():
            return [f"> {block.name} {block.call_id}".rstrip(), *_argument_lines(block.arguments)]
        case ToolResult():
            tool = block.name or names.get(block.call_id, "")
            heading = " ".join(word for word in ("< result", tool, block.call_id) if word)
            inner = [line for part in block.content for line in _block_lines(part, names)]
            return [f"{heading}, an error" if block.is_error else heading, *inner]
        case Image():
            return [f"({block.media_type or 'image'} {block.url or ''}".rstrip() + ")"]
        case Document():
            shown = f"({block.media_type or 'document'} {block.url or ''}".rstrip() + ")"
            return [shown, *_lines(block.text or "")]
        case Opaque():
            members = {
                key: _readable(value) for key, value in block.source.items() if key != "type"
            }
            return [f"({block.kind})", *_argument_lines(members)]


def _readable(value: Any) -> Any:
    """A JSON value with a length in place of each encoded text."""
    if is_object(value):
        return {key: _readable(item) for key, item in value.items()}
    if is_list(value):
        return [_readable(item) for item in value]
    if isinstance(value, str) and is_encoded(value):
        return f"({len(value):,} encoded characters: the JSON has them)"
    return value


def _argument_lines(arguments: Any) -> list[str]:
    """The arguments of a call, a line each where they are short; an edit as a diff."""
    if not is_object(arguments):
        return _value_lines("", arguments)
    # By the name of the old text the name of the new one.
    edits = {
        key: new
        for key in arguments
        if key.startswith(_OLD)
        and isinstance(arguments[key], str)
        and isinstance(arguments.get(new := _NEW + key.removeprefix(_OLD)), str)
    }
    shown = {*edits.values()}
    lines: list[str] = []
    for key, value in arguments.items():
        if key in edits:
            new = edits[key]
            lines += [f"{key} -> {new}:", *diff_lines(value, arguments[new])]
        elif key not in shown:
            lines += _value_lines(key, value)
    return lines


def _value_lines(name: str, value: Any) -> list[str]:
    """A value with its name: on one line where it has no line breaks, else in lines of its own."""
    heading = f"{name}: " if name else ""
    if isinstance(value, str):
        lines = _lines(value)
        if len(lines) < 2:
            return [f"{heading}{value}"]
        return [f"{name}:", *lines] if name else lines
    if is_object(value) and _has_lines(value):
        return [f"{name}:", *_argument_lines(value)] if name else _argument_lines(value)
    if is_list(value) and (_has_lines(value) or len(json.dumps(value)) > _MAX_LIST_CHARS):
        return [
            line for at, item in enumerate(value) for line in _value_lines(f"{name}[{at}]", item)
        ]
    return [heading + json.dumps(value, ensure_ascii=False)]


def _has_lines(value: Any) -> bool:
    """Whether a value contains a text with a line break, or an edit."""
    if isinstance(value, str):
        return "\n" in value
    if is_object(value):
        return any(key.startswith(_OLD) for key in value) or any(map(_has_lines, value.values()))
    return is_list(value) and any(map(_has_lines, value))


def diff_lines(old: str, new: str) -> Iterator[str]:
    """Every line of both texts: " " before one that stays, "-" and "+" before the others."""
    before, after = _lines(old), _lines(new)
    start = shared_count(before, after)
    same_end = shared_count(before[start:][::-1], after[start:][::-1])
    stop = len(before) - same_end
    yield from (f" {line}" for line in before[:start])
    yield from _changes(before[start:stop], after[start : len(after) - same_end])
    yield from (f" {line}" for line in before[stop:])


def shared_count(before: Sequence[object], after: Sequence[object]) -> int:
    """How many items, as lines or messages, both begin with."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))


def _changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    opcodes: Sequence[tuple[str, int, int, int, int]]
    opcodes = [("replace", 0, len(before), 0, len(after))]
    if len(before) + len(after) <= _MAX_COMPARED_LINES:
        opcodes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for kind, i, j, k, m in opcodes:
        if kind == "equal":
            yield from (f" {line}" for line in before[i:j])
        else:
            yield from (f"-{line}" for line in before[i:j])
            yield from (f"+{line}" for line in after[k:m])


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []
