"""Stored text behind a pointer, read by lines or by characters.

A pointer names an output, a range of messages, a file or the plan of a session, its current
context, or the receipts of its compactions. Messages read as plain text, or as JSON lines with
every byte, one message a line; receipts are JSON lines.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

from anyio import to_thread
from context_compaction import (
    Archive,
    JsonObject,
    NotFoundError,
    OutputInfo,
    QueryError,
    compact_json,
    read_dropped_names,
)

from mcp_server_compaction.reading.plain_text import message_texts
from mcp_server_compaction.reading.short_names import is_short_pointer, whole_pointer, whole_session

# Numbers have 18 digits at most: databases refuse larger ones.
_OUTPUT = re.compile(r"(?:output://)?(o_[0-9a-f]+)(?:/lines/(\d{1,18})-(\d{1,18}))?\Z")
_SESSION = re.compile(
    r"(?:transcript://)?([A-Za-z0-9_.:-]+)(?:@([0-9a-f]{12,32}))?"
    r"/(messages|receipts|context|plan|files)(?:/(.*))?\Z",
    re.DOTALL,
)
_MESSAGES = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?(?:@([0-9a-f]{12,32}))?\Z")
_NUMBER = re.compile(r"\d{1,18}\Z")
_FILE_AT = re.compile(r"(.+)@(\d{1,18})\Z", re.DOTALL)
_SHOWN_GAPS = 10
_LAST_LINE = 999_999_999  # no output has as many, so a range up to it is the rest


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines of a text, their line ends included.

    Attributes:
        text: The lines; empty where there are none.
        start_line: Number of the first, from 1.
        count: How many.
    """

    text: str
    start_line: int
    count: int


class OutputSource:
    """A stored output, of which only what is asked for is read."""

    headings: Sequence[int] = ()
    seqs: Sequence[int] = ()
    gap = ""

    def __init__(self, archive: Archive, info: OutputInfo) -> None:
        self.pointer = info.output_id
        self.size_chars = info.size_chars
        self.line_count = info.line_count
        self._archive = archive
        self._is_ascii = info.size_bytes == info.size_chars

    async def lines(self, start_line: int, count: int) -> Lines:
        """`count` lines from `start_line`; a negative one counts from the end (-1 the last)."""
        found = await self._archive.read_output_lines(
            self.pointer, start_line=start_line, line_count=count
        )
        text = _decode(found.data)
        return Lines(text, found.start_line, len(_split(text)))

    async def characters(self, offset: int, count: int) -> str:
        """`count` characters from `offset` on."""
        if self._is_ascii:
            found = await self._archive.read_output(
                self.pointer, start_byte=offset, limit_bytes=count
            )
            return _decode(found.data)
        whole = await self._archive.read_output(self.pointer)
        return _decode(whole.data)[offset : offset + count]

    async def offset_of_line(self, line: int) -> int:
        """Characters before `line`."""
        found = await self._archive.read_output_lines(self.pointer, start_line=line, line_count=1)
        if self._is_ascii or found.start_byte == 0:
            return found.start_byte
        before = await self._archive.read_output(self.pointer, limit_bytes=found.start_byte)
        return len(_decode(before.data))


class MemorySource:
    """A text that is in memory; read as an `OutputSource` is.

    Args:
        pointer: The pointer that names it.
        text: The text. A line ends after its newline character.
        headings: The lines that name messages, rising; a text with any is no one's exact text.
        seqs: The numbers of the messages that its lines hold, where each line is one.
        gap: A note on what is missing from it or unsure in it; empty where nothing is.
    """

    def __init__(
        self,
        pointer: str,
        text: str,
        *,
        headings: Sequence[int] = (),
        seqs: Sequence[int] = (),
        gap: str = "",
    ) -> None:
        self._text = text
        self._lines = _split(text)
        self.pointer = pointer
        self.size_chars = len(text)
        self.line_count = len(self._lines)
        self.headings = headings
        self.seqs = seqs
        self.gap = gap

    async def lines(self, start_line: int, count: int) -> Lines:
        """See `OutputSource`."""
        first = start_line if start_line > 0 else max(1, self.line_count + start_line + 1)
        chosen = self._lines[first - 1 : first - 1 + count]
        return Lines("".join(chosen), first, len(chosen))

    async def characters(self, offset: int, count: int) -> str:
        """See `OutputSource`."""
        return self._text[offset : offset + count]

    async def offset_of_line(self, line: int) -> int:
        """See `OutputSource`."""
        return sum(map(len, self._lines[: line - 1]))


TextSource: TypeAlias = OutputSource | MemorySource


def _split(text: str) -> list[str]:
    """The lines of `text` with their ends; only the newline character ends one."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


async def open_source(archive: Archive, pointer: str, *, as_json: bool = False) -> TextSource:
    """The text that `pointer` names; messages as plain text, or in JSON as they were sent.

    Raises:
        NotFoundError: The archive does not hold it.
        QueryError: It is no pointer.
    """
    stripped = pointer.strip()
    if is_short_pointer(stripped):
        stripped = await whole_pointer(archive, stripped)
    source: TextSource | None = None
    if found := _OUTPUT.match(stripped):
        source = await _open_output(archive, stripped, *found.groups())
    elif found := _SESSION.match(stripped):
        name, head, kind, rest = found.groups()
        part = _SessionPart(archive, stripped, name, head, as_json)
        try:
            source = await part.open(kind, rest or "")
        except NotFoundError:
            session_id = await whole_session(archive, name)
            if session_id == name:
                raise
            pointer = stripped.replace(name, session_id, 1)
            part = replace(part, pointer=pointer, session_id=session_id)
            source = await part.open(kind, rest or "")
    if source is None:
        await whole_pointer(archive, stripped)  # raises an error that says so if it is a session
        raise QueryError(
            f"{pointer[:200]!r} is no pointer. Give an output id as o_0123abcd…, some of its lines "
            "as output://o_0123abcd…/lines/1-500, a range of messages as "
            "transcript://SESSION/messages/3-7, the same of one branch with @ and its head after "
            "it, transcript://SESSION/files/PATH, as of message 7 with @7 after it, "
            "transcript://SESSION/plan, the work on its third item with /3 after it, "
            "transcript://SESSION/context, transcript://SESSION/receipts, or one of them as "
            "transcript://SESSION/receipts/last. SESSION may be the beginning of an id, and "
            "SESSION/3-7 names messages."
        )
    return source


async def _open_output(
    archive: Archive, pointer: str, output_id: str, first: str | None, last: str | None
) -> TextSource:
    if first is None or last is None:
        return OutputSource(archive, await archive.output_info(output_id))
    part = await archive.read_output_lines(
        output_id,
        start_line=max(1, int(first)),
        line_count=max(1, int(last) - int(first) + 1),
    )
    return MemorySource(pointer, _decode(part.data))


@dataclass(frozen=True, slots=True)
class _SessionPart:
    """A pointer into a session; `head` names its branch, the newest for None."""

    archive: Archive
    pointer: str
    session_id: str
    head: str | None
    as_json: bool

    async def open(self, kind: str, rest: str) -> TextSource | None:
        """The text that `rest` of a pointer of that kind names; None where it names none."""
        is_number = _NUMBER.match(rest) is not None
        if kind == "files":
            return await self._file(rest)
        if kind == "messages" and (found := _MESSAGES.match(rest)):
            start, stop, head = found.groups()
            return await self._messages((int(start), int(stop or start)), head or self.head)
        if kind == "context" and not rest:
            return await self._context()
        if kind == "plan" and (is_number or not rest):
            return await self._plan(int(rest or 0))
        if kind == "receipts" and (is_number or rest in {"", "last"}):
            return MemorySource(self.pointer, json_lines(await self._receipts(rest)))
        return None

    async def _file(self, rest: str) -> TextSource:
        from mcp_server_compaction.reading.session_work import file_list, file_text

        path = rest.removesuffix("/")
        if not path:
            listed = await file_list(self.archive, self.session_id, self.head)
            return MemorySource(self.pointer, listed)
        until = None
        if found := _FILE_AT.match(path):
            path, until = found[1], int(found[2])
        text, note = await file_text(self.archive, self.session_id, self.head, path, until)
        return MemorySource(self.pointer, text, gap=note)

    async def _plan(self, number: int) -> TextSource:
        """The newest plan, or the messages in which one of its items was worked on."""
        from mcp_server_compaction.reading.session_work import item_span, plan

        if not number:
            return MemorySource(self.pointer, await plan(self.archive, self.session_id, self.head))
        span = await item_span(self.archive, self.session_id, self.head, number)
        return await self._messages(span, self.head)

    async def _context(self) -> TextSource:
        format, context = await self.archive.context(self.session_id)
        if self.as_json:
            return MemorySource(self.pointer, json_lines(context))
        rows = [(f"context {at}", format, raw, None) for at, raw in enumerate(context)]
        return await self._conversation(rows)

    async def _receipts(self, number: str) -> list[JsonObject]:
        """All receipts, or one with the names that left the context."""
        if not number:
            return await self.archive.receipts(self.session_id)
        at = -1 if number == "last" else int(number)
        losses = await read_dropped_names(self.archive, self.session_id, at)
        [receipt] = await self.archive.receipts(self.session_id, after=at, limit=1)
        return [receipt | {"losses": losses}]

    async def _messages(self, span: tuple[int, int], head: str | None) -> TextSource:
        messages = await self.archive.read_messages(self.session_id, *span, head=head)
        messages.sort(key=lambda message: message.seq)
        damaged = [] if head else await self.archive.damaged_messages(self.session_id, *span)
        gap = _gap(damaged)
        if not messages and not gap:
            held = (await self.archive.session_info(self.session_id)).message_count
            numbers = f"has the messages 0 to {held - 1}" if held else "has no messages"
            raise NotFoundError(
                f"Session {self.session_id} {numbers}; {self.pointer!r} names none of them."
            )
        if self.as_json:
            seqs = [message.seq for message in messages]
            lines = json_lines([message.raw for message in messages])
            return MemorySource(self.pointer, lines, seqs=seqs, gap=gap)
        rows = [(str(m.seq), m.format, m.raw, m.timestamp_seconds) for m in messages]
        return await self._conversation(rows, gap)

    async def _conversation(
        self, rows: Sequence[tuple[str, str, JsonObject, float | None]], gap: str = ""
    ) -> TextSource:
        texts = await to_thread.run_sync(message_texts, rows)
        lines = accumulate((text.count("\n") + 1 for text in texts), initial=1)
        return MemorySource(self.pointer, "\n".join(texts), headings=list(lines)[:-1], gap=gap)


def _gap(damaged: Sequence[int]) -> str:
    """A note on messages that are missing from a text."""
    if not damaged:
        return ""
    more = f" and {len(damaged) - _SHOWN_GAPS} more" if len(damaged) > _SHOWN_GAPS else ""
    shown = ", ".join(map(str, damaged[:_SHOWN_GAPS])) + more
    which = f"Message {shown} is" if len(damaged) == 1 else f"Messages {shown} are"
    return (
        f" {which} damaged in the archive and left out; the command doctor names the line. "
        "Handing over the whole list again stores it again."
    )


def rest_of(source: TextSource, shown_lines: int) -> str | None:
    """The pointer to what follows the first lines of a text; None where none does."""
    if found := _OUTPUT.match(source.pointer):
        output_id, first, last = found.groups()
        start = int(first or 1) + shown_lines
        return f"output://{output_id}/lines/{start}-{last or _LAST_LINE}"
    found = _SESSION.match(source.pointer)
    span = _MESSAGES.match(found[4] or "") if found and found[3] == "messages" else None
    if not found or not span:
        return None
    is_known = shown_lines < len(source.seqs)
    begin = source.seqs[shown_lines] if is_known else span[1]
    head = span[3] or found[2]
    within = f"@{head}" if head else ""
    return f"transcript://{found[1]}/messages/{begin}-{span[2] or span[1]}{within}"


def json_lines(values: Sequence[JsonObject]) -> str:
    """One JSON value a line. Lone surrogates are escaped, so that the text can be sent anywhere."""
    return "".join(json_line(value) + "\n" for value in values)


def json_line(value: JsonObject) -> str:
    """A JSON value on one line, readable where it can be."""
    text = compact_json(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text
