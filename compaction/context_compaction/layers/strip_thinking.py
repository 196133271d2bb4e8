"""Layer: thinking blocks that an earlier edit made void are stripped, kept, or an error.

A provider may bind a thinking block to everything that precedes it. Once a message is edited,
every thinking block after it would be refused, so the default strips them and records an edit.

Models with thinking of `type: "enabled"` bind nothing. They refuse a running tool loop whose newest
message of the assistant does not begin with thinking, so the thinking of that loop stays.
"""

import re

from context_compaction.errors import SettingsError
from context_compaction.messages.edits import Edit, Step, first_difference
from context_compaction.messages.model import (
    Message,
    Messages,
    Thinking,
    edit_message,
    tool_calls,
    tool_results,
)
from context_compaction.settings import ThinkingRule
from context_compaction.tokens.counter import MessageCounter

# Claude up to 4.6: newer models take adaptive thinking alone, and from 5.1 on it is bound.
_ENABLED_MODEL = re.compile(
    r"claude-(?:3-|(?:opus|sonnet|haiku)-4(?:-[0-6](?!\d)|(?!-\d{1,2}(?!\d))))"
)


def strip_invalid_thinking(
    before: Messages,
    after: Messages,
    *,
    count: MessageCounter,
    rule: ThinkingRule,
    model: str | None = None,
) -> Step:
    """`after` without the thinking blocks that follow its first difference from `before`.

    That may stand within a message: of one that was edited, the thinking before the edit stays.
    With the rule "enabled", or "auto" and a model that has such thinking, the thinking of a running
    tool loop stays too.

    Raises:
        SettingsError: The rule is "error" and there is such a block.
    """
    first = first_difference(before, after)
    void = {at: _thinking_from(after[at], 0) for at in range(first, len(after))}
    if first < min(len(before), len(after)) and before[first].index == after[first].index:
        # It was edited where it stands: its thinking is bound only to the blocks before it.
        void[first] = _thinking_from(after[first], _first_edited(before[first], after[first]))
    is_enabled = rule == "auto" and _ENABLED_MODEL.search((model or "").replace(".", "-"))
    loop = _running_loop(after) if rule == "enabled" or is_enabled else range(0)
    void = {at: blocks for at, blocks in void.items() if blocks and at not in loop}
    if not void or rule == "keep":
        return Step(after)
    if rule == "error":
        raise SettingsError(
            f"{len(void)} messages carry thinking that is bound to what stands before it, and that "
            "would be edited. Set thinking to 'strip' or 'keep', or compact without it."
        )
    out: list[Message] = []
    edits: list[Edit] = []
    for at, message in enumerate(after):
        if at not in void:
            out.append(message)
            continue
        kept = tuple(block for n, block in enumerate(message.blocks) if n not in void[at])
        stripped = edit_message(message, kept)
        left_tokens = count.message(stripped) if kept else 0
        edits.append(
            Edit(
                "thinking",
                "stripped",
                message.index,
                count.message(message),
                left_tokens,
                note="thinking that an earlier edit made void was taken out",
            )
        )
        if kept:
            out.append(stripped)
    return Step(tuple(out), tuple(edits))


def _running_loop(messages: Messages) -> range:
    """The positions of a tool loop that goes on, up to the newest message of the assistant."""
    stop = len(messages)
    while stop and messages[stop - 1].role != "assistant":
        stop -= 1
    start = stop
    while start and (messages[start - 1].role != "user" or tool_results(messages[start - 1])):
        start -= 1
    return range(start, stop) if stop and tool_calls(messages[stop - 1]) else range(0)


def _thinking_from(message: Message, start: int) -> frozenset[int]:
    """The places of the thinking blocks of `message` from `start` on."""
    blocks = enumerate(message.blocks)
    return frozenset(at for at, block in blocks if at >= start and isinstance(block, Thinking))


def _first_edited(before: Message, after: Message) -> int:
    """The first block of `after` that differs from that of `before`, or stands where it ends."""
    pairs = enumerate(zip(before.blocks, after.blocks, strict=False))
    shorter = min(len(before.blocks), len(after.blocks))
    return next((at for at, (one, other) in pairs if one is not other), shorter)
