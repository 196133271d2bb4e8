"""What the user marks as private, by `<private>…</private>`: it is shown to the model alone.

It stays in the host's own message. Everything else is made from the message without it: what is
archived and found, outputs, summaries, rules and notes.
"""

import re
from typing import Any, cast

from context_compaction.messages.model import is_list, is_object

HIDDEN = "[The user marked text here as private. It is not stored.]"

_TAG = re.compile(r"<(/?)private>", re.IGNORECASE)
# Results of tools in a user's message: they may be about such tags.
_RESULT_KEYS = frozenset({"functionResponse", "function_response", "toolResult"})


def hide_private(raw: Any) -> Any:
    """A host's message without what its user marked as private; the same object if that is none."""
    is_users = is_object(raw) and raw.get("role", "user" if "parts" in raw else "") == "user"
    return _hidden(raw) if is_users else raw


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return _hidden_text(value)
    if is_list(value):
        items = [_hidden(item) for item in value]
        is_same = all(new is old for new, old in zip(items, value, strict=True))
        return value if is_same else items
    if not is_object(value) or value.get("type") == "tool_result":
        return cast("Any", value)
    fields = {key: item if key in _RESULT_KEYS else _hidden(item) for key, item in value.items()}
    return value if all(fields[key] is item for key, item in value.items()) else fields


def _hidden_text(text: str) -> str:
    if "rivate>" not in text and "RIVATE>" not in text:
        return text
    parts: list[str] = []
    depth = at = start = 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                parts += (text[at:start], HIDDEN)
                at = tag.end()
    return "".join((*parts, text[at:])) if parts else text
