"""Retention: which sessions are removed, and what that frees; whatever stores them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from context_compaction.archive import PrunePlan, PruneRules, SessionUsage, Usage


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The size of one session: see `SessionUsage`; `blobs` are the hashes of its large contents."""

    session_id: str
    parent_session_id: str | None
    is_retained: bool
    message_count: int
    last_seconds: float
    log_bytes: int
    blobs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Stored:
    """What an archive holds.

    Attributes:
        sessions: Longest unused first.
        blob_bytes: Stored size of each large content, by hash.
    """

    sessions: Sequence[StoredSession]
    blob_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """All logs and large contents."""
        return sum(session.log_bytes for session in self.sessions) + sum(self.blob_bytes.values())

    def bytes_of(self, digests: Iterable[str]) -> int:
        """What some large contents take."""
        return sum(self.blob_bytes[digest] for digest in digests)


def usage_of(stored: Stored) -> Usage:
    """How much room each session takes."""
    users = Counter(digest for session in stored.sessions for digest in session.blobs)
    unnamed = stored.blob_bytes.keys() - users.keys()
    sessions = tuple(_usage_of(session, stored, users) for session in stored.sessions)
    return Usage(sessions, stored.total_bytes, stored.bytes_of(unnamed))


def plan_of(stored: Stored, chosen: Sequence[StoredSession]) -> PrunePlan:
    """The outcome of deleting the `chosen` sessions."""
    users = Counter(digest for session in stored.sessions for digest in session.blobs)
    freed = _freed_bytes(stored, {session.session_id for session in chosen})
    sessions = tuple(_usage_of(session, stored, users) for session in chosen)
    return PrunePlan(sessions, len(stored.sessions), freed, stored.total_bytes - freed)


def choose(stored: Stored, rules: PruneRules) -> list[StoredSession]:
    """The sessions that `rules` remove, oldest first."""
    retained = {session.session_id for session in stored.sessions if session.is_retained}
    users = Counter(digest for session in stored.sessions for digest in session.blobs)
    total = stored.total_bytes - stored.bytes_of(stored.blob_bytes.keys() - users.keys())
    before_seconds, max_bytes = rules.before_seconds, rules.max_bytes
    chosen: list[StoredSession] = []
    for session in stored.sessions:
        if {session.session_id, session.parent_session_id} & retained:
            continue
        is_old = before_seconds is not None and session.last_seconds < before_seconds
        if is_old or (max_bytes is not None and total > max_bytes):
            users.subtract(session.blobs)
            gone = [digest for digest in session.blobs if not users[digest]]
            total -= session.log_bytes + stored.bytes_of(gone)
            chosen.append(session)
    return chosen


def _usage_of(session: StoredSession, stored: Stored, users: Mapping[str, int]) -> SessionUsage:
    own = [digest for digest in session.blobs if users[digest] == 1]
    return SessionUsage(
        session.session_id,
        session.parent_session_id,
        session.is_retained,
        session.message_count,
        session.last_seconds,
        session.log_bytes,
        own_bytes=stored.bytes_of(own),
        shared_bytes=stored.bytes_of(session.blobs.difference(own)),
    )


def _freed_bytes(stored: Stored, gone: Collection[str]) -> int:
    """What deleting sessions frees, with the contents that no session names now."""
    left = [session for session in stored.sessions if session.session_id not in gone]
    kept = {digest for session in left for digest in session.blobs}
    logs = sum(session.log_bytes for session in stored.sessions if session.session_id in gone)
    return logs + stored.bytes_of(stored.blob_bytes.keys() - kept)
