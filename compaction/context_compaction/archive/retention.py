"""Choice of the sessions to prune, and the sizes that pruning frees, for every kind of archive."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from context_compaction.archive.values import PrunePlan, PruneRules, SessionUsage, Usage


@dataclass(frozen=True, slots=True)
class StoredSession:
    """Size of one session.

    Attributes:
        session_id: ID of the session.
        parent_session_id: ID of the session that started this session; None if there is none.
        is_retained: Whether the session is protected from pruning.
        message_count: Number of messages.
        last_seconds: Unix time at which the newest record was archived.
        log_bytes: Size of the records in bytes, without large contents.
        blobs: SHA-256 of each large content that the session refers to.
    """

    session_id: str
    parent_session_id: str | None
    is_retained: bool
    message_count: int
    last_seconds: float
    log_bytes: int
    blobs: frozenset[str]


class StoredSizes:
    """All sessions and large contents of an archive, with their sizes.

    Attributes:
        sessions: All sessions, oldest first.
        blob_bytes: Stored size of each large content in bytes, by SHA-256.
    """

    def __init__(self, sessions: Iterable[StoredSession], blob_bytes: Mapping[str, int]) -> None:
        """Sort the sessions by age and count the sessions that refer to each large content.

        Args:
            sessions: All sessions of the archive.
            blob_bytes: Stored size of each large content in bytes, by SHA-256.
        """
        self.sessions: list[StoredSession] = sorted(
            sessions, key=lambda session: (session.last_seconds, session.session_id)
        )
        self.blob_bytes: Mapping[str, int] = blob_bytes
        # Number of sessions that refer to each large content.
        self._users = Counter(digest for session in self.sessions for digest in session.blobs)
        self._unnamed_bytes = self._bytes_of(blob_bytes.keys() - self._users.keys())
        logs = sum(session.log_bytes for session in self.sessions)
        self._total_bytes = logs + sum(blob_bytes.values())

    def usage(self) -> Usage:
        """Return the size of each session."""
        sessions = tuple(map(self._usage_of, self.sessions))
        return Usage(sessions, self._total_bytes, self._unnamed_bytes)

    def plan(self, rules: PruneRules) -> PrunePlan:
        """Return the sessions that `rules` choose for deletion, oldest first, and the effect."""
        retained = {session.session_id for session in self.sessions if session.is_retained}
        users = Counter(self._users)
        remaining_bytes = self._total_bytes - self._unnamed_bytes
        before_seconds, max_bytes = rules.before_seconds, rules.max_bytes
        chosen: list[SessionUsage] = []
        for session in self.sessions:
            if {session.session_id, session.parent_session_id} & retained:
                continue
            is_old = before_seconds is not None and session.last_seconds < before_seconds
            if is_old or (max_bytes is not None and remaining_bytes > max_bytes):
                users.subtract(session.blobs)
                unused = [digest for digest in session.blobs if not users[digest]]
                remaining_bytes -= session.log_bytes + self._bytes_of(unused)
                chosen.append(self._usage_of(session))
        return PrunePlan(
            tuple(chosen), len(self.sessions), self._total_bytes - remaining_bytes, remaining_bytes
        )

    def _bytes_of(self, digests: Iterable[str]) -> int:
        return sum(self.blob_bytes[digest] for digest in digests)

    def _usage_of(self, session: StoredSession) -> SessionUsage:
        own = [digest for digest in session.blobs if self._users[digest] == 1]
        return SessionUsage(
            session.session_id,
            session.parent_session_id,
            session.is_retained,
            session.message_count,
            session.last_seconds,
            session.log_bytes,
            own_bytes=self._bytes_of(own),
            shared_bytes=self._bytes_of(session.blobs.difference(own)),
        )
