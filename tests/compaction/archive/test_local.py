"""Local archive: the contract of all archives, and properties of its files."""

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from context_compaction import formats
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.values import Query
from context_compaction.errors import (
    ArchiveError,
    InvalidMessageError,
    NotFoundError,
    SettingsError,
)
from context_compaction.messages.model import make_blob
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compaction.archive.archive_contract import CONTRACT, Check, add, parsed, user
from tests.support.environment import unmeasured
from tests.support.strategies import FORMATS, hostile_conversations

_KEYS = st.sampled_from(["$blob", "$$blob", "x$blob", "a", "", "\ud800", "kind", ',"body":'])
_TEXTS = st.text() | st.sampled_from(["\ud800", "\udc00x", "$blob", "k" * 70_000, "é" * 33_000])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
async def test_local_archive_passes_the_contract(check: Check, tmp_path: Path) -> None:
    with anyio.fail_after(150):
        async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
            await check(archive)


@given(extras=st.lists(_JSON, min_size=1, max_size=5))
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_json_is_unchanged_after_a_restart(extras: list[Any], tmp_path: Path) -> None:
    raws = [user(f"m{count}") | {"extra": extra} for count, extra in enumerate(extras)]
    root = tmp_path / str(len(list(tmp_path.iterdir())))

    async def round_trip() -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            written = await archive.append("s", parsed(*raws), format="anthropic")
            assert written.written == len(raws)
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            stored = await archive.read_messages("s", 0, 99)
            assert [message.raw for message in stored] == raws
            again = await archive.append("s", parsed(*raws), format="anthropic")
            assert again.written == 0

    anyio.run(round_trip)


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_conversation_is_archived_and_indexed(
    format: str, data: st.DataObject, tmp_path: Path
) -> None:
    payload = data.draw(hostile_conversations(format))
    try:
        messages = formats.parse(payload, format=format)
    except InvalidMessageError:
        return

    async def archive_it() -> None:
        async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
            session_id = f"s{len((await archive.sessions(limit=1000))[0])}"
            appended = await archive.append(session_id, messages, format=format)
            assert appended.seqs == tuple(range(len(messages)))
            if messages:
                assert await archive.context(session_id) == (format, list(payload))
                info = await archive.session_info(session_id)
                assert info.message_count == len(messages)
                assert info in (await archive.sessions(limit=1000))[0]

    anyio.run(archive_it)


async def test_restart_finds_all_content(tmp_path: Path) -> None:
    blobs = [make_blob("small needle"), make_blob("large needle\n" * 9_000)]
    async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
        await add(archive, "s", user("one"), user("two needle"))
        await archive.commit("s", blobs=blobs, receipt={"done": True})
        before = await archive.search(Query("needle"))
    async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
        for blob in blobs:
            assert (await archive.read_output(blob.output_id)).data == blob.data
        assert await archive.search(Query("needle")) == before
        assert await archive.receipts("s") == [{"done": True}]
        assert await add(archive, "s", user("one"), user("two needle"), user("3")) == (0, 1, 2)
    segments = list((tmp_path / "a").glob("sessions/*/*/*.jsonl"))
    assert len(segments) == 1, "the next process continues the segment of the previous process"


async def test_files_and_folders_are_private_to_the_user(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    async with open_archive(root, index_root=tmp_path / "index") as archive:
        await add(archive, "s", user("secret"))
        await archive.commit("s", blobs=[make_blob("secret\n" * 9_000)])
        await archive.search(Query("secret"))
        paths = [root, *root.rglob("*"), *(tmp_path / "index").rglob("*")]
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    wrong = {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (0o700 if path.is_dir() else 0o600)
    }
    assert wrong == {}


def test_session_id_is_not_part_of_a_path(tmp_path: Path) -> None:
    async def append() -> None:
        async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
            await add(archive, "..", user("x"))
            await add(archive, "findme", user("x"))

    anyio.run(append)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert not [path for path in tmp_path.rglob("*") if "findme" in path.name]


def test_append_does_not_import_sqlite(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
import anyio
from context_compaction import formats
from context_compaction.archive.local.archive import open_archive

async def main():
    root = Path(sys.argv[1])
    async with open_archive(root / "a", index_root=root / "i") as archive:
        messages = formats.parse([{"role": "user", "content": "x"}], format="anthropic")
        await archive.append("s", messages, format="anthropic")
        await archive.context("s")
    assert "sqlite3" not in sys.modules
    assert not (root / "i").exists()

anyio.run(main)
"""
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=unmeasured(), check=True, timeout=150
    )


def all_below(folder: Path) -> set[Path]:
    return {*folder.rglob("*")}


async def test_call_that_writes_nothing_creates_no_files(tmp_path: Path) -> None:
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        first = await archive.append("s", parsed(user("one")), format="anthropic")
        before = all_below(tmp_path)
        for after in (first.head, "0" * 32):
            with pytest.raises(NotFoundError, match="whole message list"):
                await archive.append("t", parsed(user("x")), format="anthropic", after=after)
        with pytest.raises(SettingsError, match="has 0 records"):
            await archive.add_records("t", await archive.records("s", after=0, limit=9), after=1)
        await archive.add_records("t", [], after=0)
        await archive.append("t", (), format="anthropic")
        await archive.commit("t", blobs=[], receipt=None)
        assert all_below(tmp_path) == before


async def test_open_archive_raises_when_the_root_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ArchiveError, match="Check that the folder exists"):
        async with open_archive(tmp_path / "file", index_root=tmp_path / "i"):
            pass


async def test_cancelled_append_is_complete_or_absent(tmp_path: Path) -> None:
    raws = [user(f"message {count}") for count in range(300)]
    async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add, archive, "s", *raws)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        written = await archive.append("s", parsed(*raws), format="anthropic", dry_run=True)
        assert written.written in {0, 300}
        assert await add(archive, "s", *raws) == tuple(range(300))
