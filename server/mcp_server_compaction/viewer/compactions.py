"""Pages of compactions: the message list before and after, what was removed, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

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
    UNFOLDED_CHARS,
    UNFOLDED_LINES,
    MessageView,
    ViewContext,
    message_view,
    message_views,
)
from mcp_server_compaction.viewer.formatting import receipt_sentences
from mcp_server_compaction.viewer.removals import is_compaction
from mcp_server_compaction.viewer.web import Page, PageRequest

_HEADLINES_PER_ROW = 40
_MAX_SHOWN_ROWS = 150


@dataclass(slots=True)
class Row:
    """A part of the message list before a compaction, and the same part after it.

    Attributes:
        kind: "kept" (unchanged), "changed" (a shortened message), "replaced" or "added".
        before: Entries of the list before.
        after: Entries of the list after; empty for "kept".
        headlines: Views of the first entries before, to show one line each.
        views: Views of the entries after.
    """

    kind: str
    before: list[ContextEntry]
    after: list[ContextEntry] = field(default_factory=list[ContextEntry])
    headlines: list[MessageView] = field(default_factory=list[MessageView])
    views: list[MessageView] = field(default_factory=list[MessageView])

    @property
    def seqs(self) -> list[int]:
        """Numbers of the entries before; -1 for a text that an earlier compaction inserted."""
        return [entry.original_seq for entry in self.before]


def rows_of(lists: CompactedLists) -> list[Row]:
    """Align both lists by their shared messages.

    Between two shared messages, the entries after replace the entries before.
    """
    if lists.after is None:
        return []
    index_by_key = {_key(entry): index for index, entry in enumerate(lists.before)}
    rows: list[Row] = []
    inserted: list[ContextEntry] = []
    start = 0

    def add_replaced(stop: int) -> None:
        """Add a row for the entries before `stop` and the inserted entries."""
        removed = [*lists.before[start:stop]]
        if removed or inserted:
            rows.append(Row("replaced" if removed else "added", removed, [*inserted]))
        inserted.clear()

    for entry in lists.after:
        index = index_by_key.get(_key(entry), -1)
        if index < start:
            inserted.append(entry)
            continue
        add_replaced(index)
        earlier = lists.before[index]
        if earlier != entry and (entry.seq < 0 or earlier.seq != entry.seq):
            rows.append(Row("changed", [earlier], [entry]))
        elif rows and rows[-1].kind == "kept":
            rows[-1].before.append(earlier)
        else:
            rows.append(Row("kept", [earlier]))
        start = index + 1
    add_replaced(len(lists.before))
    return rows


def _key(entry: ContextEntry) -> int | str:
    """Return a key that all versions of a message share: its number, or else its content."""
    return entry.original_seq if entry.original_seq >= 0 else compact_json(entry.raw)


async def compaction_list(request: PageRequest) -> Page:
    """`/sessions/ID/compactions`: all compactions, newest first."""
    info = await request.archive.session_info(request.path("session_id"))
    stored = await request.archive.stored_receipts(info.session_id)
    numbers = [n for n, receipt in enumerate(stored) if is_compaction(receipt.receipt)]
    compactions: list[JsonObject] = [
        {
            "number": number,
            "time": iso_time(stored[number].timestamp_seconds),
            "receipt": stored[number].receipt,
        }
        for number in reversed(numbers)
    ]
    # For the chart: number of messages, and tokens of the context before and after.
    receipts = [stored[number].receipt for number in numbers]
    steps: list[tuple[int, int, int]] = [
        (receipt["state"]["stop_seq"] + 1, receipt["tokens"]["before"], receipt["tokens"]["after"])
        for receipt in receipts
        if "stop_seq" in (receipt.get("state") or ()) and receipt.get("tokens")
    ]
    times = {number: stored[number].timestamp_seconds for number in numbers}
    document: JsonObject = {"session_id": info.session_id, "compactions": compactions}
    return Page("compactions.html", document, {"info": info, "times": times, "steps": steps})


async def compaction(request: PageRequest) -> Page:
    """`/sessions/ID/compactions/N` or `/last`: one compaction.

    The page loads `part=losses`, the names that left the context, later by itself.
    """
    info = await request.archive.session_info(request.path("session_id"))
    stored = await request.archive.stored_receipts(info.session_id)
    numbers = [n for n, receipt in enumerate(stored) if is_compaction(receipt.receipt)]
    number = _requested_number(request.path("number"), info, numbers)
    document: JsonObject = {
        "session_id": info.session_id,
        "number": number,
        "time": iso_time(stored[number].timestamp_seconds),
        "receipt": stored[number].receipt,
    }
    if request.includes("losses"):
        losses = await read_dropped_names(request.archive, info.session_id, number)
        document["receipt"] = stored[number].receipt | {"losses": losses}
        if request.query.get("part") == "losses":
            return Page("losses.html", document, {"info": info})
    rows = rows_of(await request.archive.compacted_lists(info.session_id, number))
    shown_rows = [row for row in rows if row.kind != "kept"][:_MAX_SHOWN_ROWS]
    archived = await _read_headlines(request.archive, info.session_id, shown_rows)
    await to_thread.run_sync(_add_views, info, shown_rows, archived)
    document["rows"] = [
        {
            "kind": row.kind,
            "before": row.seqs,
            "after": [{"source_seq": e.source_seq, "message": e.raw} for e in row.after],
        }
        for row in rows
    ]
    values = {
        "info": info,
        "number": number,
        "seconds": stored[number].timestamp_seconds,
        "receipt": document["receipt"],
        "sentences": [*receipt_sentences(stored[number].receipt)],
        "rows": rows,
        "previous": max((n for n in numbers if n < number), default=None),
        "next": min((n for n in numbers if n > number), default=None),
    }
    return Page("compaction.html", document, values)


def _add_views(
    info: SessionInfo, rows: Sequence[Row], archived: Mapping[int, ArchivedMessage]
) -> None:
    """Set the headlines and views of the rows."""
    before = ViewContext(info.session_id, info.message_count)
    # Inserted texts are shown unfolded, because no other page shows them.
    after = ViewContext(
        info.session_id, info.message_count, before.calls, UNFOLDED_LINES, UNFOLDED_CHARS
    )
    for row in rows:
        for entry in row.before[:_HEADLINES_PER_ROW]:
            if entry.raw:
                seq = entry.source_seq
                row.headlines.append(message_view(entry.raw, info.format, before, seq=seq))
            elif entry.seq in archived:
                row.headlines += message_views([archived[entry.seq]], before)
        row.views = [message_view(entry.raw, info.format, after, seq=-1) for entry in row.after]


async def _read_headlines(
    archive: Archive, session_id: str, rows: Sequence[Row]
) -> dict[int, ArchivedMessage]:
    """Read the messages of the headlines by number, consecutive messages in one read."""
    entries = (entry for row in rows for entry in row.before[:_HEADLINES_PER_ROW])
    seqs = sorted({entry.seq for entry in entries if not entry.raw})
    archived: dict[int, ArchivedMessage] = {}
    for _, run in groupby(enumerate(seqs), lambda pair: pair[1] - pair[0]):
        numbers = [seq for _, seq in run]
        messages = await archive.read_messages(session_id, numbers[0], numbers[-1])
        archived |= {message.seq: message for message in messages}
    return archived


def _requested_number(text: str, info: SessionInfo, numbers: Sequence[int]) -> int:
    """Return the number of the compaction that an address names.

    Raises:
        NotFoundError: The session has no such compaction.
    """
    if text == "last" and numbers:
        return numbers[-1]
    if text in map(str, numbers):
        return int(text)
    existing = ", ".join(map(str, numbers[-10:])) or "none"
    raise NotFoundError(
        f"Session {info.session_id} has no compaction {text[:20]!r}. Its newest: {existing}."
    )
