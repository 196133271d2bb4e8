"""Whether two messages say the same, although a host rewrote one of them.

Hosts trim white space, write the arguments of a call again, drop thinking, reminders and fields of
the provider, give calls other IDs, shorten old results, and put a notice in the place of old media.
None of this changes what was said.
"""

import re
from collections.abc import Sequence
from typing import Any

from context_compaction.activity.shown import is_shortened, without_reminder
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    text_of,
)
from context_compaction.messages.placeholders import ids_in_placeholder
from context_compaction.messages.raw import without_cache_markers
from context_compaction.messages.speakers import user_text

_ELEMENT = re.compile(r"<([a-z][\w-]{0,40})>.*?</\1>", re.DOTALL | re.IGNORECASE)


def said_in(archived: Message | None, message: Message | None) -> tuple[bool, bool]:
    """Return which of two messages say the same words, calls, results and media.

    Both do, or one of them says nothing but thinking, so that the other list may lack it, or
    neither does. None stands for a message that cannot be compared.
    """
    one = None if archived is None else _said(archived.blocks)
    other = None if message is None else _said(message.blocks)
    if archived and message and archived.role == message.role and _are_same(one, other):
        return True, True
    return one == [], other == [] and one != []


def has_same_request(archived: Message | None, message: Message | None) -> bool:
    """Whether the user typed the same words, whatever elements the host added to them."""
    if archived is None or message is None:
        return False
    return _typed_words(archived) == _typed_words(message)


def _typed_words(message: Message) -> str:
    text = user_text(message)
    is_short = len(text) <= 20_000  # of a longer text the search could take long
    return (_ELEMENT.sub("", text) if is_short else text).strip()


def _said(blocks: Sequence[Block]) -> list[Any]:
    """Return what blocks say: a text without white space at its ends, a call without its ID."""
    said: list[Any] = []
    for block in blocks:
        match block:
            case Text(text):
                said += [text] if (text := _words(text)) else []
            case Thinking():
                pass
            case ToolCall(_, name, arguments):
                said.append((name, arguments))
            case Opaque(_, source):
                unmarked = without_cache_markers(source)
                said.append({k: v for k, v in unmarked.items() if k not in ("id", "tool_use_id")})
            case _:
                said.append(block)
    return said


def _words(text: str) -> str:
    """Return `text` without thinking at its start, reminders, empty lines and ends of lines."""
    text = without_reminder(text).strip()
    start = _ELEMENT.match(text) if text.startswith("<think") else None
    lines = text[start.end() if start else 0 :].strip().splitlines()
    return "\n".join(filter(None, map(str.rstrip, lines)))


def _are_same(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    return all(map(_is_same, one, other))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Image | Document) and isinstance(other, str):
        return is_shortened(other, "")
    if not (isinstance(one, ToolResult) and isinstance(other, ToolResult)):
        return bool(one == other)
    if one.is_error != other.is_error:
        return False
    return _is_excerpt(one.content, other.content) or _is_excerpt(other.content, one.content)


def _is_excerpt(parts: Sequence[Part], of: Sequence[Part]) -> bool:
    """Whether a host may have shortened the parts `of` a result to `parts`."""
    text, whole = _words(text_of(parts)), _words(text_of(of))
    media = [part for part in of if not isinstance(part, Text)]
    has_media = all(part in media for part in parts if not isinstance(part, Text))
    is_ours = bool(ids_in_placeholder(text))
    return has_media and (text == whole or (is_shortened(text, whole) and not is_ours))
