"""Pointers, their short forms, and the stored texts that they identify.

A pointer identifies an output, a range of messages, a file or the plan of a session, its current
context, or the receipts of its compactions. Messages are plain text, or JSON lines with every byte,
one message a line; receipts are JSON lines.

People may type `d703a1a9/30-35` for messages 30 to 35, because a pointer with a UUID does not fit
a line of 80 columns. Instead of a session ID, any beginning that only one session has is accepted.
"""

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from io import StringIO
from itertools import accumulate
from typing import TypeAlias
from uuid import UUID

from anyio import to_thread
from context_compaction import (
    Archive,
    JsonObject,
    NotFoundError,
    OutputInfo,
    QueryError,
    SessionInfo,
    SettingsError,
    compact_json,
    read_dropped_names,
)

from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.session_files import archived_id_of
from mcp_server_compaction.reading.plain_text import message_texts

_OUTPUT = re.compile(r"(?:output://)?(o_[0-9a-f]+)(?:/lines/(\d{1,18})-(\d{1,18}))?\Z")
_SESSION = re.compile(
    r"(?:transcript://)?([A-Za-z0-9_.:-]+)(?:@([0-9a-f]{12,32}))?"
    r"/(messages|receipts|context|plan|files)(?:/(.*))?\Z",
    re.DOTALL,
)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?(@[0-9a-f]{12,32})?\Z")
_MIN_ID_CHARS = 4
_MAX_LISTED_GAPS = 10


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines of a text, including their line ends.

    Attributes:
        text: The lines; empty if there are none.
        start_line: Number of the first line, from 1.
    """

    text: str
    start_line: int


class OutputSource:
    """A stored output. Only the requested parts are read from the archive.

    Attributes:
        pointer: ID of the output.
        size_chars: Size in characters.
        line_count: Number of lines.
        headings: Always empty, because an output has no messages.
        gap: Always empty, because an output is complete.
        is_json: Always False, because its text is as the tool returned it.
    """

    headings: Sequence[int] = ()
    gap: str = ""
    is_json: bool = False

    def __init__(self, archive: Archive, info: OutputInfo) -> None:
        self.pointer: str = info.output_id
        self.size_chars: int = info.size_chars
        self.line_count: int = info.line_count
        self._archive = archive
        self._is_ascii = info.size_bytes == info.size_chars
        # Read only for a text that is not ASCII, because each part of it would need all earlier
        # bytes.
        self._data: bytes | None = None

    async def lines(self, start_line: int, count: int) -> Lines:
        """Return `count` lines from `start_line`. A negative number counts from the last line."""
        part = await self._archive.read_output_lines(
            self.pointer, start_line=start_line, line_count=count
        )
        return Lines(_decode(part.data), part.start_line)

    async def characters(self, offset: int, count: int) -> str:
        """Return `count` characters from `offset`."""
        if self._is_ascii:
            part = await self._archive.read_output(
                self.pointer, start_byte=offset, limit_bytes=count
            )
            return _decode(part.data)
        return _decode(await self._whole())[offset : offset + count]

    async def offset_of_line(self, line: int) -> int:
        """Return the number of characters before `line`."""
        part = await self._archive.read_output_lines(self.pointer, start_line=line, line_count=1)
        if self._is_ascii:
            return part.start_byte
        return len(_decode((await self._whole())[: part.start_byte]))

    async def _whole(self) -> bytes:
        if self._data is None:
            self._data = (await self._archive.read_output(self.pointer)).data
        return self._data

    def rest_pointer(self, line_count: int) -> str | None:
        """Return a pointer to the lines after the first `line_count` lines."""
        return f"output://{self.pointer}/lines/{line_count + 1}-{self.line_count}"


@dataclass(frozen=True)
class MemorySource:
    """A text in memory, with the methods of `OutputSource`.

    Attributes:
        pointer: Pointer to the text.
        text: The text.
        headings: Numbers of the lines that are headings of messages, in ascending order.
        gap: Note on missing or unsure parts, starting with a blank; empty if there are none.
        is_json: Whether each line is a JSON object of the archive.
        rest: Returns a pointer to the lines after a number of lines. None for other texts.
    """

    pointer: str
    text: str
    _: KW_ONLY
    headings: Sequence[int] = ()
    gap: str = ""
    is_json: bool = False
    rest: Callable[[int], str] | None = None

    @property
    def size_chars(self) -> int:
        """Size in characters."""
        return len(self.text)

    @property
    def line_count(self) -> int:
        """Number of lines. Only a newline character ends a line."""
        return len(self._lines)

    @cached_property
    def _lines(self) -> list[str]:
        return split_lines(self.text)

    async def lines(self, start_line: int, count: int) -> Lines:
        """Return `count` lines from `start_line`. A negative number counts from the last line."""
        first = start_line if start_line > 0 else max(1, self.line_count + start_line + 1)
        selected = self._lines[first - 1 : first - 1 + count]
        return Lines("".join(selected), first)

    async def characters(self, offset: int, count: int) -> str:
        """Return `count` characters from `offset`."""
        return self.text[offset : offset + count]

    async def offset_of_line(self, line: int) -> int:
        """Return the number of characters before `line`."""
        return sum(map(len, self._lines[: line - 1]))

    def rest_pointer(self, line_count: int) -> str | None:
        """Return a pointer to the lines after the first `line_count` lines, or None."""
        return self.rest and self.rest(line_count)


TextSource: TypeAlias = OutputSource | MemorySource


def split_lines(text: str) -> list[str]:
    """Return the lines of `text` with their ends. Only a newline character ends a line."""
    return [*StringIO(text)]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


async def open_source(archive: Archive, pointer: str, *, as_json: bool = False) -> TextSource:
    """Return the text that `pointer` identifies.

    Args:
        archive: The archive that contains the text.
        pointer: A pointer, or the short form of one.
        as_json: Whether to return messages as JSON lines instead of plain text.

    Raises:
        NotFoundError: The archive does not contain the text.
        QueryError: The pointer is invalid or ambiguous.
    """
    pointer = pointer.strip()
    if match := _OUTPUT.match(pointer):
        return await _open_output(archive, pointer, *match.groups())
    base, _, numbers = pointer.rpartition("/")
    if _RANGE.match(numbers) and "/" not in base:  # a short form
        pointer = f"{base}/messages/{numbers}"
    if match := _SESSION.match(pointer):
        session_id, head, kind, rest = match.groups()
        session_id = await find_session(archive, session_id)
        part = _SessionPart(archive, session_id, head, as_json)
        if (source := await part.open(kind, rest or "")) is not None:
            return source
    with contextlib.suppress(NotFoundError, SettingsError):
        session_id = await find_session(archive, pointer)
        raise QueryError(
            f"{pointer!r} is a session. Read some of its messages with "
            f"{short_session(session_id)}/0-9, or its current context with "
            f"transcript://{session_id}/context."
        )
    raise QueryError(
        f"Invalid pointer {pointer[:200]!r}. Use an output ID (o_ and hexadecimal digits) or a "
        "transcript:// address, for example transcript://SESSION/messages/3-7."
    )


async def _open_output(
    archive: Archive, pointer: str, output_id: str, first: str | None, last: str | None
) -> TextSource:
    if first is None or last is None:
        return OutputSource(archive, await archive.output_info(output_id))
    start_line = max(1, int(first))
    part = await archive.read_output_lines(
        output_id, start_line=start_line, line_count=max(1, int(last) - int(first) + 1)
    )

    def rest(line_count: int) -> str:
        return f"output://{output_id}/lines/{start_line + line_count}-{last}"

    return MemorySource(pointer, _decode(part.data), rest=rest)


@dataclass(frozen=True, slots=True)
class _SessionPart:
    """Reader of the parts of a session. Without `head` it reads the newest branch."""

    archive: Archive
    session_id: str
    head: str | None
    as_json: bool

    async def open(self, kind: str, rest: str) -> TextSource | None:
        """Return the text that `rest` of a pointer identifies, or None if `rest` is invalid."""
        is_number = _is_number(rest)
        pointer = self._pointer(f"{kind}/{rest}".rstrip("/"))
        if kind == "files":
            return await self._file(pointer, rest.removesuffix("/"))
        if kind == "messages" and (match := _RANGE.match(rest)):
            start, stop, head = match.groups()
            span = int(start), int(stop or start)
            return await self._messages(pointer, span, head[1:] if head else self.head)
        if kind == "context" and not rest:
            return await self._context(pointer)
        if kind == "plan" and (is_number or not rest):
            return await self._plan(pointer, int(rest or 0))
        if kind == "receipts" and (is_number or rest in {"", "last"}):
            return MemorySource(pointer, json_lines(await self._receipts(rest)), is_json=True)
        return None

    def _pointer(self, path: str) -> str:
        head = f"@{self.head}" if self.head else ""
        return f"transcript://{self.session_id}{head}/{path}"

    async def _file(self, pointer: str, path: str) -> TextSource:
        from mcp_server_compaction.reading.session_work import file_list, file_text

        if not path:
            listed = await file_list(self.archive, self.session_id, self.head)
            return MemorySource(pointer, listed)
        until = None
        file, _, number = path.rpartition("@")
        if file and _is_number(number):
            path, until = file, int(number)
        text, note = await file_text(self.archive, self.session_id, self.head, path, until)
        return MemorySource(pointer, text, gap=note)

    async def _plan(self, pointer: str, number: int) -> TextSource:
        """Return the newest plan, or the messages of the work on one of its items."""
        from mcp_server_compaction.reading.session_work import plan_item_span, plan_text

        if not number:
            text = await plan_text(self.archive, self.session_id, self.head)
            return MemorySource(pointer, text)
        span = await plan_item_span(self.archive, self.session_id, self.head, number)
        return await self._messages(pointer, span, self.head)

    async def _context(self, pointer: str) -> TextSource:
        format, context = await self.archive.context(self.session_id)
        if self.as_json:
            return MemorySource(pointer, json_lines(context), is_json=True)
        rows = [(f"context {number}", format, raw, None) for number, raw in enumerate(context)]
        return await _plain_source(pointer, rows)

    async def _receipts(self, number: str) -> list[JsonObject]:
        """Return all receipts, or one receipt with the names that left the context."""
        if not number:
            return await self.archive.receipts(self.session_id)
        index = -1 if number == "last" else int(number)
        dropped_names = await read_dropped_names(self.archive, self.session_id, index)
        [receipt] = await self.archive.receipts(self.session_id, after=index, limit=1)
        return [receipt | {"losses": dropped_names}]

    async def _messages(self, pointer: str, span: tuple[int, int], head: str | None) -> TextSource:
        messages = await self.archive.read_messages(self.session_id, *span, head=head)
        messages.sort(key=lambda message: message.seq)
        seqs = [message.seq for message in messages]
        count = (await self.archive.session_info(self.session_id)).next_seq
        expected = () if head else range(span[0], min(span[1] + 1, count))
        gap = _damage_note(sorted({*expected} - {*seqs}))
        if not messages and not gap:
            existing = f"messages 0 to {count - 1}" if count else "no messages"
            raise NotFoundError(
                f"Session {self.session_id} has {existing}, but none of {pointer!r}. Pass other "
                "numbers."
            )
        if not self.as_json:
            rows = [(str(m.seq), m.format, m.raw, m.timestamp_seconds) for m in messages]
            return await _plain_source(pointer, rows, gap)
        branch = f"@{head}" if head else ""

        def rest(line_count: int) -> str:
            start = f"transcript://{self.session_id}/messages/{seqs[line_count]}"
            return f"{start}-{span[1]}{branch}"

        text = json_lines([message.raw for message in messages])
        return MemorySource(pointer, text, gap=gap, is_json=True, rest=rest)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= 18  # because databases refuse larger numbers


async def _plain_source(
    pointer: str, rows: Sequence[tuple[str, str, JsonObject, float | None]], gap: str = ""
) -> TextSource:
    """Return messages as plain text; see `message_texts` for `rows`."""
    texts = await to_thread.run_sync(message_texts, rows)
    heading_lines = accumulate((text.count("\n") + 1 for text in texts), initial=1)
    return MemorySource(pointer, "\n".join(texts), headings=list(heading_lines)[:-1], gap=gap)


def _damage_note(damaged: Sequence[int]) -> str:
    """Return a note on messages that are missing because they are damaged."""
    if not damaged:
        return ""
    numbers = ", ".join(map(str, damaged[:_MAX_LISTED_GAPS]))
    more = f" and {len(damaged) - _MAX_LISTED_GAPS} more" if len(damaged) > _MAX_LISTED_GAPS else ""
    return (
        f" Damaged in the archive and omitted: messages {numbers}{more}. The command doctor names "
        "the damaged line. To restore them, pass the whole message list again."
    )


def json_lines(values: Sequence[JsonObject]) -> str:
    """Return one line of JSON for each value."""
    return "".join(json_line(value) + "\n" for value in values)


def json_line(value: JsonObject) -> str:
    """Return a JSON value on one line. Lone surrogates are escaped, because UTF-8 has none."""
    text = compact_json(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text


def short_session(session_id: str) -> str:
    """Return the beginning of a UUID; any other session ID stays as it is."""
    try:
        version = UUID(session_id).version if session_id.count("-") == 4 else None
    except ValueError:
        version = None
    # A UUID of version 7 starts with a time, and its first eight digits change only every minute.
    return session_id if version is None else session_id[: 13 if version == 7 else 8]


def short_pointer(pointer: str) -> str:
    """Return `SESSION/3-7` for a range of messages; any other pointer stays as it is."""
    match = _SESSION.match(pointer)
    numbers = _RANGE.match(match[4] or "") if match and match[3] == "messages" else None
    if not match or not numbers:
        return pointer
    start, stop, head = numbers.groups()
    last = f"-{stop}" if stop and stop != start else ""
    session_head = f"@{match[2]}" if match[2] else ""
    return f"{short_session(match[1])}/{start}{last}{head or session_head}"


async def find_session(archive: Archive, text: str) -> str:
    """Return the ID of the session whose ID is `text` or starts with it.

    A branch head after an @ is kept. A session that a host continues after `resume` is also found
    by the ID of its continuation.

    Raises:
        NotFoundError: No session matches.
        QueryError: Several sessions match.
    """
    start, at, head = text.partition("@")
    try:
        await archive.session_info(start)
    except NotFoundError:
        if original_id := await _resumed_session(archive, start):
            return f"{original_id}{at}{head}"
        session_ids = [session.session_id for session in await all_sessions(archive)]
        matches = [session_id for session_id in session_ids if session_id.startswith(start)]
        if not matches or len(start) < _MIN_ID_CHARS:
            raise
        # The ID of a converted session (`UUID.openai-chat`) also starts with the UUID.
        same_short = [session_id for session_id in matches if short_session(session_id) == start]
        if len(same_short) == 1:
            matches = same_short
        if len(matches) > 1:
            raise QueryError(
                f"{len(matches)} sessions start with {start!r}: {', '.join(matches[:5])}. "
                "Pass a longer beginning."
            ) from None
        return f"{matches[0]}{at}{head}"
    return text


async def _resumed_session(archive: Archive, session_id: str) -> str | None:
    """Return the archived session that `session_id` continues after `resume`, or None."""
    original_id = await to_thread.run_sync(archived_id_of, session_id, this_user())
    if original_id is not None:
        with contextlib.suppress(NotFoundError, SettingsError):
            await archive.session_info(original_id)
            return original_id
    return None


async def all_sessions(archive: Archive) -> list[SessionInfo]:
    """Return every session, newest first."""
    sessions: list[SessionInfo] = []
    cursor: str | None = None
    while True:
        page, cursor = await archive.sessions(limit=500, cursor=cursor)
        sessions += page
        if cursor is None:
            return sessions
