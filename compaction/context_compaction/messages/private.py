"""Text that the user marks as private with `<private>…</private>`: only the model sees it.

It stays in the host's own message. The archive, search, outputs, summaries, rules and notes are
made from the message without it.
"""

import re
from typing import Any, cast

from context_compaction.messages.model import is_list, is_object, is_same

HIDDEN = "[The user marked text here as private. It is not stored.]"

_TAG = re.compile(r"<(/?)private>", re.IGNORECASE)
# Tool results in a user's message are not searched, because they may be about such tags.
_RESULT_KEYS = frozenset({"functionResponse", "function_response", "toolResult"})


def hide_private(raw: Any) -> Any:
    """Return a host's message without private text of the user; the same object without any."""
    is_users = is_object(raw) and raw.get("role", "user" if "parts" in raw else "") == "user"
    return _without_private(raw) if is_users else raw


def _without_private(value: Any) -> Any:
    if isinstance(value, str):
        return _hide_in_text(value)
    if is_list(value):
        items = [_without_private(item) for item in value]
        return value if is_same(items, value) else items
    if not is_object(value) or value.get("type") == "tool_result":
        return cast("Any", value)
    changed = {
        key: public
        for key, item in value.items()
        if key not in _RESULT_KEYS and (public := _without_private(item)) is not item
    }
    return value | changed if changed else value


def _hide_in_text(text: str) -> str:
    """Return `text` with each outermost private passage replaced."""
    if "rivate>" not in text and "RIVATE>" not in text:
        return text
    parts: list[str] = []
    depth = position = start = 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                parts += (text[position:start], HIDDEN)
                position = tag.end()
    return "".join((*parts, text[position:])) if parts else text
