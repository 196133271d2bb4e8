"""Who read or deleted what: one line of JSON each, without any of the content."""

import json
import logging
import os
import time
from collections.abc import Callable
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from context_compaction import SettingsError

from mcp_server_compaction.access.principal import caller

# Lines a minute for callers whom nobody knows: they must not fill a disk.
MAX_REFUSALS = 60
_MINUTE_SECONDS = 60.0

audit_logger = logging.getLogger("mcp_server_compaction.audit")


class _AuditFile(WatchedFileHandler):
    """A file of the user's alone, begun anew where the one before was moved away."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return TextIOWrapper(
            os.fdopen(handle, "ab", buffering=0), encoding=self.encoding, write_through=True
        )


def write_audit(path: Path) -> None:
    """Write the log to a file from now on, which only this user may read.

    Raises:
        SettingsError: It cannot be written.
    """
    try:
        # Lines are short, and appended whole: several processes may write to one file.
        audit_logger.addHandler(_AuditFile(path, encoding="ascii"))
    except OSError as error:
        raise SettingsError(
            f"The audit log {path} cannot be written: {error.strerror}. Name another file with "
            "--audit-log."
        ) from error
    audit_logger.setLevel(logging.INFO)
    audit_logger.propagate = False


def audit(action: str, what: str, outcome: str = "ok", **more: Any) -> None:
    """Log that the present caller did `action` to `what`, a session, output or query."""
    if not audit_logger.isEnabledFor(logging.INFO):
        return  # nobody keeps such a log
    who = caller.get()
    _write({"tenant": who.tenant or "local", "user": who.user}, action, what, outcome, **more)


class Refusals:
    """Logs what was refused to callers without a good token: they have neither tenant nor user.

    `MAX_REFUSALS` lines a minute; of what goes beyond, the next line tells how many there were.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._lines = 0
        self._left_out = 0

    def log(self, action: str, peer: str, status: int) -> None:
        """Log one refusal: what was asked, from which address, and the HTTP status."""
        if not audit_logger.isEnabledFor(logging.INFO):
            return
        if self._clock() >= self._until:
            self._until = self._clock() + _MINUTE_SECONDS
            self._lines = 0
        if self._lines >= MAX_REFUSALS:
            self._left_out += 1
            return
        more = {"left_out": self._left_out} if self._left_out else {}
        _write({"tenant": "", "user": ""}, action[:200], peer, "refused", status=status, **more)
        self._lines += 1
        self._left_out = 0


def _write(who: dict[str, str], action: str, what: str, outcome: str, **more: Any) -> None:
    line = {
        "time_seconds": round(time.time(), 3),
        **who,
        "action": action,
        "what": what[:200],
        "outcome": outcome,
    }
    audit_logger.info(json.dumps(line | more, ensure_ascii=True))
