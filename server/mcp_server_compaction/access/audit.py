"""Audit log: one JSON line for each read or deletion, without content of conversations."""

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
from context_compaction.system import open_file

from mcp_server_compaction.access.principal import caller

# Limit of lines in a minute for callers without a valid token, so that they cannot fill the disk.
MAX_REFUSALS = 60
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT

audit_logger = logging.getLogger("mcp_server_compaction.audit")


class _AuditFile(WatchedFileHandler):
    """A log file that only the user may read. It is created again after it was moved away."""

    def _open(self) -> TextIOWrapper:
        file = os.fdopen(open_file(self.baseFilename, _APPEND), "ab", buffering=0)
        return TextIOWrapper(file, encoding=self.encoding, newline="\n", write_through=True)


def write_audit(path: Path) -> None:
    """Start writing the audit log to a file, which only the user may read.

    Raises:
        SettingsError: The file cannot be written.
    """
    try:
        # Several processes may write to one file, because each short line is appended at once.
        audit_logger.addHandler(_AuditFile(path, encoding="ascii"))
    except OSError as error:
        raise SettingsError(
            f"Cannot write the audit log {path}: {error.strerror}. Pass another file with "
            "--audit-log."
        ) from error
    audit_logger.setLevel(logging.INFO)
    audit_logger.propagate = False


def audit(action: str, target: str, outcome: str = "ok", **fields: Any) -> None:
    """Log that the current caller did `action` to `target`: a session, an output or a query."""
    if not audit_logger.isEnabledFor(logging.INFO):
        return
    principal = caller.get()
    user = {"tenant": principal.tenant or "local", "user": principal.user}
    _write(user, action, target, outcome, **fields)


class Refusals:
    """Log of refused requests without a valid token, which have neither tenant nor user.

    Writes at most `MAX_REFUSALS` lines in a minute. The next line after the limit has the number of
    omitted lines.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reset_time = 0.0
        self._line_count = 0
        self._omitted_count = 0

    def log(self, action: str, peer: str, status: int) -> None:
        """Log a refusal.

        Args:
            action: Method and path of the request.
            peer: Address of the caller.
            status: HTTP status of the response.
        """
        if not audit_logger.isEnabledFor(logging.INFO):
            return
        if self._clock() >= self._reset_time:
            self._reset_time = self._clock() + 60.0  # a minute
            self._line_count = 0
        if self._line_count >= MAX_REFUSALS:
            self._omitted_count += 1
            return
        omitted = {"omitted": self._omitted_count} if self._omitted_count else {}
        user = {"tenant": "", "user": ""}
        _write(user, action[:200], peer, "refused", status=status, **omitted)
        self._line_count += 1
        self._omitted_count = 0


def _write(user: dict[str, str], action: str, target: str, outcome: str, **fields: Any) -> None:
    line = {
        "time_seconds": round(time.time(), 3),
        **user,
        "action": action,
        "what": target[:200],
        "outcome": outcome,
    }
    audit_logger.info(json.dumps(line | fields, ensure_ascii=True))
