"""headroom's compression, without its text model, which only a download brings."""

from typing import Any

from headroom.compress import compress
from timing import time_calls


def compressed(messages: list[Any]) -> list[Any]:
    return compress(messages, model_limit=2_000_000, kompress_model="disabled").messages


time_calls(list, compressed)
