"""The loss report: what left and stands in the context no more; search finds each of it."""

import json
import re
from typing import Any

import pytest
from context_compaction import CompactRequest, compact
from context_compaction.archive import Archive, Query

from tests.support.corpus import Transcript, all_transcripts, sample_transcripts
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, call, compacted, lines, result, user

TARGET_TOKENS = 4_000
PLACES = "src/app/main.py:17 https://example.org/a?b=1,"
LONG = ("pi/session", "swe-agent/ctf-crypto-katy", "tau-bench/airline-task-3-trial-0")


def long_transcripts() -> list[Transcript]:
    return [item for item in all_transcripts() if item.name in LONG]


def shown(report: Json) -> list[str]:
    """Every name that a report shows."""
    return [name for kind in report["kinds"].values() for name in kind["shown"]]


async def is_found(name: str, archive: Archive) -> bool:
    """Whether one search by the name finds a message or an output that holds it."""
    page = await archive.search(Query(name, session_id="s"))
    for hit in page.hits:
        if hit.kind == "output":
            slice_ = await archive.read_output(hit.pointer.split("/")[0].removeprefix("output://"))
            if name in slice_.data.decode():
                return True
        else:
            [message] = await archive.read_messages("s", hit.seq, hit.seq)
            raw = json.dumps(message.raw, ensure_ascii=False)
            if name in raw or json.dumps(name, ensure_ascii=False)[1:-1] in raw:
                return True
    return False


@pytest.mark.parametrize("transcript", long_transcripts(), ids=lambda item: item.name)
@pytest.mark.parametrize("mode", ["full", "auto"])
async def test_each_reported_name_of_a_real_session_is_gone_and_found_by_search(
    transcript: Transcript, mode: Any
) -> None:
    request = CompactRequest(
        mode=mode, format=transcript.format, session_id="s", target_tokens=TARGET_TOKENS
    )
    async with temporary_archive() as archive:
        answer = await compact(transcript.payload, request, archive=archive)
        [receipt] = await archive.receipts("s")
        report = receipt["losses"]
        assert report == answer.receipt["losses"]
        names = shown(report)
        assert names
        context = json.dumps(answer.messages, ensure_ascii=False)
        assert [name for name in names if name in context] == []
        assert [name for name in names if not await is_found(name, archive)] == []
    assert report["total"] == sum(kind["total"] for kind in report["kinds"].values())
    assert all(len(kind["shown"]) <= min(12, kind["total"]) for kind in report["kinds"].values())


async def test_names_of_every_kind_are_reported_with_honest_totals() -> None:
    payload = [
        user("Look at it, please."),
        *answered("a", "Bash", f"{lines('x')}\n{PLACES}", command="ls"),
        assistant(call("b", "Bash", command="make")),
        user([result("b", "ValueError: port 8443 is taken\n" + lines("y"), is_error=True)]),
        assistant("Done."),
        user("And now?"),
        assistant("Nothing more."),
    ]  # fmt: skip
    answer = await compacted(payload, mode="full", summary="## Goal\nLook.\n## Next step\nWait.")
    report = answer.receipt["losses"]
    context = str(answer.messages)
    # Extracts fill the room that the prose leaves: what they name is not gone.
    expected = {
        "path": "src/app/main.py",
        "url": "https://example.org/a?b=1",
        "error": "ValueError: port 8443 is taken",
    }
    for kind, name in expected.items():
        assert (name in report["kinds"].get(kind, {"shown": []})["shown"]) == (name not in context)
    names = {f"value_{label}_{n * 37}" for label in "xy" for n in range(200)}
    gone = names - set(re.findall(r"value_\w+", context))
    assert report["kinds"]["identifier"]["total"] >= len(gone) > 300
    assert len(report["kinds"]["identifier"]["shown"]) == 12


async def test_what_is_only_cleared_is_reported_and_what_stays_is_not() -> None:
    payload = [
        user("Compare both."),
        *answered("a", "Bash", lines("first"), command="cat one"),
        *answered("b", "Bash", lines("second"), command="cat two"),
        assistant("value_first_37 is the same as before."),
    ]
    answer = await compacted(payload, mode="micro", settings={"keep_recent_results": 1})
    names = shown(answer.receipt["losses"])
    assert any(name.startswith("value_first_") for name in names)
    assert "value_first_37" not in names
    assert not any("second" in name for name in names)


async def test_a_list_that_stays_as_it_is_has_lost_nothing() -> None:
    for transcript in sample_transcripts():
        answer = await compacted(transcript.payload, format=transcript.format, mode="record")
        assert not answer.changed or answer.receipt["losses"] is not None
        if not answer.changed:
            assert answer.receipt["losses"] is None


async def test_our_own_pointers_are_no_losses() -> None:
    payload = [
        message for n in range(6) for message in (
            user(f"Request {n}."),
            *answered(f"k{n}", "Bash", lines(f"out{n}"), command="x"),
            assistant("Done."),
        )
    ]  # fmt: skip
    async with temporary_archive() as archive:
        first = await compact(
            payload, CompactRequest(mode="micro", format="anthropic"), archive=archive
        )
        second = await compact(
            first.messages, CompactRequest(mode="full", format="anthropic"), archive=archive
        )
    assert not any(
        name.startswith(("o_", "transcript")) for name in shown(second.receipt["losses"])
    )
