"""Values that the readers and writers of session files share: rows, entries and sessions.

A row that this library wrote has a mark, by which an import recognizes it.
"""

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from context_compaction import formats
from context_compaction.errors import InvalidMessageError
from context_compaction.formats.base import (
    leaves,
    list_or_none,
    object_or_none,
    objects_in,
    parse_time,
    plain_text,
    text_or_none,
)
from context_compaction.messages.model import JsonObject, Messages, decode_json, is_object

# Key of the mark in each row of a file that this library wrote. Its value has the ID of the
# archived session that continues in the file, and the fields of the row's message that were added
# or replaced for the host.
MARK = "mcp_server_compaction"


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
        return decode_json(text.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def missing_fields(message: JsonObject, fields: JsonObject) -> JsonObject:
    """Return the items of `fields` that the message lacks."""
    return {key: value for key, value in fields.items() if key not in message}


def content_in_blocks(message: JsonObject, kind: str) -> JsonObject:
    """Return the field `content` as one block of type `kind` if it is a string, else no field."""
    content = message.get("content")
    return {"content": [{"type": kind, "text": content}]} if isinstance(content, str) else {}


def call_block(call_id: object, name: object, arguments: object) -> JsonObject:
    """Return a call as a block of Anthropic's format."""
    named = {"type": "tool_use", "id": str(call_id), "name": str(name)}
    return {**named, "input": object_or_none(arguments) or {}}


def result_block(call_id: object, text: str, *, is_error: bool) -> JsonObject:
    """Return a result as a block of Anthropic's format."""
    block: JsonObject = {"type": "tool_result", "tool_use_id": str(call_id), "content": text}
    return {**block, "is_error": True} if is_error else block


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
        kind: "claude-code", "codex", "copilot", "gemini-cli", "pi", "opencode", "export" (of chats)
            or "messages".
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
    """Messages of one session, or of one branch of it, before they are parsed.

    Attributes:
        format: The format of the messages; "" if it must be detected.
        entries: The messages; may be empty. A reader of sessions returns those that the host would
            send to its model next, and a reader of histories all in a part of a file.
        parent_session_id: The session that started this one, for a sub-agent.
        start_line: First line that must be read to find this history again.
        is_new_start: Whether nothing precedes it. Otherwise it continues the newest history of
            its session.
        is_subagent: Whether it belongs to a sub-agent, in the file of its parent session.
        is_abandoned: Whether the user left this branch of the session.
    """

    format: str
    entries: tuple[Entry, ...]
    parent_session_id: str | None = None
    start_line: int = 1
    is_new_start: bool = True
    is_subagent: bool = False
    is_abandoned: bool = False


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


def histories_of(
    branches: Sequence[list[Row]],
    read: Callable[[Sequence[Row]], Session],
    *,
    is_new_start: bool,
    parent_session_id: str | None = None,
) -> list[Session]:
    """Return the history of each branch that has rows; only the last one is live."""
    branches = [branch for branch in branches if branch]
    return [
        replace(
            read(branch),
            parent_session_id=parent_session_id,
            start_line=branch[0].line,
            is_new_start=is_new_start,
            is_abandoned=branch is not branches[-1],
        )
        for branch in branches
    ]


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


# Odd messages and rows ----------------------------------------------------------------------------


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
_TEXT_FIELDS = frozenset({"content", "messages", "parts", "text"})  # even one word is a text there
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
        (name, leaf)
        for name, leaf in leaves(value)
        if isinstance(leaf, str) and _may_have_words(name, leaf) and leaf.strip() not in known
    ]
    has_words = any(" " in text.strip() or name in _TEXT_FIELDS for name, text in texts)
    shown = "\n".join(text for _, text in texts)
    return shown if has_words or row.kind in TITLE_ROWS else ""


def _may_have_words(name: str, text: str) -> bool:
    """Whether the field `name` can have words; in a damaged row, an ID or a type can too."""
    return name not in _LABELS or (name in ("id", "type") and " " in text)
