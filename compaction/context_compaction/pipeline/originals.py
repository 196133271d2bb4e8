"""What a summary stands for in the original words, from the list that came in or the archive."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from context_compaction import formats
from context_compaction.archive import ArchivedMessage, Store
from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    ReceivedInput,
    is_ours,
)
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import attributed
from context_compaction.messages.model import Message, Messages, text_of
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.session.load import Stored

# By what an earlier summary stands for, the originals that the archive has of it, each with its
# number in the transcript.
Archived: TypeAlias = Mapping[Span, Sequence[tuple[int | None, Message]]]


def needs_archive(given: ReceivedInput, stored: Stored) -> bool:
    """Whether the list may hold a summary of ours, whose originals the archive has."""
    return bool(given.claims.messages) or stored.appended.standing is not None


def spans_in(context: CompactionContext, plan: Plan) -> list[Span]:
    """What earlier summaries of ours stand for in the part that `plan` replaces."""
    found = (_span_of_ours(context, message) for message in plan.replaced)
    return [span for span in found if span is not None]


async def read_span(span: Span, archive: Store, format: str) -> list[ArchivedMessage]:
    """The originals in `span`; none where the summary's text must do."""
    try:
        found = await archive.read_messages(
            span.session_id, span.start_seq, span.stop_seq, head=span.head
        )
    except (NotFoundError, ArchiveDamagedError):
        return []
    return [item for item in found if item.format == format]


def parsed_originals(read: Mapping[Span, Sequence[ArchivedMessage]], format: str) -> Archived:
    """What was read, parsed."""
    return {span: _numbered(items, format) for span, items in read.items()}


def number_of(context: CompactionContext, message: Message) -> int | None:
    """The number of `message` in the transcript, where it has one."""
    number = -1 if message.index is None else context.seqs[message.index]
    return number if number >= 0 else None


def originals_of(context: CompactionContext, plan: Plan, archived: Archived) -> Originals:
    """The originals of what `plan` replaces.

    Results that the clearing layers replaced are taken from the list that came in, and what an
    earlier summary of ours stands for from the archive, so that facts do not erode.
    """
    if plan.cut is None:
        return Originals()
    later = tuple(
        _as_it_came(context, message)
        for message in plan.edited.messages[plan.cut.goes_on_at :]
        if placeholders.is_request(message)
    )
    pinned = tuple(pin.text for pin in plan.pins)

    def record_of(messages: Messages) -> OriginalMessages:
        originals: list[Message] = []
        numbers: list[int | None] = []
        since: list[Message] = []
        earlier: list[str] = []
        lost: list[str] = []
        for message in messages:
            if placeholders.originals_of(message) is None:
                since.append(_as_it_came(context, message))
                originals.append(since[-1])
                numbers.append(number_of(context, message))
                continue
            span = _span_of_ours(context, message)
            found = archived.get(span, ()) if span is not None else ()
            originals.extend(original for _, original in found)
            numbers.extend(number for number, _ in found)
            ours = carried_by(message)
            earlier.append(ours.body if ours else text_of(message.blocks))
            if not found:
                lost.append(earlier[-1])  # what the summary says of them goes on
        texts = "\n".join(earlier), "\n".join(lost)
        return OriginalMessages(
            tuple(originals), tuple(since), *texts, later, pinned, tuple(numbers)
        )

    return Originals(record_of(plan.history), record_of(plan.prefix))


def _numbered(items: Sequence[ArchivedMessage], format: str) -> list[tuple[int | None, Message]]:
    messages = attributed(formats.parse([item.raw for item in items], format=format))
    return [(None if m.index is None else items[m.index].seq, m) for m in messages]


def _as_it_came(context: CompactionContext, message: Message) -> Message:
    return context.parsed[message.index] if message.index is not None else message


def _span_of_ours(context: CompactionContext, message: Message) -> Span | None:
    """What a summary of this session stands for; numbers without a head may be another branch's."""
    span = placeholders.originals_of(message)
    if span is None or not span.head or span.session_id != context.session_id:
        return None
    return span if is_ours(context, message) else None
