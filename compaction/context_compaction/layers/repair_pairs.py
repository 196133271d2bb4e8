"""Repairs of calls and results: ids of their own, every result at its call, every call answered."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit
from context_compaction.messages.model import (
    NO_RESULT,
    Block,
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    edit_message,
    is_stand_in,
    make_message,
    tool_calls,
)
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.messages.tool_pairs import run_end


@dataclass(slots=True)
class RepairLog:
    """The edits made so far, in order."""

    edits: list[Edit] = field(default_factory=list[Edit])

    def add(self, message: Message, note: str) -> None:
        """Record the edit `note` of `message`."""
        self.edits.append(Edit("repair", "repaired", message.index, 0, 0, note=note))


def unique_call_ids(messages: Messages, log: RepairLog) -> Messages:
    """Give a second call of the same id a name of its own, and its result with it."""
    # The host will answer calls that are still open by the ids it knows: those stay.
    still_open = open_ids(messages)
    used: set[str] = set()
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)

    def renamed(block: Block) -> Block:
        if isinstance(block, ToolCall):
            name = block.call_id
            for number in range(2, len(used) + 3):
                if name not in used:
                    break
                name = f"{block.call_id}_{number}"
            used.add(name)
            waiting[block.call_id].append(name)
            return block if name == block.call_id else replace(block, call_id=name, edited=True)
        if isinstance(block, ToolResult) and waiting[block.call_id]:
            name = waiting[block.call_id].popleft()
            return block if name == block.call_id else replace(block, call_id=name, edited=True)
        return block

    out: list[Message] = []
    for message in messages:
        if message is not messages[-1]:
            used |= still_open
        else:
            used -= still_open
        blocks = tuple(renamed(block) for block in message.blocks)
        if blocks != message.blocks:
            log.add(message, "a call id was used twice; the later call was renamed")
            message = edit_message(message, blocks)
        out.append(message)
    return tuple(out)


def open_ids(messages: Messages) -> frozenset[str]:
    """The ids of the calls that the list ends with."""
    if not messages:
        return frozenset()
    return frozenset(call.call_id for call in tool_calls(messages[-1]))


def paired(
    messages: Messages, rules: ProviderRules, log: RepairLog, *, may_end_open: bool
) -> Messages:
    """Bring every result to its call; answer calls without one; turn the rest into text."""
    claimed = _claimed(messages)
    placed: set[tuple[int, int]] = set()
    out: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        if message.role != "assistant":
            out.extend(_unclaimed(message, position, claimed, placed, rules, log))
            position += 1
            continue
        stop = run_end(messages, position, rules)
        for at in range(position, stop):
            out.extend(_unclaimed(messages[at], at, claimed, placed, rules, log))
        calls = [
            block
            for at in range(position, stop)
            for block in messages[at].blocks
            if isinstance(block, ToolCall)
        ]
        position = stop
        if not calls or (stop == len(messages) and may_end_open):
            continue
        if not rules.results_follow_call:
            out.extend(_made_results(calls, claimed, log, messages[stop - 1]))
        elif rules.groups_results:
            position = _answer_grouped(messages, stop, calls, claimed, placed, out, log)
        else:
            _answer_apart(messages, stop, calls, claimed, placed, out, log)
    return tuple(out)


def _claimed(messages: Messages) -> dict[str, tuple[int, int]]:
    """For each call id the place (message, block) of the first result after the call.

    A stand-in result yields to the tool's own, which may follow later.
    """
    called: set[str] = set()
    claimed: dict[str, tuple[int, int]] = {}
    stood_in: set[str] = set()
    for position, message in enumerate(messages):
        for at, block in enumerate(message.blocks):
            if isinstance(block, ToolCall):
                called.add(block.call_id)
            elif (
                isinstance(block, ToolResult)
                and message.role == "user"
                and block.call_id in called
                and (
                    block.call_id not in claimed
                    or (block.call_id in stood_in and not is_stand_in(block))
                )
            ):
                claimed[block.call_id] = (position, at)
                (stood_in.add if is_stand_in(block) else stood_in.discard)(block.call_id)
    return claimed


def _unclaimed(
    message: Message,
    position: int,
    claimed: dict[str, tuple[int, int]],
    placed: set[tuple[int, int]],
    rules: ProviderRules,
    log: RepairLog,
) -> Iterable[Message]:
    """`message` without results that were placed elsewhere; orphan results become text."""
    blocks: list[Block] = []
    orphans = False
    for at, block in enumerate(message.blocks):
        if not isinstance(block, ToolResult):
            blocks.append(block)
        elif claimed.get(block.call_id) != (position, at):
            orphans = True
            blocks.extend(_orphan(block, message, log))
        elif (position, at) not in placed:
            blocks.append(block)
    if len(blocks) == len(message.blocks) and not orphans:
        return (message,)
    results_first = sorted(blocks, key=lambda block: not isinstance(block, ToolResult))
    ordered = results_first if rules.text_after_results else blocks
    if not ordered:
        return ()
    # Where results are messages of their own kind, text cannot take that message's shape.
    if orphans and not rules.groups_results:
        return (Message(message.role, tuple(ordered), index=message.index),)
    return (edit_message(message, ordered),)


def _orphan(result: ToolResult, message: Message, log: RepairLog) -> list[Block]:
    """The parts of an orphan result, its text labelled as a result without its call."""
    if is_stand_in(result):
        log.add(message, "what stood in for a missing result was left out")
        return []
    log.add(message, "a tool result without its call was turned into text")
    texts = [part.text for part in result.content if isinstance(part, Text)]
    others: list[Block] = [part for part in result.content if not isinstance(part, Text)]
    return [Text(placeholders.ORPHAN_RESULT + "\n".join(texts)), *others]


def _made_results(
    calls: Sequence[ToolCall], claimed: dict[str, tuple[int, int]], log: RepairLog, near: Message
) -> list[Message]:
    missing = [call for call in calls if call.call_id not in claimed]
    for call in missing:
        log.add(near, f"the call {call.name} had no result; one was put in that says so")
    return [Message("user", (_no_result(call),)) for call in missing]


def _no_result(call: ToolCall) -> ToolResult:
    return ToolResult(call.call_id, (Text(NO_RESULT),), is_error=True, name=call.name)


def _answer_grouped(
    messages: Messages,
    start: int,
    calls: Sequence[ToolCall],
    claimed: dict[str, tuple[int, int]],
    placed: set[tuple[int, int]],
    out: list[Message],
    log: RepairLog,
) -> int:
    """Answer all `calls` in the message at `start`; returns the position to continue from."""
    following = messages[start] if start < len(messages) else make_message("assistant", "")
    wanted = {call.call_id for call in calls}
    own = [
        block
        for at, block in enumerate(following.blocks)
        if isinstance(block, ToolResult)
        and block.call_id in wanted
        and claimed.get(block.call_id) == (start, at)
    ]
    own_ids = {block.call_id for block in own}
    results: list[Block] = list(own)
    for call in calls:
        if call.call_id in own_ids:
            continue
        place = claimed.get(call.call_id)
        if place is None:
            log.add(following, f"the call {call.name} had no result; one was put in that says so")
            results.append(_no_result(call))
        else:
            log.add(messages[place[0]], "a tool result was moved next to its call")
            placed.add(place)
            results.append(messages[place[0]].blocks[place[1]])
    if following.role != "user":
        out.append(Message("user", tuple(results)))
        return start
    rest: list[Block] = []
    for at, block in enumerate(following.blocks):
        if isinstance(block, ToolResult):
            if block.call_id in own_ids and claimed.get(block.call_id) == (start, at):
                continue
            if (start, at) in placed:
                continue
            rest.extend(_orphan(block, following, log))
        else:
            rest.append(block)
    blocks = (*results, *rest)
    same = len(blocks) == len(following.blocks) and all(
        one is other for one, other in zip(blocks, following.blocks, strict=True)
    )
    if not same:
        log.add(following, "tool results were put first")
    out.append(following if same else edit_message(following, blocks))
    return start + 1


def _answer_apart(
    messages: Messages,
    start: int,
    calls: Sequence[ToolCall],
    claimed: dict[str, tuple[int, int]],
    placed: set[tuple[int, int]],
    out: list[Message],
    log: RepairLog,
) -> None:
    """Put the result of each call in a message of its own, directly after the call's message."""
    places = sorted(claimed[call.call_id] for call in calls if call.call_id in claimed)
    for expected, (position, at) in enumerate(places, start):
        message = messages[position]
        if position != expected:
            log.add(message, "a tool result was moved next to its call")
        placed.add((position, at))
        whole = len(message.blocks) == 1
        out.append(message if whole else Message("user", (message.blocks[at],)))
    out.extend(_made_results(calls, claimed, log, messages[start - 1]))
