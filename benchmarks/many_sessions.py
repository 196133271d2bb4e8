"""What opening an archive of many sessions and its first search cost.

Run: python benchmarks/many_sessions.py [--sessions 10000]

Each session has a call and its result of some hundred characters. New processes open the archive
and search it once they have done so with one of a single session: what a process loads once is no
matter of sessions. CPU of the whole process, medians; beside it an archive of a hundredth.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats, open_archive
from context_compaction.archive import Query

ROUNDS = 5


def needle(number: int) -> str:
    return f"ZXPlant{number}QuirkError"


async def make(folder: Path, sessions: int) -> None:
    """An archive of `sessions` sessions, all of them indexed."""
    async with open_archive(folder / "archive", index_root=folder / "index") as archive:
        for number in range(sessions):
            call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "make"}}
            text = f"make: {needle(number)} in src/part{number % 97}.py:{number}\n" * 3
            result = {"type": "tool_result", "tool_use_id": "t", "content": text}
            payload = [
                {"role": "user", "content": f"Build part {number}."},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
            messages = formats.parse(payload, format="anthropic")
            await archive.append(f"session-{number}", messages, format="anthropic")
        await archive.search(Query(needle(0)))


async def opened(folder: Path, name: str) -> float:
    """CPU in ms of opening the archive and a search that finds `name`."""
    began = time.process_time()
    async with open_archive(folder / "archive", index_root=folder / "index") as archive:
        page = await archive.search(Query(name))
        spent_ms = (time.process_time() - began) * 1000
    assert page.hits, name
    return spent_ms


async def searched(single: Path, folder: Path) -> None:
    await opened(single, needle(0))
    print(await opened(folder, needle(0)))


def measured(single: Path, folder: Path) -> float:
    command = [sys.executable, __file__, "--opened", str(single), str(folder)]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(ROUNDS)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--opened", type=Path, nargs=2)
    args = parser.parse_args()
    if args.opened:
        anyio.run(searched, *args.opened)
        return
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        anyio.run(make, root / "single", 1)
        for sessions in (args.sessions // 100, args.sessions):
            folder = root / str(sessions)
            anyio.run(make, folder, sessions)
            spent_ms = measured(root / "single", folder)
            print(f"{sessions:>8,} sessions: {spent_ms:.1f} ms to open and search first")


if __name__ == "__main__":
    main()
