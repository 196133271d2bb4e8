"""A host that hands in its whole history at every call: what it gets again, and what that costs.

    python benchmarks/whole_lists.py [calls]

Prints how many answers do not begin with the one before, which part of the bytes two answers share
on average (the rest a provider's prompt cache reads anew), the CPU time of a call, and what an
identical call writes.
"""

import json
import statistics
import sys
import time
from itertools import pairwise, takewhile
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from context_compaction.archive.local.archive import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

REQUEST = CompactRequest(session_id="whole", context_window=50_000)


def turn(number: int) -> list[dict[str, Any]]:
    """A call and its result, some 3,000 tokens."""
    text = "\n".join(f"def fn_{number}_{n}(x): return x*{n}" for n in range(100))
    use = {"type": "tool_use", "id": f"t{number}", "name": "bash", "input": {"command": "cat"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


async def main(calls: int) -> None:
    """Grow one conversation by `calls` turns and print the figures."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Audit all files."}]
    answers: list[str] = []
    seconds: list[float] = []
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            for number in range(calls):
                history += turn(number)
                begun = time.process_time()
                answer = await compact(history, REQUEST, archive=archive)
                seconds.append(time.process_time() - begun)
                answers.append(json.dumps(answer.messages)[:-1])
            written = _bytes_under(root / "archive")
            await compact(history, REQUEST, archive=archive)
            more = _bytes_under(root / "archive") - written
    shares = [
        sum(takewhile(bool, map(eq, before, after))) / len(before)
        for before, after in pairwise(answers)
    ]
    print(f"{sum(share < 1 for share in shares)} of {len(shares)} answers begin anew")
    print(f"{statistics.mean(shares):.3f} of the bytes are shared")
    print(
        f"{statistics.median(seconds) * 1000:.0f} ms CPU a call, {max(seconds) * 1000:.0f} at most"
    )
    print(f"{more} bytes are written by an identical call; the archive has {written}")


def _bytes_under(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 60)
