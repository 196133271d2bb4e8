"""Compaction in the background: the agent continues while its history is summarized.

python examples/background_compaction.py
"""

import tempfile
from pathlib import Path

import anyio
import anyio.lowlevel
from context_compaction import Archive, CompactRequest, compact, open_archive
from context_compaction import read_conversation as read

SESSION = Path(__file__).with_name("pi-session.jsonl")
CONVERSATION = read(SESSION.read_bytes(), name=SESSION.name)
PREPARED_MESSAGES = 700  # at this length the window would be filling up


async def work(archive: Archive) -> None:
    """Prepare the first 700 messages of a real session, and apply the result to all 914."""
    messages = list(CONVERSATION.payload[:PREPARED_MESSAGES])
    names: list[str] = []

    async def prepare() -> None:
        request = CompactRequest(format="pi", session_id="agent", mode="full", prepare=True)
        result = await compact(messages[:PREPARED_MESSAGES], request, archive=archive)
        if result.prepared is not None:
            names.append(result.prepared.prepared_id)

    async with anyio.create_task_group() as background:
        background.start_soon(prepare)
        for message in CONVERSATION.payload[PREPARED_MESSAGES:]:  # the agent continues
            messages.append(message)
            await anyio.lowlevel.checkpoint()
    request = CompactRequest(format="pi", session_id="agent", apply=names[0])
    result = await compact(messages, request, archive=archive)
    print(f"{len(messages)} messages, {result.tokens.before:,} tokens came in;")
    print(f"{len(result.messages)} messages, {result.tokens.after:,} tokens go out.")
    same = result.messages[-1] is messages[-1]
    print(f"What came after the first {PREPARED_MESSAGES} stands as it was: {same}")


async def main() -> None:
    """Run the example with an archive in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_archive(Path(folder)) as archive:
            await work(archive)


if __name__ == "__main__":
    anyio.run(main)
