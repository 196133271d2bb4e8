"""Ours, timed as the peers are, in a process of its own; and the floor of the same bytes."""

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
WIDE = CompactRequest(format="anthropic", context_window=8_000_000, session_id="idle")


async def timed(
    archive: LocalArchive, messages: list[Any], request: CompactRequest
) -> tuple[float, CompactResult]:
    before = time.process_time()
    result = await compact(messages, request, archive=archive)
    return (time.process_time() - before) * 1e3, result


async def main(data: bytes, turns: list[list[Any]]) -> None:
    messages: list[Any] = json.loads(data)
    load_o200k()
    encoding = plain_o200k()
    before = time.process_time()
    for message in json.loads(data):
        text = json.dumps(message, ensure_ascii=False)
        encoding.encode(text, disallowed_special=())
        hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    floor = (time.process_time() - before) * 1e3
    with TemporaryDirectory() as folder:
        async with open_archive(Path(folder), index_root=Path(folder, "index")) as archive:
            cold, result = await timed(archive, messages, WIDE)
            again = [(await timed(archive, messages, WIDE))[0] for _ in range(ROUNDS)]
            grown: list[float] = []
            whole = messages
            for turn in turns:
                whole = [*whole, *turn]
                milliseconds, result = await timed(archive, whole, WIDE)
                grown.append(milliseconds)
            idle = {"cold": cold, "again": again, "grown": grown, "left": len(result.messages)}
            request = CompactRequest(
                format="anthropic", context_window=200_000, session_id="must", target_tokens=60_000
            )
            _, result = await timed(archive, messages, request)
            adopted = list(result.messages)
            request = CompactRequest(
                format="anthropic", context_window=4_000_000, session_id="must"
            )
            again = [(await timed(archive, adopted, request))[0] for _ in range(ROUNDS)]
            grown = []
            for turn in turns:
                adopted = [*adopted, *turn]
                milliseconds, result = await timed(archive, adopted, request)
                grown.append(milliseconds)
            after = {"again": again, "grown": grown, "left": len(result.messages)}
    print(json.dumps({"idle": idle, "adopted": after, "floor": floor}))


anyio.run(main, Path(sys.argv[1]).read_bytes(), json.loads(Path(sys.argv[2]).read_bytes()))
