"""The plan of a session: its items, their states, and the messages of the work on each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from context_compaction.activity.digest import plan_of
from context_compaction.activity.tool_kinds import words_in_name
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import (
    Message,
    ToolCall,
    named_arguments,
    tool_calls,
    tool_results,
)
from context_compaction.messages.tool_results import result_text


@dataclass(slots=True)
class PlanItem:
    """One item, with its states and the number of the message that gave each."""

    text: str
    states: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def span(self, last: int) -> tuple[int, int]:
        """The messages from the first in which it was under way to the one that ended it."""
        begun = [seq for state, seq in self.states if state not in _WAITING]
        if not begun:
            return self.states[-1][1], last
        ended = [seq for state, seq in self.states if state in _ENDED]
        return begun[0], ended[-1] if ended and self.states[-1][0] in _ENDED else last


_WAITING = frozenset({"pending", "todo", "not_started", "open", ""})
_LEFT_OUT = "left out"
_ENDED = frozenset({"completed", "done", "cancelled", "deleted", _LEFT_OUT})
_AS_FILES = "Plans that are files are read as files: transcript://{}/files."
_NUMBER = re.compile(r"#(\d+)\b")


def plan_items(messages: Sequence[Message], seqs: Sequence[int]) -> list[PlanItem]:
    """The items of the newest plan, in its order, then those that only earlier ones had.

    An item is known again by its text, or by the number that the tool gave it. The lines of a plan
    that is one text are no items: see `text_plan`.
    """
    items: dict[str, PlanItem] = {}
    newest: list[str] = []
    numbers = _numbers(messages)
    for message, seq in zip(messages, seqs, strict=True):
        for call in tool_calls(message):
            is_single = _is_single(call)
            states = _single_state(call, numbers) if is_single else _states(call)
            if not states:
                continue
            for text in [*states, *(() if is_single else newest)]:
                item = items.setdefault(text, PlanItem(text))
                state = states.get(text, _LEFT_OUT)
                if not item.states or item.states[-1][0] != state:
                    item.states.append((state, seq))
            newest = [*newest, *states] if is_single else list(states)
    return [items[text] for text in dict.fromkeys([*newest, *items])]


def text_plan(messages: Sequence[Message], seqs: Sequence[int]) -> tuple[int, str] | None:
    """The newest plan that a call wrote as one text, and the number of its message."""
    for message, seq in zip(reversed(messages), reversed(seqs), strict=True):
        for call in reversed(tool_calls(message)):
            if text := _text_in(call):
                return seq, text
    return None


def plan_text(
    items: Sequence[PlanItem], text: tuple[int, str] | None, session_id: str, last: int
) -> str:
    """Each item of a plan on a line, with its states and what reads the work on it; then its text.

    Raises:
        NotFoundError: There is no plan.
    """
    if not items and text is None:
        raise NotFoundError(f"No call of {session_id} wrote a plan. {_AS_FILES.format(session_id)}")
    rows: list[str] = []
    for number, item in enumerate(items, 1):
        states = ", ".join(f"{state or 'listed'} at {seq}" for state, seq in item.states)
        start, stop = item.span(last)
        rows.append(
            f"{number}. {item.text}: {states}; transcript://{session_id}/messages/{start}-{stop}\n"
        )
    if text is not None:
        rows.append(f"The plan as message {text[0]} wrote it:\n{text[1]}\n")
    return "".join(rows)


def item_at(items: Sequence[PlanItem], number: int, session_id: str) -> PlanItem:
    """Item `number` of a plan, from 1.

    Raises:
        NotFoundError: It has no such item.
    """
    if not 1 <= number <= len(items):
        held = f"has the items 1 to {len(items)}" if items else "has no items"
        raise NotFoundError(
            f"There is no item {number}: the plan of {session_id} {held}. "
            f"{_AS_FILES.format(session_id)}"
        )
    return items[number - 1]


def _numbers(messages: Sequence[Message]) -> dict[str, str]:
    """By the number that its tool gave it, each item that was made by a call of its own."""
    made: dict[str, str] = {}
    numbers: dict[str, str] = {}
    for message in messages:
        for call in filter(_is_single, tool_calls(message)):
            given = named_arguments(call)
            if "taskId" not in given:
                made[call.call_id] = str(given["subject"])
        for result in tool_results(message):
            found = _NUMBER.search(result_text(result)) if result.call_id in made else None
            if found is not None:
                numbers.setdefault(found[1], made[result.call_id])
    return numbers


def _is_single(call: ToolCall) -> bool:
    """Whether `call` makes or changes one item, as Claude Code's TaskCreate and TaskUpdate do."""
    return "task" in words_in_name(call.name) and not {"subject", "taskId"}.isdisjoint(
        named_arguments(call)
    )


def _single_state(call: ToolCall, numbers: Mapping[str, str]) -> dict[str, str]:
    given = named_arguments(call)
    text = numbers.get(str(given.get("taskId"))) or given.get("subject")
    state = given.get("status") or ("" if "taskId" in given else "pending")
    return {" ".join(str(text).split()): str(state)} if text and state else {}


def _states(call: ToolCall) -> dict[str, str]:
    """By text the state of each item of a list that `call` writes whole."""
    return {} if _text_in(call) else {text: state for state, text in map(_split, plan_of(call))}


def _text_in(call: ToolCall) -> str:
    """The plan that `call` writes as one text of several lines."""
    text = named_arguments(call).get("plan")
    if not isinstance(text, str) or "\n" not in text.strip() or not plan_of(call):
        return ""
    return text.strip()


def _split(line: str) -> tuple[str, str]:
    """State and text of a line "[state] text"."""
    state, found, text = line.removeprefix("[").partition("] ")
    return (state, text) if found and line.startswith("[") else ("", line)
