"""The work log: for each turn its work, what failed until when, and the outcome, in this order.

The newest turn has the most detail. The work is listed in one short form each; the outcome is the
agent's own closing statement. Where nothing of a turn stands any more, its deed alone is told.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from context_compaction.activity.digest import effects_in
from context_compaction.activity.file_changes import Inserts, Patches, Replaces, changes_of
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.activity.shell_folder import is_scratch, work_folder
from context_compaction.activity.tool_kinds import is_question
from context_compaction.summarizers.extractive.corrections import marks_of
from context_compaction.summarizers.extractive.failures import Failure
from context_compaction.summarizers.extractive.fit import (
    Line,
    Place,
    is_telling,
    items_of,
    telling_of,
    versions,
)
from context_compaction.summarizers.extractive.turns import (
    Action,
    Step,
    Turn,
    without_heredocs,
)

# So much of what was done in a turn, and of what the agent said of it, from short to full.
_DID_CHARS = (50, 160, 400)
_SAID_CHARS = (120, 200, 600, 1_500, 3_000, 12_000)
_STEP_CHARS = (240, 700, 1_500)
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
_VERB_OF = {"write": "wrote", "edit": "edited", "notebook": "edited", "read": "read"}
VERBS = ("wrote", "edited", "ran", "read")
_COMMIT = re.compile(
    r"^\[[^\]\s]{1,80}(?: \([^)]{1,40}\))? ([0-9a-f]{7,40})\] (.{1,120})", re.MULTILINE
)
_MESSAGE = re.compile(r"\Agit commit\b.{0,40}? -\w*m ?(['\"])(.{1,120}?)(?:\1.*|\Z)")
_COMMIT_LABEL = "commit "
# Where a log lists commits, each with its subject.
_LISTED = re.compile(r"^\W{0,8}([0-9a-f]{7,40}) (?:\([^)\n]{1,80}\) )?(\S.{0,118})$", re.MULTILINE)
_EFFECT_CHARS = 120
_MARKUP = re.compile(
    r"(?<![*\w\"'`])\*\*(?=[^\s*])|(?<=[^\s*])\*\*(?![*\w\"'`])|^\s{0,3}#{1,6} |^```\w*$",
    re.MULTILINE,
)
_FENCE = "```"
_RULE = re.compile(r"[|:\- ]+")  # below the head of a table
_SENTENCE_END = re.compile(r"[.!?。！？](?=\s)|\n")
_OVERTAKEN = " (changed again since)"
# Shorter lines stand in every file.
_LINE_CHARS = 4


def log_lines(
    turns: Sequence[Turn],
    names: Mapping[str, str],
    failures: Sequence[Failure],
    files: Mapping[str, ReplayedFile],
) -> list[Line]:
    """The lines of the log, newest turn first; a place is (turn, part, number of the message).

    Args:
        turns: The turns.
        names: For each path its short name; none for files that are not worth a word.
        failures: Those that are told with their turns.
        files: The files as the calls leave them.
    """
    lines: list[Line] = []
    told: set[str] = set()
    marks = marks_of(turns)
    hashes = {subject: name for turn in turns for name, subject in _commits_listed(turn)}
    for at in range(len(turns) - 1, -1, -1):
        mine = {one.told: one for one in failures if one.turn == at}
        entry = _Entry(turns[at], at, len(turns) - 1 - at, hashes, marks)
        if _is_overtaken(turns[at], files):
            lines += _deed_lines(
                entry, "; ".join(_done(entry.turn, names, set(), has_commits=True)) + _OVERTAKEN
            )
            continue
        lines += _turn_lines(entry, [*mine.values()][-_MOST_FAILURES:], names, told)
    return lines


@dataclass(frozen=True, slots=True)
class _Entry:
    """A turn, its position, its age in turns, hashes by subject, and marks by message."""

    turn: Turn
    at: int
    age: int
    hashes: Mapping[str, str]
    marks: Mapping[int, str]

    @property
    def label(self) -> str:
        return f"[{self.turn.number}] "


# The parts of an entry, in order.
_DEEDS, _ON_THE_WAY, _CLOSING = range(3)
_AGENT = "agent: "


def rendered_log(lines: Mapping[Place, str], turns: Sequence[Turn]) -> list[str]:
    """The chosen lines in order; what is said of one thing done and no more stands behind it."""
    entries: dict[int, dict[int, list[str]]] = {}
    rows = [lines[place] for place in sorted(lines) if place[0] < 0]
    for place in sorted(place for place in lines if place[0] >= 0):
        entries.setdefault(place[0], {}).setdefault(place[1], []).append(lines[place])
    told_of: list[tuple[str, list[str]]] = []
    for at, parts in entries.items():
        label = f"[{turns[at].number}] "
        told = [line.strip() for part in parts.values() for line in part]
        if parts.keys() == {_DEEDS, _CLOSING} and sum(map(len, told)) < _ONE_LINE_CHARS:
            told = [f"{told[0]} → {told[1].removeprefix(_AGENT)}"]
        told[0] = told[0].removeprefix(label)
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
    paths = {action.use.path for turn in turns for action in turn.actions if action.use.path}
    folder = work_folder(sorted(paths))
    paths = {path for path in paths if not is_scratch(path, folder)} or paths
    parts = {path: path.replace("\\", "/").split("/") for path in sorted(paths)}
    last = Counter(names[-1] for names in parts.values())
    return {
        path: names[-1] if last[names[-1]] == 1 else "/".join(names[-2:])
        for path, names in parts.items()
    }


def plain(text: str) -> str:
    """`text` without markup and empty lines."""
    rows = (" ".join(row.split()) for row in _MARKUP.sub("", text).splitlines())
    return "\n".join(row for row in rows if row and not _RULE.fullmatch(row))


def _without_blocks(text: str) -> str:
    """`text` without its blocks of code; all of it where one of them does not end."""
    shown: list[str] = []
    is_code = False
    for row in text.split("\n"):
        if row.lstrip().startswith(_FENCE):
            is_code = not is_code
        elif not is_code:
            shown.append(row)
    return text if is_code else "\n".join(shown)


def _is_overtaken(turn: Turn, files: Mapping[str, ReplayedFile]) -> bool:
    """Whether nothing that the edits of a turn put into files stands there any more."""
    has_edits = False
    for action in turn.actions:
        if action.effect and action.failed is False:
            return False
        if action.use.kind == "write":
            return False
        for path, added in _put_in(action):
            known = files.get(path)
            if known is None or known.text is None:
                return False
            has_edits = True
            if any(line in known.text for line in added):
                return False
    return has_edits


def _put_in(action: Action) -> Iterator[tuple[str, list[str]]]:
    """The lines that an edit put into files, by path."""
    if action.call is None or action.failed is not False:
        return
    for made in changes_of(action.call, action.use):
        match made:
            case Replaces(path, old, new):
                held = set(old.split("\n"))
                added = [line for line in new.split("\n") if line not in held]
            case Inserts(path, _, new):
                added = new.split("\n")
            case Patches(path, hunks):
                added = [row for hunk in hunks for row in hunk.new if row not in hunk.old]
            case _:
                continue
        if lines := [line for line in added if len(line.strip()) > _LINE_CHARS]:
            yield path, lines


def _deed_lines(entry: _Entry, done: str, first: str = "") -> Iterator[Line]:
    """The deeds of a turn in versions; `first` is told whole before the others."""
    wants = entry.age * _SHORT_AGE_WANT, entry.age * AGE_WANT, 1 + entry.age * 0.4
    place = (entry.at, _DEEDS, 0)
    sizes = tuple(max(chars, len(first) + 2) for chars in _DID_CHARS)
    yield from versions(place, entry.label, done, sizes, wants, shorten=items_of)


def _turn_lines(
    entry: _Entry, failures: Sequence[Failure], names: Mapping[str, str], told: set[str]
) -> Iterator[Line]:
    """The entry of a turn: its deeds, what failed and was said on the way, the closing words."""
    turn, at, age = entry.turn, entry.at, entry.age
    said = _told_by_agent(turn)
    number, closing = said.pop() if said else (-1, "")
    if said and len(closing) < _SHORT_SAID_CHARS:
        closing = f"{said.pop()[1]} {closing}"
    # What was said last of all stands where the work stands.
    if closing in told or age == 0:
        closing = ""
    if closing.endswith(("?", "？")) and len(closing) < _QUESTION_CHARS:
        closing = ""  # which was answered
    told.add(closing)
    effects = dict.fromkeys(
        effect_told(action, entry.hashes)
        for action in turn.actions
        if action.effect and action.failed is False
    )
    commits = [effect for effect in effects if effect.startswith(_COMMIT_LABEL) and age]
    others = [effect for effect in effects if effect not in commits]
    done = "; ".join((*commits, *_done(turn, names, told, has_commits=bool(commits))))
    if len(closing) < _TALK_CHARS and not _FIGURE.search(closing):
        closing = ""
    yield from _deed_lines(entry, done, "; ".join(commits[:1]))
    first = age * (AGE_WANT if commits else _SHORT_AGE_WANT)
    wants = first, age * AGE_WANT, 1 + age * 0.4, 1.5 + age * 0.7, 2.5 + age, 5 + age
    label = f"agent{entry.marks.get(number, '')}: "
    yield from versions((at, _CLOSING, 0), label, closing, _SAID_CHARS, wants, shorten=telling_of)
    if others:
        line = f"done, do not repeat: {'; '.join(others)}"
        yield Line((at, _DEEDS, 1), age * AGE_WANT / 2, line)
    for rank, failure in enumerate(failures):
        place = (at, _ON_THE_WAY, failure.action.number, rank)
        yield Line(place, 1 + rank + age * 0.3, failure.told)
    for action in turn.actions:
        if action.text and not action.failed and is_question(action.name):
            place = (at, _ON_THE_WAY, action.number, _MOST_FAILURES)
            label, answer = f"{action.name} [{action.number}] -> ", " ".join(action.text.split())
            yield from versions(place, label, answer, _ANSWER_CHARS, (age * AGE_WANT, 1 + age))
    yield from _earlier_words(entry, said, told)


def _told_by_agent(turn: Turn) -> list[tuple[int, str]]:
    """The agent's words in a turn with their messages' numbers, without announcements of calls."""
    said = ((step.number, _unannounced(step)) for step in turn.steps)
    return [(number, text) for number, text in said if len(text) >= _LEAST_SAID_CHARS]


def _unannounced(step: Step) -> str:
    """The words of a step, without the short last sentence that announces its calls."""
    text = plain(_without_blocks(step.said))
    if not any(action.call is not None for action in step.actions):
        return text
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    start = next((end for end in reversed(ends) if end < len(text)), 0)
    is_announced = len(text) - start < _ANNOUNCED_CHARS or text[-1] in ":…："
    return text[:start].rstrip() if is_announced else text


def _earlier_words(
    entry: _Entry, said: Sequence[tuple[int, str]], told: set[str]
) -> Iterator[Line]:
    """The agent's words before the last: the longest, which gives reasons, is wanted soonest."""
    at, age = entry.at, entry.age
    longest = max(said, key=lambda item: len(item[1]), default=None)
    for back, (number, text) in enumerate(reversed(said)):
        if text not in told and len(text) >= _SHORT_SAID_CHARS and is_telling(text):
            told.add(text)
            is_why = longest is not None and number == longest[0] and len(text) > _WHY_CHARS
            want = age * AGE_WANT + 0.3 if is_why else 3 + age + back * 0.5
            wants = want, want + 3 + age / 2, want + 6 + age
            mark = entry.marks.get(number, "")
            label, place = f"agent [{number}]{mark}: ", (at, _ON_THE_WAY, number)
            yield from versions(place, label, text, _STEP_CHARS, wants, shorten=telling_of)


def _commits_listed(turn: Turn) -> Iterator[tuple[str, str]]:
    """The hashes and subjects of the commits that the answers to git commands list."""
    for action in turn.actions:
        if action.use.command and "git" in action.use.command:
            yield from _LISTED.findall(action.text)


def effect_told(action: Action, hashes: Mapping[str, str]) -> str:
    """The lasting effect of a call: of a commit its hash and subject, where they are known."""
    if commits := _COMMIT.findall(action.text):
        return ", ".join(f"commit {name} {subject}" for name, subject in commits)
    parts = effects_in(without_heredocs(action.use.command)) if action.use.command else []
    flat = (" ".join(part.split()) for part in parts)
    told = [_commit_told(found[2], hashes) if (found := _MESSAGE.match(part)) else part
            for part in flat]  # fmt: skip
    return "; ".join(part[:_EFFECT_CHARS] for part in told) or action.label


def _commit_told(subject: str, hashes: Mapping[str, str]) -> str:
    name = hashes.get(subject)
    return f"commit {name} {subject}" if name else f"commit {subject}"


def _done(
    turn: Turn, names: Mapping[str, str], told: set[str], *, has_commits: bool
) -> Iterator[str]:
    """The files that a turn changed, each once; else, without commits, its commands and reads.

    A command is told only in the turn where it ran last.
    """
    done: dict[str, dict[str, None]] = {}
    for action in turn.actions:
        verb, name = deed(action, names)
        if verb and (verb != "ran" or name not in told):
            done.setdefault(verb, {})[name] = None
    told.update(done.get("ran", ()))
    for name in done.get("wrote", ()):
        done.get("edited", {}).pop(name, None)
    changes = [verb for verb in VERBS[:2] if done.get(verb)]
    verbs = changes if changes or has_commits else VERBS[2:]
    for verb in verbs:
        if done.get(verb):
            yield f"{verb} {', '.join(done[verb])}"


def deed(action: Action, names: Mapping[str, str]) -> tuple[str, str]:
    """The verb and the object of a call; ("", "") for one reported elsewhere, or nowhere."""
    verb = _VERB_OF.get(action.use.kind, "")
    if action.effect or action.is_refused:
        return "", ""
    if verb and action.use.path:
        name = names.get(action.use.path, "")
        return (verb, name) if name and (verb == "read" or not action.failed) else ("", "")
    is_told = action.key and not action.is_look and not action.is_nameless
    if action.use.kind == "execute" and is_told:
        return "ran", action.shown_key
    return "", ""  # what tools told stands with the facts
