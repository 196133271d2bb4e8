"""Hooks and progress reports of a running compaction.

The `before` hook is called once it is certain that something is compacted, the `after` hook with
the complete result. An exception of a hook becomes a `HookError`; the originals are archived then.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from context_compaction.errors import HookError
from context_compaction.result import CompactionStats, CompactResult
from context_compaction.summarizers.llm.model import TellChars

Hook: TypeAlias = Callable[[CompactionStats], Awaitable[None]]
# Receives the fraction done (0 to 1) and a short name of the step.
ReportProgress: TypeAlias = Callable[[float, str], Awaitable[None]]

_STARTED, _WRITTEN = 0.62, 0.8
_REPORT_EVERY_CHARS = 500


async def silent(fraction: float, step: str) -> None:
    """Report nothing: the default `ReportProgress`."""


async def run_before_hook(
    hook: Hook | None, report_progress: ReportProgress, stats: CompactionStats
) -> None:
    """Report progress and call the hook before anything is compacted.

    Raises:
        HookError: The hook raised; nothing was edited.
    """
    await report_progress(
        _STARTED, f"compacting {stats.compacted_blocks} blocks of {stats.tokens_before} tokens"
    )
    remedy = (
        "Nothing was edited; the conversation is archived. Fix or remove the hook, then call again."
    )
    await _call("before_compaction", hook, stats, remedy)


async def run_after_hook(
    hook: Hook | None, stats: CompactionStats | None, result: CompactResult
) -> None:
    """Call the hook with the complete result; `stats` is None if nothing was compacted.

    Raises:
        HookError: The hook raised; the error's `result` holds the compaction's result.
    """
    remedy = "The compaction succeeded and is archived; see `result` on this error. Fix the hook."
    await _call("after_compaction", hook, stats, remedy, result)


async def _call(
    name: str,
    hook: Hook | None,
    stats: CompactionStats | None,
    remedy: str,
    result: CompactResult | None = None,
) -> None:
    if hook is None or stats is None:
        return
    try:
        await hook(stats)
    except Exception as error:
        problem = f"The hook {name} raised {type(error).__name__}: {error}."
        raise HookError(f"{problem} {remedy}", result) from error


def done_line(stats: CompactionStats | None) -> str:
    """Return the last line of the progress report."""
    if stats is None:
        return "done"
    return (
        f"done: {stats.tokens_before} -> {stats.tokens_after} tokens, {stats.compacted_blocks} "
        f"blocks compacted, {stats.summary_block_count} summaries"
    )


def chars_reporter(report_progress: ReportProgress) -> TellChars:
    """Return a function that reports how many characters of a summary were written."""
    written = reported = 0

    async def report_chars(chars: int) -> None:
        nonlocal written, reported
        written += chars
        if written - reported >= _REPORT_EVERY_CHARS:
            reported = written
            # The final length is unknown, so the reported share approaches the end ever slower.
            share = 1 - 0.5 ** (written / (8 * _REPORT_EVERY_CHARS))
            fraction = _STARTED + (_WRITTEN - _STARTED) * share
            await report_progress(fraction, f"writing, {written} characters")

    return report_chars
