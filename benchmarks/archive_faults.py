"""Faults and concurrency at size: many writers, kills, full disks, deletions, ranged reads.

Run: python benchmarks/archive_faults.py [concurrency kills full delete range]

Kills are `kill -9` at 200 random moments. A full disk and a full inode table are a small tmpfs,
which only root can mount; without it these two say so. Floors of the same run: for an append, as
many processes that only write and fdatasync the same bytes, each to a file of its own; for a
deletion, making the index anew; for a range, `pread` of the uncompressed file.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from context_compaction import formats
from context_compaction.archive import Query
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.errors import ArchiveError, ArchiveFullError
from context_compaction.messages.edits import make_blob

WRITERS = 8
APPENDS = 2_000
SEARCHERS = 2
SEARCH_PAUSE_SECONDS = 0.1  # far busier than an agent, without taking the writers' cores
KILLS = 200
OUTPUT_BYTES = 50_000_000
RANGE_BYTES = 4_096
DELETE_SESSIONS = 40
DELETE_MESSAGES = 500  # in each


def text_of(name: str, number: int) -> str:
    """About 1 KB, with a word of its own."""
    filler = " ".join(f"step{(number * 31 + count) % 977}" for count in range(130))
    return f"word{name}x{number} {filler}"


def message(name: str, number: int) -> Any:
    return formats.parse([{"role": "user", "content": text_of(name, number)}], format="anthropic")


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# Processes that this program starts


async def write(root: Path, session_id: str, name: str, count: int, *, tell: bool) -> None:
    """Append one message a call, each after the last one; print what each call took."""
    taken: list[float] = []
    head = ""
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        for number in range(count):
            start = time.perf_counter()
            result = await archive.append(
                session_id, message(name, number), format="anthropic", after=head
            )
            head = result.head
            taken.append(time.perf_counter() - start)
            if tell:
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()
    if not tell:
        sys.stdout.write(json.dumps(taken))


def write_bare(path: Path, count: int) -> None:
    """The floor of `write`: the same bytes, and nothing known of them."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    taken: list[float] = []
    for number in range(count):
        line = json.dumps({"role": "user", "content": text_of(path.name, number)}).encode() + b"\n"
        began = time.perf_counter()
        os.write(handle, line)
        os.fdatasync(handle)
        taken.append(time.perf_counter() - began)
    os.close(handle)
    sys.stdout.write(json.dumps(taken))


async def search_until_told(root: Path) -> None:
    """Search words of all writers until the file `stop` is there; print what each took."""
    taken: list[float] = []
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        while not await anyio.Path(root / "stop").exists():
            start = time.perf_counter()
            await archive.search(Query(f"step{len(taken) % 977}"))
            taken.append(time.perf_counter() - start)
            await anyio.sleep(SEARCH_PAUSE_SECONDS)
    sys.stdout.write(json.dumps(taken))


def fork_writers(root: Path) -> None:
    """For each `SESSION NAME` of the input, one after another, a process that writes until killed.

    A writer's first line is its process id, and `end` follows its last one.
    """
    for line in sys.stdin:
        session_id, name = line.split()
        process_id = os.fork()
        if process_id == 0:
            sys.stdout.write(f"{os.getpid()}\n")
            sys.stdout.flush()
            anyio.run(lambda s=session_id, n=name: write(root, s, n, 100_000, tell=True))
        os.waitpid(process_id, 0)
        sys.stdout.write("end\n")
        sys.stdout.flush()


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


# What is measured


def measure_concurrency(root: Path) -> None:
    """Half of the writers share one session; each of the others has its own."""
    bare = [start("bare", str(root / f"bare{n}"), str(APPENDS)) for n in range(WRITERS)]
    floor = [value for process in bare for value in json.loads(process.communicate()[0])]
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
    taken = [json.loads(output or b"[]") for output in outputs]
    lost, unfound = anyio.run(check_all, root, sessions)
    print(f"## {WRITERS} processes x {APPENDS:,} appends while {SEARCHERS} search\n")
    print(f"- processes that failed: {len(failed)}; messages lost: {lost}; not found: {unfound}")
    print(f"- {WRITERS * APPENDS / seconds:,.0f} acknowledged appends a second")
    half = WRITERS // 2
    for where, lists in (("one shared session", taken[:half]), ("own sessions", taken[half:])):
        values = [value * 1e3 for found in lists for value in found]
        middle, slow = percentile(values, 0.5), percentile(values, 0.99)
        print(
            f"- append to {where}: p50 {middle:.1f} ms, p99 {slow:.1f} ms, max {max(values):.0f} ms"
        )
    print("  (target: p99 <= 100 ms)")
    middle, slow = percentile(floor, 0.5) * 1e3, percentile(floor, 0.99) * 1e3
    print(f"- floor, {WRITERS} processes that only write and fdatasync: ", end="")
    print(f"p50 {middle:.1f} ms, p99 {slow:.1f} ms")
    found = [value for output in searches if output for value in json.loads(output)]
    print(f"- {len(found):,} searches meanwhile, p50 {percentile(found, 0.5) * 1e3:.0f} ms\n")


async def check_all(root: Path, sessions: Sequence[str]) -> tuple[int, int]:
    """How many messages are lost, and how many of a sample are not found."""
    lost = unfound = 0
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        for session_id in sorted(set(sessions)):
            stored = await archive.read_messages(session_id, 0, 10**9)
            words = {kept.raw["content"].split()[0] for kept in stored}
            names = [f"w{n}" for n, session in enumerate(sessions) if session == session_id]
            expected = [f"word{name}x{number}" for name in names for number in range(APPENDS)]
            lost += sum(word not in words for word in expected)
            sample = random.Random(5).sample(expected, 200)
            for word in sample:
                unfound += not (await archive.search(Query(word, session_id=session_id))).hits
    return lost, unfound


def measure_kills(root: Path) -> None:
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
        after = rng.randrange(1, 30)
        for _ in range(after):
            writers.stdout.readline()
        time.sleep(rng.random() * 0.003)  # somewhere within a call
        os.kill(process_id, signal.SIGKILL)
        while writers.stdout.readline() != b"end\n":
            after += 1
        acknowledged.append((session_id, name, after))
    writers.communicate()
    lost, torn, total = anyio.run(check_kills, root, acknowledged)
    print(f"## kill -9 at {KILLS} random points\n")
    print(f"- acknowledged: {total:,}; lost: {lost}; torn or damaged lines visible: {torn}\n")


async def check_kills(
    root: Path, acknowledged: Sequence[tuple[str, str, int]]
) -> tuple[int, int, int]:
    lost = 0
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        held: dict[str, set[str]] = {}
        for session_id in {entry[0] for entry in acknowledged}:
            stored = await archive.read_messages(session_id, 0, 10**9)
            held[session_id] = {kept.raw["content"] for kept in stored}
        for session_id, name, count in acknowledged:
            lost += sum(text_of(name, number) not in held[session_id] for number in range(count))
        problems = (await archive.health()).problems
    damaged = sum("checksum" in problem for problem in problems)
    return lost, damaged, sum(entry[2] for entry in acknowledged)


def measure_full(root: Path) -> None:
    print("## Full disk and full inode table (tmpfs)\n")
    for what, options in (("full disk", "size=2m"), ("full inode table", "nr_inodes=40")):
        place = root / what.replace(" ", "-")
        place.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=False
        )
        if mounted.returncode:
            print(f"- {what}: not measured, a tmpfs cannot be mounted here")
            continue
        try:
            anyio.run(fill, place, root, what)
        finally:
            subprocess.run(["umount", str(place)], check=True)
    print()


async def fill(place: Path, root: Path, what: str) -> None:
    """Write sessions until it fails, then free space and go on."""
    ballast = place / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    spare = [place / f"spare{count}" for count in range(12)]
    for path in spare:
        path.touch()
    kept: list[tuple[str, int]] = []
    async with open_archive(place / "archive", index_root=root / f"{what}-index") as archive:
        error = await fail(archive, kept)
        whole = 0
        for name, number in kept:
            stored = await archive.read_messages(name, 0, 10)
            whole += stored[-1].raw["content"] == text_of(name, number) * 20
        problems = [p for p in (await archive.health()).problems if not p.startswith("Note:")]
        ballast.unlink()
        for path in spare:
            path.unlink()
        await archive.append("again", message("again", 1), format="anthropic")
    print(
        f"- {what}: {type(error).__name__}; {whole} of {len(kept)} acknowledged calls whole; "
        f"problems: {problems or 'none'}; works again once there is room"
    )
    print(f"  message: {str(error).replace(str(place), '...')[:220]}")


async def fail(archive: LocalArchive, kept: list[tuple[str, int]]) -> ArchiveError:
    for number in range(10_000):
        name = f"f{number}"
        raw = {"role": "user", "content": text_of(name, number) * 20}
        try:
            messages = formats.parse([raw], format="anthropic")
            await archive.append(name, messages, format="anthropic")
        except ArchiveFullError as error:
            return error
        kept.append((name, number))
    raise AssertionError("it never became full")


def measure_delete(root: Path) -> None:
    anyio.run(delete_one, root)


async def delete_one(root: Path) -> None:
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        for session in range(DELETE_SESSIONS):
            raws = [
                {"role": "user", "content": text_of(f"s{session}", number)}
                for number in range(DELETE_MESSAGES)
            ]
            messages = formats.parse(raws, format="anthropic")
            await archive.append(f"s{session}", messages, format="anthropic")
        began = time.process_time()
        await archive.search(Query("step1"))
        index_seconds = time.process_time() - began
        began = time.process_time()
        await archive.delete([f"s{DELETE_SESSIONS // 2}"])
        await archive.search(Query("step1"))
        delete_seconds = time.process_time() - began
    print(f"## Deleting one session of {DELETE_SESSIONS}, {DELETE_MESSAGES} messages each\n")
    print(
        f"- {delete_seconds:.2f} s of CPU with the search after it; making the index anew: "
        f"{index_seconds:.2f} s, {index_seconds / delete_seconds:.1f}x\n"
    )


def measure_range(root: Path) -> None:
    anyio.run(read_ranges, root)


async def read_ranges(root: Path) -> None:
    line = "2026-11-21 12:00:00 INFO worker {:07d} finished step {} of the build in {} ms\n"
    text = ""
    parts: list[str] = []
    size = 0
    for number in range(10**7):
        parts.append(line.format(number, number * 7919 % 1000, number * 104729 % 5000))
        size += len(parts[-1])
        if size >= OUTPUT_BYTES:
            break
    text = "".join(parts)
    plain = root / "plain"
    plain.write_text(text, encoding="ascii")
    blob = make_blob(text)
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        began = time.process_time()
        await archive.commit("s", blobs=[blob])
        put_seconds = time.process_time() - began
        info = await archive.output_info(blob.output_id)
        rng = random.Random(3)
        offsets = [rng.randrange(size // 4, size * 3 // 4) for _ in range(300)]
        began = time.process_time()
        by_byte = [await timed_range(archive, blob.output_id, at, text) for at in offsets]
        cpu_ms = (time.process_time() - began) / len(offsets) * 1e3
        by_line: list[float] = []
        for _ in range(300):
            first = rng.randrange(info.line_count // 4, info.line_count * 3 // 4)
            began = time.perf_counter()
            part = await archive.read_output_lines(blob.output_id, start_line=first, line_count=50)
            by_line.append(time.perf_counter() - began)
            assert part.data.decode() == "".join(parts[first - 1 : first + 49])
    stored = sum(path.stat().st_size for path in (root / "archive").glob("blobs/*/*.zst"))
    floor = statistics.median(timed_plain(plain, at) for at in offsets)
    print(f"## A {RANGE_BYTES // 1024} KB range in the middle of a {size / 1e6:.0f} MB output\n")
    for name, taken in (("4 KB by byte", by_byte), ("50 lines", by_line)):
        print(
            f"- {name}: p50 {statistics.median(taken) * 1e3:.2f} ms, p99 "
            f"{percentile(taken, 0.99) * 1e3:.2f} ms (target: 2 ms), "
            f"{statistics.median(taken) / floor:.0f}x pread of the plain file "
            f"({floor * 1e3:.3f} ms)"
        )
    print(f"- CPU of a read by byte: {cpu_ms:.2f} ms")
    speed = size / 1e6 / put_seconds
    print(f"- stored in {stored / size:.2f} of its size; written at {speed:.0f} MB a CPU second\n")


async def timed_range(archive: LocalArchive, output_id: str, at: int, text: str) -> float:
    began = time.perf_counter()
    part = await archive.read_output(output_id, start_byte=at, limit_bytes=RANGE_BYTES)
    taken = time.perf_counter() - began
    assert part.data.decode() == text[at : at + RANGE_BYTES]
    return taken


def timed_plain(path: Path, at: int) -> float:
    began = time.perf_counter()
    handle = os.open(path, os.O_RDONLY)
    os.pread(handle, RANGE_BYTES, at)
    os.close(handle)
    return time.perf_counter() - began


MEASURES = {
    "concurrency": measure_concurrency,
    "kills": measure_kills,
    "full": measure_full,
    "delete": measure_delete,
    "range": measure_range,
}


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["write", root, session_id, name, count]:
            anyio.run(lambda: write(Path(root), session_id, name, int(count), tell=False))
        case ["fork", root]:
            fork_writers(Path(root))
        case ["bare", path, count]:
            write_bare(Path(path), int(count))
        case ["search", root]:
            anyio.run(search_until_told, Path(root))
        case names:
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
            for name in names or MEASURES:
                with TemporaryDirectory(prefix="archive-faults-") as folder:
                    MEASURES[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
