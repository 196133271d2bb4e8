"""What a compaction costs: CPU of the engine and the archive, cold, repeated and grown by a turn.

Run: python benchmarks/cost.py

The floors of the same run are one `json.dumps` of the list and one tiktoken pass over its text.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.tokens.vocabulary import load_o200k

from tests.support.synthetic import synthetic_session

SIZES = (200_000, 1_000_000)
ROUNDS = 5
COLD_ROUNDS = 3
# Below its trigger throughout.
WIDE = CompactRequest(
    format="anthropic", context_window=4_000_000, session_id="bench", policy="default"
)
FULL = CompactRequest(format="anthropic", mode="full", context_window=4_000_000)


async def cpu_ms(work: Callable[[], Awaitable[Any]]) -> float:
    """CPU of the whole process, threads included, in milliseconds."""
    gc.collect()
    before = time.process_time()
    await work()
    return (time.process_time() - before) * 1000


def grown(payload: list[Any], turn: int) -> list[Any]:
    """The same objects and one more turn, as a host passes them."""
    call = {"type": "tool_use", "id": f"grown_{turn}", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": f"grown_{turn}", "content": "a.py\n" * 300}
    return [
        *payload,
        {"role": "user", "content": f"Turn {turn}: go on with the next file, please."},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": f"Done with turn {turn}."},
    ]


async def measure(archive: LocalArchive, tokens: int) -> dict[str, float]:
    payload = synthetic_session(tokens, seed=7)
    row: dict[str, float] = {"messages": len(payload)}
    row["json.dumps"] = await cpu_ms(_sync(lambda: json.dumps(payload)))
    texts = "\n".join(json.dumps(message) for message in payload)
    encoding = load_o200k()
    row["tiktoken"] = await cpu_ms(_sync(lambda: _encode(encoding, texts)))
    row["first call"] = await cpu_ms(lambda: compact(payload, WIDE, archive=archive))
    repeated: list[float] = []
    grown_by_one: list[float] = []
    for turn in range(ROUNDS):
        payload = grown(payload, turn)
        grown_by_one.append(await cpu_ms(lambda p=payload: compact(p, WIDE, archive=archive)))
        repeated.append(await cpu_ms(lambda p=payload: compact(p, WIDE, archive=archive)))
    row["grown by a turn"] = statistics.median(grown_by_one)
    row["same again"] = statistics.median(repeated)
    tenth = CompactRequest(format="anthropic", target_tokens=tokens // 10)
    for name, wish in {"to a tenth": tenth, "full summary": FULL}.items():
        # A session of its own each time, or the second time there would be nothing to do.
        sessions = [replace(wish, session_id=f"{name[-5:]}-{turn}") for turn in range(COLD_ROUNDS)]
        row[name] = min([
            await cpu_ms(lambda r=request: compact(payload, r, archive=archive))
            for request in sessions
        ])  # fmt: skip
    return row


def _encode(encoding: Any, text: str) -> None:
    for start in range(0, len(text), 100_000):
        encoding.encode(text[start : start + 100_000], disallowed_special=())


def _sync(work: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def run() -> Any:
        return work()

    return run


async def main() -> None:
    load_o200k()
    rows: dict[int, dict[str, float]] = {}
    for tokens in SIZES:
        with TemporaryDirectory() as folder:
            root = Path(folder)
            async with open_archive(root / "archive", index_root=root / "index") as archive:
                rows[tokens] = await measure(archive, tokens)
    small, large = (rows[size] for size in SIZES)
    print(f"{'CPU ms':<20}{'200K tokens':>14}{'1M tokens':>14}{'ratio':>8}")
    for name in small:
        print(
            f"{name:<20}{small[name]:>14.1f}{large[name]:>14.1f}{large[name] / small[name]:>8.2f}"
        )
    print(f"\nfirst call / tiktoken alone at 200K: {small['first call'] / small['tiktoken']:.2f}")
    print(f"grown by a turn at 200K: {small['grown by a turn']:.1f} ms (goal: at most 30)")
    scale = large["messages"] / small["messages"]
    print(f"messages grew {scale:.2f}-fold; linear means ratios near it (goal: at most 5.5)")


anyio.run(main)
