"""The originals that a summary replaces, from the list that came in or the archive."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from context_compaction import formats
from context_compaction.archive import Archive, ArchivedMessage
from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    is_ours,
    span_of,
)
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import Message, Messages, text_of
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import with_authors
from context_compaction.session.resume import Session
from context_compaction.session.save import CarriedOn
from context_compaction.session.state import SessionState, carried_for
from context_compaction.summarizers.extractive.carried import (
    Carried,
    as_json,
    carried_of,
    packed,
    unpacked,
)

# By what an earlier summary stands for, the originals that the archive has of it.
Archived: TypeAlias = Mapping[Span, Carried]
# The same as it is read: packed and made short, or message by message.
Read: TypeAlias = bytes | Sequence[ArchivedMessage]

_NONE = Carried(is_short=False)


async def read_originals(
    context: CompactionContext, plan: Plan, session: Session, archive: Archive
) -> Mapping[Span, Read]:
    """The originals of the earlier summaries of ours that `plan` replaces."""
    found = (span_of_ours(context, message) for message in plan.replaced)
    return {
        span: await _read_span(span, session.all_states, archive, context.format)
        for span in found
        if span is not None
    }


async def _read_span(
    span: Span, states: Sequence[SessionState], archive: Archive, format: str
) -> Read:
    """The originals in `span`, shortened where a call left them so; none if unavailable.

    Args:
        span: The span that a summary replaces.
        states: The states of the session's calls, oldest first.
        archive: Holds them.
        format: The messages' format.
    """
    output_id = carried_for(span, states)
    try:
        if output_id is not None:
            return (await archive.read_output(output_id)).data
    except (NotFoundError, ArchiveDamagedError):
        pass  # the originals themselves are there
    try:
        found = await archive.read_messages(
            span.session_id, span.start_seq, span.stop_seq, head=span.head
        )
    except (NotFoundError, ArchiveDamagedError):
        return []
    return [item for item in found if item.format == format]


def parsed_originals(read: Mapping[Span, Read], format: str) -> Archived:
    """The originals that were read, parsed."""
    return {
        span: unpacked(found) if isinstance(found, bytes) else _whole(found, format)
        for span, found in read.items()
    }


def carried_on(
    context: CompactionContext,
    plan: Plan,
    archived: Archived,
    messages: Messages,
    states: Sequence[SessionState],
) -> CarriedOn:
    """For each summary in the result the output with its shortened originals; and the new outputs.

    Args:
        context: The call.
        plan: Holds the messages that a text replaces.
        archived: The archived originals of earlier summaries.
        messages: The result.
        states: The states of the session's calls, oldest first.
    """
    carried: dict[str, str] = {}
    blobs: list[Blob] = []
    originals = originals_of(context, plan, archived)
    texts = [(plan.history, originals.history), (plan.prefix, originals.prefix)]
    if plan.cut is not None and plan.cut.folds_request:
        texts = [(plan.replaced, joined(originals))]
    for replaced, record in texts:
        if replaced and record.messages and not record.lost:
            short = carried_of(record.messages, record.numbers)
            blobs.append(packed(context.gates.json(as_json(short))))
            carried[span_of(context, replaced).pointer] = blobs[-1].output_id
    for message in messages:
        span = placeholders.span_replaced_by(message)
        if span is not None and (output_id := carried_for(span, states)):
            carried.setdefault(span.pointer, output_id)
    return carried, blobs


def originals_of(context: CompactionContext, plan: Plan, archived: Archived) -> Originals:
    """The originals of what `plan` replaces.

    Results that the clearing layers replaced are taken from the list that came in, and what an
    earlier summary of ours replaces from the archive, so that facts do not erode.
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
    lost: list[str] = []
    is_short = False
    for message in messages:
        span = span_of_ours(context, message)
        found = archived.get(span, _NONE) if span is not None else _NONE
        if placeholders.originals_of(message) is None:
            whole = found.messages or (_as_it_came(context, message),)
            originals += whole
            numbers += [context.number_of(message)] * len(whole)
            continue
        originals += found.messages
        numbers += found.numbers
        is_short = is_short or found.is_short
        ours = carried_by(message)
        earlier.append(ours.body if ours else text_of(message.blocks))
        if not found.messages:
            lost.append(earlier[-1])  # what the summary says of them is kept
    return OriginalMessages(
        tuple(originals), "\n".join(earlier), "\n".join(lost), tuple(numbers), is_short
    )


def joined(originals: Originals) -> OriginalMessages:
    """History and the beginning of the running turn as one record."""
    one, other = originals.history, originals.prefix
    return OriginalMessages(
        (*one.messages, *other.messages),
        "\n".join(filter(None, (one.earlier, other.earlier))),
        "\n".join(filter(None, (one.lost, other.lost))),
        (*one.numbers, *other.numbers),
        one.is_short or other.is_short,
    )


def _whole(items: Sequence[ArchivedMessage], format: str) -> Carried:
    messages = with_authors(formats.parse([item.raw for item in items], format=format))
    numbers = (None if m.index is None else items[m.index].seq for m in messages)
    return Carried(messages, tuple(numbers), is_short=False)


def _as_it_came(context: CompactionContext, message: Message) -> Message:
    return context.parsed[message.index] if message.index is not None else message


def span_of_ours(context: CompactionContext, message: Message) -> Span | None:
    """The span that a summary of this session replaces; None without a head: any branch's.

    That of an extract of a long request is the request itself.
    """
    if placeholders.is_request_extract(message):
        return span_of(context, (message,)) if context.number_of(message) is not None else None
    span = placeholders.originals_of(message)
    if span is None or not span.head or span.session_id != context.session_id:
        return None
    return span if is_ours(context, message) else None
