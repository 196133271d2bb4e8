"""IDs for calls and results that have none in their format.

Gemini's calls and OpenAI's older `function_call` are matched by order and name. In the internal
model every call has an ID. A generated ID depends only on position and name, so that equal lists
get equal IDs. It is never written to the host's list.
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


def is_generated(call_id: str) -> bool:
    """Whether this module generated `call_id`, rather than the host."""
    return call_id.startswith(_PREFIX)


def host_id(call_id: str) -> str:
    """Return an ID for a format in which calls have IDs."""
    return "call_" + call_id.removeprefix(_PREFIX) if is_generated(call_id) else call_id


def name_of(result: ToolResult) -> str:
    """Return the tool's name for a format in which results have one."""
    if result.name:
        return result.name
    return result.call_id.split("_", 3)[3] if is_generated(result.call_id) else result.call_id


def link(messages: Messages) -> Messages:
    """Return the messages with an ID for each call and result whose ID is empty.

    A result answers the first open call of its name in the assistant messages directly before it.
    A result without such a call gets an unused ID, so that repair finds it. A call with a synthetic
    result moves to the end of the open calls, because the result of the tool may follow.
    """
    if not any(_lacks_id(block) for message in messages for block in message.blocks):
        return messages
    linked: list[Message] = []
    open_calls: list[ToolCall] = []
    previous_role = ""
    for position, message in enumerate(messages):
        if message.role == "assistant" and previous_role != "assistant":
            open_calls = []
        previous_role = message.role
        blocks = tuple(
            _link_block(block, f"{_PREFIX}{position}_{n}_", open_calls)
            for n, block in enumerate(message.blocks)
        )
        linked.append(replace(message, blocks=blocks))
    return tuple(linked)


def _lacks_id(block: Block) -> bool:
    return isinstance(block, ToolCall | ToolResult) and not block.call_id


def _link_block(block: Block, prefix: str, open_calls: list[ToolCall]) -> Block:
    """Return `block` with an ID; adds a call to `open_calls` or removes the answered call."""
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
