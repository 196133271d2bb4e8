"""Repeated compactions of a session stay cheap and keep goals and rules."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from context_compaction import CompactRequest, compact
from context_compaction.archive.archive import Archive
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.values import ArchivedMessage, OutputSlice
from context_compaction.messages.model import compact_json
from context_compaction.messages.placeholders import removed_span, summary_text
from context_compaction.summarizers.extractive.shortened import (
    SHORTENED_MESSAGES,
    ShortenedMessages,
    as_json,
    pack,
    shorten_messages,
    unpack,
)
from hypothesis import given, settings

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, lines, read, user, with_confirmed_texts
from tests.support.strategies import hostile_conversations

COMPACTIONS = 18
GOAL = "Rename the ledger of the invoices."
RULE = "Never push to the branch main."
REQUEST = CompactRequest(
    mode="full", format="anthropic", context_window=60_000, session_id="old", policy="default"
)
# Limit for the shortened originals of a whole session, in characters of JSON.
MAX_CHARS = 82_000


class CountingArchive:
    """An archive that counts its reads.

    Attributes:
        messages_read: Number of messages read.
        receipts_read: Number of receipts returned by each read.
        shortened_chars: Size of the shortened originals at each read, in characters of JSON.
    """

    def __init__(self, archive: Archive) -> None:
        self.messages_read = 0
        self.receipts_read: list[int] = []
        self.shortened_chars: list[int] = []
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def read_messages(self, *args: Any, **options: Any) -> list[ArchivedMessage]:
        result = await self._archive.read_messages(*args, **options)
        self.messages_read += len(result)
        return result

    async def receipts(self, *args: Any, **options: Any) -> list[Json]:
        result = await self._archive.receipts(*args, **options)
        self.receipts_read.append(len(result))
        return result

    async def read_output(self, output_id: str, **options: Any) -> OutputSlice:
        result = await self._archive.read_output(output_id, **options)
        if result.info.tool_name == SHORTENED_MESSAGES:
            self.shortened_chars.append(chars_of(unpack(result.data)))
        return result


def chars_of(shortened: ShortenedMessages) -> int:
    return len(compact_json(as_json(shortened)))


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


async def test_compaction_reads_no_summarized_messages_again() -> None:
    async with old_session() as (counting, _):
        assert counting.messages_read == 0
        assert max(counting.receipts_read) < COMPACTIONS / 2
        assert len(counting.shortened_chars) >= COMPACTIONS - 1
        assert max(counting.shortened_chars) < MAX_CHARS


async def test_early_facts_survive_many_summaries() -> None:
    async with old_session() as (archive, messages):
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


async def test_shortened_originals_contain_no_redacted_secret(tmp_path: Path) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    messages = [user(f"The token is {secret}."), *turn(1), *turn(2), *turn(3)]
    opened = open_archive(tmp_path / "archive", index_root=tmp_path / "index", redaction="on")
    async with opened as archive:
        await compact(messages, REQUEST, archive=archive)
        outputs = await archive.outputs("old")
        ids = [item.output_id for item in outputs if item.tool_name == SHORTENED_MESSAGES]
        packs = [(await archive.read_output(output_id)).data for output_id in ids]
        stored = str([as_json(unpack(data)) for data in packs])
        assert "The token is" in stored
        assert secret not in stored


@given(hostile_conversations("anthropic"))
@settings(max_examples=30)
def test_shortened_originals_survive_packing(payload: list[Json]) -> None:
    messages = read(payload)
    numbers = tuple(range(len(messages)))
    shortened = shorten_messages(messages, numbers)
    assert unpack(pack(as_json(shortened)).data) == shortened
    again = shorten_messages(shortened.messages, shortened.numbers)
    assert chars_of(again) <= chars_of(shortened) <= MAX_CHARS
