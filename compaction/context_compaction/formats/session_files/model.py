"""Values that the readers and writers of session files share: rows, entries and sessions.

A row that this library wrote has a mark, by which an import recognizes it.
"""

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from context_compaction.formats.base import (
    list_or_none,
    object_or_none,
    parse_time,
    refuse_constant,
)
from context_compaction.messages.model import JsonObject, Messages

# Key of the mark in each row of a file that this library wrote. Its value has the ID of the
# archived session that continues in the file, and the fields of the row's message that were added
# or replaced for the host.
MARK = "mcp_server_compaction"

# One decoder for all lines, because `json.loads` creates a new one for each call.
_decode_json = json.JSONDecoder(parse_constant=refuse_constant).decode


@dataclass(frozen=True, slots=True)
class Row:
    """One JSON object of a session file.

    Attributes:
        line: Number of its line, from 1.
        value: The object.
    """

    line: int
    value: JsonObject

    @property
    def kind(self) -> str | None:
        """The `type` of the row; None if it is no string."""
        kind = self.value.get("type")
        return kind if isinstance(kind, str) else None

    def object(self, key: str) -> JsonObject:
        """Return the object under `key`; empty if it has no object."""
        return object_or_none(self.value.get(key)) or {}

    def entry(self, raw: JsonObject) -> "Entry":
        """Return the entry for the message `raw` of this row."""
        return Entry(raw, parse_time(self.value.get("timestamp")), self.line)

    def original_message(self, key: str) -> JsonObject | None:
        """Return the message under `key` as it was before this library added fields for the host.

        None if the row has no message.
        """
        message = object_or_none(self.value.get(key))
        if message is None or MARK not in self.value:
            return message
        mark = self.object(MARK)
        added = list_or_none(mark.get("added")) or ()
        unchanged = {name: value for name, value in message.items() if name not in added}
        return {**unchanged, **(object_or_none(mark.get("replaced")) or {})}


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a session file.

    Attributes:
        raw: The message.
        timestamp_seconds: When it was written, in Unix time; None if the file does not say.
        line: Number of its line, from 1; None if the file has no lines.
    """

    raw: JsonObject
    timestamp_seconds: float | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """The rows of a part of a file.

    Attributes:
        rows: The JSON objects of its complete lines.
        offsets: Position in bytes where each line starts, by the number of the line.
        end: Position in bytes after the last complete line, and the number of that line.
        at_end: Whether the file ends there.
        notes: A sentence for each line that was skipped.
        unread: The texts of the skipped lines.
    """

    rows: list[Row]
    offsets: dict[int, int]
    end: tuple[int, int]
    at_end: bool
    notes: list[str]
    unread: list[str]


def read_lines(data: bytes, *, offset: int = 0, line: int = 0, at_end: bool = True) -> Lines:
    """Read the complete lines of `data`.

    A last line without a newline counts if it is a JSON value and the file ends there.

    Args:
        data: Part of a file.
        offset: Position in bytes of that part in the file.
        line: Number of lines before that part.
        at_end: Whether the file ends after `data`.
    """
    lines = Lines([], {}, (0, 0), at_end, [], [])
    previous = b""
    for text in io.BytesIO(data):
        torn, row = _split_at_zeros(text)
        value = json_value(row)
        if not text.endswith(b"\n") and not (at_end and value is not None):
            break  # The line is torn, or the host is still writing it.
        line += 1
        lines.offsets[line] = offset
        offset += len(text)
        # After a crash hosts write their last line again, with an equal time.
        if not (torn or row) or (row == previous and b'"timestamp"' in row):
            continue
        previous = row
        content = object_or_none(value)
        if content is not None:
            lines.rows.append(Row(line, content))
        elif row:
            lines.notes.append(f"line {line} is no JSON object and is skipped")
            lines.unread.append(row.decode("utf-8", "replace"))
        if torn:
            lines.notes.append(f"line {line}: text torn by a crash of the machine is skipped")
            lines.unread.append(torn.decode("utf-8", "replace"))
    return replace(lines, end=(offset, line))


def _split_at_zeros(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into a torn part and a row.

    If a machine crashes while a line is written, the file has zero bytes from there to the place
    where the host continues with its next line. JSON never contains a zero byte.
    """
    torn, _, row = line.rpartition(b"\0")
    return torn.strip(b"\0").strip(), row.strip()


def json_value(text: bytes) -> Any:
    """Return the JSON value of a line; None if it has none."""
    try:
        return _decode_json(text.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def missing_fields(message: JsonObject, fields: JsonObject) -> JsonObject:
    """Return the items of `fields` that the message lacks."""
    return {key: value for key, value in fields.items() if key not in message}


def content_in_blocks(message: JsonObject, kind: str) -> JsonObject:
    """Return the field `content` as one block of type `kind` if it is a string, else no field."""
    content = message.get("content")
    return {"content": [{"type": kind, "text": content}]} if isinstance(content, str) else {}


def last_reply(messages: Sequence[JsonObject]) -> int | None:
    """Return the index of the last message of the assistant; None without such a message."""
    indexes = range(len(messages) - 1, -1, -1)
    return next((n for n in indexes if messages[n].get("role") == "assistant"), None)


def origin_of(rows: Sequence[Row]) -> str | None:
    """Return the archived session that continues in these rows.

    None if this library did not write them.
    """
    return first_text((row.object(MARK) for row in rows), "session_id")


def nonempty_text(value: object) -> str | None:
    """Return `value` if it is a string with characters, else None."""
    return value if isinstance(value, str) and value else None


def first_text(values: Iterable[JsonObject], key: str) -> str | None:
    """Return the first nonempty string under `key`; None if no value has one."""
    return next((text for value in values if (text := nonempty_text(value.get(key)))), None)


def last_text(values: Iterable[object]) -> str | None:
    """Return the last nonempty string among `values`; None if all are empty."""
    texts = [text for text in map(nonempty_text, values) if text is not None]
    return texts[-1] if texts else None


# Sessions --------------------------------------------------------------------------------------

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.:-]")
# Each branch repeats the messages before its fork. A file with more gives all its rows as one
# branch, so that the work stays linear.
MAX_BRANCHES = 20
_MAX_ID_CHARS = 128


def archive_id(name: str) -> str:
    """Return `name` if it can be a session ID of the archive, else an ID made from it."""
    cleaned = _NOT_IN_IDS.sub("-", name)
    if cleaned == name and 0 < len(name) <= _MAX_ID_CHARS:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{cleaned[:100]}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """Metadata of a conversation in a session file.

    Attributes:
        kind: "claude-code", "codex", "copilot", "gemini-cli", "pi", "opencode" or "messages".
        session_id: The host's ID of the session; None if the file has none.
        cwd: Working folder of the host; None if the file does not say.
        model: The model that was used last; None if the file does not say.
        provider: Provider of that model, as opencode names it.
        system: The system prompt, if it is separate from the messages.
        tools: The tool definitions, if the file has them.
        notes: A sentence for each line or message that was skipped or changed, for people.
        extra_texts: Texts of rows that are no messages, such as titles: the type of the row and
            its text.
    """

    kind: str
    session_id: str | None = None
    cwd: str | None = None
    model: str | None = None
    provider: str | None = None
    system: str | None = None
    tools: list[Any] | None = None
    notes: tuple[str, ...] = ()
    extra_texts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(SessionInfo):
    """The content of a session file before its messages are parsed.

    Attributes:
        format: The format of its messages; None if it must be detected.
        entries: The messages that the host would send to its model next.
    """

    format: str | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(SessionInfo):
    """A conversation as it was in its host's context when the file was written.

    Attributes:
        format: The format of its messages.
        payload: The messages as the host wrote them, one for each of `messages`.
        messages: The parsed messages, with timestamps if the file has them.
    """

    format: str
    payload: list[JsonObject]
    messages: Messages


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """Messages of one session, or of one branch of it, in a part of a file.

    Attributes:
        session_id: The host's ID of the session; None if the rows do not name it.
        parent_session_id: The session that started this one, for a sub-agent.
        format: The format of the messages.
        entries: The messages; may be empty.
        start_line: First line that must be read to find this history again.
        is_new_start: Whether nothing precedes it. Otherwise it continues the newest history of
            its session.
        is_subagent: Whether it belongs to a sub-agent, in the file of its parent session.
        is_abandoned: Whether the user left this branch of the session.
    """

    session_id: str | None
    parent_session_id: str | None
    format: str
    entries: tuple[Entry, ...]
    start_line: int
    is_new_start: bool
    is_subagent: bool = False
    is_abandoned: bool = False


def history_of(
    session: Session,
    rows: list[Row],
    *,
    is_new_start: bool,
    parent_session_id: str | None = None,
    is_abandoned: bool = False,
) -> SessionHistory:
    """Return the messages of `session`, read from `rows`, as a history."""
    return SessionHistory(
        session.session_id,
        parent_session_id,
        session.format or "",
        session.entries,
        rows[0].line,
        is_new_start,
        is_abandoned=is_abandoned,
    )


@dataclass(frozen=True, slots=True)
class NewSession:
    """Metadata that a new session file gets in addition to its messages.

    Attributes:
        session_id: The host's ID of the session, which no other session has.
        origin: The archived session that continues in the file.
        cwd: Working folder of the host.
        seconds: When the file is written, in Unix time.
        tokens: Estimated tokens of its messages. Without this figure the host would trust a usage
            report that its provider made before the compaction.
        title: Title under which people find the session in a list.
        model: The model that was used last.
        provider: Provider of that model, as opencode names it.
    """

    session_id: str
    origin: str
    cwd: str
    seconds: float
    tokens: int
    title: str = ""
    model: str | None = None
    provider: str | None = None

    def timestamp(self, offset_milliseconds: int = 0) -> str:
        """Return the time of writing plus an offset, as ISO 8601 in UTC with milliseconds."""
        moment = datetime.fromtimestamp(self.seconds + offset_milliseconds / 1_000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def with_fields(self, message: JsonObject, fields: JsonObject) -> tuple[JsonObject, JsonObject]:
        """Return `message` with `fields`, and the mark that `Row.original_message` reads."""
        mark: JsonObject = {"session_id": self.origin}
        added: list[Any] = [key for key in fields if key not in message]
        replaced = {
            key: message[key] for key in fields if key in message and message[key] != fields[key]
        }
        mark |= {"added": added} if added else {}
        mark |= {"replaced": replaced} if replaced else {}
        return {**message, **fields}, mark
