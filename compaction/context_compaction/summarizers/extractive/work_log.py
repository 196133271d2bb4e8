"""The work log: for each turn its work, what failed until when, and the outcome, in this order.

The newest turn has the most detail. The work is listed in one short form each; the outcome is the
agent's own closing statement, with its tables and blocks of code.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from context_compaction.activity.tool_kinds import is_question
from context_compaction.messages.model import compact_json
from context_compaction.summarizers.extractive.corrections import marks_of
from context_compaction.summarizers.extractive.deeds import (
    COMMIT,
    commits_in,
    done_in,
    effects_of,
    hashes_in,
)
from context_compaction.summarizers.extractive.failures import Failure
from context_compaction.summarizers.extractive.fit import Line, Place, versions
from context_compaction.summarizers.extractive.said import (
    is_telling,
    items_of,
    joined,
    telling_of,
)
from context_compaction.summarizers.extractive.turns import Step, Turn

# So much of what was done in a turn, and of what the agent said of it, from short to full.
_DID_CHARS = (50, 160, 400)
_SAID_CHARS = (120, 200, 400, 700, 1_100, 1_600, 2_400, 3_600, 6_000, 12_000)
_STEP_CHARS = (240, 700, 1_500, 4_000)
_ANSWER_CHARS = (240, 1_000)
_OPTION = re.compile(r'"label":"([^"]{1,120})"')
_TALK_CHARS = 60  # "You are welcome."
_FIGURE = re.compile(r"[\d/_`]")
_LEAST_SAID_CHARS = 12  # "Perfect"
_WHY_CHARS = 120
# The last sentence of what is said with a call announces it where it is so short.
_ANNOUNCED_CHARS = 90
# A closing statement this short is told with the one before it.
_SHORT_SAID_CHARS = 40
_QUESTION_CHARS = 240
_MOST_FAILURES = 4
# How much less what is one turn older is wanted, and its shortest line.
AGE_WANT = 0.2
_SHORT_AGE_WANT = 0.02
# How much less the details are wanted of what describes files before they were changed.
_OVERTAKEN_WANT = 3.0
_LEAST_OVERTAKEN = 2
_MOST_OVERTAKEN = 3
_FILE_NAME = re.compile(r"[\w-]{1,80}(?:\.[\w-]{1,40}){1,4}")
# The parts of an entry, in order.
_DEEDS, _ON_THE_WAY, _CLOSING = range(3)


@dataclass(slots=True)
class _Told:
    """What is known of a conversation whose turns are told from the newest to the oldest.

    Attributes:
        names: For each path its short name; none for files that are not worth a word.
        marks: By the number of a message of the agent what precedes its words.
        hashes: The hashes of commits by subject.
        last_said: The number of the agent's last words, which stand where the work stands.
        texts: The commands and statements that are told.
        changed: By a file's name the number of the turn that changed it next.
    """

    names: Mapping[str, str]
    marks: Mapping[int, str]
    hashes: Mapping[str, str]
    last_said: int
    texts: set[str] = field(default_factory=set[str])
    changed: dict[str, int] = field(default_factory=dict[str, int])


def log_lines(
    turns: Sequence[Turn], names: Mapping[str, str], failures: Sequence[Failure], last_said: int
) -> Iterator[Line]:
    """The lines of the log, newest turn first; a place is (turn, part, number of the message).

    Args:
        turns: The turns.
        names: For each path its short name; none for files that are not worth a word.
        failures: Those that are told with their turns.
        last_said: The number of the agent's last words.
    """
    told = _Told(names, marks_of(turns), hashes_in(turns), last_said)
    for age, (at, turn) in enumerate(reversed([*enumerate(turns)])):
        yield from _deed_lines(turn, at, age, told)
        mine = {one.told: one for one in failures if one.turn == at}
        for rank, failure in enumerate([*mine.values()][-_MOST_FAILURES:]):
            place = (at, _ON_THE_WAY, failure.action.number, rank)
            yield Line(place, 1 + rank + age * 0.3, failure.told)
        yield from _answer_lines(turn, at, age)
        yield from _word_lines(turn, at, age, told)
        for action in turn.actions:
            changed = (made.path for made in action.changes if not action.failed)
            told.changed.update((names[path], turn.number) for path in changed if path in names)


def rendered_log(lines: Mapping[Place, str], turns: Sequence[Turn]) -> list[str]:
    """The chosen lines in order, those of one turn behind its number."""
    rows: list[str] = []
    before = -1
    for place in sorted(lines):
        if place[0] == before >= 0:
            rows[-1] = f"{rows[-1]}\n{lines[place]}"
        else:
            rows.append(
                f"[{turns[place[0]].number}] {lines[place]}" if place[0] >= 0 else lines[place]
            )
            before = place[0]
    return rows


def _deed_lines(turn: Turn, at: int, age: int, told: _Told) -> Iterator[Line]:
    """What was done in a turn: its commits and files first, then what must not be repeated."""
    effects = effects_of(turn, told.hashes)
    commits = [effect for effect in effects if effect.startswith(COMMIT) and age]
    done = [*commits, *done_in(turn, told.names, told.texts, has_commits=bool(commits))]
    # The first commit is told whole before the others.
    first_chars = len("; ".join(commits[:1])) + 2
    sizes = [max(chars, first_chars) for chars in _DID_CHARS]
    wants = age * _SHORT_AGE_WANT, age * AGE_WANT, 1 + age * 0.4
    yield from versions((at, _DEEDS, 0), "", "; ".join(done), sizes, wants, shorten=items_of)
    if others := [effect for effect in effects if effect not in commits]:
        line = f"done, do not repeat: {'; '.join(others)}"
        yield Line((at, _DEEDS, 1), age * AGE_WANT / 2, line)


def _answer_lines(turn: Turn, at: int, age: int) -> Iterator[Line]:
    """What the user answered to questions that the agent asked through a tool."""
    for action in turn.actions:
        if action.call and action.text and not action.failed and is_question(action.name):
            answer = " ".join(action.text.split())
            if options := _OPTION.findall(compact_json(action.call.arguments)):
                answer += f" (offered: {'; '.join(options)})"
            place, label = (at, _ON_THE_WAY, action.number, -1), f"{action.name} [{action.number}]"
            wants = age * AGE_WANT, 1.0 + age
            yield from versions(place, f"{label} -> ", answer, _ANSWER_CHARS, wants)


def _word_lines(turn: Turn, at: int, age: int, told: _Told) -> Iterator[Line]:
    """What the agent said in a turn: its closing words, and before them what gives reasons."""
    said = [(step.number, pieces) for step in turn.steps if (pieces := _unannounced(step))]
    number, closing = said.pop() if said else (-1, list[str]())
    if said and sum(map(len, closing)) < _SHORT_SAID_CHARS:
        closing = [*said.pop()[1], *closing]
    text = joined(closing)
    is_answered = text.endswith(("?", "？")) and len(text) < _QUESTION_CHARS
    is_talk = len(text) < _TALK_CHARS and not _FIGURE.search(text)
    if text not in told.texts and number != told.last_said and not is_answered and not is_talk:
        has_changes = any(action.changes for action in turn.actions)
        later = "" if has_changes else _changed(text, told)
        label = f"agent{told.marks.get(number, '')}{later}: "
        has_commits = any(action.effect and commits_in(action.text) for action in turn.actions)
        first = age * (AGE_WANT if has_commits else _SHORT_AGE_WANT), age * AGE_WANT
        more = (_said_want(chars, age) + _OVERTAKEN_WANT * bool(later) for chars in _SAID_CHARS[2:])
        place, wants = (at, _CLOSING, 0), [*first, *more]
        yield from versions(place, label, closing, _SAID_CHARS, wants, shorten=telling_of)
    told.texts.add(text)
    longest = max((sum(map(len, pieces)) for _, pieces in said), default=0)
    for back, (number, pieces) in enumerate(reversed(said)):
        text = joined(pieces)
        is_why = sum(map(len, pieces)) == longest > _WHY_CHARS
        if text in told.texts or not (is_why or is_telling(text)):
            continue
        told.texts.add(text)
        want = age * AGE_WANT + 0.3 if is_why else 3 + age + back * 0.5
        wants = [want, want + 3 + age / 2, want + 6 + age, want + 9 + age]
        place, label = (at, _ON_THE_WAY, number), f"agent [{number}]{told.marks.get(number, '')}: "
        yield from versions(place, label, pieces, _STEP_CHARS, wants, shorten=telling_of)


def _unannounced(step: Step) -> list[str]:
    """The pieces of a step without a short last one that announces its calls, or waits for them."""
    pieces = step.pieces
    if pieces and any(action.call is not None for action in step.actions):
        if len(pieces[-1]) < _ANNOUNCED_CHARS or pieces[-1][-1] in ":…：":
            pieces.pop()
        if not any(map(is_telling, pieces)) and sum(map(len, pieces)) < _WHY_CHARS:
            return []
    return pieces if sum(map(len, pieces)) > _LEAST_SAID_CHARS else []


def _said_want(chars: int, age: int) -> float:
    """The want of so much of a closing statement: a page of an old turn comes late."""
    share = min(1.0, chars / 3_000)
    return share * (2.5 + chars / 6_000) + (AGE_WANT + 0.8 * share) * 5 * math.log1p(age / 5)


def _changed(text: str, told: _Told) -> str:
    """Which of the files that a statement describes were changed after it, and when."""
    found = [name for name in dict.fromkeys(_FILE_NAME.findall(text)) if name in told.changed]
    if len(found) < _LEAST_OVERTAKEN:
        return ""
    more = ", …" if len(found) > _MOST_OVERTAKEN else ""
    first = min(told.changed[name] for name in found)
    return f" (before [{first}] changed {', '.join(found[:_MOST_OVERTAKEN])}{more})"
