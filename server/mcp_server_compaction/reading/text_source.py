"""Stored text behind a pointer, read by lines or by characters.

Six things can be pointed at: an output, a range of messages, a file as a session left it, its plan,
the context that it has now, and the receipts of its compactions. Messages read as plain text, or
as JSON lines, one message a line, so that every byte can be had back; receipts are JSON lines.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from anyio import to_thread
from context_compaction.archive import Archive, OutputInfo
from context_compaction.errors import NotFoundError, QueryError
from context_compaction.messages.model import JsonObject, compact_json

from mcp_server_compaction.reading.plain_text import message_texts

_OUTPUT = re.compile(r"(?:output://)?(o_[0-9a-f]+)\Z")
# Numbers of 18 digits at most: larger ones count nothing, and databases refuse them.
_OUTPUT_LINES = re.compile(r"(?:output://)?(o_[0-9a-f]+)/lines/(\d{1,18})-(\d{1,18})\Z")
_MESSAGES = re.compile(
    r"\A(?:transcript://)?([A-Za-z0-9_.:-]+)/messages/(\d{1,18})(?:-(\d{1,18}))?"
    r"(?:@([0-9a-f]{12,32}))?\Z"
)
_RECEIPTS = re.compile(r"\A(?:transcript://)?([A-Za-z0-9_.:-]+)/receipts(?:/(\d{1,9}|last))?\Z")
_CONTEXT = re.compile(r"\A(?:transcript://)?([A-Za-z0-9_.:-]+)/context\Z")
_PLAN = re.compile(
    r"\A(?:transcript://)?([A-Za-z0-9_.:-]+)(?:@([0-9a-f]{12,32}))?/plan(?:/(\d{1,9}))?\Z"
)
# The path goes up to an @ with the number of a message, if one stands at the end.
_FILES = re.compile(
    r"\A(?:transcript://)?([A-Za-z0-9_.:-]+)(?:@([0-9a-f]{12,32}))?/files"
    r"(?:/(.+?)(?:@(\d{1,18}))?)?/?\Z"
)
# What models write for them where they have only read of a file, or of [7].
_OF_SESSION = re.compile(r"\A(?:transcript://)?([A-Za-z0-9_.:-]+)(@[0-9a-f]{12,32})?/(.+)\Z")
_NUMBERS = re.compile(r"\A(?:messages?[/ ]?)?\[?(\d{1,18})(?:-(\d{1,18}))?\]?\Z")

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


class TextSource(Protocol):
    """A text that need not be in memory as a whole. A line ends after its newline character."""

    @property
    def pointer(self) -> str:
        """What it was asked for by."""
        ...

    @property
    def gap(self) -> str:
        """A note on what should be in it and is damaged; empty where nothing is."""
        ...

    @property
    def headings(self) -> Sequence[int]:
        """The lines that name messages, rising; a text with any is no one's exact text."""
        ...

    @property
    def size_chars(self) -> int:
        """Length in characters."""
        ...

    @property
    def line_count(self) -> int:
        """Number of lines."""
        ...

    async def lines(self, start_line: int, count: int) -> Lines:
        """`count` lines from `start_line`; a negative one counts from the end (-1 the last)."""
        ...

    async def characters(self, offset: int, count: int) -> str:
        """`count` characters from `offset` on."""
        ...

    async def offset_of_line(self, line: int) -> int:
        """Characters before `line`."""
        ...


async def open_source(archive: Archive, pointer: str, *, as_json: bool = False) -> TextSource:
    """The text that `pointer` names; messages as plain text, or as they were sent, in JSON.

    SESSION/PATH and SESSION/7 are read as well, and PATH and 7 where there is but one session.

    Raises:
        NotFoundError: The archive does not hold it.
        QueryError: It is no pointer.
    """
    stripped = pointer.strip()
    source = await _open(archive, stripped, as_json=as_json)
    if source is None and (meant := await _meant(archive, stripped)):
        source = await _open(archive, meant, as_json=as_json)
    if source is None:
        raise QueryError(
            f"{pointer[:200]!r} is no pointer. Give an output id as o_0123abcd…, some of its lines "
            "as output://o_0123abcd…/lines/1-500, a range of messages as "
            "transcript://SESSION/messages/3-7, the same of one branch with @ and its head after "
            "it, transcript://SESSION/files/PATH, as of message 7 with @7 after it, "
            "transcript://SESSION/plan, the work on its third item with /3 after it, "
            "transcript://SESSION/context, transcript://SESSION/receipts, or one of them as "
            "transcript://SESSION/receipts/last."
        )
    return source


async def _open(archive: Archive, stripped: str, *, as_json: bool) -> TextSource | None:
    """See `open_source`; None where `stripped` is no pointer."""
    if found := _OUTPUT.match(stripped):
        info = await archive.output_info(found.group(1))
        return OutputSource(archive, info)
    if found := _OUTPUT_LINES.match(stripped):
        output_id, first, last = found.group(1), int(found.group(2)), int(found.group(3))
        part = await archive.read_output_lines(
            output_id, start_line=max(1, first), line_count=max(1, last - first + 1)
        )
        return MemorySource(stripped, _decode(part.data))
    if found := _MESSAGES.match(stripped):
        session_id, start, stop, head = found.groups()
        span = (int(start), int(stop or start))
        return await _open_messages(archive, stripped, session_id, span, head, as_json=as_json)
    if found := _RECEIPTS.match(stripped):
        return MemorySource(stripped, json_lines(await _receipts(archive, *found.groups())))
    if found := _CONTEXT.match(stripped):
        format, context = await archive.context(found.group(1))
        if as_json:
            return MemorySource(stripped, json_lines(context))
        named = [(f"context {at}", format, raw, None) for at, raw in enumerate(context)]
        return await _conversation(stripped, named)
    if found := _FILES.match(stripped):
        session_id, head, path, until = found.groups()
        if path is None:
            from mcp_server_compaction.reading.file_states import file_list  # replay is heavy

            return MemorySource(stripped, await file_list(archive, session_id, head))
        at = None if until is None else int(until)
        from mcp_server_compaction.reading.file_states import file_state

        state = await file_state(archive, session_id, head, path, at)
        return MemorySource(stripped, state.text, gap=state.note)
    if found := _PLAN.match(stripped):
        return await _open_plan(archive, stripped, *found.groups())
    return None


async def _meant(archive: Archive, pointer: str) -> str | None:
    """The pointer for which a shorter form stands; None where that is not clear."""
    if (found := _OF_SESSION.match(pointer)) and await _is_session(archive, found.group(1)):
        return _spelt(*found.groups(""))
    sessions, _ = await archive.sessions(limit=2)
    return _spelt(sessions[0].session_id, "", pointer) if len(sessions) == 1 else None


async def _is_session(archive: Archive, name: str) -> bool:
    try:
        await archive.session_info(name)
    except NotFoundError:
        return False
    return True


def _spelt(session_id: str, head: str, rest: str) -> str | None:
    """The pointer to messages, or to a file, of a session."""
    if found := _NUMBERS.match(rest):
        start, stop = found.groups()
        return f"transcript://{session_id}/messages/{start}-{stop or start}{head}"
    if "://" not in rest and ("/" in rest or "." in rest):
        return f"transcript://{session_id}{head}/files/{rest.removeprefix('files/')}"
    return None


async def _open_plan(
    archive: Archive, pointer: str, session_id: str, head: str | None, number: str | None
) -> TextSource:
    """The newest plan of a session, or the messages in which one of its items was worked on."""
    from mcp_server_compaction.reading.file_states import history_messages
    from mcp_server_compaction.reading.plan_items import (
        item_at,
        plan_items,
        plan_text,
        text_plan,
    )

    messages, seqs = await history_messages(archive, session_id, head, None)
    items = await to_thread.run_sync(plan_items, messages, seqs)
    last = max(seqs, default=0)
    if number is None:
        return MemorySource(pointer, plan_text(items, text_plan(messages, seqs), session_id, last))
    item = item_at(items, int(number), session_id)
    span = item.span(last)
    return await _open_messages(archive, pointer, session_id, span, head, as_json=False)


async def _receipts(archive: Archive, session_id: str, number: str | None) -> list[JsonObject]:
    """All receipts of a session, or one with the names that left the context."""
    if number is None:
        return await archive.receipts(session_id)
    from context_compaction.pipeline.losses import read_losses  # with formats and layers

    at = -1 if number == "last" else int(number)
    losses = await read_losses(archive, session_id, at)
    [receipt] = await archive.receipts(session_id, after=at, limit=1)
    return [receipt | {"losses": losses}]


async def _open_messages(
    archive: Archive,
    pointer: str,
    session_id: str,
    span: tuple[int, int],
    head: str | None,
    *,
    as_json: bool,
) -> TextSource:
    messages = await archive.read_messages(session_id, *span, head=head)
    messages.sort(key=lambda message: message.seq)
    gap = "" if head else _gap(await archive.damaged_messages(session_id, *span))
    if not messages and not gap:
        held = (await archive.session_info(session_id)).message_count
        numbers = f"has the messages 0 to {held - 1}" if held else "has no messages"
        raise NotFoundError(f"Session {session_id} {numbers}; {pointer!r} names none of them.")
    if as_json:
        lines = json_lines([message.raw for message in messages])
        return MemorySource(pointer, lines, seqs=[message.seq for message in messages], gap=gap)
    said = [(str(m.seq), m.format, m.raw, m.timestamp_seconds) for m in messages]
    return await _conversation(pointer, said, gap)


async def _conversation(
    pointer: str, rows: Sequence[tuple[str, str, JsonObject, float | None]], gap: str = ""
) -> TextSource:
    """Messages as plain text."""
    texts = await to_thread.run_sync(message_texts, rows)
    lines = accumulate((text.count("\n") + 1 for text in texts), initial=1)
    return MemorySource(pointer, "\n".join(texts), headings=list(lines)[:-1], gap=gap)


def _gap(damaged: Sequence[int]) -> str:
    """What to say of messages that are missing from a text."""
    if not damaged:
        return ""
    shown = ", ".join(map(str, damaged[:_SHOWN_GAPS])) + (
        f" and {len(damaged) - _SHOWN_GAPS} more" if len(damaged) > _SHOWN_GAPS else ""
    )
    which = f"Message {shown} is" if len(damaged) == 1 else f"Messages {shown} are"
    return (
        f" {which} damaged in the archive and left out; the command doctor names the line. "
        "Handing over the whole list again stores it anew."
    )


def rest_of(source: TextSource, shown_lines: int) -> str | None:
    """The pointer to what follows the first lines of a text; None where none does."""
    pointer = source.pointer
    if found := _OUTPUT.match(pointer):
        return f"output://{found.group(1)}/lines/{shown_lines + 1}-{_LAST_LINE}"
    if found := _OUTPUT_LINES.match(pointer):
        first = int(found.group(2)) + shown_lines
        return f"output://{found.group(1)}/lines/{first}-{found.group(3)}"
    if found := _MESSAGES.match(pointer):
        session_id, start, stop, head = found.groups()
        seqs = source.seqs if isinstance(source, MemorySource) else ()
        begin = seqs[shown_lines] if shown_lines < len(seqs) else start
        within = f"@{head}" if head else ""
        return f"transcript://{session_id}/messages/{begin}-{stop or start}{within}"
    return None


def json_lines(values: Sequence[JsonObject]) -> str:
    """One JSON value a line. Lone surrogates are escaped, so that the text can be sent anywhere."""
    return "".join(json_line(value) + "\n" for value in values)


def json_line(value: JsonObject) -> str:
    """A JSON value on one line, readable where it can be."""
    text = compact_json(value)
    if text.isascii() or _is_utf8(text):
        return text
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class OutputSource:
    """A stored output, of which only what is asked for is read."""

    archive: Archive
    info: OutputInfo
    headings = ()
    gap = ""

    @property
    def pointer(self) -> str:
        """The output id."""
        return self.info.output_id

    @property
    def size_chars(self) -> int:
        """Length in characters."""
        return self.info.size_chars

    @property
    def line_count(self) -> int:
        """Number of lines."""
        return self.info.line_count

    async def lines(self, start_line: int, count: int) -> Lines:
        """See `TextSource`."""
        found = await self.archive.read_output_lines(
            self.info.output_id, start_line=start_line, line_count=count
        )
        text = _decode(found.data)
        return Lines(text, found.start_line, len(_split(text)))

    async def characters(self, offset: int, count: int) -> str:
        """See `TextSource`."""
        if self._is_ascii:
            found = await self.archive.read_output(
                self.info.output_id, start_byte=offset, limit_bytes=count
            )
            return _decode(found.data)
        return _decode((await self.archive.read_output(self.info.output_id)).data)[
            offset : offset + count
        ]

    async def offset_of_line(self, line: int) -> int:
        """See `TextSource`."""
        found = await self.archive.read_output_lines(
            self.info.output_id, start_line=line, line_count=1
        )
        if self._is_ascii or found.start_byte == 0:
            return found.start_byte
        before = await self.archive.read_output(self.info.output_id, limit_bytes=found.start_byte)
        return len(_decode(before.data))

    @property
    def _is_ascii(self) -> bool:
        return self.info.size_bytes == self.info.size_chars


class MemorySource:
    """A text that is in memory; `seqs` are the numbers of the messages that its lines hold."""

    def __init__(
        self,
        pointer: str,
        text: str,
        *,
        headings: Sequence[int] = (),
        seqs: Sequence[int] = (),
        gap: str = "",
    ) -> None:
        self.pointer = pointer
        self.gap = gap
        self.seqs = seqs
        self.headings = headings
        self._text = text
        self._lines = _split(text)

    @property
    def size_chars(self) -> int:
        """Length in characters."""
        return len(self._text)

    @property
    def line_count(self) -> int:
        """Number of lines."""
        return len(self._lines)

    async def lines(self, start_line: int, count: int) -> Lines:
        """See `TextSource`."""
        first = start_line if start_line > 0 else max(1, self.line_count + start_line + 1)
        chosen = self._lines[first - 1 : first - 1 + count]
        return Lines("".join(chosen), first, len(chosen))

    async def characters(self, offset: int, count: int) -> str:
        """See `TextSource`."""
        return self._text[offset : offset + count]

    async def offset_of_line(self, line: int) -> int:
        """See `TextSource`."""
        return sum(len(text) for text in self._lines[: line - 1])


def _split(text: str) -> list[str]:
    """The lines of `text` with their ends; only the newline character ends one."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
