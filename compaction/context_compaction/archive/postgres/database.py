"""Tables, connections, transactions and their failures.

Every key, unique index and foreign key begins with the tenant, and every table is partitioned by
its hash. So all rows of a tenant lie together, and a distributed PostgreSQL shards the tables as
they are: docs/how-to/postgresql.md has the commands for Citus.

Everything blocks. A transaction is one tenant's: row-level security lets through that tenant's rows
alone, whatever the statement. Work whose transaction was ended by a conflict, or a lost connection,
is done again. Where the connection was lost after COMMIT was sent, the database is asked first
whether the transaction was committed, so that nothing is written twice.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from context_compaction.archive import DEFAULT_TENANT, check_tenant, shown_address
from context_compaction.errors import (
    ArchiveBusyError,
    ArchiveError,
    ArchiveFullError,
    SettingsError,
)

T = TypeVar("T")
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

MOST_CONNECTIONS = 16  # of one process, unless the address says otherwise
RETRY_SECONDS = 20.0
# How long one try waits for a connection. The pool stops asking a server that is away after the
# same time, so that the next try asks at once, however long the server was away.
CONNECTION_SECONDS = 1.0

_CONFLICTS = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    # A blob that a deletion took while this one wanted to use it.
    errors.ForeignKeyViolation,
    errors.UniqueViolation,
)
_FULL = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)
_OURS = ("tenant", "objects", "connections")


@dataclass(frozen=True, slots=True)
class Address:
    """The settings in an archive's address.

    Attributes:
        dsn: The address for PostgreSQL's own client.
        tenant: Whose archive is opened.
        objects: Where large contents lie, as `s3://bucket/prefix`; "" for the database itself.
        connections: How many this process opens at most.
    """

    dsn: str
    tenant: str = DEFAULT_TENANT
    objects: str = ""
    connections: int = MOST_CONNECTIONS


def read_address(location: str) -> Address:
    """What is ours in an address (`tenant`, `objects`, `connections`), and the rest of it.

    Raises:
        SettingsError: A setting in it cannot be used.
    """
    try:
        parts = urlsplit(location)
        settings = parse_qsl(parts.query, keep_blank_values=True)
        rest = [(name, value) for name, value in settings if name not in _OURS]
        dsn = urlunsplit(parts._replace(query=urlencode(rest)))
        for port in str(conninfo_to_dict(dsn).get("port", "")).split(","):
            int(port or 0)
    except (ValueError, psycopg.ProgrammingError):
        # Without what the error quotes, which may be the password.
        raise SettingsError(
            f"The archive's address {location.partition(':')[0]}://… cannot be read. Escape what "
            "stands in its name, password and settings: %40 for @, %2F for /, %3F for ?, %3A for a "
            "colon."
        ) from None
    ours = dict(settings)
    connections = ours.get("connections", str(MOST_CONNECTIONS))
    if connections not in map(str, range(1, 1001)):
        raise SettingsError(
            f"connections={connections[:20]!r} of the archive {shown_address(location)} cannot be "
            "used. Give a number from 1 to 1000."
        )
    tenant = check_tenant(ours.get("tenant", DEFAULT_TENANT))
    return Address(dsn, tenant, ours.get("objects", ""), int(connections))


class Database:
    """The connections of this process to one database.

    Attributes:
        location: Where it is, for a person.
        connections: How many there are at most.
    """

    def __init__(self, address: Address) -> None:
        self.location: str = shown_address(address.dsn)
        self.connections: int = address.connections
        self._dsn = address.dsn
        self._pool = ConnectionPool(
            address.dsn,
            # Never prepared: how a search is best done depends on how common its words are, and
            # poolers in between hand out another server connection each time.
            kwargs={
                "autocommit": True,
                "application_name": "mcp-server-compaction",
                "prepare_threshold": None,
                "client_encoding": "utf8",  # what rows are copied in as
            },
            min_size=1,
            max_size=address.connections,
            reconnect_timeout=CONNECTION_SECONDS,
            open=False,
        )

    def apart(self, tenant: str, work: Callable[[Connection], None]) -> None:
        """Do `work` in a transaction of its own, while this thread may be in another.

        Over a connection that is no part of the pool: waiting for one of those while holding
        another, threads would wait for each other.
        """
        with psycopg.connect(self._dsn, client_encoding="utf8") as connection:
            connection.execute(f"SET LOCAL app.tenant = '{check_tenant(tenant)}'".encode())
            work(connection)

    def open(self) -> None:
        """Connect, and make the tables where they are missing.

        Raises:
            ArchiveError: The database cannot be reached, or is not for us.
        """
        with self._explaining():
            # One connection by itself first: the pool says only that it waited.
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                version = connection.info.server_version
                if version < 150_000:
                    raise ArchiveError(
                        f"{self.location} is PostgreSQL {version // 10_000}. Use version 15 or "
                        "later."
                    )
                encoding = connection.info.parameter_status("server_encoding")
                if encoding == "SQL_ASCII":
                    raise ArchiveError(
                        f"{self.location} has the encoding SQL_ASCII, which takes any bytes for "
                        "text. Make a database with ENCODING 'UTF8' TEMPLATE template0."
                    )
                make_tables(connection)
            self._pool.open()

    def close(self) -> None:
        """End all connections."""
        self._pool.close()

    def run(
        self,
        tenant: str,
        work: Callable[[Connection], T],
        *,
        seconds: float = 30.0,
        reads: bool = False,
    ) -> T:
        """What `work` returns, done in one transaction of `tenant`, again after a conflict.

        Args:
            tenant: Whose rows.
            work: Done once more where the transaction failed; it must have no effect outside.
            seconds: How long one statement may take.
            reads: Whether it writes nothing, and may not: then its end need not be asked for.

        Raises:
            ArchiveBusyError: Others were in the way for too long, or a statement took too long.
            ArchiveFullError: The database's disk is full.
            ArchiveError: The database failed.
        """
        with self._explaining():
            return _again(partial(self._once, tenant, work, seconds, reads))

    def _once(self, tenant: str, work: Callable[[Connection], T], seconds: float, reads: bool) -> T:
        ending: tuple[T, str] | None = None  # the result, and the transaction that may be committed
        try:
            with self._pool.connection(CONNECTION_SECONDS) as connection:
                self._begin(connection, tenant, seconds, reads)
                result = work(connection)
                number = None if reads else _number(connection)
                if number is not None:
                    ending = result, number
                connection.execute("COMMIT")
                return result
        except psycopg.Error:
            if ending is not None and self._is_committed(ending[1]):
                return ending[0]
            raise

    def _begin(self, connection: Connection, tenant: str, seconds: float, reads: bool) -> None:
        # Without parameters, so that it goes out as one; the name was checked.
        begin = (
            f"BEGIN; SET LOCAL app.tenant = '{check_tenant(tenant)}';"
            f" SET LOCAL statement_timeout = {int(seconds * 1000)}"
        )
        if reads:
            # One process is enough for what is bounded, and does the parts of a statement in their
            # order.
            begin += (
                "; SET TRANSACTION READ ONLY; SET LOCAL jit = off;"
                " SET LOCAL max_parallel_workers_per_gather = 0"
            )
        try:
            connection.execute(begin.encode())
        except psycopg.OperationalError:
            # The server closed it meanwhile, and others with it: found out now, since asking each
            # before it is lent would cost every call a way to the server and back.
            self._pool.check()
            raise

    def _is_committed(self, number: str) -> bool:
        """Whether a transaction whose COMMIT had no answer was committed.

        Raises:
            ArchiveError: The database cannot be asked; the work is not done again.
        """
        try:
            return _again(partial(self._ask_status, number)) == "committed"
        except psycopg.Error as error:
            raise ArchiveError(
                f"The connection to {self.location} was lost, and whether the call was kept could "
                "not be found out. Hand over the whole list again: what was kept is recognised."
            ) from error

    def _ask_status(self, number: str) -> str:
        with self._pool.connection(CONNECTION_SECONDS) as connection:
            row = connection.execute("SELECT pg_xact_status(%s::xid8)", (number,)).fetchone()
        if row is None or row[0] == "in progress":
            raise psycopg.OperationalError("The transaction has not ended yet.")
        return str(row[0])

    @contextmanager
    def _explaining(self) -> Generator[None]:
        """Raise failures of the database as the archive's errors."""
        try:
            yield
        except errors.QueryCanceled as error:
            raise ArchiveBusyError(
                f"The database {self.location} took too long and was stopped: others hold what is "
                "needed, or there is too much of it. Call again, or ask for less."
            ) from error
        except PoolTimeout as error:
            raise ArchiveBusyError(
                f"No connection to {self.location} became free in {RETRY_SECONDS:g} seconds. Call "
                "again, or allow more with ?connections= in the archive's address."
            ) from error
        except _FULL as error:
            raise ArchiveFullError(
                f"The database {self.location} has no room: {_first_line(error)}. Nothing of the "
                "call was kept; free some space and call again."
            ) from error
        except _CONFLICTS as error:
            raise ArchiveBusyError(
                f"Others kept writing to the same session of {self.location}. Call again."
            ) from error
        except psycopg.Error as error:
            raise ArchiveError(
                f"The database {self.location} failed: {_first_line(error)}. Check that it runs "
                "and that its address, name and password are right, and call again."
            ) from error


def _again(work: Callable[[], T]) -> T:
    """What `work` returns, tried until it succeeds, fails for good or the time is over."""
    again = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_delay(RETRY_SECONDS),
        wait=wait_random_exponential(0.05, max=2.0),
        reraise=True,
    )
    result: T = again(work)
    return result


def _may_pass(error: BaseException) -> bool:
    """Whether the same work may succeed a moment later."""
    if isinstance(error, (errors.QueryCanceled, *_FULL)):
        return False
    return isinstance(error, (*_CONFLICTS, psycopg.OperationalError, psycopg.InterfaceError))


def _number(connection: Connection) -> str | None:
    """The transaction's, by which its end can be asked for; None where it has written nothing."""
    found = connection.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone()
    return None if found is None else found[0]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


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
