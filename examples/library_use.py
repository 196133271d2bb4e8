"""Use the library without a server: python examples/library_use.py"""

import json
import tempfile
from pathlib import Path

import anyio
from context_compaction import CompactRequest, compact, open_archive, read_conversation

SESSION = Path(__file__).with_name("pi-session.jsonl")


async def main() -> None:
    """Reduce a real session of 914 messages to 40,000 tokens."""
    conversation = read_conversation(SESSION.read_bytes(), name=SESSION.name)
    request = CompactRequest(
        format=conversation.format, model=conversation.model, target_tokens=40_000
    )
    with tempfile.TemporaryDirectory() as folder:
        async with open_archive(Path(folder)) as archive:
            result = await compact(conversation.payload, request, archive=archive)
            first = await archive.read_messages(result.session_id, 0, 0)
    print(f"{len(conversation.payload)} messages, {result.tokens.before:,} tokens were passed;")
    print(f"{len(result.messages)} messages, {result.tokens.upper:,} tokens at most are returned.")
    print(f"The archive still has the first: {json.dumps(first[0].raw)[:60]}...")


if __name__ == "__main__":
    anyio.run(main)
