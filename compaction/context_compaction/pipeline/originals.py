"""The original messages that a summary replaces, from the caller's list or the archive."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from context_compaction import formats
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import ArchivedMessage
from context_compaction.compaction_state import CompactionState, shortened_output_id
from context_compaction.context import CompactionContext, OriginalMessages, Originals, Plan
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import Message, Messages, text_of
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import with_authors
from context_compaction.session.save import ShortenedOutputs
from context_compaction.summarizers.extractive.shortened import (
    ShortenedMessages,
    as_json,
    pack,
    shorten_messages,
    unpack,
)

# The archived originals of earlier summaries, by the span that each summary replaces.
Archived: TypeAlias = Mapping[Span, ShortenedMessages]
# Archived originals before parsing: shortened and packed, or message by message.
Read: TypeAlias = bytes | Sequence[ArchivedMessage]

_NONE = ShortenedMessages(is_short=False)


async def read_originals(
    context: CompactionContext, plan: Plan, archive: Archive
) -> Mapping[Span, Read]:
    """Read the originals of the earlier summaries that `plan` replaces."""
    spans = (_own_span(context, message) for message in plan.replaced)
    states = context.session.all_states
    return {
        span: await _read_span(span, states, archive, context.format)
        for span in spans
        if span is not None
    }


async def _read_span(
    span: Span, states: Sequence[CompactionState], archive: Archive, format: str
) -> Read:
    """Read the originals in `span`, shortened if an earlier call stored them so, or none."""
    output_id = shortened_output_id(span, states)
    try:
        if output_id is not None:
            return (await archive.read_output(output_id)).data
    except (NotFoundError, ArchiveDamagedError):
        pass  # the messages themselves may still be readable
    try:
        messages = await archive.read_messages(
            span.session_id, span.start_seq, span.stop_seq, head=span.head
        )
    except (NotFoundError, ArchiveDamagedError):
        return []
    return [message for message in messages if message.format == format]


def parsed_originals(read: Mapping[Span, Read], format: str) -> Archived:
    """Return the originals that were read, parsed."""
    return {
        span: unpack(data) if isinstance(data, bytes) else _parsed(data, format)
        for span, data in read.items()
    }


def _parsed(items: Sequence[ArchivedMessage], format: str) -> ShortenedMessages:
    messages = with_authors(formats.parse([item.raw for item in items], format=format))
    numbers = (None if m.index is None else items[m.index].seq for m in messages)
    return ShortenedMessages(messages, tuple(numbers), is_short=False)


def with_archived(
    context: CompactionContext, messages: Messages, archived: Archived
) -> Iterator[tuple[Message, ShortenedMessages]]:
    """Yield each message with the archived originals that it replaces, if any."""
    for message in messages:
        span = _own_span(context, message)
        yield message, _NONE if span is None else archived.get(span, _NONE)


def originals_of(context: CompactionContext, plan: Plan, archived: Archived) -> Originals:
    """Return the originals of what `plan` replaces.

    Cleared results are taken from the caller's list, and messages behind earlier summaries from the
    archive, so that facts do not erode.
    """
    if plan.cut is None:
        return Originals()
    return Originals(
        _originals_in(context, plan.history, archived),
        _originals_in(context, plan.prefix, archived),
    )


def _originals_in(
    context: CompactionContext, messages: Messages, archived: Archived
) -> OriginalMessages:
    originals: list[Message] = []
    numbers: list[int | None] = []
    earlier: list[str] = []
    unarchived: list[str] = []
    is_short = False
    for message, found in with_archived(context, messages, archived):
        if placeholders.originals_of(message) is None:
            given = message if message.index is None else context.parsed[message.index]
            full_messages = found.messages or (given,)
            originals += full_messages
            numbers += [context.number_of(message)] * len(full_messages)
            continue
        originals += found.messages
        numbers += found.numbers
        is_short = is_short or found.is_short
        summary = carried_by(message)
        earlier.append(summary.body if summary else text_of(message.blocks))
        if not found.messages:
            unarchived.append(earlier[-1])
    return OriginalMessages(
        tuple(originals), tuple(numbers), "\n".join(earlier), "\n".join(unarchived), is_short
    )


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


def shortened_outputs(
    context: CompactionContext, plan: Plan, messages: Messages
) -> ShortenedOutputs:
    """Return the outputs with the shortened originals of each summary among `messages`.

    A later compaction reads these instead of all originals, so its cost does not grow with the age
    of the session.
    """
    output_ids: dict[str, str] = {}
    blobs: list[Blob] = []
    originals = originals_of(context, plan, plan.archived)
    texts = [(plan.history, originals.history), (plan.prefix, originals.prefix)]
    if plan.cut is not None and plan.cut.folds_request:
        texts = [(plan.replaced, originals.all)]
    for replaced, record in texts:
        if replaced and record.messages and not record.unarchived:
            short = shorten_messages(record.messages, record.numbers)
            blobs.append(pack(context.gates.json(as_json(short))))
            output_ids[context.span_of(replaced).pointer] = blobs[-1].output_id
    for message in messages:
        span = placeholders.span_replaced_by(message)
        if span is not None:
            output_id = shortened_output_id(span, context.session.all_states)
            output_ids |= (
                {span.pointer: output_id} if output_id and span.pointer not in output_ids else {}
            )
    return output_ids, blobs
