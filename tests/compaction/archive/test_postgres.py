"""PostgreSQL archive: the contract of all archives, and properties of a shared database."""

import os
import random
import re
import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote
from urllib.request import Request, urlopen

import anyio
import psycopg
import pytest
from anyio import to_thread
from context_compaction import ArchiveBusyError, ArchiveError, open_archive
from context_compaction.archive.archive import Archive
from context_compaction.archive.opening import copy_archive
from context_compaction.archive.postgres.database import TABLES, Database, read_address
from context_compaction.archive.postgres.rows import block_query, block_words, spans_of
from context_compaction.archive.postgres.sessions import ObjectStore, open_objects
from context_compaction.archive.values import AccessToken, PruneRules, Query, SessionInfo
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.messages.model import make_blob
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.archive.archive_contract import (
    CONTRACT,
    FORMAT,
    Check,
    add,
    assistant,
    found,
    parsed,
    pointers,
    transcript,
    user,
)
from tests.support.environment import SHORT_FOLDER
from tests.support.postgres import APP, Server, clear, database, make_role, named_database


@pytest.fixture(scope="module")
def shared_address(postgres_server: str, postgres_template: str) -> Generator[str]:
    """Address of an archive that the tests of this module share."""
    with database(postgres_server, f"shared_{os.getpid()}", postgres_template) as address:
        yield address


@pytest.fixture
def cleared_address(postgres_server: str, shared_address: str) -> str:
    """Address of the shared archive, after removing all its content."""
    name = shared_address.partition("?")[0].rpartition("/")[2]
    clear(named_database(postgres_server, name, "postgres"))
    return shared_address


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
async def test_postgres_archive_passes_the_contract(check: Check, cleared_address: str) -> None:
    with anyio.fail_after(150):
        async with open_archive(cleared_address) as archive:
            await check(archive)


# The tables


def test_keys_and_foreign_keys_begin_with_the_tenant(postgres_address: str) -> None:
    with psycopg.connect(postgres_address) as connection:
        unique = connection.execute(
            "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
            " WHERE nspname = 'compaction' AND i.indisunique"
        ).fetchall()
        foreign = connection.execute(
            "SELECT conname, a.attname, b.attname FROM pg_constraint"
            " JOIN pg_attribute a ON a.attrelid = conrelid AND a.attnum = conkey[1]"
            " JOIN pg_attribute b ON b.attrelid = confrelid AND b.attnum = confkey[1]"
            " WHERE contype = 'f' AND connamespace = 'compaction'::regnamespace"
        ).fetchall()
        by = connection.execute(
            "SELECT partrelid::regclass::text, a.attname, partnatts FROM pg_partitioned_table"
            " JOIN pg_attribute a ON a.attrelid = partrelid AND a.attnum = partattrs[0]"
        ).fetchall()
    assert len(unique) >= len(TABLES)
    assert {column for _, column in unique} == {"tenant"}
    assert foreign
    assert {column for _, *columns in foreign for column in columns} == {"tenant"}
    assert sorted(by) == sorted((f"compaction.{table}", "tenant", 1) for table in TABLES)


async def test_row_level_security_hides_rows_of_other_tenants(postgres_address: str) -> None:
    async with open_archive(postgres_address) as archive:
        for tenant in ("default", "other"):
            of_tenant = await archive.for_tenant(tenant)
            await add(of_tenant, "s", user(f"of {tenant} " * 9_000))
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        role = connection.execute("SELECT current_user").fetchone()
        assert role == (APP,)
        for table in ("session", "record", "blob", "blob_use"):
            seen = f"SELECT DISTINCT tenant FROM compaction.{table}".encode()
            connection.execute("RESET app.tenant")
            assert connection.execute(seen).fetchall() == []
            connection.execute("SET app.tenant = 'other'")
            assert connection.execute(seen).fetchall() == [("other",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                "INSERT INTO compaction.blob VALUES ('default', 'forged', 0, NULL, NULL)"
            )


async def test_open_archive_creates_tables_once_and_needs_no_rights_later(
    postgres_server: str, postgres_address: str
) -> None:
    with psycopg.connect(postgres_address) as connection:
        connection.execute("DROP SCHEMA compaction CASCADE")

    async def use(number: int) -> None:
        async with open_archive(postgres_address) as archive:
            await add(archive, f"s{number}", user("x"))

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(use, number)
    name = postgres_address.partition("?")[0].rpartition("/")[2]
    owner = named_database(postgres_server, name, "postgres")
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("REASSIGN OWNED BY app TO postgres")
        connection.execute("GRANT USAGE ON SCHEMA compaction TO app")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA compaction TO app")
        connection.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA compaction TO app")
    await use(9)


async def test_errors_about_addresses_hide_the_password() -> None:
    for address, problem in (
        ("postgresql://me:secret@127.0.0.1:1/x", "failed"),
        ("postgresql://me:secret@host/x?connections=0", "connections"),
        ("postgresql://me:secret@host/x?tenant=a%20b", "tenant"),
        ("mysql://me:secret@host/x", "Unknown kind of archive"),
        ("postgresql://me:x/secret@host/x", "Invalid archive address"),
        ("postgresql://me:x?secret@host/x", "Invalid archive address"),
        ("postgresql://[secret@host/x", "Invalid archive address"),
        ("postgresql://127.0.0.1:1/x?user=a@b&password=secret", "failed"),
    ):
        with pytest.raises((ArchiveError, SettingsError), match=problem) as caught:
            async with open_archive(address):
                pass
        assert "secret" not in str(caught.value)


# Concurrency


async def test_concurrent_appends_write_each_message_once(postgres_address: str) -> None:
    raws = [user(f"word {n}") if n % 2 else assistant(f"answer {n}") for n in range(60)]
    written = 0
    async with (
        open_archive(postgres_address) as first,
        open_archive(postgres_address) as other,
        anyio.create_task_group() as group,
    ):

        async def grow(archive: Archive, offset: int) -> None:
            nonlocal written
            for stop in range(1 + offset, len(raws) + 1, 3):
                done = await archive.append("s", parsed(*raws[:stop]), format=FORMAT)
                written += done.written

        for offset in range(3):
            group.start_soon(grow, (first, other)[offset % 2], offset)
    async with open_archive(postgres_address) as archive:
        assert await transcript(archive, "s") == raws
    assert written == len(raws)


async def test_append_raises_when_another_deleted_the_session(postgres_address: str) -> None:
    async with open_archive(postgres_address) as first, open_archive(postgres_address) as other:
        result = await first.append("s", parsed(user("one"), assistant("two")), format=FORMAT)
        await other.delete(["s"])
        with pytest.raises(NotFoundError, match="whole message list"):
            await first.append("s", parsed(user("three")), format=FORMAT, after=result.head)
        await add(other, "s", user("new session"))
        assert await transcript(first, "s") == [user("new session")]
        with pytest.raises(NotFoundError, match="whole message list"):
            await first.append("s", parsed(user("three")), format=FORMAT, after=result.head)


_KILL_CONNECTION = (
    "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND state != 'idle'"
    " AND application_name = 'mcp-server-compaction' ORDER BY random() LIMIT 1) AS busy"
)


class Writers:
    """Writers that each extend a separate session, and the calls that were acknowledged."""

    def __init__(self, archive: Archive, calls: int) -> None:
        self.names = [f"w{number}" for number in range(4)]
        self._archive = archive
        self._calls = calls
        self.acknowledged, self._progress = anyio.create_memory_object_stream[int](1_000)

    async def work(self) -> None:
        with self.acknowledged:
            async with anyio.create_task_group() as group:
                for name in self.names:
                    group.start_soon(self._write, name)

    async def progress(self) -> AsyncGenerator[int]:
        with self._progress:
            async for number in self._progress:
                yield number

    async def _write(self, name: str) -> None:
        head = ""
        for at in range(self._calls):
            message = parsed(user(f"{name} {at}"))
            done = await self._archive.append(name, message, format=FORMAT, after=head)
            head = done.head
            self.acknowledged.send_nowait(at)
            await self._archive.commit(name, receipt={"at": at}, head=head)
            self.acknowledged.send_nowait(at)

    async def check(self) -> None:
        for name in self.names:
            raws = [user(f"{name} {at}") for at in range(self._calls)]
            assert await transcript(self._archive, name) == raws
            receipts = await self._archive.receipts(name)
            assert receipts == [{"at": at} for at in range(self._calls)]


async def test_lost_connections_lose_and_duplicate_nothing(postgres_address: str) -> None:
    """After every third call, one busy connection is killed at a random point."""
    killed = count = 0
    async with open_archive(f"{postgres_address}&connections=4") as archive:
        writers = Writers(archive, calls=25)
        with anyio.fail_after(150), psycopg.connect(postgres_address, autocommit=True) as killer:
            async with anyio.create_task_group() as group:
                group.start_soon(writers.work)
                async for _ in writers.progress():
                    count += 1
                    if count % 3 == 0:
                        ended = await to_thread.run_sync(lambda: killer.execute(_KILL_CONNECTION))
                        killed += ended.rowcount
        await writers.check()
    assert killed > 5


@pytest.fixture
def own_server() -> Generator[Server]:
    """A durable server that a test may stop."""
    folder = Path(mkdtemp(prefix="pg-", dir=SHORT_FOLDER))
    try:
        # Recovery syncs all files. Doing this one by one takes a slow disk a minute.
        durable = {"fsync": "on", "full_page_writes": "on", "recovery_init_sync_method": "syncfs"}
        with Server(folder, settings=durable) as server:
            make_role(server.address())
            with psycopg.connect(server.address(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE archive OWNER {APP}".encode())
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_server_crash_loses_and_duplicates_nothing(own_server: Server) -> None:
    async with open_archive(named_database(own_server.address(), "archive")) as archive:
        writers = Writers(archive, calls=20)
        with anyio.fail_after(150):
            async with anyio.create_task_group() as group:
                group.start_soon(writers.work)
                count = 0
                async for _ in writers.progress():
                    count += 1
                    if count == 40:
                        await to_thread.run_sync(lambda: own_server.stop(at_once=True))
                        await to_thread.run_sync(own_server.start)
        await writers.check()


async def test_call_raises_when_a_session_is_locked_too_long(postgres_address: str) -> None:
    async with open_archive(postgres_address) as archive:
        await add(archive, "s", user("one"))
    database = Database(read_address(postgres_address))
    await to_thread.run_sync(database.open)
    hold = "SELECT 1 FROM compaction.session WHERE session = 's' FOR UPDATE"
    try:
        with psycopg.connect(postgres_address) as holder:
            holder.execute("SET app.tenant = 'default'")
            holder.execute(hold.encode())
            with pytest.raises(ArchiveBusyError, match="took too long"):
                await to_thread.run_sync(
                    lambda: database.run("default", lambda c: c.execute(hold.encode()), seconds=0.2)
                )
    finally:
        await to_thread.run_sync(database.close)


async def test_calls_wait_when_all_connections_are_in_use(postgres_address: str) -> None:
    async with (
        open_archive(f"{postgres_address}&connections=2") as archive,
        anyio.create_task_group() as group,
    ):
        for number in range(30):
            group.start_soon(add, archive, f"s{number % 5}", user(f"word{number}"))
    async with open_archive(postgres_address) as archive:
        infos, _ = await archive.sessions()
        assert sum(info.message_count for info in infos) == 30


async def test_cancelled_append_is_complete_or_absent(postgres_address: str) -> None:
    async with open_archive(postgres_address) as archive:
        raws = [user(f"message {at} " * 50) for at in range(200)]
        for number in range(12):
            with anyio.move_on_after(0.002 * number):
                await add(archive, f"s{number}", *raws)
        infos, _ = await archive.sessions()
        assert {info.message_count for info in infos} <= {len(raws)}
        assert await add(archive, "s0", *raws) == tuple(range(len(raws)))


# Search


@given(
    first=st.integers(1, 1 << 26),
    length=st.integers(0, 1 << 26),
    near=st.integers(0, 1 << 26),
)
def test_block_spans_contain_each_row_once(first: int, length: int, near: int) -> None:
    last = first + length
    spans = list(spans_of(first, last))
    assert spans[0][1] > last
    assert spans[-1][0] <= first
    assert all(upper[0] == lower[1] for upper, lower in pairwise(spans))
    row = min(first + near, last)
    words = block_words("t", row)
    matching = [span for span in spans if any(word in block_query("t", *span) for word in words)]
    assert matching == [span for span in spans if span[0] <= row < span[1]]
    assert len(spans) <= 2 + length.bit_length()


async def test_search_finds_every_word_of_a_long_message(postgres_address: str) -> None:
    text = " ".join(f"w{number}" for number in range(40_000)) + " the end of needle haystack"
    wide = "\U00010400" * 64  # a letter takes four bytes, so this is the longest possible word
    async with open_archive(postgres_address) as archive:
        await add(archive, "s", user(text), user("other"), user(f"{wide} " * 4_500 + "quuxplugh"))
        assert await found(archive, "needle haystack", kind="phrase") == pointers("s", 0)
        for n in (0, 14_999, 15_000, 29_935, 39_998):
            assert await found(archive, f"w{n} w{n + 1}", kind="phrase") == pointers("s", 0)
        assert await found(archive, "quuxplugh") == pointers("s", 2)
        page = await archive.search(Query("end needle w7"))
        assert [hit.pointer for hit in page.hits] == pointers("s", 0)


async def test_both_archives_rank_alike(postgres_address: str, tmp_path: Path) -> None:
    dice = random.Random(3)
    words = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("ake", "olo", "une")]
    sessions = [
        [
            user(
                " ".join(
                    dice.choices(words, weights=range(len(words), 0, -1), k=dice.randrange(3, 90))
                )
            )
            for _ in range(60)
        ]
        for _ in range(5)
    ]
    async with (
        open_archive(postgres_address) as remote,
        open_archive(tmp_path / "archive", index_root=tmp_path / "index") as local,
    ):
        for archive in (remote, local):
            for number, raws in enumerate(sessions):
                await add(archive, f"s{number}", *raws)
        for text in ("bake", "sune tune", "polo rolo molo", "what did golo say of lune?"):
            for order in ("relevance", "recent"):
                query = Query(text, limit=20, order=order)  # type: ignore[arg-type]
                pages = [await archive.search(query) for archive in (remote, local)]
                there, here = ([hit.pointer for hit in page.hits] for page in pages)
                assert there == here, text
                assert pages[0].total == pages[1].total
                scores = [[hit.score for hit in page.hits] for page in pages]
                assert scores[0] == pytest.approx(scores[1], rel=0.02)


# Objects


@pytest.fixture(scope="module")
def bucket() -> Generator[str]:
    """Address of a bucket of moto's S3 server; its keys are in the environment."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        url = f"{settings['AWS_ENDPOINT']}/outputs"
        with urlopen(Request(url, method="PUT"), timeout=150) as response:
            assert response.status == 200
        open_objects.cache_clear()
        yield "s3://outputs/team"
        open_objects.cache_clear()
    server.stop()


def test_object_store_names_the_command_that_installs_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(SettingsError, match=r"package obstore\. Install it: pip install"):
        ObjectStore("s3://outputs/team")


_ON_OBJECTS = [
    check
    for check in CONTRACT
    if any(word in check.__name__ for word in ("output", "large", "deleted", "prun", "bytes"))
]


@pytest.mark.parametrize("check", _ON_OBJECTS, ids=lambda check: check.__name__)
async def test_object_store_passes_the_contract(
    check: Check, cleared_address: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{cleared_address}&objects={quote(bucket, safe='')}"
    with anyio.fail_after(150):
        async with open_archive(address) as archive:
            await check(archive)


async def test_objects_are_deleted_with_their_last_session(
    postgres_address: str, bucket: str
) -> None:
    dice = random.Random(1)
    blob = make_blob("\n".join(f"{dice.getrandbits(256):x}" for _ in range(60_000)))
    bucket = bucket.replace("team", "parts")
    store = open_objects(bucket)
    async with open_archive(f"{postgres_address}&objects={quote(bucket, safe='')}") as archive:
        await archive.commit("a", blobs=[blob])
        await archive.commit("b", blobs=[blob, make_blob("small " * 9_000)])
        keys = await to_thread.run_sync(keys_in, bucket)
        assert keys
        assert all("/default/" in key for key in keys)
        part = await archive.read_output(blob.output_id, start_byte=2_000_000, limit_bytes=100)
        assert part.data == blob.data[2_000_000:2_000_100]
        await archive.delete(["a"])
        assert (await archive.read_output(blob.output_id)).data == blob.data
        await to_thread.run_sync(store.delete, [key.removeprefix("parts/") for key in keys])
        with pytest.raises(ArchiveError, match="backup"):
            await archive.read_output(blob.output_id)
        await archive.delete(["b"])
        assert (await archive.usage()).total_bytes == 0
        assert await to_thread.run_sync(keys_in, bucket) == []


async def test_prune_removes_objects_without_a_row_after_a_day(
    postgres_address: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = bucket.replace("team", "orphans")
    store = open_objects(bucket)
    await to_thread.run_sync(store.put, "default/ab/of-another-database.zst", b"kept")
    async with open_archive(f"{postgres_address}&objects={quote(bucket, safe='')}") as archive:
        blob = make_blob("line of a log\n" * 9_000)
        await archive.commit("s", blobs=[blob])
        named_keys = sorted(await to_thread.run_sync(keys_in, bucket))
        # An upload whose transaction fails, because the receipt cannot be written as JSON.
        with pytest.raises(TypeError):
            await archive.commit("t", blobs=[make_blob("lost\n" * 9_000)], receipt={"a": object()})
        # A deletion that fails to remove its objects.
        await archive.commit("u", blobs=[make_blob("deleted\n" * 9_000)])
        with monkeypatch.context() as broken:
            broken.setattr(type(store), "delete", _fail)
            with pytest.raises(ArchiveError):
                await archive.delete(["u"])
        all_keys = await to_thread.run_sync(keys_in, bucket)
        assert len(all_keys) == len(named_keys) + 2
        assert (
            await archive.prune(PruneRules())
        ).freed_bytes == 0  # a transaction may still refer to them
        # As if a day and a minute had passed.
        monkeypatch.setattr("context_compaction.archive.postgres.archive.ORPHAN_SECONDS", -60.0)
        plan = await archive.prune(PruneRules(), dry_run=True)
        assert plan.freed_bytes > 0
        assert await to_thread.run_sync(keys_in, bucket) == all_keys
        assert await archive.prune(PruneRules()) == plan
        assert sorted(await to_thread.run_sync(keys_in, bucket)) == named_keys
        assert (await archive.prune(PruneRules())).freed_bytes == 0
        assert (await archive.read_output(blob.output_id)).data == blob.data


def _fail(*_: object) -> None:
    raise ArchiveError("The store is unavailable.")


def keys_in(bucket: str) -> list[str]:
    name, _, prefix = bucket.removeprefix("s3://").partition("/")
    listing_url = f"{os.environ['AWS_ENDPOINT']}/{name}?prefix={prefix}"
    with urlopen(listing_url, timeout=150) as listing:
        return re.findall(r"<Key>(.*?)</Key>", listing.read().decode())


# Copies


async def test_copy_archive_to_postgresql_and_back_keeps_every_byte(
    postgres_address: str, tmp_path: Path
) -> None:
    def interrupt(_session: SessionInfo, _records: int) -> None:
        raise InterruptedError

    async with (
        open_archive(tmp_path / "archive", index_root=tmp_path / "index") as local,
        open_archive(tmp_path / "again", index_root=tmp_path / "index") as copied,
        open_archive(postgres_address) as remote,
    ):
        for name in ("s0", "s1"):
            result = await local.append(
                name,
                parsed(user(f"needle {name}"), assistant("x" * 70_000)),
                format=FORMAT,
                parent_session_id=None if name == "s0" else "s0",
            )
            blob = make_blob(f"line of {name}\n" * 9_000, tool_name="Bash")
            await local.commit(name, blobs=[blob], receipt={"n": 1}, head=result.head)
        # The copy is interrupted after the first session, then continued.
        with pytest.raises(InterruptedError):
            await copy_archive(local, remote, report=interrupt)
        assert (await copy_archive(local, remote)).new_count < 8
        assert await found(remote, "needle") == await found(local, "needle")
        await add(local, "s1", user("needle s1"), assistant("x" * 70_000), user("more"))
        assert (await copy_archive(local, remote)).new_count == 1
        assert (await copy_archive(remote, copied)).new_count == 9
        for name in ("s0", "s1"):
            there, here = [
                (await archive.records(name, after=0, limit=99), await archive.session_info(name))
                for archive in (copied, local)
            ]
            assert there == here


@pytest.mark.slow
async def test_restored_dump_is_the_same_archive(own_server: Server) -> None:
    """Run the steps of docs/how-to/postgresql.md."""
    address = named_database(own_server.address(), "archive")
    blob = make_blob("line of a log\n" * 90_000)
    token = AccessToken("id", "robin", ("read",), "hash", 1.0)

    async def contents(archive: Archive) -> list[object]:
        return [
            await archive.sessions(),
            await transcript(archive, "s"),
            (await archive.read_output(blob.output_id)).data,
            await found(archive, "needle"),
            await archive.tokens(),
        ]

    async with open_archive(address) as archive:
        result = await archive.append("s", parsed(user("a needle"), assistant("x")), format=FORMAT)
        await archive.commit("s", blobs=[blob], receipt={"n": 1}, head=result.head)
        await archive.keep_token(token)
        before = await contents(archive)
    dump = str(own_server.folder / "archive.dump")
    dumped = own_server.run("pg_dump", "--format=custom", f"--file={dump}", address)
    assert dumped.returncode == 0, dumped.stderr
    with psycopg.connect(own_server.address(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE again OWNER {APP}".encode())
    again = named_database(own_server.address(), "again")
    restored = own_server.run("pg_restore", f"--dbname={again}", dump)
    assert restored.returncode == 0, restored.stderr
    async with open_archive(again) as archive:
        assert await contents(archive) == before
        assert (await archive.health()).problems == ()
        more = await archive.append("s", parsed(user("go on")), format=FORMAT, after=result.head)
        assert more.written == 1
        assert await found(archive, "go on") == pointers("s", 2)
        assert (await (await archive.for_tenant("other")).sessions())[0] == []


def test_read_address_keeps_the_settings_of_postgresql() -> None:
    host = quote("/var/run/pg", safe="")
    read = read_address(
        f"postgresql://me@/x?host={host}&tenant=a&objects=s3%3A%2F%2Fb&connections=3"
    )
    assert (read.tenant, read.objects, read.connections) == ("a", "s3://b", 3)
    assert read.dsn == f"postgresql://me@/x?host={host}"
