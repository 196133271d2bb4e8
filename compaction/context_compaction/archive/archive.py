"""The interface of every archive.

`Archive` has the code that is the same for a folder (`local/`) and a database (`postgres/`).
`opening.py` opens either of them.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from context_compaction.archive import values
from context_compaction.archive.records import StoredOutput
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.archive.writing import append, commit, retain
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import JsonObject
from context_compaction.redaction import RedactionMode


class StoredSizes:
    """All sessions and large contents of an archive, with their sizes.

    Attributes:
        sessions: All sessions, oldest first.
        blob_bytes: Stored size of each large content in bytes, by SHA-256.
    """

    def __init__(
        self,
        sessions: Iterable[values.SessionUsage],
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
        self.sessions: list[values.SessionUsage] = sorted(
            map(self._measured, sessions),
            key=lambda session: (session.last_seconds, session.session_id),
        )
        self._unnamed_bytes = self._bytes_of(blob_bytes.keys() - self._users.keys())
        logs = sum(session.log_bytes for session in self.sessions)
        self._total_bytes = logs + sum(blob_bytes.values())

    def usage(self) -> values.Usage:
        """Return the size of each session."""
        return values.Usage(tuple(self.sessions), self._total_bytes, self._unnamed_bytes)

    def plan(self, rules: values.PruneRules) -> values.PrunePlan:
        """Return the sessions that `rules` choose for deletion, oldest first, and the effect."""
        retained = {session.session_id for session in self.sessions if session.is_retained}
        users = Counter(self._users)
        remaining_bytes = self._total_bytes - self._unnamed_bytes
        before_seconds, max_bytes = rules.before_seconds, rules.max_bytes
        chosen: list[values.SessionUsage] = []
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
        return values.PrunePlan(
            tuple(chosen), len(self.sessions), self._total_bytes - remaining_bytes, remaining_bytes
        )

    def _bytes_of(self, digests: Iterable[str]) -> int:
        return sum(self.blob_bytes[digest] for digest in digests)

    def _measured(self, session: values.SessionUsage) -> values.SessionUsage:
        blobs = self._blobs[session.session_id]
        own = {digest for digest in blobs if self._users[digest] == 1}
        return replace(
            session, own_bytes=self._bytes_of(own), shared_bytes=self._bytes_of(blobs - own)
        )


if TYPE_CHECKING:
    from context_compaction.archive.search.filters import Check, RowsOf

P = ParamSpec("P")
T = TypeVar("T")
_Store: TypeAlias = TranscriptStore[Any]


def _on_session(
    method: Callable[Concatenate[_Store, str, P], T],
) -> Callable[Concatenate["Archive", str, P], Coroutine[Any, Any, T]]:
    """Return a method of a store as a method of the archive, after the session's other calls."""

    @wraps(method)
    async def call(self: "Archive", session_id: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.on_session(
            session_id, lambda store: method(store, session_id, *args, **kwargs)
        )

    return call


class Archive(ABC):
    """Append-only archive of one tenant's transcripts and outputs. Methods raise `ArchiveError`.

    A cancelled call has either its whole effect or none.

    Attributes:
        tenant: Tenant whose sessions this object reads and writes; it cannot reach another tenant.
        redaction: Treatment of secrets; "on" removes them from everything that is written.
    """

    tenant: str
    redaction: RedactionMode

    @abstractmethod
    async def on_session(self, session_id: str, work: Callable[[_Store], T]) -> T:
        """Run `work` with a store after this session's other calls, and return its result."""

    @abstractmethod
    async def sessions_with(self, output_id: str) -> Sequence[str]:
        """Return the IDs of sessions that may contain an output."""

    @abstractmethod
    async def stored_sizes(self) -> StoredSizes:
        """Return the sizes of all sessions and large contents."""

    @abstractmethod
    async def on_rows(self, work: "Callable[[RowsOf], T]", check: "Check") -> T:
        """Run `work` in a thread when everything is indexed, and return its result.

        Args:
            work: Receives a function that returns the rows of a filter.
            check: Called before the work and repeatedly during it; may raise to end it.
        """

    append = _on_session(append)
    commit = _on_session(commit)
    context = _on_session(_Store.context)
    context_name = _on_session(_Store.context_name)
    read_messages = _on_session(_Store.read_messages)
    history = _on_session(_Store.history)
    branches = _on_session(_Store.branches)
    receipts = _on_session(_Store.receipts)
    stored_receipts = _on_session(_Store.stored_receipts)
    compacted_lists = _on_session(_Store.compacted_lists)
    shortened_messages = _on_session(_Store.shortened_messages)
    list_before = _on_session(_Store.list_before)
    list_now = _on_session(_Store.list_now)
    outputs = _on_session(_Store.outputs)
    session_info = _on_session(_Store.session_info)
    retain = _on_session(retain)
    records = _on_session(_Store.records)
    add_records = _on_session(_Store.add_records)

    async def output_info(self, output_id: str) -> values.OutputInfo:
        """Return the description of an output."""
        return await self._on_output(output_id, lambda output: output.info)

    async def read_output(
        self, output_id: str, *, start_byte: int = 0, limit_bytes: int | None = None
    ) -> values.OutputSlice:
        """Return bytes of an output, after their hash was checked."""
        return await self._on_output(
            output_id, lambda output: output.read_bytes(start_byte, limit_bytes)
        )

    async def read_output_lines(
        self, output_id: str, *, start_line: int = 1, line_count: int | None = None
    ) -> values.OutputSlice:
        """Return whole lines of an output; a negative `start_line` counts from the last line."""
        return await self._on_output(
            output_id, lambda output: output.read_lines(start_line, line_count)
        )

    async def _on_output(self, output_id: str, work: Callable[[StoredOutput], T]) -> T:
        for session_id in await self.sessions_with(output_id):

            def on_store(store: _Store, session_id: str = session_id) -> tuple[T] | None:
                output = store.output(session_id, output_id)
                return None if output is None else (work(output),)

            done = await self.on_session(session_id, on_store)
            if done is not None:
                return done[0]
        raise NotFoundError(
            f"The archive has no output {output_id[:80]!r}. Use an output ID from a placeholder in "
            "the context or from a search hit."
        )

    async def search(self, query: values.Query) -> values.SearchPage:
        """Search messages and outputs, including everything that was appended before the call.

        Raises:
            QueryError: The query contains no word or takes too long, or a filter, the limit or the
                cursor is invalid.
            NotFoundError: The archive has no such session, or the session no such branch.
        """
        # Imported here, so that a server that only compacts starts faster.
        from context_compaction.archive.search.words import search

        within = None
        if query.head is not None and query.session_id is not None:
            within = await self.history(query.session_id, query.head)
        return await search(query, within, self.on_rows)

    @abstractmethod
    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[values.SessionInfo], str | None]:
        """Return sessions, newest first, and the cursor of the next page or None.

        Args:
            limit: Maximum number of sessions.
            cursor: Cursor of the previous page.
            family_of: Return only this session and its descendants.

        Raises:
            QueryError: The limit is below 1, or the cursor is invalid.
        """

    @abstractmethod
    async def token_fields(self, tenant: str) -> list[JsonObject]:
        """Return the fields of all access tokens of a tenant, who is not created.

        Raises:
            SettingsError: The name of the tenant is invalid.
        """

    @abstractmethod
    async def store_token(self, token_id: str, fields: JsonObject | None) -> bool:
        """Store a token durably, or without fields remove it; return whether it existed."""

    async def keep_token(self, token: values.AccessToken) -> None:
        """Store an access token; it is durable when this returns."""
        await self.store_token(token.token_id, asdict(token))

    async def token(self, token_id: str, *, tenant: str | None = None) -> values.AccessToken | None:
        """Return an access token, or None if it does not exist or was revoked.

        Args:
            token_id: ID of the token.
            tenant: Tenant of the token; None for this archive's tenant. A tenant that does not
                exist is not created.

        Raises:
            SettingsError: The name of the tenant is invalid.
        """
        fields = await self.token_fields(self.tenant if tenant is None else tenant)
        found = (item for item in fields if item["token_id"] == token_id)
        return next(map(values.AccessToken.from_json, found), None)

    async def tokens(self) -> list[values.AccessToken]:
        """Return all access tokens, oldest first."""
        tokens = map(values.AccessToken.from_json, await self.token_fields(self.tenant))
        return sorted(tokens, key=lambda token: (token.created_seconds, token.token_id))

    async def revoke_token(self, token_id: str) -> bool:
        """Remove an access token durably; return whether it existed."""
        return await self.store_token(token_id, None)

    async def usage(self) -> values.Usage:
        """Return the size of each session."""
        return (await self.stored_sizes()).usage()

    async def prune(self, rules: values.PruneRules, *, dry_run: bool = False) -> values.PrunePlan:
        """Remove the sessions that `rules` choose and all unused large contents.

        With `dry_run` nothing is removed, and the plan is returned.
        """
        plan = (await self.stored_sizes()).plan(rules)
        if dry_run:
            return plan
        freed = await self.delete([session.session_id for session in plan.sessions])
        # Measured again, because sessions may have grown since the plan was made.
        remaining_bytes = (await self.usage()).total_bytes
        return replace(plan, freed_bytes=freed, remaining_bytes=remaining_bytes)

    @abstractmethod
    async def delete(self, session_ids: Sequence[str]) -> int:
        """Remove sessions with all their data; return the number of freed bytes.

        Content that several sessions share is removed with the last of them. Without IDs, only
        large contents that no session refers to are removed.

        Raises:
            NotFoundError: The archive has no such session; nothing was removed.
        """

    @abstractmethod
    async def health(self) -> values.Health:
        """Return sizes and problems of the archive."""

    @abstractmethod
    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "Archive":
        """The part of the same store that belongs to `tenant`; it ends with this archive.

        Raises:
            SettingsError: The name cannot be a tenant's.
            NotFoundError: It holds nothing of that tenant, and the call does not `opens` it; the
                text names those that are known.
        """
