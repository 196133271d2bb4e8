"""Who read or deleted what: one line of JSON each, without any of the content."""

import json
import logging
import time
from typing import Any

from mcp_server_compaction.access.principal import caller

audit_logger = logging.getLogger("mcp_server_compaction.audit")


def audit(action: str, what: str, outcome: str = "ok", **more: Any) -> None:
    """Write down that the present caller did `action` to `what`, a session, output or query."""
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
