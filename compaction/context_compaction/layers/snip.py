"""Layer: drop the middle of a long list by message count, where a policy enables it.

And drop the messages that the caller names (Claude Code's SnipTool). A line with a pointer marks
each gap.
"""

from collections.abc import Collection

from context_compaction.layers.base import LayerContext
from context_compaction.layers.drop_messages import drop_messages, units_of
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Messages
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_pairs import safe_cuts

HEAD_MESSAGES = 3  # as in paper S3


def snip(messages: Messages, context: LayerContext) -> Step:
    """Keep the first three messages and the newest ones, `snip_max_messages` in all.

    Both cuts move outward, to where no call is split from its result, so a few more may stay.
    """
    max_messages = max(1, context.settings.snip_max_messages)
    if len(messages) <= max_messages:
        return Step(messages)
    safe = safe_cuts(messages, context.rules)
    head_messages = min(HEAD_MESSAGES, max_messages - 1)
    head = head_messages
    while head < len(messages) and not safe[head]:
        head += 1
    tail = len(messages) - (max_messages - head_messages)
    while tail > head and not safe[tail]:
        tail -= 1
    return drop_messages(messages, context, [(range(head, tail), _line)], layer="snip")


def snip_chosen(messages: Messages, context: LayerContext, chosen: Collection[int]) -> Step:
    """Drop the messages with the indices `chosen`, each call with its result, and the reverse.

    The newest request, the newest message, and every message with a pin or a rule always stay.
    """
    bound = {pin.index for pin in context.pins.candidates}
    request = max((at for at, m in enumerate(messages) if placeholders.is_request(m)), default=-1)
    positions = {
        at
        for unit in units_of(messages, context)
        if any(messages[at].index in chosen for at in unit)
        if not any(messages[at].index in bound for at in unit)
        if request not in unit and unit.stop < len(messages)
        for at in unit
    }
    return drop_messages(messages, context, [(positions, _line)], layer="snip")


def _line(dropped: Messages, span: Span) -> str:
    return placeholders.snipped(len(dropped), span.pointer)
