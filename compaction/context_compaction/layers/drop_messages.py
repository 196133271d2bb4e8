"""Layers that drop whole messages and leave a line with a pointer in their place.

`drop_messages` is the function that does so. `snip` drops the middle of a long list by message
count. `snip_chosen` drops messages that the caller names (Claude Code's SnipTool).

`collapse` replaces the work on finished sub-tasks by one line each, if that avoids a summary. A
sub-task is an item of the agent's todo list, or every answered turn if the policy says so. The line
lists the changes and the newest commands. User messages are never collapsed. The newest finished
sub-task stays, because its outcome is still in use.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from context_compaction.activity.calls import words_in_name
from context_compaction.activity.digest import digest, plan_of
from context_compaction.layers.base import LayerContext
from context_compaction.layers.cut_point import is_preserved
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Edit,
    Message,
    Messages,
    Step,
    make_message,
    tool_calls,
)
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_pairs import safe_cuts

# Returns the line that replaces the dropped messages; their originals are at the span.
Line: TypeAlias = Callable[[Messages, Span], str]
# The head that paper S3 keeps.
_SNIP_HEAD_MESSAGES = 3
# `snip` keeps at most this many loaded skills, the newest.
_MAX_SKILLS = 5
_COMPLETED = frozenset({"completed", "complete", "done", "finished"})


def drop_messages(
    messages: Messages,
    context: LayerContext,
    parts: Iterable[tuple[Collection[int], Line]],
    *,
    layer: str,
    action: str = "dropped",
) -> Step:
    """Replace the messages of each part by a line with a pointer.

    A part is a set of indices, and the function that writes its line. A call and its result are
    only dropped together, so the messages between two safe cuts are dropped only if all of them are
    in the part and none must stay. Messages that must stay split a part, and each piece gets a
    line. A piece stays if its line is not smaller, or if a compaction wrote all of it.
    """
    units = _units_of(messages, context)
    dropped: dict[int, tuple[range, Message, Span]] = {}
    for indices, line in parts:
        for piece in _pieces(messages, units, indices, context.pins.pinned_indices):
            part = messages[piece.start : piece.stop]
            span = context.span_of(part)
            note = make_message("user", line(part, span))
            is_smaller = context.count.message(note) < context.count.total(part)
            if is_smaller and not all(map(placeholders.is_synthetic, part)):
                dropped[piece.start] = piece, note, span
    if not dropped:
        return Step(messages)
    out: list[Message] = []
    edits: list[Edit] = []
    end = 0
    for start, (piece, note, span) in sorted(dropped.items()):
        out += [*messages[end:start], note]
        end = piece.stop
        piece_edits = [
            Edit(layer, action, message.index, context.count.message(message), 0, (span.pointer,))
            for message in messages[start:end]
        ]
        first = replace(piece_edits[0], tokens_after=context.count.message(note))
        edits += [first, *piece_edits[1:]]
    return Step((*out, *messages[end:]), tuple(edits))


def _units_of(messages: Messages, context: LayerContext) -> list[range]:
    """Return the smallest runs of messages that separate no call from its result, in order.

    Messages after the last safe cut, such as a call without a result, are in no run.
    """
    safe = [index for index, is_safe in enumerate(safe_cuts(messages, context.rules)) if is_safe]
    return [range(start, stop) for start, stop in pairwise(safe)]


def _pieces(
    messages: Messages, units: Sequence[range], indices: Collection[int], pinned: Collection[int]
) -> Iterator[range]:
    """Yield the longest runs of adjacent units that may be dropped."""
    start: int | None = None
    stop = 0
    for unit in units:
        is_dropped = all(i in indices and not _is_protected(messages[i], pinned) for i in unit)
        if start is not None and not (is_dropped and unit.start == stop):
            yield range(start, stop)
            start = None
        if is_dropped:
            start = unit.start if start is None else start
            stop = unit.stop
    if start is not None:
        yield range(start, stop)


def _is_protected(message: Message, pinned: Collection[int]) -> bool:
    """Whether a message must never be dropped: it is pinned, carries pins, or is preserved."""
    if message.index in pinned or is_preserved(message):
        return True
    carried = carried_by(message)
    return carried is not None and bool(carried.pins)


def snip(messages: Messages, context: LayerContext) -> Step:
    """Keep the first three messages and the newest ones, `snip_max_messages` in all.

    Both cuts move outward so that no call loses its result. The newest plan and the newest loaded
    skills stay as well.
    """
    max_messages = max(1, context.settings.snip_max_messages)
    if len(messages) <= max_messages:
        return Step(messages)
    safe = safe_cuts(messages, context.rules)
    head_messages = min(_SNIP_HEAD_MESSAGES, max_messages - 1)
    head = head_messages
    while head < len(messages) and not safe[head]:
        head += 1
    tail = len(messages) - (max_messages - head_messages)
    while tail > head and not safe[tail]:
        tail -= 1
    middle = set(range(head, tail)) - _plan_and_skills(messages)
    return drop_messages(messages, context, [(middle, _line)], layer="snip")


def _plan_and_skills(messages: Messages) -> set[int]:
    """Return the indices of the messages that call the newest plan and the newest skills."""
    plan: set[int] = set()
    skills: dict[str, int] = {}
    for index in reversed(range(len(messages))):
        for call in tool_calls(messages[index]):
            if plan_of(call):
                plan = plan or {index}
            elif "skill" in words_in_name(call.name):
                skills.setdefault(f"{call.name} {call.arguments}", index)
    return plan | {*list(skills.values())[:_MAX_SKILLS]}


def snip_chosen(messages: Messages, context: LayerContext, chosen: Collection[int]) -> Step:
    """Drop the messages with the indices `chosen`, together with their calls or results.

    The newest request, the newest message, and messages with a pin or a rule stay.
    """
    bound = {pin.index for pin in context.pins.candidates}
    requests = (i for i, message in enumerate(messages) if placeholders.is_request(message))
    request = max(requests, default=-1)
    indices = {
        index
        for unit in _units_of(messages, context)
        if any(messages[i].index in chosen for i in unit)
        if not any(messages[i].index in bound for i in unit)
        if request not in unit and unit.stop < len(messages)
        for index in unit
    }
    return drop_messages(messages, context, [(indices, _line)], layer="snip")


def _line(dropped: Messages, span: Span) -> str:
    return placeholders.snipped(len(dropped), span.pointer)


@dataclass(frozen=True, slots=True)
class SubTask:
    """The work on a sub-task.

    Attributes:
        start: Index of the first message.
        stop: Index after the last message.
        label: Subject of the sub-task.
    """

    start: int
    stop: int
    label: str


def collapse(messages: Messages, context: LayerContext) -> Step:
    """Collapse all finished sub-tasks together if that meets the limit.

    One at a time would break the prompt cache at nearly every turn, so the layer must save at least
    `min_savings_tokens`.
    """
    settings, count = context.settings, context.count
    sub_tasks = finished_sub_tasks(messages, with_turns=settings.collapses_turns)
    parts = [(_work_of(messages, task), partial(_collapsed_line, task.label)) for task in sub_tasks]
    step = drop_messages(messages, context, parts, layer="collapse", action="collapsed")
    result_tokens = count.messages(step.messages)
    saved_tokens = count.messages(messages) - result_tokens
    is_enough = result_tokens <= context.limit_tokens
    return step if is_enough and saved_tokens >= settings.min_savings_tokens else Step(messages)


def finished_sub_tasks(messages: Messages, *, with_turns: bool) -> list[SubTask]:
    """Return the finished sub-tasks except the newest, oldest first, without overlaps."""
    found = [*_by_plan(messages), *(_by_turn(messages) if with_turns else ())]
    outer: list[SubTask] = []
    for sub_task in sorted(found, key=lambda task: (task.start, -task.stop)):
        if not outer or sub_task.start >= outer[-1].stop:
            outer.append(sub_task)
    return outer[:-1]


def _by_plan(messages: Messages) -> Iterator[SubTask]:
    """Yield the work between the plan that started an item and the plan that completes it."""
    completed: set[str] = set()
    start: int | None = None
    for index, message in enumerate(messages):
        for items in filter(None, map(plan_of, tool_calls(message))):
            new_items = [text for text in _completed_items(items) if text not in completed]
            if new_items and start is not None:
                yield SubTask(start, index, ", ".join(new_items))
            if new_items or start is None:
                start = index + 1
            completed.update(new_items)


def _completed_items(items: Sequence[str]) -> list[str]:
    """Return the texts of the completed items of a plan, which look like "[done] text"."""
    parts = (item.partition("] ") for item in items)
    return [text for state, _, text in parts if state.removeprefix("[").lower() in _COMPLETED]


def _by_turn(messages: Messages) -> Iterator[SubTask]:
    """Yield the work between each request of the user and its answer, except for the last turn."""
    starts = [i for i, message in enumerate(messages) if placeholders.is_request(message)]
    for start, next_start in pairwise(starts):
        last = messages[next_start - 1]
        has_answer = last.role == "assistant" and not tool_calls(last)
        stop = next_start - 1 if has_answer else next_start
        if stop > start + 1:
            yield SubTask(start + 1, stop, "work on the request above")


def _work_of(messages: Messages, sub_task: SubTask) -> frozenset[int]:
    """Return the indices of a sub-task without user messages and texts of this library."""
    return frozenset(
        index
        for index in range(sub_task.start, sub_task.stop)
        if not placeholders.is_request(messages[index])
        if not placeholders.is_synthetic(messages[index])
    )


def _collapsed_line(label: str, part: Messages, span: Span) -> str:
    """Return the line with the number of messages, the calls, the changes and the effects."""
    actions = digest(part)
    calls = Counter(call.name for message in part for call in tool_calls(message))
    facts = {
        "calls": [f"{name} x{times}" for name, times in calls.most_common(5)],
        "changed": [*actions.written, *actions.edited, *actions.deleted][-5:],
        "ran": [run.command for run in actions.runs if not run.failed][-5:],
    }
    texts = [
        f"{title} {', '.join(dict.fromkeys(names))}" for title, names in facts.items() if names
    ]
    return placeholders.collapsed(label, [f"{len(part)} messages", *texts], span)
