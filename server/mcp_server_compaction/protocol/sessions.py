"""Sessions and their branches as JSON documents."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # because the resource list, which hosts request at their start, needs only times
    from context_compaction import History, SessionInfo


def iso_time(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, to the second, within the years 1 to 9999."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        last, first = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
        moment = last if seconds > 0 else first
    return moment.isoformat(timespec="seconds")


def session_document(info: "SessionInfo") -> dict[str, Any]:
    """Return the metadata of a session, with pointers to its content."""
    uri = f"transcript://{info.session_id}"
    return {
        "session_id": info.session_id,
        "parent_session_id": info.parent_session_id,
        "title": info.title,
        "format": info.format,
        "message_count": info.message_count,
        "first_time": iso_time(info.first_seconds),
        "last_time": iso_time(info.last_seconds),
        "messages": f"{uri}/messages/0-{max(0, info.next_seq - 1)}",
        "context": f"{uri}/context",
        "receipts": f"{uri}/receipts",
    }


def branches_document(
    session_id: str, branches: "Sequence[History]", branch_count: int
) -> dict[str, Any]:
    """Return the branches of a session, newest first, each with a pointer to all its messages."""
    return {
        "branch_count": branch_count,
        "branches": [
            {
                "head": branch.head,
                "message_count": len(branch.seqs),
                "messages": branch_pointer(session_id, branch),
            }
            for branch in branches
        ],
    }


def branch_pointer(session_id: str, branch: "History", newest_count: int | None = None) -> str:
    """Return a pointer to the messages of a branch, or to its `newest_count` newest messages."""
    seqs = branch.seqs[-(newest_count or len(branch.seqs)) :] or (0,)
    return f"transcript://{session_id}/messages/{min(seqs)}-{max(seqs)}@{branch.head}"
