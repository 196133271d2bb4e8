"""Log of the process on standard error: warnings, with a limit for each kind."""

import logging
import sys
import time
from collections.abc import Callable


class _RepeatFilter(logging.Filter):
    """A filter that passes a limited number of messages of each kind in a minute.

    Hosts store standard error, and repeated failures of one caller must not fill the disk.
    """

    def __init__(self, limit: int = 20, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._limit = limit
        self._clock = clock
        self._counts: dict[tuple[str, str], int] = {}
        self._reset_time = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write `record`. The last record before the limit says so."""
        if self._clock() >= self._reset_time:
            self._counts.clear()
            self._reset_time = self._clock() + 60.0  # a minute
        kind = (record.name, str(record.msg)[:80])
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count == self._limit:
            record.msg = f"{record.getMessage()} (similar messages are omitted for a minute)"
            record.args = None
            record.exc_info = None
        return count <= self._limit


def log_to_stderr() -> None:
    """Write warnings to standard error, with a limit for each kind of message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    handler.addFilter(_RepeatFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
