"""A process that answers lists: `python counting_process.py ROOT REDACTION`.

It reads lists as JSON, one a line, and writes for each how many tokens it had to count and, as
JSON, its answer.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import anyio
from context_compaction.archive.local.archive import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.redaction import RedactionMode
from context_compaction.request import CompactRequest
from context_compaction.tokens import tokenizers

REQUEST = CompactRequest(format="anthropic", session_id="s", context_window=400_000)
counted: list[int] = []
o200k_count = tokenizers.o200k_count


def counting(text: str) -> int:
    counted.append(o200k_count(text))
    return counted[-1]


async def main(root: Path, redaction: RedactionMode, lists: list[list[Any]]) -> None:
    index = root / "index"
    async with open_archive(root / "archive", index_root=index, redaction=redaction) as archive:
        for messages in lists:
            counted.clear()
            result = await compact(messages, REQUEST, archive=archive)
            sys.stdout.write(json.dumps([sum(counted), asdict(result)]) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    tokenizers.o200k_count = counting
    given = [json.loads(line) for line in sys.stdin]
    anyio.run(main, Path(sys.argv[1]), cast("RedactionMode", sys.argv[2]), given)
