"""A process that compacts a growing story with a model: `python compaction_process.py ROOT URL`.

It reads `{"messages": [...], "rounds": [cool-down in seconds, ...]}` on its input, makes one
compaction for each round, and writes the messages of the last one and what came of each.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from context_compaction import AnthropicModel, CompactRequest, compact, open_archive
from context_compaction.pipeline import summarize


async def main(root: Path, url: str, messages: list[Any], rounds: list[int]) -> None:
    model = AnthropicModel("test-key", base_url=url, timeout_seconds=60)
    compacted, told = messages, list[Any]()
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        for number, cool_down_seconds in enumerate(rounds):
            summarize.COOL_DOWN_SECONDS = cool_down_seconds
            grown = [*compacted, *messages[1:]] if number else messages
            request = CompactRequest(mode="full", target_tokens=8_000, session_id="story")
            result = await compact(grown, request, archive=archive, model=model)
            compacted = result.messages
            told.append({
                "status": result.status,
                "writer": result.receipt["writer"],
                "model": result.receipt["model"],
                "warnings": list(result.warnings),
            })
    sys.stdout.write(json.dumps({"messages": compacted, "rounds": told}))


asked = json.load(sys.stdin)
anyio.run(main, Path(sys.argv[1]), sys.argv[2], asked["messages"], asked["rounds"])
