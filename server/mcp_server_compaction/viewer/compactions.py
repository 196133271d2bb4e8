"""A compaction's page: the list before and after, what was removed and kept, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from context_compaction.archive import (
    Archive,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    SessionInfo,
    StoredReceipt,
)
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import JsonObject, compact_json
from context_compaction.pipeline.losses import read_losses

from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.viewer.blocks import (
    UNFOLD_CHARS,
    UNFOLD_LINES,
    MessageView,
    Reading,
    message_view,
    message_views,
)
from mcp_server_compaction.viewer.web import Page, Visit
from mcp_server_compaction.viewer.words import is_compaction, sentences

# So many messages are read for their headlines and so many changed ones shown; the rest is counted.
_MOST_HEADLINES = 400
_HEADLINES_A_ROW = 40
_MOST_CHANGED = 150
_NONE = -1


@dataclass(frozen=True, slots=True)
class Row:
    """A piece of both lists, side by side.

    Attributes:
        kind: "kept" (as it was), "changed" (something of it left), "replaced" or "added".
        before: The entries of the list before.
        after: Those of the list after; empty for "kept", since that is the same.
    """

    kind: str
    before: tuple[ContextEntry, ...]
    after: tuple[ContextEntry, ...] = ()

    @property
    def seqs(self) -> tuple[int, ...]:
        """The numbers of the entries before; -1 for a text of an earlier compaction."""
        return tuple(map(_number, self.before))


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row with its texts.

    Attributes:
        row: The row.
        headlines: The entries before, a line each.
        more: How many of those are not listed.
        views: The entries after.
    """

    row: Row
    headlines: Sequence[MessageView] = ()
    more: int = 0
    views: Sequence[MessageView] = field(default=())


def rows_of(lists: CompactedLists) -> list[Row]:
    """Both lists aligned by the messages that they share.

    Between two shared messages, the entries before are replaced by those after.
    """
    if lists.after is None:
        return []
    places = {_name(entry): at for at, entry in enumerate(lists.before)}
    rows: list[Row] = []
    at = 0
    made: list[ContextEntry] = []
    for entry in lists.after:
        place = places.get(_name(entry), _NONE)
        if place < at:
            made.append(entry)
            continue
        rows += _between(lists.before[at:place], made)
        stood = lists.before[place]
        same = stood == entry or (entry.seq != _NONE and stood.seq == entry.seq)
        rows.append(Row("kept" if same else "changed", (stood,), () if same else (entry,)))
        at, made = place + 1, []
    return [*_joined([*rows, *_between(lists.before[at:], made)])]


def _between(gone: Sequence[ContextEntry], made: Sequence[ContextEntry]) -> Iterator[Row]:
    if gone:
        yield Row("replaced", tuple(gone), tuple(made))
    elif made:
        yield Row("added", (), tuple(made))


def _joined(rows: Sequence[Row]) -> Iterator[Row]:
    """Neighbours that were kept as one row."""
    run: list[ContextEntry] = []
    for row in rows:
        if row.kind == "kept":
            run += row.before
            continue
        if run:
            yield Row("kept", tuple(run))
            run = []
        yield row
    if run:
        yield Row("kept", tuple(run))


def _name(entry: ContextEntry) -> int | str:
    """The key that entries of one message share: its number, or the text of ours."""
    number = _number(entry)
    return number if number != _NONE else compact_json(entry.raw)


def _number(entry: ContextEntry) -> int:
    return entry.seq if entry.seq != _NONE else entry.source_seq


async def listing(visit: Visit) -> Page:
    """`/sessions/ID/compactions`: all of them, newest first."""
    info = await visit.archive.session_info(visit.path("session_id"))
    stored = await visit.archive.stored_receipts(info.session_id)
    found = [
        {"number": number, "time": iso_time(one.timestamp_seconds), "receipt": one.receipt}
        for number, one in enumerate(stored)
        if is_compaction(one.receipt)
    ]
    found.reverse()
    document: JsonObject = {"session_id": info.session_id, "compactions": found}
    times = {number: one.timestamp_seconds for number, one in enumerate(stored)}
    return Page("compactions.html", document, {"info": info, "times": times})


async def compaction(visit: Visit) -> Page:
    """`/sessions/ID/compactions/N`, or `last`: one of them."""
    info = await visit.archive.session_info(visit.path("session_id"))
    stored = await visit.archive.stored_receipts(info.session_id)
    number = _asked(visit.path("number"), info, stored)
    lists = await visit.archive.compacted_lists(info.session_id, number)
    rows = await _shown_rows(visit.archive, info, rows_of(lists))
    losses = await read_losses(visit.archive, info.session_id, number)
    receipt = stored[number].receipt | {"losses": losses}
    document = {
        "session_id": info.session_id,
        "number": number,
        "time": iso_time(stored[number].timestamp_seconds),
        "receipt": receipt,
        "rows": [_row_document(shown.row) for shown in rows],
    }
    others = [at for at, one in enumerate(stored) if is_compaction(one.receipt)]
    pins: JsonObject = receipt.get("pins") or {}
    return Page(
        "compaction.html",
        document,
        {
            "info": info,
            "number": number,
            "seconds": stored[number].timestamp_seconds,
            "receipt": receipt,
            "words": sentences(receipt),
            "rows": rows,
            "lost": lost_names(receipt, info.session_id),
            "pins": pins.get("carried", ()),
            "left_out": pins.get("left_out", ()),
            "earlier": max((at for at in others if at < number), default=None),
            "later": min((at for at in others if at > number), default=None),
        },
    )


def lost_names(receipt: Mapping[str, Any], session_id: str) -> list[JsonObject]:
    """What the context no longer contains, by kind, each with the search that finds it."""
    losses: JsonObject = receipt.get("losses") or {}
    kinds: dict[str, JsonObject] = losses.get("kinds") or {}
    return [
        {
            "kind": kind,
            "total": found.get("total", 0),
            "names": [
                {"name": name, "search": f"/search?{urlencode(_search_for(name, session_id))}"}
                for name in found.get("shown", ())
            ],
        }
        for kind, found in kinds.items()
    ]


def _search_for(name: str, session_id: str) -> dict[str, str]:
    return {"q": str(name), "kind": "phrase", "session": session_id}


async def _shown_rows(archive: Archive, info: SessionInfo, rows: Sequence[Row]) -> list[ShownRow]:
    """The rows with their texts, read by number: no more than a page can hold."""
    wanted: list[int] = []
    for row in rows:
        if row.kind != "kept":
            wanted += [entry.seq for entry in row.before[:_HEADLINES_A_ROW] if not entry.raw]
    read = await _read(archive, info.session_id, sorted(set(wanted[:_MOST_HEADLINES])))
    return await to_thread.run_sync(_views, info, rows, read)


def _views(
    info: SessionInfo, rows: Sequence[Row], read: Mapping[int, ArchivedMessage]
) -> list[ShownRow]:
    shown: list[ShownRow] = []
    reading = Reading(info.session_id, info.message_count)
    # What stands there now has no page of its own, so it is shown whole.
    now = Reading(info.session_id, info.message_count, reading.calls, UNFOLD_LINES, UNFOLD_CHARS)
    changed = 0
    for row in rows:
        headlines: list[MessageView] = []
        for entry in row.before[:_HEADLINES_A_ROW] if row.kind != "kept" else ():
            if entry.raw:
                number = entry.source_seq
                headlines.append(message_view(entry.raw, info.format, reading, seq=number))
            elif entry.seq in read:
                headlines += message_views([read[entry.seq]], reading)
        changed += row.kind == "changed"
        after = () if row.kind == "changed" and changed > _MOST_CHANGED else row.after
        views = [
            message_view(entry.raw, info.format, now, seq=_NONE, source_seq=entry.source_seq)
            for entry in after
        ]
        shown.append(ShownRow(row, headlines, len(row.before) - len(headlines), views))
    return shown


async def _read(
    archive: Archive, session_id: str, seqs: Sequence[int]
) -> dict[int, ArchivedMessage]:
    """Messages by number, neighbours in one read."""
    found: dict[int, ArchivedMessage] = {}
    start = 0
    for at in range(1, len(seqs) + 1):
        if at == len(seqs) or seqs[at] != seqs[at - 1] + 1:
            run = await archive.read_messages(session_id, seqs[start], seqs[at - 1])
            found |= {message.seq: message for message in run}
            start = at
    return found


def _asked(text: str, info: SessionInfo, stored: Sequence[StoredReceipt]) -> int:
    """The number that an address names.

    Raises:
        NotFoundError: There is no such compaction.
    """
    numbers = [at for at, one in enumerate(stored) if is_compaction(one.receipt)]
    if text == "last" and numbers:
        return numbers[-1]
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) in numbers:
        return int(text)
    which = ", ".join(map(str, numbers[-10:])) or "none"
    raise NotFoundError(f"Session {info.session_id} has no compaction {text[:20]!r}, but {which}.")


def _row_document(row: Row) -> JsonObject:
    return {
        "kind": row.kind,
        "before": list(row.seqs),
        "after": [{"source_seq": entry.source_seq, "message": entry.raw} for entry in row.after],
    }
