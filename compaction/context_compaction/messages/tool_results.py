"""Tool results: their text, their blobs, and which of them the model has not seen yet."""

import json
import re
from collections.abc import Sequence

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
    ToolResult,
    text_of,
    tool_results,
)
from context_compaction.messages.speakers import user_texts

JSON_MEDIA_TYPE = "application/json"
# Texts with which hosts replace the result of a call that the user refused.
_REFUSED = re.compile(
    r".{0,80}\b(?:user (?:doesn't want|does not want|rejected|denied|declined|refused)"
    r"|(?:rejected|denied|declined|refused) by (?:the )?user)\b",
    re.IGNORECASE,
)
# Words of Claude Code, OpenCode and Cline before the user's comment, and after it.
_COMMENT_STARTS = ("the user said:", "reason for the rejection:", "following feedback:")
_COMMENT_ENDS = ("</feedback>", "\n\nNote: The user's next message may contain ")
# Claude Code writes this itself in the place of a comment.
_NO_COMMENT = "The user wants to clarify these questions."
_REFUSAL_CHARS = 400


def newest_results(messages: Messages) -> range:
    """Return the indices of the newest messages with results: the results of the newest calls.

    Texts of the host between and after the results, such as reminders, are included.
    """
    start = stop = len(messages)
    index = len(messages)
    while index and (messages[index - 1].role != "assistant" or _is_filler(messages[index - 1])):
        index -= 1
        if messages[index].role == "user" and tool_results(messages[index]):
            start, stop = index, (index + 1 if start == len(messages) else stop)
        elif user_texts(messages[index]):
            break
    return range(start, stop)


def _is_filler(message: Message) -> bool:
    """Whether a repair inserted `message` between two messages of the same role."""
    return len(message.blocks) == 1 and text_of(message.blocks) == placeholders.NO_CONTENT


def result_chars(result: ToolResult) -> int:
    """Return the length of all parts in characters. Media count as their JSON."""
    return sum(len(_part_text(part)) for part in result.content)


def result_text(result: ToolResult) -> str:
    """Return the text parts of a result, joined by newlines."""
    if len(result.content) == 1 and isinstance(result.content[0], Text):
        return result.content[0].text  # the usual case, kept fast
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def full_text_of(message: Message) -> str:
    """Return the text of a message, including its tool results."""
    contents = (
        block.content if isinstance(block, ToolResult) else (block,) for block in message.blocks
    )
    return "\n".join(filter(None, map(text_of, contents)))


def refusal_comment(result: ToolResult) -> str | None:
    """Return the user's comment on a refused call, on one line; "" without a comment.

    None if the user did not refuse the call. The host's words are read, not the user's.
    """
    text = result_text(result)
    if not _REFUSED.match(text):
        return None
    head = text[:_REFUSAL_CHARS].lower()
    starts = [head.find(words) + len(words) for words in _COMMENT_STARTS if words in head]
    comment = text[min(starts) :].lstrip().removeprefix("<feedback>") if starts else ""
    if comment.startswith(_NO_COMMENT):
        return ""
    for end in _COMMENT_ENDS:
        comment = comment.partition(end)[0]
    return " ".join(comment.split())


def result_blobs(
    result: ToolResult, tool_name: str, parts: Sequence[Part] | None = None
) -> tuple[Blob, ...]:
    """Return a blob for each part that is not empty: text as it is, other parts as JSON.

    `parts` limits the blobs to some parts of the result.
    """
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


def media_json(part: Image | Document | Opaque) -> str:
    """Return the host's JSON of a part that is not text."""
    raw = part.source
    if raw is None and not isinstance(part, Opaque):
        media = {"media_type": part.media_type, "data": part.data, "url": part.url}
        raw = {"type": type(part).__name__.lower(), **media}
    return json.dumps(raw, ensure_ascii=False)


def _part_text(part: Part) -> str:
    return part.text if isinstance(part, Text) else media_json(part)
