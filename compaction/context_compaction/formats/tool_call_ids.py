"""Ids for calls and results that the format leaves without one.

Gemini's calls, and OpenAI's older `function_call`, are matched by order and name. Inside, every
call has an id; the made-up ones depend on position and name only, so the same list gives the same
ids, and they are never written back to the host.
"""

from dataclasses import replace

from context_compaction.messages.model import (
    Block,
    Message,
    Messages,
    ToolCall,
    ToolResult,
    is_synthetic_result,
)

_PREFIX = "unnamed_"


def is_made_up(call_id: str) -> bool:
    """Whether `call_id` was given here rather than by the host."""
    return call_id.startswith(_PREFIX)


def host_id(call_id: str) -> str:
    """An id for a format in which calls have ids: the host's own, or one made of the made-up."""
    return "call_" + call_id.removeprefix(_PREFIX) if is_made_up(call_id) else call_id


def name_of(result: ToolResult) -> str:
    """The tool's name for a format that demands it beside the result."""
    if result.name:
        return result.name
    return result.call_id.split("_", 3)[3] if is_made_up(result.call_id) else result.call_id


def link(messages: Messages) -> Messages:
    """The same messages, with an id for each call and result whose id is empty.

    A result answers the first open call of its name in the assistant messages just before it; one
    that answers none gets an id of its own, so that it shows up as a result without a call. A call
    whose result only stands in is open still, behind the others: the tool's own may follow.
    """
    if not any(_lacks_id(block) for message in messages for block in message.blocks):
        return messages
    linked: list[Message] = []
    open_calls: list[ToolCall] = []
    spoke_last = False
    for position, message in enumerate(messages):
        speaks = message.role == "assistant"
        if speaks and not spoke_last:
            open_calls = []
        spoke_last = speaks
        blocks = tuple(
            _link_block(block, f"{_PREFIX}{position}_{n}_", open_calls)
            for n, block in enumerate(message.blocks)
        )
        linked.append(replace(message, blocks=blocks))
    return tuple(linked)


def _lacks_id(block: Block) -> bool:
    return isinstance(block, ToolCall | ToolResult) and not block.call_id


def _link_block(block: Block, prefix: str, open_calls: list[ToolCall]) -> Block:
    """`block` with an id; `open_calls` gains a call, or loses the one that was answered."""
    if isinstance(block, ToolCall):
        call = block if block.call_id else replace(block, call_id=f"{prefix}{block.name}")
        open_calls.append(call)
        return call
    if not isinstance(block, ToolResult):
        return block
    for call in open_calls:
        if call.call_id == block.call_id or (not block.call_id and call.name == block.name):
            open_calls.remove(call)
            if is_synthetic_result(block):
                open_calls.append(call)
            return replace(block, call_id=call.call_id)
    return block if block.call_id else replace(block, call_id=f"{prefix}{block.name or ''}")
