"""Damaged files and full disks: acknowledged content stays readable, and damage is reported."""

import errno
import importlib
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.archive.values import Query
from context_compaction.errors import (
    ArchiveBusyError,
    ArchiveDamagedError,
    ArchiveError,
    ArchiveFullError,
    NotFoundError,
)
from context_compaction.messages.model import make_blob
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.system import lock_file, unlock_file

from tests.compaction.archive.archive_contract import add, found, parsed, transcript, user
from tests.support.json_types import Json
from tests.support.small import agent

UNPRIVILEGED_USER = 65_534  # user ID of a user without rights
RAWS = [user(f"message{number} " + "x" * number) for number in range(10)]


def _segment(root: Path) -> Path:
    (path,) = root.glob("sessions/*/*/*.jsonl")
    return path


def _write(root: Path, session_id: str = "s") -> None:
    """Create an archive that contains `RAWS`, each appended by a separate call."""

    async def append() -> None:
        async with open_archive(root, index_root=root.parent / "index") as archive:
            for count in range(1, len(RAWS) + 1):
                await add(archive, session_id, *RAWS[:count])

    anyio.run(append)


@contextmanager
def file_size_limit(size_bytes: int) -> Generator[None]:
    """Let writes beyond `size_bytes` of any file fall short and then fail, like a full disk."""
    import resource  # Windows lacks it

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_torn_tail_hides_nothing_and_is_not_extended(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    _write(root)
    segment = _segment(root)
    content = segment.read_bytes()
    last_line = content.rstrip(b"\n").rfind(b"\n") + 1

    async def check(torn_at: int) -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            assert await transcript(archive, "s") == RAWS[:9]
            assert len(await found(archive, "message*", limit=50)) == 9
            problems = (await archive.health()).problems
            assert [text for text in problems if f"last {torn_at - last_line} bytes" in text]
            assert await add(archive, "s", *RAWS) == tuple(range(10))
            assert await transcript(archive, "s") == RAWS

    for torn_at in (last_line + 1, last_line + 30, len(content) - 1):
        segment.write_bytes(content[:torn_at])
        anyio.run(check, torn_at)
        assert segment.read_bytes() == content[:torn_at]
        for other in segment.parent.glob("*.jsonl"):
            if other != segment:
                other.unlink()


def test_interrupted_call_leaves_no_messages(tmp_path: Path) -> None:
    root = tmp_path / "archive"

    async def append() -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            await add(archive, "s", RAWS[0])
            await add(archive, "s", *RAWS)

    async def check() -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            assert await transcript(archive, "s") == RAWS[:1]
            assert await found(archive, "message3", kind="phrase") == []

    anyio.run(append)
    segment = _segment(root)
    content = segment.read_bytes()
    segment.write_bytes(content[: content.index(b"message5")])
    anyio.run(check)


def test_damaged_line_is_reported_and_skipped(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    _write(root)
    segment = _segment(root)
    # The session's record is line 1, so message 4 is line 6.
    segment.write_bytes(segment.read_bytes().replace(b"message4", b"massage4"))

    async def check() -> None:
        async with open_archive(root, index_root=tmp_path / "other-index") as archive:
            assert await transcript(archive, "s") == [raw for raw in RAWS if raw != RAWS[4]]
            assert await found(archive, "message4", kind="phrase") == []
            assert len(await found(archive, "message5")) == 1
            problems = (await archive.health()).problems
            assert [text for text in problems if f"{segment}: line 6 " in text]
            with pytest.raises(ArchiveDamagedError, match="whole message list again"):
                await archive.context("s")
            # Passing the list again stores the damaged message again.
            await add(archive, "s", *RAWS)
            assert await archive.context("s") == ("anthropic", RAWS)

    anyio.run(check)


def test_message_that_was_stored_again_counts_once(tmp_path: Path) -> None:
    root, index_root = tmp_path / "archive", tmp_path / "index"

    async def index() -> None:
        async with open_archive(root, index_root=index_root) as archive:
            assert len(await found(archive, "message4", kind="phrase")) == 1

    async def check(index_root: Path) -> None:
        async with open_archive(root, index_root=index_root) as archive:
            await add(archive, "s", *RAWS)
            info = await archive.session_info("s")
            [listed], _ = await archive.sessions()
            [used] = (await archive.usage()).sessions
            health = await archive.health()
            counts = {n.message_count for n in (info, listed, used, health)}
            assert counts == {len(RAWS)}
            assert info.next_seq == listed.next_seq == len(RAWS) + 1

    _write(root)
    anyio.run(index)
    segment = _segment(root)
    segment.write_bytes(segment.read_bytes().replace(b"message4", b"massage4"))
    anyio.run(check, index_root)
    anyio.run(check, tmp_path / "other-index")


def test_read_raises_when_an_open_archive_is_damaged(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    _write(root)

    async def check() -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            await transcript(archive, "s")
            await found(archive, "message4")
            segment = await anyio.to_thread.run_sync(_segment, root)
            data = await anyio.Path(segment).read_bytes()
            await anyio.Path(segment).write_bytes(data.replace(b"message4", b"massage4"))
            with pytest.raises(ArchiveDamagedError, match="checksum"):
                await transcript(archive, "s")
            assert await found(archive, "message4", kind="phrase") == []

    anyio.run(check)


def test_damaged_blob_raises_only_for_its_own_output(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    blobs = [make_blob(f"line of {name}\n" * 20_000) for name in ("apple", "pear")]

    async def write() -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            await archive.commit("s", blobs=blobs)

    async def check() -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            with pytest.raises(ArchiveDamagedError, match=r"\.zst is damaged"):
                await archive.read_output(blobs[0].output_id)
            assert (await archive.read_output(blobs[1].output_id)).data == blobs[1].data
            assert await found(archive, "apple") == []
            assert len(await found(archive, "pear")) == 3

    anyio.run(write)
    blob_path = next(path for path in root.glob("blobs/*/*.zst") if _holds(path, b"apple"))
    data = blob_path.read_bytes()
    middle = len(data) // 2
    for damaged in (
        data[:middle],
        data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
        b"",
        data[:-8] + b"damaged!",
    ):
        blob_path.write_bytes(damaged)
        anyio.run(check)


def _holds(path: Path, word: bytes) -> bool:
    import zstandard

    with path.open("rb") as file:
        return word in zstandard.ZstdDecompressor().stream_reader(file).read(1000)


@pytest.mark.posix("limits the size of files")
def test_full_disk_keeps_earlier_calls_and_nothing_of_the_failed_one(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
            raws = [user("start")]
            await add(archive, "s", *raws)

            async def grow_until_it_fails() -> None:
                while True:
                    grown = [*raws, user("y" * 7_000 + str(len(raws)))]
                    await add(archive, "s", *grown)
                    raws.append(grown[-1])

            with file_size_limit(100_000), pytest.raises(ArchiveFullError, match="Free some"):
                await grow_until_it_fails()
            assert 5 < len(raws) < 15
            assert await transcript(archive, "s") == raws
            health = await archive.health()
            assert all(problem.startswith("Note:") for problem in health.problems)
            raws.append(user("space returned"))
            assert await add(archive, "s", *raws) == tuple(range(len(raws)))
            assert await transcript(archive, "s") == raws

    anyio.run(check)


async def test_failed_sync_stores_nothing_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        for session_id, raws in (("new", []), ("known", RAWS[:3])):
            if raws:
                await add(archive, session_id, *raws)
            with monkeypatch.context() as patched:
                patched.setattr("context_compaction.system.sync_file", refuse)
                with pytest.raises(ArchiveFullError, match="Nothing of this call was stored"):
                    await add(archive, session_id, *raws, user("refused"))
            await add(archive, session_id, *raws, user("taken"))
            assert await transcript(archive, session_id) == [*raws, user("taken")]


@pytest.mark.posix("limits the size of files")
def test_full_disk_leaves_no_part_of_a_blob(tmp_path: Path) -> None:
    blob = make_blob("".join(f"{number * 7919}\n" for number in range(200_000)))

    async def check() -> None:
        async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
            with file_size_limit(50_000), pytest.raises(ArchiveFullError):
                await archive.commit("s", blobs=[blob])
            assert (await archive.health()).blob_bytes == 0
            await archive.commit("s", blobs=[blob])
            assert (await archive.read_output(blob.output_id)).data == blob.data

    anyio.run(check)
    names = [path.name for path in tmp_path.glob("archive/blobs/*/*")]
    assert all(name.endswith(".zst") for name in names)


@pytest.mark.posix("limits the size of files")
def test_search_works_again_after_the_index_disk_was_full(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
            await add(archive, "s", *(user(f"apple {n} " + f"w{n} " * 20) for n in range(500)))
            with file_size_limit(40_000), pytest.raises(ArchiveError, match="archive itself is"):
                await archive.search(Query("apple"))
            assert (await archive.search(Query("apple"))).total == 500

    anyio.run(check)


async def test_append_names_the_lock_when_it_is_never_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("context_compaction.archive.local.durable_files.LOCK_TIMEOUT_SECONDS", 0.1)
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        await add(archive, "s", RAWS[0])
        (lock,) = [path async for path in anyio.Path(tmp_path).glob("archive/sessions/*/*/lock")]
        handle = os.open(lock, os.O_RDWR)
        try:
            assert lock_file(handle, shared=False)
            with pytest.raises(ArchiveBusyError, match="has held"):
                await add(archive, "s", *RAWS)
        finally:
            unlock_file(handle)
        assert await transcript(archive, "s") == RAWS[:1]
        assert await add(archive, "s", *RAWS) == tuple(range(10))


def test_open_archive_notices_a_truncated_segment(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    _write(root)

    async def check() -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            assert len(await transcript(archive, "s")) == 10
            segment = await anyio.to_thread.run_sync(_segment, root)
            lines = (await anyio.Path(segment).read_bytes()).splitlines(keepends=True)
            await anyio.Path(segment).write_bytes(b"".join(lines[:4]))
            assert await transcript(archive, "s") == RAWS[:3]
            written = await archive.append("s", parsed(*RAWS), format="anthropic")
            assert written.seqs == tuple(range(10))
            assert written.written == 7

    anyio.run(check)


async def test_reading_creates_no_files(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    await anyio.to_thread.run_sync(_write, root)

    async def names() -> set[str]:
        return {str(path) async for path in anyio.Path(root).rglob("*")}

    before = await names()
    async with open_archive(root, index_root=tmp_path / "elsewhere") as archive:
        assert isinstance(archive, LocalArchive)
        assert await transcript(archive, "s") == RAWS
        assert len(await found(archive, "message3")) == 1
        assert await add(archive, "s", *RAWS) == tuple(range(10))
    assert await names() == before


@contextmanager
def _unprivileged() -> Generator[Path]:
    """Run the block as a user without rights, because root may read and write everything."""
    with TemporaryDirectory(prefix="archive-") as folder:
        for name in ("local.index", "search.words"):  # imported while this user may read the files
            importlib.import_module(f"context_compaction.archive.{name}")
        as_root = os.geteuid() == 0
        if as_root:
            os.chown(folder, UNPRIVILEGED_USER, UNPRIVILEGED_USER)
            os.seteuid(UNPRIVILEGED_USER)
        try:
            yield Path(folder)
        finally:
            if as_root:
                os.seteuid(0)
            for path in Path(folder).rglob("*"):
                if path.is_dir():
                    path.chmod(0o700)


@pytest.mark.posix("modes of files")
def test_read_only_archive_can_be_searched_but_not_changed() -> None:
    with _unprivileged() as folder:
        root = folder / "archive"
        _write(root)
        for path in [*root.rglob("*"), root]:
            path.chmod(0o500 if path.is_dir() else 0o400)

        async def check() -> None:
            async with open_archive(root, index_root=folder / "index") as archive:
                assert await transcript(archive, "s") == RAWS
                assert len(await found(archive, "message3")) == 1
                assert await add(archive, "s", *RAWS) == tuple(range(10))
                for change in (
                    add(archive, "s", *RAWS, user("more")),
                    add(archive, "new", user("more")),
                    archive.retain("s"),
                    archive.delete(["s"]),
                ):
                    with pytest.raises(ArchiveError, match=r"Permission denied.*may read and"):
                        await change
                assert await transcript(archive, "s") == RAWS

        anyio.run(check)
        root.chmod(0o700)


@pytest.mark.posix("modes of files")
def test_compact_returns_the_stored_result_when_the_archive_is_read_only() -> None:
    with _unprivileged() as folder:
        if os.getuid():
            pytest.skip("only root can create an archive of another user")
        root, small = folder / "archive", CompactRequest(target_tokens=300, session_id="s")
        turns = [(agent(f"Step {step} is done."), user(f"Do step {step}.")) for step in range(90)]
        talk = [user("Begin."), *[message for pair in turns for message in pair]]

        async def compacted(request: CompactRequest) -> CompactResult:
            async with open_archive(root, index_root=folder / "index") as archive:
                return await compact(talk, request, archive=archive)

        os.seteuid(0)
        first = anyio.run(compacted, small)
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.seteuid(UNPRIVILEGED_USER)
        again = anyio.run(compacted, small)
        plan = anyio.run(compacted, replace(small, mode="plan", target_tokens=200))
        assert (first.changed, again.messages) == (True, first.messages)
        assert plan.tokens.after < first.tokens.after
        with pytest.raises(ArchiveError, match=r"Permission denied.*may read and"):
            anyio.run(compacted, replace(small, target_tokens=200))


@pytest.mark.posix("modes of files")
def test_open_archive_names_the_folder_when_permission_is_missing() -> None:
    with _unprivileged() as folder:
        folder.chmod(0o500)

        async def open_it(root: Path) -> None:
            async with open_archive(root, index_root=folder / "index") as archive:
                await transcript(archive, "s")

        with pytest.raises(ArchiveError, match=r"Creating .*archive failed: Permission denied"):
            anyio.run(open_it, folder / "archive")
        folder.chmod(0o700)
        _write(folder / "archive")
        (segment,) = (folder / "archive").glob("sessions/*/*/*.jsonl")
        segment.chmod(0o000)
        with pytest.raises(ArchiveError, match="jsonl failed: Permission denied"):
            anyio.run(open_it, folder / "archive")


def test_damaged_last_line_hides_no_earlier_line(tmp_path: Path) -> None:
    root = tmp_path / "archive"

    async def append(*raws: Json) -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            await add(archive, "s", *raws)

    async def read_all() -> list[Json]:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            return await transcript(archive, "s")

    anyio.run(append, *RAWS)
    path = _segment(root)
    data = bytearray(path.read_bytes())
    data[data.rfind(b"message9") + 3] ^= 1
    path.write_bytes(data)
    assert anyio.run(read_all) == RAWS[:9]
    anyio.run(append, *RAWS)
    assert anyio.run(read_all)[-1:] == RAWS[9:]


@pytest.mark.posix("an open file can be moved")
async def test_calls_raise_when_the_archive_folder_was_removed(tmp_path: Path) -> None:
    root, moved = tmp_path / "archive", tmp_path / "away"
    async with open_archive(root, index_root=tmp_path / "index") as archive:
        await add(archive, "s", *RAWS[:4])
        assert len((await archive.search(Query("message2"))).hits) == 1
        await anyio.Path(root).rename(moved)
        calls = [
            lambda: add(archive, "s", *RAWS[:4]),
            lambda: add(archive, "s", *RAWS[:5]),
            lambda: transcript(archive, "s"),
            lambda: archive.context("s"),
            lambda: archive.search(Query("message2")),
            lambda: archive.search(Query("message2", kind="regex")),
            archive.sessions,
        ]
        for make_call in calls:
            with pytest.raises(ArchiveError, match="No such file") as caught:
                await make_call()
            assert str(root) in str(caught.value)
            assert not isinstance(caught.value, NotFoundError)
        assert not await anyio.Path(root).exists()
        await anyio.Path(moved).rename(root)
        await add(archive, "s", *RAWS[:6])
        assert await transcript(archive, "s") == RAWS[:6]
        assert len((await archive.search(Query("message5"))).hits) == 1


@pytest.mark.parametrize("option", ["size=400k", "nr_inodes=30"])
@pytest.mark.posix("mounts a file system")
def test_append_works_again_after_the_file_system_was_full(option: str, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    ballast = [place / f"ballast{count}" for count in range(8)]

    async def check() -> None:
        async with open_archive(place / "archive", index_root=tmp_path / "index") as archive:
            stored: list[str] = []

            async def grow_until_it_fails() -> None:
                while True:
                    name = f"s{len(stored)}"
                    await add(archive, name, user("y" * 8_000))
                    stored.append(name)

            with pytest.raises(ArchiveFullError, match="Free some space"):
                await grow_until_it_fails()
            for name in stored:
                assert await transcript(archive, name) == [user("y" * 8_000)]
            assert all(text.startswith("Note:") for text in (await archive.health()).problems)
            for path in ballast:
                await anyio.Path(path).unlink()
            assert await add(archive, "again", user("space returned")) == (0,)

    try:
        for path in ballast:
            path.write_bytes(b"x" * 8_000)
        anyio.run(check)
    finally:
        subprocess.run(["umount", str(place)], check=True)
