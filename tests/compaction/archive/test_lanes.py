"""Concurrent sessions: a long call does not delay others, and each session keeps its order."""

import gc
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from context_compaction.archive import transcript_state
from context_compaction.archive.archive import Archive
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.local.durable_files import locked, make_folder
from context_compaction.archive.local.log import session_folder, session_key
from context_compaction.archive.local.sessions import LocalState
from context_compaction.messages.model import make_blob

from tests.compaction.archive.archive_contract import add, transcript, user

OTHER_SESSIONS = [f"other{number}" for number in range(8)]


@asynccontextmanager
async def long_append(archive: Archive, root: Path, *raws: dict[str, Any]) -> AsyncGenerator[None]:
    """Start an append to the session "long", which waits for a lock until the end of the block.

    A call that waits for this append inside the block fails after `LOCK_TIMEOUT_SECONDS`.
    """
    folder = session_folder(root, session_key("long"))
    make_folder(folder)
    async with anyio.create_task_group() as tasks:
        with locked(folder / "lock"):
            tasks.start_soon(add, archive, "long", *raws)
            await anyio.lowlevel.checkpoint()
            yield


async def test_long_append_does_not_delay_other_sessions(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    raws = [user(f"{number}" * 200_000) for number in range(20)]
    async with open_archive(root, index_root=tmp_path / "index") as archive:
        blob = make_blob("an output")
        await archive.commit(OTHER_SESSIONS[0], blobs=[blob])
        async with long_append(archive, root, *raws):
            for name in OTHER_SESSIONS:
                await add(archive, name, user("short"))
                assert await transcript(archive, name) == [user("short")]
            assert (await archive.read_output(blob.output_id)).data == blob.data
        assert await transcript(archive, "long") == raws


@pytest.mark.parametrize("sessions", [1, 3, 12])
async def test_overlapping_calls_keep_the_order_of_their_session(
    sessions: int, tmp_path: Path
) -> None:
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        lists = {
            f"s{number}": [user(f"{number} said {turn}") for turn in range(12)]
            for number in range(sessions)
        }
        async with anyio.create_task_group() as tasks:
            for turn in range(1, 13):
                for name, raws in lists.items():
                    tasks.start_soon(add, archive, name, *raws[:turn])
        for name, raws in lists.items():
            assert await transcript(archive, name) == raws
        freed = await archive.delete(list(lists))
        assert freed > 0
        for name, raws in lists.items():
            await add(archive, name, *raws[:2])
            assert await transcript(archive, name) == raws[:2]


async def test_cached_states_are_bounded_by_their_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_state, "CACHED_RECORDS", 100)
    raws = [user(f"word {at}") for at in range(30)]
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        for number in range(20):
            await add(archive, f"s_{number}", *raws)
        known = [state for state in gc.get_objects() if isinstance(state, LocalState)]
        records = sum(state.next_number for state in known if tmp_path in state.log_folder.parents)
        assert records <= 100 + 31
        for number in range(20):
            assert await transcript(archive, f"s_{number}") == raws


async def test_append_does_not_encode_the_whole_list_at_once(tmp_path: Path) -> None:
    raws = [
        user(f"{number} " + "word " * 5_000) for number in range(400)
    ]  # 10 MB, no text is long enough for a blob
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        await add(archive, "s", user("imports happen in the first call"))
        tracemalloc.start()
        try:
            await add(archive, "s", *raws)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 5_000_000
        assert (await transcript(archive, "s"))[1:] == raws
