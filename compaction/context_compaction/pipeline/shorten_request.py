"""A request too long for the target gives way to an extract of itself, with a pointer.

People paste: a log, a file, the output of a tool that their host has no other way to hand over.
Where the newest request alone leaves no room, it goes to the archive like a large output. What
stays of it is what a summary would keep: its beginning and end, the sentences that bind, and the
lines that carry its names.
"""

from context_compaction.activity.digest import Digest
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step, make_blob
from context_compaction.messages.model import Message, Messages, Text
from context_compaction.messages.speakers import author_of
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.tokens.counter import MessageCounter

# For a text that its host hands over in the user's name.
_POSED_TOOL = "text in the user's name"
REQUEST_LAYER = "request"


def shorten_request(messages: Messages, *, count: MessageCounter, max_tokens: int) -> Step:
    """Replace the longest text of the newest request by an extract, so that it counts `max_tokens`.

    A request that is not above it, or would not get smaller, stays as it is.
    """
    places = [at for at, message in enumerate(messages) if placeholders.is_request(message)]
    if not places or count.message(messages[places[-1]]) <= max_tokens:
        return Step(messages)
    request = messages[places[-1]]
    texts = [(at, block) for at, block in enumerate(request.blocks) if isinstance(block, Text)]
    at, block = max(texts, key=lambda item: count.block(item[1]), default=(0, Text("")))
    if not block.text or placeholders.is_long_request(block.text):
        return Step(messages)
    is_typed = author_of(request, block) == "user"
    tool_name = placeholders.REQUEST_TOOL if is_typed else _POSED_TOOL
    blob = make_blob(block.text, tool_name=tool_name)
    frame = placeholders.persisted((blob,), "", tool_name, len(block.text))
    room_tokens = max_tokens - (count.message(request) - count.block(block)) - count.text(frame)
    said = Message("user", (block,))
    extract = writer.write(SummaryInput((said,), Digest(), max(0, room_tokens)), count)
    text = placeholders.persisted((blob,), extract, tool_name, len(block.text))
    marker = Text(text, author="user" if is_typed else "compaction")
    saved_tokens = count.block(block) - count.block(marker)
    if saved_tokens <= 0:
        return Step(messages)
    done = Replacement(marker, (blob,), saved_tokens, "persisted", note="the newest request")
    return replace_blocks(messages, {Place(places[-1], at): done}, count, layer=REQUEST_LAYER)


def is_of_request(edit: Edit) -> bool:
    """Whether `edit` put an extract in the place of the newest request."""
    return edit.layer == REQUEST_LAYER
