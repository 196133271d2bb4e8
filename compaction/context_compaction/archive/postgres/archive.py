"""The archive in PostgreSQL: one database for many processes, machines and tenants."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from time import time
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from anyio import CancelScope, CapacityLimiter, Lock, to_thread
from psycopg.types.json import Jsonb

from context_compaction.archive import (
    AccessToken,
    Archive,
    Health,
    PrunePlan,
    PruneRules,
    SessionInfo,
    Usage,
    check_tenant,
)
from context_compaction.archive.postgres import maintenance
from context_compaction.archive.postgres.blobs import TenantBlobs, forget_unnamed, open_objects
from context_compaction.archive.postgres.database import Database, read_address
from context_compaction.archive.postgres.rows import FAMILY, TenantRows, parse_body
from context_compaction.archive.postgres.schema import Connection
from context_compaction.archive.postgres.sessions import RowState, TenantSessions
from context_compaction.archive.records import StoredOutput, info_of
from context_compaction.archive.retention import choose, plan_of, usage_of
from context_compaction.archive.search.filters import session_cursor, session_page
from context_compaction.archive.search.page import Check, RowsOf
from context_compaction.archive.search.patterns import SCAN_SECONDS
from context_compaction.archive.session_state import StateCache
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.errors import ArchiveBusyError, NotFoundError
from context_compaction.redaction import RedactionMode

T = TypeVar("T")
ORPHAN_SECONDS = 86_400.0


@asynccontextmanager
async def open_archive(
    address: str, *, redaction: RedactionMode = "off"
) -> AsyncGenerator["PostgresArchive"]:
    """The archive at `address`, its tables made when they are missing.

    Args:
        address: `postgresql://user@host/database`, with PostgreSQL's own settings and ours:
            `tenant` (whose archive, else "default"), `objects` (`s3://bucket/prefix`, for large
            contents), `connections` (at most so many of this process).
        redaction: How secrets are treated, as for a folder.

    Raises:
        SettingsError: A setting in the address cannot be used.
        ArchiveError: The database cannot be reached, or is not for us.
    """
    named = read_address(address)
    database = Database(named)
    await to_thread.run_sync(database.open)
    try:
        yield PostgresArchive(_Shared(database, named.objects, redaction), named.tenant)
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(database.close)


class _Shared:
    """What the archives of all tenants of one database have in common.

    Attributes:
        database: The connections.
        objects: Where large contents lie; "" for the database itself.
        redaction: How secrets are treated.
        states: What is known of sessions.
    """

    def __init__(self, database: Database, objects: str, redaction: RedactionMode) -> None:
        self.database = database
        self.objects = objects
        self.redaction: RedactionMode = redaction
        self.states: StateCache[RowState] = StateCache()
        # As many threads as connections: who waits for one waits here, and can be cancelled.
        self.limiter: CapacityLimiter = CapacityLimiter(database.connections)
        self._locks: WeakValueDictionary[tuple[str, str], Lock] = WeakValueDictionary()

    def one_at_a_time(self, tenant: str, session_id: str) -> Lock:
        """A lock by which the calls of this process on one session follow each other.

        Without it others would wait for the session's row, each with a connection; and what is
        known of the session would be learnt by each anew. It exists while a call has it.
        """
        return self._locks.setdefault((tenant, session_id), Lock())


class PostgresArchive(Archive):
    """One tenant's `Archive` in a database; see there for what each method does.

    A call is one transaction in a thread. Cancelling it waits until that has ended, within
    its time limit; a search ends at its next statement.
    """

    def __init__(self, shared: _Shared, tenant: str) -> None:
        self._shared = shared
        self.tenant = tenant
        self.redaction = shared.redaction

    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "PostgresArchive":
        """See `Archive.for_tenant`. Row-level security hides other tenants from most roles.

        Raises:
            SettingsError: The name cannot be a tenant's.
            NotFoundError: No row is the tenant's, and the call does not `opens` it.
        """
        if check_tenant(tenant) == self.tenant:
            return self
        archive = PostgresArchive(self._shared, tenant)
        if not (opens or await archive._select(f"{_SESSIONS} LIMIT 1") or await archive.tokens()):
            raise NotFoundError.of_tenant(tenant)
        return archive

    async def on_rows(self, work: Callable[[RowsOf, Check], T], limit: Callable[[], Check]) -> T:
        """See `Archive.on_rows`."""
        check = limit()

        def on_tables(connection: Connection) -> T:
            blobs = self._blobs(connection)
            return work(partial(TenantRows, connection, blobs, self.tenant), check)

        try:
            return await self._run(on_tables, seconds=SCAN_SECONDS, reads=True)
        except ArchiveBusyError:
            await to_thread.run_sync(check)  # which says what took so long
            raise

    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """See `Archive.sessions`."""
        seconds, generation = session_cursor(limit, cursor)
        family = "" if family_of is None else f"AND session IN ({FAMILY})"
        rows = await self._select(
            f"{_SESSIONS} AND (last_seconds, generation) < (%(seconds)s, %(generation)s) {family}"
            " ORDER BY last_seconds DESC, generation DESC LIMIT %(limit)s",
            seconds=seconds,
            generation=generation,
            session=family_of,
            limit=limit + 1,
        )
        return session_page(rows, limit)

    async def keep_token(self, token: AccessToken) -> None:
        """See `Archive.keep_token`."""
        values = self.tenant, token.token_id, Jsonb(asdict(token))

        def work(connection: Connection) -> None:
            # Not one statement that names the key: where partitions lie on other servers, only
            # they know it.
            connection.execute(_REVOKE, values[:2])
            connection.execute("INSERT INTO compaction.access_token VALUES (%s, %s, %s)", values)

        await self._run(work)

    async def token(self, token_id: str, *, tenant: str | None = None) -> AccessToken | None:
        """See `Archive.token`."""
        if tenant is not None and tenant != self.tenant:
            return await (await self.for_tenant(tenant)).token(token_id)
        found = await self._select(f"{_TOKENS} AND token_id = %(token_id)s", token_id=token_id)
        return AccessToken.from_json(found[0][0]) if found else None

    async def tokens(self) -> list[AccessToken]:
        """See `Archive.tokens`."""
        found = (AccessToken.from_json(fields) for (fields,) in await self._select(_TOKENS))
        return sorted(found, key=lambda token: (token.created_seconds, token.token_id))

    async def revoke_token(self, token_id: str) -> bool:
        """See `Archive.revoke_token`."""
        values = self.tenant, token_id
        return await self._run(lambda connection: connection.execute(_REVOKE, values).rowcount > 0)

    async def usage(self) -> Usage:
        """See `Archive.usage`."""
        measure = partial(maintenance.measure, tenant=self.tenant)
        return await self._run(lambda connection: usage_of(measure(connection)), reads=True)

    async def prune(self, rules: PruneRules, *, dry_run: bool = False) -> PrunePlan:
        """See `Archive.prune`; what is chosen and removed is one transaction.

        Objects that no row names go as well: their upload's transaction failed, or what was to
        remove them did.
        """

        def work(connection: Connection) -> tuple[PrunePlan, list[str]]:
            stored = maintenance.measure(connection, self.tenant)
            plan = plan_of(stored, choose(stored, rules))
            if dry_run:
                return plan, []
            names = [session.session_id for session in plan.sessions]
            done = maintenance.delete(connection, self.tenant, names)
            left = plan.freed_bytes + plan.left_bytes - done.freed_bytes
            return replace(plan, freed_bytes=done.freed_bytes, left_bytes=left), done.object_keys

        plan, keys = await self._run(work)
        await self._remove_objects(keys)
        orphans = await self._orphaned_objects()
        if not dry_run:
            await self._remove_objects([*orphans])
        return replace(plan, freed_bytes=plan.freed_bytes + sum(orphans.values()))

    async def _orphaned_objects(self) -> dict[str, int]:
        """The objects of this tenant that no row names, with their sizes.

        Only those of a day ago: one that is younger may be named by a transaction that has not
        ended. Each upload has a name of its own, so none is named later.
        """
        if not self._shared.objects:
            return {}
        before_seconds = time() - ORPHAN_SECONDS
        return await self._run(
            lambda connection: maintenance.unnamed_objects(connection, self.tenant, before_seconds),
            reads=True,
        )

    async def delete(self, session_ids: Sequence[str]) -> int:
        """See `Archive.delete`."""
        done = await self._run(
            lambda connection: maintenance.delete(connection, self.tenant, session_ids)
        )
        await self._remove_objects(done.object_keys)
        return done.freed_bytes

    async def health(self) -> Health:
        """See `Archive.health`."""
        location = self._shared.database.location
        return await self._run(
            lambda connection: maintenance.examine(connection, self.tenant, location), reads=True
        )

    async def _remove_objects(self, keys: list[str]) -> None:
        """Remove what no row names any more; what a failure leaves, `prune` removes."""
        if keys:
            store = open_objects(self._shared.objects)
            await to_thread.run_sync(store.delete, keys, limiter=self._shared.limiter)
            await self._run(lambda connection: forget_unnamed(connection, self.tenant, keys))

    async def on_session(
        self, session_id: str, work: Callable[[TranscriptStore[RowState]], T]
    ) -> T:
        """What `work` returns of a store, in a transaction; after this session's other calls."""
        shared = self._shared

        def on_store(connection: Connection) -> tuple[T, TenantSessions]:
            blobs = self._blobs(connection)
            sessions = TenantSessions(connection, self.tenant, blobs, shared.states)
            store = TranscriptStore(sessions, redacts=shared.redaction == "on")
            return work(store), sessions

        async with shared.one_at_a_time(self.tenant, session_id):
            result, sessions = await self._run(on_store)
            sessions.keep()
        return result

    async def on_output(self, output_id: str, work: Callable[[StoredOutput], T]) -> tuple[T] | None:
        """What `work` returns of an output; None where there is none of that id."""

        def on_rows(connection: Connection) -> tuple[T] | None:
            row = connection.execute(
                "SELECT record.session, head, body FROM compaction.output"
                " JOIN compaction.record USING (tenant, session, number)"
                " WHERE tenant = %s AND output_id = %s ORDER BY record.session LIMIT 1",
                (self.tenant, output_id),
            ).fetchone()
            if row is None:
                return None
            blobs = self._blobs(connection)
            session_id, head, body = row
            info = info_of(parse_body(head, blobs), session_id)
            return (work(StoredOutput(info, parse_body(body, blobs), blobs)),)

        can_be_asked = output_id.isascii() and output_id.isprintable()
        return await self._run(on_rows, reads=True) if can_be_asked else None

    def _blobs(self, connection: Connection) -> TenantBlobs:
        apart = partial(self._shared.database.apart, self.tenant)
        return TenantBlobs(connection, self.tenant, self._shared.objects, apart)

    async def _run(self, work: Callable[[Connection], T], **settings: Any) -> T:
        run = partial(self._shared.database.run, self.tenant, work, **settings)
        return await to_thread.run_sync(run, limiter=self._shared.limiter)

    async def _select(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement; `%(tenant)s` in it is this tenant."""
        given = {"tenant": self.tenant, **values}
        return await self._run(
            lambda connection: connection.execute(sql.encode(), given).fetchall(), reads=True
        )


_SESSIONS = (
    "SELECT generation, session, parent, format, message_count, first_seconds, last_seconds, title"
    " FROM compaction.session WHERE tenant = %(tenant)s AND next_number > 0"
)
_TOKENS = "SELECT fields FROM compaction.access_token WHERE tenant = %(tenant)s"
_REVOKE = "DELETE FROM compaction.access_token WHERE tenant = %s AND token_id = %s"
