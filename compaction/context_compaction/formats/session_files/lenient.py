"""Read what is odd in a session file: bad lines, and messages that the format does not know.

A host skips a line that it cannot read, so every reader here does. A message of an unknown shape
becomes text, because nothing of a conversation may be lost and every result must be valid.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_compaction import formats
from context_compaction.errors import InvalidMessageError
from context_compaction.formats.parsing import (
    list_or_none,
    object_or_none,
    objects_in,
    refuse_constant,
    text_or_none,
)
from context_compaction.formats.session_files.model import Entry, Row
from context_compaction.messages.model import JsonObject, Messages, compact_json, is_list, is_object

# One decoder for all lines: `json.loads` makes a new one each time.
_decode_json = json.JSONDecoder(parse_constant=refuse_constant).decode
_CONTENT_KEYS = ("content", "tool_calls", "parts")
_TEXT_KEYS = ("content", "output", "text", "thinking")
# Rows that are messages, and rows with settings of the host.
_MESSAGE_ROWS = frozenset({
    "user", "assistant", "attachment", "response_item", "compacted", "session_meta", "turn_context",
    "message", "custom_message", "compaction", "branch_summary",
})  # fmt: skip
_QUIET_ROWS = frozenset({"progress", "file-history-snapshot", "system.message"})
_HOLDERS = ("message", "payload", "attachment")
_REPEATING_EVENTS = ("_begin", "_end", "_delta", "token_count")
# Fields with ids, times and settings.
_NO_WORDS = frozenset({
    "type", "subtype", "operation", "level", "timestamp", "uuid", "parentUuid", "id", "parentId",
    "logicalParentUuid", "leafUuid", "sessionId", "agentId", "promptId", "requestId", "toolUseID",
    "cwd", "gitBranch", "version", "userType", "entrypoint", "slug", "turn_id", "call_id",
    "transformedContent", "projectHash", "startTime", "lastUpdated", "model", "status",
})  # fmt: skip
TITLE_ROWS: Mapping[str, str] = {"custom-title": "customTitle", "ai-title": "aiTitle"}


@dataclass(frozen=True, slots=True)
class Lines:
    """The rows of a part of a file.

    Attributes:
        rows: The JSON objects of its whole lines.
        offsets: The byte where each line begins, by its number.
        end: The byte after the last whole line, and the number of that line.
        at_end: Whether the file ends there.
        notes: The lines that were left out.
        unread: The texts of these lines.
    """

    rows: list[Row]
    offsets: dict[int, int]
    end: tuple[int, int]
    at_end: bool
    notes: list[str]
    unread: list[str]


def read_lines(data: bytes, *, offset: int = 0, line: int = 0, at_end: bool = True) -> Lines:
    """Read the whole lines of `data`, which begins at the byte `offset` after line `line`.

    A last line without a newline counts if it is a JSON value and the file ends there.
    """
    found = Lines([], {}, (0, 0), at_end, [], [])
    before = b""
    for text in io.BytesIO(data):
        torn, row = _behind_zeros(text)
        value = json_value(row)
        if not text.endswith(b"\n") and not (at_end and value is not None):
            break  # torn, or still being written
        line += 1
        found.offsets[line] = offset
        offset += len(text)
        # A crash makes a host write a line again, with its time.
        if not (torn or row) or (row == before and b'"timestamp"' in row):
            continue
        before = row
        content = object_or_none(value)
        if content is not None:
            found.rows.append(Row(line, content))
        elif row:
            found.notes.append(f"line {line} is no JSON object and is left out")
            found.unread.append(row.decode("utf-8", "replace"))
        if torn:
            found.notes.append(
                f"line {line}: what stands before zeros, which a crash of the machine left, is "
                "left out"
            )
            found.unread.append(torn.decode("utf-8", "replace"))
    return replace(found, end=(offset, line))


def _behind_zeros(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into what is torn of it, and its row.

    If a machine crashes while a line is written, the file has zeros from there to where the host
    continues with its next line. No JSON has a zero.
    """
    torn, _, row = line.rpartition(b"\0")
    return torn.strip(b"\0").strip(), row.strip()


def json_value(text: bytes) -> Any:
    """The JSON value of a line; None if it has none."""
    try:
        return _decode_json(text.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


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
    raws = [entry.raw for entry in entries]
    readable = list(entries)
    try:
        messages = formats.parse(raws, format=format)
    except InvalidMessageError:
        readable.clear()
        for entry in entries:
            problem = _problem(entry.raw, format)
            found = _readable(entry.raw, format) if problem else [entry.raw]
            readable += [replace(entry, raw=raw) for raw in found]
            if problem:
                place = f"line {entry.line}: a" if entry.line else "a"
                notes.append(f"{place} message has an unknown shape and became text: {problem}")
        messages = formats.parse([entry.raw for entry in readable], format=format)
    timed = tuple(
        message
        if entry.timestamp_seconds is None
        else replace(message, timestamp_seconds=entry.timestamp_seconds)
        for message, entry in zip(messages, readable, strict=True)
    )
    return tuple(readable), timed, tuple(notes)


def _problem(raw: JsonObject, format: str) -> str:
    """What the format does not understand in a message; "" if it understands all."""
    try:
        formats.parse([raw], format=format)
    except InvalidMessageError as error:
        return error.problem
    return ""


def _readable(raw: JsonObject, format: str) -> list[JsonObject]:
    """The blocks of a message that the format understands, and the rest as a text of the host's."""
    message = _with_texts(raw, dict)
    odd: list[Any] = []
    for key in _CONTENT_KEYS:
        blocks = list_or_none(message.get(key))
        if blocks is None:
            continue
        frame = {name: value for name, value in message.items() if name not in _CONTENT_KEYS}
        frame |= {"content": ""} if key == "tool_calls" else {}
        kept: list[Any] = []
        for block in blocks:
            texts = _with_texts(block, dict | list)
            forms = (
                form for form in (block, texts) if not _problem({**frame, key: [form]}, format)
            )
            form = next(forms, None)
            (odd if form is None else kept).append(block if form is None else form)
        message = {**message, key: kept}
    is_empty = not any(message.get(key) for key in _CONTENT_KEYS) and bool(odd)
    if is_empty or _problem(message, format):
        return [_host_message(plain_text(raw), format)]
    return [message, *([_host_message(plain_text(odd), format)] if odd else [])]


def _with_texts(value: Any, kinds: Any) -> Any:
    """`value` with text in place of objects under keys that have text."""
    found = object_or_none(value)
    if found is None:
        return value
    texts = {key: plain_text(found[key]) for key in _TEXT_KEYS if isinstance(found.get(key), kinds)}
    if isinstance(found.get("arguments"), dict | list):
        texts["arguments"] = compact_json(found["arguments"])
    if isinstance(found.get("function"), dict):
        texts["function"] = _with_texts(found["function"], kinds)
    return {**found, **texts}


def _host_message(text: str, format: str) -> JsonObject:
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


def plain_text(value: object) -> str:
    """Each string and number of a JSON value on a line, after its name."""
    return "\n".join(f"{name}: {leaf}" if name else str(leaf) for name, leaf in leaves(value))


def leaves(value: object) -> Iterator[tuple[str, Any]]:
    """The strings and numbers of a JSON value in order, each with the nearest name above it."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, one = waiting.pop()
        if is_object(one):
            waiting += reversed([(key, inner) for key, inner in one.items()])
        elif is_list(one):
            waiting += [(name, inner) for inner in reversed(one)]
        elif one is not None and not isinstance(one, bool) and one != "":
            yield name, one


def asides_of(lines: Lines, entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """What a file says beside its messages: the type of each row and its text."""
    unread = (("unreadable line", text) for text in lines.unread)
    return (*_words_aside(lines.rows, entries), *unread)


def _has_words(name: str, text: str) -> bool:
    """Whether the field `name` can have words; in a damaged row, an ID or a type can too."""
    return name not in _NO_WORDS or (name in ("id", "type") and " " in text)


def _words_aside(rows: Sequence[Row], entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """The words in rows that are no messages: titles, summaries, what the user typed meanwhile.

    Yields:
        The type of the row, and those of its strings that no message repeats.
    """
    said: set[str] = set()
    for entry in entries:
        for name, leaf in leaves(entry.raw):
            given = (
                json_value(str(leaf).encode("utf-8", "surrogatepass"))
                if name == "arguments"
                else leaf
            )
            said |= {str(inner).strip() for _, inner in leaves(given)}
    lines = {entry.line for entry in entries}
    # A chat of Gemini CLI may be one document.
    parts = (Row(row.line, one) for row in rows for one in objects_in(row.value.get("messages")))
    for row in (*rows, *parts):
        kind = str(row.value.get("type") or "row")
        value: Any = row.value
        is_message = kind in _MESSAGE_ROWS and (
            row.line in lines or any(is_object(value.get(key)) for key in _HOLDERS)
        )
        if kind == "user" and is_message:
            # What the model was shown may be a part of this.
            value = object_or_none(value.get("toolUseResult")) or {}
            value = {key: value.get(key) for key in ("stdout", "stderr")}
        elif is_message or kind in _QUIET_ROWS:
            continue
        event = text_or_none((object_or_none(value.get("payload")) or {}).get("type")) or ""
        if event.endswith(_REPEATING_EVENTS) or kind.endswith("_start"):
            continue
        odd = [one for one in list_or_none(value.get("messages")) or () if not is_object(one)]
        texts = [
            leaf
            for name, leaf in leaves({**value, "messages": odd})
            if isinstance(leaf, str) and _has_words(name, leaf) and leaf.strip() not in said
        ]
        if kind in TITLE_ROWS or any(" " in text.strip() for text in texts):
            yield kind, "\n".join(texts)
