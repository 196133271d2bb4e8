"""Layer: the work on finished sub-tasks becomes one line each, where that avoids a summary.

A sub-task is an item of the agent's todo list, or every answered turn if the policy says so. The
line lists what was changed and what must not be repeated. User messages are never collapsed, nor is
the newest finished sub-task, whose outcome is still in use.
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
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Messages, tool_calls
from context_compaction.messages.placeholders import Span

_DONE = frozenset({"completed", "complete", "done", "finished"})


@dataclass(frozen=True, slots=True)
class SubTask:
    """The work on one sub-task: messages [start, stop) of the list, and what it was about."""

    start: int
    stop: int
    label: str


def collapse(messages: Messages, context: LayerContext) -> Step:
    """Collapse all finished sub-tasks at once if that is enough to meet the limit.

    One at a time they would break the prompt cache at nearly every turn, so at least
    `min_savings_tokens` must be saved.
    """
    with_turns = context.settings.collapses_turns
    parts = [
        (_work_of(messages, sub_task), partial(_line, sub_task.label))
        for sub_task in finished_sub_tasks(messages, with_turns=with_turns)
    ]
    step = drop_messages(messages, context, parts, layer="collapse", action="collapsed")
    left_tokens = context.count.messages(step.messages)
    saved_tokens = context.count.messages(messages) - left_tokens
    is_enough = left_tokens <= context.limit_tokens
    return (
        step
        if is_enough and saved_tokens >= context.settings.min_savings_tokens
        else Step(messages)
    )


def finished_sub_tasks(messages: Messages, *, with_turns: bool) -> list[SubTask]:
    """The finished sub-tasks but for the newest, oldest first; none overlaps another."""
    found = [*_by_plan(messages), *(_by_turn(messages) if with_turns else ())]
    outer: list[SubTask] = []
    for sub_task in sorted(found, key=lambda one: (one.start, -one.stop)):
        if not outer or sub_task.start >= outer[-1].stop:
            outer.append(sub_task)
    return outer[:-1]


def _by_plan(messages: Messages) -> Iterator[SubTask]:
    """The work between the plan that began an item and the plan that completes it."""
    done: set[str] = set()
    start: int | None = None
    for at, message in enumerate(messages):
        for items in filter(None, map(plan_of, tool_calls(message))):
            newly = [text for text in _completed(items) if text not in done]
            if newly and start is not None:
                yield SubTask(start, at, ", ".join(newly))
            if newly or start is None:
                start = at + 1
            done.update(newly)


def _completed(items: Sequence[str]) -> list[str]:
    """The texts of the items of a plan whose state is completed, as in "[done] text"."""
    parts = (item.partition("] ") for item in items)
    return [text for state, _, text in parts if state.removeprefix("[").lower() in _DONE]


def _by_turn(messages: Messages) -> Iterator[SubTask]:
    """The work between a request of the user and its answer, where another request follows."""
    starts = [at for at, message in enumerate(messages) if placeholders.is_request(message)]
    for start, following in pairwise(starts):
        last = messages[following - 1]
        has_answer = last.role == "assistant" and not tool_calls(last)
        stop = following - 1 if has_answer else following
        if stop > start + 1:
            yield SubTask(start + 1, stop, "work on the request above")


def _work_of(messages: Messages, sub_task: SubTask) -> frozenset[int]:
    """The positions of a sub-task without the user's messages and those of a compaction."""
    return frozenset(
        at
        for at in range(sub_task.start, sub_task.stop)
        if not placeholders.is_request(messages[at])
        if not placeholders.is_synthetic(messages[at])
    )


def _line(label: str, part: Messages, span: Span) -> str:
    """The line with the number of messages, the calls, the changes, and what is done."""
    found = digest(part)
    calls = Counter(call.name for message in part for call in tool_calls(message))
    facts = {
        "calls": [f"{name} x{times}" for name, times in calls.most_common(5)],
        "changed": [*found.written, *found.edited, *found.deleted][-5:],
        "done, do not repeat": [run.command for run in found.effects[-5:] if not run.failed],
    }
    told = [f"{title} {', '.join(dict.fromkeys(names))}" for title, names in facts.items() if names]
    return placeholders.collapsed(label, [f"{len(part)} messages", *told], span)
