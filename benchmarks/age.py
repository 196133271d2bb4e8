"""What a session costs as it grows old: CPU and memory by compaction, and of quiet turns.

Run: python benchmarks/age.py [--compactions 500] [--window 60000] [--quiet 10000]

One session goes on for as long as it takes: its host adopts each list that a compaction gives, adds
the turn that comes next and calls again. A compaction's cost is the median of it and the four
nearest; memory is what the process holds after it, by /proc.
"""

import argparse
import gc
import random
import statistics
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.tokens.vocabulary import load_o200k

from tests.support.synthetic import synthetic_turn

TOLD = (1, 2, 5, 10, 20, 50, 100, 163, 200, 300, 400, 500, 750, 1000)
NEAREST = 2
SEED = 7
SEGMENTS = 10
# A single one depends on what its list holds: ten around the 10th stand against the last ten.
TEN = 10


@dataclass(slots=True)
class Life:
    """What was measured in one session.

    Attributes:
        compaction_ms: CPU of each call that compacted ...
        tokens_before: ... and the size of its list.
        quiet_ms: CPU of each call that did not.
        rss_mb: What the process holds after each call.
        compacted_at: The position of each call that compacted among all.
        summary: The newest summary.
    """

    compaction_ms: list[float] = field(default_factory=list[float])
    tokens_before: list[int] = field(default_factory=list[int])
    # As lists these two would grow by 80 bytes a turn.
    quiet_ms: "array[float]" = field(default_factory=partial(array, "d"))
    rss_mb: "array[float]" = field(default_factory=partial(array, "d"))
    compacted_at: list[int] = field(default_factory=list[int])
    summary: str = ""


async def live(
    archive: LocalArchive, request: CompactRequest, *, compactions: int, turns: int, quiet: bool
) -> Life:
    """A session of so many compactions or turns, whichever comes first."""
    life, dice, messages = Life(), random.Random(SEED), list[Any]()
    for turn in range(turns):
        messages += _quiet_turn(turn) if quiet else synthetic_turn(dice, turn)
        before = time.process_time()
        result = await compact(messages, request, archive=archive)
        took_ms = (time.process_time() - before) * 1_000
        life.rss_mb.append(rss_mb())
        if result.changed:
            messages = list(result.messages)
        if result.status == "compacted":
            life.compaction_ms.append(took_ms)
            life.tokens_before.append(result.tokens.before)
            life.compacted_at.append(turn)
            life.summary = result.summary or life.summary
        else:
            life.quiet_ms.append(took_ms)
        if len(life.compaction_ms) == compactions:
            break
    return life


def _quiet_turn(turn: int) -> list[Any]:
    return [
        {"role": "user", "content": f"And what of number {turn}?"},
        {"role": "assistant", "content": [{"type": "text", "text": f"Number {turn} is fine."}]},
    ]


def rss_mb() -> float:
    """What the process holds in memory, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4_096 / 1_000_000


def near(values: Sequence[float], at: int) -> float:
    """The median of `values` around position `at`."""
    return statistics.median(values[max(0, at - NEAREST) : at + NEAREST + 1])


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compactions", type=int, default=500)
    parser.add_argument("--window", type=int, default=60_000)
    parser.add_argument("--quiet", type=int, default=10_000)
    parser.add_argument("--summary", type=Path, help="where the last summary goes")
    given = parser.parse_args()
    load_o200k()
    request = CompactRequest(
        format="anthropic", context_window=given.window, session_id="age", policy="default"
    )
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            life = await live(
                archive, request, compactions=given.compactions, turns=100_000, quiet=False
            )
            _tell_compactions(life)
            if given.summary:
                given.summary.write_text(life.summary, encoding="utf-8")
            gc.collect()
            # A list that is kept short by compactions: what is left is ours. It goes before the one
            # that grows to 11,000 messages, or it would live in what that has left free.
            request = replace(request, session_id="steady")
            life = await live(archive, request, compactions=10_000, turns=given.quiet, quiet=True)
            _tell_steady(life)
            gc.collect()
            request = CompactRequest(format="anthropic", session_id="quiet", policy="default")
            life = await live(archive, request, compactions=10_000, turns=given.quiet, quiet=True)
            _tell_quiet(life)


def _tell_compactions(life: Life) -> None:
    costs = life.compaction_ms
    print(f"{'compaction':>10}{'turn':>8}{'tokens':>10}{'CPU ms':>10}{'RSS MB':>10}")
    for number in (n for n in TOLD if n <= len(costs)):
        turn = life.compacted_at[number - 1]
        print(
            f"{number:>10}{turn + 1:>8}{life.tokens_before[number - 1]:>10}"
            f"{near(costs, number - 1):>10.1f}{life.rss_mb[turn]:>10.1f}"
        )
    if len(costs) > 2 * TEN:
        tenth = life.rss_mb[life.compacted_at[9]]
        grown = statistics.median(costs[-TEN:]) / statistics.median(costs[TEN // 2 :][:TEN])
        print(f"last ten / those around the 10th: {grown:.2f} (goal: at most 1.3)")
        print(f"memory since the 10th: {life.rss_mb[-1] - tenth:+.1f} MB (goal: at most 20)")
    quiet = life.quiet_ms
    size = max(1, len(quiet) // SEGMENTS)
    told = [f"{statistics.median(quiet[at : at + size]):.1f}" for at in range(0, len(quiet), size)]
    print(f"turns between, CPU ms by tenth of the session: {' '.join(told)}\n")


def _tell_quiet(life: Life) -> None:
    size = max(1, len(life.quiet_ms) // SEGMENTS)
    print(f"{'quiet turns':>12}{'CPU ms':>10}{'RSS MB':>10}")
    for at in range(0, len(life.quiet_ms) - size + 1, size):
        cost = statistics.median(life.quiet_ms[at : at + size])
        print(f"{at + size:>12}{cost:>10.2f}{life.rss_mb[at + size - 1]:>10.1f}")


def _tell_steady(life: Life) -> None:
    """What quiet turns add once the list has been compacted, and so grows no longer."""
    if len(life.compacted_at) > 1:
        since = life.compacted_at[1]
        turns, grown_mb = len(life.rss_mb) - since, life.rss_mb[-1] - life.rss_mb[since]
        print(
            f"{turns} quiet turns after the second compaction of their list:"
            f" {grown_mb:+.1f} MB, {grown_mb / turns * 1_000_000:.0f} bytes a turn\n"
        )


if __name__ == "__main__":
    anyio.run(main)
