"""Sizes and deletion of a tenant's sessions, within one transaction."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from context_compaction.archive import Health
from context_compaction.archive.postgres.blobs import note_unnamed
from context_compaction.archive.postgres.schema import Connection
from context_compaction.archive.retention import Stored, StoredSession
from context_compaction.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Deleted:
    """The outcome of a deletion.

    Attributes:
        freed_bytes: The size of what was deleted.
        object_keys: The objects that nothing names any more, to be removed after the transaction.
    """

    freed_bytes: int
    object_keys: list[str]


def measure(connection: Connection, tenant: str) -> Stored:
    """The size of each session of a tenant."""
    blobs: dict[str, set[str]] = defaultdict(set)
    for session, digest in connection.execute(
        "SELECT session, digest FROM compaction.blob_use WHERE tenant = %s", (tenant,)
    ):
        blobs[session].add(digest)
    rows = connection.execute(
        "SELECT session, parent, is_retained, message_count, archived_seconds, log_bytes"
        " FROM compaction.session WHERE tenant = %s AND next_number > 0"
        " ORDER BY archived_seconds, session",
        (tenant,),
    )
    sessions = [
        StoredSession(name, parent, retained, count, seconds, size, frozenset(blobs[name]))
        for name, parent, retained, count, seconds, size in rows
    ]
    sizes = connection.execute(
        "SELECT digest, size_bytes FROM compaction.blob WHERE tenant = %s", (tenant,)
    )
    return Stored(sessions, dict(sizes.fetchall()))


def delete(connection: Connection, tenant: str, session_ids: Sequence[str]) -> Deleted:
    """Remove sessions, and whatever large content no session names then.

    Raises:
        NotFoundError: There is no such session; nothing was removed.
    """
    wanted = sorted(set(session_ids))
    found = connection.execute(
        "SELECT session, log_bytes FROM compaction.session WHERE tenant = %s AND session = ANY(%s)"
        " AND next_number > 0 ORDER BY session FOR UPDATE",
        (tenant, wanted),
    ).fetchall()
    sizes: dict[str, int] = dict(found)
    for name in wanted:
        if name not in sizes:
            raise NotFoundError.of_session(name)
    for table in ("doc", "output", "blob_use", "record", "session"):
        connection.execute(
            f"DELETE FROM compaction.{table} WHERE tenant = %s AND session = ANY(%s)".encode(),  # noqa: S608
            (tenant, wanted),
        )
    gone = connection.execute(
        "DELETE FROM compaction.blob WHERE tenant = %s AND NOT EXISTS ("
        "SELECT FROM compaction.blob_use WHERE blob_use.tenant = blob.tenant"
        " AND blob_use.digest = blob.digest) RETURNING size_bytes, object_key",
        (tenant,),
    ).fetchall()
    objects = [(key, size) for size, key in gone if key is not None]
    note_unnamed(connection, tenant, objects)
    freed = sum(sizes.values()) + sum(size for size, _ in gone)
    return Deleted(freed, [key for key, _ in objects])


def unnamed_objects(connection: Connection, tenant: str, before_seconds: float) -> dict[str, int]:
    """The objects that were noted before a time and no row names, with their sizes."""
    rows = connection.execute(
        "SELECT object_key, size_bytes FROM compaction.unnamed_object AS noted WHERE tenant = %s"
        " AND noted_seconds < %s AND NOT EXISTS (SELECT FROM compaction.blob"
        " WHERE blob.tenant = noted.tenant AND blob.object_key = noted.object_key)",
        (tenant, before_seconds),
    )
    return dict(rows.fetchall())


def examine(connection: Connection, tenant: str, location: str) -> Health:
    """Figures of a tenant, and what is to be known of its database."""
    ((sessions, messages, outputs, log_bytes, blob_bytes, index_bytes, role, is_above),) = (
        connection.execute(
            "SELECT count(*), coalesce(sum(message_count), 0)::bigint,"
            " (SELECT count(DISTINCT output_id) FROM compaction.output WHERE tenant = %(tenant)s),"
            " coalesce(sum(log_bytes), 0)::bigint,"
            " (SELECT coalesce(sum(size_bytes), 0)::bigint FROM compaction.blob"
            "  WHERE tenant = %(tenant)s),"
            " (SELECT coalesce(sum(pg_column_size(words)), 0)::bigint FROM compaction.doc"
            "  WHERE tenant = %(tenant)s),"
            " current_user, (SELECT rolsuper OR rolbypassrls FROM pg_roles"
            "  WHERE rolname = current_user)"
            " FROM compaction.session WHERE tenant = %(tenant)s AND next_number > 0",
            {"tenant": tenant},
        ).fetchall()
    )
    note = (
        f"Note: the role {role!r} is above row-level security, the second lock between tenants. "
        "Connect as a role that is neither superuser nor BYPASSRLS."
    )
    problems = (note,) if is_above else ()
    return Health(
        location, sessions, messages, outputs, log_bytes, blob_bytes, index_bytes, problems
    )
