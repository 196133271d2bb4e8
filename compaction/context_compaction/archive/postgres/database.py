"""Tables, connections and transactions of the PostgreSQL archive, and their errors.

Every key, unique index and foreign key begins with the tenant, and every table is partitioned by
the hash of the tenant. All rows of a tenant are therefore stored together, and a distributed
PostgreSQL can shard the tables without changes: docs/how-to/postgresql.md has the commands for
Citus.

All functions block. A transaction belongs to one tenant, because row-level security hides the rows
of other tenants from every statement. Work is repeated if its transaction ended with a conflict or
a lost connection. If the connection was lost after COMMIT was sent, the database is first asked
whether the transaction was committed, so that nothing is written twice.
"""

import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from context_compaction.archive.values import check_tenant, shown_address
from context_compaction.errors import (
    ArchiveBusyError,
    ArchiveError,
    ArchiveFullError,
    SettingsError,
)
from context_compaction.request import DEFAULT_TENANT

T = TypeVar("T")
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

DEFAULT_CONNECTIONS = 16
RETRY_SECONDS = 20.0
# Time that one attempt waits for a connection. The pool gives up reconnecting to an unavailable
# server after the same time, so that the next attempt reconnects immediately.
CONNECTION_SECONDS = 1.0

_CONFLICTS = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    # A deletion removed a blob that this transaction refers to.
    errors.ForeignKeyViolation,
    errors.UniqueViolation,
)
_FULL = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)
_OWN_SETTINGS = ("tenant", "objects", "connections")


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of an archive's address.

    Attributes:
        dsn: Address for PostgreSQL's client library.
        tenant: Owner of the archive to open.
        objects: Object store of large contents, as `s3://bucket/prefix`; "" keeps them in the
            database.
        connections: Maximum number of connections of this process.
    """

    dsn: str
    tenant: str = DEFAULT_TENANT
    objects: str = ""
    connections: int = DEFAULT_CONNECTIONS


def read_address(location: str) -> Address:
    """Separate the settings `tenant`, `objects` and `connections` from an address.

    Raises:
        SettingsError: The address or one of these settings is invalid.
    """
    try:
        parts = urlsplit(location)
        settings = parse_qsl(parts.query, keep_blank_values=True)
        rest = [(name, value) for name, value in settings if name not in _OWN_SETTINGS]
        dsn = urlunsplit(parts._replace(query=urlencode(rest)))
        for port in str(conninfo_to_dict(dsn).get("port", "")).split(","):
            int(port or 0)
    except (ValueError, psycopg.ProgrammingError):
        # The message omits the original error, because it may quote the password.
        raise SettingsError(
            f"Invalid archive address {location.partition(':')[0]}://…. Escape special characters "
            "in the name, the password and the settings: %40 for @, %2F for /, %3F for ?, %3A for "
            "a colon."
        ) from None
    own = dict(settings)
    connections = own.get("connections", str(DEFAULT_CONNECTIONS))
    if connections not in map(str, range(1, 1001)):
        raise SettingsError(
            f"Invalid connections={connections[:20]!r} in the archive address "
            f"{shown_address(location)}. Use a number from 1 to 1000."
        )
    tenant = check_tenant(own.get("tenant", DEFAULT_TENANT))
    return Address(dsn, tenant, own.get("objects", ""), int(connections))


class Database:
    """The connections of this process to one database.

    Attributes:
        location: Address without secrets, for messages.
        connections: Maximum number of connections.
        name: Random name of the database, for the keys of its objects; set by `open`.
    """

    name: str

    def __init__(self, address: Address) -> None:
        self.location: str = shown_address(address.dsn)
        self.connections: int = address.connections
        self._dsn = address.dsn
        self._pool = ConnectionPool(
            address.dsn,
            # Never prepared, because the best plan of a search depends on its words, and
            # because connection poolers use another server connection for each transaction.
            kwargs={
                "autocommit": True,
                "application_name": "mcp-server-compaction",
                "prepare_threshold": None,
                "client_encoding": "utf8",
            },
            min_size=1,
            max_size=address.connections,
            reconnect_timeout=CONNECTION_SECONDS,
            open=False,
        )

    def open(self) -> None:
        """Connect, and create the tables if they are missing.

        Raises:
            ArchiveError: The database cannot be reached, or its version or encoding is unsupported.
        """
        with self._explaining():
            # A single connection first, because the pool would report only that it waited.
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                version = connection.info.server_version
                if version < 150_000:
                    raise ArchiveError(
                        f"{self.location} runs PostgreSQL {version // 10_000}. Use version 15 or "
                        "later."
                    )
                encoding = connection.info.parameter_status("server_encoding")
                if encoding == "SQL_ASCII":
                    raise ArchiveError(
                        f"{self.location} has the encoding SQL_ASCII, which does not check text. "
                        "Create a database with ENCODING 'UTF8' TEMPLATE template0."
                    )
                make_tables(connection)
                name = connection.execute(
                    "SELECT obj_description('compaction'::regnamespace)"
                ).fetchone()
                self.name = str(name and name[0])
            self._pool.open()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def run(
        self,
        tenant: str,
        work: Callable[[Connection], T],
        *,
        seconds: float = 30.0,
        reads: bool = False,
    ) -> T:
        """Return the result of `work`, which runs in one transaction of `tenant`.

        Args:
            tenant: Owner of the rows.
            work: Function of the connection. It must have no effect outside the database, because
                it is repeated after a conflict or a lost connection.
            seconds: Time limit of one statement.
            reads: Whether the transaction is read-only, so that repeating it is always safe.

        Raises:
            ArchiveBusyError: Conflicts lasted too long, or a statement exceeded its time limit.
            ArchiveFullError: The database's disk is full.
            ArchiveError: The database failed.
        """
        with self._explaining():
            return _retry(partial(self._run_once, tenant, work, seconds, reads))

    def _run_once(
        self, tenant: str, work: Callable[[Connection], T], seconds: float, reads: bool
    ) -> T:
        # The result of the work and the ID of its transaction, once COMMIT is about to be sent.
        pending: tuple[T, str] | None = None
        try:
            with self._pool.connection(CONNECTION_SECONDS) as connection:
                self._begin(connection, tenant, seconds, reads)
                result = work(connection)
                # None if the transaction has written nothing.
                query = "SELECT pg_current_xact_id_if_assigned()::text"
                row = None if reads else connection.execute(query).fetchone()
                if row is not None and row[0] is not None:
                    pending = result, row[0]
                connection.execute("COMMIT")
                return result
        except psycopg.Error:
            if pending is not None and self._is_committed(pending[1]):
                return pending[0]
            raise

    def _begin(self, connection: Connection, tenant: str, seconds: float, reads: bool) -> None:
        # Without parameters, so that one message contains all statements; the name is validated.
        begin = (
            f"BEGIN; SET LOCAL app.tenant = '{check_tenant(tenant)}';"
            f" SET LOCAL statement_timeout = {int(seconds * 1000)}"
        )
        if reads:
            # A single process is enough for bounded searches, and it evaluates the parts of a
            # UNION in their order.
            begin += (
                "; SET TRANSACTION READ ONLY; SET LOCAL jit = off;"
                " SET LOCAL max_parallel_workers_per_gather = 0"
            )
        try:
            connection.execute(begin.encode())
        except psycopg.OperationalError:
            # The server closed this connection and probably others. They are checked only now,
            # because a check before each use would cost every call a round trip.
            self._pool.check()
            raise

    def _is_committed(self, transaction_id: str) -> bool:
        """Whether a transaction whose COMMIT had no answer was committed.

        Raises:
            ArchiveError: The database cannot be asked; the work is not repeated.
        """
        try:
            return _retry(partial(self._ask_status, transaction_id)) == "committed"
        except psycopg.Error as error:
            raise ArchiveError(
                f"The connection to {self.location} was lost, and it is unknown whether the call "
                "was stored. Pass the whole message list again: stored messages are recognized."
            ) from error

    def _ask_status(self, transaction_id: str) -> str:
        with self._pool.connection(CONNECTION_SECONDS) as connection:
            query = "SELECT pg_xact_status(%s::xid8)"
            try:
                row = connection.execute(query, (transaction_id,)).fetchone()
            except psycopg.errors.InvalidParameterValue:
                # "In the future": the server crashed before it wrote anything of the transaction.
                return "aborted"
        if row is None or row[0] == "in progress":
            raise psycopg.OperationalError("The transaction has not ended yet.")
        return str(row[0])

    @contextmanager
    def _explaining(self) -> Generator[None]:
        """Raise errors of the database as archive errors."""
        try:
            yield
        except errors.QueryCanceled as error:
            raise ArchiveBusyError(
                f"A statement of the database {self.location} took too long and was stopped, "
                "because of a lock or too much data. Call again, or request less."
            ) from error
        except PoolTimeout as error:
            raise ArchiveBusyError(
                f"No connection to {self.location} became free within {RETRY_SECONDS:g} seconds. "
                "Call again, or allow more with ?connections= in the archive's address."
            ) from error
        except _FULL as error:
            raise ArchiveFullError(
                f"The database {self.location} is full: {_first_line(error)}. Nothing of this call "
                "was stored. Free some space and call again."
            ) from error
        except _CONFLICTS as error:
            raise ArchiveBusyError(
                f"Other processes kept writing to the same session of {self.location}. Call again."
            ) from error
        except psycopg.Error as error:
            raise ArchiveError(
                f"The database {self.location} failed: {_first_line(error)}. Check that it runs "
                "and that its address, name and password are right, and call again."
            ) from error


def _retry(work: Callable[[], T]) -> T:
    """Return the result of `work`; repeat it after temporary errors for `RETRY_SECONDS`."""
    retrying = Retrying(
        retry=retry_if_exception(_is_temporary),
        stop=stop_after_delay(RETRY_SECONDS),
        wait=wait_random_exponential(0.05, max=2.0),
        reraise=True,
    )
    result: T = retrying(work)
    return result


def _is_temporary(error: BaseException) -> bool:
    """Whether the same work may succeed a moment later."""
    if isinstance(error, (errors.QueryCanceled, *_FULL)):
        return False
    return isinstance(error, (*_CONFLICTS, psycopg.OperationalError, psycopg.InterfaceError))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


SCHEMA = "compaction"
PARTITIONS = 16
# Row-level security is the second barrier between tenants; every statement also names its tenant.
# It is off for `doc`, because with it PostgreSQL would not use the GIN index (matching words is not
# "leakproof"). A search reads only numbers there; the text is in `record`, which is protected.
PROTECTED_TABLES = ("session", "record", "blob", "blob_use", "access_token")
TABLES = (*PROTECTED_TABLES, "doc")


def make_tables(connection: Connection) -> None:
    """Create the tables if they are missing; one process at a time."""
    if _tables_exist(connection):
        return  # a role that may only read and write rows needs no further rights
    with connection.transaction():
        # An arbitrary number, the same in all processes: one creates the tables, others wait.
        connection.execute("SELECT pg_advisory_xact_lock(7165065861607420929)")
        if _tables_exist(connection):
            return
        connection.execute(
            files("context_compaction.archive.postgres").joinpath("tables.sql").read_bytes()
        )
        name = secrets.token_hex(8)
        connection.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{name}'".encode())
        for table in TABLES:
            for number in range(PARTITIONS):
                connection.execute(
                    f"CREATE TABLE {SCHEMA}.{table}_{number} PARTITION OF {SCHEMA}.{table}"
                    f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})".encode()
                )
        for table in PROTECTED_TABLES:
            connection.execute(
                f"ALTER TABLE {SCHEMA}.{table} ENABLE ROW LEVEL SECURITY;"
                f" ALTER TABLE {SCHEMA}.{table} FORCE ROW LEVEL SECURITY;"
                f" CREATE POLICY tenant ON {SCHEMA}.{table}"
                " USING (tenant = current_setting('app.tenant', true))".encode()
            )


def _tables_exist(connection: Connection) -> bool:
    row = connection.execute("SELECT to_regclass('compaction.session') IS NOT NULL").fetchone()
    return row is not None and row[0]
