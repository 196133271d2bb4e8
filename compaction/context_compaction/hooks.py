"""Calls of the two hooks, and reports of progress, while a compaction runs.

Both are called at the same moments: when it is certain that something is to be compacted, and when
the result is complete. An exception of a hook is raised as `HookError`; the originals are archived
by then.
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

_BEGUN = 0.62


async def silent(fraction: float, step: str) -> None:
    """Report nothing: the default `ReportProgress`."""


async def tell_before(hook: Hook | None, tell: ReportProgress, stats: CompactionStats) -> None:
    """Report progress and call the hook before anything is compacted.

    Raises:
        HookError: The hook raised; nothing was edited.
    """
    await tell(
        _BEGUN, f"compacting {stats.compacted_blocks} blocks of {stats.tokens_before} tokens"
    )
    remedy = (
        "Nothing was edited; the conversation is archived. Mend the hook, or leave it out, and "
        "call again."
    )
    await _call("before_compaction", hook, stats, remedy)


async def tell_after(
    hook: Hook | None, stats: CompactionStats | None, result: CompactResult
) -> None:
    """Call the hook with the complete result; without `stats` nothing was compacted.

    Raises:
        HookError: The hook raised; the error's `result` holds the compaction's.
    """
    remedy = (
        "The compaction itself stands and is archived: this error's `result` has it. Mend the hook."
    )
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
    """The last line of the progress report."""
    if stats is None:
        return "done"
    return (
        f"done: {stats.tokens_before} -> {stats.tokens_after} tokens, {stats.compacted_blocks} "
        f"blocks compacted, {stats.summary_block_count} summaries"
    )


def chars_teller(tell: ReportProgress) -> TellChars:
    """A function that reports how many characters were written; its share never falls."""
    written = reported = 0

    async def tell_chars(chars: int) -> None:
        nonlocal written, reported
        written += chars
        if written - reported >= 500:
            reported = written
            # Between the beginning and "written", ever slower: nobody knows how long it will get.
            share = 1 - 0.5 ** (written / 4_000)
            await tell(_BEGUN + (0.8 - _BEGUN) * share, f"writing, {written} characters")

    return tell_chars
