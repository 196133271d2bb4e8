"""Layer: the work on a finished sub-task becomes one line with a pointer, where that is enough.

Two things end a sub-task: the agent marks an item of its todo list as completed, or an agent that
it had called reports; where a policy sets it, every turn that was answered is one. What lies
between is seldom needed again, and reads back by the pointer. The line lists what was changed and
must not be repeated. User messages are never collapsed, nor the newest finished sub-task, whose
outcome is still being used.

It acts only where it spares a summary: if even all of it together does not reach the limit, history
is summarised from the unchanged messages.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from context_compaction.activity.digest import digest, plan_of
from context_compaction.activity.tool_kinds import brings_report
from context_compaction.layers.cut_point import is_preserved
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    ToolCall,
    make_message,
    named_arguments,
    tool_calls,
)
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.messages.tool_pairs import safe_cuts
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

_DONE = frozenset({"completed", "complete", "done", "finished"})
_ITEM = re.compile(r"\A\[([^\]]*)\] (.*)", re.DOTALL)
_NAMES_SHOWN = 5
_TURN_LABEL = "work on the request above"


@dataclass(frozen=True, slots=True)
class SubTask:
    """The work on one sub-task: messages [start, stop) of the list, and what it was about."""

    start: int
    stop: int
    label: str


def collapse(
    messages: Messages,
    *,
    count: MessageCounter,
    rules: ProviderRules,
    span_of: placeholders.SpanOf,
    limit_tokens: int,
    settings: Settings,
    pinned: Collection[int] = (),
) -> Step:
    """Collapse finished sub-tasks, oldest first, until `limit_tokens` is met; else nothing.

    Finished turns go all at once, where that is worth a new beginning of the prompt cache: one at
    a time they would break it at nearly every turn.

    Args:
        messages: A valid list.
        count: The token counter.
        rules: The provider's rules.
        span_of: Finds the archived originals of a part of the list.
        limit_tokens: The most tokens that the list may count.
        settings: `collapse`; a finished task of at most `min_result_tokens` stays; turns want
            `min_savings_tokens`.
        pinned: Indices of messages that contain pinned text; work that contains one stays.
    """
    takes_turns = settings.collapse == "turns"
    min_tokens = 0 if takes_turns else settings.min_result_tokens
    total_tokens = count.messages(messages)
    excess_tokens = total_tokens - limit_tokens
    lines: dict[int, tuple[SubTask, Message, list[Edit]]] = {}
    for sub_task in finished_sub_tasks(messages, rules, with_turns=takes_turns):
        if excess_tokens <= 0 and not takes_turns:
            break
        part = messages[sub_task.start : sub_task.stop]
        if any(message.index in pinned for message in part):
            continue
        span = span_of(part)
        line = make_message("user", placeholders.collapsed(sub_task.label, _facts(part), span))
        part_tokens, line_tokens = count.messages(part), count.message(line)
        if part_tokens <= max(min_tokens, line_tokens):
            continue
        lines[sub_task.start] = (sub_task, line, _edits(part, line_tokens, span, count))
        excess_tokens -= part_tokens - line_tokens
    saved_tokens = total_tokens - limit_tokens - excess_tokens
    is_little = takes_turns and saved_tokens < settings.min_savings_tokens
    if excess_tokens > 0 or is_little or not lines:
        return Step(messages)
    out: list[Message] = []
    at = 0
    for start, (sub_task, line, _) in lines.items():
        out += [*messages[at:start], line]
        at = sub_task.stop
    out += messages[at:]
    return Step(tuple(out), tuple(edit for _, _, edits in lines.values() for edit in edits))


def finished_sub_tasks(
    messages: Messages, rules: ProviderRules, *, with_turns: bool = False
) -> list[SubTask]:
    """The finished sub-tasks, oldest first, in parts that can be taken out; not the newest one."""
    safe = safe_cuts(messages, rules)
    # The widest first among those that begin alike: an agent's work may be part of an item's.
    turns = _by_turn(messages) if with_turns else ()
    found = sorted(
        (*_by_plan(messages), *_by_agent(messages), *turns), key=lambda t: (t.start, -t.stop)
    )
    outer: list[SubTask] = []
    for sub_task in found:
        if not outer or sub_task.start >= outer[-1].stop:
            outer.append(sub_task)
    return [
        SubTask(start, stop, sub_task.label)
        for sub_task in outer[:-1]
        for start, stop in _parts(messages, sub_task.start, sub_task.stop, safe)
    ]


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
    """The texts of the items of a plan whose state is completed."""
    states = filter(None, map(_ITEM.match, items))
    return [found[2] for found in states if found[1].lower() in _DONE]


def _by_turn(messages: Messages) -> Iterator[SubTask]:
    """The work between a request of the user and its answer, where another request follows."""
    starts = [at for at, message in enumerate(messages) if placeholders.is_request(message)]
    for start, following in pairwise(starts):
        last = messages[following - 1]
        has_answer = last.role == "assistant" and not tool_calls(last)
        stop = following - 1 if has_answer else following
        if stop > start + 1:
            yield SubTask(start + 1, stop, _TURN_LABEL)


def _by_agent(messages: Messages) -> Iterator[SubTask]:
    """Calls of agents alone, with their reports."""
    for at, message in enumerate(messages):
        calls = tool_calls(message)
        if not calls or not all(map(_is_agent, calls)):
            continue
        stop = at + 1
        while stop < len(messages) and _only_answers(messages[stop]):
            stop += 1
        yield SubTask(at, stop, ", ".join(map(_label, calls)))


def _only_answers(message: Message) -> bool:
    return message.role == "user" and not placeholders.is_request(message) and _is_free(message)


def _is_agent(call: ToolCall) -> bool:
    return brings_report(call.name) and "prompt" in named_arguments(call)


def _label(call: ToolCall) -> str:
    said = named_arguments(call).get("description")
    return f"{call.name}: {said}" if isinstance(said, str) and said else call.name


def _parts(
    messages: Messages, start: int, stop: int, safe: list[bool]
) -> Iterator[tuple[int, int]]:
    """The runs of free messages within [start, stop) that split no call from its result."""
    at = start
    while at < stop:
        end = at
        while end < stop and _is_free(messages[end]):
            end += 1
        first = next((n for n in range(at, end) if safe[n]), end)
        last = next((n for n in range(end, first, -1) if safe[n]), first)
        if last > first:
            yield first, last
        at = end + 1


def _is_free(message: Message) -> bool:
    """Whether `message` may be dropped: it is not the user's, not the system's, and not ours."""
    return not (
        placeholders.is_request(message)
        or placeholders.is_synthetic(message)
        or is_preserved(message)
    )


def _facts(part: Messages) -> list[str]:
    """The facts that the line contains: what was changed, and what must not be repeated."""
    found = digest(part)
    calls = Counter(call.name for message in part for call in tool_calls(message))
    told = ", ".join(f"{name} x{times}" for name, times in calls.most_common(_NAMES_SHOWN))
    facts = [f"{len(part)} messages", f"calls {told}" if told else ""]
    for title, names in (
        ("changed", (*found.written, *found.edited, *found.deleted)),
        ("done, do not repeat", tuple(run.command for run in found.effects if not run.failed)),
    ):
        shown = ", ".join(dict.fromkeys(names[-_NAMES_SHOWN:]))
        facts.append(f"{title} {shown}" if shown else "")
    return [fact for fact in facts if fact]


def _edits(
    part: Messages, line_tokens: int, span: placeholders.Span, count: MessageCounter
) -> list[Edit]:
    """An edit for each message, so that a receipt names every one that was dropped."""
    return [
        Edit(
            "collapse",
            "collapsed",
            message.index,
            count.message(message),
            0 if at else line_tokens,
            (span.pointer,),
        )
        for at, message in enumerate(part)
    ]
