"""Completing ids while a person types them: sessions, positions in them, and outputs."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from context_compaction.errors import NotFoundError
from mcp_types import CompleteRequestParams, CompleteResult, Completion

from mcp_server_compaction.protocol.deps import RequestContext

if TYPE_CHECKING:
    from context_compaction.archive import Archive

MAX_VALUES = 100  # the protocol's limit
_PAGE_SIZE = 100
_PACKED = "application/zlib"
_MAX_SESSIONS = 1_000
_RECENT_SESSIONS = 20


async def complete(context: RequestContext, params: CompleteRequestParams) -> CompleteResult:
    """Handle `completion/complete`."""
    archive = await context.lifespan_context.archive()
    typed = params.argument.value
    given = (params.context.arguments if params.context else None) or {}
    match params.argument.name:
        case "session_id":
            values = [name async for name in _session_ids(archive) if name.startswith(typed)]
        case "output_id":
            values = [name async for name in _output_ids(archive) if name.startswith(typed)]
        case "start" | "stop":
            values = await _positions(archive, given.get("session_id", ""), typed)
        case _:
            values = []
    return CompleteResult(
        completion=Completion(
            values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES
        )
    )


async def _session_ids(archive: "Archive") -> AsyncGenerator[str]:
    """Sessions, newest first."""
    cursor: str | None = None
    for _ in range(_MAX_SESSIONS // _PAGE_SIZE):
        sessions, cursor = await archive.sessions(limit=_PAGE_SIZE, cursor=cursor)
        for session in sessions:
            yield session.session_id
        if cursor is None:
            return


async def _output_ids(archive: "Archive") -> AsyncGenerator[str]:
    """Outputs of the newest sessions, newest first, each once."""
    sessions, _ = await archive.sessions(limit=_RECENT_SESSIONS)
    seen: set[str] = set()
    for session in sessions:
        try:
            outputs = await archive.outputs(session.session_id, limit=_PAGE_SIZE)
        except NotFoundError:
            continue  # deleted since
        for output in outputs:
            # What is carried from one summary to the next is packed, and nothing to read.
            if output.output_id not in seen and output.media_type != _PACKED:
                seen.add(output.output_id)
                yield output.output_id


async def _positions(archive: "Archive", session_id: str, typed: str) -> list[str]:
    if not session_id:
        return []
    try:
        info = await archive.session_info(session_id)
    except NotFoundError:
        return []
    return [str(seq) for seq in range(info.message_count) if str(seq).startswith(typed)]
