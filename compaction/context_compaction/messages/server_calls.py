"""Calls of the provider's own tools (`server_tool_use`, `mcp_tool_use`) and their results.

The provider answers them in the same turn of the assistant, mostly in the same message. Where the
assistant calls a tool of the host's beside them, where their code does, or where the turn was
paused, the result is in a later message: only messages of the assistant, and such as have results,
stand between the two.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from context_compaction.messages.model import Messages, Opaque, ToolCall, tool_results

_CALL_KINDS = ("server_tool_use", "mcp_tool_use")
_RESULT_ENDING = "_tool_result"

# Positions of a message and of one of its blocks.
_Place: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class ServerCalls:
    """What `server_calls` finds.

    Attributes:
        spans: Positions of the messages that hold a call and its result.
        waiting: By id the places of calls that still have no result at the end of the list.
        unanswered: Places of calls whose turn ended without their result.
        orphans: Places of results that answer no call of their turn.
    """

    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    waiting: dict[str, _Place] = field(default_factory=dict[str, _Place])
    unanswered: set[_Place] = field(default_factory=set[_Place])
    orphans: set[_Place] = field(default_factory=set[_Place])


def server_calls(messages: Messages) -> ServerCalls:
    """The calls of the provider's own tools in `messages`, and how they were answered."""
    found = ServerCalls()
    called_at: dict[str, int] = {}  # of this turn, answered or not
    for position, message in enumerate(messages):
        if called_at and message.role == "user" and not tool_results(message):
            found.unanswered.update(found.waiting.values())
            found.waiting.clear()
            called_at.clear()
        for at, block in enumerate(message.blocks):
            if not isinstance(block, Opaque):
                continue
            if block.kind in _CALL_KINDS:
                key = str(block.source.get("id"))
                called_at[key] = position
                found.waiting[key] = (position, at)
            elif block.kind.endswith(_RESULT_ENDING):
                key = str(block.source.get("tool_use_id"))
                if key in called_at:
                    found.spans.append((called_at[key], position))
                    found.waiting.pop(key, None)
                else:
                    found.orphans.add((position, at))
    return found


def is_made_by_code(call: ToolCall) -> bool:
    """Whether code that the provider runs makes `call`; the code's own result is still to come."""
    caller = (call.source or {}).get("caller")
    return isinstance(caller, dict) and "tool_id" in caller
