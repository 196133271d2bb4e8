"""`compact()`: the straight line from messages to messages that fit."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from context_compaction.archive import Archive
from context_compaction.compaction import CompactRequest, CompactResult
from context_compaction.messages import JsonObject

# Reads the text of a file that lies inside the configured roots; None when it may not or cannot.
ReadFile: TypeAlias = Callable[[str], Awaitable[str | None]]
# Told the fraction done (0 to 1) and a short word for the step.
ReportProgress: TypeAlias = Callable[[float, str], Awaitable[None]]


async def compact(
    payload: Sequence[JsonObject],
    request: CompactRequest | None = None,
    *,
    archive: Archive,
    read_file: ReadFile | None = None,
    report_progress: ReportProgress | None = None,
) -> CompactResult:
    """Archive `payload`, then bring it down to its target."""
    raise NotImplementedError
