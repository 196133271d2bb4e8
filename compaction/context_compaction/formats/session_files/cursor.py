"""Transcripts of Cursor: a row with `role` and `message` for each message."""

from collections.abc import Sequence

from context_compaction.formats.session_files.model import Entry, Row, Session
from context_compaction.messages.model import JsonObject


def is_row(value: JsonObject) -> bool:
    """Whether only Cursor writes such a row."""
    return "role" in value and "message" in value and "type" not in value


def read(rows: Sequence[Row]) -> Session:
    """Return all messages. A row without content is kept whole, and becomes text."""
    entries: list[Entry] = []
    for row in rows:
        content = row.object("message").get("content")
        is_known = isinstance(content, str | list)
        message: JsonObject = {"role": row.value.get("role"), "content": content}
        raw = message if is_known else row.value
        entries += [row.entry(raw)] if "message" in row.value else []
    return Session(kind="cursor", format="anthropic", entries=tuple(entries))
