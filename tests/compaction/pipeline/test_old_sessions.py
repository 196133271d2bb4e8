"""Repeated compactions of one session cost no more and keep what must stay."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from context_compaction import CompactRequest, compact
from context_compaction.archive import ArchivedMessage, OutputSlice
from context_compaction.archive.local.archive import LocalArchive, open_archive
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
from tests.support.small import answered, assistant, lines, ours, read, user
from tests.support.strategies import hostile_conversations

COMPACTIONS = 18
GOAL = "Rename the ledger of the invoices."
RULE = "Never push to the branch main."
REQUEST = CompactRequest(
    mode="full", format="anthropic", context_window=60_000, session_id="old", policy="default"
)
# What is carried of a whole session, in characters of its JSON; and what it takes packed.
MOST_CHARS = 82_000


class Watched:
    """An archive that tells what was read of it."""

    def __init__(self, archive: LocalArchive) -> None:
        self.messages_read = 0
        self.receipts_read: list[int] = []
        self.carried_chars: list[int] = []
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def read_messages(self, *given: Any, **wanted: Any) -> list[ArchivedMessage]:
        found = await self._archive.read_messages(*given, **wanted)
        self.messages_read += len(found)
        return found

    async def receipts(self, *given: Any, **wanted: Any) -> list[Json]:
        found = await self._archive.receipts(*given, **wanted)
        self.receipts_read.append(len(found))
        return found

    async def read_output(self, output_id: str, **wanted: Any) -> OutputSlice:
        found = await self._archive.read_output(output_id, **wanted)
        if found.info.tool_name == SHORTENED_MESSAGES:
            self.carried_chars.append(chars_of(unpack(found.data)))
        return found


def chars_of(carried: ShortenedMessages) -> int:
    return len(compact_json(as_json(carried)))


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
async def old_session() -> AsyncGenerator[tuple[Watched, list[Json]]]:
    """An archive, and the list after the last of many compactions in it."""
    async with temporary_archive() as archive:
        watched, messages = Watched(archive), list[Json]()
        for number in range(COMPACTIONS):
            for part in range(6):
                messages = [*messages, *turn(number * 6 + part)]
            result = await compact(messages, REQUEST, archive=watched)  # type: ignore[arg-type]
            assert result.status == "compacted"
            messages = result.messages
        yield watched, messages


async def test_compaction_reads_no_summarized_messages_again() -> None:
    async with old_session() as (watched, _):
        assert watched.messages_read == 0
        assert max(watched.receipts_read) < COMPACTIONS / 2
        assert len(watched.carried_chars) >= COMPACTIONS - 1
        assert max(watched.carried_chars) < MOST_CHARS


async def test_early_facts_survive_many_summaries() -> None:
    async with old_session() as (archive, messages):
        told = str(messages)
        assert GOAL in told
        assert RULE in told
        [span] = [
            span for m in ours(read(messages)) if summary_text(m) and (span := removed_span(m))
        ]
        found = await archive.read_messages("old", span.start_seq, span.stop_seq, head=span.head)
        said = told + str([item.raw for item in found])
        for number in range(COMPACTIONS * 6 - 6):  # those before the last are surely gone
            assert f"value_part{number}_" in said, "the pointer leads to every original"


async def test_shortened_originals_contain_no_redacted_secret(tmp_path: Path) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    messages = [user(f"The token is {secret}."), *turn(1), *turn(2), *turn(3)]
    opened = open_archive(tmp_path / "archive", index_root=tmp_path / "index", redaction="on")
    async with opened as archive:
        await compact(messages, REQUEST, archive=archive)
        outputs = await archive.outputs("old")
        ids = [item.output_id for item in outputs if item.tool_name == SHORTENED_MESSAGES]
        packs = [(await archive.read_output(output_id)).data for output_id in ids]
        kept = str([as_json(unpack(data)) for data in packs])
        assert "The token is" in kept
        assert secret not in kept


@given(hostile_conversations("anthropic"))
@settings(max_examples=30)
def test_shortened_originals_survive_packing(payload: list[Json]) -> None:
    messages = read(payload)
    numbers = tuple(range(len(messages)))
    carried = shorten_messages(messages, numbers)
    assert unpack(pack(as_json(carried)).data) == carried
    again = shorten_messages(carried.messages, carried.numbers)
    assert chars_of(again) <= chars_of(carried) <= MOST_CHARS
