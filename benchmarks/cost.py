"""What a call costs: CPU of the engine and the archive, beside the floor of the same run.

Run: python benchmarks/cost.py [--sizes 200000 1000000 5000000] [--bare]

The floor is what nobody can do without: the list read from JSON, its text counted once by tiktoken
as it comes (our own pattern gives the same tokens in two thirds of the time), and its bytes hashed
once, in the thread that calls are made in: only the first thread of a process that counts gets
tiktoken's fast path, every other pays a third more. It is taken of the lists of the cold calls, and
by turns with them: lists of one size differ by a fifth in their tokens, and a machine's speed
drifts. Every list is decoded anew before each call, as a server gets it. A turn is 14 messages and
about 6,000 tokens; medians of `ROUNDS`. Garbage is collected as our servers set it, for the floor
too; `--bare` leaves that as Python starts.
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
from context_compaction.session.resume import current_context
from context_compaction.tokens.vocabulary import load_o200k

from tests.support.json_types import is_list, is_object
from tests.support.plain_tiktoken import plain_o200k
from tests.support.script import TINY_PNG
from tests.support.synthetic import synthetic_session

SIZES = (200_000, 1_000_000)
ROUNDS = 5
COLD, KNOWN = "a compaction, cold", "a compaction, list known"
TIMES = "cold, times its own floor"
TURN_STEPS = 6  # of two messages, between a request and an answer
STEP_CHARS = 2_300
# Below its trigger throughout.
WIDE = CompactRequest(format="anthropic", context_window=40_000_000, session_id="bench")
Json = dict[str, Any]


async def cpu_ms(work: Callable[[], Awaitable[Any]]) -> float:
    """CPU of the whole process, threads and kernel included, in milliseconds."""
    gc.collect()
    before = time.process_time()
    await work()
    return (time.process_time() - before) * 1000


def decoded(payload: list[Json]) -> list[Json]:
    """The list as a server gets it: other objects each time."""
    found: list[Json] = json.loads(json.dumps(payload))
    return found


def turn(number: int) -> list[Json]:
    """14 messages whose texts no other turn has."""
    found: list[Json] = [{"role": "user", "content": f"Turn {number}: go on with the next file."}]
    for step in range(TURN_STEPS):
        id_ = f"turn_{number}_{step}"
        text = "\n".join(f"{number}.{step}.{n} def f{n}(value):" for n in range(STEP_CHARS // 24))
        call = {"type": "tool_use", "id": id_, "name": "Read", "input": {"file_path": f"{id_}.py"}}
        result = {"type": "tool_result", "tool_use_id": id_, "content": text}
        found.append({"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]})
        found.append({"role": "user", "content": [result]})
    return [*found, {"role": "assistant", "content": f"Done with turn {number}."}]


def floor(data: str) -> int:
    """Read, counted and hashed once: how many tokens."""
    payload = json.loads(data)
    blake2b(data.encode()).digest()
    encoding = plain_o200k()
    return sum(len(encoding.encode(text, disallowed_special=())) for text in _texts(payload))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value[at : at + 100_000] for at in range(0, len(value), 100_000)]
    if is_object(value):
        return [text for item in value.values() for text in _texts(item)]
    items = value if is_list(value) else []
    return [text for item in items for text in _texts(item)]


async def measured(root: Path, tokens: int) -> dict[str, float]:
    """Every row for one size."""
    payload = synthetic_session(tokens, seed=7)
    size_mb = len(_written(payload)) / 1e6
    row: dict[str, float] = {"messages": len(payload), "MB of JSON": size_mb}
    row["tiktoken"] = await median(lambda at: _sync(partial(_counted, unseen(tokens, at))))
    new = _written(turn(0))
    row["tokens of a turn"] = floor(new)
    row["floor of a turn"] = await median(lambda _: _sync(lambda: floor(new)))
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        await warm_up(archive)
        floors: list[float] = []
        cold: list[float] = []
        for at in range(ROUNDS):
            found = unseen(tokens, ROUNDS + at)
            floors.append(await cpu_ms(_sync(partial(floor, _written(found)))))
            session = replace(WIDE, session_id=f"cold-{at}")
            cold.append(await cpu_ms(_called(archive, found, session)))
        row["floor"] = statistics.median(floors)
        row["cold, nothing to do"] = statistics.median(cold)
        row[TIMES] = statistics.median([
            call / least for call, least in zip(cold, floors, strict=True)
        ])
        await compact(decoded(payload), WIDE, archive=archive)
        row["same again"] = await median(lambda _: _called(archive, payload))
        lists = [payload]
        for number in range(ROUNDS):
            lists.append([*lists[-1], *turn(number)])
        row["grown by a turn"] = await median(lambda at: _called(archive, lists[at + 1]))
        row["new messages alone"] = await median(lambda at: _behind(archive, turn(100 + at)))
    row["after a restart"] = restarted(root, payload)
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        small = replace(WIDE, context_window=tokens, session_id="small")
        compacted: list[CompactResult] = []

        given = decoded(payload)

        async def once() -> None:
            compacted.append(await compact(given, small, archive=archive))

        await once()
        row["whole list right after it"] = await cpu_ms(_called(archive, payload, small))
        row["whole list, then again"] = await median(lambda _: _called(archive, payload, small))
        again = await compact(decoded(payload), small, archive=archive)
        assert json.dumps(again.messages) == json.dumps(compacted[0].messages)

        row[COLD] = await median(
            lambda at: _called(archive, unseen(tokens, 3 * ROUNDS + at), _in(small, at))
        )
        for at in range(ROUNDS):
            await compact(payload, _in(WIDE, ROUNDS + at), archive=archive)
        row[KNOWN] = await median(lambda at: _called(archive, payload, _in(small, ROUNDS + at)))
    return row


async def warm_up(archive: LocalArchive) -> None:
    """What a process loads once is loaded by another session's call, with a picture."""
    source = {"type": "base64", "media_type": "image/png", "data": TINY_PNG}
    picture = {"role": "user", "content": [{"type": "image", "source": source}]}
    other = replace(WIDE, session_id="other")
    await compact([*synthetic_session(5_000, seed=9), picture], other, archive=archive)


def _in(request: CompactRequest, session: int) -> CompactRequest:
    return replace(request, session_id=f"compacted-{session}")


def unseen(tokens: int, number: int) -> list[Json]:
    """A list that no other number has."""
    return synthetic_session(tokens, seed=100 + number)


def _written(payload: list[Json]) -> str:
    return json.dumps(payload, ensure_ascii=False)


def _counted(payload: list[Json]) -> None:
    encoding = plain_o200k()
    for text in _texts(payload):
        encoding.encode(text, disallowed_special=())


def _called(
    archive: LocalArchive, payload: list[Json], request: CompactRequest = WIDE
) -> Callable[[], Awaitable[Any]]:
    return partial(compact, decoded(payload), request, archive=archive)


def _behind(archive: LocalArchive, new: list[Json]) -> Callable[[], Awaitable[Any]]:
    async def run() -> CompactResult:
        context = await current_context("bench", archive)
        return await compact([*context.messages, *new], WIDE, archive=archive)

    return run


async def median(work: Callable[[int], Callable[[], Awaitable[Any]]]) -> float:
    return statistics.median([await cpu_ms(work(at)) for at in range(ROUNDS)])


def _sync(work: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    return partial(to_thread.run_sync, work)


def restarted(root: Path, payload: list[Json]) -> float:
    """The same list in a process that has just begun, its vocabulary loaded."""
    path = root / "payload.json"
    path.write_text(json.dumps(payload), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, __file__, "--restarted", str(root)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(ran.stdout)


async def after_restart(root: Path) -> None:
    load_o200k()
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        await warm_up(archive)
        payload = json.loads((root / "payload.json").read_text(encoding="utf-8"))
        print(await cpu_ms(partial(compact, payload, WIDE, archive=archive)))


async def memory(tokens: int) -> None:
    """How much one list, ten calls with it and a compaction take at most, in MB of this process.

    That is the library's; the SDK and what else a server imports take 35 MB more.
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
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    limit_mb = 2.5 * size_mb + 120
    print(f"memory at {tokens} tokens, {size_mb:.1f} MB: {most_mb:.0f} MB (goal {limit_mb:.0f})")


async def main(sizes: list[int], *, is_bare: bool) -> None:
    load_o200k()
    if not is_bare:
        # Not above: the memory of the library is measured without what a server imports.
        from mcp_server_compaction.protocol.app import collect_seldom

        collect_seldom()
    rows: dict[int, dict[str, float]] = {}
    for tokens in sizes:
        with TemporaryDirectory() as folder:
            rows[tokens] = await measured(Path(folder), tokens)
    print("CPU ms".ljust(34) + "".join(f"{f'{size // 1000}K':>12}" for size in sizes))
    for name in rows[sizes[0]]:
        print(name.ljust(34) + "".join(f"{rows[size][name]:>12.2f}" for size in sizes))
    cold, part = "cold, nothing to do", "floor"
    for size in sizes:
        row = rows[size]
        print(
            f"{size // 1000}K: cold {row[TIMES]:.2f} times the floor, "
            f"{row[cold] / row['tiktoken']:.2f} times tiktoken alone; a compaction "
            f"{row[COLD] / row[part]:.2f} cold, {row[KNOWN] / row[part]:.2f} with the list known"
        )


parser = argparse.ArgumentParser()
parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
parser.add_argument("--bare", action="store_true")
parser.add_argument("--memory", type=int)
parser.add_argument("--restarted", type=Path)
given = parser.parse_args()
if given.restarted:
    anyio.run(after_restart, given.restarted)
elif given.memory:
    anyio.run(memory, given.memory)
else:
    anyio.run(partial(main, given.sizes, is_bare=given.bare))
