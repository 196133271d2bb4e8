"""The archive in PostgreSQL: one database for many processes, machines and tenants."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from time import time
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from anyio import CancelScope, CapacityLimiter, Lock, to_thread
from psycopg.types.json import Jsonb

from context_compaction.archive.archive import Archive, StoredSizes
from context_compaction.archive.postgres.database import Connection, Database, read_address
from context_compaction.archive.postgres.rows import FAMILY, TenantRows
from context_compaction.archive.postgres.sessions import (
    RowState,
    TenantBlobs,
    TenantStore,
    open_objects,
)
from context_compaction.archive.search.filters import Check, RowsOf, session_cursor, session_page
from context_compaction.archive.search.patterns import SCAN_SECONDS
from context_compaction.archive.transcript_state import Description, StateCache
from context_compaction.archive.values import Health, SessionInfo, check_tenant
from context_compaction.errors import ArchiveBusyError, NotFoundError
from context_compaction.messages.model import JsonObject
from context_compaction.redaction import RedactionMode

T = TypeVar("T")
# Objects without a row are removed after a day, when no open transaction can still refer to them.
ORPHAN_SECONDS = 86_400.0


@asynccontextmanager
async def open_archive(
    address: str, *, redaction: RedactionMode = "off"
) -> AsyncGenerator["PostgresArchive"]:
    """Open the archive at `address`, and create its tables if they are missing.

    Args:
        address: `postgresql://user@host/database` with PostgreSQL's settings and three others:
            `tenant` (owner of the archive, default "default"), `objects` (`s3://bucket/prefix` for
            large contents), `connections` (maximum number of this process).
        redaction: See `context_compaction.archive.opening.open_archive`.

    Raises:
        SettingsError: A setting in the address is invalid.
        ArchiveError: The database cannot be reached, or its version or encoding is unsupported.
    """
    settings = read_address(address)
    database = Database(settings)
    await to_thread.run_sync(database.open)
    try:
        yield PostgresArchive(database, settings.objects, redaction, settings.tenant)
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(database.close)


class PostgresArchive(Archive):
    """One tenant's `Archive` in a database.

    Each call is one transaction in a thread. A cancelled call waits for the end of its transaction,
    which has a time limit; a cancelled search ends at its next statement.
    """

    def __init__(
        self, database: Database, objects: str, redaction: RedactionMode, tenant: str
    ) -> None:
        """`objects` is the address of the object store; "" keeps large contents in tables."""
        self.tenant = tenant
        self.redaction: RedactionMode = redaction
        self._database = database
        self._objects = objects
        self._states = StateCache[RowState]()
        # As many threads as connections, so that calls wait here, where they can be cancelled.
        self._limiter = CapacityLimiter(database.connections)
        # Locks by tenant and session, so that the calls of this process on one session run one
        # after the other. Otherwise each would wait for the session's row with a connection of its
        # own, and load the session again. A lock exists while a call uses it.
        self._locks: WeakValueDictionary[tuple[str, str], Lock] = WeakValueDictionary()

    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "PostgresArchive":
        """See `Archive.for_tenant`. Row-level security hides other tenants from most roles.

        Raises:
            SettingsError: The tenant name is invalid.
            NotFoundError: The tenant has no rows, and `opens` is False.
        """
        if check_tenant(tenant) == self.tenant:
            return self
        archive = copy(self)  # the copy shares the loaded states
        archive.tenant = tenant
        if not (opens or await archive._select(f"{_SESSIONS} LIMIT 1") or await archive.tokens()):
            raise NotFoundError.of_tenant(tenant)
        return archive

    async def on_rows(self, work: Callable[[RowsOf], T], check: Check) -> T:
        """See `Archive.on_rows`."""

        def on_tables(connection: Connection) -> T:
            check()
            return work(partial(TenantRows, connection, self._blobs(connection), self.tenant))

        try:
            return await self._run(on_tables, seconds=SCAN_SECONDS, reads=True)
        except ArchiveBusyError:
            await to_thread.run_sync(check)  # raises the error that names the query
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

    async def token_fields(self, tenant: str) -> list[JsonObject]:
        """See `Archive.token_fields`."""
        archive = await self.for_tenant(tenant)
        rows = await archive._select(
            "SELECT fields FROM compaction.access_token WHERE tenant = %(tenant)s"
        )
        return [fields for (fields,) in rows]

    async def store_token(self, token_id: str, fields: JsonObject | None) -> bool:
        """See `Archive.store_token`."""
        key = self.tenant, token_id

        def work(connection: Connection) -> bool:
            # No ON CONFLICT, because partitions on other servers do not support it.
            removed = connection.execute(
                "DELETE FROM compaction.access_token WHERE tenant = %s AND token_id = %s", key
            )
            if fields is not None:
                connection.execute(
                    "INSERT INTO compaction.access_token VALUES (%s, %s, %s)", (*key, Jsonb(fields))
                )
            return removed.rowcount > 0

        return await self._run(work)

    async def stored_sizes(self) -> StoredSizes:
        """See `Archive.stored_sizes`."""
        orphans = await self._orphaned_objects()
        return await self._run(
            lambda connection: _measure(connection, self.tenant, orphans), reads=True
        )

    async def delete(self, session_ids: Sequence[str]) -> int:
        """See `Archive.delete`.

        Also removes objects that have had no row for `ORPHAN_SECONDS`; see `sessions.py`.
        """
        orphans = await self._orphaned_objects()
        freed_bytes, keys = await self._run(
            lambda connection: _delete(connection, self.tenant, session_ids)
        )
        if keys or orphans:  # if this fails, a later deletion removes the objects
            store = open_objects(self._objects)
            await to_thread.run_sync(store.delete, [*orphans, *keys], limiter=self._limiter)
        return freed_bytes + sum(orphans.values())

    async def _orphaned_objects(self) -> dict[str, int]:
        """Return the sizes of objects that have had no row for `ORPHAN_SECONDS`, by key."""
        if not self._objects:
            return {}
        find = partial(open_objects(self._objects).written_before, self._folder)
        found = await to_thread.run_sync(find, time() - ORPHAN_SECONDS, limiter=self._limiter)
        named = await self._select(
            "SELECT object_key FROM compaction.blob WHERE tenant = %(tenant)s"
            " AND object_key = ANY(%(keys)s)",
            keys=[*found],
        )
        return {key: size for key, size in found.items() if (key,) not in named}

    async def health(self) -> Health:
        """See `Archive.health`."""
        location = self._database.location
        return await self._run(
            lambda connection: _examine(connection, self.tenant, location), reads=True
        )

    async def on_session(self, session_id: str, work: Callable[[TenantStore], T]) -> T:
        """Run `work` on a store in one transaction and return its result.

        Calls of this process on one session run one after the other.
        """

        def on_store(connection: Connection) -> tuple[T, TenantStore]:
            blobs, redacts = self._blobs(connection), self.redaction == "on"
            store = TenantStore(connection, self.tenant, blobs, self._states, redacts=redacts)
            return work(store), store

        async with self._locks.setdefault((self.tenant, session_id), Lock()):
            result, store = await self._run(on_store)
            store.keep()
        return result

    async def sessions_with(self, output_id: str) -> list[str]:
        """See `Archive.sessions_with`."""
        if not (output_id.isascii() and output_id.isprintable()):
            return []
        rows = await self._select(
            "SELECT DISTINCT session FROM compaction.doc WHERE tenant = %(tenant)s"
            " AND output_id = %(output_id)s ORDER BY session",
            output_id=output_id,
        )
        return [session_id for (session_id,) in rows]

    def _blobs(self, connection: Connection) -> TenantBlobs:
        return TenantBlobs(connection, self.tenant, self._objects, self._folder)

    @property
    def _folder(self) -> str:
        return f"{self._database.name}/{self.tenant}"

    async def _run(self, work: Callable[[Connection], T], **settings: Any) -> T:
        run = partial(self._database.run, self.tenant, work, **settings)
        return await to_thread.run_sync(run, limiter=self._limiter)

    async def _select(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of one statement; its parameter `tenant` is this tenant."""
        parameters = {"tenant": self.tenant, **values}
        return await self._run(
            lambda connection: connection.execute(sql.encode(), parameters).fetchall(), reads=True
        )


_SESSIONS = (
    "SELECT generation, description, log_bytes FROM compaction.session WHERE tenant = %(tenant)s"
)


def _measure(connection: Connection, tenant: str, orphans: Mapping[str, int]) -> StoredSizes:
    """Return the sizes of a tenant's sessions and contents, and of objects without a row."""
    sessions = connection.execute(_SESSIONS.encode(), {"tenant": tenant})
    uses = connection.execute(
        "SELECT session, digest FROM compaction.blob_use WHERE tenant = %s", (tenant,)
    )
    sizes = connection.execute(
        "SELECT digest, size_bytes FROM compaction.blob WHERE tenant = %s", (tenant,)
    )
    usage = (Description.from_json(text).usage(size) for _, text, size in sessions)
    return StoredSizes(usage, uses, {**dict(sizes.fetchall()), **orphans})


def _delete(
    connection: Connection, tenant: str, session_ids: Sequence[str]
) -> tuple[int, list[str]]:
    """Remove sessions, and every large content that no other session refers to.

    Returns the bytes freed, and the keys of the objects to remove after the transaction.

    Raises:
        NotFoundError: A session does not exist; nothing was removed.
    """
    names = sorted(set(session_ids))
    rows = connection.execute(
        "SELECT session, log_bytes FROM compaction.session WHERE tenant = %s AND session = ANY(%s)"
        " ORDER BY session FOR UPDATE",
        (tenant, names),
    ).fetchall()
    sizes: dict[str, int] = dict(rows)
    for name in names:
        if name not in sizes:
            raise NotFoundError.of_session(name)
    for table in ("doc", "blob_use", "record", "session"):
        connection.execute(
            f"DELETE FROM compaction.{table} WHERE tenant = %s AND session = ANY(%s)".encode(),  # noqa: S608
            (tenant, names),
        )
    removed = connection.execute(
        "DELETE FROM compaction.blob WHERE tenant = %s AND NOT EXISTS ("
        "SELECT FROM compaction.blob_use WHERE blob_use.tenant = blob.tenant"
        " AND blob_use.digest = blob.digest) RETURNING size_bytes, object_key",
        (tenant,),
    ).fetchall()
    freed = sum(sizes.values()) + sum(size for size, _ in removed)
    return freed, [key for _, key in removed if key is not None]


def _examine(connection: Connection, tenant: str, location: str) -> Health:
    """Return the figures of a tenant, and problems of its database."""
    usage = _measure(connection, tenant, {}).usage()
    log_bytes = sum(session.log_bytes for session in usage.sessions)
    ((outputs, index_bytes, role, bypasses),) = connection.execute(
        "SELECT count(DISTINCT output_id), coalesce(sum(pg_column_size(words)), 0)::bigint,"
        " current_user, (SELECT rolsuper OR rolbypassrls FROM pg_roles"
        "  WHERE rolname = current_user)"
        " FROM compaction.doc WHERE tenant = %s",
        (tenant,),
    ).fetchall()
    note = (
        f"Note: the role {role!r} bypasses row-level security, the second barrier between tenants. "
        "Connect as a role that is neither superuser nor BYPASSRLS."
    )
    return Health(
        location,
        len(usage.sessions),
        sum(session.message_count for session in usage.sessions),
        outputs,
        log_bytes,
        usage.total_bytes - log_bytes,
        index_bytes,
        (note,) if bypasses else (),
    )
