"""The state of the work: the last words, running calls, open problems, the plan."""

import re
from collections.abc import Iterator, Sequence

from context_compaction.activity.digest import plan_of
from context_compaction.activity.error_line import error_lines
from context_compaction.summarizers.extractive.failures import Failure
from context_compaction.summarizers.extractive.fit import Line, versions
from context_compaction.summarizers.extractive.parse import PLAN
from context_compaction.summarizers.extractive.said import ends_of, head_of
from context_compaction.summarizers.extractive.turns import Turn

_LAST_CHARS = (160, 500, 1_200, 2_000, 3_000, 5_000, 12_000)
_LAST_WANTS = (-1.0, -0.06, 0.5, 1.2, 2.0, 3.0, 4.0)
_MOST_OPEN = 4
_ERRORS_CHARS = (200, 700, 1_600)
_PLAN_CHARS = 600
_DONE = re.compile(r"\A\[(?:x|done|completed?|finished|closed)\] ?", re.IGNORECASE)
_STATUS = re.compile(r"\A\[[\w -]{0,20}\] ?")


def last_words(turns: Sequence[Turn]) -> tuple[int, list[str]]:
    """The agent's last words in pieces, with their message's number."""
    steps = (step for turn in reversed(turns) for step in reversed(turn.steps))
    return next(((step.number, said) for step in steps if (said := step.pieces)), (-1, list[str]()))


def state_lines(
    turns: Sequence[Turn],
    last_said: tuple[int, Sequence[str]],
    plan: Sequence[str],
    failures: Sequence[Failure],
    *,
    is_running: bool,
) -> Iterator[Line]:
    """The lines of the state, the agent's last words first.

    Args:
        turns: The turns.
        last_said: The agent's `last_words`.
        plan: The items of the plan, each with its status.
        failures: Those that may still be open.
        is_running: Whether the newest turn is the newest of all.
    """
    number, said = last_said
    newest = turns[-1] if turns and is_running else None
    label = f"agent, {_when(turns, number, newest)} [{number}]: "
    yield from versions((0,), label, (ends_of(said, chars) for chars in _LAST_CHARS), _LAST_WANTS)
    actions = turns[-1].steps[-1].actions if turns and turns[-1].steps else ()
    if waits := [action.label for action in actions if action.failed is None]:
        yield Line((1,), -0.5, f"in flight: {'; '.join(waits[-_MOST_OPEN:])}")
    for at, failure in enumerate(reversed(failures[-_MOST_OPEN:])):
        label = f"open: failed: {failure.action.label} [{failure.action.number}] -> "
        errors = error_lines(failure.action.text) or failure.action.error
        texts = (head_of(errors, chars) for chars in _ERRORS_CHARS)
        yield from versions((2, at), label, texts, (1.0 + at, 2.5 + at, 4.0 + at))
    done = [_DONE.sub("", item) for item in plan if _DONE.match(item)]
    left = [item for item in plan if not _DONE.match(item)]
    calls = [action for turn in turns for action in turn.actions if action.call]
    planned = [action.number for action in calls if action.call and plan_of(action.call)]
    if left and planned and not (newest and planned[-1] >= newest.number):
        # It may be overtaken.
        items = head_of("; ".join(_STATUS.sub("", item) for item in left), _PLAN_CHARS)
        label = f"{PLAN} as written at [{planned[-1]}], not brought up to date since; open then"
        yield Line((3,), 2.0, f"{label}: {items}")
    else:
        yield from (Line((3, at), 0.0, f"{PLAN}: {item}") for at, item in enumerate(left))
    if done:
        yield Line((4,), 2.0, f"{PLAN}, finished: {head_of('; '.join(done), _PLAN_CHARS)}")


def _when(turns: Sequence[Turn], number: int, newest: Turn | None) -> str:
    """When the agent's last words were said: what has been asked since may have overtaken them."""
    after = next((turn for turn in turns if turn.number > number), None)
    if after is None:
        return "last" if newest else "before the newest request"
    return "before the newest request" if after is newest else f"before [{after.number}] was asked"
