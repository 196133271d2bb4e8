"""A saved summary replaces a new one if it is usable."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from context_compaction.archive import Archive
from context_compaction.pipeline import summarize
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.summarizers.llm.model import ModelAnswer, ModelPrompt, ModelUsage, TellChars

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.small import answered, assistant, lines, user
from tests.support.story import SUMMARY, story

WORDS = "## Goal\nThe parser was mended by rewriting its lexer in handmade_lexer.py."
ASK = CompactRequest(format="anthropic", session_id="s", summarizer="host", target_tokens=12_000)
RECORD = replace(ASK, mode="record", summary=WORDS, target_tokens=None)


@dataclass
class Model:
    """A library user's model that writes the same each time, and counts how often it is asked."""

    writer: str = "test"
    model: str = "test-1"
    window_tokens: int = 200_000
    timeout_seconds: float = 30
    asked: int = 0

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        self.asked += 1
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


def told(steps_of: list[Json]) -> list[Json]:
    return [user("Mend the parser."), *steps_of]


BEFORE, AFTER = told(steps("a", 8)), steps("b", 12)


async def recorded(archive: Archive, payload: list[Json], **wishes: Any) -> CompactResult:
    return await compact(payload, replace(RECORD, **wishes), archive=archive)


async def test_saved_summary_is_used_instead_of_a_request() -> None:
    async with temporary_archive() as archive:
        noted = await recorded(archive, BEFORE)
        answer = await compact([*BEFORE, *AFTER], replace(ASK, settings=NEAR), archive=archive)
    assert noted.status == "unchanged"
    assert noted.warnings == ()
    assert answer.status == "compacted"
    assert WORDS in (answer.summary or "")
    assert answer.receipt["writer"] == "memory"
    used = answer.receipt["memory_used"]
    assert used["writer"] == "host"
    assert used["stop_seq"] == len(BEFORE) - 1


NEAR = {"scale_to_budget": False}


@pytest.fixture(autouse=True)
def _wide_gap(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """The cut of these conversations lies a few messages behind the memory's end."""
    monkeypatch.setattr(summarize, "GAP_SHARE", 20.0)


async def test_host_is_asked_when_no_summary_is_saved() -> None:
    async with temporary_archive() as archive:
        answer = await compact([*BEFORE, *AFTER], replace(ASK, settings=NEAR), archive=archive)
    assert answer.status == "needs_summary"


async def test_saved_summary_is_ignored_when_instructions_differ() -> None:
    wishes = replace(ASK, instructions="Dwell on the lexer.", settings=NEAR)
    async with temporary_archive() as archive:
        await recorded(archive, BEFORE)
        answer = await compact([*BEFORE, *AFTER], wishes, archive=archive)
    assert answer.status == "needs_summary"


async def test_saved_model_summary_is_not_requested_again() -> None:
    wish = CompactRequest(format="anthropic", session_id="s", mode="full", target_tokens=8_000)
    model = Model()
    async with temporary_archive() as archive:
        first = await compact(story(), wish, archive=archive, model=model)
        asked = model.asked
        again = await compact(story(), wish, archive=archive, model=model)
        wish = replace(wish, target_tokens=9_500)  # the same cut, and more room
        second = await compact(story(), wish, archive=archive, model=model)
    assert asked > 0
    assert first.receipt["writer"] == "test"
    assert again.messages == first.messages
    assert second.receipt["writer"] == "memory"
    assert second.receipt["memory_used"]["writer"] == "test"
    assert model.asked == asked
    assert "float arithmetic lost cents" in (second.summary or "")


async def test_unusable_summary_is_not_saved_and_warns() -> None:
    async with temporary_archive() as archive:
        noted = await recorded(archive, BEFORE, summary="I'm sorry, I cannot help with that.")
        answer = await compact([*BEFORE, *AFTER], replace(ASK, settings=NEAR), archive=archive)
    assert any("is not saved" in warning for warning in noted.warnings)
    assert answer.status == "needs_summary"


async def test_recorded_summary_is_no_compaction() -> None:
    wish = CompactRequest(format="anthropic", session_id="s", target_tokens=12_000)
    async with temporary_archive() as archive:
        first = await compact([*BEFORE, *AFTER], wish, archive=archive)
        await compact(first.messages, RECORD, archive=archive)
        receipts = await archive.receipts("s")
        second = await compact(first.messages, wish, archive=archive)
    assert not second.changed
    assert "repeat_key" in receipts[0]["state"]
    assert set(receipts[1]) == {"session_id", "format", "status", "tokens", "state"}
    assert set(receipts[1]["state"]) == {"memory"}


async def test_promises_hold_with_a_saved_summary() -> None:
    async with temporary_archive() as archive:
        await recorded(archive, BEFORE)
        wish = replace(ASK, settings=NEAR, summarizer="auto")
        answer = await check_promises([*BEFORE, *AFTER], wish, archive)
    assert answer.receipt["writer"] == "memory"
