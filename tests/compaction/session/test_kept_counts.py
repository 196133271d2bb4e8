"""Counts are kept with the messages: who begins anew counts nothing again, and answers the same."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from context_compaction import formats
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.local.log import decode_head, encode_line, parse_body
from context_compaction.archive.records import Record, ascii_json
from context_compaction.messages.cache import cache_for
from context_compaction.pipeline.compact import compact
from context_compaction.redaction import RedactionMode
from context_compaction.tokens.counter import counter_for
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compaction.archive.test_faults import file_size_limit
from tests.compaction.session.counting_process import REQUEST
from tests.compaction.session.test_known_list import timeless
from tests.support.json_types import Json
from tests.support.synthetic import synthetic_session

PROCESS = Path(__file__).with_name("counting_process.py")
LIMIT_SECONDS = 240
STORY = synthetic_session(40_000, seed=3)
# As an agent calls: with ever more of it, and the last list twice.
LISTS = [STORY[:-20], STORY[:-4], STORY, STORY]
NO_COUNTS: list[Any] = [None, "x", {}, [], [True], [-1], [7, *range(20)]]
NO_ENTRIES: list[Any] = [None, "x", {}, [], ["zz", "zz", []], ["0" * 32, "0" * 32]]
NO_BODIES: list[Any] = [None, "x", {}, 7]
TOKEN = f"ghp_{'a1B2c3D4e5F6' * 3}"
PLACES = st.integers(0, 1 << 30)


def answered(
    root: Path, lists: Sequence[Sequence[Json]], redaction: RedactionMode = "off"
) -> tuple[list[int], list[Any]]:
    """How many tokens one process counted for each list, and its answers."""
    ran = subprocess.run(
        [sys.executable, PROCESS, root, redaction],
        input="\n".join(map(json.dumps, lists)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    return [counted for counted, _ in found], [timeless(answer) for _, answer in found]


@pytest.mark.timeout(LIMIT_SECONDS)
def test_a_process_that_begins_anew_counts_nothing_that_was_counted(tmp_path: Path) -> None:
    counted, first = answered(tmp_path, LISTS)
    assert all(counted[:3])
    assert counted[3] == 0
    counted, again = answered(tmp_path, [STORY])
    assert counted == [0]
    assert again == first[-1:]


@pytest.mark.timeout(LIMIT_SECONDS)
def test_behind_redaction_only_what_has_secrets_is_counted_again(tmp_path: Path) -> None:
    secret = {"role": "user", "content": f"The token is {TOKEN}; {'go on. ' * 50}"}
    lists = [[*STORY, secret]] * 2
    counted, first = answered(tmp_path, lists, redaction="on")
    assert counted[1] == 0
    anew, again = answered(tmp_path, lists[:1], redaction="on")
    assert 0 < anew[0] < counted[0] / 100
    assert again == first[-1:]
    assert times_archived(tmp_path, TOKEN) == 0


@pytest.mark.timeout(LIMIT_SECONDS)
def test_what_was_counted_without_redaction_is_looked_through_with_it(tmp_path: Path) -> None:
    payload = [*STORY, {"role": "user", "content": f"The token is {TOKEN}."}]
    answered(tmp_path, [payload])
    assert times_archived(tmp_path, TOKEN) == 1
    answered(tmp_path, [[*payload, *payload[:1], payload[-1]]], redaction="on")
    assert times_archived(tmp_path, TOKEN) == 1


def times_archived(root: Path, text: str) -> int:
    return sum(log.read_bytes().count(text.encode()) for log in (root / "archive").rglob("*.jsonl"))


def damaged(line: bytes, how: str, at: int) -> bytes:
    """A line of counts as nobody should trust it."""
    head, body = decode_head(line), parse_body(line)
    assert head is not None
    if how == "a bit":
        place = at % (len(line) - 1)
        return line[:place] + bytes([line[place] ^ 1 << at % 7]) + line[place + 1 :]
    doubled = [[key, content, [2 * count[0], *count[1:]]] for key, content, count in body]
    match how:
        case "another counter":
            head["by"], body = f"0{head['by']}", doubled
        case "another format":
            head["format"], body = "openai-chat", doubled
        case "no counts":
            wrong = NO_COUNTS[at % len(NO_COUNTS)]
            body = [[key, content, wrong] for key, content, _ in body]
        case "no entries":
            body = [NO_ENTRIES[at % len(NO_ENTRIES)]] * len(body)
        case _:
            body = NO_BODIES[at % len(NO_BODIES)]
    return encode_line(Record(head, ascii_json(body)), last=bool(head.pop("last", False)))


def damage_log(root: Path, how: str, at: int) -> None:
    log = log_of(root)
    lines = log.read_bytes().splitlines(keepends=True)
    (place,) = [n for n, line in enumerate(lines) if b'"kind":"counts"' in line]
    lines[place] = damaged(lines[place], how, at)
    log.write_bytes(b"".join(lines))


@pytest.mark.timeout(LIMIT_SECONDS)
@settings(max_examples=10)
@given(
    how=st.sampled_from([
        "a bit",
        "another counter",
        "another format",
        "no count",
        "no entry",
        "no body",
    ]),
    at=PLACES,
)
def test_counts_that_cannot_be_trusted_are_passed_over_and_made_anew(how: str, at: int) -> None:
    async def run() -> None:
        with TemporaryDirectory() as folder, anyio.fail_after(LIMIT_SECONDS):
            root = Path(folder)
            wanted = await called(root)
            damage_log(root, how, at)
            assert await called(root) == wanted
            assert await kept_in(root) == counts_of_story()

    anyio.run(run)


async def called(root: Path) -> Any:
    """The answer of an archive that was just opened, by a process that has counted nothing."""
    cache_for.cache_clear()
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        return timeless(asdict(await compact(STORY, REQUEST, archive=archive)))


async def kept_in(root: Path) -> list[Any]:
    """The counts that the archive holds of the story."""
    async with open_archive(root / "archive", index_root=root / "index") as archive:
        parsed = formats.parse(STORY, format="anthropic")
        name = counter_for().counted_by
        found = await archive.append("s", parsed, format="anthropic", dry_run=True, counted_by=name)
        return list(found.counts)


def counts_of_story() -> list[Any]:
    return [*map(counter_for().count_of, formats.parse(STORY, format="anthropic"))]


def log_of(root: Path) -> Path:
    (log,) = root.glob("archive/sessions/*/*/*.jsonl")
    return log


async def test_a_call_whose_counts_find_no_room_is_answered_as_any_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(LIMIT_SECONDS):
        wanted = await called(tmp_path / "roomy")
        written = log_of(tmp_path / "roomy").read_bytes().splitlines(keepends=True)
        room = sum(len(line) for line in written if b'"kind":"counts"' not in line)
        with file_size_limit(room + 4_000):  # times are not all written alike
            assert await called(tmp_path / "full") == wanted
        assert "could not be kept" in caplog.text
        assert await kept_in(tmp_path / "full") == [None] * len(STORY)
        assert await called(tmp_path / "full") == wanted
        assert await kept_in(tmp_path / "full") == counts_of_story()
