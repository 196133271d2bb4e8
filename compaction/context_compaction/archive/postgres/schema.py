"""The tables.

Every key, unique index and foreign key begins with the tenant, and every table is partitioned by
its hash. So all rows of a tenant lie together, and a distributed PostgreSQL shards the tables as
they are: docs/how-to/postgresql.md has the commands for Citus.
"""

from typing import Any, TypeAlias

import psycopg

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

SCHEMA = "compaction"
PARTITIONS = 16
# Row-level security is the second lock between tenants: every statement names its tenant as well.
# Not on `doc`: under it PostgreSQL uses no GIN index, since matching words is not "leakproof". What
# is found there is only a number; its text is read from `record`, behind the lock.
LOCKED_TABLES = (
    "session",
    "record",
    "output",
    "blob",
    "blob_use",
    "access_token",
    "unnamed_object",
)
TABLES = (*LOCKED_TABLES, "doc")

_TABLES = """
CREATE SCHEMA IF NOT EXISTS compaction;
CREATE SEQUENCE compaction.doc_id;
CREATE SEQUENCE compaction.generation;

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
-- Frames are compressed already, and a part of them is to be read without the rest.
ALTER TABLE compaction.blob ALTER data SET STORAGE EXTERNAL;

CREATE TABLE compaction.blob_use (
    tenant text NOT NULL,
    session text NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (tenant, session, digest),
    FOREIGN KEY (tenant, session) REFERENCES compaction.session (tenant, session),
    FOREIGN KEY (tenant, digest) REFERENCES compaction.blob (tenant, digest)
) PARTITION BY HASH (tenant);
CREATE INDEX use_of_blob ON compaction.blob_use (tenant, digest);

CREATE TABLE compaction.unnamed_object (
    tenant text NOT NULL,
    object_key text NOT NULL,
    size_bytes bigint NOT NULL,
    noted_seconds double precision NOT NULL,
    PRIMARY KEY (tenant, object_key)
) PARTITION BY HASH (tenant);

CREATE TABLE compaction.access_token (
    tenant text NOT NULL,
    token_id text NOT NULL,
    fields jsonb NOT NULL,
    PRIMARY KEY (tenant, token_id)
) PARTITION BY HASH (tenant);

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
    tags text[] NOT NULL,
    term_count integer NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (tenant, doc_id),
    FOREIGN KEY (tenant, session) REFERENCES compaction.session (tenant, session)
) PARTITION BY HASH (tenant);
CREATE INDEX doc_of_session ON compaction.doc (tenant, session, seq);
CREATE INDEX doc_by_time ON compaction.doc (tenant, seconds);
-- New rows wait in a list, which whoever fills it sorts in: measured, 125 instead of 270 us of the
-- server a row. A search reads that list, so it is a short one.
CREATE INDEX doc_words ON compaction.doc
    USING gin (words) WITH (fastupdate = on, gin_pending_list_limit = 256);
"""


def make_tables(connection: Connection) -> None:
    """Make the tables where they are missing; one process at a time."""
    if _exist(connection):
        return  # whoever may only read and write rows needs no more rights than that
    with connection.transaction():
        # Any number, the same for all processes: one of them makes the tables, the others wait.
        connection.execute("SELECT pg_advisory_xact_lock(7165065861607420929)")
        if _exist(connection):
            return
        connection.execute(_TABLES.encode())
        for table in TABLES:
            for at in range(PARTITIONS):
                connection.execute(
                    f"CREATE TABLE {SCHEMA}.{table}_{at} PARTITION OF {SCHEMA}.{table}"
                    f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {at})".encode()
                )
        for table in LOCKED_TABLES:
            connection.execute(
                f"ALTER TABLE {SCHEMA}.{table} ENABLE ROW LEVEL SECURITY;"
                f" ALTER TABLE {SCHEMA}.{table} FORCE ROW LEVEL SECURITY;"
                f" CREATE POLICY tenant ON {SCHEMA}.{table}"
                " USING (tenant = current_setting('app.tenant', true))".encode()
            )


def _exist(connection: Connection) -> bool:
    row = connection.execute("SELECT to_regclass('compaction.session') IS NOT NULL").fetchone()
    return row is not None and row[0]
