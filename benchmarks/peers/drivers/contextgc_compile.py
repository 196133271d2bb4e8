"""contextgc's compilation of a list, as its client does it."""

from typing import Any

from contextgc.client import compile_messages
from timing import time_calls


def plain(messages: list[Any]) -> list[Any]:
    """The same with texts alone, as it takes no other content."""
    for message in messages:
        if isinstance(message.get("content"), list):
            parts = [part.get("text", "") for part in message["content"]]
            message["content"] = "\n".join(parts)
    return messages


def compiled(messages: list[Any]) -> list[Any]:
    return compile_messages(messages)[0]


time_calls(plain, compiled)
