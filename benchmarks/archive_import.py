"""Measure the import of session files: into the log, into the index, and with nothing new.

Run: python benchmarks/archive_import.py [MESSAGES] [log]

`log` omits the index, which takes most of the time. The files are Claude Code sessions of 1,000
messages of about 1 KB. The floors are `json.loads` of every line, and a copy of all
lines to one file with one fdatasync.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.values import Query
from mcp_server_compaction.hosts.importing import Importer, files_to_import

SESSION_MESSAGES = 1_000
WORDS = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8").split()


def write_session(path: Path, number: int) -> None:
    """Write a session file with 1,000 messages."""
    rng = random.Random(number)
    lines: list[str] = []
    for count in range(SESSION_MESSAGES // 2):
        command = " ".join(rng.choices(WORDS, k=120))
        call = {
            "type": "tool_use",
            "id": f"c{count}",
            "name": "Bash",
            "input": {"command": command},
        }
        output = f"module_{number}_{count}.py:{count}: " + " ".join(rng.choices(WORDS, k=140))
        result = {"type": "tool_result", "tool_use_id": f"c{count}", "content": output}
        for role, block in (("assistant", call), ("user", result)):
            message = {"role": role, "content": [block], "id": f"m{count}"}
            stamp = f"2026-01-{1 + number % 28:02}T10:{count // 60 % 60:02}:{count % 60:02}Z"
            row = {"type": role, "sessionId": f"session-{number}", "timestamp": stamp}
            lines.append(json.dumps(row | {"message": message}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


async def import_all(archive_folder: Path, index: Path, files: Sequence[Path]) -> int:
    """Import the changed files; return the number of new messages."""
    changed = await anyio.to_thread.run_sync(files_to_import, archive_folder, files)
    if not changed:
        return 0
    async with open_archive(archive_folder, index_root=index) as archive:
        importer = Importer(archive, archive_folder)
        outcomes = [await importer.import_file(path) for path in changed]
    return sum(outcome.written for outcome in outcomes)


async def index_all(archive_folder: Path, index: Path) -> None:
    """Search one time, which builds the index."""
    async with open_archive(archive_folder, index_root=index) as archive:
        await archive.search(Query("module_1_1"))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU and wall seconds of `work`."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def load_lines(files: Sequence[Path]) -> None:
    """Decode every line."""
    for path in files:
        with path.open("rb") as file:
            for line in file:
                json.loads(line)


def copy_lines(files: Sequence[Path], target: Path) -> None:
    """Copy all files to one and sync it."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
    for path in files:
        os.write(handle, path.read_bytes())
    os.fdatasync(handle)
    os.close(handle)


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    messages = int(arguments[0]) if arguments else 100_000
    with TemporaryDirectory(prefix="archive-import-") as folder:
        root = Path(folder)
        files = [root / f"session-{number}.jsonl" for number in range(messages // SESSION_MESSAGES)]
        for number, path in enumerate(files):
            write_session(path, number)
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        archive, index = root / "archive", root / "index"
        print(f"{messages:,} messages in {len(files)} files, {megabytes:.0f} MB\n")
        print("| step | CPU s | wall s | MB per CPU second |")
        print("|---|---|---|---|")
        steps: dict[str, Callable[[], object]] = {
            "floor: json.loads of every line": lambda: load_lines(files),
            "floor: copy and one fdatasync": lambda: copy_lines(files, root / "copy"),
            "import into the log": lambda: anyio.run(import_all, archive, index, files),
            "the first search, which builds the index": lambda: anyio.run(
                index_all, archive, index
            ),
            "import again, nothing new": lambda: anyio.run(import_all, archive, index, files),
        }
        if "log" in arguments:
            del steps["the first search, which builds the index"]
        cpu_of: dict[str, float] = {}
        for name, work in steps.items():
            cpu, wall = timed(work)
            cpu_of[name] = cpu
            print(f"| {name} | {cpu:.2f} | {wall:.2f} | {megabytes / cpu:.1f} |")
        with files[0].open("a", encoding="utf-8") as file:
            message = {"role": "user", "content": "one more"}
            file.write(json.dumps({"type": "user", "message": message}) + "\n")
        cpu, wall = timed(lambda: anyio.run(import_all, archive, index, files))
        print(f"| import again, one new line | {cpu:.2f} | {wall:.2f} | |")
        all_cpu = sum(cpu for name, cpu in cpu_of.items() if not name.startswith("floor"))
        loads = cpu_of["floor: json.loads of every line"]
        print(f"\n- total: {megabytes / all_cpu:.1f} MB per CPU second (goal: 3 with the index),")
        print(f"  {all_cpu / loads:.0f}x the CPU of reading the lines as JSON")


if __name__ == "__main__":
    main(sys.argv[1:])
