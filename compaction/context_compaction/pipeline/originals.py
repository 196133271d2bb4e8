"""The original messages that a summary replaces, from the caller's list or the archive."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from context_compaction import formats
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import ArchivedMessage
from context_compaction.context import CompactionContext, OriginalMessages, Plan
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages, text_of
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import with_authors
from context_compaction.summarizers.extractive.render import entries_before

# The archived originals of earlier summaries, by the span that each summary replaces.
Archived: TypeAlias = Mapping[Span, OriginalMessages]

# So many of the newest originals behind an earlier summary are read again. For older ones the words
# of that summary stay, so that the cost of a compaction does not grow with the session.
MAX_ORIGINALS = 300
_NONE = OriginalMessages()


async def read_originals(
    context: CompactionContext, plan: Plan, archive: Archive
) -> Mapping[Span, Sequence[ArchivedMessage]]:
    """Read the newest originals of each earlier summary that `plan` replaces."""
    spans = (_own_span(context, message) for message in plan.replaced)
    return {
        span: await _read_span(span, archive, context.format) for span in spans if span is not None
    }


async def _read_span(span: Span, archive: Archive, format: str) -> Sequence[ArchivedMessage]:
    start = max(span.start_seq, span.stop_seq - MAX_ORIGINALS + 1)
    try:
        messages = await archive.read_messages(
            span.session_id, start, span.stop_seq, head=span.head
        )
    except (NotFoundError, ArchiveDamagedError):
        return []
    return [message for message in messages if message.format == format]


def parsed_originals(read: Mapping[Span, Sequence[ArchivedMessage]], format: str) -> Archived:
    """Return the originals that were read, parsed."""
    return {span: _parsed(items, format) for span, items in read.items()}


def _parsed(items: Sequence[ArchivedMessage], format: str) -> OriginalMessages:
    messages = with_authors(formats.parse([item.raw for item in items], format=format))
    numbers = (None if m.index is None else items[m.index].seq for m in messages)
    return OriginalMessages(messages, tuple(numbers))


def with_archived(
    context: CompactionContext, messages: Messages, archived: Archived
) -> Iterator[tuple[Message, OriginalMessages]]:
    """Yield each message with what it replaces: archived originals, and its text about others."""
    for message in messages:
        replaced = placeholders.originals_of(message)
        if replaced is None and not placeholders.is_request_extract(message):
            yield message, _NONE  # nearly all messages
            continue
        span = _own_span(context, message)
        found = _NONE if span is None else archived.get(span, _NONE)
        if replaced is not None:
            summary = carried_by(message)
            text = summary.body if summary else text_of(message.blocks)
            unarchived = text
            if span is not None and found.numbers:
                first = found.numbers[0] or span.start_seq
                unarchived = entries_before(text, first) if first > span.start_seq else ""
            found = replace(found, earlier=text, unarchived=unarchived)
        yield message, found


def originals_of(context: CompactionContext, plan: Plan, archived: Archived) -> OriginalMessages:
    """Return the originals of what `plan` replaces.

    Cleared results are taken from the caller's list, and messages behind earlier summaries from the
    archive, so that facts do not erode.
    """
    parts: list[OriginalMessages] = []
    for message, found in with_archived(context, plan.replaced, archived):
        if not found.earlier:
            given = message if message.index is None else context.parsed[message.index]
            full_messages = found.messages or (given,)
            numbers = (context.number_of(message),) * len(full_messages)
            found = OriginalMessages(full_messages, numbers)
        parts.append(found)
    history_count = sum(len(part.messages) for part in parts[: len(plan.history)])
    return replace(OriginalMessages.joined(*parts), history_count=history_count)


def _own_span(context: CompactionContext, message: Message) -> Span | None:
    """Return the span that a summary of this session replaces, or None.

    An extract of a long request replaces that request.
    """
    if placeholders.is_request_extract(message):
        return context.span_of((message,)) if context.number_of(message) is not None else None
    span = placeholders.originals_of(message)
    # A span without a head could belong to any branch.
    if span is None or not span.head or span.session_id != context.session.session_id:
        return None
    return span if context.is_own(message) else None
