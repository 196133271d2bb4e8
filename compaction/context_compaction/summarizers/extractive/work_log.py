"""The work log: for each turn its work, what failed until when, and the outcome, in this order.

The newest turn has the most detail. The work is listed in one short form each; the outcome is the
agent's own closing statement. Where nothing of a turn stands any more, its deed alone is told.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from context_compaction.activity.digest import effects_in
from context_compaction.activity.file_changes import FileChange, Inserts, Patches, Replaces, Writes
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.activity.shell_folder import is_scratch, work_folder
from context_compaction.activity.tool_kinds import is_question
from context_compaction.messages.model import compact_json
from context_compaction.summarizers.extractive.corrections import marks_of
from context_compaction.summarizers.extractive.failures import Failure
from context_compaction.summarizers.extractive.fit import Line, Place, versions
from context_compaction.summarizers.extractive.said import (
    is_telling,
    items_of,
    joined,
    telling_of,
)
from context_compaction.summarizers.extractive.turns import (
    HEREDOC,
    Action,
    Step,
    Turn,
    bare_command,
    without_heredocs,
)

# So much of what was done in a turn, and of what the agent said of it, from short to full.
_DID_CHARS = (50, 160, 400)
_SAID_CHARS = (120, 200, 400, 700, 1_100, 1_600, 2_400, 3_600, 6_000, 12_000)
_STEP_CHARS = (240, 700, 1_500, 4_000)
_ANSWER_CHARS = (240, 1_000)
_TALK_CHARS = 60  # "You are welcome."
_FIGURE = re.compile(r"[\d/_`]")
_LEAST_SAID_CHARS = 12  # "Perfect"
_WHY_CHARS = 120
# The last sentence of what is said with a call announces it where it is so short.
_ANNOUNCED_CHARS = 90
# How much less the short line of what is one turn older is wanted.
_SHORT_AGE_WANT = 0.02
# A closing statement this short is told with the one before it.
_SHORT_SAID_CHARS = 40
_QUESTION_CHARS = 240
# What was done and said is told on one line where both are so short.
_ONE_LINE_CHARS = 240
_MOST_FAILURES = 4
# How much less what is one turn older is wanted.
AGE_WANT = 0.2
# How much less the details are wanted of what describes files before they were changed.
_OVERTAKEN_WANT = 3.0
_LEAST_OVERTAKEN = 2
_MOST_OVERTAKEN = 3
VERBS = ("wrote", "edited", "ran", "read")
_COMMIT = re.compile(
    r"^\[[^\]\s]{1,80}(?: \([^)]{1,40}\))? ([0-9a-f]{7,40})\] (.{1,120})", re.MULTILINE
)
_MESSAGE = re.compile(r"\Agit commit\b.{0,40}? -\w*m ?(['\"])(.{1,120}?)(?:\1.*|\Z)")
_GIVEN_MESSAGE = re.compile(r"\bgit commit\b[^\n]{0,200}<<-?[^\n]{0,80}\n(.{1,120})")
_COMMIT_LABEL = "commit "
# Where a log lists commits, each with its subject.
_LISTED = re.compile(r"^\W{0,8}([0-9a-f]{7,40}) (?:\([^)\n]{1,80}\) )?(\S.{0,118})$", re.MULTILINE)
_OPTION = re.compile(r'"label":"([^"]{1,120})"')
_EFFECT_CHARS = 120
_FILE_NAME = re.compile(r"[\w-]{1,80}(?:\.[\w-]{1,40}){1,4}")
# Shorter lines stand in every file.
_LINE_CHARS = 4
# The parts of an entry, in order.
_DEEDS, _ON_THE_WAY, _CLOSING = range(3)
_AGENT = "agent: "


@dataclass(slots=True)
class _Told:
    """What of a conversation is told already, its turns from the newest to the oldest.

    Attributes:
        names: For each path its short name; none for files that are not worth a word.
        files: The files as the calls leave them.
        marks: By the number of a message of the agent what precedes its words.
        hashes: The hashes of commits by subject.
        texts: The commands and statements that are told.
        changed: By a file's name the number of the turn that changed it next.
    """

    names: Mapping[str, str]
    files: Mapping[str, ReplayedFile]
    marks: Mapping[int, str]
    hashes: Mapping[str, str]
    texts: set[str] = field(default_factory=set[str])
    changed: dict[str, int] = field(default_factory=dict[str, int])


def log_lines(
    turns: Sequence[Turn],
    names: Mapping[str, str],
    failures: Sequence[Failure],
    files: Mapping[str, ReplayedFile],
    last_said: int,
) -> list[Line]:
    """The lines of the log, newest turn first; a place is (turn, part, number of the message).

    Args:
        turns: The turns.
        names: For each path its short name; none for files that are not worth a word.
        failures: Those that are told with their turns.
        files: The files as the calls leave them.
        last_said: The number of the agent's last words, which stand where the work stands.
    """
    lines: list[Line] = []
    hashes = {subject: name for turn in turns for name, subject in _commits_listed(turn)}
    told = _Told(names, files, marks_of(turns), hashes)
    for at in range(len(turns) - 1, -1, -1):
        turn, age = turns[at], len(turns) - 1 - at
        if _is_overtaken(turn, files):
            done = "; ".join(_done(turn, names, set(), has_commits=True))
            text = f"{done or 'edited files'} (changed again since)"
            lines += _deed_lines((at, _DEEDS, 0), age, text)
        else:
            mine = {one.told: one for one in failures if one.turn == at}
            lines += _turn_lines(turn, at, age, told)
            for rank, failure in enumerate([*mine.values()][-_MOST_FAILURES:]):
                place = (at, _ON_THE_WAY, failure.action.number, rank)
                lines.append(Line(place, 1 + rank + age * 0.3, failure.told))
            lines += _answer_lines(turn, at, age)
            lines += _word_lines(turn, at, age, told, last_said)
        told.changed.update(
            (names[made.path], turn.number)
            for action in turn.actions
            for made in action.changes
            if made.path in names and not action.failed
        )
    return lines


def rendered_log(lines: Mapping[Place, str], turns: Sequence[Turn]) -> list[str]:
    """The chosen lines in order; what is said of one thing done and no more stands behind it."""
    entries: dict[int, dict[int, list[str]]] = {}
    rows = [lines[place] for place in sorted(lines) if place[0] < 0]
    for place in sorted(place for place in lines if place[0] >= 0):
        entries.setdefault(place[0], {}).setdefault(place[1], []).append(lines[place])
    told_of: list[tuple[str, list[str]]] = []
    for at, parts in entries.items():
        label = f"[{turns[at].number}] "
        told = [line for part in parts.values() for line in part]
        if parts.keys() == {_DEEDS, _CLOSING} and sum(map(len, told)) < _ONE_LINE_CHARS:
            told = ["; ".join(told)]
        if told_of and told_of[-1][1] == told and len(told) == 1:
            label = f"{told_of.pop()[0]}{label}"
        told_of.append((label, told))
    return rows + [label + "\n".join(told) for label, told in told_of]


def commits_in(text: str) -> list[str]:
    """The lines of a command's answer that name the commits it made."""
    return [found[0] for found in _COMMIT.finditer(text)]


def short_names(turns: Sequence[Turn]) -> dict[str, str]:
    """For each path its last part; its last two parts where several paths share the last.

    Files in temporary folders have none, where others have.
    """
    actions = [action for turn in turns for action in turn.actions]
    paths = {action.use.path for action in actions if action.use.path}
    paths.update(made.path for action in actions for made in action.changes if made.path)
    folder = work_folder(sorted(paths))
    paths = {path for path in paths if not is_scratch(path, folder)} or paths
    parts = {path: path.replace("\\", "/").split("/") for path in sorted(paths)}
    last = Counter(names[-1] for names in parts.values())
    return {
        path: names[-1] if last[names[-1]] == 1 else "/".join(names[-2:])
        for path, names in parts.items()
    }


def words_in(turn: Turn) -> list[tuple[int, list[str]]]:
    """The agent's words in a turn, in pieces, with their messages' numbers.

    What announces a call, or only waits for it, is left out.
    """
    said = ((step.number, _unannounced(step)) for step in turn.steps)
    return [(number, pieces) for number, pieces in said if pieces]


def _unannounced(step: Step) -> list[str]:
    """The pieces of a step without the short last one that announces its calls."""
    pieces = step.pieces
    if pieces and any(action.call is not None for action in step.actions):
        if len(pieces[-1]) < _ANNOUNCED_CHARS or pieces[-1][-1] in ":…：":
            pieces.pop()
        if not any(map(is_telling, pieces)) and sum(map(len, pieces)) < _WHY_CHARS:
            return []
    return pieces if sum(map(len, pieces)) > _LEAST_SAID_CHARS else []


def _is_overtaken(turn: Turn, files: Mapping[str, ReplayedFile]) -> bool:
    """Whether nothing that the edits of a turn put into files stands there any more."""
    has_edits = False
    for action in turn.actions:
        if action.effect and action.failed is False:
            return False
        if action.use.kind == "write":
            return False
        for made in action.changes if action.failed is False else ():
            known, added = files.get(made.path), _put_in(made)
            if added and (known is None or known.text is None):
                return False
            has_edits = has_edits or bool(added)
            if known is not None and any(line in (known.text or "") for line in added):
                return False
    return has_edits


def _put_in(made: FileChange) -> list[str]:
    """The lines that an edit put into a file."""
    match made:
        case Replaces(old=old, new=new):
            held = set(old.split("\n"))
            added = [line for line in new.split("\n") if line not in held]
        case Inserts(text=text):
            added = text.split("\n")
        case Patches(hunks=hunks):
            added = [row for hunk in hunks for row in hunk.new if row not in hunk.old]
        case _:
            return []
    return [line for line in added if len(line.strip()) > _LINE_CHARS]


def _deed_lines(place: Place, age: int, done: str, first: str = "") -> Iterator[Line]:
    """The deeds of a turn in versions; `first` is told whole before the others."""
    wants = age * _SHORT_AGE_WANT, age * AGE_WANT, 1 + age * 0.4
    sizes = tuple(max(chars, len(first) + 2) for chars in _DID_CHARS)
    yield from versions(place, "", done, sizes, wants, shorten=items_of)


def _turn_lines(turn: Turn, at: int, age: int, told: _Told) -> Iterator[Line]:
    """What was done in a turn: its commits and files first, then what must not be repeated."""
    effects = dict.fromkeys(
        effect_told(action, told.hashes)
        for action in turn.actions
        if action.effect and action.failed is False
    )
    commits = [effect for effect in effects if effect.startswith(_COMMIT_LABEL) and age]
    others = [effect for effect in effects if effect not in commits]
    done = [*commits, *_done(turn, told.names, told.texts, has_commits=bool(commits))]
    yield from _deed_lines((at, _DEEDS, 0), age, "; ".join(done), "; ".join(commits[:1]))
    if others:
        line = f"done, do not repeat: {'; '.join(others)}"
        yield Line((at, _DEEDS, 1), age * AGE_WANT / 2, line)


def _answer_lines(turn: Turn, at: int, age: int) -> Iterator[Line]:
    """What the user answered to questions that the agent asked through a tool."""
    for action in turn.actions:
        if action.text and not action.failed and is_question(action.name):
            place = (at, _ON_THE_WAY, action.number, _MOST_FAILURES)
            label, answer = f"{action.name} [{action.number}] -> ", " ".join(action.text.split())
            if action.call and (options := _OPTION.findall(compact_json(action.call.arguments))):
                answer += f" (offered: {'; '.join(options)})"
            yield from versions(place, label, answer, _ANSWER_CHARS, (age * AGE_WANT, 1 + age))


def _word_lines(turn: Turn, at: int, age: int, told: _Told, last_said: int) -> Iterator[Line]:
    """What the agent said in a turn: its closing words, and before them what gives reasons."""
    said = words_in(turn)
    number, closing = said.pop() if said else (-1, list[str]())
    if said and sum(map(len, closing)) < _SHORT_SAID_CHARS:
        closing = [*said.pop()[1], *closing]
    text = joined(closing)
    is_answered = text.endswith(("?", "？")) and len(text) < _QUESTION_CHARS
    is_talk = len(text) < _TALK_CHARS and not _FIGURE.search(text)
    if text not in told.texts and number != last_said and not is_answered and not is_talk:
        has_commits = any(action.effect and commits_in(action.text) for action in turn.actions)
        first = age * (AGE_WANT if has_commits else _SHORT_AGE_WANT)
        later = "" if any(action.changes for action in turn.actions) else _changed(text, told)
        label = f"agent{told.marks.get(number, '')}{later}: "
        wants = [first, *(_said_want(chars, age) for chars in _SAID_CHARS[1:])]
        if later:
            wants = [want + (at > 1) * _OVERTAKEN_WANT for at, want in enumerate(wants)]
        place = (at, _CLOSING, 0)
        yield from versions(place, label, closing, _SAID_CHARS, wants, shorten=telling_of)
    told.texts.add(text)
    longest = max(said, key=lambda item: sum(map(len, item[1])), default=None)
    for back, (number, pieces) in enumerate(reversed(said)):
        text = joined(pieces)
        if text in told.texts or not (is_telling(text) or len(text) > _WHY_CHARS):
            continue
        told.texts.add(text)
        is_why = longest is not None and number == longest[0] and len(text) > _WHY_CHARS
        want = age * AGE_WANT + 0.3 if is_why else 3 + age + back * 0.5
        label = f"agent [{number}]{told.marks.get(number, '')}: "
        wants = [want, want + 3 + age / 2, want + 6 + age, want + 9 + age]
        place = (at, _ON_THE_WAY, number)
        yield from versions(place, label, pieces, _STEP_CHARS, wants, shorten=telling_of)


def _said_want(chars: int, age: int) -> float:
    """The want of so much of a closing statement: a page of an old turn comes late."""
    share = min(1.0, chars / 3_000)
    return share * (2.5 + chars / 6_000) + (AGE_WANT + 0.8 * share) * 5 * math.log1p(age / 5)


def _changed(text: str, told: _Told) -> str:
    """Which of the files that a statement describes were changed after it, and when."""
    named = dict.fromkeys(_FILE_NAME.findall(text))
    found = [name for name in named if name in told.changed]
    if len(found) < _LEAST_OVERTAKEN:
        return ""
    more = ", …" if len(found) > _MOST_OVERTAKEN else ""
    first = min(told.changed[name] for name in found)
    return f" (before [{first}] changed {', '.join(found[:_MOST_OVERTAKEN])}{more})"


def _commits_listed(turn: Turn) -> Iterator[tuple[str, str]]:
    """The hashes and subjects of the commits that the answers to git commands list."""
    for action in turn.actions:
        if action.use.command and "git" in action.use.command:
            yield from _LISTED.findall(action.text)


def effect_told(action: Action, hashes: Mapping[str, str]) -> str:
    """The lasting effect of a call: of a commit its hash and subject, where they are known."""
    if commits := _COMMIT.findall(action.text):
        return ", ".join(f"commit {name} {subject}" for name, subject in commits)
    command = action.use.command or ""
    given = iter(_GIVEN_MESSAGE.findall(command))
    told: list[str] = []
    for part in effects_in(without_heredocs(command)):
        flat = " ".join(part.split())
        found = _MESSAGE.match(flat)
        subject = found[2] if found and found[2] != HEREDOC else ""
        if flat.startswith("git commit") and (subject := subject or next(given, "")):
            name = hashes.get(subject)
            told.append(f"commit {name} {subject}" if name else f"commit {subject}")
        else:
            told.append(bare_command(flat)[:_EFFECT_CHARS])
    return "; ".join(told) or action.label


def _done(
    turn: Turn, names: Mapping[str, str], told: set[str], *, has_commits: bool
) -> Iterator[str]:
    """The files that a turn changed, each once; else, without commits, its commands and reads.

    A command is told only in the turn where it ran last.
    """
    done: dict[str, dict[str, None]] = {}
    for action in turn.actions:
        for verb, name in deeds_of(action, names):
            if verb != "ran" or name not in told:
                done.setdefault(verb, {})[name] = None
    told.update(done.get("ran", ()))
    for name in done.get("wrote", ()):
        done.get("edited", {}).pop(name, None)
    changes = [verb for verb in VERBS[:2] if done.get(verb)]
    verbs = changes if changes or has_commits else VERBS[2:]
    for verb in verbs:
        if done.get(verb):
            yield f"{verb} {', '.join(done[verb])}"


def deeds_of(action: Action, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The verbs and objects of a call; none of one that is reported elsewhere, or nowhere."""
    if action.effect or action.is_refused:
        return
    if action.changes and not action.failed:
        for made in action.changes:
            if made.path in names:
                is_whole = isinstance(made, Writes) or action.use.kind == "write"
                yield "wrote" if is_whole else "edited", names[made.path]
    elif action.use.kind == "read" and action.use.path and action.use.path in names:
        yield "read", names[action.use.path]
    elif action.use.command and action.key and not action.is_look and not action.is_nameless:
        yield "ran", action.shown_key
