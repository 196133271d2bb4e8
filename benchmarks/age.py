"""Measure CPU and memory of a session as it grows old.

Run: python benchmarks/age.py [--compactions 500] [--window 60000] [--quiet 10000]

One session continues for many compactions: the host adopts each compacted list, adds the next turn
and calls again. The cost of a compaction is the median of it and its four neighbours. Then sessions
with quiet turns follow, which are calls with nothing to compact. Memory is the resident memory of
the process by /proc.
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

PRINTED = (1, 2, 5, 10, 20, 50, 100, 163, 200, 300, 400, 500, 750, 1000)
NEIGHBOURS = 2
SEED = 7
SEGMENTS = 10
# Groups are compared, because the cost of one compaction depends on its list.
GROUP = 10


@dataclass(slots=True)
class History:
    """Figures of one session.

    Attributes:
        compaction_ms: CPU of each call that compacted.
        tokens_before: Tokens of the list before each compaction.
        quiet_ms: CPU of each call that did not compact.
        rss_mb: Resident memory after each call.
        compacted_at: Number of the call of each compaction, from 0.
    """

    compaction_ms: list[float] = field(default_factory=list[float])
    tokens_before: list[int] = field(default_factory=list[int])
    # Arrays, because lists of floats would add 80 bytes a turn to the measured memory.
    quiet_ms: "array[float]" = field(default_factory=partial(array, "d"))
    rss_mb: "array[float]" = field(default_factory=partial(array, "d"))
    compacted_at: list[int] = field(default_factory=list[int])


async def run_session(
    archive: LocalArchive, request: CompactRequest, *, compactions: int, turns: int, quiet: bool
) -> History:
    """Run a session until it has had `compactions` compactions or `turns` turns."""
    history, dice, messages = History(), random.Random(SEED), list[Any]()
    for turn in range(turns):
        messages += _quiet_turn(turn) if quiet else synthetic_turn(dice, turn)
        before = time.process_time()
        result = await compact(messages, request, archive=archive)
        cpu_ms = (time.process_time() - before) * 1_000
        history.rss_mb.append(rss_mb())
        if result.changed:
            messages = list(result.messages)
        if result.status == "compacted":
            history.compaction_ms.append(cpu_ms)
            history.tokens_before.append(result.tokens.before)
            history.compacted_at.append(turn)
        else:
            history.quiet_ms.append(cpu_ms)
        if len(history.compaction_ms) == compactions:
            break
    return history


def _quiet_turn(turn: int) -> list[Any]:
    return [
        {"role": "user", "content": f"And what of number {turn}?"},
        {"role": "assistant", "content": [{"type": "text", "text": f"Number {turn} is fine."}]},
    ]


def rss_mb() -> float:
    """Return the resident memory of the process in megabytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4_096 / 1_000_000


def median_around(values: Sequence[float], index: int) -> float:
    """Return the median of `values` around `index`."""
    return statistics.median(values[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])


async def main() -> None:
    """Run the three sessions and print their figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--compactions", type=int, default=500)
    parser.add_argument("--window", type=int, default=60_000)
    parser.add_argument("--quiet", type=int, default=10_000)
    options = parser.parse_args()
    load_o200k()
    request = CompactRequest(
        format="anthropic", context_window=options.window, session_id="age", policy="default"
    )
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            history = await run_session(
                archive, request, compactions=options.compactions, turns=100_000, quiet=False
            )
            print_compactions(history)
            gc.collect()
            # The list stays short, so added memory is the library's. It runs before the session
            # with 11,000 messages, because it would reuse memory that this session has freed.
            request = replace(request, session_id="steady")
            history = await run_session(
                archive, request, compactions=10_000, turns=options.quiet, quiet=True
            )
            print_steady(history)
            gc.collect()
            request = CompactRequest(format="anthropic", session_id="quiet", policy="default")
            history = await run_session(
                archive, request, compactions=10_000, turns=options.quiet, quiet=True
            )
            print_quiet(history)


def print_compactions(history: History) -> None:
    """Print CPU and memory by compaction."""
    costs = history.compaction_ms
    print(f"{'compaction':>10}{'turn':>8}{'tokens':>10}{'CPU ms':>10}{'RSS MB':>10}")
    for number in (n for n in PRINTED if n <= len(costs)):
        turn = history.compacted_at[number - 1]
        print(
            f"{number:>10}{turn + 1:>8}{history.tokens_before[number - 1]:>10}"
            f"{median_around(costs, number - 1):>10.1f}{history.rss_mb[turn]:>10.1f}"
        )
    if len(costs) > 2 * GROUP:
        tenth = history.rss_mb[history.compacted_at[9]]
        grown = statistics.median(costs[-GROUP:]) / statistics.median(costs[GROUP // 2 :][:GROUP])
        print(f"last ten / those around the 10th: {grown:.2f} (goal: at most 1.3)")
        print(f"memory since the 10th: {history.rss_mb[-1] - tenth:+.1f} MB (goal: at most 20)")
    quiet = history.quiet_ms
    size = max(1, len(quiet) // SEGMENTS)
    medians = [
        f"{statistics.median(quiet[first : first + size]):.1f}"
        for first in range(0, len(quiet), size)
    ]
    print(f"turns between, CPU ms by tenth of the session: {' '.join(medians)}\n")


def print_quiet(history: History) -> None:
    """Print CPU and memory by tenth of the quiet turns."""
    size = max(1, len(history.quiet_ms) // SEGMENTS)
    print(f"{'quiet turns':>12}{'CPU ms':>10}{'RSS MB':>10}")
    for stop in range(size, len(history.quiet_ms) + 1, size):
        cost = statistics.median(history.quiet_ms[stop - size : stop])
        print(f"{stop:>12}{cost:>10.2f}{history.rss_mb[stop - 1]:>10.1f}")


def print_steady(history: History) -> None:
    """Print the memory that quiet turns add while compactions keep the list short."""
    if len(history.compacted_at) > 1:
        since = history.compacted_at[1]
        turns, grown_mb = len(history.rss_mb) - since, history.rss_mb[-1] - history.rss_mb[since]
        print(
            f"{turns} quiet turns after the second compaction of their list:"
            f" {grown_mb:+.1f} MB, {grown_mb / turns * 1_000_000:.0f} bytes a turn\n"
        )


if __name__ == "__main__":
    anyio.run(main)
