"""Search index: searches give equal results if the index is lost, damaged or out of date."""

import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from context_compaction.archive.archive import Archive
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.local.index_file import IndexFile
from context_compaction.archive.values import Query, SearchPage
from context_compaction.errors import ArchiveError, NotFoundError
from context_compaction.messages.model import make_blob
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.compaction.archive.archive_contract import (
    add,
    assistant,
    found,
    parsed,
    pointers,
    transcript,
    user,
)

QUERIES = (
    Query("apple"),
    Query("apple pear", order="recent"),
    Query("pear of session 2", limit=30),
    Query("log line", kind="phrase"),
    Query(r"s[0-9]x4\b", kind="regex"),
)
OUTPUT = make_blob("a log line with an apple\n" * 3_000)


def _database(index_root: Path) -> Path:
    (path,) = index_root.glob("*/*.db")
    return path


def _random_bytes(path: Path, start: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(random.Random(5).randbytes(length))


def _overwrite(index_root: Path) -> None:
    path = _database(index_root)
    _random_bytes(path, 0, path.stat().st_size)


def _overwrite_middle(index_root: Path) -> None:
    path = _database(index_root)
    size = path.stat().st_size
    _random_bytes(path, size // 4, size // 2)


def _truncate(index_root: Path) -> None:
    path = _database(index_root)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _delete_database(index_root: Path) -> None:
    _database(index_root).unlink()


def _drop_table(index_root: Path) -> None:
    connection = sqlite3.connect(_database(index_root))
    connection.execute("DROP TABLE fts")
    connection.close()


def _age(index_root: Path) -> None:
    connection = sqlite3.connect(_database(index_root))
    with connection:
        connection.execute("PRAGMA user_version = 1")
        connection.execute("DELETE FROM doc")
    connection.close()


async def _fill(archive: Archive) -> None:
    for session in range(3):
        raws = [
            user(f"apple number {n} s{session}x{n}") if n % 2 else assistant(f"pear s{session}x{n}")
            for n in range(20)
        ]
        await add(archive, f"session-{session}", user("begin"), *raws)
    await archive.commit("session-1", blobs=[OUTPUT])


async def search_all(archive: Archive) -> list[SearchPage]:
    return [await archive.search(query) for query in QUERIES]


@pytest.mark.parametrize(
    "damage",
    [_overwrite, _overwrite_middle, _truncate, _delete_database, _drop_table, _age],
)
def test_index_gives_the_same_answers_when_it_is_damaged(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"

    async def before() -> list[SearchPage]:
        async with open_archive(root, index_root=index) as archive:
            await _fill(archive)
            return await search_all(archive)

    async def after() -> list[SearchPage]:
        async with open_archive(root, index_root=index) as archive:
            assert (await archive.read_output(OUTPUT.output_id)).data == OUTPUT.data
            assert len((await archive.sessions())[0]) == 3
            return await search_all(archive)

    expected = anyio.run(before)
    assert all(page.hits for page in expected)
    damage(index)
    assert anyio.run(after) == expected
    assert len(list(index.glob("*/*.db"))) == 1, "the damaged database is removed"


def test_discarded_index_is_replaced_when_another_process_has_it_open(tmp_path: Path) -> None:
    first, second = (IndexFile(tmp_path / "index") for _ in range(2))

    def row_count(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT count(*) FROM stamp").fetchone()[0])

    first.run(lambda connection: connection.execute("INSERT INTO stamp VALUES ('word', 1)"))
    assert second.run(row_count) == 1
    second.discard()
    assert [first.run(row_count), second.run(row_count)] == [0, 0]
    first.close()
    second.close()
    assert len(list((tmp_path / "index").glob("*.db*"))) == 1


@pytest.mark.posix("an open file can be deleted")
async def test_index_is_rebuilt_when_deleted_under_an_open_archive(tmp_path: Path) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index) as archive:
        await _fill(archive)
        expected = await search_all(archive)
        await anyio.to_thread.run_sync(shutil.rmtree, index)
        assert await search_all(archive) == expected
        assert await anyio.Path(index).exists()


async def test_index_forgets_lines_that_a_power_loss_removed(tmp_path: Path) -> None:
    """After a power loss the index may contain more than the log."""
    root, index = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index) as archive:
        await add(archive, "s", user("apple one"))
        await add(archive, "s", user("apple one"), user("apple lost"))
        assert len(await found(archive, "apple")) == 2
    (segment,) = [path async for path in anyio.Path(root).glob("sessions/*/*/*.jsonl")]
    lines = (await segment.read_bytes()).splitlines(keepends=True)
    await segment.write_bytes(b"".join(lines[:-1]))
    async with open_archive(root, index_root=index) as archive:
        assert await found(archive, "apple") == pointers("s", 0)
        assert await found(archive, "lost") == []
        assert (await archive.sessions())[0][0].message_count == 1
        await add(archive, "s", user("apple one"), user("apple other"))
        assert await found(archive, "apple", order="recent") == pointers("s", 1, 0)


@pytest.mark.posix("an open file can be deleted")
async def test_rebuilt_index_orders_rows_by_time(tmp_path: Path) -> None:
    index = tmp_path / "index"
    async with open_archive(tmp_path / "archive", index_root=index) as archive:
        for number in range(20):
            raws = [user(f"apple {turn}") for turn in range(number // 8 + 1)]
            await archive.append(f"s{number % 8}", parsed(*raws), format="anthropic")
        expected = await found(archive, "apple", order="recent", limit=50)
        await anyio.to_thread.run_sync(shutil.rmtree, index)
        assert await found(archive, "apple", order="recent", limit=50) == expected
    assert len(expected) == 20
    assert expected[0].startswith("transcript://s3/")


def _make_old(root: Path) -> None:
    """Set the time stamps of all session folders to a time so old that the index relies on them."""
    for folder in (*root.glob("sessions/??"), root / "sessions"):
        os.utime(folder, ns=(10**18, 10**18))


async def test_search_finds_messages_appended_by_another_archive(tmp_path: Path) -> None:
    root, index_root = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index_root) as first:
        await _fill(first)
        for word in ("quokka", "numbat", "wombat"):
            await anyio.to_thread.run_sync(_make_old, root)
            assert not await found(first, word)
            async with open_archive(root, index_root=index_root) as other:
                await add(other, f"other-{word}", user(f"a {word}"))
            assert await found(first, word) == pointers(f"other-{word}", 0)


async def test_opening_skips_unchanged_sessions(tmp_path: Path) -> None:
    root, index_root = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index_root) as archive:
        for number in range(40):
            await add(archive, f"s{number}", user(f"wombat{number}"))
        await found(archive, "wombat3")
        await anyio.to_thread.run_sync(_make_old, root)
        await found(archive, "wombat3")
    opened: list[str] = []
    is_listening = True

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        is_reading = event in {"open", "os.scandir"}
        if is_listening and is_reading and "/sessions/" in Path(str(arguments[0])).as_posix():
            opened.append(str(arguments[0]))

    sys.addaudithook(listen)  # cannot be removed, so `is_listening` switches it off
    async with open_archive(root, index_root=index_root) as archive:
        assert await found(archive, "wombat3") == pointers("s3", 0)
        assert len(opened) == 1, "the line of the hit"
        is_listening = False
        await add(archive, "s3", user("wombat3"), user("a quokka"))
        assert await found(archive, "quokka") == pointers("s3", 1)


STEPS = ("append", "delete", "copy", "restore", "start over", "search")
# The query with several words also depends on the messages around a hit.
SEARCHED = [Query(words, limit=50) for words in ("apple", "apple fruit")]


@example(steps=[(step, "a") for step in ("append", "search", "start over", "append")])
@settings(max_examples=5)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from("abc")), max_size=10))
def test_index_answers_like_a_new_index_after_any_change_of_the_log(
    steps: list[tuple[str, str]],
) -> None:
    """Each step opens the archive; the log is also deleted and copied back by others."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # The index relies on new time stamps as well, as if time had passed.
        patch.setattr("context_compaction.archive.local.index.STAMP_NANOSECONDS", 0)
        for step, session in [*steps, ("search", "a")]:
            anyio.run(_take_step, Path(folder), step, session)


async def _take_step(folder: Path, step: str, session: str) -> None:
    root, backup, index_root = folder / "archive", folder / "backup", folder / "index"
    if step in {"copy", "restore"}:
        source, target = (root, backup) if step == "copy" else (backup, root)
        await anyio.to_thread.run_sync(partial(_replace, source, target))
        return
    if step == "start over":
        await anyio.to_thread.run_sync(partial(shutil.rmtree, root, ignore_errors=True))
    async with open_archive(root, index_root=index_root) as archive:
        if step == "append":
            try:
                raws = await transcript(archive, session)
            except NotFoundError:
                raws = []
            new = [user(f"apple {session} {len(raws)}"), assistant(f"a fruit {len(raws)}")]
            await add(archive, session, *raws, *new)
        elif step == "delete":
            with suppress(NotFoundError):
                await archive.delete([session])
        elif step == "search":
            async with open_archive(root, index_root=folder / "new index") as other:
                assert await _contents(archive) == await _contents(other)
            await anyio.to_thread.run_sync(shutil.rmtree, folder / "new index")


async def _contents(archive: Archive) -> list[Any]:
    """Return search results and sessions in an order that does not depend on row IDs."""
    pages = [await archive.search(query) for query in SEARCHED]
    sessions, _ = await archive.sessions(limit=50)
    return [
        [(sorted(hit.pointer for hit in page.hits), page.total) for page in pages],
        sorted(sessions, key=lambda session: session.session_id),
    ]


def _replace(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)


async def test_search_finds_a_killed_writers_message_when_acknowledged(tmp_path: Path) -> None:
    root, index_root = tmp_path / "archive", tmp_path / "index"
    raws = [user("begin"), user("a quokka")]
    async with open_archive(root, index_root=index_root) as archive:
        for count in (1, 2):
            await archive.append("s", parsed(*raws[:count]), format="anthropic")
    (segment,) = [path async for path in anyio.Path(root).glob("sessions/*/*/*.jsonl")]
    lines = (await segment.read_bytes()).splitlines(keepends=True)
    await segment.write_bytes(b"".join(lines[:-1]))
    await anyio.to_thread.run_sync(_make_old, root)
    async with open_archive(root, index_root=index_root) as searcher:
        assert not await found(searcher, "quokka")
        # The state that a writer leaves if it is killed between its write and its sync.
        await segment.write_bytes(b"".join(lines))
        assert not await found(searcher, "quokka")
        async with open_archive(root, index_root=index_root) as other:
            assert (await other.append("s", parsed(*raws), format="anthropic")).written == 0
        assert await found(searcher, "quokka") == pointers("s", 1)


async def test_read_output_works_when_the_index_cannot_be_written(tmp_path: Path) -> None:
    root, index_root = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index_root) as archive:
        await add(archive, "other", user(f"mentions {OUTPUT.output_id} but does not contain it"))
        await add(archive, "s", user("holds it"))
        await archive.commit("s", blobs=[OUTPUT])
        assert await found(archive, "holds")
    (index,) = [path async for path in anyio.Path(index_root).iterdir()]
    await anyio.to_thread.run_sync(shutil.rmtree, index)
    await index.write_text("no folder")
    async with open_archive(root, index_root=index_root) as archive:
        with pytest.raises(ArchiveError, match="index"):
            await found(archive, "holds")
        assert (await archive.read_output(OUTPUT.output_id)).data == OUTPUT.data
        with pytest.raises(NotFoundError):
            await archive.read_output("o_" + "0" * 24)
