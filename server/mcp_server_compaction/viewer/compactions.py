"""A compaction's page: the list before and after, what was removed and kept, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Any

from anyio import to_thread
from context_compaction import (
    Archive,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    JsonObject,
    NotFoundError,
    SessionInfo,
    compact_json,
    read_dropped_names,
)

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

_HEADLINES_A_ROW = 40


@dataclass(slots=True)
class Row:
    """A piece of both lists, side by side.

    Attributes:
        kind: "kept" (as it was), "changed" (something of it left), "replaced" or "added".
        before: The entries of the list before.
        after: Those of the list after; empty for "kept", since that is the same.
        headlines: The first entries before, a line each.
        views: The entries after, as they are shown.
    """

    kind: str
    before: list[ContextEntry]
    after: list[ContextEntry] = field(default_factory=list[ContextEntry])
    headlines: list[MessageView] = field(default_factory=list[MessageView])
    views: list[MessageView] = field(default_factory=list[MessageView])

    @property
    def seqs(self) -> list[int]:
        """The numbers of the entries before; -1 for a text of an earlier compaction."""
        return [_number(entry) for entry in self.before]


def rows_of(lists: CompactedLists) -> list[Row]:
    """Both lists aligned by the messages that they share.

    Between two shared messages, the entries before are replaced by those after.
    """
    if lists.after is None:
        return []
    places = {_name(entry): at for at, entry in enumerate(lists.before)}
    rows: list[Row] = []
    made: list[ContextEntry] = []
    at = 0

    def replace(stop: int) -> None:
        """Put what was made since in the place of the entries before up to `stop`."""
        gone = [*lists.before[at:stop]]
        if gone or made:
            rows.append(Row("replaced" if gone else "added", gone, [*made]))
        made.clear()

    for entry in lists.after:
        place = places.get(_name(entry), -1)
        if place < at:
            made.append(entry)
            continue
        replace(place)
        stood = lists.before[place]
        if stood != entry and (entry.seq < 0 or stood.seq != entry.seq):
            rows.append(Row("changed", [stood], [entry]))
        elif rows and rows[-1].kind == "kept":
            rows[-1].before.append(stood)
        else:
            rows.append(Row("kept", [stood]))
        at = place + 1
    replace(len(lists.before))
    return rows


def _name(entry: ContextEntry) -> int | str:
    """The key that entries of one message share: its number, or the text of ours."""
    number = _number(entry)
    return number if number >= 0 else compact_json(entry.raw)


def _number(entry: ContextEntry) -> int:
    return entry.seq if entry.seq >= 0 else entry.source_seq


async def listing(visit: Visit) -> Page:
    """`/sessions/ID/compactions`: all of them, newest first."""
    info = await visit.archive.session_info(visit.path("session_id"))
    stored = await visit.archive.stored_receipts(info.session_id)
    found: list[JsonObject] = [
        {"number": number, "time": iso_time(one.timestamp_seconds), "receipt": one.receipt}
        for number, one in enumerate(stored)
        if is_compaction(one.receipt)
    ]
    document: JsonObject = {"session_id": info.session_id, "compactions": found[::-1]}
    shown = {
        "info": info,
        "times": {number: one.timestamp_seconds for number, one in enumerate(stored)},
        "steps": [step for one in found for step in _step(one["receipt"])],
    }
    return Page("compactions.html", document, shown)


def _step(receipt: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """The messages that a compaction had seen, and the tokens of the context before and after."""
    state: JsonObject = receipt.get("state") or {}
    if "stop_seq" in state and receipt.get("tokens"):
        yield state["stop_seq"] + 1, receipt["tokens"]["before"], receipt["tokens"]["after"]


async def compaction(visit: Visit) -> Page:
    """`/sessions/ID/compactions/N`, or `last`: one of them."""
    info = await visit.archive.session_info(visit.path("session_id"))
    stored = await visit.archive.stored_receipts(info.session_id)
    numbers = [at for at, one in enumerate(stored) if is_compaction(one.receipt)]
    number = _asked(visit.path("number"), info, numbers)
    lists = await visit.archive.compacted_lists(info.session_id, number)
    rows = rows_of(lists)
    changed = count()
    shown_rows = [
        row for row in rows if row.kind != "kept" and (row.kind != "changed" or next(changed) < 150)
    ]
    read = await _read(visit.archive, info.session_id, shown_rows)
    await to_thread.run_sync(_show, info, shown_rows, read)
    losses = await read_dropped_names(visit.archive, info.session_id, number)
    receipt = stored[number].receipt | {"losses": losses}
    document = {
        "session_id": info.session_id,
        "number": number,
        "time": iso_time(stored[number].timestamp_seconds),
        "receipt": receipt,
        "rows": [
            {
                "kind": row.kind,
                "before": row.seqs,
                "after": [{"source_seq": e.source_seq, "message": e.raw} for e in row.after],
            }
            for row in rows
        ],
    }
    shown = {
        "info": info,
        "number": number,
        "seconds": stored[number].timestamp_seconds,
        "receipt": receipt,
        "words": [*sentences(receipt)],
        "rows": rows,
        "earlier": max((at for at in numbers if at < number), default=None),
        "later": min((at for at in numbers if at > number), default=None),
    }
    return Page("compaction.html", document, shown)


def _show(info: SessionInfo, rows: Sequence[Row], read: Mapping[int, ArchivedMessage]) -> None:
    """Give the rows their texts."""
    reading = Reading(info.session_id, info.message_count)
    # What stands there now has no page of its own, so it is shown whole.
    now = Reading(info.session_id, info.message_count, reading.calls, UNFOLD_LINES, UNFOLD_CHARS)
    for row in rows:
        for entry in row.before[:_HEADLINES_A_ROW]:
            if entry.raw:
                number = entry.source_seq
                row.headlines.append(message_view(entry.raw, info.format, reading, seq=number))
            elif entry.seq in read:
                row.headlines += message_views([read[entry.seq]], reading)
        row.views = [message_view(e.raw, info.format, now, seq=-1) for e in row.after]


async def _read(
    archive: Archive, session_id: str, rows: Sequence[Row]
) -> dict[int, ArchivedMessage]:
    """The messages of the headlines by number, neighbours in one read."""
    headlines = (entry for row in rows for entry in row.before[:_HEADLINES_A_ROW])
    seqs = sorted({entry.seq for entry in headlines if not entry.raw})
    found: dict[int, ArchivedMessage] = {}
    for _, run in groupby(enumerate(seqs), lambda pair: pair[1] - pair[0]):
        numbers = [seq for _, seq in run]
        messages = await archive.read_messages(session_id, numbers[0], numbers[-1])
        found |= {message.seq: message for message in messages}
    return found


def _asked(text: str, info: SessionInfo, numbers: Sequence[int]) -> int:
    """The number that an address names.

    Raises:
        NotFoundError: There is no such compaction.
    """
    if text == "last" and numbers:
        return numbers[-1]
    if text in map(str, numbers):
        return int(text)
    which = ", ".join(map(str, numbers[-10:])) or "none"
    raise NotFoundError(f"Session {info.session_id} has no compaction {text[:20]!r}, but {which}.")
