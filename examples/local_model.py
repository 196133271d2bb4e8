"""Let a local model write the summary: python examples/local_model.py [ADDRESS OF ITS API]"""

import sys
import tempfile
from pathlib import Path

import anyio
from context_compaction import (
    CompactRequest,
    compact,
    open_archive,
    read_conversation,
    summary_model,
)

SESSION = Path(__file__).with_name("pi-session.jsonl")
OLLAMA = "http://localhost:11434/v1"


async def main(url: str) -> None:
    """Summarize a real session of 914 messages with a model that Ollama or another server runs."""
    given = read_conversation(SESSION.read_bytes(), name=SESSION.name)
    request = CompactRequest(mode="full", format=given.format, target_tokens=20_000)
    model = summary_model("qwen3:8b", url=url, context_window=32_000)
    async with open_archive(Path(tempfile.mkdtemp())) as archive:
        result = await compact(given.payload, request, archive=archive, model=model)
    print(result.receipt["model"], *result.warnings, result.summary, sep="\n")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else OLLAMA)
