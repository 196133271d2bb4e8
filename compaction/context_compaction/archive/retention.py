"""Choice of the sessions to prune, and the sizes that pruning frees, for every kind of archive."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from context_compaction.archive.values import PrunePlan, PruneRules, SessionUsage, Usage


class StoredSizes:
    """All sessions and large contents of an archive, with their sizes.

    Attributes:
        sessions: All sessions, oldest first.
        blob_bytes: Stored size of each large content in bytes, by SHA-256.
    """

    def __init__(
        self,
        sessions: Iterable[SessionUsage],
        uses: Iterable[tuple[str, str]],
        blob_bytes: Mapping[str, int],
    ) -> None:
        """Sort the sessions by age and measure the large contents that they refer to.

        Args:
            sessions: All sessions of the archive, without the sizes of large contents.
            uses: IDs of sessions with the SHA-256 of a large content that each refers to.
            blob_bytes: Stored size of each large content in bytes, by SHA-256.
        """
        self.blob_bytes: Mapping[str, int] = blob_bytes
        self._blobs: defaultdict[str, set[str]] = defaultdict(set)
        for session_id, digest in uses:
            if digest in blob_bytes:
                self._blobs[session_id].add(digest)
        # Number of sessions that refer to each large content.
        self._users = Counter(digest for blobs in self._blobs.values() for digest in blobs)
        self.sessions: list[SessionUsage] = sorted(
            map(self._measured, sessions),
            key=lambda session: (session.last_seconds, session.session_id),
        )
        self._unnamed_bytes = self._bytes_of(blob_bytes.keys() - self._users.keys())
        logs = sum(session.log_bytes for session in self.sessions)
        self._total_bytes = logs + sum(blob_bytes.values())

    def usage(self) -> Usage:
        """Return the size of each session."""
        return Usage(tuple(self.sessions), self._total_bytes, self._unnamed_bytes)

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
                blobs = self._blobs[session.session_id]
                users.subtract(blobs)
                unused = [digest for digest in blobs if not users[digest]]
                remaining_bytes -= session.log_bytes + self._bytes_of(unused)
                chosen.append(session)
        return PrunePlan(
            tuple(chosen), len(self.sessions), self._total_bytes - remaining_bytes, remaining_bytes
        )

    def _bytes_of(self, digests: Iterable[str]) -> int:
        return sum(self.blob_bytes[digest] for digest in digests)

    def _measured(self, session: SessionUsage) -> SessionUsage:
        blobs = self._blobs[session.session_id]
        own = {digest for digest in blobs if self._users[digest] == 1}
        return replace(
            session, own_bytes=self._bytes_of(own), shared_bytes=self._bytes_of(blobs - own)
        )
