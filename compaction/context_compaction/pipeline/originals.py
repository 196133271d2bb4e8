"""What a summary stands for in the original words, from the list that came in or the archive."""

from context_compaction import formats
from context_compaction.archive import Archive
from context_compaction.context import CompactionContext, OriginalMessages, Originals, Plan, is_ours
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.layers.cut_point import history_of, turn_prefix_of
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import attributed
from context_compaction.messages.model import Message, Messages, text_of
from context_compaction.messages.pins import carried_by
from context_compaction.pipeline.assemble import pins_at


async def read_originals(
    context: CompactionContext, plan: Plan, parsed: Messages, archive: Archive, format: str
) -> Originals:
    """The originals of what `plan` replaces.

    Results that the clearing layers replaced are taken from the list that came in, and what an
    earlier summary of ours stands for from the archive, so that facts do not erode.
    """
    if plan.cut is None:
        return Originals()
    staying = plan.edited.messages[plan.cut.goes_on_at :]
    later = tuple(
        parsed[message.index] if message.index is not None else message
        for message in staying
        if placeholders.is_request(message)
    )
    pinned = tuple(pin.text for pin in pins_at(context, plan, plan.cut))

    async def record_of(messages: Messages) -> OriginalMessages:
        originals: list[Message] = []
        since: list[Message] = []
        earlier: list[str] = []
        lost: list[str] = []
        for message in messages:
            span = placeholders.originals_of(message)
            if span is None:
                since.append(parsed[message.index] if message.index is not None else message)
                originals.append(since[-1])
                continue
            is_known = is_ours(context, message) and span.session_id == context.session_id
            found = await _archived(span, archive, format) if is_known else ()
            originals.extend(found)
            ours = carried_by(message)
            earlier.append(ours.body if ours else text_of(message.blocks))
            if not found:
                lost.append(earlier[-1])
        texts = "\n".join(earlier), "\n".join(lost)
        return OriginalMessages(tuple(originals), tuple(since), *texts, later, pinned)

    return Originals(
        await record_of(history_of(plan.edited.messages, plan.cut)),
        await record_of(turn_prefix_of(plan.edited.messages, plan.cut)),
    )


async def _archived(span: placeholders.Span, archive: Archive, format: str) -> Messages:
    if not span.head:
        return ()  # numbers alone, as earlier versions wrote them, may be those of another branch
    try:
        found = await archive.read_messages(
            span.session_id, span.start_seq, span.stop_seq, head=span.head
        )
    except (NotFoundError, ArchiveDamagedError):
        return ()  # what the summary says of them goes on then
    raws = [item.raw for item in found if item.format == format]
    return attributed(formats.parse(raws, format=format))
