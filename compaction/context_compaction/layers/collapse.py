"""Layer: replace the work on finished sub-tasks by one line each, if that avoids a summary.

A sub-task is an item of the agent's todo list, or every answered turn if the policy says so. The
line lists the changes and the newest commands. User messages are never
collapsed. The newest finished sub-task stays, because its outcome is still in use.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from context_compaction.activity.digest import digest, plan_of
from context_compaction.layers.base import LayerContext
from context_compaction.layers.drop_messages import drop_messages
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, Step, tool_calls
from context_compaction.messages.placeholders import Span

_COMPLETED = frozenset({"completed", "complete", "done", "finished"})


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
    parts = [(_work_of(messages, task), partial(_line, task.label)) for task in sub_tasks]
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


def _line(label: str, part: Messages, span: Span) -> str:
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
