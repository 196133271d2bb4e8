"""Measure size, speed and latency of the search index, next to a plain FTS5 table and a scan.

Run: python benchmarks/search.py [--messages 100000] [--median-chars 300] [--folder EMPTY_FOLDER]

The texts are slices of Python's own library, logs with identifiers, paths and error codes, a little
Chinese, and rare planted names: about 0.8 KB a message, median 0.3 KB. Times are CPU of the whole
process. The plain table has these texts and ranks with its own bm25.
"""

import argparse
import math
import random
import sqlite3
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.archive.local.index import IndexRows, SearchIndex
from context_compaction.archive.search.filters import Check, RowsOf, filter_of
from context_compaction.archive.search.patterns import scan
from context_compaction.archive.search.words import words_page
from context_compaction.archive.values import Query, SearchPage

T = TypeVar("T")

SESSION_MESSAGES = 500
APPEND_MESSAGES = 100
ROUNDS = 20
CHINESE = (
    "压缩上下文之前先归档全部消息。",
    "工具结果太大时保存到磁盘。",
    "摘要必须保留用户的约束。",
    "模型可以搜索历史记录。",
    "索引损坏时自动重建。",
    "数据库连接被拒绝。",
)
COMMON = ("error", "return", "file", "message", "import")
RARE_COUNT = 40


def texts(count: int, median_chars: int, seed: int = 5) -> Iterator[str]:
    """Yield `count` texts, equal in every run of one Python installation."""
    dice = random.Random(seed)
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = [
        path.read_text(encoding="utf-8", errors="replace") for path in sorted(library.glob("*.py"))
    ]
    rare_names = {
        number * count // RARE_COUNT + count // 97: number for number in range(RARE_COUNT)
    }
    for index in range(count):
        kind = dice.random()
        size = min(int(dice.lognormvariate(math.log(median_chars), 1.5)), 100_000)
        if kind < 0.02:
            text = "".join(dice.choices(CHINESE, k=max(size // 15, 1)))
        elif kind < 0.3:
            text = "\n".join(log_line(dice) for _ in range(max(size // 120, 1)))
        else:
            source = dice.choice(sources)
            start = dice.randrange(max(len(source) - size, 1))
            text = source[start : start + size]
        if index in rare_names:
            number = rare_names[index]
            text += f"\n{rare_path(number)} raises {rare_name(number)}"
        yield text


def log_line(dice: random.Random) -> str:
    """Return a line of a log."""
    level = dice.choice(("INFO", "INFO", "WARNING", "ERROR"))
    return (
        f"2026-11-{dice.randrange(1, 29):02} {dice.randrange(24):02}:{dice.randrange(60):02} "
        f"{level} "
        f"worker-{dice.randrange(64)} request {dice.getrandbits(64):016x} to /srv/app/"
        f"{dice.choice(COMMON)}_{dice.randrange(400)}.py:{dice.randrange(900)} "
        f"{dice.choice(('connection refused', 'timeout after 30 s', 'done', 'retry scheduled'))}"
    )


def rare_name(number: int) -> str:
    return f"ZXPlant{number}QuirkError"


def rare_path(number: int) -> str:
    return f"src/zeta/bar_baz{number}.py:{number}"


QUERIES: dict[str, list[Query]] = {
    "rare path:line": [Query(rare_path(number)) for number in range(RARE_COUNT)],
    "rare name": [Query(rare_name(number)) for number in range(RARE_COUNT)],
    "absent word": [Query(f"quuxplugh{number}") for number in range(RARE_COUNT)],
    "common word": [Query(word) for word in COMMON],
    "common word, newest first": [Query(word, order="recent") for word in COMMON],
    "three words": [
        Query("connection refused worker"),
        Query("parse the header message"),
        Query("timeout after retry"),
    ],
    "question": [
        Query("how does the parser find the encoding of a file?"),
        Query("why was the connection refused by the worker?"),
    ],
    "phrase": [Query("connection refused", kind="phrase"), Query("import sys", kind="phrase")],
    "prefix": [Query("authent*"), Query("deseri*"), Query("conne*")],
    "Chinese word": [Query("压缩"), Query("摘要"), Query("数据库")],
    "in a session": [Query("error", session_id="s3"), Query("import", session_id="s7")],
    "role and day": [Query("error", role="user", since_seconds=0.0, until_seconds=4e9)],
    "regex with a word": [Query(r"raises ZXPlant\d+QuirkError", kind="regex")],
}


async def fill(archive: LocalArchive, count: int, median_chars: int) -> tuple[int, float]:
    """Append `count` messages; return the bytes of their texts and the CPU seconds used."""
    remaining_texts = texts(count, median_chars)
    size_bytes = 0
    seconds = 0.0
    for number in range(-(-count // SESSION_MESSAGES)):
        raws: list[dict[str, Any]] = []
        for text in (
            text for _, text in zip(range(SESSION_MESSAGES), remaining_texts, strict=False)
        ):
            size_bytes += len(text.encode("utf-8", "replace"))
            raws.append({"role": ("user", "assistant")[len(raws) % 2], "content": text})
        messages = formats.parse(raws, format="anthropic")
        before = time.process_time()
        for stop in range(APPEND_MESSAGES, len(messages) + APPEND_MESSAGES, APPEND_MESSAGES):
            await archive.append(f"s{number}", messages[:stop], format="anthropic")
        seconds += time.process_time() - before
    return size_bytes, seconds


def plain_table(path: Path, count: int, median_chars: int) -> sqlite3.Connection:
    """Create the FTS5 table of the peer."""
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (text, tokenize='porter unicode61')")
    remaining_texts = texts(count, median_chars)
    while batch := [(text,) for _, text in zip(range(5000), remaining_texts, strict=False)]:
        with connection:
            connection.executemany("INSERT INTO t VALUES (?)", batch)
    return connection


def ask_plain(connection: sqlite3.Connection, query: Query) -> int:
    """Search the plain table; return the number of hits."""
    words = "".join(letter if letter.isalnum() else " " for letter in query.text).split()
    star = "*" if query.text.endswith("*") else ""
    is_phrase = query.kind == "phrase" or ":" in query.text
    match = (
        f'"{" ".join(words)}"' if is_phrase else " OR ".join(f'"{word}"{star}' for word in words)
    )
    order = "rowid DESC" if query.order == "recent" else "bm25(t)"
    return len(
        connection.execute(
            f"SELECT rowid, snippet(t, 0, '', '', '...', 40) FROM t WHERE t MATCH ?"
            f" ORDER BY {order} LIMIT 10",
            (match,),
        ).fetchall()
    )


def scan_lines(root: Path, query: Query) -> int:
    """Count a text in every byte of the log: the floor of a search without an index."""
    text = query.text.encode()
    return sum(path.read_bytes().count(text) for path in root.glob("sessions/*/*/*.jsonl"))


def cpu_ms(work: Callable[[], Any]) -> float:
    """Return the CPU milliseconds of `work`."""
    before = time.process_time()
    work()
    return (time.process_time() - before) * 1000


def percentiles(times: Sequence[float]) -> str:
    """Format p50 / p95."""
    ordered = sorted(times)
    return f"{statistics.median(ordered):.1f} / {ordered[int(0.95 * (len(ordered) - 1))]:.1f}"


async def measure(folder: Path, count: int, median_chars: int) -> None:
    """Print all figures."""
    async with open_archive(folder / "archive", index_root=folder / "index") as archive:
        raw_bytes, appended = await fill(archive, count, median_chars)
    index = SearchIndex(folder / "archive", folder / "index")
    with closing(index):
        before = time.process_time()
        page_of(index, Query("warm"))
        indexed = time.process_time() - before
    megabytes = raw_bytes / 1e6
    before = time.process_time()
    plain = plain_table(folder / "plain.db", count, median_chars)
    plain_seconds = time.process_time() - before
    print(f"## {count} messages, {megabytes:.0f} MB of text\n")
    print("| | CPU MB/s | size / text |\n|---|---|---|")
    print(f"| append (log, durable) | {megabytes / appended:.1f} | |")
    print(f"| index | {megabytes / indexed:.1f} | {size_of(folder / 'index') / raw_bytes:.2f} |")
    print(f"| append and index | {megabytes / (appended + indexed):.1f} | |")
    plain_size = size_of(folder, "plain.db") / raw_bytes
    print(f"| plain FTS5, text inside | {megabytes / plain_seconds:.1f} | {plain_size:.2f} |")
    with closing(SearchIndex(folder / "archive", folder / "index")) as index, closing(plain):
        page_of(index, Query("warm"))
        again = [cpu_ms(lambda: index.run(lambda _: None)) for _ in range(20)]
        print(f"\nCatching up with nothing new: {percentiles(again)} ms (p50 / p95)\n")
        # A search for a pattern starts an event loop, which needs another thread.
        await anyio.to_thread.run_sync(ask_all, index, plain, folder)


def ask_all(index: SearchIndex, plain: sqlite3.Connection, folder: Path) -> None:
    """Print the latencies of all queries."""
    print("| CPU ms, p50 / p95, 10 hits | search_transcript | plain FTS5 | queries with hits |")
    print("|---|---|---|---|")
    for name, queries in QUERIES.items():
        own_ms: list[float] = []
        plain_ms: list[float] = []
        pages: list[SearchPage] = []
        counts: list[int] = []
        for round_number in range(max(1, ROUNDS // len(queries))):
            for query in queries:
                own_ms.append(cpu_ms(partial(append_page, pages, index, query)))
                if query.kind != "regex" and round_number < 2:
                    plain_ms.append(cpu_ms(partial(append_count, counts, plain, query)))
        shares = f"{sum(bool(page.hits) for page in pages) / len(pages):.0%}"
        shares += f", {sum(map(bool, counts)) / len(counts):.0%}" if counts else ""
        plain_cell = percentiles(plain_ms) if plain_ms else ""
        print(f"| {name} | {percentiles(own_ms)} | {plain_cell} | {shares} |")
    scan_ms = cpu_ms(partial(scan_lines, folder / "archive", Query(rare_name(3))))
    print(f"\nLinear scan of the log's bytes for one name: {scan_ms:.0f} ms")


def page_of(index: SearchIndex, query: Query) -> SearchPage:
    """Return the first page of hits."""
    allowed = filter_of(query)

    def page(connection: sqlite3.Connection) -> SearchPage:
        rows_of = partial(IndexRows, index, connection)
        return words_page(query, allowed, rows_of, no_check)

    async def on_rows(work: Callable[[RowsOf], T], check: Check) -> T:  # noqa: ARG001 - no limit
        return index.run(lambda connection: work(partial(IndexRows, index, connection)))

    if query.kind != "regex":
        return index.run(page)
    return anyio.run(partial(scan, query, allowed, on_rows))


def no_check() -> None:
    """Do nothing: these searches have no time limit."""


def append_page(pages: list[SearchPage], index: SearchIndex, query: Query) -> None:
    pages.append(page_of(index, query))


def append_count(counts: list[int], plain: sqlite3.Connection, query: Query) -> None:
    counts.append(ask_plain(plain, query))


def size_of(folder: Path, pattern: str = "**/*") -> int:
    """Return the bytes of the files in `folder`."""
    return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())


def main() -> None:
    """Measure in a temporary folder, or in a given one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="at least 4,000")
    parser.add_argument("--median-chars", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    sizes = (arguments.messages, arguments.median_chars)
    if arguments.folder is None:
        with TemporaryDirectory() as temporary:
            anyio.run(measure, Path(temporary), *sizes)
    else:
        anyio.run(measure, arguments.folder, *sizes)


if __name__ == "__main__":
    main()
