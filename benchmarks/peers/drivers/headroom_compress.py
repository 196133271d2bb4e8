"""Time headroom's compression without its text model, which needs a download."""

from typing import Any

from headroom.compress import compress
from timing import time_calls


def compressed(messages: list[Any]) -> list[Any]:
    """Return the messages for the model."""
    return compress(messages, model_limit=2_000_000, kompress_model="disabled").messages


time_calls(list, compressed)
