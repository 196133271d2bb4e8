"""Two branches of a conversation side by side, from where they part."""

from anyio import to_thread
from context_compaction.archive import Archive, ArchivedMessage, History, SessionInfo

from mcp_server_compaction.reading.plain_text import shared_count
from mcp_server_compaction.viewer.blocks import MessageView, Reading, message_views
from mcp_server_compaction.viewer.web import Page, Visit

# Messages of each that are shown behind the fork; the transcript has the rest.
_SHOWN = 30


async def beside(visit: Visit) -> Page:
    """`/sessions/ID/branches/A-B`: how each continues."""
    info = await visit.archive.session_info(visit.path("session_id"))
    sides: list[History] = [
        await visit.archive.history(info.session_id, visit.path(name)) for name in ("left", "right")
    ]
    shared = shared_count(sides[0].seqs, sides[1].seqs)
    shown = [await _side(visit.archive, info, side, shared) for side in sides]
    document = {
        "session_id": info.session_id,
        "shared_count": shared,
        "branches": [{"head": side.head, "messages": side.seqs[shared:]} for side in sides],
    }
    last_shared = sides[0].seqs[shared - 1] if shared else None
    return Page(
        "beside.html",
        document,
        {"info": info, "sides": list(zip(sides, shown, strict=True)), "shared": shared,
         "last_shared": last_shared, "limit": _SHOWN},
    )  # fmt: skip


async def _side(
    archive: Archive, info: SessionInfo, side: History, shared: int
) -> list[MessageView]:
    found: list[ArchivedMessage] = []
    for seq in side.seqs[shared : shared + _SHOWN]:
        found += await archive.read_messages(info.session_id, seq, seq)
    reading = Reading(info.session_id, info.message_count)
    return await to_thread.run_sync(message_views, found, reading)
