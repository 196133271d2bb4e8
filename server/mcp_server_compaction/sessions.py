"""What there is to say of a session."""

from datetime import UTC, datetime
from typing import Any

from context_compaction.archive import SessionInfo

_YEAR_1_SECONDS = -62_135_596_800.0
_YEAR_9999_SECONDS = 253_402_300_799.0


def iso_time(seconds: float) -> str:
    """Unix time as ISO 8601 in UTC, to the second; the calendar's ends for what lies beyond."""
    seconds = min(max(seconds, _YEAR_1_SECONDS), _YEAR_9999_SECONDS)
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def session_document(info: SessionInfo) -> dict[str, Any]:
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
