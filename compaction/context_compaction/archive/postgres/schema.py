"""The tables, and how a database comes to have them: a list of steps, each run once.

Every key, unique index and foreign key begins with the tenant, and every table is partitioned by
its hash. So all rows of a tenant lie together, and a distributed PostgreSQL shards the tables as
they are: docs/how-to/postgresql.md has the commands for Citus.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import psycopg

from context_compaction.errors import ArchiveError

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

SCHEMA = "compaction"
PARTITIONS = 16
# Row-level security is the second lock between tenants: every statement names its tenant as well.
# Not on `doc`: under it PostgreSQL uses no GIN index, since matching words is not "leakproof". What
# is found there is only a number; its text is read from `record`, behind the lock.
_FIRST_LOCKED = ("session", "record", "output", "blob", "blob_use")
_FIRST = (*_FIRST_LOCKED, "doc")
LOCKED_TABLES = (*_FIRST_LOCKED, "access_token", "unnamed_object")
TABLES = (*LOCKED_TABLES, "doc")

# Any number, the same for all processes: one of them migrates, the others wait.
_MIGRATION_LOCK = 0x636F_6D70_6163_7401

_TABLES = """
CREATE TABLE compaction.session (
    tenant text NOT NULL,
    session text NOT NULL,
    generation bigint NOT NULL,
    parent text,
    format text NOT NULL,
    title text NOT NULL,
    next_number bigint NOT NULL,
    message_count bigint NOT NULL,
    doc_count bigint NOT NULL,
    term_count bigint NOT NULL,
    log_bytes bigint NOT NULL,
    is_retained boolean NOT NULL,
    first_seconds double precision NOT NULL,
    last_seconds double precision NOT NULL,
    archived_seconds double precision NOT NULL,
    PRIMARY KEY (tenant, session)
) PARTITION BY HASH (tenant);
CREATE INDEX session_newest ON compaction.session (tenant, last_seconds, generation);
CREATE INDEX session_parent ON compaction.session (tenant, parent);

CREATE TABLE compaction.record (
    tenant text NOT NULL,
    session text NOT NULL,
    number bigint NOT NULL,
    head text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (tenant, session, number),
    FOREIGN KEY (tenant, session) REFERENCES compaction.session (tenant, session)
) PARTITION BY HASH (tenant);

CREATE TABLE compaction.output (
    tenant text NOT NULL,
    output_id text NOT NULL,
    session text NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (tenant, output_id, session),
    FOREIGN KEY (tenant, session) REFERENCES compaction.session (tenant, session)
) PARTITION BY HASH (tenant);
CREATE INDEX output_of_session ON compaction.output (tenant, session);

CREATE TABLE compaction.blob (
    tenant text NOT NULL,
    digest text NOT NULL,
    size_bytes bigint NOT NULL,
    data bytea,
    object_key text,
    PRIMARY KEY (tenant, digest)
) PARTITION BY HASH (tenant);

CREATE TABLE compaction.blob_use (
    tenant text NOT NULL,
    session text NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (tenant, session, digest),
    FOREIGN KEY (tenant, session) REFERENCES compaction.session (tenant, session),
    FOREIGN KEY (tenant, digest) REFERENCES compaction.blob (tenant, digest)
) PARTITION BY HASH (tenant);
CREATE INDEX use_of_blob ON compaction.blob_use (tenant, digest);

CREATE TABLE compaction.doc (
    tenant text NOT NULL,
    doc_id bigint NOT NULL,
    session text NOT NULL,
    number bigint NOT NULL,
    seq bigint NOT NULL,
    output_id text,
    start_byte bigint NOT NULL,
    size_bytes bigint NOT NULL,
    start_char bigint NOT NULL,
    start_line bigint NOT NULL,
    seconds double precision NOT NULL,
    role text NOT NULL,
    tools text[] NOT NULL,
    is_own boolean NOT NULL,
    term_count integer NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (tenant, doc_id),
    FOREIGN KEY (tenant, session) REFERENCES compaction.session (tenant, session)
) PARTITION BY HASH (tenant);
CREATE INDEX doc_of_session ON compaction.doc (tenant, session, seq);
CREATE INDEX doc_by_time ON compaction.doc (tenant, seconds);
CREATE INDEX doc_words ON compaction.doc USING gin (words) WITH (fastupdate = off);
"""


def partitions_of(table: str) -> str:
    """The statements that make the partitions of a table."""
    return "".join(
        f"CREATE TABLE {SCHEMA}.{table}_{at} PARTITION OF {SCHEMA}.{table}"
        f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {at});"
        for at in range(PARTITIONS)
    )


def _tables(connection: Connection) -> None:
    connection.execute("CREATE SEQUENCE compaction.doc_id; CREATE SEQUENCE compaction.generation")
    connection.execute(_TABLES.encode())
    for table in _FIRST:
        connection.execute(partitions_of(table).encode())
    # Frames are compressed already, and a part of them is to be read without the rest.
    connection.execute("ALTER TABLE compaction.blob ALTER data SET STORAGE EXTERNAL")
    for at in range(PARTITIONS):
        connection.execute(
            f"ALTER TABLE compaction.blob_{at} ALTER data SET STORAGE EXTERNAL".encode()
        )


_TOKENS = """
CREATE TABLE compaction.access_token (
    tenant text NOT NULL,
    token_id text NOT NULL,
    fields jsonb NOT NULL,
    PRIMARY KEY (tenant, token_id)
) PARTITION BY HASH (tenant);
"""


def _tokens(connection: Connection) -> None:
    connection.execute(_TOKENS.encode())
    connection.execute(partitions_of("access_token").encode())
    _lock("access_token", connection)


def _row_security(connection: Connection) -> None:
    for table in _FIRST_LOCKED:
        _lock(table, connection)


def _lock(table: str, connection: Connection) -> None:
    connection.execute(
        f"ALTER TABLE {SCHEMA}.{table} ENABLE ROW LEVEL SECURITY;"
        f" ALTER TABLE {SCHEMA}.{table} FORCE ROW LEVEL SECURITY;"
        f" CREATE POLICY tenant ON {SCHEMA}.{table}"
        " USING (tenant = current_setting('app.tenant', true))".encode()
    )


# New rows wait for the index of words in a list, which whoever fills it sorts in: measured, 125
# instead of 270 us of the server a row. A search reads that list, so it is a short one.
_PENDING_KILOBYTES = 256


def _pending_words(connection: Connection) -> None:
    indexes = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'compaction.doc_words'::regclass"
    ).fetchall()
    for (name,) in indexes:
        connection.execute(
            f"ALTER INDEX {name} SET"
            f" (fastupdate = on, gin_pending_list_limit = {_PENDING_KILOBYTES})".encode()
        )


def _terms_versions(connection: Connection) -> None:
    # By which version of the tokenizer all words of a session were made; "" where by several, or
    # by one that did not say so.
    connection.execute(
        "ALTER TABLE compaction.session ADD COLUMN terms_version text NOT NULL DEFAULT ''"
    )


_UNNAMED_OBJECTS = """
CREATE TABLE compaction.unnamed_object (
    tenant text NOT NULL,
    object_key text NOT NULL,
    size_bytes bigint NOT NULL,
    noted_seconds double precision NOT NULL,
    PRIMARY KEY (tenant, object_key)
) PARTITION BY HASH (tenant);
"""


def _unnamed_objects(connection: Connection) -> None:
    connection.execute(_UNNAMED_OBJECTS.encode())
    connection.execute(partitions_of("unnamed_object").encode())
    _lock("unnamed_object", connection)


MIGRATIONS: Sequence[Callable[[Connection], None]] = (
    _tables,
    _row_security,
    _tokens,
    _pending_words,
    _terms_versions,
    _unnamed_objects,
)
"""What was changed, in order. Whatever was released stays as it is: add to the end."""


def migrate(connection: Connection) -> None:
    """Bring the database to the newest version; one process at a time.

    Raises:
        ArchiveError: The database is newer than this program.
    """
    if _version(connection) == len(MIGRATIONS):
        return  # whoever may only read and write rows needs no more rights than that
    connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
    try:
        version = _version(connection)
        if version > len(MIGRATIONS):
            raise ArchiveError(
                f"The archive's tables are of version {version}, and this program knows versions "
                f"up to {len(MIGRATIONS)}. Update mcp-server-compaction."
            )
        for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
            with connection.transaction():
                if number == 1:
                    connection.execute(
                        "CREATE SCHEMA IF NOT EXISTS compaction;"
                        " CREATE TABLE compaction.version (number integer PRIMARY KEY)"
                    )
                step(connection)
                connection.execute("INSERT INTO compaction.version VALUES (%s)", (number,))
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))


def _version(connection: Connection) -> int:
    row = connection.execute("SELECT to_regclass('compaction.version')").fetchone()
    if row is None or row[0] is None:
        return 0
    row = connection.execute("SELECT max(number) FROM compaction.version").fetchone()
    return 0 if row is None or row[0] is None else int(row[0])
