"""Caller of a request, and the audit log of what callers read and delete.

Tenant, user and scopes come from the access token, never from an argument. The log has one JSON
line for each read or deletion, without content of conversations.
"""

import json
import logging
import os
import time
from contextvars import ContextVar
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from context_compaction import SettingsError
from context_compaction.system import open_file

if TYPE_CHECKING:
    from context_compaction import Archive

Scope: TypeAlias = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
audit_logger = logging.getLogger("mcp_server_compaction.audit")


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller.

    Attributes:
        tenant: Tenant whose archive the caller uses. "" for the tenant of the archive's address.
        user: Name in the audit log.
        scopes: Allowed actions: "read" searches and reads, "write" archives and compacts, "admin"
            deletes sessions and protects them from pruning.
        issuer: Issuer of an OAuth token. None for a token of the archive.
        is_browser: Whether the token is a browser's cookie, which is valid only for the viewer.
    """

    tenant: str
    user: str
    scopes: frozenset[Scope]
    issuer: str | None = None
    is_browser: bool = False

    async def own_archive(self, archive: "Archive") -> "Archive":
        """Return the part of the archive that belongs to the caller's tenant."""
        return await archive.for_tenant(self.tenant) if self.tenant else archive


# The user who has the local token, may use the Unix socket, or starts the server over stdio.
LOCAL_USER = Principal("", "local", frozenset(SCOPES))

# Caller of the current request. A session with a handshake keeps the caller of its first request,
# and the transport refuses later requests of other callers.
caller: ContextVar[Principal] = ContextVar("caller", default=LOCAL_USER)


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


def audit_refusal(action: str, peer: str, status: int) -> None:
    """Log a refused request without a valid token, which has neither tenant nor user.

    Args:
        action: Method and path of the request.
        peer: Address of the caller.
        status: HTTP status of the response.
    """
    if audit_logger.isEnabledFor(logging.INFO):
        user = {"tenant": "", "user": ""}
        _write(user, action[:200], peer, "refused", status=status)


def _write(user: dict[str, str], action: str, target: str, outcome: str, **fields: Any) -> None:
    line = {
        "time_seconds": round(time.time(), 3),
        **user,
        "action": action,
        "what": target[:200],
        "outcome": outcome,
    }
    audit_logger.info(json.dumps(line | fields, ensure_ascii=True))
