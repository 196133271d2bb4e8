"""Time contextgc's compilation of a list, as its client calls it."""

from typing import Any

from contextgc.client import compile_messages
from timing import time_calls


def plain(messages: list[Any]) -> list[Any]:
    """Replace lists of blocks by their texts, because contextgc accepts only text."""
    for message in messages:
        if isinstance(message.get("content"), list):
            parts = [part.get("text", "") for part in message["content"]]
            message["content"] = "\n".join(parts)
    return messages


def compiled(messages: list[Any]) -> list[Any]:
    """Return the messages for the model."""
    return compile_messages(messages)[0]


time_calls(plain, compiled)
