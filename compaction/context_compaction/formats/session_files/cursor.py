"""Transcripts of Cursor: a row with `role` and `message` for each message."""

from collections.abc import Sequence

from context_compaction.formats.session_files.model import Session
from context_compaction.formats.session_files.rows import Row, entry_of
from context_compaction.messages.model import JsonObject


def is_row(value: JsonObject) -> bool:
    """Whether only Cursor writes such a row."""
    return "role" in value and "message" in value and "type" not in value


def read(rows: Sequence[Row]) -> Session:
    """Return all messages. A row without content is kept whole, and becomes text."""
    entries = [
        entry_of(
            {"role": row.value.get("role"), "content": content}
            if isinstance(content := row.object("message").get("content"), str | list)
            else row.value,
            row,
        )
        for row in rows
        if "message" in row.value
    ]
    return Session(kind="cursor", format="anthropic", entries=tuple(entries))
