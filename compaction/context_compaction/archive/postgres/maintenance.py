"""Sizes and deletion of a tenant's sessions, within one transaction."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from context_compaction.archive import Health
from context_compaction.archive.frames import Blobs
from context_compaction.archive.postgres.blobs import note_unnamed
from context_compaction.archive.postgres.indexing import docs_of, insert_docs
from context_compaction.archive.postgres.schema import Connection
from context_compaction.archive.records import Record
from context_compaction.archive.retention import Stored, StoredSession
from context_compaction.archive.tokenizer import TERMS_VERSION
from context_compaction.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Deleted:
    """The outcome of a deletion.

    Attributes:
        freed_bytes: The size of what was deleted.
        object_keys: The objects that nothing names any more, to be removed after the transaction.
    """

    freed_bytes: int
    object_keys: list[str] = field(default_factory=list[str])


def measure(connection: Connection, tenant: str) -> Stored:
    """The size of each session of a tenant."""
    blobs: dict[str, set[str]] = {}
    for session, digest in connection.execute(
        "SELECT session, digest FROM compaction.blob_use WHERE tenant = %s", (tenant,)
    ):
        blobs.setdefault(session, set()).add(digest)
    rows = connection.execute(
        "SELECT session, parent, is_retained, message_count, archived_seconds, log_bytes"
        " FROM compaction.session WHERE tenant = %s AND next_number > 0"
        " ORDER BY archived_seconds, session",
        (tenant,),
    )
    sessions = [
        StoredSession(name, parent, retained, count, seconds, size, frozenset(blobs.get(name, ())))
        for name, parent, retained, count, seconds, size in rows
    ]
    sizes = connection.execute(
        "SELECT digest, size_bytes FROM compaction.blob WHERE tenant = %s", (tenant,)
    ).fetchall()
    return Stored(sessions, dict(sizes))


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
    held = {session for session, _ in found}
    missing = next((name for name in wanted if name not in held), None)
    if missing is not None:
        raise NotFoundError.of_session(missing)
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
    freed = sum(size for _, size in found) + sum(size for size, _ in gone)
    objects = [(key, size) for size, key in gone if key is not None]
    note_unnamed(connection, tenant, objects)
    return Deleted(freed, [key for key, _ in objects])


def tenants(connection: Connection) -> list[str]:
    """The tenants with rows that may be seen: the transaction's own, or all of them."""
    rows = connection.execute(
        "SELECT tenant FROM compaction.session UNION SELECT tenant FROM compaction.access_token"
        " ORDER BY tenant"
    )
    return [tenant for (tenant,) in rows]


def stale_sessions(connection: Connection, tenant: str) -> list[str]:
    """The sessions whose words another version of the tokenizer made."""
    rows = connection.execute(
        "SELECT session FROM compaction.session WHERE tenant = %s AND terms_version != %s"
        " AND next_number > 0 ORDER BY session",
        (tenant, TERMS_VERSION),
    )
    return [session for (session,) in rows]


def index_anew(connection: Connection, tenant: str, session_id: str, blobs: Blobs) -> None:
    """Make the words of a session as this version does; in the places of the old ones."""
    whose = (tenant, session_id)
    connection.execute(
        "SELECT FROM compaction.session WHERE tenant = %s AND session = %s FOR UPDATE", whose
    )
    rows = connection.execute(
        "SELECT head, body FROM compaction.record WHERE tenant = %s AND session = %s"
        " ORDER BY number",
        whose,
    ).fetchall()
    gone = connection.execute(
        "DELETE FROM compaction.doc WHERE tenant = %s AND session = %s RETURNING doc_id", whose
    ).fetchall()
    docs = list(docs_of([Record(json.loads(head), body) for head, body in rows], blobs))
    insert_docs(connection, tenant, session_id, docs, [doc_id for (doc_id,) in gone])
    connection.execute(
        "UPDATE compaction.session SET doc_count = %s, term_count = %s, terms_version = %s"
        " WHERE tenant = %s AND session = %s",
        (len(docs), sum(doc.term_count for doc in docs), TERMS_VERSION, *whose),
    )


def unnamed_objects(connection: Connection, tenant: str, before_seconds: float) -> dict[str, int]:
    """The objects that were noted before a time and no row names, with their sizes."""
    rows = connection.execute(
        "SELECT object_key, size_bytes FROM compaction.unnamed_object AS noted WHERE tenant = %s"
        " AND noted_seconds < %s AND NOT EXISTS (SELECT FROM compaction.blob"
        " WHERE blob.tenant = noted.tenant AND blob.object_key = noted.object_key)",
        (tenant, before_seconds),
    )
    return dict(rows.fetchall())


def forget_objects(connection: Connection, tenant: str, keys: Sequence[str]) -> None:
    """Take note that objects are gone."""
    connection.execute(
        "DELETE FROM compaction.unnamed_object WHERE tenant = %s AND object_key = ANY(%s)",
        (tenant, list(keys)),
    )


def examine(connection: Connection, tenant: str, location: str) -> Health:
    """Figures of a tenant, and what is to be known of its database."""
    (sessions, messages, log_bytes), outputs, blob_bytes, index_bytes = (
        connection.execute(statement.encode(), (tenant,)).fetchall()[0]
        for statement in (
            "SELECT count(*), coalesce(sum(message_count), 0)::bigint,"
            " coalesce(sum(log_bytes), 0)::bigint FROM compaction.session"
            " WHERE tenant = %s AND next_number > 0",
            "SELECT count(DISTINCT output_id) FROM compaction.output WHERE tenant = %s",
            "SELECT coalesce(sum(size_bytes), 0)::bigint FROM compaction.blob WHERE tenant = %s",
            "SELECT coalesce(sum(pg_column_size(words)), 0)::bigint FROM compaction.doc"
            " WHERE tenant = %s",
        )
    )
    return Health(
        location=location,
        session_count=sessions,
        message_count=messages,
        output_count=outputs[0],
        log_bytes=log_bytes,
        blob_bytes=blob_bytes[0],
        index_bytes=index_bytes[0],
        problems=(*_problems(connection), *_stale(connection, tenant)),
    )


def _stale(connection: Connection, tenant: str) -> list[str]:
    count = len(stale_sessions(connection, tenant))
    if not count:
        return []
    return [
        f"Note: the words of {count} sessions were made by another version, and some searches miss "
        "what is in them. `prune` makes them anew."
    ]


def _problems(connection: Connection) -> list[str]:
    row = connection.execute(
        "SELECT rolname FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)"
    ).fetchone()
    if row is None:
        return []
    return [
        f"Note: the role {row[0]!r} is above row-level security, the second lock between tenants. "
        "Connect as a role that is neither superuser nor BYPASSRLS."
    ]
