"""Compact every real transcript in every format and check every promise.

Run: python benchmarks/transcripts.py [PROCESSES] [--limit JOBS]

A run compacts one transcript in one format to one target. The checks of tests/support/promises.py
know nothing of the product: the input is unchanged, the output follows the provider's rules, it is
within the target or names the pieces that cannot shrink, each removed string is readable through
the pointers in the output, equal input gives equal bytes, and a second compaction changes nothing.
Exits with 1 if a run breaks a promise, and prints it.
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.errors import CompactionError
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult

from tests.support.converted import PROVIDER_FORMATS, in_format
from tests.support.corpus import all_transcripts
from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.readback import removed_texts

SHARES = {"50 %": 0.5, "25 %": 0.25, "10 %": 0.1}
WINDOWS_TOKENS = {"200K": 200_000, "32K": 32_000}
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one compaction.

    Attributes:
        name: Name of the transcript.
        format: Name of the format.
        goal: Key of `SHARES` or `WINDOWS_TOKENS`.
        violation: The broken promise; empty if all were kept.
        fits: Whether the output is within the target.
        status: Status of the result.
        before: Tokens before the compaction.
        after: Tokens after the compaction.
        removed_bytes: Bytes of all removed strings.
        largest: Description of the largest piece that cannot shrink.
    """

    name: str
    format: str
    goal: str
    violation: str = ""
    fits: bool = False
    status: str = ""
    before: int = 0
    after: int = 0
    removed_bytes: int = 0
    largest: str = ""


@dataclass(slots=True)
class Row:
    """All runs of one format and goal."""

    runs: list[Run] = field(default_factory=list[Run])

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        valid = [run for run in self.runs if not run.violation]
        compacted = [run for run in valid if run.status == "compacted"]
        ratios = [run.after / run.before for run in compacted]
        return (
            f"{len(valid)} / {len(self.runs)}",
            str(sum(run.fits for run in valid)),
            str(sum(not run.fits for run in valid)),
            str(sum(run.status == "unchanged" for run in valid)),
            f"{sum(run.removed_bytes for run in valid):,}",
            f"{statistics.median(ratios):.2f}" if ratios else "-",
        )


def main() -> int:
    """Run all compactions and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("processes", type=int, nargs="?", default=PROCESSES)
    parser.add_argument("--limit", type=int, help="number of transcripts and formats")
    options = parser.parse_args()
    jobs = [
        (number, format)
        for number, transcript in enumerate(all_transcripts())
        for format in dict.fromkeys((transcript.format, *PROVIDER_FORMATS))
    ][: options.limit]
    rows: dict[tuple[str, str], Row] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for done, runs in enumerate(pool.map(runs_of, jobs), 1):
            for run in runs:
                rows.setdefault((run.format, run.goal), Row()).runs.append(run)
            if sys.stderr.isatty():
                print(f"\r{done} of {len(jobs)}", end="", file=sys.stderr)
    print_table(rows)
    print_reasons(rows)
    broken = [run for row in rows.values() for run in row.runs if run.violation]
    for run in broken:
        print(f"BROKEN {run.name} as {run.format} to {run.goal}: {run.violation}")
    return 1 if broken else 0


def print_table(rows: dict[tuple[str, str], Row]) -> None:
    """Print a Markdown table with a line for each format and goal."""
    print(f"{len(all_transcripts())} transcripts\n")
    titles = ("format", "to", "kept", "fit", "do not fit", "unchanged", "bytes read", "median size")
    print_line(titles)
    print_line(["---"] * len(titles))
    goals = [*SHARES, *WINDOWS_TOKENS]
    for (format, goal), row in sorted(rows.items(), key=lambda i: (i[0][0], goals.index(i[0][1]))):
        print_line((format, goal, *row.cells()))


def print_reasons(rows: dict[tuple[str, str], Row]) -> None:
    """Print the largest pieces that cannot shrink."""
    largest = Counter(run.largest for row in rows.values() for run in row.runs if run.largest)
    print("\nLargest piece of the outputs that do not fit:\n")
    for description, times in largest.most_common():
        print(f"- {times} times: {description}")


def print_line(cells: Iterable[str]) -> None:
    """Print a line of a Markdown table."""
    print("| " + " | ".join(cells) + " |")


def runs_of(job: tuple[int, str]) -> list[Run]:
    """Make the runs of one transcript in one format."""
    number, format = job
    transcript = all_transcripts()[number]
    return anyio.run(_runs, transcript.name, format, in_format(transcript, format))


async def _runs(name: str, format: str, payload: list[Json]) -> list[Run]:
    async with temporary_archive() as archive:
        recorded = await compact(
            payload, CompactRequest(mode="record", format=format), archive=archive
        )
    tokens = recorded.tokens.before
    requests = {
        goal: CompactRequest(format=format, target_tokens=max(1, int(tokens * share)))
        for goal, share in SHARES.items()
    } | {
        goal: CompactRequest(format=format, context_window=window_tokens)
        for goal, window_tokens in WINDOWS_TOKENS.items()
    }
    return [
        await _run(Run(name, format, goal), payload, request, format)
        for goal, request in requests.items()
    ]


async def _run(run: Run, payload: list[Json], request: CompactRequest, format: str) -> Run:
    try:
        async with temporary_archive() as archive:
            result = await check_promises(payload, request, archive)
    except (AssertionError, CompactionError) as error:
        return Run(run.name, run.format, run.goal, violation=f"{error!r}"[:300])
    return _outcome(run, payload, result, format)


def _outcome(run: Run, payload: list[Json], result: CompactResult, format: str) -> Run:
    removed = removed_texts(payload, result.messages, format)
    return Run(
        run.name,
        run.format,
        run.goal,
        fits=result.fits,
        status=result.status,
        before=result.tokens.before,
        after=result.tokens.after,
        removed_bytes=sum(len(item.text.encode("utf-8", "surrogatepass")) for item in removed),
        largest=result.irreducible[0].description if result.irreducible else "",
    )


if __name__ == "__main__":
    sys.exit(main())
