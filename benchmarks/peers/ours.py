"""Time this library as the peers are timed, in its own process, and the floor.

run.py starts this script with the files of the list and of its growths. It prints JSON.
"""

import hashlib
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.tokens.vocabulary import load_o200k

from tests.support.plain_tiktoken import plain_o200k

ROUNDS = 5


async def timed(
    archive: LocalArchive, messages: list[Any], request: CompactRequest
) -> tuple[float, CompactResult]:
    """Return the CPU milliseconds of one call and its result."""
    before = time.process_time()
    result = await compact(messages, request, archive=archive)
    return (time.process_time() - before) * 1e3, result


async def measure_calls(
    archive: LocalArchive, messages: list[Any], turns: list[list[Any]], session_id: str
) -> dict[str, Any]:
    """Time calls below the trigger: the first one, repeated ones, and grown lists."""
    request = CompactRequest(format="anthropic", context_window=8_000_000, session_id=session_id)
    cold, result = await timed(archive, messages, request)
    again = [(await timed(archive, messages, request))[0] for _ in range(ROUNDS)]
    grown: list[float] = []
    for turn in turns:
        messages = [*messages, *turn]
        milliseconds, result = await timed(archive, messages, request)
        grown.append(milliseconds)
    return {"cold": cold, "again": again, "grown": grown, "left": len(result.messages)}


def measure_floor(data: bytes) -> float:
    """Return the CPU milliseconds of parsing, counting and hashing the list one time."""
    encoding = plain_o200k()
    before = time.process_time()
    for message in json.loads(data):
        text = json.dumps(message, ensure_ascii=False)
        encoding.encode(text, disallowed_special=())
        hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return (time.process_time() - before) * 1e3


async def main(data: bytes, turns: list[list[Any]]) -> None:
    """Print the figures as JSON."""
    messages: list[Any] = json.loads(data)
    load_o200k()
    floor = measure_floor(data)
    with TemporaryDirectory() as folder:
        async with open_archive(Path(folder), index_root=Path(folder, "index")) as archive:
            idle = await measure_calls(archive, messages, turns, "idle")
            request = CompactRequest(
                format="anthropic", context_window=200_000, session_id="full", target_tokens=60_000
            )
            result = await compact(messages, request, archive=archive)
            adopted = await measure_calls(archive, list(result.messages), turns, "full")
    del adopted["cold"]
    print(json.dumps({"idle": idle, "adopted": adopted, "floor": floor}))


anyio.run(main, Path(sys.argv[1]).read_bytes(), json.loads(Path(sys.argv[2]).read_bytes()))
