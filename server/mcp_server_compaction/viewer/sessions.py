"""The list of sessions, newest first."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlencode

from context_compaction import Archive, SessionInfo

from mcp_server_compaction.protocol.sessions import session_document
from mcp_server_compaction.viewer.web import Page, Visit

PAGE_SIZE = 40
# A filter looks at so many sessions at most for one page; the next page goes on from there.
_MOST_LOOKED_AT = 4_000
_CHUNK = 400


async def listing(visit: Visit) -> Page:
    """`/`: a page of sessions; `q` names words of the title or id."""
    words = visit.query.get("q", "")
    cursor = visit.query.get("cursor")
    infos, next_cursor = await matching(visit.archive, words, cursor)
    infos = _as_tree(infos)
    more = None
    if next_cursor:
        more = f"/?{urlencode({'q': words, 'cursor': next_cursor})}"
    document = {"sessions": [session_document(info) for info in infos], "next_page": more}
    rows = [(info, local_day(info.last_seconds)) for info in infos]
    return Page(
        "rows.html" if visit.query.get("part") == "rows" else "sessions.html",
        document,
        {"rows": rows, "more": more, "words": words, "is_first": cursor is None},
    )


async def matching(
    archive: Archive, words: str, cursor: str | None
) -> tuple[list[SessionInfo], str | None]:
    """A page of the sessions with all of the words, and the cursor of the next page."""
    if not words.strip():
        return await archive.sessions(limit=PAGE_SIZE, cursor=cursor)
    wanted = words.casefold().split()
    found: list[SessionInfo] = []
    looked_at = 0
    while len(found) < PAGE_SIZE and looked_at < _MOST_LOOKED_AT:
        infos, cursor = await archive.sessions(limit=_CHUNK, cursor=cursor)
        for info in infos:
            text = f"{info.title} {info.session_id}".casefold()
            if all(word in text for word in wanted):
                found.append(info)
        looked_at += len(infos)
        if cursor is None:
            break
    return found, cursor


def local_day(seconds: float) -> str:
    """The day, as 2026-11-22, by this machine's clock."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d")


def _as_tree(infos: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Sub-agents behind the session that started them, where that is on the same page."""
    here = {info.session_id: at for at, info in enumerate(infos)}

    def place(info: SessionInfo) -> tuple[int, bool]:
        """Where the first of its ancestors is, and whether that is another session."""
        at = here[info.session_id]
        passed = {at}
        while (parent := here.get(infos[at].parent_session_id or "", at)) not in passed:
            at = parent
            passed.add(at)
        return at, at != here[info.session_id]

    return sorted(infos, key=place)
