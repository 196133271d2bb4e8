"""Compaction in the background: the agent goes on while its history is summarised.

python examples/background_compaction.py
"""

import tempfile
from pathlib import Path

import anyio
import anyio.lowlevel
from context_compaction import CompactRequest, LocalArchive, compact, open_archive
from context_compaction import read_conversation as read

SESSION = Path(__file__).with_name("pi-session.jsonl")
CONVERSATION = read(SESSION.read_bytes(), name=SESSION.name)
BEGUN_AT = 700  # messages; by then the window would be filling up


async def work(archive: LocalArchive) -> None:
    """Prepare for the first 700 messages of a real session, apply to all 914 of it."""
    messages = list(CONVERSATION.payload[:BEGUN_AT])
    names: list[str] = []

    async def prepare() -> None:
        request = CompactRequest(format="pi", session_id="agent", mode="full", prepare=True)
        result = await compact(messages[:BEGUN_AT], request, archive=archive)
        if result.prepared is not None:
            names.append(result.prepared.prepared_id)

    async with anyio.create_task_group() as background:
        background.start_soon(prepare)
        for message in CONVERSATION.payload[BEGUN_AT:]:  # the agent goes on meanwhile
            messages.append(message)
            await anyio.lowlevel.checkpoint()
    request = CompactRequest(format="pi", session_id="agent", apply=names[0])
    result = await compact(messages, request, archive=archive)
    print(f"{len(messages)} messages, {result.tokens.before:,} tokens came in;")
    print(f"{len(result.messages)} messages, {result.tokens.after:,} tokens go out.")
    same = result.messages[-1] is messages[-1]
    print(f"What came after the first {BEGUN_AT} stands as it was: {same}")


async def main() -> None:
    """With an archive in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_archive(Path(folder)) as archive:
            await work(archive)


if __name__ == "__main__":
    anyio.run(main)
