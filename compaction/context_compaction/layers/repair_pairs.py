"""Repairs of calls and results: ids of their own, every result at its call, every call answered."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import is_

from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import answers_by_call, with_own_ids
from context_compaction.messages.edits import Edit, Step
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

    def follow(self, step: Step) -> Messages:
        """The messages after `step`, whose edits are recorded."""
        self.edits.extend(step.edits)
        return step.messages


def unique_call_ids(messages: Messages, log: RepairLog) -> Messages:
    """Give a second call of the same id a name of its own, and its result with it."""
    named = with_own_ids(messages)
    called = {call.call_id for message in named for call in tool_calls(message)}
    for was, message in zip(messages, named, strict=True):
        pairs = zip(was.blocks, message.blocks, strict=True)
        renamed = (block for before, block in pairs if block is not before)
        # What answers no call becomes text, which is told then.
        if any(isinstance(one, ToolCall | ToolResult) and one.call_id in called for one in renamed):
            log.add(message, "a call id was used twice; the later call was renamed")
    return named


def paired(
    messages: Messages, rules: ProviderRules, log: RepairLog, *, may_end_open: bool
) -> Messages:
    """Bring every result to its call; answer calls without one; turn the rest into text."""
    answers = answers_by_call(messages)
    claimed = {
        block.call_id: answers[at, n]
        for at, message in enumerate(messages)
        for n, block in enumerate(message.blocks)
        if isinstance(block, ToolCall) and (at, n) in answers
    }
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
        calls = [call for one in messages[position:stop] for call in tool_calls(one)]
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
    own = {
        at: block
        for at, block in enumerate(following.blocks)
        if isinstance(block, ToolResult)
        and block.call_id in wanted
        and claimed.get(block.call_id) == (start, at)
    }
    answered = {block.call_id for block in own.values()}
    results: list[Block] = list(own.values())
    for call in calls:
        if call.call_id in answered:
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
        if at in own or (start, at) in placed:
            continue
        rest += _orphan(block, following, log) if isinstance(block, ToolResult) else [block]
    blocks = (*results, *rest)
    same = len(blocks) == len(following.blocks) and all(map(is_, blocks, following.blocks))
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
