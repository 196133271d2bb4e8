"""Pages of compactions: each message before, next to the words that replace it, and undo."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from anyio import to_thread
from cachetools import LRUCache
from context_compaction import (
    Archive,
    CompactedLists,
    CompactRequest,
    ContextEntry,
    JsonObject,
    MessageCounter,
    NotFoundError,
    QueryError,
    SessionInfo,
    SettingsError,
    StoredReceipt,
    compact,
    compact_json,
    counter_for,
    is_list,
    is_object,
    read_dropped_names,
)
from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from mcp_server_compaction.hosts.session_files import RESUME_FORMATS
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.viewer import blocks, markup
from mcp_server_compaction.viewer.formatting import counted_model, receipt_sentences
from mcp_server_compaction.viewer.marks import is_compaction, newest_receipt, undone_times
from mcp_server_compaction.viewer.web import Page, PageRequest, number_field

# Kinds of rows, in the order in which the page counts them.
KINDS = ("summarized", "truncated", "cleared", "removed", "repaired", "restored", "added", "kept")
_RESTORED = ("<restored_files>", "<open_todos>", "<changed_files>")
_SUMMARY = ("<context_summary ", "<turn_context ")
_MAX_LINES_CHARS = 600  # of the words that replace one message
_LEADING_NUMBER = re.compile(r"\W{0,4}\[(\d{1,9})\]")
_ROWS_PER_PART = 60
_CALL_DISTANCE = 3  # a result is at most so many messages after its call, or has no name


@dataclass(slots=True)
class Row:
    """One row of the comparison.

    A row has one message before it, except two kinds: consecutive messages that were kept are one
    row, and inserted messages are a row without a message before.

    Attributes:
        kind: One of `KINDS`.
        before: Entries of the list before.
        after: Entries of the list after; empty for kept messages, and for messages that others
            replace.
        edits: Edits of the receipt that concern the message.
        replaced_count: For inserted messages, the number of messages that they replace.
        lines: For a summarized message, the lines of the summary that name it.
        is_run: Whether the row stands for all of several kept messages.
    """

    kind: str
    before: list[ContextEntry] = field(default_factory=list[ContextEntry])
    after: list[ContextEntry] = field(default_factory=list[ContextEntry])
    edits: list[JsonObject] = field(default_factory=list[JsonObject])
    replaced_count: int = 0
    lines: list[str] = field(default_factory=list[str])
    is_run: bool = False

    @property
    def seqs(self) -> list[int]:
        """Numbers of the entries before; -1 for a text that an earlier compaction inserted."""
        return [entry.original_seq for entry in self.before]


@dataclass(frozen=True, slots=True)
class RowView:
    """A row as the page shows it.

    Attributes:
        row: The row.
        before: The message before, shortened to a line for each block; None if there is none.
        after: The messages after: shortened in the same way, or in full if they were inserted.
        tokens_before: Tokens of the message before.
        tokens_after: Tokens of the messages after.
        lines: For a summarized message, the words that replace it.
    """

    row: Row
    before: blocks.MessageView | None
    after: Sequence[blocks.MessageView]
    tokens_before: int
    tokens_after: int
    lines: Markup


def rows_of(lists: CompactedLists, receipt: JsonObject) -> list[Row]:
    """Align both lists by their shared messages.

    Between two shared messages, the entries after replace the entries before.

    Args:
        lists: The lists before and after the compaction.
        receipt: Receipt of the compaction; its edits have indices of the caller's list.
    """
    if lists.after is None:
        return []
    earlier = receipt.get("recognised") or {"message_count": 0, "context_count": 0}
    shift = earlier["context_count"] - earlier["message_count"]
    edits: dict[int, list[JsonObject]] = {}
    for edit in receipt.get("edits") or ():
        if edit["index"] is not None:
            edits.setdefault(edit["index"] + shift, []).append(edit)
    index_by_key = {_key(entry): index for index, entry in enumerate(lists.before)}
    rows: list[Row] = []
    inserted: list[ContextEntry] = []
    start = 0

    def add_replaced(stop: int) -> None:
        """Add rows for the inserted entries and for the entries before `stop`."""
        rows.extend(_replaced_rows(lists.before[start:stop], inserted, edits, start))
        inserted.clear()

    for entry in lists.after:
        index = index_by_key.get(_key(entry), -1)
        if index < start:
            # One message may become several entries, for example in a list of items.
            is_same = (
                entry.original_seq >= 0 and rows and rows[-1].seqs[-1:] == [entry.original_seq]
            )
            (rows[-1].after if is_same and not inserted else inserted).append(entry)
            continue
        add_replaced(index)
        before = lists.before[index]
        if before != entry and (entry.seq < 0 or before.seq != entry.seq):
            rows.append(
                Row(_kind_of(edits.get(index, ())), [before], [entry], edits.get(index, []))
            )
        elif rows and rows[-1].kind == "kept":
            rows[-1].before.append(before)
        else:
            rows.append(Row("kept", [before], is_run=True))
        start = index + 1
    add_replaced(len(lists.before))
    return rows


def single_rows(row: Row) -> Sequence[Row]:
    """Return a row for each message of a run of kept messages, or the row itself."""
    return [Row("kept", [entry]) for entry in row.before] if row.is_run else [row]


def _key(entry: ContextEntry) -> int | str:
    """Return a key that all versions of a message share: its number, or else its content."""
    seq = entry.original_seq
    return seq if seq >= 0 else compact_json(entry.raw)


def _kind_of(edits: Sequence[JsonObject]) -> str:
    actions = {edit["action"] for edit in edits}
    if "cleared" in actions:
        return "cleared"
    return "repaired" if actions == {"repaired"} else "truncated"


def _replaced_rows(
    removed: Sequence[ContextEntry],
    inserted: Sequence[ContextEntry],
    edits: Mapping[int, list[JsonObject]],
    start: int,
) -> Iterator[Row]:
    """Yield a row for the inserted entries, and a row for each entry that they replace."""
    kinds = [_inserted_kind(entry) for entry in inserted]
    is_summary = "summarized" in kinds
    for kind, entry in zip(kinds, inserted, strict=True):
        is_first = kind == "summarized" and entry is inserted[kinds.index(kind)]
        at_start = edits.get(start, []) if is_first else []
        own = [edit for edit in at_start if edit["action"] == "summarized"]
        yield Row(kind, [], [entry], own, replaced_count=len(removed) if is_first else 0)
    lines = _lines_by_message(inserted) if is_summary else {}
    kind = "summarized" if is_summary else "removed"
    for index, entry in enumerate(removed, start):
        found = edits.get(index)  # most messages of a long list have no edits
        own = [edit for edit in found if edit["action"] != "summarized"] if found else []
        yield Row(kind, [entry], [], own, 0, lines.get(entry.original_seq) or [])


def _inserted_kind(entry: ContextEntry) -> str:
    text = compact_json(entry.raw)
    if any(mark in text for mark in _SUMMARY):
        return "summarized"
    return "restored" if any(mark in text for mark in _RESTORED) else "added"


def _lines_by_message(inserted: Sequence[ContextEntry]) -> dict[int, list[str]]:
    """Return the lines of the inserted summaries by the number of the message that they name.

    A line without a number belongs to the line before it, up to the next heading.
    """
    lines: dict[int, list[str]] = {}
    for entry in inserted:
        for text in _texts_of(entry.raw):
            seq = -1
            for line in text.split("\n"):
                if match := _LEADING_NUMBER.match(line):
                    seq = int(match[1])
                elif line.startswith(("#", "<")):
                    seq = -1
                if seq >= 0 and line.strip():
                    lines.setdefault(seq, []).append(line)
    return lines


def _texts_of(value: Any) -> Iterator[str]:
    """Yield all strings of a JSON value."""
    if isinstance(value, str):
        yield value
    elif is_object(value) or is_list(value):
        for item in value.values() if is_object(value) else value:
            yield from _texts_of(item)


def row_views(
    rows: Sequence[Row],
    raws: Mapping[int, tuple[JsonObject, str]],
    context: blocks.ViewContext,
    format: str,
    count: MessageCounter,
) -> list[RowView]:
    """Return the views of rows. Blocking, so call it in a thread.

    Args:
        rows: The rows; a run of kept messages has no view of its messages.
        raws: Archived messages with their formats, by number.
        context: Session of the messages.
        format: Format of the messages that are not archived.
        count: Counter of the tokens.
    """
    for raw, own_format in raws.values():
        context.add_calls(blocks.parsed(raw, own_format))
    short = blocks.ViewContext(
        context.session_id, context.message_count, context.calls, max_lines=3, max_chars=400
    )
    # Inserted texts are shown unfolded, because no other page shows them.
    full = blocks.ViewContext(
        context.session_id,
        context.message_count,
        context.calls,
        blocks.UNFOLDED_LINES,
        blocks.UNFOLDED_CHARS,
    )

    def content(entry: ContextEntry) -> tuple[JsonObject, str]:
        return (entry.raw, format) if entry.raw else raws.get(entry.seq, ({}, format))

    views: list[RowView] = []
    for row in rows:
        before = None
        tokens_before = 0
        if row.before and not row.is_run:
            raw, own_format = content(row.before[0])
            before = blocks.message_view(raw, own_format, short, seq=row.seqs[0])
            tokens_before = count.message(blocks.parsed(raw, own_format))
        after_context = short if row.before else full
        after = [blocks.message_view(*content(e), after_context, seq=-1) for e in row.after]
        tokens_after = sum(count.message(blocks.parsed(*content(e))) for e in row.after)
        text = blocks.shorten("\n".join(row.lines), _MAX_LINES_CHARS)
        lines = markup.linked(text, context.session_id, context.message_count)
        views.append(RowView(row, before, after, tokens_before, tokens_after, lines))
    return views


# Rows by session, number and time of the compaction; browsers load one compaction in parts.
_Rows: TypeAlias = LRUCache[tuple[str, int, float], Sequence[Row]]
_RECENT_ROWS: WeakKeyDictionary[Archive, _Rows] = WeakKeyDictionary()


async def compaction_list(request: PageRequest) -> Page:
    """`/sessions/ID/compactions`: all compactions, newest first.

    Repairs and undone compactions have receipts with numbers, too, so they are also listed.
    """
    info = await request.archive.session_info(request.path("session_id"))
    stored = await request.archive.stored_receipts(info.session_id)
    document: JsonObject = {
        "session_id": info.session_id,
        "compactions": [
            {"number": n, "time": iso_time(entry.timestamp_seconds), "receipt": entry.receipt}
            for n, entry in enumerate(stored)
        ][::-1],
    }
    # For the chart: number of messages, and tokens of the context before and after.
    receipts = [entry.receipt for entry in stored if is_compaction(entry.receipt)]
    steps: list[tuple[int, int, int]] = [
        (receipt["state"]["stop_seq"] + 1, receipt["tokens"]["before"], receipt["tokens"]["after"])
        for receipt in receipts
        if "stop_seq" in (receipt.get("state") or ()) and receipt.get("tokens")
    ]
    tokens = receipts[-1]["tokens"] if receipts else None
    values = {"info": info, "steps": steps, "tokens": tokens, "stored": stored}
    values["undone"] = undone_times(stored)
    return Page("compactions.html", document, values)


async def compaction(request: PageRequest) -> Page:
    """`/sessions/ID/compactions/N?show=KIND&from=R`: one compaction; N may be `last`.

    The page shows changed rows, or rows of a kind, or all, starting with row R. It loads later rows
    (`part=rows`) and the names that left the context (`part=losses`) by itself.
    """
    info = await request.archive.session_info(request.path("session_id"))
    stored = await request.archive.stored_receipts(info.session_id)
    numbers = [n for n, receipt in enumerate(stored) if is_compaction(receipt.receipt)]
    number = _requested_number(request.path("number"), info, numbers)
    receipt = stored[number].receipt
    document: JsonObject = {
        "session_id": info.session_id,
        "number": number,
        "time": iso_time(stored[number].timestamp_seconds),
        "receipt": receipt,
    }
    if request.includes("losses"):
        losses = await read_dropped_names(request.archive, info.session_id, number)
        document["receipt"] = receipt | {"losses": losses}
        if request.query.get("part") == "losses":
            return Page("losses.html", document, {"info": info})
    rows = await _rows(request.archive, info.session_id, number, stored[number])
    values = await _row_values(request, info, receipt, rows)
    if request.query.get("part") == "rows":
        return Page("change_rows.html", document, values | {"info": info})
    if request.query.get("format") == "json":
        document["rows"] = [
            {
                "kind": row.kind,
                "before": row.seqs,
                "after": [{"source_seq": e.source_seq, "message": e.raw} for e in row.after],
            }
            for row in rows
        ]
    totals = Counter[str]()
    for row in rows:
        totals[row.kind] += len(row.before) or not row.replaced_count
    values |= {
        "info": info,
        "number": number,
        "seconds": stored[number].timestamp_seconds,
        "receipt": document["receipt"],
        "sentences": [*receipt_sentences(receipt)],
        "totals": {kind: totals[kind] for kind in KINDS if totals[kind]},
        "is_undone": number in undone_times(stored),
        "previous": max((n for n in numbers if n < number), default=None),
        "next": min((n for n in numbers if n > number), default=None),
    }
    return Page("compaction.html", document, values)


async def _rows(
    archive: Archive, session_id: str, number: int, stored: StoredReceipt
) -> Sequence[Row]:
    """Return all rows of a compaction. They never change, so those of recent requests are kept."""
    known = _RECENT_ROWS.setdefault(archive, LRUCache(4))
    key = session_id, number, stored.timestamp_seconds
    if key not in known:
        lists = await archive.compacted_lists(session_id, number)
        known[key] = await to_thread.run_sync(rows_of, lists, stored.receipt)
    return known[key]


async def _row_values(
    request: PageRequest, info: SessionInfo, receipt: JsonObject, rows: Sequence[Row]
) -> dict[str, Any]:
    """Return the template values of one part of the rows.

    Raises:
        QueryError: The kind of rows is unknown.
    """
    show = request.query.get("show", "changes")
    if show not in (*KINDS, "changes", "all"):
        raise QueryError(
            f"Unknown rows {show[:20]!r}. Available: changes, all, {', '.join(KINDS)}."
        )
    # Kept messages are one line between the changes, unless all messages are shown.
    listed = [row for row in rows if show in ("changes", "all", row.kind)]
    if show == "all":
        listed = [one for row in listed for one in single_rows(row)]
    start = min(number_field(request.query, "from") or 0, len(listed))
    part = listed[start : start + _ROWS_PER_PART]
    raws = await _read_raws(request.archive, info.session_id, part)
    count = counter_for(counted_model(receipt))
    context = blocks.ViewContext(info.session_id, info.next_seq)
    views = await to_thread.run_sync(row_views, part, raws, context, info.format, count)
    stop = start + _ROWS_PER_PART
    return {
        "show": show,
        "rows": views,
        "start": start,
        "previous_start": max(0, start - _ROWS_PER_PART) if start else None,
        "next_start": stop if stop < len(listed) else None,
    }


async def _read_raws(
    archive: Archive, session_id: str, rows: Sequence[Row]
) -> dict[int, tuple[JsonObject, str]]:
    """Return the archived messages of rows with their formats, by number, in order.

    Some messages before each are read too, because results do not name their tools.
    """
    entries = (e for row in rows if not row.is_run for e in (*row.before, *row.after))
    seqs = {entry.seq for entry in entries if not entry.raw and entry.seq >= 0}
    wanted = sorted({max(0, seq - back) for seq in seqs for back in range(_CALL_DISTANCE + 1)})
    raws: dict[int, tuple[JsonObject, str]] = {}
    for _, run in groupby(enumerate(wanted), lambda pair: pair[1] - pair[0]):
        run_seqs = [seq for _, seq in run]
        messages = await archive.read_messages(session_id, run_seqs[0], run_seqs[-1])
        raws |= {message.seq: (message.raw, message.format) for message in messages}
    return raws


async def undo(request: PageRequest) -> Page | Response:
    """`POST /sessions/ID/compactions/N/undo`: undo compaction N and all later ones of the list.

    `POST /sessions/ID/put-back` with the field `pointer` puts only messages or an output back. A
    list that does not fit the window is refused with its figures; the form then asks for the
    window, in tokens.
    """
    session_id = request.path("session_id")
    number = request.http.path_params.get("number")
    info = await request.archive.session_info(session_id)
    form = await request.form()
    newest = await newest_receipt(request.archive, session_id, "compacted")
    window = number_field(form, "window") or newest.get("context_window")
    format, context = await request.archive.context(session_id)
    undo_request = CompactRequest(
        mode="undo",
        undo=number,
        restore=form.get("pointer"),
        session_id=session_id,
        format=format,
        model=counted_model(newest) or request.config.model,
        context_window=window,
        policy=newest.get("policy") or request.config.policy,
    )
    try:
        await compact(context, undo_request, archive=request.archive)
    except SettingsError as error:
        document = {"session_id": session_id, "number": number, "error": str(error)}
        values = {"info": info, "window": window, "pointer": undo_request.restore}
        return Page("undo.html", document, values, status=409)
    return RedirectResponse(f"/sessions/{session_id}/undone", 303)


async def undone(request: PageRequest) -> Page:
    """`/sessions/ID/undone`: the newest undo of a session, and how to continue from it."""
    info = await request.archive.session_info(request.path("session_id"))
    receipt = await newest_receipt(request.archive, info.session_id, "undone")
    document = {"session_id": info.session_id, "receipt": receipt or None}
    return Page("undone.html", document, {"info": info, "hosts": tuple(RESUME_FORMATS)})


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
