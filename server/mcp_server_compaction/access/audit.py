"""Who read or deleted what: one line of JSON each, without any of the content."""

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from context_compaction.errors import SettingsError

from mcp_server_compaction.access.principal import caller

audit_logger = logging.getLogger("mcp_server_compaction.audit")


def write_audit(path: Path) -> None:
    """Write the log to a file from now on, which only this user may read.

    Raises:
        SettingsError: It cannot be written.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        # Lines are short, and appended whole: several processes may write to one file.
        audit_logger.addHandler(logging.FileHandler(path, encoding="ascii"))
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
    line = {
        "time_seconds": round(time.time(), 3),
        "tenant": who.tenant,
        "user": who.user,
        "action": action,
        "what": what[:200],
        "outcome": outcome,
    }
    audit_logger.info(json.dumps(line | more, ensure_ascii=True))
