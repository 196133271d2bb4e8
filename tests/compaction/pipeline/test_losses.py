"""Names that a compaction dropped from the context; search finds each of them."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from context_compaction import CompactRequest, compact, read_dropped_names
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import Query
from context_compaction.result import CompactResult

from tests.support.corpus import Transcript, all_transcripts, sample_transcripts
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, call, lines, result, user

TARGET_TOKENS = 4_000
PLACES = "src/app/main.py:17 https://example.org/a?b=1,"
LONG = ("pi/session", "swe-agent/ctf-crypto-katy", "tau-bench/airline-task-3-trial-0")


def long_transcripts() -> list[Transcript]:
    return [item for item in all_transcripts() if item.name in LONG]


def shown(report: Json) -> list[str]:
    """Return every name that a report shows."""
    return [name for kind in report["kinds"].values() for name in kind["shown"]]


async def dropped_names_of(archive: Archive, session_id: str = "s") -> Json:
    """Return the names that the newest compaction of a session dropped."""
    report = await read_dropped_names(archive, session_id)
    assert report is not None
    return report


async def compact_and_report(payload: list[Json], **options: Any) -> tuple[Json, CompactResult]:
    """Compact `payload` and return the dropped names and the result."""
    async with temporary_archive() as archive:
        request = CompactRequest(format="anthropic", session_id="s", **options)
        result = await compact(payload, request, archive=archive)
        return await dropped_names_of(archive), result


async def is_found(name: str, archive: Archive) -> bool:
    """Whether a search for the name finds a message or output that contains it."""
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
async def test_dropped_names_are_absent_and_found_by_search(transcript: Transcript) -> None:
    request = CompactRequest(
        mode="full", format=transcript.format, session_id="s", target_tokens=TARGET_TOKENS
    )
    async with temporary_archive() as archive:
        result = await compact(transcript.payload, request, archive=archive)
        report = await dropped_names_of(archive)
        names = shown(report)
        assert names
        context = json.dumps(result.messages, ensure_ascii=False)
        assert [name for name in names if name in context] == []
        assert [name for name in names if not await is_found(name, archive)] == []
    assert report["total"] == sum(kind["total"] for kind in report["kinds"].values())
    assert all(len(kind["shown"]) <= min(12, kind["total"]) for kind in report["kinds"].values())


async def test_dropped_names_report_every_kind_with_exact_totals() -> None:
    payload = [
        user("Look at it, please."),
        *answered("a", "Bash", f"{lines('x')}\n{PLACES}", command="ls"),
        assistant(call("b", "Bash", command="make")),
        user([result("b", "ValueError: port 8443 is taken\n" + lines("y"), is_error=True)]),
        assistant("Done."),
        user("And now?"),
        assistant("Nothing more."),
    ]  # fmt: skip
    summary = "## Goal\nLook.\n## Next step\nWait."
    report, compacted_result = await compact_and_report(payload, mode="full", summary=summary)
    context = str(compacted_result.messages)
    # Extracts fill the rest of the summary, and the names in them are not dropped.
    expected = {
        "path": "src/app/main.py",
        "url": "https://example.org/a?b=1",
    }
    for kind, name in expected.items():
        assert (name in report["kinds"].get(kind, {"shown": []})["shown"]) == (name not in context)
    names = {f"value_{label}_{n * 37}" for label in "xy" for n in range(200)}
    dropped = names - set(re.findall(r"value_\w+", context))
    assert report["kinds"]["identifier"]["total"] >= len(dropped) > 200
    assert len(report["kinds"]["identifier"]["shown"]) == 12


async def test_plan_reports_the_names_that_compaction_drops() -> None:
    for transcript in sample_transcripts():
        request = CompactRequest(
            format=transcript.format, session_id="s", mode="plan", target_tokens=TARGET_TOKENS
        )
        async with temporary_archive() as archive:
            planned = await compact(transcript.payload, request, archive=archive)
            done = await compact(transcript.payload, replace(request, mode="auto"), archive=archive)
            assert ("losses" in planned.receipt) == done.changed
            if done.changed:
                assert planned.receipt["losses"] == await dropped_names_of(archive)


async def test_very_long_list_stores_its_names_so_that_readers_do_not_wait() -> None:
    messages = [
        {"role": role, "content": f"{role} {n} of /srv/part-{n % 50}.py"}
        for n in range(2_501)
        for role in ("user", "assistant")
    ]
    request = CompactRequest(session_id="s", format="anthropic", context_window=20_000)
    async with temporary_archive() as archive:
        result = await compact(messages, request, archive=archive)
        [stored] = await archive.receipts("s")
        assert result.receipt["losses"] == stored["losses"]
        assert stored["losses"]["total"] > 0
        assert await read_dropped_names(archive, "s") == stored["losses"]
