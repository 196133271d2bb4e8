"""Measure the CPU time of one call with all of its stages, next to the floor.

Run: python benchmarks/cost.py [--sizes 200000 1000000] [--memory 5000000] [--bare]

The floor is the work that no program can avoid: read the list from JSON, count its text one time
with tiktoken, and hash its bytes one time. It is measured with the lists of the cold calls, in turn
with these calls, because lists of equal size differ by a fifth in their tokens and the speed of
a machine changes. It runs in a worker thread as the calls do, because tiktoken is faster in the
first thread of a process. Every list is decoded from JSON before its call. A turn has 14 messages
and about 6,000 tokens. Figures are medians of `ROUNDS`.

The garbage collector is set as in our servers, also for the floor; `--bare` keeps Python's setting.
`--memory` prints the peak memory of a list of that many tokens instead.
"""

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.tokens.vocabulary import load_o200k

from tests.support.json_types import is_list, is_object
from tests.support.plain_tiktoken import plain_o200k
from tests.support.script import TINY_PNG
from tests.support.synthetic import synthetic_session

SIZES = (200_000, 1_000_000)
ROUNDS = 5
COMPACTION_NEW, COMPACTION_KNOWN = "a compaction of a new list", "a compaction of a known list"
NEW = "a new list, nothing to do"
RATIO = "a new list / its floor"
TURN_STEPS = 6  # pairs of a tool call and its result in a turn
STEP_CHARS = 2_300
# The list stays below the trigger in all calls with this request.
WIDE = CompactRequest(format="anthropic", context_window=40_000_000, session_id="bench")
Json = dict[str, Any]


async def cpu_ms(work: Callable[[], Awaitable[Any]]) -> float:
    """Return the CPU milliseconds of the whole process while `work` runs."""
    gc.collect()
    before = time.process_time()
    await work()
    return (time.process_time() - before) * 1000


def decoded(payload: list[Json]) -> list[Json]:
    """Return a copy of the list, as a server decodes a new one for each call."""
    copy: list[Json] = json.loads(json.dumps(payload))
    return copy


def turn(number: int) -> list[Json]:
    """Return 14 messages with texts that no other turn has."""
    messages: list[Json] = [{"role": "user", "content": f"Turn {number}: read the next file."}]
    for step in range(TURN_STEPS):
        id_ = f"turn_{number}_{step}"
        text = "\n".join(f"{number}.{step}.{n} def f{n}(value):" for n in range(STEP_CHARS // 24))
        call = {"type": "tool_use", "id": id_, "name": "Read", "input": {"file_path": f"{id_}.py"}}
        result = {"type": "tool_result", "tool_use_id": id_, "content": text}
        text_block = {"type": "text", "text": "I read it."}
        messages.append({"role": "assistant", "content": [text_block, call]})
        messages.append({"role": "user", "content": [result]})
    return [*messages, {"role": "assistant", "content": f"Done with turn {number}."}]


def floor(data: str) -> int:
    """Read, count and hash a list one time; return its tokens."""
    payload = json.loads(data)
    blake2b(data.encode()).digest()
    encoding = plain_o200k()
    return sum(len(encoding.encode(text, disallowed_special=())) for text in _texts(payload))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value[first : first + 100_000] for first in range(0, len(value), 100_000)]
    if is_object(value):
        return [text for item in value.values() for text in _texts(item)]
    items = value if is_list(value) else []
    return [text for item in items for text in _texts(item)]


async def measure(root: Path, tokens: int) -> dict[str, float]:
    """Return all figures of one size."""
    payload = synthetic_session(tokens, seed=7)
    size_mb = len(_as_json(payload)) / 1e6
    row: dict[str, float] = {"messages": len(payload), "MB of JSON": size_mb}
    row["tiktoken"] = await median(lambda n: _in_thread(partial(_count, new_list(tokens, n))))
    turn_json = _as_json(turn(0))
    row["tokens of a turn"] = floor(turn_json)
    row["floor of a turn"] = await median(lambda _: _in_thread(lambda: floor(turn_json)))
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        await warm_up(archive)
        floors: list[float] = []
        calls: list[float] = []
        for n in range(ROUNDS):
            messages = new_list(tokens, ROUNDS + n)
            floors.append(await cpu_ms(_in_thread(partial(floor, _as_json(messages)))))
            request = replace(WIDE, session_id=f"cold-{n}")
            calls.append(await cpu_ms(_call(archive, messages, request)))
        row["floor"] = statistics.median(floors)
        row[NEW] = statistics.median(calls)
        row[RATIO] = statistics.median([a / b for a, b in zip(calls, floors, strict=True)])
        await compact(decoded(payload), WIDE, archive=archive)
        row["same list again"] = await median(lambda _: _call(archive, payload))
        lists = [payload]
        for number in range(ROUNDS):
            lists.append([*lists[-1], *turn(number)])
        row["list grown by a turn"] = await median(lambda n: _call(archive, lists[n + 1]))
        row["new messages alone"] = await median(lambda n: _append(archive, turn(100 + n)))
    row["after a restart"] = measure_restarted(root, payload)
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        small = replace(WIDE, context_window=tokens, session_id="small")
        first = await compact(decoded(payload), small, archive=archive)
        row["whole list right after its compaction"] = await cpu_ms(_call(archive, payload, small))
        row["whole list again"] = await median(lambda _: _call(archive, payload, small))
        again = await compact(decoded(payload), small, archive=archive)
        assert json.dumps(again.messages) == json.dumps(first.messages)

        row[COMPACTION_NEW] = await median(
            lambda n: _call(archive, new_list(tokens, 3 * ROUNDS + n), _in_session(small, n))
        )
        for n in range(ROUNDS):
            await compact(payload, _in_session(WIDE, ROUNDS + n), archive=archive)
        row[COMPACTION_KNOWN] = await median(
            lambda n: _call(archive, payload, _in_session(small, ROUNDS + n))
        )
    return row


async def warm_up(archive: LocalArchive) -> None:
    """Load everything that a process loads one time, by a call of another session with an image."""
    source = {"type": "base64", "media_type": "image/png", "data": TINY_PNG}
    with_image = {"role": "user", "content": [{"type": "image", "source": source}]}
    other = replace(WIDE, session_id="other")
    await compact([*synthetic_session(5_000, seed=9), with_image], other, archive=archive)


def _in_session(request: CompactRequest, session: int) -> CompactRequest:
    return replace(request, session_id=f"compacted-{session}")


def new_list(tokens: int, number: int) -> list[Json]:
    """Return a list that differs from those of all other numbers."""
    return synthetic_session(tokens, seed=100 + number)


def _as_json(payload: list[Json]) -> str:
    return json.dumps(payload, ensure_ascii=False)


def _count(payload: list[Json]) -> None:
    encoding = plain_o200k()
    for text in _texts(payload):
        encoding.encode(text, disallowed_special=())


def _call(
    archive: LocalArchive, payload: list[Json], request: CompactRequest = WIDE
) -> Callable[[], Awaitable[Any]]:
    return partial(compact, decoded(payload), request, archive=archive)


def _append(archive: LocalArchive, messages: list[Json]) -> Callable[[], Awaitable[Any]]:
    async def run() -> CompactResult:
        _, context = await archive.context("bench")
        return await compact([*context, *messages], WIDE, archive=archive)

    return run


async def median(work: Callable[[int], Callable[[], Awaitable[Any]]]) -> float:
    """Return the median CPU milliseconds of `ROUNDS` runs."""
    return statistics.median([await cpu_ms(work(n)) for n in range(ROUNDS)])


def _in_thread(work: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    return partial(to_thread.run_sync, work)


def measure_restarted(root: Path, payload: list[Json]) -> float:
    """Return the CPU milliseconds of the first call of a new process with a loaded vocabulary."""
    path = root / "payload.json"
    path.write_text(json.dumps(payload), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, __file__, "--restarted", str(root)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


async def call_after_restart(root: Path) -> None:
    """Print the CPU milliseconds of a call with the stored list."""
    load_o200k()
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        await warm_up(archive)
        payload = json.loads((root / "payload.json").read_text(encoding="utf-8"))
        print(await cpu_ms(partial(compact, payload, WIDE, archive=archive)))


async def print_memory(tokens: int) -> None:
    """Print the peak memory of the process after ten calls with one list and a compaction.

    A server needs 35 MB more for the SDK and its other imports.
    """
    load_o200k()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            payload = synthetic_session(tokens, seed=7)
            size_mb = sum(len(json.dumps(message)) for message in payload) / 1e6
            for number in range(10):
                payload += turn(number)
                await compact(payload, WIDE, archive=archive)
            await compact(payload, replace(WIDE, context_window=tokens), archive=archive)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    limit_mb = 2.5 * size_mb + 120
    print(f"memory at {tokens} tokens, {size_mb:.1f} MB: {peak_mb:.0f} MB (goal {limit_mb:.0f})")


async def main(sizes: list[int], *, keeps_gc_setting: bool) -> None:
    """Print the figures of all sizes."""
    load_o200k()
    if not keeps_gc_setting:
        # Imported here because `--memory` measures the library without the server.
        from mcp_server_compaction.protocol.app import reduce_gc

        reduce_gc()
    rows: dict[int, dict[str, float]] = {}
    for tokens in sizes:
        with TemporaryDirectory() as folder:
            rows[tokens] = await measure(Path(folder), tokens)
    print("CPU ms".ljust(34) + "".join(f"{f'{size // 1000}K':>12}" for size in sizes))
    for name in rows[sizes[0]]:
        print(name.ljust(34) + "".join(f"{rows[size][name]:>12.2f}" for size in sizes))
    for size in sizes:
        row = rows[size]
        print(
            f"{size // 1000}K: a new list costs {row[RATIO]:.2f} times the floor, "
            f"{row[NEW] / row['tiktoken']:.2f} times tiktoken alone; a compaction "
            f"{row[COMPACTION_NEW] / row['floor']:.2f} times the floor for a new list, "
            f"{row[COMPACTION_KNOWN] / row['floor']:.2f} for a known one"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--restarted", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.restarted:
        anyio.run(call_after_restart, options.restarted)
    elif options.memory:
        anyio.run(print_memory, options.memory)
    else:
        anyio.run(partial(main, options.sizes, keeps_gc_setting=options.bare))
