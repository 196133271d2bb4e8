"""What the process writes to standard error: warnings, a bounded number of each kind."""

import json
import logging
import sys
import time
from collections.abc import Callable


class _Repeats(logging.Filter):
    """Passes a message of one kind so many times a minute, then says how many were left out.

    What hosts keep of standard error must not fill a disk because somebody knocks all night.
    """

    def __init__(self, most: int = 20, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most = most
        self._clock = clock
        self._seen: dict[tuple[str, str], int] = {}
        self._until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is written; the last one of a minute says that more are left out."""
        if self._clock() >= self._until:
            self._seen.clear()
            self._until = self._clock() + 60
        kind = (record.name, str(record.msg)[:80])
        times = self._seen[kind] = self._seen.get(kind, 0) + 1
        if times == self._most:
            record.msg = f"{record.getMessage()} (more like this are left out for a minute)"
            record.args = None
            record.exc_info = None
        return times <= self._most


class _JsonLines(logging.Formatter):
    """One object a line, for whoever gathers logs."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of `record`."""
        line = {
            "time_seconds": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(*, as_json: bool = False) -> None:
    """Write warnings to standard error, a bounded number of each kind."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(name)s: %(message)s")
    handler.setFormatter(_JsonLines() if as_json else plain)
    handler.addFilter(_Repeats())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
