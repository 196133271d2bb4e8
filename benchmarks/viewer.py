"""Measure the pages of the viewer on a long session and on an archive of many sessions.

Run: python benchmarks/viewer.py [--messages 100000] [--sessions 10000] [--folder DIR]

The first archive has a session whose first compaction replaced nearly all of its messages, followed
by two ordinary compactions. The second archive has many short sessions. Each page is requested
twice, as browsers do, with the parts that a browser loads afterwards. A page that takes more than
half a second answers with its progress first. The table shows the CPU time of the first answer and
of the whole page, and the progress; the first request in a fresh process also reads the log.
"""

import argparse
import os
import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import httpx2
from context_compaction import CompactRequest, compact, open_archive, parse
from mcp_server_compaction.access.access_tokens import is_local_token
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.app import reduce_gc
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.viewer.app import Access, viewer_app

TOKEN = "t" * 43
WORDS = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8").split()
LONG = "long"
WINDOW = 60_000
LONG_PAGES = (
    f"/sessions/{LONG}",
    f"/sessions/{LONG}?at=MIDDLE",
    f"/sessions/{LONG}/messages/MIDDLE-PART",
    f"/sessions/{LONG}/branches",
    f"/sessions/{LONG}/compactions",
    f"/sessions/{LONG}/compactions/0",
    f"/sessions/{LONG}/compactions/0?part=losses",
    f"/sessions/{LONG}/compactions/last",
    f"/sessions/{LONG}/compactions/last?part=losses",
    f"/sessions/{LONG}/context",
    f"/sessions/{LONG}/context?part=counted",
    f"/sessions/{LONG}/files",
    f"/sessions/{LONG}/files?part=list",
    f"/sessions/{LONG}/export",
    f"/sessions/{LONG}/delete",
    f"/search?query=word&session_id={LONG}",
    "/storage",
    "/storage?part=sizes",
    "/storage/prune?days=1",
)
MANY_PAGES = (
    "/",
    "/?part=rows",
    "/?q=number+77",
    "/?sort=saved",
    "/search?query=number",
    "/storage",
    "/storage?part=sizes",
    "/storage/prune?days=1",
    "/sessions/session-5000",
    "/sessions/session-5000/delete",
)


def text(number: int, words: int) -> str:
    """Return a text of some words that differs from that of every other number."""
    first = number * 7 % len(WORDS)
    return f"number {number}: " + " ".join([*WORDS[first:], *WORDS[:first]][:words])


def long_list(count: int) -> list[dict[str, Any]]:
    """Return a message list with a call, its result and a remark in turn."""
    messages: list[dict[str, Any]] = []
    for number in range(count // 4):
        path = {"file_path": f"src/module_{number % 500}.py"}
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": path}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text(number, 60)}
        messages += [
            {"role": "user", "content": text(number, 12)},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": text(number, 20)},
        ]
    return messages


async def fill_long(folder: Path, count: int) -> None:
    """Archive and compact a long session: once as a whole, and twice after it has grown."""
    messages = long_list(count)
    head = count - count // 50
    async with open_archive(folder) as archive:
        await archive.append(LONG, parse(messages[:head], format="anthropic"), format="anthropic")
        request = CompactRequest(session_id=LONG, format="anthropic", context_window=WINDOW)
        result = await compact(messages[:head], request, archive=archive)
        step = (count - head) // 2
        for start in range(head, count, step):
            grown = [*result.messages, *messages[start : start + step]]
            result = await compact(grown, request, archive=archive)


async def fill_many(folder: Path, count: int) -> None:
    """Archive many short sessions."""
    async with open_archive(folder) as archive:

        async def add(numbers: Sequence[int]) -> None:
            for number in numbers:
                raws = [
                    {"role": "user", "content": text(number, 12)},
                    {"role": "assistant", "content": text(number, 40)},
                ]
                messages = parse(raws, format="anthropic")
                await archive.append(f"session-{number}", messages, format="anthropic")

        async with anyio.create_task_group() as tasks:
            for lane in range(8):
                tasks.start_soon(add, range(lane, count, 8))


@asynccontextmanager
async def viewer(folder: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run the viewer in this process and yield a client with an access token."""
    config = Config(archive_folder=folder, imports_sessions=False)
    archives = LazyArchive(config)
    app = viewer_app(config, Access(is_local_token(TOKEN), archives.get), archives)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app),
            base_url="http://127.0.0.1:8765",
            headers={"Authorization": f"Bearer {TOKEN}", "Accept": "text/html"},
            timeout=600,
        ) as client,
    ):
        yield client


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one page.

    Attributes:
        answer: CPU seconds until the first answer: the page, or its progress.
        whole: CPU seconds until the page.
        progress: The progress that was shown, or "".
        size: Size of the page in bytes.
    """

    answer: float
    whole: float
    progress: str
    size: int


async def measure(client: httpx2.AsyncClient, address: str) -> Timing:
    """Request a page as a browser does, until it is complete, and return its times."""
    start = time.process_time()
    reply = await client.get(address)
    answer = time.process_time() - start
    progress = ""
    while reply.status_code == HTTPStatus.ACCEPTED:
        match = re.search(r"[\d,]+ of [\d,]+ [a-zA-Z ]+", reply.text)
        progress = match[0] if match else progress
        reply = await client.get(address)
    reply.raise_for_status()
    return Timing(answer, time.process_time() - start, progress, len(reply.content))


async def print_table(folder: Path, pages: Sequence[str]) -> None:
    """Print a row for each page."""
    print("| page | first answer, whole page | again | progress | size |\n|---|---|---|---|---|")
    reduce_gc()  # as the command `view`
    async with viewer(folder) as client:
        for address in pages:
            first, again = [await measure(client, address) for _ in range(2)]
            shown = re.sub(r"\d{4,}", "N", address)
            print(
                f"| {shown} | {first.answer:.2f} s, {first.whole:.2f} s | {again.whole:.2f} s"
                f" | {first.progress} | {first.size / 1_024:.0f} KiB |",
                flush=True,
            )


async def run(messages: int, sessions: int, folder: Path) -> None:
    """Fill both archives if they do not exist yet, and print both tables."""
    middle = str(messages // 2)
    part = str(messages // 2 + 29)
    long_pages = [p.replace("MIDDLE", middle).replace("PART", part) for p in LONG_PAGES]
    for name, count, fill, pages in (
        (f"long-{messages}", messages, fill_long, long_pages),
        (f"many-{sessions}", sessions, fill_many, MANY_PAGES),
    ):
        if count and not (folder / name).exists():
            await fill(folder / name, count)
        if count:
            print(f"\n{name}\n")
            await print_table(folder / name, pages)


def main() -> None:
    """Read the arguments and run the measurement."""
    parser = argparse.ArgumentParser(description="Measure the pages of the viewer.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="Keep the archives here for the next run.")
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        os.environ["XDG_CACHE_HOME"] = f"{temporary}/cache"  # an index that has to catch up
        folder = arguments.folder or Path(temporary)
        anyio.run(run, arguments.messages, arguments.sessions, folder)


if __name__ == "__main__":
    main()
