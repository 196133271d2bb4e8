"""Read a conversation from a file: session files of known hosts, or plain lists of messages.

A plain list is an array, the body of a request, or the record of a run. It stands under one of
`_LIST_KEYS`: `messages` (Anthropic, OpenAI), `input` (Responses), `contents` (Gemini), `history`
(SWE-agent), `traj` (tau-bench). Nothing is opened here; whoever has the bytes decides whether the
file may be read.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

from context_compaction import formats
from context_compaction.errors import InvalidMessageError, UnknownFormatError
from context_compaction.formats.detection import conversion_of
from context_compaction.formats.parsing import (
    list_or_none,
    object_or_none,
    parse_time,
    refuse_constant,
    require_object,
    text_or_none,
    type_name,
)
from context_compaction.formats.session_files.gemini_cli import read_gemini_chat
from context_compaction.formats.session_files.hosts import (
    kind_of,
    origin_of,
    read_claude_code,
    read_codex,
    read_copilot,
    read_pi,
)
from context_compaction.formats.session_files.lenient import (
    Lines,
    asides_of,
    json_value,
    parse_entries,
    read_lines,
)
from context_compaction.formats.session_files.model import (
    Conversation,
    Entry,
    Row,
    Session,
    archive_id,
)
from context_compaction.formats.session_files.opencode import is_export, read_opencode
from context_compaction.messages.model import JsonObject

_LIST_KEYS = ("messages", "input", "contents", "history", "traj")
# A list of messages that is damaged still has a format, if that format fits this share of them.
_MIN_READABLE_SHARE = 0.25
_MESSAGE_KEYS = {"role", "parts"}  # of a message that stands alone
_SYSTEM_KEYS = ("system", "systemInstruction", "system_instruction", "instructions")
_REMEDY = 'Give an object such as {"role": "user", "content": "..."}.'


def read_document(document: object, name: str) -> Session:
    """The one conversation that a JSON document holds.

    Raises:
        UnknownFormatError: It holds none, or several.
    """
    values = list_or_none(document)
    if values is None:
        holder = object_or_none(document)
        if holder is None:
            raise UnknownFormatError(
                f"{name} holds {type_name(document)}, not a conversation. Give an array of "
                f"messages, or an object with one under {', '.join(_LIST_KEYS)}."
            )
        return _read_holder(holder, name)
    holders = [found for value in values if (found := object_or_none(value)) and _key_of(found)]
    if not holders:
        return Session("messages", None, _entries(values))
    if len(values) > 1:
        raise UnknownFormatError(
            f"{name} holds {len(values)} conversations. Give a file with one of them."
        )
    return _read_holder(holders[0], name)


def _key_of(holder: JsonObject) -> str | None:
    """The field that holds the messages; a message itself has none."""
    if "role" in holder:
        return None
    found = (key for key in _LIST_KEYS if isinstance(holder.get(key), list))
    return next(found, "input" if isinstance(holder.get("input"), str) else None)


def _read_holder(holder: JsonObject, name: str) -> Session:
    key = _key_of(holder)
    if key is None and _MESSAGE_KEYS & holder.keys():
        return Session("messages", None, _entries([holder]))
    if key is None:
        raise UnknownFormatError(
            f"{name} holds an object without messages; its fields are {sorted(holder)}. Give them "
            f"as an array under one of {', '.join(_LIST_KEYS)}."
        )
    values = holder[key]
    if isinstance(values, str):
        values = [{"role": "user", "content": values}]
    system = next((holder[key] for key in _SYSTEM_KEYS if holder.get(key)), None)
    tools = list_or_none(holder.get("tools"))
    return Session(
        "messages",
        None,
        _entries(values),
        session_id=text_or_none(holder.get("session_id")),
        model=text_or_none(holder.get("model")),
        system=system_text(system),
        tools=None if tools is None else list(tools),
    )


def _entries(values: Sequence[Any]) -> tuple[Entry, ...]:
    raws = [require_object(value, n, "the message", _REMEDY) for n, value in enumerate(values)]
    return tuple(Entry(_with_call_id(raw), parse_time(raw.get("timestamp"))) for raw in raws)


def _with_call_id(raw: JsonObject) -> JsonObject:
    """SWE-agent writes `tool_call_ids`, always of one id; a copy says it in OpenAI's way."""
    ids = list_or_none(raw.get("tool_call_ids"))
    if raw.get("role") != "tool" or "tool_call_id" in raw or ids is None or len(ids) != 1:
        return raw
    kept = {key: value for key, value in raw.items() if key != "tool_call_ids"}
    return {**kept, "tool_call_id": ids[0]}


def system_text(value: object) -> str | None:
    """The text of a system prompt: a string, blocks of text, or Gemini's parts."""
    if value is None or isinstance(value, str):
        return value
    holder = object_or_none(value)
    blocks = list_or_none(value if holder is None else holder.get("parts")) or ()
    texts = [(object_or_none(block) or {}).get("text") for block in blocks]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


__all__ = ["MAX_TEXT_BYTES", "Conversation", "decompress", "parse_file", "read_conversation"]

MAX_TEXT_BYTES = 512 * 1024 * 1024
"""How large a file may be once decompressed; the largest session seen in the field is 100 MB."""

MAX_LINES = 1_000_000
# Each takes some hundred bytes once it is read, so this is half a gigabyte.
MAX_OBJECTS = 5_000_000

_GZIP_MAGIC = b"\x1f\x8b"
_Reader: TypeAlias = Callable[[Sequence[Row]], Session]
_READERS: Mapping[str, _Reader] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "copilot": read_copilot,
    "gemini-cli": read_gemini_chat,
    "pi": read_pi,
}
_TORN_NOTE = "the last line was torn (still being written, or cut) and is left out"


def read_conversation(data: bytes, *, name: str) -> Conversation:
    """The conversation in a file's bytes: UTF-8 text, or that compressed with gzip.

    The file is one JSON document, or has one JSON value a line. A line that is no JSON object is
    left out, and a message of an unknown shape becomes text; notes say so.

    Args:
        data: The content.
        name: The file's name, for messages.

    Raises:
        InvalidMessageError: A list has too many messages.
        UnknownFormatError: The content is no conversation, is damaged, or is too large.
    """
    data = decompress(data, name).removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise UnknownFormatError(f"{name} is empty. Give a file that holds a conversation.")
    # Counted before anything is parsed: a megabyte of gzip may hold a hundred million of them.
    if data.count(b"\n") > MAX_LINES or data.count(b"{") + data.count(b"[") > MAX_OBJECTS:
        raise UnknownFormatError(
            f"{name} has more than {MAX_LINES} lines or {MAX_OBJECTS} objects. Give a part of it."
        )
    session = _read_lines(data, name) if _is_lines(data) else _read_whole(data, name)
    return _conversation(session, name)


def parse_file(text: str, *, name: str) -> Conversation:
    """The conversation in a file's text; see `read_conversation`."""
    return read_conversation(text.encode("utf-8", "surrogatepass"), name=name)


def _conversation(session: Session, name: str) -> Conversation:
    payload = [entry.raw for entry in session.entries]
    if not payload:
        raise UnknownFormatError(f"{name} holds no messages. Give a file with a conversation.")
    format_name = session.format or _format_of(payload)
    entries, messages, notes = parse_entries(session.entries, format_name)
    return Conversation(
        session.kind,
        format_name,
        [entry.raw for entry in entries],
        messages,
        archive_id(session.session_id) if session.session_id else None,
        session.cwd,
        session.model,
        session.system,
        session.tools,
        (*session.notes, *notes),
        session.provider,
        session.asides,
    )


def _format_of(payload: Sequence[JsonObject]) -> str:
    """Return the format of a list in which some messages may be damaged.

    Raises:
        InvalidMessageError: Too few messages have a known format.
        UnknownFormatError: The same, or the list is an agent library's own.
    """
    try:
        return formats.detect(payload)
    except (InvalidMessageError, UnknownFormatError):
        counts = {
            name: sum(bool(found.recognises(raw)) for raw in payload)
            for name, found in formats.FORMATS.items()
        }
        likely = max(counts, key=counts.__getitem__)
        is_conversation = counts[likely] >= _MIN_READABLE_SHARE * len(payload)
        if not is_conversation or any(map(conversion_of, payload)):
            raise
        return likely


def decompress(data: bytes, name: str) -> bytes:
    """The content of a file that may be compressed with gzip.

    Raises:
        UnknownFormatError: It is damaged or too large.
    """
    if data[:2] == _GZIP_MAGIC:
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(MAX_TEXT_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UnknownFormatError(
                f"{name} is damaged gzip data ({error}). Give the whole file, or its plain text."
            ) from error
    if len(data) > MAX_TEXT_BYTES:
        limit_mb = MAX_TEXT_BYTES // (1024 * 1024)
        raise UnknownFormatError(f"{name} is larger than {limit_mb} MB. Give a part of it.")
    return data


def _is_lines(data: bytes) -> bool:
    """Whether the data is one JSON value a line, rather than one JSON document."""
    first, _, rest = data.lstrip(b"\0 \t\r\n").partition(b"\n")
    return bool(rest.strip()) and json_value(first.rpartition(b"\0")[2]) is not None


def _read_whole(data: bytes, name: str) -> Session:
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        found_lines = read_lines(data)
        if kind_of(found_lines.rows) != "messages":  # the first line of a session is damaged
            return _session_of(found_lines, data, name)
        _refuse_data(error, name)
    found = object_or_none(document) or {}
    lines = list_or_none(found.get("loglines"))
    if lines is not None:
        rows = [Row(n, row) for n, line in enumerate(lines, 1) if (row := object_or_none(line))]
        return _read_rows(rows, name)
    whole = Lines([Row(1, found)], {}, (len(data), 1), at_end=True, notes=[], unread=[])
    if is_export(found):
        session = read_opencode(found, origin_of([Row(1, found)]))
        return replace(session, asides=asides_of(whole, session.entries))
    if kind_of([Row(1, found)]) != "messages":
        return _session_of(whole, data, name)
    return read_document(document, name)


def _refuse_data(error: ValueError | RecursionError, name: str) -> NoReturn:
    problem = f"is neither a JSON document nor JSON lines: {error}. Give one of these."
    if isinstance(error, UnicodeDecodeError):
        problem = f"is not UTF-8 text: byte {error.start} cannot be read. Give JSON in UTF-8."
    elif isinstance(error, RecursionError):
        problem = "nests too deeply. Give a file with less nesting."
    raise UnknownFormatError(f"{name} {problem}") from error


def _read_lines(data: bytes, name: str) -> Session:
    return _session_of(read_lines(data), data, name)


def _session_of(lines: Lines, data: bytes, name: str) -> Session:
    session = _read_rows(lines.rows, name)
    torn = (_TORN_NOTE,) if data[lines.end[0] :].strip(b"\0 \t\r\n") else ()
    asides = asides_of(lines, session.entries)
    return replace(session, notes=(*session.notes, *lines.notes, *torn), asides=asides)


def _read_rows(rows: Sequence[Row], name: str) -> Session:
    reader = _READERS.get(kind_of(rows))
    if reader is None:
        return read_document([row.value for row in rows], name)
    return reader(rows)
