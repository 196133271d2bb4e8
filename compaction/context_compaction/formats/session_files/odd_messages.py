"""Odd content of session files: messages of unknown shapes, and rows that are no messages.

A message of an unknown shape becomes text, because no content may be lost and every result must be
valid. The texts of other rows are kept next to the conversation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_compaction import formats
from context_compaction.errors import InvalidMessageError
from context_compaction.formats.base import (
    leaves,
    list_or_none,
    objects_in,
    plain_text,
    text_or_none,
)
from context_compaction.formats.session_files.model import Entry, Lines, Row, json_value
from context_compaction.messages.model import JsonObject, Messages, is_object

__all__ = ["TITLE_ROWS", "extra_texts", "parse_entries", "plain_text", "text_of_row"]

# Types of rows that contain messages or settings of the host.
_MESSAGE_ROWS = frozenset({
    "user", "assistant", "attachment", "response_item", "compacted", "session_meta", "turn_context",
    "message", "custom_message", "compaction", "branch_summary",
})  # fmt: skip
# Rows of pi whose message has one field of the row, so that the other fields may have words.
_SINGLE_FIELD_ROWS = frozenset({"custom_message", "branch_summary", "compaction"})
_QUIET_ROWS = frozenset({"progress", "file-history-snapshot", "system.message"})
_HOLDERS = ("message", "payload", "attachment")
_REPEATING_EVENTS = ("_begin", "_end", "_delta", "token_count")
# Fields with IDs, times and settings.
_LABELS = frozenset({
    "type", "subtype", "operation", "level", "timestamp", "uuid", "parentUuid", "id", "parentId",
    "logicalParentUuid", "leafUuid", "sessionId", "agentId", "promptId", "requestId", "toolUseID",
    "cwd", "gitBranch", "version", "userType", "entrypoint", "slug", "turn_id", "call_id",
    "transformedContent", "projectHash", "startTime", "lastUpdated", "model", "status",
})  # fmt: skip
TITLE_ROWS: Mapping[str, str] = {"custom-title": "customTitle", "ai-title": "aiTitle"}


def parse_entries(
    entries: Sequence[Entry], format: str
) -> tuple[tuple[Entry, ...], Messages, tuple[str, ...]]:
    """Parse the messages of a session file; a message of an unknown shape becomes text.

    Returns:
        The entries with messages that the format can read, those messages with their times, and
        a note for each entry that was changed.

    Raises:
        InvalidMessageError: The file has too many messages.
    """
    notes: list[str] = []
    readable = list(entries)
    try:
        messages = formats.parse([entry.raw for entry in entries], format=format)
    except InvalidMessageError:
        for number, entry in enumerate(entries):
            try:
                formats.parse([entry.raw], format=format)
            except InvalidMessageError as error:
                raw = _host_message(plain_text(entry.raw), format)
                readable[number] = replace(entry, raw=raw)
                place = f"line {entry.line}: a" if entry.line else "a"
                problem = error.problem
                notes.append(f"{place} message has an unknown shape and became text: {problem}")
        messages = formats.parse([entry.raw for entry in readable], format=format)
    timed = tuple(
        message
        if entry.timestamp_seconds is None
        else replace(message, timestamp_seconds=entry.timestamp_seconds)
        for message, entry in zip(messages, readable, strict=True)
    )
    return tuple(readable), timed, tuple(notes)


def _host_message(text: str, format: str) -> JsonObject:
    """Return a message of the host in the given format."""
    match format:
        case "anthropic":
            return {"role": "user", "content": text, "isMeta": True}
        case "gemini":
            return {"role": "user", "parts": [{"text": text}]}
        case "bedrock-converse":
            return {"role": "user", "content": [{"text": text}]}
        case "pi":
            return {"role": "custom", "content": text}
        case _:
            return {"role": "system", "content": text}


def extra_texts(lines: Lines, entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """Return the texts of a file that are in none of its messages.

    Such texts are titles, summaries, text that the user typed meanwhile, and unreadable lines. Each
    has the type of its row and its text.
    """
    known = _strings_of(entries)
    entry_lines = {entry.line for entry in entries}
    # A chat of Gemini CLI may be one document with all its messages.
    parts = [
        Row(row.line, part) for row in lines.rows for part in objects_in(row.value.get("messages"))
    ]
    texts: list[tuple[str, str]] = []
    for row in (*lines.rows, *parts):
        is_message = row.line in entry_lines and row.kind in {*_MESSAGE_ROWS, "event_msg"}
        is_message |= row.kind in _MESSAGE_ROWS and any(map(row.object, _HOLDERS))
        is_message &= row.kind not in _SINGLE_FIELD_ROWS
        text = "" if is_message and row.kind != "user" else text_of_row(row, known, is_message)
        texts += [(row.kind or "row", text)] if text else []
    return (*texts, *(("unreadable line", text) for text in lines.unread))


def _strings_of(entries: Sequence[Entry]) -> set[str]:
    """Return every string in the messages, also in the arguments of calls."""
    strings: set[str] = set()
    for entry in entries:
        for name, leaf in leaves(entry.raw):
            is_json = name == "arguments"
            data = str(leaf).encode("utf-8", "surrogatepass") if is_json else b""
            strings |= {str(part).strip() for _, part in leaves(json_value(data) if data else leaf)}
    return strings


def text_of_row(
    row: Row, known: set[str] | frozenset[str] = frozenset(), is_message: bool = False
) -> str:
    """Return the strings in a row, one a line; empty if the row only has IDs and settings.

    Args:
        row: The row.
        known: Strings to leave out.
        is_message: Whether the row is a message of the user. Then only the output of its tool is
            returned, because the model may have seen a part of it.
    """
    if row.kind in _QUIET_ROWS:
        return ""
    event = text_or_none(row.object("payload").get("type")) or ""
    if event.endswith(_REPEATING_EVENTS) or (row.kind or "").endswith("_start"):
        return ""
    odd = [item for item in list_or_none(row.value.get("messages")) or () if not is_object(item)]
    value: Any = {**row.value, "messages": odd}
    if is_message:
        output = row.object("toolUseResult")
        value = {key: output.get(key) for key in ("stdout", "stderr")}
    texts = [
        leaf
        for name, leaf in leaves(value)
        if isinstance(leaf, str) and _may_have_words(name, leaf) and leaf.strip() not in known
    ]
    has_words = any(" " in text.strip() for text in texts)
    return "\n".join(texts) if has_words or row.kind in TITLE_ROWS else ""


def _may_have_words(name: str, text: str) -> bool:
    """Whether the field `name` can have words; in a damaged row, an ID or a type can too."""
    return name not in _LABELS or (name in ("id", "type") and " " in text)
