"""The state of the work: the last words, running calls, open problems, the plan."""

import re
from collections.abc import Iterator, Sequence

from context_compaction.activity.digest import plan_of
from context_compaction.activity.error_line import error_lines
from context_compaction.summarizers.extractive.failures import Failure
from context_compaction.summarizers.extractive.fit import Line, versions
from context_compaction.summarizers.extractive.parse import LOG, PLAN, STATE
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
    """The agent's last words in the newest turn, in pieces, with their message's number."""
    steps = (step for turn in turns[-1:] for step in reversed(turn.steps))
    return next(((step.number, said) for step in steps if (said := step.telling)), (-1, []))


def state_lines(
    turns: Sequence[Turn],
    last_said: tuple[int, Sequence[str]],
    failures: Sequence[Failure],
    *,
    is_running: bool,
) -> Iterator[Line]:
    """The lines of the state, the agent's last words first.

    Args:
        turns: The turns.
        last_said: The agent's `last_words`.
        failures: Those that may still be open.
        is_running: Whether the newest turn is the newest of all.
    """
    number, said = last_said
    when = "last" if is_running else "before the newest request"
    label = f"agent, {when} [{number}]: "
    yield from versions((0,), label, (ends_of(said, chars) for chars in _LAST_CHARS), _LAST_WANTS)
    actions = turns[-1].steps[-1].actions if turns and turns[-1].steps else ()
    if waits := [action.label for action in actions if action.failed is None]:
        yield Line((1,), -0.5, f"in flight: {'; '.join(waits[-_MOST_OPEN:])}")
    for at, failure in enumerate(reversed(failures[-_MOST_OPEN:])):
        label = f"open: failed: {failure.action.label} [{failure.action.number}] -> "
        errors = error_lines(failure.action.text) or failure.action.error
        texts = (head_of(errors, chars) for chars in _ERRORS_CHARS)
        yield from versions((2, at), label, texts, (1.0 + at, 2.5 + at, 4.0 + at))


def plan_lines(turns: Sequence[Turn], *, is_running: bool) -> Iterator[tuple[str, Line]]:
    """The items of the newest plan, each line with its section.

    The open ones stand with the state, and with the log once their turn has ended.
    """
    plans = [
        (at, action.number, items)
        for at, turn in enumerate(turns)
        for action in turn.actions
        if action.call and (items := plan_of(action.call))
    ]
    if not plans:
        return
    at, number, plan = plans[-1]
    done = [_DONE.sub("", item) for item in plan if _DONE.match(item)]
    left = [item for item in plan if not _DONE.match(item)]
    if done:
        told = head_of("; ".join(done), _PLAN_CHARS)
        yield STATE, Line((4,), 2.0, f"{PLAN}, finished: {told}")
    if not left:
        return
    if not is_running or at < len(turns) - 1:  # it may be overtaken
        told = head_of("; ".join(_STATUS.sub("", item) for item in left), _PLAN_CHARS)
        label = f"{PLAN} as written at [{number}], not brought up to date since; open then"
        yield LOG, Line((at, 1, number), 2.0, f"{label}: {told}")
        return
    is_older = any(made.changes and made.number > number for made in turns[at].actions)
    head = f"{PLAN} as of [{number}]{', files were changed since' if is_older else ''}"
    for nth, item in enumerate((head, *(f"{PLAN}: {item}" for item in left))):
        yield STATE, Line((3, nth), 0.0, item)
