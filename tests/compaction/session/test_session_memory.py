"""A saved summary is used instead of a new one if it is usable."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from context_compaction.archive.archive import Archive
from context_compaction.pipeline import summarize
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.summarizers.llm.model import ModelAnswer, ModelPrompt, ModelUsage, TellChars

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.small import answered, assistant, lines, user
from tests.support.story import SUMMARY, story

SAVED = "## Goal\nThe parser was fixed by rewriting its lexer in handmade_lexer.py."
HOST_WRITES = CompactRequest(
    format="anthropic", session_id="s", summarizer="host", target_tokens=12_000
)
RECORD = replace(HOST_WRITES, mode="record", summary=SAVED, target_tokens=None)


@dataclass
class Model:
    """A model that always writes SUMMARY and counts its requests."""

    writer: str = "test"
    model: str = "test-1"
    window_tokens: int = 200_000
    timeout_seconds: float = 30
    request_count: int = 0

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        self.request_count += 1
        return ModelAnswer(SUMMARY, ModelUsage())


def steps(name: str, calls: int) -> list[Json]:
    return [
        message
        for n in range(calls)
        for message in (
            *answered(f"{name}{n}", "Bash", lines(f"{name}{n}", 60), command=f"{name} {n}"),
            assistant(f"Step {name} {n} is done."),
            user(f"Then {name} {n + 1}."),
        )
    ]


BEFORE = [user("Fix the parser."), *steps("a", 8)]
AFTER = steps("b", 12)
EXACT_BUDGET = {"scale_to_budget": False}


async def record(archive: Archive, payload: list[Json], **options: Any) -> CompactResult:
    return await compact(payload, replace(RECORD, **options), archive=archive)


async def test_saved_summary_is_used_instead_of_a_request() -> None:
    async with temporary_archive() as archive:
        recorded = await record(archive, BEFORE)
        result = await compact(
            [*BEFORE, *AFTER], replace(HOST_WRITES, settings=EXACT_BUDGET), archive=archive
        )
    assert recorded.status == "unchanged"
    [warning] = recorded.warnings
    assert "handmade_lexer.py" in warning, "nobody mentioned this file"
    assert result.status == "compacted"
    assert SAVED in (result.summary or "")
    assert result.receipt["writer"] == "memory"
    used = result.receipt["memory_used"]
    assert used["writer"] == "host"
    assert used["stop_seq"] == len(BEFORE) - 1


@pytest.fixture(autouse=True)
def _wide_gap(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Accept a saved summary that ends a few messages before the cut point."""
    monkeypatch.setattr(summarize, "GAP_SHARE", 20.0)


@pytest.mark.parametrize(
    ("saved", "instructions"),
    [
        ("", ""),
        (SAVED, "Describe the lexer in detail."),
        ("I'm sorry, I cannot help with that.", ""),
    ],
    ids=["none", "other instructions", "refusal"],
)
async def test_host_is_asked_when_no_usable_summary_is_saved(saved: str, instructions: str) -> None:
    request = replace(HOST_WRITES, instructions=instructions, settings=EXACT_BUDGET)
    async with temporary_archive() as archive:
        if saved:
            recorded = await record(archive, BEFORE, summary=saved)
            assert any("is not saved" in text for text in recorded.warnings) == (saved != SAVED)
        result = await compact([*BEFORE, *AFTER], request, archive=archive)
    assert result.status == "needs_summary"


async def test_saved_model_summary_is_not_requested_again() -> None:
    request = CompactRequest(format="anthropic", session_id="s", mode="full", target_tokens=8_000)
    model = Model()
    async with temporary_archive() as archive:
        first = await compact(story(), request, archive=archive, model=model)
        count_before = model.request_count
        again = await compact(story(), request, archive=archive, model=model)
        # The same cut point, but more room.
        request = replace(request, target_tokens=9_500)
        second = await compact(story(), request, archive=archive, model=model)
    assert count_before > 0
    assert first.receipt["writer"] == "test"
    assert again.messages == first.messages
    assert second.receipt["writer"] == "memory"
    assert second.receipt["memory_used"]["writer"] == "test"
    assert model.request_count == count_before
    assert "float arithmetic lost cents" in (second.summary or "")


async def test_recorded_summary_is_no_compaction() -> None:
    request = CompactRequest(format="anthropic", session_id="s", target_tokens=12_000)
    async with temporary_archive() as archive:
        first = await compact([*BEFORE, *AFTER], request, archive=archive)
        await compact(first.messages, RECORD, archive=archive)
        receipts = await archive.receipts("s")
        second = await compact(first.messages, request, archive=archive)
    assert not second.changed
    assert "repeat_key" in receipts[0]["state"]
    assert set(receipts[1]) == {"session_id", "format", "status", "tokens", "state"}
    assert set(receipts[1]["state"]) == {"memory"}


async def test_promises_hold_with_a_saved_summary() -> None:
    async with temporary_archive() as archive:
        await record(archive, BEFORE)
        request = replace(HOST_WRITES, settings=EXACT_BUDGET, summarizer="auto")
        result = await check_promises([*BEFORE, *AFTER], request, archive)
    assert result.receipt["writer"] == "memory"
