"""The work log: for each turn its work, what failed until when, and the outcome, in this order.

The newest turn has the most detail. The work is listed in one short form each; the outcome is the
agent's own closing statement, with its tables and blocks of code. Behind the log the state of the
work: the last words, running calls, open problems, the plan.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from context_compaction.activity.digest import plan_of, records_in
from context_compaction.activity.error_line import error_lines
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.activity.tool_kinds import is_question
from context_compaction.activity.touched_names import touched_in
from context_compaction.messages.model import compact_json
from context_compaction.summarizers.extractive.deeds import (
    COMMIT,
    Failure,
    after_failures,
    commits_of,
    done_in,
    effects_of,
    failures_in,
    thoughts_on_failures,
)
from context_compaction.summarizers.extractive.fit import Line, Place, versions
from context_compaction.summarizers.extractive.parse import LOG, PLAN, STATE
from context_compaction.summarizers.extractive.said import (
    ends_of,
    head_of,
    is_telling,
    joined,
    pieces_of,
    telling_of,
)
from context_compaction.summarizers.extractive.turns import WHY_CHARS, Turn
from context_compaction.summarizers.instructions.find import SURE_RANK, instructions_in
from context_compaction.summarizers.instructions.typed_text import unbroken

# So much of what was done in a turn, and of what the agent said of it, from short to full.
_DID_CHARS = (50, 160, 400)
_SAID_CHARS = (120, 200, 400, 700, 1_100, 1_600, 2_400, 3_600, 6_000, 12_000)
# How much of what was touched is told in the running turn and in the one before it. At the end of a
# turn the agent itself says what it changed.
_TOUCHED_CHARS = (320, 160)
_TOUCHED_WANT, _TOUCHED_ENDED_WANT = 2.5, 6.0
# So much of the records that the agent gave to a tool, and then of each of the newest.
_RECORDS_CHARS, _RECORD_CHARS = 500, (110, 300, 1_200)
_RECORD_WANTS = (0.0, 0.5, 1.0, 2.5)
_STEP_CHARS = (240, 700, 1_500, 4_000)
_HEARD_CHARS = (240, 700)
_OPTION = re.compile(r'"label":"([^"]{1,120})"')
# An answer of the user's by the question's name, as Codex tells it.
_CHOSEN = re.compile(r'"([^"]{1,80})":\{"answers":\[((?:"(?:[^"\\]|\\.)*+"[, ]*+)*+)\]')
_ANSWERS_END = re.compile(r'"(?:\. [^"]*)?\Z')
# How much less what is one turn older is wanted, and its shortest line.
AGE_WANT = 0.2
_SHORT_AGE_WANT = 0.02
_LAST_CHARS = (160, 500, 1_200, 2_000, 3_000, 5_000, 12_000)
_LAST_WANTS = (-1.0, -0.06, 0.5, 1.2, 2.0, 3.0, 4.0)
_MOST_OPEN = 4
_ERRORS_CHARS = (200, 700, 1_600)
_PLAN_CHARS = 600
_DONE = re.compile(r"\A\[(?:x|done|completed?|finished|closed)\] ?", re.IGNORECASE)
_STATUS = re.compile(r"\A\[[\w -]{0,20}\] ?")
# Words beside the agent's own remarks: what it files, what agents report to which it handed work,
# and what it thought behind a failure where it said nothing.
_REPORTED = "reported to the agent"
_THOUGHT = "agent thought"
_MORE_WORDS = (("agent filed", attrgetter("filed")), (_REPORTED, attrgetter("reports")))
# The parts of an entry, in order.
_DEEDS, _ON_THE_WAY, _CLOSING = range(3)


def log_lines(
    turns: Sequence[Turn],
    names: Mapping[str, str],
    files: Mapping[str, ReplayedFile],
    still_open: Collection[Failure],
    last_said: str,
) -> Iterator[Line]:
    """The lines of the log, newest turn first; a place is (turn, part, number of the message).

    The failures `still_open` and the agent's words that were `last_said` stand with the state.
    """
    told = {last_said}  # commands and statements
    open_actions = {id(one.action) for one in still_open}
    known = commits_of(turns)
    for age, (at, turn) in enumerate(reversed([*enumerate(turns)])):
        effects = effects_of(turn.actions, known)
        commits = [effect for effect in effects if effect.startswith(COMMIT) and age]
        yield from _deed_lines(turn, at, age, commits, names, files, told)
        others = [effect for effect in effects if effect not in commits]
        yield from effect_lines((at, _DEEDS, 1), age * AGE_WANT / 2, others)
        failures = (one for one in failures_in(turn, names) if id(one.action) not in open_actions)
        mine = {one.told: one.action.number for one in failures if one.is_telling}
        for rank, (line, number) in enumerate(mine.items()):
            yield Line((at, _ON_THE_WAY, number, rank), 1 + rank + age * AGE_WANT, line)
        yield from _heard_lines(turn, at, age)
        short_age_want = AGE_WANT if commits else _SHORT_AGE_WANT
        yield from _word_lines(turn, at, age, told, short_age_want)


def rendered_log(lines: Mapping[Place, str], turns: Sequence[Turn]) -> list[str]:
    """The chosen lines in order, those of one turn behind its number."""
    rows: list[str] = []
    for at, places in groupby(sorted(lines), lambda place: place[0]):
        told = "\n".join(lines[place] for place in places)
        rows.append(f"[{turns[at].number}] {told}" if at >= 0 else told)
    return rows


def effect_lines(place: Place, want: float, effects: Sequence[str]) -> Iterator[Line]:
    """The line of what must not be repeated, if there is any."""
    if effects:
        yield Line(place, want, f"done, do not repeat: {'; '.join(effects)}")


def _deed_lines(
    turn: Turn,
    at: int,
    age: int,
    commits: Sequence[str],
    names: Mapping[str, str],
    files: Mapping[str, ReplayedFile],
    told: set[str],
) -> Iterator[Line]:
    """What was done in a turn: commits, then files; without any, what was run and read."""
    wants = [age * _SHORT_AGE_WANT, age * AGE_WANT, 1 + age * 0.4]
    changed, aside, looked = done_in(turn, names, told)
    if not (done := [*commits, *changed]):
        done = [*aside, *(looked if not (aside or age) else ())]
        if age and any(step.said.strip() for step in turn.steps):
            wants = [want + wants[-1] for want in wants]  # the agent says what came of it
    # The first commit is told whole before the others.
    first_chars = len(done[0]) + 2 if done and done[0].startswith(COMMIT) else 0
    texts = [head_of("; ".join(done), max(chars, first_chars)) for chars in _DID_CHARS]
    if age < len(_TOUCHED_CHARS):
        goes_on = bool(turn.steps and turn.steps[-1].actions)
        wants.append(age + (_TOUCHED_WANT if goes_on else _TOUCHED_ENDED_WANT))
        made = (made for one in turn.actions if not one.failed for made in one.changes)
        touched = touched_in(made, names, files, _TOUCHED_CHARS[age])
        changed, *_ = done_in(turn, {**names, **touched}, told)
        texts.append("; ".join([*commits, *changed]))
    yield from versions((at, _DEEDS, 0), "", texts, wants)


def _heard_lines(turn: Turn, at: int, age: int) -> Iterator[Line]:
    """What others said in a turn: what binds of the text of a command or a skill, and answers.

    Those of the user to questions that the agent asked through a tool.
    """
    wants = (min(1.0, age * AGE_WANT), 1.0 + age)
    for number, text in turn.orders.items():
        said = instructions_in(text)
        binding = [f" {item.text}" for item in said if item.rank >= SURE_RANK]
        texts = [telling_of([s for s in binding if len(s) < n], n) for n in _HEARD_CHARS]
        yield from versions((at, _DEEDS, -1), f"host's text [{number}], of it: ", texts, wants)
    for action in turn.actions:
        if action.call and not action.failed and is_question(action.name):
            flat = " ".join(action.text.split())
            options = _OPTION.findall(compact_json(action.call.arguments))
            offered = f" (offered: {'; '.join(options)})" if options else ""
            label = f"{action.name} [{action.number}] -> "
            texts = [head_of(_answers_in(flat, n) + offered, n) for n in _HEARD_CHARS]
            yield from versions((at, _ON_THE_WAY, action.number, -1), label, texts, wants)


def _answers_in(text: str, chars: int) -> str:
    """The user's answers, each behind its question, without what the host says around them.

    Of so many characters the questions have half.
    """
    told = [f"{name} = {chosen}" for name, chosen in _CHOSEN.findall(text)]
    before, *parts = f'{_ANSWERS_END.sub("", text)}", "'.split('"="')
    question = before.partition('"')[2]
    for part in parts:
        said, _, following = part.rpartition('", "')  # in what the user says it may stand too
        told.append(f"{ends_of(question, chars // (2 * len(parts)))} = {said}")
        question = following
    return "; ".join(told) or text


def _word_lines(
    turn: Turn,
    at: int,
    age: int,
    told: set[str],
    short_age_want: float,
) -> Iterator[Line]:
    """What the agent said in a turn: its closing words, and before them what gives reasons."""
    causes = after_failures(turn)
    words = (
        (step.number, step.telling or (step.pieces if step.number in causes else []))
        for step in turn.steps
    )
    said = [one for one in words if one[1]]
    if not (said or age):  # what it only announced is all that the newest turn has to say
        said = [(step.number, step.pieces) for step in turn.steps if step.pieces][-1:]
    closing = said.pop()[1] if said else []
    text = joined(closing)
    if text not in told:
        wants = [age * short_age_want, age * AGE_WANT]
        wants += [_said_want(chars, age) for chars in _SAID_CHARS[2:]]
        texts = (telling_of(closing, chars) for chars in _SAID_CHARS)
        yield from versions((at, _CLOSING, 0), "agent: ", texts, wants)
    told.add(text)
    yield from _remark_lines(turn, at, age, told, said)
    for nth, (label, texts_of) in enumerate(_MORE_WORDS):
        more = [
            (step.number, pieces_of(unbroken(text)))
            for step in turn.steps
            for text in texts_of(step)
        ]
        yield from _remark_lines(turn, at, age, told, more, label, (nth,))
    thought = [*thoughts_on_failures(turn).items()]
    yield from _remark_lines(turn, at, age, told, thought, _THOUGHT, (len(_MORE_WORDS),))


def _remark_lines(
    turn: Turn,
    at: int,
    age: int,
    told: set[str],
    said: Sequence[tuple[int, Sequence[str]]],
    speaker: str = "agent",
    behind: Place = (),
) -> Iterator[Line]:
    """What was said on the way: the agent's longest text gives reasons, then the newest.

    What others reported comes after that, and thoughts: the agent may have found that it is not so.
    """
    is_own = speaker not in (_REPORTED, _THOUGHT)
    causes = set[int]() if speaker == _REPORTED else after_failures(turn)
    longest = max((len(joined(pieces)) for _, pieces in said if is_own), default=0)
    for rank, (number, pieces) in enumerate(reversed(said)):
        text = joined(pieces)
        is_why = len(text) == longest > WHY_CHARS
        is_cause = number in causes
        if text in told or not (is_why or is_cause or is_telling(text)):
            continue
        told.add(text)
        late = 1.5 * math.log1p(rank / 3)  # many follow it in a long turn; it may say why
        want = age * AGE_WANT + 0.3 if is_why else (3 if is_own else 6) + age + late
        if is_cause:
            want = min(want, 1.5 + age * AGE_WANT)
        wants = [want, want + 3 + age / 2, want + 6 + age, want + 9 + age]
        texts = (telling_of(pieces, chars) for chars in _STEP_CHARS)
        place = (at, _ON_THE_WAY, number, *((*behind, rank) if behind else ()))
        label = f"{speaker} [{number}]: "
        yield from versions(place, label, texts, wants)


def _said_want(chars: int, age: int) -> float:
    """The want of so much of a closing statement: a page of an old turn comes late."""
    share = min(1.0, chars / 3_000)
    return share * (2.5 + chars / 6_000) + (AGE_WANT + 0.8 * share) * 5 * math.log1p(age / 5)


def last_words(turns: Sequence[Turn]) -> tuple[int, list[str]]:
    """The agent's last words in the newest turn, in pieces, with their message's number."""
    steps = (step for turn in turns[-1:] for step in reversed(turn.steps))
    said = ((step.number, step.telling) for step in steps if step.telling)
    return next(said, (-1, list[str]()))


def state_lines(
    turns: Sequence[Turn],
    last_said: tuple[int, Sequence[str]],
    failures: Sequence[Failure],
    *,
    is_running: bool,
) -> Iterator[Line]:
    """The lines of the state: the agent's `last_words`, running calls, failures that may be open.

    `is_running` is whether the newest turn is the newest of all.
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
        yield STATE, Line((4,), 2.0, f"{PLAN} of [{number}], finished: {told}")
    if left and (not is_running or at < len(turns) - 1):  # it may be overtaken
        told = head_of("; ".join(_STATUS.sub("", item) for item in left), _PLAN_CHARS)
        # A plan in prose does not say what of it is open.
        then = "; open then" if any(map(_STATUS.match, plan)) else ""
        label = f"{PLAN} as written at [{number}], not brought up to date since{then}"
        yield LOG, Line((at, 1, number), 2.0, f"{label}: {told}")
    elif left:
        is_older = any(made.changes and made.number > number for made in turns[at].actions)
        label = f"{PLAN} as of [{number}]{', files were changed since' if is_older else ''}"
        whole = "; ".join(left)
        for line in versions((3,), f"{label}: ", (head_of(whole, _PLAN_CHARS), whole), (0.0, 1.0)):
            yield STATE, line


def record_lines(turns: Sequence[Turn]) -> Iterator[tuple[str, Line]]:
    """The records that the agent gave to tools of the work's own, as findings, by section.

    The newest stand with the state while their turn is the newest; older ones in short in the log.
    """
    given = [
        (at, action, rows)
        for at, turn in enumerate(turns)
        for action in turn.actions
        if action.call and action.failed is False and (rows := records_in(action.call, action.use))
    ]
    for age, (at, action, rows) in enumerate(reversed(given)):
        is_state = not age and at == len(turns) - 1
        place = (5,) if is_state else (at, _ON_THE_WAY, action.number, -2)
        whole = ["\n".join(head_of(row, chars) for row in rows) for chars in _RECORD_CHARS]
        told = [head_of(whole[0], _RECORDS_CHARS), *whole][: 1 if age else None]
        wants = [age + want for want in _RECORD_WANTS[: len(told)]]
        for line in versions(place, f"{action.name} [{action.number}]: ", told, wants):
            yield STATE if is_state else LOG, line
