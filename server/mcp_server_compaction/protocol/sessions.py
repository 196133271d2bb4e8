"""Sessions, their branches and their sub-agents as resources describe them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from anyio import to_thread

if TYPE_CHECKING:  # the list of resources, which hosts ask for first, needs the times alone
    from context_compaction import Archive, History, JsonObject, SessionInfo


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


async def family_document(archive: "Archive", session_id: str) -> "JsonObject | None":
    """The session and those that descend from it, oldest first; None where there are none.

    Raises:
        ArchiveError: The archive fails.
    """
    infos, _ = await archive.sessions(limit=50, family_of=session_id)
    if len(infos) < 2:
        return None
    infos.sort(key=lambda info: (info.session_id != session_id, info.first_seconds))
    members = [await _member_document(archive, info) for info in infos]
    return {
        "message_count": sum(member["message_count"] for member in members),
        "context_tokens": sum(member["context_tokens"] for member in members),
        "sessions": members,
    }


async def _member_document(archive: "Archive", info: "SessionInfo") -> "JsonObject":
    """A session with the size of its context, and the budget of its newest compaction."""
    format_name, context = await archive.context(info.session_id)
    receipts = await archive.receipts(info.session_id)
    figures: list[JsonObject] = [receipt["tokens"] for receipt in receipts if "tokens" in receipt]
    newest = figures[-1] if figures else {"trigger": None, "target": None}
    return {
        "session_id": info.session_id,
        "parent_session_id": info.parent_session_id,
        "message_count": info.message_count,
        "context_tokens": await to_thread.run_sync(_count_tokens, context, format_name),
        "trigger_tokens": newest["trigger"],
        "target_tokens": newest["target"],
    }


def _count_tokens(context: "Sequence[JsonObject]", format_name: str) -> int:
    from context_compaction import counter_for, parse

    return counter_for(None).messages(parse(context, format=format_name)) if context else 0
