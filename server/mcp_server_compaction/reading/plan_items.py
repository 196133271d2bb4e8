"""The plan of a session: its items, their states, and the messages of the work on each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from context_compaction.activity.digest import plan_of
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import Message, tool_calls


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
_ENDED = frozenset({"completed", "done", "cancelled", _LEFT_OUT})


def plan_items(messages: Sequence[Message], seqs: Sequence[int]) -> list[PlanItem]:
    """The items of the newest plan, in its order, then those that only earlier ones had.

    An item is known again by its text.
    """
    items: dict[str, PlanItem] = {}
    newest: list[str] = []
    for message, seq in zip(messages, seqs, strict=True):
        for call in tool_calls(message):
            if not (lines := plan_of(call)):
                continue
            states = {text: state for state, text in map(_split, lines)}
            for text in [*states, *newest]:
                item = items.setdefault(text, PlanItem(text))
                state = states.get(text, _LEFT_OUT)
                if not item.states or item.states[-1][0] != state:
                    item.states.append((state, seq))
            newest = list(states)
    return [items[text] for text in dict.fromkeys([*newest, *items])]


def plan_text(items: Sequence[PlanItem], session_id: str, last: int) -> str:
    """Each item of a plan on a line, with its states and what reads the work on it."""
    rows: list[str] = []
    for number, item in enumerate(items, 1):
        states = ", ".join(f"{state or 'listed'} at {seq}" for state, seq in item.states)
        start, stop = item.span(last)
        rows.append(
            f"{number}. {item.text}: {states}; transcript://{session_id}/messages/{start}-{stop}\n"
        )
    return "".join(rows)


def item_at(items: Sequence[PlanItem], number: int, session_id: str) -> PlanItem:
    """Item `number` of a plan, from 1.

    Raises:
        NotFoundError: It has no such item.
    """
    if not 1 <= number <= len(items):
        held = f"has the items 1 to {len(items)}" if items else "has none that its calls wrote"
        raise NotFoundError(
            f"There is no item {number}: the plan of {session_id} {held}. Plans that are files "
            f"are read as files: transcript://{session_id}/files."
        )
    return items[number - 1]


def _split(line: str) -> tuple[str, str]:
    """State and text of a line "[state] text"."""
    state, found, text = line.removeprefix("[").partition("] ")
    return (state, text) if found and line.startswith("[") else ("", line)
