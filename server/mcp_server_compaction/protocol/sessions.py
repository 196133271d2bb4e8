"""Sessions and their branches as resources describe them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the list of resources, which hosts ask for first, needs the times alone
    from context_compaction import History, SessionInfo


def iso_time(seconds: float) -> str:
    """Unix time as ISO 8601 in UTC, to the second; the calendar's ends for what lies beyond."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        last, first = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
        moment = last if seconds > 0 else first
    return moment.isoformat(timespec="seconds")


def session_document(info: "SessionInfo") -> dict[str, Any]:
    """What is known of a session, with where to read more."""
    uri = f"transcript://{info.session_id}"
    return {
        "session_id": info.session_id,
        "parent_session_id": info.parent_session_id,
        "title": info.title,
        "format": info.format,
        "message_count": info.message_count,
        "first_time": iso_time(info.first_seconds),
        "last_time": iso_time(info.last_seconds),
        "messages": f"{uri}/messages/0-{max(0, info.message_count - 1)}",
        "context": f"{uri}/context",
        "receipts": f"{uri}/receipts",
    }


def branches_document(
    session_id: str, branches: "Sequence[History]", branch_count: int
) -> dict[str, Any]:
    """The branches of a session, newest first, each with what reads it from its beginning."""
    return {
        "branch_count": branch_count,
        "branches": [
            {
                "head": branch.head,
                "message_count": len(branch.seqs),
                "messages": pointer_to(session_id, branch),
            }
            for branch in branches
        ],
    }


def pointer_to(session_id: str, branch: "History", newest: int | None = None) -> str:
    """What reads a branch, or its `newest` messages."""
    seqs = branch.seqs[-(newest or len(branch.seqs)) :] or (0,)
    return f"transcript://{session_id}/messages/{min(seqs)}-{max(seqs)}@{branch.head}"
