"""What a summary stands for in the original words, from the list that came in or the archive."""

from dataclasses import dataclass

from context_compaction import markers, wire
from context_compaction.archive import Archive
from context_compaction.attribution import attributed
from context_compaction.cut_point import history_of, turn_prefix_of
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.messages import Message, Messages, text_of
from context_compaction.pins import carried_by
from context_compaction.task import Shape, Task, is_ours
from context_compaction.words_room import pins_at


@dataclass(frozen=True, slots=True)
class Record:
    """What one summary stands for, in the original words.

    Attributes:
        messages: All of it that is at hand.
        since: Those messages that no earlier summary stood for.
        earlier: The text of earlier summaries in it.
        lost: The text of those whose originals are not in the archive.
        later: Requests of the user that stay in the context after it.
        pinned: Texts that stand beside it word for word.
    """

    messages: Messages = ()
    since: Messages = ()
    earlier: str = ""
    lost: str = ""
    later: Messages = ()
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """What a writer reads: history, and the beginning of the running turn."""

    history: Record = Record()
    prefix: Record = Record()


async def sources_of(
    task: Task, shape: Shape, parsed: Messages, archive: Archive, format: str
) -> Sources:
    """The originals of what `shape` replaces.

    Results that the clearing layers replaced are taken from the list that came in, and what an
    earlier summary of ours stands for from the archive, so that facts do not erode.
    """
    if shape.cut is None:
        return Sources()
    staying = shape.draft.messages[shape.cut.goes_on_at :]
    later = tuple(
        parsed[message.index] if message.index is not None else message
        for message in staying
        if markers.is_request(message)
    )
    pinned = tuple(pin.text for pin in pins_at(task, shape, shape.cut))

    async def record_of(messages: Messages) -> Record:
        originals: list[Message] = []
        since: list[Message] = []
        earlier: list[str] = []
        lost: list[str] = []
        for message in messages:
            span = markers.originals_of(message)
            if span is None:
                since.append(parsed[message.index] if message.index is not None else message)
                originals.append(since[-1])
                continue
            is_known = is_ours(task, message) and span.session_id == task.session_id
            found = await _archived(span, archive, format) if is_known else ()
            originals.extend(found)
            ours = carried_by(message)
            earlier.append(ours.body if ours else text_of(message.blocks))
            if not found:
                lost.append(earlier[-1])
        texts = "\n".join(earlier), "\n".join(lost)
        return Record(tuple(originals), tuple(since), *texts, later, pinned)

    return Sources(
        await record_of(history_of(shape.draft.messages, shape.cut)),
        await record_of(turn_prefix_of(shape.draft.messages, shape.cut)),
    )


async def _archived(span: markers.Span, archive: Archive, format: str) -> Messages:
    if not span.head:
        return ()  # numbers alone, as earlier versions wrote them, may be those of another branch
    try:
        found = await archive.read_messages(
            span.session_id, span.start_seq, span.stop_seq, head=span.head
        )
    except (NotFoundError, ArchiveDamagedError):
        return ()  # what the summary says of them goes on then
    raws = [item.raw for item in found if item.format == format]
    return attributed(wire.parse(raws, format=format))
