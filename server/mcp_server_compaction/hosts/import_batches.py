"""A batch of lines of a session file: which sessions its messages go to, and what is settled.

A host writes one message in several lines, and a result long after its call. So the end of what a
file holds may still change; the line from which it may is where the next reading begins.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from context_compaction import formats
from context_compaction.errors import InvalidMessageError
from context_compaction.formats.parsing import list_or_none, object_or_none, refuse_constant
from context_compaction.formats.session_files.histories import (
    READERS,
    SessionHistory,
    settled_count,
)
from context_compaction.formats.session_files.model import (
    NUL_NOTE,
    Entry,
    Row,
    behind_nuls,
    is_doubled,
)
from context_compaction.formats.session_files.read import decompress
from context_compaction.messages.model import Message

from mcp_server_compaction.hosts.import_journal import Position

# One decoder for all lines: `json.loads` makes a new one each time.
_decode_json = json.JSONDecoder(parse_constant=refuse_constant).decode


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole lines of a file.

    Attributes:
        rows: Their JSON objects.
        offsets: Where each line begins, by its number.
        end: The position after the last one: byte and line.
        at_end: Whether the file ends there.
        notes: Which lines were no JSON.
    """

    rows: list[Row]
    offsets: dict[int, int]
    end: tuple[int, int]
    at_end: bool
    notes: list[str]


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """Messages that go to one session in one call."""

    history: SessionHistory
    session_id: str
    messages: tuple[Message, ...]
    lines: tuple[int, ...]
    begins_anew: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """What a batch holds.

    Attributes:
        pieces: By session and history, in order.
        session_id: The session that the file names first, as far as it names one.
        settled_line: What begins at this line or later may still change; 0 where nothing may.
        notes: What was left out.
    """

    pieces: list[BatchPiece]
    session_id: str | None
    settled_line: int
    notes: list[str]


def batch_of(data: bytes, position: Position, at_end: bool) -> Batch:
    """The whole lines of `data`, which was read at `position`."""
    rows: list[Row] = []
    offsets: dict[int, int] = {}
    notes: list[str] = []
    before = b""
    offset, line = position.offset, position.line
    for text in io.BytesIO(data):
        line += 1
        offsets[line] = offset
        torn, row = behind_nuls(text, b"\0")
        if not text.endswith(b"\n") and not (at_end and _value(row) is not None):
            del offsets[line]  # torn, or still being written
            return Batch(rows, offsets, (offset, line - 1), at_end, notes)
        offset += len(text)
        if not (torn or row) or is_doubled(row, before, b'"timestamp"'):
            continue
        before = row
        found = object_or_none(_value(row))
        if found is not None:
            rows.append(Row(line, found))
        elif row:
            notes.append(f"line {line} is no JSON object and is left out")
        if torn:
            notes.append(NUL_NOTE.format(line))
    return Batch(rows, offsets, (offset, line), at_end, notes)


def whole_batch(data: bytes, name: str) -> Batch:
    """The rows of a whole file, which may be compressed: its lines, or those in its `loglines`.

    Raises:
        UnknownFormatError: The file is damaged or too large.
    """
    data = decompress(data, name)
    document = object_or_none(_value(data)) or {}
    lines = list_or_none(document.get("loglines"))
    if lines is None:
        return batch_of(data, Position((0, 0, 0)), at_end=True)
    found = enumerate(map(object_or_none, lines), start=1)
    rows = [Row(number, row) for number, row in found if row is not None]
    return Batch(rows, {}, (len(data), len(lines)), at_end=True, notes=[])


def _value(text: bytes) -> Any:
    """The JSON value of a line; None where it is none."""
    try:
        return _decode_json(text.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def cut_batch(batch: Batch, position: Position, path: Path) -> Cut:
    """What the batch holds, and from where it may still change.

    The session that spoke last decides: the others have been written to the end.
    """
    histories = READERS[position.kind](batch.rows, position.offset == 0)
    named = (item.session_id for item in histories if not item.is_aside)
    session_id = position.session_id or next(filter(None, named), None)
    notes = list(batch.notes)
    pieces = [_piece(history, session_id or path.stem, notes) for history in histories]
    pieces = [piece for piece in pieces if piece.messages]
    if not pieces:
        return Cut([], session_id, 0, notes)
    last = max(pieces, key=lambda piece: piece.lines[-1])
    settled = settled_count(last.messages)
    is_all_open = settled == 0 and last.begins_anew
    line = last.history.start_line if is_all_open else last.lines[settled]
    return Cut(pieces, session_id, line, notes)


def _piece(history: SessionHistory, session_id: str, notes: list[str]) -> BatchPiece:
    entries = list(history.entries)
    messages: tuple[Message, ...] = ()
    while entries:
        try:
            messages = formats.parse([entry.raw for entry in entries], format=history.format)
            break
        except InvalidMessageError as error:
            left_out = entries.pop(error.index)
            notes.append(f"the message of line {left_out.line} is left out: {error.problem}")
    return BatchPiece(
        history,
        (history.session_id if history.is_aside else None) or session_id,
        tuple(map(_with_time, messages, entries)),
        tuple(entry.line or 0 for entry in entries),
        history.begins_anew,
    )


def _with_time(message: Message, entry: Entry) -> Message:
    return replace(message, timestamp_seconds=entry.timestamp_seconds)


def before(pieces: Sequence[BatchPiece], line: int) -> list[BatchPiece]:
    """The messages that begin before `line`."""
    counts = [sum(number < line or not line for number in piece.lines) for piece in pieces]
    return [
        replace(piece, messages=piece.messages[:count])
        for piece, count in zip(pieces, counts, strict=True)
        if count
    ]


def from_line(pieces: Sequence[BatchPiece], line: int) -> list[BatchPiece]:
    """The messages that begin at `line` or later; they go on after those before it."""
    counts = [sum(number < line or not line for number in piece.lines) for piece in pieces]
    return [
        replace(
            piece, messages=piece.messages[count:], begins_anew=piece.begins_anew and count == 0
        )
        for piece, count in zip(pieces, counts, strict=True)
        if count < len(piece.lines)
    ]
