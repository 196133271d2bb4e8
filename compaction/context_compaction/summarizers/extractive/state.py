"""The state of the work: the last words, open problems, running calls, the plan."""

import re
from collections.abc import Iterator, Sequence

from context_compaction.activity.digest import Digest
from context_compaction.summarizers.extractive.fit import Line, head_of, versions
from context_compaction.summarizers.extractive.turns import Action, Turn
from context_compaction.summarizers.extractive.work_log import Failure, plain

_LAST_CHARS = (160, 500, 1_200)
_MOST_OPEN = 4
# Who fails so many turns ago and is not tried again is no open problem any more.
_RECENT_TURNS = 2
_DONE = re.compile(r"\A\[(?:x|done|completed?|finished|closed)\] ?", re.IGNORECASE)


def state_lines(
    turns: Sequence[Turn],
    digest: Digest,
    failures: Sequence[Failure],
    earlier_plan: Sequence[str] = (),
) -> list[Line]:
    """The lines, the agent's last words first; `earlier_plan` where `digest` has no plan."""
    lines = list(_lines(turns, digest, failures))
    if not digest.plan:
        lines += [Line((5, at), 0.0, text) for at, text in enumerate(earlier_plan)]
    return lines


def _lines(turns: Sequence[Turn], digest: Digest, failures: Sequence[Failure]) -> Iterator[Line]:
    said = (
        (step.number, plain(step.said)) for turn in reversed(turns) for step in turn.steps[::-1]
    )
    number, last = next((item for item in said if item[1]), (0, ""))
    label = f"agent, last [{number}]: "
    yield from versions((0,), label, last, _LAST_CHARS, (-1.0, -0.06, 0.5), shorten=_middle_out)
    waits = [action.label for action in _last_actions(turns) if action.failed is None]
    if waits:
        yield Line((1,), -0.5, f"in flight: {'; '.join(waits[-_MOST_OPEN:])}")
    recent = (failure for failure in failures if failure.last_turn >= len(turns) - _RECENT_TURNS)
    problems = [failure for failure in recent if failure.passed is None]
    for at, failure in enumerate(reversed(problems[-_MOST_OPEN:])):
        yield Line((2, at), 1.0 + at, f"open: {failure.told}")
    done = [_DONE.sub("", item) for item in digest.plan if _DONE.match(item)]
    for at, item in enumerate(item for item in digest.plan if not _DONE.match(item)):
        yield Line((3, at), 0.0, f"plan: {item}")
    if done:
        yield Line((4,), 2.0, f"plan, finished: {head_of('; '.join(done), 600)}")


def _last_actions(turns: Sequence[Turn]) -> Sequence[Action]:
    return turns[-1].steps[-1].actions if turns and turns[-1].steps else ()


def _middle_out(text: str, chars: int) -> str:
    """`text`, or its beginning and end of about `chars`: the end names the next step."""
    if len(text) <= chars:
        return text
    tail = text[len(text) - chars // 2 :]
    return f"{head_of(text, chars // 2)} {tail[tail.find(' ') + 1 :]}"
