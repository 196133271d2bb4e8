"""Layer: a request too long for the target gives way to an extract of itself, with a pointer.

People paste: a log, a file, the output of a tool that their host has no other way to hand over.
Where the newest request alone leaves no room, it goes to the archive like a large output. What
stays of it is what a summary would keep: its beginning and end, the sentences that bind, and the
lines that carry its names.
"""

from context_compaction import markers
from context_compaction.digest import Digest
from context_compaction.edits import Step, make_blob
from context_compaction.messages import Message, Messages, Text, ToolResult
from context_compaction.posed_results import with_results_told_apart
from context_compaction.replacing import Place, Replacement, replace_blocks
from context_compaction.summarizers import SummaryRequest, extractive
from context_compaction.tokens import MessageCounter

_TOOL_NAME = "message of the user"


def shorten_request(messages: Messages, *, count: MessageCounter, max_tokens: int) -> Step:
    """Replace the longest text of the newest request by an extract, so that it counts `max_tokens`.

    A request that is not above it, or would not get smaller, stays as it is.
    """
    places = [at for at, message in enumerate(messages) if markers.is_request(message)]
    if not places or count.message(messages[places[-1]]) <= max_tokens:
        return Step(messages)
    request = messages[places[-1]]
    texts = [(at, block) for at, block in enumerate(request.blocks) if isinstance(block, Text)]
    at, block = max(texts, key=lambda item: count.block(item[1]), default=(0, Text("")))
    if not block.text or markers.is_persisted(block.text):
        return Step(messages)
    blob = make_blob(block.text, tool_name=_TOOL_NAME)
    frame = markers.persisted((blob,), "", _TOOL_NAME, len(block.text))
    room_tokens = max_tokens - (count.message(request) - count.block(block)) - count.text(frame)
    is_posed = with_results_told_apart(messages)[places[-1]] is not request
    said = Message("user", (ToolResult("", (block,)) if is_posed else block,))
    extract = extractive.write(SummaryRequest((said,), Digest(), max(0, room_tokens)), count)
    marker = Text(markers.persisted((blob,), extract, _TOOL_NAME, len(block.text)))
    saved_tokens = count.block(block) - count.block(marker)
    if saved_tokens <= 0:
        return Step(messages)
    done = Replacement(marker, (blob,), saved_tokens, "persisted", note="the newest request")
    return replace_blocks(messages, {Place(places[-1], at): done}, count, layer="request")
