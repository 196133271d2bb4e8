"""A session may be compacted again and again: it costs no more, and what must stay stays."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from context_compaction import CompactRequest, compact
from context_compaction.archive import ArchivedMessage, OutputSlice
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.formats import parse
from context_compaction.messages.model import compact_json, tool_results
from context_compaction.messages.placeholders import left_by, summary_text
from context_compaction.messages.tool_results import result_text
from context_compaction.summarizers.extractive.carried import (
    SUMMARIZED_MESSAGES,
    Carried,
    as_json,
    carried_of,
    packed,
    unpacked,
)
from hypothesis import given

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, lines, ours, read, user
from tests.support.strategies import hostile_conversations

COMPACTIONS = 25
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
        if found.info.tool_name == SUMMARIZED_MESSAGES:
            self.carried_chars.append(chars_of(unpacked(found.data)))
        return found


def chars_of(carried: Carried) -> int:
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


async def test_no_compaction_reads_again_what_was_summarised_before() -> None:
    async with old_session() as (watched, _):
        assert watched.messages_read == 0
        assert max(watched.receipts_read) < COMPACTIONS / 2
        assert len(watched.carried_chars) >= COMPACTIONS - 1
        assert max(watched.carried_chars) < MOST_CHARS


async def test_what_was_said_and_done_early_stands_in_the_last_of_many_summaries() -> None:
    async with old_session() as (archive, messages):
        told = str(messages)
        assert GOAL in told
        assert RULE in told
        assert "done, do not repeat: commit" in told
        [span] = [span for m in ours(read(messages)) if summary_text(m) and (span := left_by(m))]
        found = await archive.read_messages("old", span.start_seq, span.stop_seq, head=span.head)
        said = told + str([item.raw for item in found])
        for number in range(COMPACTIONS * 6 - 6):  # those before the last are surely gone
            assert f"value_part{number}_" in said, "the pointer leads to every original"


async def test_what_is_carried_holds_no_secret_that_the_archive_takes_out(tmp_path: Path) -> None:
    secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    messages = [user(f"The token is {secret}."), *turn(1), *turn(2), *turn(3)]
    opened = open_archive(tmp_path / "archive", index_root=tmp_path / "index", redaction="on")
    async with opened as archive:
        await compact(messages, REQUEST, archive=archive)
        outputs = await archive.outputs("old")
        ids = [item.output_id for item in outputs if item.tool_name == SUMMARIZED_MESSAGES]
        packs = [(await archive.read_output(output_id)).data for output_id in ids]
        kept = str([as_json(unpacked(data)) for data in packs])
        assert "The token is" in kept
        assert secret not in kept


@given(hostile_conversations("anthropic"))
def test_what_is_carried_is_the_same_after_it_was_packed(payload: list[Json]) -> None:
    messages = read(payload)
    numbers = tuple(range(len(messages)))
    carried = carried_of(messages, numbers, (), {})
    assert unpacked(packed(as_json(carried)).data) == carried
    again = carried_of(carried.messages, carried.numbers, carried.effects, {})
    assert chars_of(again) <= chars_of(carried) <= MOST_CHARS


def test_what_was_carried_beside_a_tally_is_still_read() -> None:
    tally: Json = {"first": 0, "last": 9, "deeds": {}, "effects": ["git push"]}
    packs = packed({"messages": [[3, "user", [["text", "Go on.", None]]]], "tally": tally})
    found = unpacked(packs.data)
    assert found.effects == ("git push",)
    assert found.numbers == (3,)


def test_what_a_file_says_of_errors_and_commits_is_not_carried_as_the_works_own() -> None:
    # between the two ends that stay of a long answer
    told = "\n".join([lines("a", 40), "ValueError: bad", "[main 1a2b3c4] mend", lines("b", 40)])
    payload = [
        user(GOAL),
        *answered("r", "Read", told, file_path="log.txt"),
        *answered("x", "Bash", told, command="make check"),
    ]
    messages = parse(payload, format="anthropic")
    carried = carried_of(messages, range(len(messages)), (), {}).messages
    of_file, of_command = (result_text(r) for m in carried for r in tool_results(m))
    assert ("ValueError" in of_file, "1a2b3c4" in of_file) == (False, False)
    assert ("ValueError" in of_command, "1a2b3c4" in of_command) == (True, True)


CLEARED = "<local-command-stdout>{}</local-command-stdout>"


def long_turn() -> list[Json]:
    """A running turn of which the agent says something at each step."""
    steps: list[Json] = []
    for n in range(30):
        [called, answer] = answered(f"c{n}", "Bash", lines(f"n{n}", 40), command=f"make step{n}")
        said = f"Step {n} fails because table_{n} has no index on column_{n}; I add it."
        steps += [assistant(said, *called["content"]), answer]
    return [user(GOAL), *steps]


async def test_lines_of_the_host_alone_get_no_summary_of_their_own() -> None:
    payload = [user("<command-name>/clear</command-name>"), user(CLEARED.format("")), *long_turn()]
    async with temporary_archive() as archive:
        wish = CompactRequest(format="anthropic", target_tokens=6_000)
        result = await compact(payload, wish, archive=archive)
    told = compact_json(list(result.messages))
    assert list(result.messages[:2]) == payload[:2]
    assert "<turn_context" in told
    assert "<context_summary" not in told


async def test_lines_of_the_host_beside_a_pin_stay_readable_through_its_frame() -> None:
    payload = [user(CLEARED.format("zephyr")), *long_turn()]
    async with temporary_archive() as archive:
        wish = CompactRequest(format="anthropic", target_tokens=6_000, pinned=("Keep it German.",))
        result = await compact(payload, wish, archive=archive)
    told = compact_json(list(result.messages))
    assert "Keep it German." in told
    assert "zephyr" in told or "/messages/0-0@" in told


async def test_what_nothing_is_told_of_takes_no_room_of_what_is() -> None:
    said: list[int] = []
    for before in ([], [user(CLEARED.format(lines("listed", 30)))]):
        async with temporary_archive() as archive:
            wish = CompactRequest(format="anthropic", target_tokens=3_000)
            result = await compact([*before, *long_turn()], wish, archive=archive)
        told = compact_json(list(result.messages))
        said.append(sum(f"has no index on column_{n};" in told for n in range(30)))
    assert said[1] >= said[0] - 1
