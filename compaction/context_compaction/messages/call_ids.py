"""Which result answers which call, also where an id is used again: the one answer to that.

Providers match calls and results by id, and some take the same id again in a later turn, as local
servers number the calls of each answer anew. Who reads a list by ids reads `with_own_ids` of it.
"""

from collections import deque
from dataclasses import replace
from operator import is_not
from typing import TypeAlias

from context_compaction.messages.model import (
    Messages,
    ToolCall,
    ToolResult,
    edit_message,
    is_stand_in,
    tool_calls,
)

# Position of a message, and of a block in it.
BlockPlace: TypeAlias = tuple[int, int]


def answers_by_call(messages: Messages) -> dict[BlockPlace, BlockPlace]:
    """By the place of each call of the assistant that of the user's result that answers it.

    An id means the calls of the newest turn of the assistant that uses it: every provider has
    results behind their calls. Of several such calls each result answers the next one; only where
    a result merely stands in, one that follows takes its place. All other results answer none.
    """
    waiting: dict[str, tuple[int, deque[BlockPlace]]] = {}  # by id, behind the number of the turn
    answers: dict[BlockPlace, BlockPlace] = {}
    turn, spoke_last = 0, False
    for at, message in enumerate(messages):
        speaks = message.role == "assistant"
        turn += speaks and not spoke_last
        spoke_last = speaks
        for n, block in enumerate(message.blocks):
            if isinstance(block, ToolCall) and speaks:
                known = waiting.get(block.call_id)
                if known is None or known[0] != turn:
                    known = waiting[block.call_id] = turn, deque()
                known[1].append((at, n))
            elif isinstance(block, ToolResult) and message.role == "user":
                _, calls = waiting.get(block.call_id, (0, deque[BlockPlace]()))
                if calls and is_stand_in(block):
                    answers.setdefault(calls[0], (at, n))
                    calls.rotate(-1)
                elif calls:
                    answers[calls.popleft()] = at, n
    return answers


def with_own_ids(messages: Messages) -> Messages:
    """The same messages; each call has an id of its own, and with it the result that answers it.

    A result that answers none has an id that no call has. What is already so stays the same object.
    """
    if _is_plain(messages):
        return messages
    results = {place: call for call, place in answers_by_call(messages).items()}
    ids = _Ids(open_ids(messages))
    called = {call.call_id for message in messages for call in tool_calls(message)}
    names: dict[BlockPlace, str] = {}
    out = list(messages)
    for at, message in enumerate(messages):
        blocks = list(message.blocks)
        for n, block in enumerate(blocks):
            if isinstance(block, ToolCall):
                name = names[at, n] = ids.own(block.call_id, is_last=at == len(out) - 1)
            elif not isinstance(block, ToolResult):
                continue
            elif call := results.get((at, n)):
                name = names[call]
            else:
                name = ids.own(block.call_id, is_taken=block.call_id in called)
            if name != block.call_id:
                blocks[n] = replace(block, call_id=name, edited=True)
        if any(map(is_not, blocks, message.blocks)):
            out[at] = edit_message(message, blocks)
    return tuple(out) if any(map(is_not, out, messages)) else messages


def open_ids(messages: Messages) -> frozenset[str]:
    """The ids of the calls that the list ends with."""
    return frozenset(call.call_id for call in tool_calls(messages[-1])) if messages else frozenset()


def _is_plain(messages: Messages) -> bool:
    """Whether no id is used twice, and every result stands behind its call: as nearly all are."""
    called: set[str] = set()
    answered: set[str] = set()
    for message in messages:
        speaks = message.role == "assistant"
        for block in message.blocks:
            if isinstance(block, ToolCall):
                if not speaks or block.call_id in called:
                    return False
                called.add(block.call_id)
            elif isinstance(block, ToolResult):
                call_id = block.call_id
                if message.role != "user" or call_id in answered or call_id not in called:
                    return False
                answered.add(call_id)
    return True


class _Ids:
    """Gives ids of their own, in order, so that a list that grows keeps those it has."""

    def __init__(self, still_open: frozenset[str]) -> None:
        # The host will answer calls that are still open by the ids it knows: those stay.
        self._still_open = still_open
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def own(self, call_id: str, *, is_last: bool = False, is_taken: bool = False) -> str:
        """`call_id`, or one made of it; `is_last`: of the last message, which has it if open."""
        name = call_id
        while is_taken or name in self._used or (name in self._still_open and not is_last):
            number = self._next[call_id] = self._next.get(call_id, 1) + 1
            name, is_taken = f"{call_id}_{number}", False
        self._used.add(name)
        return name
