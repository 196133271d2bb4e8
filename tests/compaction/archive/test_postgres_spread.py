"""Distributed PostgreSQL archive: the partitions of every table are on two other servers.

The archive does not know about it. Every key begins with the tenant, so the rows of a tenant are on
one server, and whole statements are sent to it. Unique indexes and foreign keys, which foreign
tables cannot have, exist on the servers that store the rows.
"""

import shutil
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import anyio
import psycopg
import pytest
from context_compaction import open_archive
from context_compaction.archive.archive import Archive
from context_compaction.archive.postgres.database import PARTITIONS

from tests.compaction.archive.archive_contract import CONTRACT, Check, add, user
from tests.support.environment import SHORT_FOLDER
from tests.support.postgres import APP, Server, clear, make_role, make_tables, named_database

_NAME = "archive"
_PARTITIONED = (
    "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
    " WHERE nspname = 'compaction' AND relkind = 'p' ORDER BY 1"
)


@dataclass(frozen=True)
class Cluster:
    """Superuser addresses of the server that runs the queries and of two that store the rows."""

    coordinator: str
    holders: tuple[str, str]

    @property
    def address(self) -> str:
        return named_database(self.coordinator, _NAME)

    def clear(self) -> None:
        for holder in self.holders:
            clear(holder)

    def row_counts(self, table: str) -> list[int]:
        counts: list[int] = []
        for holder in self.holders:
            with psycopg.connect(holder) as connection:
                row = connection.execute(f"SELECT count(*) FROM compaction.{table}".encode())
                counts += [count for (count,) in row]
        return counts


def _create_database(server: Server) -> str:
    """Create a database with the archive's tables, and return its superuser address."""
    make_role(server.address())
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {_NAME} OWNER {APP}".encode())
    make_tables(named_database(server.address(), _NAME))
    return named_database(server.address(), _NAME, "postgres")


def _spread(coordinator: str, folders: list[Path]) -> None:
    """Replace every partition by a foreign table on a storage server."""
    with psycopg.connect(coordinator, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION postgres_fdw")
        for number, folder in enumerate(folders):
            connection.execute(
                f"CREATE SERVER holder_{number} FOREIGN DATA WRAPPER postgres_fdw OPTIONS"
                f" (host '{folder}', dbname '{_NAME}');"
                f" CREATE USER MAPPING FOR {APP} SERVER holder_{number}"
                " OPTIONS (user 'postgres', password_required 'false')".encode()
            )
        tables = [name for (name,) in connection.execute(_PARTITIONED).fetchall()]
        keys = connection.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint"
            " WHERE contype IN ('f', 'p', 'u') AND connamespace = 'compaction'::regnamespace"
            " AND conparentid = 0 AND conrelid::regclass::text != 'compaction.version'"
            " ORDER BY contype"
        ).fetchall()
        for table, key in keys:
            connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {key}".encode())
        for table in tables:
            for at in range(PARTITIONS):
                name = f"compaction.{table}_{at}"
                connection.execute(
                    f"DROP TABLE {name}; CREATE FOREIGN TABLE {name} PARTITION OF"
                    f" compaction.{table} FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {at})"
                    f" SERVER holder_{at % 2} OPTIONS (schema_name 'compaction',"
                    f" table_name '{table}_{at}');"
                    f" GRANT ALL ON {name} TO {APP}".encode()
                )


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    folders = [Path(mkdtemp(prefix="pg-", dir=SHORT_FOLDER)) for _ in range(3)]
    try:
        with ExitStack() as stack:
            first, *storage = [stack.enter_context(Server(folder)) for folder in folders]
            first_store, second_store = map(_create_database, storage)
            coordinator = _create_database(first)
            _spread(coordinator, folders[1:])
            yield Cluster(coordinator, (first_store, second_store))
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


# Checks with different statements. The other checks differ only in the messages they append.
_SUBJECTS = ("search", "session", "output", "delete", "prun", "token", "tenant", "branch", "filter")
_OTHER_TEXTS = (
    "script",
    "latin",
    "forms_of",
    "by_its",
    "question",
    "thinking",
    "cjk",
    "unusual",
    "any_text",
)
_CHECKS = [
    check
    for check in CONTRACT
    if any(word in check.__name__ for word in _SUBJECTS)
    and not any(word in check.__name__ for word in _OTHER_TEXTS)
]


@pytest.mark.slow
@pytest.mark.parametrize("check", _CHECKS, ids=lambda check: check.__name__)
async def test_distributed_archive_passes_the_contract(check: Check, cluster: Cluster) -> None:
    await anyio.to_thread.run_sync(cluster.clear)
    with anyio.fail_after(150):
        async with open_archive(cluster.address) as archive:
            await check(archive)


@pytest.mark.slow
async def test_tenant_is_stored_on_a_single_server(cluster: Cluster) -> None:
    await anyio.to_thread.run_sync(cluster.clear)
    async with open_archive(cluster.address) as archive:

        async def write(number: int, archive: Archive) -> None:
            await add(archive, f"s{number}", user(f"of {archive.tenant}"), user("more"))

        for number in range(12):
            await write(number, await archive.for_tenant(f"team-{number}"))
    counts = cluster.row_counts("doc")
    assert sum(counts) == 24
    assert all(count % 2 == 0 and count for count in counts)
