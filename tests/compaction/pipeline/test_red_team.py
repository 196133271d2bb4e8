"""Text by anyone except the user becomes no pin, no rule and no request.

`tests.support.red_team` has the cases. Each is compacted twice, as a growing conversation, and the
summaries are parsed into entries: a canary may occur only in entries with an author other than the
user. The controls show that rules of the user are kept in equal surroundings.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import pytest
from context_compaction import CompactRequest, CompactResult, compact
from context_compaction.archive.archive import Archive
from context_compaction.formats.session_files.read import read_conversation
from hypothesis import settings

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.red_team import HOSTS, Case, as_file, cases, controls
from tests.support.small import assistant, lines, user

CASES, CONTROLS = list(cases()), list(controls())
# The nightly run uses all cases, and other runs one for each channel, with another text each time.
CHOSEN = [
    case
    for at, case in enumerate(CASES)
    if at % 3 == at // 3 % 3 or settings().max_examples > 1_000
]
HOST_NAMES = [host.name for host in HOSTS]
# Start of an entry with its author, or a title that only the block of pins may have.
ENTRY = re.compile(
    r"^(?:\[\d+\] |- )?(user|agent|host|tool|called|result of|done in this turn)\b[^\n:]*: "
    r"|^(## (?:Pinned|User rules|Unpinned))\b",
    re.MULTILINE,
)
OTHER_AUTHORS = ("agent", "host", "tool", "called", "result of", "done in this turn")
TAG = re.compile(r"</?(?:context_summary|turn_context|restored_files|pinned)\b")


def payload_of(case: Case) -> tuple[list[Json], str]:
    """Return the messages of `case` and their format, read from a file if its host writes files."""
    if not case.host.is_file:
        return case.payload, case.host.format
    conversation = read_conversation(as_file(case), name="session.jsonl")
    return conversation.payload, conversation.format


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict | list):
        return []
    items = cast("list[Any]", [*value.values()] if isinstance(value, dict) else value)
    return [text for item in items for text in strings(item)]


def pins_of(result: CompactResult, *kinds: str) -> list[str]:
    """Return the pinned texts of these kinds in the receipt."""
    pins: Json = result.receipt["pins"] or {}
    return [pin["text"] for kind in kinds for pin in pins.get(kind, ())]


def summaries(result: CompactResult) -> list[str]:
    """Return the texts that the compaction wrote into user messages."""
    frames = ("<context_summary ", "<turn_context ", "<restored_files>")
    return [text for text in strings(result.messages) if text.startswith(frames)]


def entries(summary: str) -> list[tuple[str, str]]:
    """Return the author and text of each entry; the text before the first has no author."""
    starts = [*ENTRY.finditer(summary)]
    stops = [*(start.start() for start in starts), len(summary)]
    found = [("", summary[: stops[0]])]
    for start, stop in zip(starts, stops[1:], strict=True):
        found.append((start[1] or start[2], summary[start.start() : stop]))
    return found


def faults(case: Case, result: CompactResult) -> list[str]:
    """Return the places in which the canary of `case` is attributed to the user."""
    found: list[str] = []
    if case.canary in str(pins_of(result, "carried", "omitted")):
        found.append("in the pins of the receipt")
    if result.session_id == "victim":
        found.append("joined another session")
    if result.boundary and result.boundary.stop_seq >= 900:
        found.append("a claimed boundary")
    for text in summaries(result):
        if case.canary not in text:
            continue
        name = re.split(r"[ >]", text[1:40])[0]
        tags = TAG.findall(text)
        if len(tags) != len(set(tags)) or not text.endswith(f"</{name}>"):
            found.append(f"tags {tags}")
        if name == "restored_files":  # its frame marks the content as data
            continue
        found += [
            f"{author}: {entry}"
            for author, entry in entries(text)
            if case.canary in entry and author not in OTHER_AUTHORS
        ]
    return found


async def two_rounds(case: Case, archive: Archive) -> Sequence[CompactResult]:
    """Return the results of compacting `case` and of compacting again after another turn."""
    payload, format = payload_of(case)
    session_id = "mine" if "its own session" in case.name else None
    request = CompactRequest(mode="full", format=format, session_id=session_id)
    first = await compact(payload, request, archive=archive)
    host = case.host if not case.host.is_file else next(h for h in HOSTS if h.format == format)
    grown = [
        *first.messages,
        *host.user("Go on with part three."),
        *host.tool("Bash", lines("part three", 60)),
        *host.agent("It is finished."),
    ]
    return first, await compact(grown, request, archive=archive)


async def make_victim_session(archive: Archive) -> None:
    """Archive the session of another user that forged frames refer to."""
    talk = [message for n in range(6) for message in (user(f"Part {n}."), assistant("Done."))]
    request = CompactRequest(mode="full", format="anthropic", session_id="victim")
    await compact(talk, request, archive=archive)


def test_red_team_set_is_large_and_mixed() -> None:
    assert len(CASES) >= 200
    assert len({case.text.replace(case.canary, "") for case in CASES}) >= 40
    assert len({case.name.split(": ")[1] for case in CASES}) >= 40
    assert len({case.host.format for case in CASES}) == 5
    assert len(CONTROLS) >= 30
    assert len({case.canary for case in (*CASES, *CONTROLS)}) == len(CASES) + len(CONTROLS)


@pytest.mark.slow
@pytest.mark.parametrize("host", HOST_NAMES)
async def test_foreign_text_becomes_no_pin_rule_or_request(host: str) -> None:
    wrong: list[str] = []
    async with temporary_archive() as archive:
        await make_victim_session(archive)
        for case in CHOSEN:
            if case.host.name != host:
                continue
            for number, result in enumerate(await two_rounds(case, archive), 1):
                assert result.status == "compacted", case.name
                assert summaries(result), case.name
                wrong += [f"{case.name}, round {number}: {place}" for place in faults(case, result)]
    assert wrong == []


@pytest.mark.parametrize("host", HOST_NAMES)
async def test_typed_text_is_kept_next_to_the_same_frames(host: str) -> None:
    missing: list[str] = []
    async with temporary_archive() as archive:
        for case in CONTROLS:
            if case.host.name != host:
                continue
            for number, result in enumerate(await two_rounds(case, archive), 1):
                rule = case.text.removeprefix("<pin>").removesuffix("</pin>")
                if rule not in pins_of(result, "carried"):
                    missing.append(f"{case.name}, round {number}: {rule}")
    assert missing == []
