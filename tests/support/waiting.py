"""Wait for the work of another process."""

import time
from collections.abc import Callable
from typing import Any

_MAX_SECONDS = 150


def eventually(check: Callable[[], Any]) -> Any:
    """Call `check` until it returns something, because another process does the work."""
    deadline = time.monotonic() + _MAX_SECONDS
    while not (value := check()):
        assert time.monotonic() < deadline, "the other process did not finish"
        time.sleep(0.05)
    return value
