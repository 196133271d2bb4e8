"""What takes long in one session holds up no other, and each session keeps its order."""

from pathlib import Path

import anyio
import pytest
from context_compaction.archive.local.archive import open_archive
from context_compaction.messages.edits import make_blob

from tests.compaction.archive.archive_contract import add, transcript, user

OTHERS = [f"other{number}" for number in range(8)]


async def test_a_huge_append_holds_up_no_other_session(tmp_path: Path) -> None:
    huge = [user(f"{number}" * 2_000_000) for number in range(20)]
    order: list[str] = []
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        blob = make_blob("an output")
        await archive.commit(OTHERS[0], blobs=[blob])

        async def append_huge() -> None:
            await add(archive, "huge", *huge)
            order.append("huge")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append_huge)
            await anyio.lowlevel.checkpoint()
            for name in OTHERS:
                await add(archive, name, user("short"))
                order.append(name)
            assert (await archive.read_output(blob.output_id)).data == blob.data
            order.append("output")
        assert order == [*OTHERS, "output", "huge"]
        assert await transcript(archive, "huge") == huge


@pytest.mark.parametrize("sessions", [1, 3, 12])
async def test_calls_that_overlap_keep_the_order_of_their_session(
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
