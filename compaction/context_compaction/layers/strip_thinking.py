"""Layer: strip or keep thinking blocks that an earlier edit made invalid, or raise an error.

A provider may bind a thinking block to everything before it. Once a message is edited, the provider
refuses every later thinking block, so the default strips them and records an edit.

Models with thinking of `type: "enabled"` bind nothing. They refuse a running tool loop whose newest
assistant message does not start with thinking, so the thinking of that loop stays.
"""

import re

from context_compaction.errors import SettingsError
from context_compaction.messages.model import (
    Edit,
    Message,
    Messages,
    Step,
    Thinking,
    edit_message,
    first_difference,
    tool_calls,
    tool_results,
)
from context_compaction.request import Settings
from context_compaction.tokens.counter import MessageCounter

# Claude up to 4.6. Newer models accept only adaptive thinking, which is bound from 5.1 on.
_ENABLED_MODEL = re.compile(
    r"claude-(?:3-|(?:opus|sonnet|haiku)-4(?:-[0-6](?!\d)|(?!-\d{1,2}(?!\d))))"
)


def strip_invalid_thinking(
    before: Messages, after: Messages, count: MessageCounter, settings: Settings, model: str | None
) -> Step:
    """Return `after` without the thinking blocks after its first difference from `before`.

    In an edited message, the thinking before the edit stays. With the rule "enabled", or "auto" and
    a model with such thinking, the thinking of a running tool loop stays, too.

    Raises:
        SettingsError: The rule is "error" and there is such a block.
    """
    first = first_difference(before, after)
    invalid = {index: _thinking_from(after[index], 0) for index in range(first, len(after))}
    if first < min(len(before), len(after)) and before[first].index == after[first].index:
        # The message was edited in place. Its thinking is bound only to the blocks before it.
        invalid[first] = _thinking_from(after[first], _first_edited(before[first], after[first]))
    rule = settings.thinking
    is_enabled = rule == "auto" and _ENABLED_MODEL.search((model or "").replace(".", "-"))
    loop = _running_loop(after) if rule == "enabled" or is_enabled else range(0)
    invalid = {index: blocks for index, blocks in invalid.items() if blocks and index not in loop}
    if not invalid or rule == "keep":
        return Step(after)
    if rule == "error":
        raise SettingsError(
            f"{len(invalid)} messages contain thinking that is bound to earlier messages, and this "
            "compaction edits those. Set thinking to 'strip' or 'keep'."
        )
    out: list[Message] = []
    edits: list[Edit] = []
    note = "thinking that an earlier edit made invalid was removed"
    for index, message in enumerate(after):
        if index not in invalid:
            out.append(message)
            continue
        blocks = [b for number, b in enumerate(message.blocks) if number not in invalid[index]]
        stripped = edit_message(message, blocks)
        out += [stripped] if blocks else []
        sizes = count.message(message), count.message(stripped) if blocks else 0
        edits.append(Edit("thinking", "stripped", message.index, *sizes, note=note))
    return Step(tuple(out), tuple(edits))


def _running_loop(messages: Messages) -> range:
    """Return the indices of a tool loop that is still running, up to the last assistant message."""
    stop = len(messages)
    while stop and messages[stop - 1].role != "assistant":
        stop -= 1
    start = stop
    while start and (messages[start - 1].role != "user" or tool_results(messages[start - 1])):
        start -= 1
    return range(start, stop) if stop and tool_calls(messages[stop - 1]) else range(0)


def _thinking_from(message: Message, start: int) -> frozenset[int]:
    """Return the numbers of the thinking blocks of `message` from block `start` on."""
    blocks = enumerate(message.blocks)
    return frozenset(n for n, block in blocks if n >= start and isinstance(block, Thinking))


def _first_edited(before: Message, after: Message) -> int:
    """Return the number of the first block that differs; the shorter length if none does."""
    pairs = enumerate(zip(before.blocks, after.blocks, strict=False))
    shorter = min(len(before.blocks), len(after.blocks))
    return next((number for number, (old, new) in pairs if old is not new), shorter)
