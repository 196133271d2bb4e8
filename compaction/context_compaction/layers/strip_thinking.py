"""Layer: thinking blocks that an earlier edit made void are stripped, kept, or an error.

A provider may bind a thinking block to everything that precedes it. Once a message is edited,
every thinking block after it would be refused, so the default strips them and records an edit.
"""

from context_compaction.errors import SettingsError
from context_compaction.messages.edits import Edit, Step, first_difference
from context_compaction.messages.model import Message, Messages, Thinking, edit_message
from context_compaction.settings import ThinkingRule
from context_compaction.tokens.counter import MessageCounter


def strip_void_thinking(
    before: Messages, after: Messages, *, count: MessageCounter, rule: ThinkingRule
) -> Step:
    """`after` without the thinking blocks that follow its first difference from `before`.

    Raises:
        SettingsError: The rule is "error" and there is such a block.
    """
    first = first_difference(before, after)
    if first < min(len(before), len(after)) and before[first].index == after[first].index:
        first += 1  # it was edited where it stands, and is bound only to what precedes it
    void = frozenset(
        at
        for at in range(first, len(after))
        if any(isinstance(block, Thinking) for block in after[at].blocks)
    )
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
        kept = tuple(block for block in message.blocks if not isinstance(block, Thinking))
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
