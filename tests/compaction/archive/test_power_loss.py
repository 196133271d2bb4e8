"""After a power loss everything acknowledged is present, and no call is partly present."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.values import ContextEntry
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import Blob, make_blob

from tests.compaction.archive.archive_contract import add, found, parsed, transcript, user
from tests.support.power_loss import Disk, recording

pytestmark = pytest.mark.posix("simulates a file system of Linux")

ROUNDS = int(os.environ.get("ARCHIVE_POWER_ROUNDS", "12"))


class Life:
    """Calls acknowledged by an archive so far, and images of its disk at random moments."""

    def __init__(self, folder: Path, disk: Disk, seed: int) -> None:
        self.root = folder / "archive"
        self.raws: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
        self.blobs: dict[str, Blob] = {}
        self.receipts = 0
        self.images: list[tuple[Path, dict[str, int], list[str], int]] = []
        self._folder = folder
        self._disk = disk
        self._rng = Random(seed)
        self._acknowledged = dict.fromkeys(self.raws, 0)

    def lose_power(self) -> None:
        target = self._folder / f"image{len(self.images)}"
        self._disk.image(self.root, target, self._rng)
        self.images.append((target, dict(self._acknowledged), list(self.blobs), self.receipts))

    async def live(self, calls: int) -> None:
        self._disk.before_sync = lambda: self.lose_power() if self._rng.random() < 0.15 else None
        async with open_archive(self.root, index_root=self._folder / "index") as archive:
            for count in range(calls):
                session_id = self._rng.choice(sorted(self.raws))
                raws = self.raws[session_id]
                text = f"word{count} " + self._rng.choice(["x", "y " * 900, "z " * 20_000])
                raws += [user(text + str(part)) for part in range(self._rng.randrange(1, 4))]
                await add(archive, session_id, *raws)
                self._acknowledged[session_id] = len(raws)
                if self._rng.random() < 0.4:
                    size = self._rng.choice([10, 40_000])
                    blob = make_blob(f"output {count}\n" * size)
                    await archive.commit(
                        session_id,
                        blobs=[blob],
                        receipt={"count": count},
                        context=[ContextEntry(-1, user("summary")), ContextEntry(0, {})],
                    )
                    self.blobs[blob.output_id] = blob
                    self.receipts += 1
                if self._rng.random() < 0.3:
                    self.lose_power()


async def _check(life: Life, index: int) -> None:
    root, acknowledged, outputs, receipts = life.images[index]
    # The index was on that disk, too, and may contain more than the remaining log.
    async with open_archive(root, index_root=root.parent / f"index-of-{index}") as archive:
        for session_id, count in acknowledged.items():
            if not count:
                continue
            stored = await transcript(archive, session_id)
            assert stored == life.raws[session_id][: len(stored)], (
                "no message is torn or out of order"
            )
            assert len(stored) >= count, "an acknowledged message is lost"
            word = life.raws[session_id][count - 1]["content"].split()[0]
            assert await found(archive, word, session_id=session_id)
        for output_id in outputs:
            assert (await archive.read_output(output_id)).data == life.blobs[output_id].data
        sessions = [session_id for session_id, count in acknowledged.items() if count]
        assert sum([len(await archive.receipts(name)) for name in sessions]) >= receipts
        health = await archive.health()
        assert not [problem for problem in health.problems if "checksum" in problem]
        for session_id, raws in life.raws.items():
            assert await add(archive, session_id, *raws) == tuple(range(len(raws)))
            assert await transcript(archive, session_id) == raws


def test_power_loss_keeps_everything_acknowledged(tmp_path: Path) -> None:
    for seed in range(max(1, ROUNDS // 12)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with recording() as disk:
            life = Life(folder, disk, seed)
            anyio.run(life.live, 12)
        assert len(life.images) > 5
        for index in range(len(life.images)):
            anyio.run(_check, life, index)


async def _write_together(root: Path, index: Path, disk: Disk, seed: int) -> list[Any]:
    """Let two archives append to one session, sometimes after each other's messages.

    Returns images of the disk, each with the messages acknowledged before the image was taken.
    """
    rng = Random(seed)
    acknowledged: list[list[dict[str, Any]]] = []
    images: list[tuple[Path, int]] = []

    def lose_power() -> None:
        if rng.random() < 0.3:
            target = root.with_name(f"image{len(images)}")
            images.append((target, len(acknowledged)))
            disk.image(root, target, rng)

    async def write(name: str) -> None:
        async with open_archive(root, index_root=index) as archive:
            raws: list[dict[str, Any]] = []
            for count in range(8):
                if count and rng.random() < 0.5:
                    _, raws = await archive.context("s")
                raws = [*raws, user(f"{name} {count}")]
                await add(archive, "s", *raws)
                acknowledged.append(raws)

    disk.before_sync = lose_power
    async with anyio.create_task_group() as tasks:
        for name in ("one", "two"):
            tasks.start_soon(write, name)
    return [(image, acknowledged[:count]) for image, count in images]


def test_power_loss_keeps_messages_that_another_process_built_on(tmp_path: Path) -> None:
    async def check(image: Path, acknowledged: list[list[dict[str, Any]]]) -> None:
        async with open_archive(image, index_root=tmp_path / "index") as archive:
            try:
                await archive.context("s")  # no message is stored without the messages before it
            except NotFoundError:
                assert not acknowledged
                return
            stored = await transcript(archive, "s")
            for raws in acknowledged:
                assert all(raw in stored for raw in raws)
                assert (await archive.append("s", parsed(*raws), format="anthropic")).written == 0

    for seed in range(max(3, ROUNDS // 4)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with recording() as disk:
            images = anyio.run(_write_together, folder / "archive", folder / "index", disk, seed)
        assert images  # their number depends on which process is faster
        for image, acknowledged in images:
            anyio.run(check, image, acknowledged)


def test_append_syncs_messages_of_another_process_before_its_own(tmp_path: Path) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    raws = [user("zero"), user("one"), user("two")]
    images: list[tuple[Path, int]] = []

    def lose_power(disk: Disk, least: int) -> None:
        for seed in range(6):  # each seed keeps another part of the unsynced bytes
            images.append((tmp_path / f"image{len(images)}", least))
            disk.image(root, images[-1][0], Random(seed))

    async def live(disk: Disk) -> None:
        async with (
            open_archive(root, index_root=index) as slow,
            open_archive(root, index_root=index) as fast,
        ):

            def overtake() -> None:
                """Append with `fast` when `slow` has written "one" and is about to sync it."""
                disk.before_sync = lambda: lose_power(disk, 1)
                anyio.from_thread.run(add, fast, "s", *raws)
                disk.before_sync = lambda: None
                lose_power(disk, 3)

            await add(slow, "s", *raws[:1])
            disk.before_sync = overtake
            await add(slow, "s", *raws[:2])

    async def context(image: Path) -> list[dict[str, Any]]:
        async with open_archive(image, index_root=index) as archive:
            return (await archive.context("s"))[1]

    with recording() as disk:
        anyio.run(live, disk)
    assert len(images) > 12
    for image, least in images:
        stored = anyio.run(context, image)
        assert stored == raws[: len(stored)]
        assert len(stored) >= least


def test_append_syncs_messages_of_a_killed_process_before_it_acknowledges(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
import anyio
from context_compaction import formats
from context_compaction.archive.local.archive import open_archive

async def main(root):
    async with open_archive(Path(root), index_root=Path(root + "-index")) as archive:
        os.fdatasync = lambda handle: os._exit(9)
        messages = formats.parse([{"role": "user", "content": "one"}], format="anthropic")
        await archive.append("s", messages, format="anthropic")

anyio.run(main, *sys.argv[1:])
"""
    root = tmp_path / "archive"
    command = [sys.executable, "-c", program, str(root)]
    assert subprocess.run(command, check=False, timeout=150).returncode == 9
    images = [tmp_path / "image0", tmp_path / "image1"]

    async def acknowledge(disk: Disk) -> None:
        async with open_archive(root, index_root=tmp_path / "index") as archive:
            assert await add(archive, "s", user("one")) == (0,)  # already stored
            disk.image(root, images[0], Random(1))
            assert await add(archive, "s", user("one"), user("two")) == (0, 1)
            disk.image(root, images[1], Random(1))

    async def read_all(image: Path) -> list[dict[str, Any]]:
        async with open_archive(image, index_root=tmp_path / "index") as archive:
            return await transcript(archive, "s")

    with recording() as disk:
        anyio.run(acknowledge, disk)
    assert anyio.run(read_all, images[0]) == [user("one")]
    assert anyio.run(read_all, images[1]) == [user("one"), user("two")]


def test_append_syncs_the_context_of_a_killed_process_first(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
import anyio
from context_compaction import formats
from context_compaction.archive.values import ContextEntry
from context_compaction.archive.local.archive import open_archive

async def main(root):
    async with open_archive(Path(root), index_root=Path(root + "-index")) as archive:
        messages = formats.parse([{"role": "user", "content": "one"}], format="anthropic")
        done = await archive.append("s", messages, format="anthropic")
        os.fdatasync = lambda handle: os._exit(9)
        summary = ContextEntry(-1, {"role": "user", "content": "summary"})
        await archive.commit("s", context=[summary], head=done.head)

anyio.run(main, *sys.argv[1:])
"""
    root = tmp_path / "archive"
    with recording() as disk:
        command = [sys.executable, "-c", program, str(root)]
        assert subprocess.run(command, check=False, timeout=150).returncode == 9
        images = [tmp_path / f"image{seed}" for seed in range(6)]

        async def acknowledge() -> None:
            async with open_archive(root, index_root=tmp_path / "index") as archive:
                # Already stored, so later messages may follow it.
                await add(archive, "s", user("summary"))
                for seed, image in enumerate(images):
                    disk.image(root, image, Random(seed))

        anyio.run(acknowledge)

    async def context(image: Path) -> list[dict[str, Any]]:
        async with open_archive(image, index_root=tmp_path / "index") as archive:
            return (await archive.context("s"))[1]

    for image in images:
        assert anyio.run(context, image) == [user("summary")]
