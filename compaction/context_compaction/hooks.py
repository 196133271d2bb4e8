"""Who is told of a compaction while it goes on: the two hooks, and the progress of the work.

Both learn of the same moments: when it is certain that something is to be compacted, and when the
result stands. What a hook raises becomes one clear error, and the archive has everything by then.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from context_compaction.errors import HookError
from context_compaction.result import CompactionStats, CompactResult
from context_compaction.summarizers.llm.model import TellChars

# Told what is about to be compacted, or was.
Hook: TypeAlias = Callable[[CompactionStats], Awaitable[None]]
# Told the fraction done (0 to 1) and a short word for the step.
ReportProgress: TypeAlias = Callable[[float, str], Awaitable[None]]

# A growing text is reported after so many more characters of it.
_REPORTED_CHARS = 500
_BEGUN = 0.62
_SLOWER_CHARS = 4_000


async def silent(fraction: float, step: str) -> None:
    """Nobody listens."""


async def tell_before(hook: Hook | None, tell: ReportProgress, stats: CompactionStats) -> None:
    """Tell that something is about to be compacted.

    Raises:
        HookError: The hook raised; nothing was edited.
    """
    await tell(
        _BEGUN, f"compacting {stats.compacted_blocks} blocks of {stats.tokens_before} tokens"
    )
    if hook is None:
        return
    try:
        await hook(stats)
    except Exception as error:
        raise HookError(
            f"The hook before_compaction raised {type(error).__name__}: {error}. Nothing was "
            "edited; the conversation is archived. Mend the hook, or leave it out, and call again."
        ) from error


async def tell_after(
    hook: Hook | None, stats: CompactionStats | None, result: CompactResult
) -> None:
    """Report that the result is complete; without `stats` nothing was to be compacted.

    Raises:
        HookError: The hook raised; the error's `result` has what was done.
    """
    if hook is None or stats is None:
        return
    try:
        await hook(stats)
    except Exception as error:
        raise HookError(
            f"The hook after_compaction raised {type(error).__name__}: {error}. The compaction "
            "itself stands and is archived: this error's `result` has it. Mend the hook.",
            result,
        ) from error


def done_line(stats: CompactionStats | None) -> str:
    """The last word of the progress."""
    if stats is None:
        return "done"
    return (
        f"done: {stats.tokens_before} -> {stats.tokens_after} tokens, {stats.compacted_blocks} "
        f"blocks compacted, {stats.summary_block_count} summaries"
    )


def chars_teller(tell: ReportProgress) -> TellChars:
    """Tells of a text that grows, never backwards, however many are written at once."""
    written = reported = 0

    async def tell_chars(chars: int) -> None:
        nonlocal written, reported
        written += chars
        if written - reported >= _REPORTED_CHARS:
            reported = written
            # Between the beginning and "written", ever slower: nobody knows how long it will get.
            share = 1 - 0.5 ** (written / _SLOWER_CHARS)
            await tell(_BEGUN + (0.8 - _BEGUN) * share, f"writing, {written} characters")

    return tell_chars
