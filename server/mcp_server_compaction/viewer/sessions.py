"""The list of sessions, newest first, with the figures of each."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from context_compaction.archive import Archive, SessionInfo
from context_compaction.errors import QueryError
from context_compaction.messages.model import JsonObject

from mcp_server_compaction.protocol.sessions import session_document
from mcp_server_compaction.viewer.places import Place, Places
from mcp_server_compaction.viewer.web import Page, Visit

PAGE_SIZE = 40
# A filter looks at so many sessions at most for one page; the next page goes on from there.
_MOST_LOOKED_AT = 4_000
_CHUNK = 400
_CACHED = 2_000


@dataclass(frozen=True, slots=True)
class Filters:
    """What of the sessions is listed; empty means everything."""

    words: str = ""
    format: str = ""
    since: str = ""
    until: str = ""

    def admit(self, info: SessionInfo) -> bool:
        """Whether a session is to be listed."""
        day = local_day(info.last_seconds)
        text = f"{info.title} {info.session_id}".casefold()
        return (
            all(word in text for word in self.words.casefold().split())
            and self.format in ("", info.format)
            and (not self.since or day >= self.since)
            and (not self.until or day <= self.until)
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a session beyond those in the index."""

    compactions: int
    output_count: int
    output_bytes: int


# By tenant, session and the time of its last record: what has not changed is not read again.
_figures: OrderedDict[tuple[str, str, float], Figures] = OrderedDict()


async def listing(visit: Visit) -> Page:
    """`/`: a page of sessions."""
    query = visit.query
    filters = Filters(
        query.get("q", ""),
        query.get("kind", ""),
        _day(query.get("since", "")),
        _day(query.get("until", "")),
    )
    infos, cursor = await matching(visit.archive, filters, query.get("cursor"))
    places: Places | None = visit.request.app.state.places
    held: dict[str, Place] = {}
    if places is not None:
        held = await to_thread.run_sync(places.find, [info.session_id for info in infos])
    rows = [_row(info, visit.archive.tenant, held.get(info.session_id)) for info in _as_tree(infos)]
    more = None
    if cursor:
        kept = {name: value for name, value in query.items() if name not in ("format", "cursor")}
        more = f"/?{urlencode(kept | {'cursor': cursor})}"
    document = {"sessions": [row["document"] for row in rows], "next_page": more}
    return Page(
        "rows.html" if visit.query.get("part") == "rows" else "sessions.html",
        document,
        {"rows": rows, "more": more, "filters": filters, "is_first": "cursor" not in query},
    )


async def matching(
    archive: Archive, filters: Filters, cursor: str | None
) -> tuple[list[SessionInfo], str | None]:
    """A page of the sessions that pass, and the cursor of the next page."""
    if filters == Filters():
        return await archive.sessions(limit=PAGE_SIZE, cursor=cursor)
    found: list[SessionInfo] = []
    looked_at = 0
    while len(found) < PAGE_SIZE and looked_at < _MOST_LOOKED_AT:
        infos, cursor = await archive.sessions(limit=_CHUNK, cursor=cursor)
        found += filter(filters.admit, infos)
        looked_at += len(infos)
        if cursor is None:
            break
    return found, cursor


async def figures_cell(visit: Visit) -> Page:
    """The figures of one row, which are read from the session itself."""
    info = await visit.archive.session_info(visit.path("session_id"))
    figures = await figures_of(visit.archive, info)
    return Page("figures.html", _figures_document(figures), {"figures": figures})


async def figures_of(archive: Archive, info: SessionInfo) -> Figures:
    """The figures of a session, from its receipts and outputs."""
    key = (archive.tenant, info.session_id, info.last_seconds)
    if key not in _figures:
        receipts = await archive.receipts(info.session_id)
        outputs = await archive.outputs(info.session_id)
        _figures[key] = Figures(
            compactions=sum(map(is_compaction, receipts)),
            output_count=len(outputs),
            output_bytes=sum(output.size_bytes for output in outputs),
        )
        if len(_figures) > _CACHED:
            _figures.popitem(last=False)
    return _figures[key]


def is_compaction(receipt: JsonObject) -> bool:
    """Whether a receipt reports a compaction, and not repairs alone."""
    return receipt.get("status") == "compacted"


def local_day(seconds: float) -> str:
    """The day, as 2026-11-22, by this machine's clock."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d")


def _as_tree(infos: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Sub-agents behind the session that started them, where that is on the same page."""
    here = {info.session_id for info in infos}
    children: dict[str, list[SessionInfo]] = {}
    for info in infos:
        if info.parent_session_id in here and info.parent_session_id != info.session_id:
            children.setdefault(info.parent_session_id or "", []).append(info)
    placed: dict[str, SessionInfo] = {}

    def place(info: SessionInfo) -> None:
        if info.session_id not in placed:
            placed[info.session_id] = info
            for child in children.get(info.session_id, ()):
                place(child)

    for info in infos:
        if info.parent_session_id not in here:
            place(info)
    for info in infos:  # what is left is a circle of parents
        place(info)
    return [*placed.values()]


def _row(info: SessionInfo, tenant: str, place: Place | None) -> dict[str, Any]:
    known = _figures.get((tenant, info.session_id, info.last_seconds))
    document = session_document(info)
    if known is not None:
        document |= _figures_document(known)
    if place is not None:
        document |= {"host": place.host, "folder": place.folder}
    return {
        "info": info,
        "figures": known,
        "day": local_day(info.last_seconds),
        "place": place,
        "document": document,
    }


def _figures_document(figures: Figures) -> JsonObject:
    return {
        "compactions": figures.compactions,
        "outputs": figures.output_count,
        "output_bytes": figures.output_bytes,
    }


def _day(text: str) -> str:
    if not text:
        return ""
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d")
    except ValueError as error:
        raise QueryError(f"{text[:40]!r} is no day. Give it as 2026-11-22.") from error
