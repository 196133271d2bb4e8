"""Several processes share one archive, and some are killed during a call."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from context_compaction.archive.archive import Archive
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.values import Query

from tests.compaction.archive.archive_contract import add, found, user

pytestmark = pytest.mark.slow

WRITER = Path(__file__).with_name("archive_writer.py")
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows, SIGTERM is as hard
KILL_ROUNDS = int(os.environ.get("ARCHIVE_KILL_ROUNDS", "20"))


def _arguments(root: Path, session_id: str, name: str, count: int) -> list[str]:
    return [str(root / "archive"), str(root / "index"), session_id, name, str(count)]


async def _acknowledged_before_kill(
    writers: Process, lines: AsyncGenerator[str], arguments: list[str], kill_after: int
) -> int:
    """Start a writer, kill it after `kill_after` replies, and return its number of replies."""
    assert writers.stdin is not None
    await writers.stdin.send(f"{' '.join(arguments)}\n".encode())
    process_id = int(await anext(lines))
    for _ in range(kill_after):
        await anext(lines)
    os.kill(process_id, KILL)
    rest = 0
    while await anext(lines) != "end":
        rest += 1
    return kill_after + rest


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[str]:
    rest = ""
    async for piece in TextReceiveStream(stream):
        *complete, rest = (rest + piece).split("\n")
        for line in complete:
            yield line


async def _contents(archive: Archive, session_id: str) -> list[str]:
    messages = await archive.read_messages(session_id, 0, 1_000_000)
    return [message.raw["content"].split()[0] for message in messages]


async def test_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(17)
    acknowledged: dict[str, int] = {}
    with anyio.fail_after(150 + 3 * KILL_ROUNDS):
        async with await anyio.open_process([sys.executable, WRITER], stderr=None) as writers:
            assert writers.stdout is not None
            async with aclosing(_lines(writers.stdout)) as lines:
                for count in range(KILL_ROUNDS):
                    session_id = f"s{count % 3}"
                    arguments = _arguments(tmp_path, session_id, f"w{count}", 10_000)
                    acknowledged[f"{session_id} w{count}"] = await _acknowledged_before_kill(
                        writers, lines, arguments, rng.randrange(1, 12)
                    )
            writers.kill()
        async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
            health = await archive.health()
            assert not [problem for problem in health.problems if "checksum" in problem]
            for key, count in acknowledged.items():
                session_id, name = key.split()
                stored = await _contents(archive, session_id)
                words = [f"word{name}x{number}" for number in range(count)]
                assert [word for word in stored if word in words] == words
                for word in words:
                    assert await found(archive, word, session_id=session_id)
            await add(archive, "s0", user("one more message"))
            assert await found(archive, "more message", kind="phrase")


@pytest.mark.parametrize("writers", [2, 4])
async def test_processes_append_to_one_session_during_searches(
    writers: int, tmp_path: Path
) -> None:
    count = 40
    commands = [
        [sys.executable, str(WRITER), *_arguments(tmp_path, "shared", f"w{number}", count)]
        for number in range(writers)
    ]
    outputs: list[bytes] = []

    async def write(command: list[str]) -> None:
        outputs.append((await anyio.run_process(command, stderr=None)).stdout)

    with anyio.fail_after(150):
        async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
            async with anyio.create_task_group() as tasks:
                for command in commands:
                    tasks.start_soon(write, command)
                while len(outputs) < writers:
                    await archive.search(Query("word*"))
            assert [output.count(b"\n") for output in outputs] == [count] * writers
            words = {f"wordw{w}x{n}" for w in range(writers) for n in range(count)}
            assert sorted(await _contents(archive, "shared")) == sorted(words)
            messages = await archive.read_messages("shared", 0, 10_000)
            assert [message.seq for message in messages] == list(range(len(words)))
            for word in sorted(words):
                assert len(await found(archive, word)) == 1
            health = await archive.health()
            assert all(problem.startswith("Note:") for problem in health.problems)


async def test_processes_build_one_index_together(tmp_path: Path) -> None:
    root, index = tmp_path / "archive", tmp_path / "index"
    async with open_archive(root, index_root=index) as archive:
        for number in range(12):
            await add(archive, f"s{number}", *(user(f"apple {number} {n}") for n in range(30)))
    program = """
import sys
from pathlib import Path
import anyio
from context_compaction.archive.values import Query
from context_compaction.archive.local.archive import open_archive

async def main(root, index):
    async with open_archive(Path(root), index_root=Path(index)) as archive:
        page = await archive.search(Query("apple", limit=100))
        print(page.total)

anyio.run(main, *sys.argv[1:])
"""
    command = [sys.executable, "-c", program, str(root), str(index)]
    totals: list[bytes] = []

    async def search() -> None:
        totals.append((await anyio.run_process(command, stderr=subprocess.STDOUT)).stdout.strip())

    with anyio.fail_after(150):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(search)
    assert totals == [b"360"] * 4
