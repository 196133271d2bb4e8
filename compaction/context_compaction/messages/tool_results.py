"""Tool results on their way out of the context: their text, their blobs, what replaces them."""

import json
import re
from collections.abc import Sequence
from typing import Any

from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, make_blob
from context_compaction.messages.model import (
    Document,
    Image,
    Message,
    Messages,
    Opaque,
    Part,
    Text,
    ToolCall,
    ToolResult,
    text_of,
    tool_results,
)
from context_compaction.messages.speakers import user_texts

JSON_MEDIA_TYPE = "application/json"
# What hosts answer in place of a call that the user refused.
_REFUSED = re.compile(
    r".{0,80}\b(?:user (?:doesn't want|does not want|rejected|denied|declined|refused)"
    r"|(?:rejected|denied|declined|refused) by (?:the )?user)\b",
    re.IGNORECASE,
)
# And how Claude Code, OpenCode and Cline hand on what the user said with it; what Claude Code says
# itself in the same place is not the user's.
_SAID_WITH_IT = re.compile(
    r"(?:the user said|reason for the rejection|following feedback):\s*+(?:<feedback>)?"
    r"(?!The user wants to clarify these questions\.)",
    re.IGNORECASE,
)
_SAID_ENDS = ("</feedback>", "\n\nNote: The user's next message may contain ")


def newest_results(messages: Messages) -> range:
    """The newest messages that carry results: the answers to the newest call.

    A host may send texts of its own between and behind them: system messages and reminders.
    """
    start = stop = len(messages)
    at = len(messages)
    while at and (messages[at - 1].role != "assistant" or _is_filler(messages[at - 1])):
        at -= 1
        if messages[at].role == "user" and tool_results(messages[at]):
            start, stop = at, (at + 1 if start == len(messages) else stop)
        elif user_texts(messages[at]):
            break
    return range(start, stop)


def _is_filler(message: Message) -> bool:
    """Whether a repair put `message` between two of one role."""
    return len(message.blocks) == 1 and text_of(message.blocks) == placeholders.NO_CONTENT


def result_chars(result: ToolResult) -> int:
    """Characters of all parts, media as their base64 text."""
    return sum(len(_part_text(part)) for part in result.content)


def result_text(result: ToolResult) -> str:
    """The text parts of a result, joined by newlines."""
    if len(result.content) == 1 and isinstance(result.content[0], Text):
        return result.content[0].text  # mostly, and everybody asks for it
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def full_text_of(message: Message) -> str:
    """The text of a message, its tool results included."""
    parts = (
        block.content if isinstance(block, ToolResult) else (block,) for block in message.blocks
    )
    return "\n".join(filter(None, map(text_of, parts)))


def refusal_comment(result: ToolResult) -> str | None:
    """What the user said with a refusal of the call, on one line, by what the host says.

    "" where that was nothing; None where the user refused nothing.
    """
    text = result_text(result)
    if not _REFUSED.match(text):
        return None
    found = _SAID_WITH_IT.search(text, 0, 400)
    said = text[found.end() :] if found else ""
    for end in _SAID_ENDS:
        said = said.partition(end)[0]
    return " ".join(said.split())


def result_blobs(
    result: ToolResult, tool_name: str, parts: Sequence[Part] | None = None
) -> tuple[Blob, ...]:
    """One blob for each part that holds anything: text as it is, the rest as its JSON."""
    return tuple(
        make_blob(
            _part_text(part),
            media_type="text/plain" if isinstance(part, Text) else JSON_MEDIA_TYPE,
            tool_name=tool_name,
            call_id=result.call_id,
        )
        for part in (result.content if parts is None else parts)
        if _part_text(part)
    )


def argument_blob(call: ToolCall, text: str) -> Blob:
    """The blob that keeps one string argument of a call."""
    return make_blob(text, tool_name=call.name, call_id=call.call_id)


def media_json(part: Image | Document | Opaque) -> str:
    """A part that is not text, as the JSON that the host wrote."""
    return json.dumps(_raw(part), ensure_ascii=False)


def _part_text(part: Part) -> str:
    return part.text if isinstance(part, Text) else media_json(part)


def _raw(part: Image | Document | Opaque) -> Any:
    if part.source is not None:
        return part.source
    media = {"media_type": part.media_type, "data": part.data, "url": part.url}
    return {"type": type(part).__name__.lower(), **media}
