"""How much of what an agent needs is in its context, or one search away, after a compaction.

Run: python benchmarks/reach.py [PROCESSES]        (needs the dependency group `bench`)

The cases and the needed strings are those of recall.py. A string that the compacted context does
not hold with its context is asked for once: the query is the longest part of the string ("muller"
for "ivan_muller_7015"), or the string where it has but one part. It is reached where the string
stands in a snippet of the first page of hits, as `search_transcript` gives it by default: at most
ten hits and 2,400 tokens.
"""

import re
import statistics
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.archive import Query
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.tokens.counter import counter_for
from mcp_server_compaction.protocol.tools.search_transcript import search_briefly

from benchmarks.needed import kept, past_of, spoken
from benchmarks.recall import MODEL, TITLES, Case, Needs, cases, interval, needs_of, ordinary
from tests.support.promises import temporary_archive

_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True, slots=True)
class Reached:
    """Of one case the shares of its needed strings in the context, and there or one search away."""

    case: Case
    in_context: float
    reachable: float


def query_for(string: str) -> str:
    """The longest part of `string`."""
    return max(_PART.findall(string), key=len, default=string)


def run(case: Case) -> Reached | None:
    """One case; None where hardly anything is needed."""
    needs = needs_of(case)
    if needs is None:
        return None
    sizes = counter_for(MODEL).estimate(needs.before)
    target_tokens = case.target_tokens or int(sizes.upper * case.share)
    held, found = anyio.run(_held_and_found, needs, target_tokens)
    number = len(held)
    either = sum(a or b for a, b in zip(held, found, strict=True))
    return Reached(case, sum(held) / number, either / number)


async def _held_and_found(needs: Needs, target_tokens: int) -> tuple[list[bool], list[bool]]:
    strings = needs.needed["rare"]
    async with temporary_archive() as archive:
        request = CompactRequest(format=needs.format, model=MODEL, target_tokens=target_tokens)
        result = await compact(needs.payload, request, archive=archive)
        output = formats.parse(result.messages, format=needs.format)
        held = kept(strings, needs.past, past_of("\n".join(spoken(output)), ordinary()))
        found: list[bool] = []
        for string in strings:
            query = Query(query_for(string), session_id=result.session_id)
            answer = await search_briefly(archive, query)
            found.append(any(string in hit.snippet for hit in answer.hits))
    return held, found


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with ProcessPoolExecutor(processes) as pool:
        outcomes = [done for done in pool.map(run, cases(), chunksize=4) if done is not None]
    print("| | in the context | there, or one search away | 95 % |\n| --- | --- | --- | --- |")
    for group, title in TITLES.items():
        units: defaultdict[str, list[Reached]] = defaultdict(list)
        for outcome in outcomes:
            if outcome.case.group == group:
                units[outcome.case.unit].append(outcome)
        held = [statistics.fmean(each.in_context for each in unit) for unit in units.values()]
        reach = [statistics.fmean(each.reachable for each in unit) for unit in units.values()]
        low, high = interval(reach)
        print(
            f"| {title} | {statistics.fmean(held):.3f} | {statistics.fmean(reach):.3f} "
            f"| {low:.3f}-{high:.3f} |"
        )


if __name__ == "__main__":
    main()
