"""Hooks and progress reports mark equal moments, and a hook error loses nothing."""

from typing import Any

import pytest
from context_compaction import HookError
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactionStats, CompactResult

from tests.support.promises import temporary_archive
from tests.support.story import story

FULL = CompactRequest(mode="full", format="anthropic", session_id="s")
WINDOW = CompactRequest(format="anthropic", session_id="s", context_window=200_000)


class Recorder:
    """Hooks and a progress function that record their calls in order."""

    def __init__(self) -> None:
        self.moments: list[tuple[str, Any]] = []

    async def before(self, stats: CompactionStats) -> None:
        self.moments.append(("before", stats))

    async def after(self, stats: CompactionStats) -> None:
        self.moments.append(("after", stats))

    async def progress(self, fraction: float, step: str) -> None:
        self.moments.append((step.partition(" ")[0], fraction))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.moments]


async def failing(_stats: CompactionStats) -> None:
    raise ValueError("no disk for the log")


async def test_hooks_and_progress_report_the_same_moments() -> None:
    recorder = Recorder()
    async with temporary_archive() as archive:
        result = await compact(
            story(),
            FULL,
            archive=archive,
            before_compaction=recorder.before,
            after_compaction=recorder.after,
            report_progress=recorder.progress,
        )
    assert recorder.names == [
        "read", "archived", "cleared", "compacting", "before", "written", "after", "done:",
    ]  # fmt: skip
    stats = dict(recorder.moments)["after"]
    assert stats.tokens_before == result.tokens.before
    assert stats.tokens_after == result.tokens.after
    assert stats.compacted_blocks > 0
    assert stats.summary_block_count == str(result.messages).count("<context_summary ") + str(
        result.messages
    ).count("<turn_context ")


async def test_hooks_are_not_called_when_nothing_is_compacted() -> None:
    recorder = Recorder()
    async with temporary_archive() as archive:
        for mode in ("auto", "record", "plan"):
            request = CompactRequest(mode=mode, format="anthropic", context_window=200_000)
            await compact(
                story(),
                request,
                archive=archive,
                before_compaction=recorder.before,
                after_compaction=recorder.after,
            )
    assert recorder.moments == []


async def test_before_hook_error_leaves_the_list_archived_and_unedited() -> None:
    async with temporary_archive() as archive:
        with pytest.raises(
            HookError, match=r"before_compaction raised ValueError: no disk"
        ) as caught:
            await compact(story(), FULL, archive=archive, before_compaction=failing)
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.result is None
        assert len(await archive.read_messages("s", 0, 999)) == len(story())
        assert await archive.receipts("s") == []
        result = await compact(story(), FULL, archive=archive)
    assert result.status == "compacted"


async def test_after_hook_error_contains_the_result() -> None:
    async with temporary_archive() as archive:
        with pytest.raises(HookError, match=r"after_compaction raised ValueError") as caught:
            await compact(story(), FULL, archive=archive, after_compaction=failing)
        result = caught.value.result
        assert isinstance(result, CompactResult)
        assert result.status == "compacted"
        assert len(await archive.receipts("s")) == 1
        _, context = await archive.context("s")
        assert context == result.messages
