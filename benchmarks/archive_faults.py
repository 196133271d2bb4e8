"""Check that the local archive loses nothing under many writers, kills and a full disk.

Run: python benchmarks/archive_faults.py [concurrency kills full]

- concurrency: 8 processes append while 2 search. The floor is as many processes that only write
  and fdatasync these bytes, each to its own file.
- kills: `kill -9` at 200 random moments.
- full: a full disk and a full inode table, on a small tmpfs. Only root can mount it.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from context_compaction import formats
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.archive.values import Query
from context_compaction.errors import ArchiveError, ArchiveFullError

WRITERS = 8
APPENDS = 2_000
SEARCHERS = 2
SEARCH_PAUSE_SECONDS = 0.1  # leaves the cores to the writers
KILLS = 200


def text_of(name: str, number: int) -> str:
    """Return about 1 KB of text with a unique word."""
    filler = " ".join(f"step{(number * 31 + count) % 977}" for count in range(130))
    return f"word{name}x{number} {filler}"


def message(name: str, number: int) -> Any:
    """Return a list of one user message."""
    return formats.parse([{"role": "user", "content": text_of(name, number)}], format="anthropic")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values are."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def write(root: Path, session_id: str, name: str, count: int, *, acknowledge: bool) -> None:
    """Append `count` messages, one in each call.

    Print the number of each acknowledged message, or else the seconds of all calls at the end.
    """
    seconds: list[float] = []
    head = ""
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        for number in range(count):
            began = time.perf_counter()
            result = await archive.append(
                session_id, message(name, number), format="anthropic", after=head
            )
            head = result.head
            seconds.append(time.perf_counter() - began)
            if acknowledge:
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()
    if not acknowledge:
        sys.stdout.write(json.dumps(seconds))


def write_without_archive(path: Path, count: int) -> None:
    """Write and sync the bytes of `write`; print the seconds of each write."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    seconds: list[float] = []
    for number in range(count):
        line = json.dumps({"role": "user", "content": text_of(path.name, number)}).encode() + b"\n"
        began = time.perf_counter()
        os.write(handle, line)
        os.fdatasync(handle)
        seconds.append(time.perf_counter() - began)
    os.close(handle)
    sys.stdout.write(json.dumps(seconds))


async def search_until_stopped(root: Path) -> None:
    """Search words of all writers until the file `stop` exists; print the seconds of each."""
    seconds: list[float] = []
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        while not await anyio.Path(root / "stop").exists():
            began = time.perf_counter()
            await archive.search(Query(f"step{len(seconds) % 977}"))
            seconds.append(time.perf_counter() - began)
            await anyio.sleep(SEARCH_PAUSE_SECONDS)
    sys.stdout.write(json.dumps(seconds))


def fork_writers(root: Path) -> None:
    """Start a writer for each line `SESSION NAME` of standard input, after the last one has ended.

    A writer first prints its process ID. `end` follows its last line.
    """
    for line in sys.stdin:
        session_id, name = line.split()
        process_id = os.fork()
        if process_id == 0:
            sys.stdout.write(f"{os.getpid()}\n")
            sys.stdout.flush()
            anyio.run(lambda s=session_id, n=name: write(root, s, n, 100_000, acknowledge=True))
        os.waitpid(process_id, 0)
        sys.stdout.write("end\n")
        sys.stdout.flush()


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start this program as a subprocess."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def measure_concurrency(root: Path) -> None:
    """Let half of the writers share one session and each other writer have its own."""
    reference = [start("bare", str(root / f"bare{n}"), str(APPENDS)) for n in range(WRITERS)]
    floor = [value for process in reference for value in json.loads(process.communicate()[0])]
    began = time.perf_counter()
    searchers = [start("search", str(root)) for _ in range(SEARCHERS)]
    sessions = ["shared" if n < WRITERS // 2 else f"own{n}" for n in range(WRITERS)]
    writers = [
        start("write", str(root), session, f"w{n}", str(APPENDS))
        for n, session in enumerate(sessions)
    ]
    outputs = [process.communicate()[0] for process in writers]
    seconds = time.perf_counter() - began
    (root / "stop").touch()
    searches = [process.communicate()[0] for process in searchers]
    failed = [process for process in (*writers, *searchers) if process.returncode]
    seconds_by_writer = [json.loads(output or b"[]") for output in outputs]
    missing, not_found = anyio.run(check_all, root, sessions)
    print(f"## {WRITERS} processes x {APPENDS:,} appends while {SEARCHERS} search\n")
    print(
        f"- processes that failed: {len(failed)}; messages lost: {missing}; not found: {not_found}"
    )
    print(f"- {WRITERS * APPENDS / seconds:,.0f} acknowledged appends a second")
    half = WRITERS // 2
    for name, writers_seconds in (
        ("one shared session", seconds_by_writer[:half]),
        ("own sessions", seconds_by_writer[half:]),
    ):
        values = [value * 1e3 for seconds in writers_seconds for value in seconds]
        middle, slow = percentile(values, 0.5), percentile(values, 0.99)
        print(
            f"- append to {name}: p50 {middle:.1f} ms, p99 {slow:.1f} ms, max {max(values):.0f} ms"
        )
    print("  (target: p99 <= 100 ms)")
    middle, slow = percentile(floor, 0.5) * 1e3, percentile(floor, 0.99) * 1e3
    print(f"- floor, {WRITERS} processes that only write and fdatasync: ", end="")
    print(f"p50 {middle:.1f} ms, p99 {slow:.1f} ms")
    searched = [value for output in searches if output for value in json.loads(output)]
    print(f"- {len(searched):,} searches meanwhile, p50 {percentile(searched, 0.5) * 1e3:.0f} ms\n")


async def check_all(root: Path, sessions: Sequence[str]) -> tuple[int, int]:
    """Return how many messages are lost, and how many of a sample no search finds."""
    missing = not_found = 0
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        for session_id in sorted(set(sessions)):
            stored = await archive.read_messages(session_id, 0, 10**9)
            words = {message.raw["content"].split()[0] for message in stored}
            names = [f"w{n}" for n, session in enumerate(sessions) if session == session_id]
            expected = [f"word{name}x{number}" for name in names for number in range(APPENDS)]
            missing += sum(word not in words for word in expected)
            sample = random.Random(5).sample(expected, 200)
            for word in sample:
                not_found += not (await archive.search(Query(word, session_id=session_id))).hits
    return missing, not_found


def measure_kills(root: Path) -> None:
    """Kill writers at random moments and look for their acknowledged messages."""
    rng = random.Random(11)
    acknowledged: list[tuple[str, str, int]] = []
    writers = start("fork", str(root))
    assert writers.stdin is not None
    assert writers.stdout is not None
    for count in range(KILLS):
        session_id, name = f"s{count % 5}", f"k{count}"
        writers.stdin.write(f"{session_id} {name}\n".encode())
        writers.stdin.flush()
        process_id = int(writers.stdout.readline())
        written = rng.randrange(1, 30)
        for _ in range(written):
            writers.stdout.readline()
        time.sleep(rng.random() * 0.003)  # to a random moment within a call
        os.kill(process_id, signal.SIGKILL)
        while writers.stdout.readline() != b"end\n":
            written += 1
        acknowledged.append((session_id, name, written))
    writers.communicate()
    missing, damaged, total = anyio.run(check_kills, root, acknowledged)
    print(f"## kill -9 at {KILLS} random points\n")
    print(f"- acknowledged: {total:,}; lost: {missing}; torn or damaged lines: {damaged}\n")


async def check_kills(
    root: Path, acknowledged: Sequence[tuple[str, str, int]]
) -> tuple[int, int, int]:
    """Return the numbers of lost messages, damaged lines and acknowledged messages."""
    missing = 0
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        contents: dict[str, set[str]] = {}
        for session_id in {entry[0] for entry in acknowledged}:
            stored = await archive.read_messages(session_id, 0, 10**9)
            contents[session_id] = {message.raw["content"] for message in stored}
        for session_id, name, count in acknowledged:
            missing += sum(
                text_of(name, number) not in contents[session_id] for number in range(count)
            )
        problems = (await archive.health()).problems
    damaged = sum("checksum" in problem for problem in problems)
    return missing, damaged, sum(entry[2] for entry in acknowledged)


def measure_full(root: Path) -> None:
    """Fill a small file system, first its bytes, then its inodes."""
    print("## Full disk and full inode table (tmpfs)\n")
    for name, options in (("full disk", "size=2m"), ("full inode table", "nr_inodes=40")):
        folder = root / name.replace(" ", "-")
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False
        )
        if mounted.returncode:
            print(f"- {name}: not measured, because a tmpfs cannot be mounted here")
            continue
        try:
            anyio.run(fill, folder, root, name)
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    print()


async def fill(folder: Path, root: Path, name: str) -> None:
    """Append until the file system is full, then free space and append again."""
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    spare = [folder / f"spare{count}" for count in range(12)]
    for path in spare:
        path.touch()
    acknowledged: list[tuple[str, int]] = []
    async with open_archive(folder / "archive", index_root=root / f"{name}-index") as archive:
        error = await append_until_full(archive, acknowledged)
        complete = 0
        for session_id, number in acknowledged:
            stored = await archive.read_messages(session_id, 0, 10)
            complete += stored[-1].raw["content"] == text_of(session_id, number) * 20
        problems = [p for p in (await archive.health()).problems if not p.startswith("Note:")]
        ballast.unlink()
        for path in spare:
            path.unlink()
        await archive.append("again", message("again", 1), format="anthropic")
    print(
        f"- {name}: {type(error).__name__}; {complete} of {len(acknowledged)} acknowledged calls "
        f"complete; problems: {problems or 'none'}; works again with free space"
    )
    print(f"  message: {str(error).replace(str(folder), '...')[:220]}")


async def append_until_full(
    archive: LocalArchive, acknowledged: list[tuple[str, int]]
) -> ArchiveError:
    """Append sessions until one fails; return the error and fill `acknowledged`."""
    for number in range(10_000):
        session_id = f"f{number}"
        raw = {"role": "user", "content": text_of(session_id, number) * 20}
        try:
            messages = formats.parse([raw], format="anthropic")
            await archive.append(session_id, messages, format="anthropic")
        except ArchiveFullError as error:
            return error
        acknowledged.append((session_id, number))
    raise AssertionError("The file system never became full.")


MEASURES = {
    "concurrency": measure_concurrency,
    "kills": measure_kills,
    "full": measure_full,
}


def main(arguments: Sequence[str]) -> None:
    """Run the named measurements, or one of the subprocesses."""
    match arguments:
        case ["write", root, session_id, name, count]:
            anyio.run(lambda: write(Path(root), session_id, name, int(count), acknowledge=False))
        case ["fork", root]:
            fork_writers(Path(root))
        case ["bare", path, count]:
            write_without_archive(Path(path), int(count))
        case ["search", root]:
            anyio.run(search_until_stopped, Path(root))
        case names:
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
            for name in names or MEASURES:
                with TemporaryDirectory(prefix="archive-faults-") as folder:
                    MEASURES[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
