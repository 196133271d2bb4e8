"""Read a conversation from a file: session files of known hosts, or plain message lists.

A plain list is an array, the body of a request, or the record of a run, whose messages are under
one of `_LIST_KEYS`: `messages` (Anthropic, OpenAI), `input` (Responses), `contents` (Gemini),
`history` (SWE-agent), `traj` (tau-bench). This module opens no file: its caller decides which files
may be read.
"""

import gzip
import io
import zlib
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

from context_compaction import formats
from context_compaction.errors import InvalidMessageError, UnknownFormatError
from context_compaction.formats import base
from context_compaction.formats.session_files import model
from context_compaction.formats.session_files.hosts import SESSION_READERS, kind_of
from context_compaction.messages.model import JsonObject, decode_json

MAX_TEXT_BYTES = 512 * 1024 * 1024
"""Largest decompressed size of a file. The largest session seen in the field has 100 MB."""
MAX_LINES = 1_000_000
# Each object takes some hundred bytes of memory, so this is half a gigabyte.
MAX_OBJECTS = 5_000_000

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_CHUNK_BYTES = 1024  # A chunk of this size expands to 32 MB at most.
_LIST_KEYS = ("messages", "input", "contents", "history", "traj")
_MESSAGE_KEYS = {"role", "parts"}  # Keys of a single message.
_SYSTEM_KEYS = ("system", "systemInstruction", "system_instruction", "instructions")
_TORN_NOTE = "the last line was torn (still being written, or cut) and is skipped"


def read_conversation(data: bytes, *, name: str) -> model.Conversation:
    """Return the conversation in the bytes of a file.

    The file is UTF-8 text, plain or compressed with gzip or zstd: one JSON document, or one JSON
    value a line. A line that is no JSON object is skipped, and a message of an unknown shape
    becomes text. The notes of the conversation say so.

    Args:
        data: The content of the file.
        name: The name of the file, for messages.

    Raises:
        InvalidMessageError: A list has too many messages.
        UnknownFormatError: The content is no conversation, is damaged, or is too large.
    """
    data = decompress(data, name).removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise UnknownFormatError(f"{name} is empty. Give a file that holds a conversation.")
    # Counted before anything is parsed, because a megabyte of gzip can hold 100 million objects.
    if data.count(b"\n") > MAX_LINES or data.count(b"{") + data.count(b"[") > MAX_OBJECTS:
        raise UnknownFormatError(
            f"{name} has more than {MAX_LINES} lines or {MAX_OBJECTS} objects. Give a part of it."
        )
    session = _read_session(data, name)
    payload = [entry.raw for entry in session.entries]
    if not payload:
        raise UnknownFormatError(f"{name} holds no messages. Give a file with a conversation.")
    format_name = session.format or _format_of(payload)
    entries, messages, notes = model.parse_entries(session.entries, format_name)
    info = {field.name: getattr(session, field.name) for field in fields(model.SessionInfo)}
    info["notes"] = (*session.notes, *notes)
    info["session_id"] = model.archive_id(session.session_id) if session.session_id else None
    return model.Conversation(
        **info, format=format_name, payload=[entry.raw for entry in entries], messages=messages
    )


def parse_file(text: str, *, name: str) -> model.Conversation:
    """Return the conversation in the text of a file; see `read_conversation`."""
    return read_conversation(text.encode("utf-8", "surrogatepass"), name=name)


def _format_of(payload: Sequence[JsonObject]) -> str:
    """Return the format of a list in which some messages may be damaged.

    Raises:
        InvalidMessageError: Too few messages have a known format.
        UnknownFormatError: The same, or the list belongs to an agent library.
    """
    try:
        return formats.detect(payload)
    except (InvalidMessageError, UnknownFormatError):
        likely = formats.likely_format(payload)
        if likely is None:
            raise
        return likely


def decompress(data: bytes, name: str) -> bytes:
    """Return the content of a file that may be compressed with gzip or zstd.

    Raises:
        UnknownFormatError: It is damaged or too large.
    """
    if data[:2] == _GZIP_MAGIC:
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(MAX_TEXT_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise _damaged(name, "gzip", error) from error
    elif data[:4] == _ZSTD_MAGIC:
        data = _decompress_zstd(data, name)
    if len(data) > MAX_TEXT_BYTES:
        limit_mb = MAX_TEXT_BYTES // (1024 * 1024)
        raise UnknownFormatError(f"{name} is larger than {limit_mb} MB. Give a part of it.")
    return data


def _decompress_zstd(data: bytes, name: str) -> bytes:
    """Return the content of zstd frames, or a bit more than `MAX_TEXT_BYTES` of it."""
    # Imported here because few callers read such a file.
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    content = bytearray()
    try:
        for start in range(0, len(data), _ZSTD_CHUNK_BYTES):
            chunk = data[start : start + _ZSTD_CHUNK_BYTES]
            while chunk and len(content) <= MAX_TEXT_BYTES:
                frame = zstandard.ZstdDecompressor().decompressobj() if frame.eof else frame
                content += frame.decompress(chunk)
                chunk = frame.unused_data
    except zstandard.ZstdError as error:
        raise _damaged(name, "zstd", error) from error
    if not frame.eof and len(content) <= MAX_TEXT_BYTES:
        raise _damaged(name, "zstd", "it is cut short")
    return bytes(content)


def _damaged(name: str, kind: str, problem: object) -> UnknownFormatError:
    return UnknownFormatError(
        f"{name} is damaged {kind} data ({problem}). Give the whole file, or its plain text."
    )


def _read_session(data: bytes, name: str) -> model.Session:
    """Return the session in decompressed data: JSON lines, or one JSON document."""
    first, _, rest = data.lstrip(b"\0 \t\r\n").partition(b"\n")
    if rest.strip() and model.json_value(first.rpartition(b"\0")[2]) is not None:
        return _session_of(model.read_lines(data), data, name)
    try:
        document = decode_json(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        lines = model.read_lines(data)
        if kind_of(lines.rows) != "messages":  # The first line of a session file is damaged.
            return _session_of(lines, data, name)
        _refuse_data(error, name)
    holder = base.object_or_none(document) or {}
    lines = lines_of_file(data, holder)
    if kind_of(lines.rows) != "messages":
        return _session_of(lines, data, name)
    return _read_document(document, name)


def lines_of_file(data: bytes, document: JsonObject | None = None) -> model.Lines:
    """Return the rows of a complete file: its lines, its `loglines`, or its only document.

    Args:
        data: Decompressed content of the file.
        document: The JSON object in it; by default parsed from `data`.
    """
    if document is None:
        document = base.object_or_none(model.json_value(data)) or {}
    listed = base.list_or_none(document.get("loglines"))
    if listed is None and kind_of([model.Row(1, document)]) == "messages":
        return model.read_lines(data)
    numbered = enumerate([document] if listed is None else listed, start=1)
    rows = [
        model.Row(number, row) for number, value in numbered if (row := base.object_or_none(value))
    ]
    end = len(data), len(listed or [document])
    return model.Lines(rows, {}, end, at_end=True, notes=[], unread=[])


def _session_of(lines: model.Lines, data: bytes, name: str) -> model.Session:
    reader = SESSION_READERS.get(kind_of(lines.rows))
    if reader is None:
        session = _read_document([row.value for row in lines.rows], name)
    else:
        session = reader(lines.rows)
    torn = (_TORN_NOTE,) if data[lines.end[0] :].strip(b"\0 \t\r\n") else ()
    return replace(
        session,
        notes=(*session.notes, *lines.notes, *torn),
        extra_texts=model.extra_texts(lines, session.entries),
    )


def _refuse_data(error: ValueError | RecursionError, name: str) -> NoReturn:
    problem = f"is neither a JSON document nor JSON lines: {error}. Give one of these."
    if isinstance(error, UnicodeDecodeError):
        problem = f"is not UTF-8 text: byte {error.start} cannot be read. Give JSON in UTF-8."
    elif isinstance(error, RecursionError):
        problem = "nests too deeply. Give a file with less nesting."
    raise UnknownFormatError(f"{name} {problem}") from error


def _read_document(document: object, name: str) -> model.Session:
    """Return the conversation in a JSON document.

    Raises:
        UnknownFormatError: It holds none, or several.
    """
    values = base.list_or_none(document)
    if values is None:
        holder = base.object_or_none(document)
        if holder is None:
            raise UnknownFormatError(
                f"{name} holds {base.type_name(document)}, not a conversation. Give an array of "
                f"messages, or an object with one under {', '.join(_LIST_KEYS)}."
            )
        return _read_holder(holder, name)
    holders = [holder for holder in base.objects_in(values) if _list_key(holder)]
    if not holders:
        return _plain_session(values)
    if len(values) > 1:
        raise UnknownFormatError(
            f"{name} holds {len(values)} conversations. Give a file with one conversation."
        )
    return _read_holder(holders[0], name)


def _list_key(holder: JsonObject) -> str | None:
    """Return the key of the message list in an object; None if it has no list."""
    if "role" in holder:  # The object is a message.
        return None
    keys = (key for key in _LIST_KEYS if isinstance(holder.get(key), list))
    return next(keys, "input" if isinstance(holder.get("input"), str) else None)


def _read_holder(holder: JsonObject, name: str) -> model.Session:
    key = _list_key(holder)
    if key is None and _MESSAGE_KEYS & holder.keys():
        return _plain_session([holder])
    if key is None:
        raise UnknownFormatError(
            f"{name} holds an object without messages; its fields are {sorted(holder)}. Give them "
            f"as an array under one of {', '.join(_LIST_KEYS)}."
        )
    values = holder[key]
    if isinstance(values, str):
        values = [{"role": "user", "content": values}]
    system = next((holder[key] for key in _SYSTEM_KEYS if holder.get(key)), None)
    tools = base.list_or_none(holder.get("tools"))
    return replace(
        _plain_session(values),
        session_id=base.text_or_none(holder.get("session_id")),
        model=base.text_or_none(holder.get("model")),
        system=base.system_text(system),
        tools=None if tools is None else list(tools),
    )


def _plain_session(values: Sequence[Any]) -> model.Session:
    raws = [
        base.require_object(value, n, "the message", base.MESSAGE_REMEDY)
        for n, value in enumerate(values)
    ]
    entries = [
        model.Entry(_with_call_id(raw), base.parse_time(raw.get("timestamp"))) for raw in raws
    ]
    return model.Session(kind="messages", format="", entries=tuple(entries))


def _with_call_id(raw: JsonObject) -> JsonObject:
    """Return a result of SWE-agent with OpenAI's `tool_call_id` in place of `tool_call_ids`.

    SWE-agent writes a list that always has one ID.
    """
    ids = base.list_or_none(raw.get("tool_call_ids"))
    if raw.get("role") != "tool" or "tool_call_id" in raw or ids is None or len(ids) != 1:
        return raw
    fields_before = {key: value for key, value in raw.items() if key != "tool_call_ids"}
    return {**fields_before, "tool_call_id": ids[0]}
