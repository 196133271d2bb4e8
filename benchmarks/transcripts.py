"""Every real transcript, in every format, compacted to shares and windows; every promise checked.

    python benchmarks/transcripts.py [PROCESSES]

A run is one transcript in one format brought to one target. It is *kept* where every check of
`tests/support/promises.py` holds: the input is unchanged, the output is valid by an independent
judge of the provider's rules, it is within the target or names what cannot be made smaller, each
string that left is read back by the pointers in the answer, the same input gives the same bytes,
and a second compaction changes nothing. Exits with 1 if any run breaks one, and names it.
"""

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
    """What became of one transcript, in one format, at one target.

    `before` and `after` are tokens; `removed_bytes` were all read back where `violation` is empty;
    `largest` is the largest of the pieces that the answer named where it does not fit.
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
        kept = [run for run in self.runs if not run.violation]
        acted = [run for run in kept if run.status == "compacted"]
        ratios = [run.after / run.before for run in acted]
        return (
            f"{len(kept)} / {len(self.runs)}",
            str(sum(run.fits for run in kept)),
            str(sum(not run.fits for run in kept)),
            str(sum(run.status == "unchanged" for run in kept)),
            f"{sum(run.removed_bytes for run in kept):,}",
            f"{statistics.median(ratios):.2f}" if ratios else "-",
        )


def main() -> int:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else PROCESSES
    jobs = [
        (number, format)
        for number, transcript in enumerate(all_transcripts())
        for format in dict.fromkeys((transcript.format, *PROVIDER_FORMATS))
    ]
    rows: dict[tuple[str, str], Row] = {}
    with ProcessPoolExecutor(processes) as pool:
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
    """One line for each format and goal, as a Markdown table."""
    print(f"{len(all_transcripts())} transcripts\n")
    titles = ("format", "to", "kept", "fit", "do not fit", "unchanged", "bytes read back", "median")
    print_line(titles)
    print_line(["---"] * len(titles))
    goals = [*SHARES, *WINDOWS_TOKENS]
    for (format, goal), row in sorted(rows.items(), key=lambda i: (i[0][0], goals.index(i[0][1]))):
        print_line((format, goal, *row.cells()))


def print_reasons(rows: dict[tuple[str, str], Row]) -> None:
    """What the answers that do not fit named as the largest piece left."""
    largest = Counter(run.largest for row in rows.values() for run in row.runs if run.largest)
    print("\nWhere it does not fit, the largest piece that the answer names:\n")
    for description, times in largest.most_common():
        print(f"- {times} times: {description}")


def print_line(cells: Iterable[str]) -> None:
    print("| " + " | ".join(cells) + " |")


def runs_of(job: tuple[int, str]) -> list[Run]:
    """The runs of one transcript in one format, in a process of the pool."""
    number, format = job
    transcript = all_transcripts()[number]
    return anyio.run(_runs, transcript.name, format, in_format(transcript, format))


async def _runs(name: str, format: str, payload: list[Json]) -> list[Run]:
    async with temporary_archive() as archive:
        recorded = await compact(
            payload, CompactRequest(mode="record", format=format), archive=archive
        )
    tokens = recorded.tokens.before
    wishes = {
        goal: CompactRequest(format=format, target_tokens=max(1, int(tokens * share)))
        for goal, share in SHARES.items()
    } | {
        goal: CompactRequest(format=format, context_window=window_tokens)
        for goal, window_tokens in WINDOWS_TOKENS.items()
    }
    return [
        await _run(Run(name, format, goal), payload, wish, format) for goal, wish in wishes.items()
    ]


async def _run(run: Run, payload: list[Json], request: CompactRequest, format: str) -> Run:
    try:
        async with temporary_archive() as archive:
            result = await check_promises(payload, request, archive)
    except (AssertionError, CompactionError) as error:
        return Run(run.name, run.format, run.goal, violation=f"{error!r}"[:300])
    return _kept(run, payload, result, format)


def _kept(run: Run, payload: list[Json], result: CompactResult, format: str) -> Run:
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
