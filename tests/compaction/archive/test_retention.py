"""Deletion and pruning in a folder that other processes use."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from context_compaction import formats
from context_compaction.archive.archive import StoredSizes
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.local.durable_files import locked
from context_compaction.archive.local.index_file import CAN_DELETE_ROWS
from context_compaction.archive.local.log import session_folder, session_key
from context_compaction.archive.local.sessions import delete_sessions
from context_compaction.archive.values import PruneRules, SessionUsage
from context_compaction.errors import ArchiveBusyError
from context_compaction.messages.model import make_blob
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.archive.archive_contract import add, found, transcript, user

SESSION = Path(__file__).parents[3] / "examples" / "pi-session.jsonl"
_DIGESTS = st.frozensets(st.sampled_from("abcdef"))
_SESSIONS = st.lists(
    st.tuples(
        st.builds(
            SessionUsage,
            session_id=st.uuids().map(str),
            parent_session_id=st.none(),
            is_retained=st.booleans(),
            message_count=st.just(1),
            last_seconds=st.floats(0, 100),
            log_bytes=st.integers(0, 50),
            own_bytes=st.just(0),
            shared_bytes=st.just(0),
        ),
        _DIGESTS,
    ),
    max_size=8,
)


@given(stored=_SESSIONS, max_bytes=st.integers(0, 400), before_seconds=st.floats(0, 100))
def test_prune_plan_removes_just_enough_sessions(
    stored: list[tuple[SessionUsage, frozenset[str]]], max_bytes: int, before_seconds: float
) -> None:
    blobs = {session.session_id: digests for session, digests in stored}
    uses = [(session_id, digest) for session_id in blobs for digest in blobs[session_id]]
    sizes = StoredSizes([session for session, _ in stored], uses, dict.fromkeys("abcdef", 20))
    plan = sizes.plan(PruneRules(before_seconds, max_bytes))
    names = [usage.session_id for usage in plan.sessions]
    chosen = [session for session in sizes.sessions if session.session_id in names]
    assert not [session for session in chosen if session.is_retained]
    remaining = [session for session in sizes.sessions if session not in chosen]
    assert not [
        session
        for session in remaining
        if session.last_seconds < before_seconds and not session.is_retained
    ]

    def size(remaining_sessions: list[SessionUsage]) -> int:
        used = {digest for session in remaining_sessions for digest in blobs[session.session_id]}
        return sum(session.log_bytes for session in remaining_sessions) + 20 * len(used)

    if [session for session in remaining if not session.is_retained]:
        assert size(remaining) <= max_bytes
    young = [session for session in chosen if session.last_seconds >= before_seconds]
    if young:
        assert size([*remaining, young[-1]]) > max_bytes, (
            "the last chosen session is needed to reach the limit"
        )


def test_deletion_removes_the_bytes_from_every_file(tmp_path: Path) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    secret = "xyzzysecret"

    async def live() -> None:
        async with open_archive(root, index_root=index) as archive:
            await add(archive, "doomed", user(secret), user(f"{secret} " * 9_000))
            blobs = [make_blob("plugh\n" * 9_000)]
            await archive.commit("doomed", blobs=blobs, receipt={"x": secret})
            await add(archive, "kept", user("harmless"))
            assert await found(archive, secret)
            await archive.delete(["doomed"])
            assert await found(archive, secret) == []
            assert len(await found(archive, "harmless")) == 1

    anyio.run(live)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert not list(root.glob("blobs/*/*"))
    assert not list(root.glob("trash*"))


async def test_deletion_leaves_no_words_of_the_session_in_the_index(tmp_path: Path) -> None:
    """A real session that was indexed while it grew."""
    lines = await anyio.Path(SESSION).read_text(encoding="utf-8")
    payload = [line["message"] for line in map(json.loads, lines.splitlines()) if "message" in line]
    other_raws, doomed = payload[:120], payload[120:220]
    root, index = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index) as archive:
        await archive.append("kept", formats.parse(other_raws, format="pi"), format="pi")
        for end in (30, 31, 70, 71, 100):
            raws = formats.parse(doomed[:end], format="pi")
            await archive.append("doomed", raws, format="pi")
            await found(archive, "kept")
        await archive.commit("doomed", blobs=[make_blob("xyzzy plugh\n" * 9_000)])
        assert await found(archive, "xyzzy")
        (database,) = index.glob("*/*.db")
        await archive.delete(["doomed"])
        assert await found(archive, "xyzzy") == []
        if CAN_DELETE_ROWS:
            assert list(index.glob("*/*.db")) == [database], "the index is not rebuilt"
        async with open_archive(root, index_root=tmp_path / "new") as other:
            for word in ("file", "error", "compaction"):
                expected = sorted(await found(other, word, limit=50))
                assert sorted(await found(archive, word, limit=50)) == expected
    assert _words(index) == _words(tmp_path / "new")
    assert not [data for data in _files(index, "*/*") if b"xyzzy" in data]


async def test_deletion_raises_and_changes_nothing_when_a_writer_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("context_compaction.archive.local.durable_files.LOCK_TIMEOUT_SECONDS", 0.1)
    root, index = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index) as archive:
        await add(archive, "kept", user("apple one"))
        await add(archive, "s", user("apple two"))
        with locked(root / "lock", shared=True):
            await add(archive, "s", user("apple two"), user("apple three"))  # writers share it
            assert len(await found(archive, "apple")) == 3
            with pytest.raises(ArchiveBusyError, match="has held"):
                await archive.delete(["s"])
        assert len(await found(archive, "apple")) == 3
        assert len(await transcript(archive, "s")) == 2
        await archive.delete(["s"])
        assert len(await found(archive, "apple")) == 1


async def test_deletion_removes_all_words_when_a_blob_is_missing(tmp_path: Path) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index) as archive:
        await add(archive, "kept", *(user(f"apple {number}") for number in range(9)))
        await add(archive, "doomed", user("k" * 70_000), user("apple"))
        assert len(await found(archive, "apple", limit=50)) == 10
        (blob,) = root.glob("blobs/*/*")
        await anyio.Path(blob).unlink()
        await archive.delete(["doomed"])
        assert len(await found(archive, "apple", limit=50)) == 9
    assert not [data for data in _files(index, "*/*") if b"kkkkkkk" in data]


def _words(index: Path) -> list[tuple[str, str, int]]:
    """Return each word of an index, its column, and the number of rows that contain it."""
    (path,) = index.glob("*/*.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab ('main', 'fts', 'col')")
        return connection.execute("SELECT term, col, doc FROM words ORDER BY 1, 2").fetchall()


@pytest.mark.parametrize("remaining_count", [1, 6])
async def test_search_erases_words_when_a_deletion_was_killed_before_the_index(
    tmp_path: Path, remaining_count: int
) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    names = [f"{letter}xylograph" for letter in "abcdefgh"]
    async with open_archive(root, index_root=index) as archive:
        for name in names:
            await add(archive, name, user(f"apple {name}"), user(f"{name} again"))
        assert len(await found(archive, "apple", limit=100)) == len(names)
    await anyio.to_thread.run_sync(delete_sessions, root, names[remaining_count:])
    async with open_archive(root, index_root=index) as archive:
        assert len(await found(archive, "apple", limit=100)) == remaining_count
    index_bytes = b"".join(await anyio.to_thread.run_sync(_files, index, "*/*"))
    assert [name for name in names if name.encode() in index_bytes] == names[:remaining_count]


async def test_opening_completes_a_deletion_killed_in_the_log(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    async with open_archive(root, index_root=tmp_path / "index") as archive:
        await add(archive, "kept", user("k" * 70_000))
        await add(archive, "doomed", user("d" * 70_000))
    doomed = session_folder(root, session_key("doomed"))
    blobs = len(await anyio.to_thread.run_sync(_files, root, "blobs/*/*"))
    await anyio.Path(root / "trash").mkdir()
    await anyio.Path(doomed).rename(root / "trash" / doomed.name)
    async with open_archive(root, index_root=tmp_path / "index") as archive:
        assert not await anyio.Path(root / "trash").exists()
        assert len(await anyio.to_thread.run_sync(_files, root, "blobs/*/*")) == blobs - 1
        assert await transcript(archive, "kept") == [user("k" * 70_000)]


def _files(folder: Path, pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(pattern)) if path.is_file()]


async def test_deletion_is_noticed_by_another_open_archive(tmp_path: Path) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    async with (
        open_archive(root, index_root=index) as first,
        open_archive(root, index_root=index) as other,
    ):
        await add(first, "s", user("apple"), user("pear"))
        await add(first, "t", user("apple"))
        assert len(await found(other, "apple")) == 2
        await first.delete(["s"])
        assert len(await found(other, "apple")) == 1
        assert await add(other, "s", user("apple"), user("pear")) == (0, 1)
        assert await transcript(first, "s") == [user("apple"), user("pear")]


@pytest.mark.posix("replaces fdatasync")
async def test_deletion_removes_blobs_of_a_killed_process(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    program = """
import os, sys
from pathlib import Path
import anyio
from context_compaction.archive.local.archive import open_archive
from context_compaction.messages.model import make_blob

async def main(root):
    async with open_archive(Path(root), index_root=Path(root + "-index")) as archive:
        sync, count = os.fdatasync, iter(range(10))
        os.fdatasync = lambda handle: os._exit(9) if next(count) == 1 else sync(handle)
        blobs = [make_blob(f"{name}\\n" * 9_000) for name in ("whole", "half")]
        await archive.commit("s", blobs=blobs)

anyio.run(main, *sys.argv[1:])
"""
    command = [sys.executable, "-c", program, str(root)]
    done = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
    assert done.returncode == 9, done.stdout
    assert len([path for path in root.glob("blobs/??/*") if path.is_file()]) == 2
    async with open_archive(root, index_root=tmp_path / "index") as archive:
        await archive.commit("kept", blobs=[make_blob("kept\n" * 9_000)])
        assert await archive.delete([]) > 0
        assert len(list(root.glob("blobs/??/*"))) == 1


async def test_concurrent_writes_and_deletions_keep_referenced_outputs(tmp_path: Path) -> None:
    """One process refers to a blob from ever new sessions; another deletes older sessions."""
    root = tmp_path / "archive"
    blob = make_blob("shared\n" * 9_000)
    async with (
        open_archive(root, index_root=tmp_path / "i") as writer,
        open_archive(root, index_root=tmp_path / "i") as remover,
    ):
        written: list[str] = []

        async def write() -> None:
            for count in range(20):
                await writer.commit(f"s{count}", blobs=[blob])
                written.append(f"s{count}")

        with anyio.fail_after(150):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                deleted = 0
                while deleted < 19:
                    await anyio.lowlevel.checkpoint()
                    if len(written) > deleted + 1:
                        doomed = written[deleted : len(written) - 1]
                        await remover.delete(doomed)
                        deleted += len(doomed)
        assert [session.session_id for session in (await writer.usage()).sessions] == ["s19"]
        assert (await writer.read_output(blob.output_id)).data == blob.data


async def test_search_finds_other_sessions_during_deletions(tmp_path: Path) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    async with (
        open_archive(root, index_root=index) as writer,
        open_archive(root, index_root=index) as searcher,
    ):
        # Enough messages that deletions do not cause a rebuild of the index.
        await add(writer, "kept", *(user(f"apple {number}") for number in range(150)))
        assert await found(searcher, "apple")
        (database,) = index.glob("*/*.db")

        async def append_and_delete() -> None:
            for count in range(6):
                await add(writer, f"s{count}", *(user(f"pear {count} {n}") for n in range(20)))
                await writer.delete([f"s{count}"])
            tasks.cancel_scope.cancel()

        with anyio.fail_after(150):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(append_and_delete)
                while True:
                    assert await found(searcher, "apple")
                    await found(searcher, "pear")
        assert await found(searcher, "pear") == []
        if CAN_DELETE_ROWS:
            assert list(index.glob("*/*.db")) == [database], "the index is not rebuilt"
