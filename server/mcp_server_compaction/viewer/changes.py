"""What a compaction did to each message: the message before, next to the words that replace it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compaction import (
    CompactedLists,
    ContextEntry,
    JsonObject,
    MessageCounter,
    compact_json,
    is_list,
    is_object,
)
from markupsafe import Markup

from mcp_server_compaction.viewer import markup
from mcp_server_compaction.viewer.blocks import (
    UNFOLDED_CHARS,
    UNFOLDED_LINES,
    MessageView,
    ViewContext,
    message_view,
    parsed,
    shorten,
)

# Kinds of rows, in the order in which the page counts them.
KINDS = ("summarized", "truncated", "cleared", "removed", "repaired", "restored", "added", "kept")
_RESTORED = ("<restored_files>", "<open_todos>", "<changed_files>")
_SUMMARY = ("<context_summary ", "<turn_context ")
_MAX_LINES_CHARS = 600  # of the words that replace one message
_LEADING_NUMBER = re.compile(r"\W{0,4}\[(\d{1,9})\]")


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
    before: MessageView | None
    after: Sequence[MessageView]
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
    context: ViewContext,
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
        context.add_calls(parsed(raw, own_format))
    short = ViewContext(
        context.session_id, context.message_count, context.calls, max_lines=3, max_chars=400
    )
    # Inserted texts are shown unfolded, because no other page shows them.
    full = ViewContext(
        context.session_id, context.message_count, context.calls, UNFOLDED_LINES, UNFOLDED_CHARS
    )

    def content(entry: ContextEntry) -> tuple[JsonObject, str]:
        return (entry.raw, format) if entry.raw else raws.get(entry.seq, ({}, format))

    views: list[RowView] = []
    for row in rows:
        before = None
        tokens_before = 0
        if row.before and not row.is_run:
            raw, own_format = content(row.before[0])
            before = message_view(raw, own_format, short, seq=row.seqs[0])
            tokens_before = count.message(parsed(raw, own_format))
        after_context = short if row.before else full
        after = [message_view(*content(e), after_context, seq=-1) for e in row.after]
        tokens_after = sum(count.message(parsed(*content(e))) for e in row.after)
        text = shorten("\n".join(row.lines), _MAX_LINES_CHARS)
        lines = markup.linked(text, context.session_id, context.message_count)
        views.append(RowView(row, before, after, tokens_before, tokens_after, lines))
    return views
