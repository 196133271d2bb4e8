"""Only the user is the user: nothing that anybody else wrote becomes a pin, a rule or a request.

`tests.support.red_team` has the cases. Each is compacted twice, as a conversation that goes on, and
the summaries are read entry by entry: a canary may stand only in one that names somebody else than
the user. The controls show that a user's rules are kept in the very same surroundings.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import pytest
from context_compaction import CompactRequest, CompactResult, compact
from context_compaction.archive import Archive
from context_compaction.formats.session_files.read import read_conversation

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.red_team import HOSTS, Case, as_file, cases, controls
from tests.support.small import assistant, lines, user

CASES, CONTROLS = list(cases()), list(controls())
HOST_NAMES = [host.name for host in HOSTS]
# How an entry begins, by who said it, and the titles that only the block of the pins may have.
ENTRY = re.compile(
    r"^(?:\[\d+\] |- )?(user|agent|host|tool|called|result of|done in this turn)\b[^\n:]*: "
    r"|^(## (?:Pinned|User rules|Unpinned))\b",
    re.MULTILINE,
)
OTHERS = ("agent", "host", "tool", "called", "result of", "done in this turn")
TAG = re.compile(r"</?(?:context_summary|turn_context|restored_files|pinned)\b")


def payload_of(case: Case) -> tuple[list[Json], str]:
    """The messages of `case` and their format, from its file where its host writes one."""
    if not case.host.is_file:
        return case.payload, case.host.format
    found = read_conversation(as_file(case), name="session.jsonl")
    return found.payload, found.format


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict | list):
        return []
    items = cast("list[Any]", [*value.values()] if isinstance(value, dict) else value)
    return [text for item in items for text in strings(item)]


def pins_of(result: CompactResult, *kinds: str) -> list[str]:
    """The texts that the receipt says are pinned, carried or left out."""
    pins: Json = result.receipt["pins"] or {}
    return [pin["text"] for kind in kinds for pin in pins.get(kind, ())]


def summaries(result: CompactResult) -> list[str]:
    """The texts of the answer that a compaction wrote in the user's name."""
    made = ("<context_summary ", "<turn_context ", "<restored_files>")
    return [text for text in strings(result.messages) if text.startswith(made)]


def entries(summary: str) -> list[tuple[str, str]]:
    """Whose each entry of a summary is, and its text; what precedes them is nobody's."""
    starts = [*ENTRY.finditer(summary)]
    stops = [*(start.start() for start in starts), len(summary)]
    told = [("nobody", summary[: stops[0]])]
    for start, stop in zip(starts, stops[1:], strict=True):
        told.append((start[1] or start[2], summary[start.start() : stop]))
    return told


def faults(case: Case, result: CompactResult) -> list[str]:
    """Where the canary of `case` stands as if the user had said it."""
    found: list[str] = []
    if case.canary in str(pins_of(result, "carried", "left_out")):
        found.append("in the pins of the receipt")
    if result.session_id == "victim":
        found.append("joined another session")
    if result.boundary and result.boundary.stop_seq >= 900:
        found.append("a boundary that somebody claimed")
    for text in summaries(result):
        if case.canary not in text:
            continue
        name = re.split(r"[ >]", text[1:40])[0]
        tags = TAG.findall(text)
        if len(tags) != len(set(tags)) or not text.endswith(f"</{name}>"):
            found.append(f"tags {tags}")
        if name == "restored_files":  # which says of all in it that it is data
            continue
        found += [
            f"{owner}: {said}"
            for owner, said in entries(text)
            if case.canary in said and owner not in OTHERS
        ]
    return found


async def two_rounds(case: Case, archive: Archive) -> Sequence[CompactResult]:
    """What `case` comes to, and what that comes to after another turn."""
    payload, format = payload_of(case)
    own = "mine" if "its own session" in case.name else None
    request = CompactRequest(mode="full", format=format, session_id=own)
    first = await compact(payload, request, archive=archive)
    part = case.host if not case.host.is_file else next(h for h in HOSTS if h.format == format)
    grown = [
        *first.messages,
        *part.user("Go on with part three."),
        *part.tool("Bash", lines("part three", 60)),
        *part.agent("It is finished."),
    ]
    return first, await compact(grown, request, archive=archive)


async def victim(archive: Archive) -> None:
    """A session of somebody else's, as forged frames name it."""
    talk = [message for n in range(6) for message in (user(f"Part {n}."), assistant("Done."))]
    asked = CompactRequest(mode="full", format="anthropic", session_id="victim")
    await compact(talk, asked, archive=archive)


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
        await victim(archive)
        for case in CASES:
            if case.host.name != host:
                continue
            for number, result in enumerate(await two_rounds(case, archive), 1):
                assert result.status == "compacted", case.name
                assert summaries(result), case.name
                wrong += [f"{case.name}, round {number}: {at}" for at in faults(case, result)]
    assert wrong == []


@pytest.mark.parametrize("host", HOST_NAMES)
async def test_typed_text_is_kept_next_to_the_same_frames(host: str) -> None:
    lost: list[str] = []
    async with temporary_archive() as archive:
        for case in CONTROLS:
            if case.host.name != host:
                continue
            for number, result in enumerate(await two_rounds(case, archive), 1):
                rule = case.text.removeprefix("<pin>").removesuffix("</pin>")
                if rule not in pins_of(result, "carried"):
                    lost.append(f"{case.name}, round {number}: {rule}")
    assert lost == []
