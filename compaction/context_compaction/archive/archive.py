"""The interface of every archive.

`Archive` has the code that is the same for a folder (`local/`) and a database (`postgres/`).
`opening.py` opens either of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from context_compaction.archive.records import StoredOutput
from context_compaction.archive.retention import StoredSizes
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.archive.values import (
    AccessToken,
    Health,
    OutputInfo,
    OutputSlice,
    PrunePlan,
    PruneRules,
    Query,
    SearchPage,
    SessionInfo,
    Usage,
)
from context_compaction.archive.writing import append, commit, retain
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import JsonObject
from context_compaction.redaction import RedactionMode

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
    damaged_messages = _on_session(_Store.damaged_messages)
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

    async def output_info(self, output_id: str) -> OutputInfo:
        """Return the description of an output."""
        return await self._on_output(output_id, lambda output: output.info)

    async def read_output(
        self, output_id: str, *, start_byte: int = 0, limit_bytes: int | None = None
    ) -> OutputSlice:
        """Return bytes of an output, after their hash was checked."""
        return await self._on_output(
            output_id, lambda output: output.read_bytes(start_byte, limit_bytes)
        )

    async def read_output_lines(
        self, output_id: str, *, start_line: int = 1, line_count: int | None = None
    ) -> OutputSlice:
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

    async def search(self, query: Query) -> SearchPage:
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
    ) -> tuple[list[SessionInfo], str | None]:
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

    async def keep_token(self, token: AccessToken) -> None:
        """Store an access token; it is durable when this returns."""
        await self.store_token(token.token_id, asdict(token))

    async def token(self, token_id: str, *, tenant: str | None = None) -> AccessToken | None:
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
        return next(map(AccessToken.from_json, found), None)

    async def tokens(self) -> list[AccessToken]:
        """Return all access tokens, oldest first."""
        tokens = map(AccessToken.from_json, await self.token_fields(self.tenant))
        return sorted(tokens, key=lambda token: (token.created_seconds, token.token_id))

    async def revoke_token(self, token_id: str) -> bool:
        """Remove an access token durably; return whether it existed."""
        return await self.store_token(token_id, None)

    async def usage(self) -> Usage:
        """Return the size of each session."""
        return (await self.stored_sizes()).usage()

    async def prune(self, rules: PruneRules, *, dry_run: bool = False) -> PrunePlan:
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
    async def health(self) -> Health:
        """Return sizes and problems of the archive."""

    @abstractmethod
    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "Archive":
        """The part of the same store that belongs to `tenant`; it ends with this archive.

        Raises:
            SettingsError: The name cannot be a tenant's.
            NotFoundError: It holds nothing of that tenant, and the call does not `opens` it; the
                text names those that are known.
        """
