"""Short chats with rules, enumerations, values and small talk.

Nothing in the product is tuned on them.
"""

import json
from pathlib import Path

from .json_types import Json

_FILE = Path(__file__).parent.parent / "data" / "short_chats.json"
# Texts of the user and the assistant in turns; the user begins.
SHORT_CHATS: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))


def chat(name: str, request: str = "Now tell me what is still open.") -> list[Json]:
    """Return a chat in Anthropic's format with an unanswered request."""
    roles = ("user", "assistant")
    messages: list[Json] = [
        {"role": roles[at % 2], "content": text} for at, text in enumerate(SHORT_CHATS[name])
    ]
    return [*messages, {"role": "user", "content": request}]
