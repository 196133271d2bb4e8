"""Repeated compactions of a session stay cheap and keep goals and rules."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from context_compaction import CompactRequest, compact
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import ArchivedMessage
from context_compaction.messages.placeholders import removed_span, summary_text
from context_compaction.pipeline.summarize import MAX_ORIGINALS

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, lines, read, user, with_confirmed_texts

# Enough for several times `MAX_ORIGINALS` messages.
COMPACTIONS = 18
GOAL = "Rename the ledger of the invoices."
RULE = "Never push to the branch main."
REQUEST = CompactRequest(
    mode="full", format="anthropic", context_window=60_000, session_id="old", policy="default"
)


class CountingArchive:
    """An archive that counts its reads.

    Attributes:
        messages_read: Number of messages returned by each read.
        receipts_read: Number of receipts returned by each read.
    """

    def __init__(self, archive: Archive) -> None:
        self.messages_read: list[int] = []
        self.receipts_read: list[int] = []
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def read_messages(self, *args: Any, **options: Any) -> list[ArchivedMessage]:
        result = await self._archive.read_messages(*args, **options)
        self.messages_read.append(len(result))
        return result

    async def receipts(self, *args: Any, **options: Any) -> list[Json]:
        result = await self._archive.receipts(*args, **options)
        self.receipts_read.append(len(result))
        return result


def turn(number: int) -> list[Json]:
    request = f"{GOAL} {RULE}" if number == 0 else f"Now part {number} of the ledger, please."
    path = f"src/ledger/part_{number}.py"
    return [
        user(request),
        *answered(f"r{number}", "Read", lines(f"part{number}", 300), file_path=path),
        *answered(f"e{number}", "Edit", "ok", file_path=path, old_string="a", new_string="b"),
        *answered(f"g{number}", "Bash", f"[x {number:07x}] Part {number}", command="git commit -a"),
        assistant(f"Part {number} of the ledger is renamed."),
    ]


@asynccontextmanager
async def old_session() -> AsyncGenerator[tuple[CountingArchive, list[Json]]]:
    """Yield an archive and the message list after many compactions."""
    async with temporary_archive() as archive:
        counting, messages = CountingArchive(archive), list[Json]()
        for number in range(COMPACTIONS):
            for part in range(6):
                messages = [*messages, *turn(number * 6 + part)]
            result = await compact(messages, REQUEST, archive=counting)  # type: ignore[arg-type]
            assert result.status == "compacted"
            messages = result.messages
        yield counting, messages


async def test_old_session_reads_little_and_keeps_early_facts_through_many_summaries() -> None:
    async with old_session() as (archive, messages):
        assert max(archive.messages_read) == MAX_ORIGINALS
        assert len(archive.messages_read) < 2 * COMPACTIONS
        assert max(archive.receipts_read) < COMPACTIONS / 2
        text = str(messages)
        assert GOAL in text
        assert RULE in text
        [span] = [
            span
            for m in with_confirmed_texts(read(messages))
            if summary_text(m) and (span := removed_span(m))
        ]
        originals = await archive.read_messages(
            "old", span.start_seq, span.stop_seq, head=span.head
        )
        readable = text + str([item.raw for item in originals])
        for number in range(COMPACTIONS * 6 - 6):  # the last turns may still be in the list
            assert f"value_part{number}_" in readable, "the pointer leads to every original"
