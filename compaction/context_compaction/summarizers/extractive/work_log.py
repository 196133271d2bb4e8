"""The work log: for each turn its work, its outcome, and what failed until when.

The newest turn has the most detail. The work is listed in one short form each; the outcome is the
agent's own closing statement; a command that failed is listed with its error and with what had been
changed when it passed.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from context_compaction.activity.digest import effects_in
from context_compaction.activity.shell_folder import is_scratch, work_folder
from context_compaction.summarizers import Tally
from context_compaction.summarizers.extractive.fit import (
    Line,
    is_telling,
    items_of,
    telling_of,
    versions,
)
from context_compaction.summarizers.extractive.turns import Action, Turn

# So much of what was done in a turn, and of what the agent said of it, from short to full.
_SHORT_CHARS = (50, 120)
_ENTRY_CHARS = ((160, 200), (400, 600), (400, 1_500), (400, 3_000))
_STEP_CHARS = (240, 700, 1_500)
# What is shorter and announces a call says nothing of what came of it; what is longer says why.
_ANNOUNCED_CHARS = 160
_TALK_CHARS = 60  # "You are welcome."
_FIGURE = re.compile(r"[\d/_`]")
_LEAST_SAID_CHARS = 12  # "Perfect"
_WHY_CHARS = 120
# How much less the short line of what is one turn older is wanted.
_SHORT_AGE_WANT = 0.02
_COMMAND_CHARS = 60
_ERROR_CHARS = 200
_REFUSAL_CHARS = 600
# A closing statement this short is told with the one before it.
_SHORT_SAID_CHARS = 40
_QUESTION_CHARS = 240
_MOST_FAILURES = 4
# How much less what is one turn older is wanted.
AGE_WANT = 0.2
_VERB_OF = {"write": "wrote", "edit": "edited", "notebook": "edited", "read": "read"}
_VERBS = ("wrote", "edited", "ran", "read")
_CHANGES = ("edit", "write", "notebook")
# Of work that is told no more turn by turn: so many names and effects are counted, so much is told.
_MOST_NAMES = 24
_MOST_EFFECTS = 12
_TALLY_CHARS = (240, 800)
_TALLY_WANT = 0.0
_COMMIT = re.compile(
    r"^\[[^\]\s]{1,80}(?: \([^)]{1,40}\))? ([0-9a-f]{7,40})\] (.{1,120})", re.MULTILINE
)
_MESSAGE = re.compile(r"\Agit commit\b.{0,40}? -\w*m ?(['\"])(.{1,120}?)(?:\1.*|\Z)")
_COMMIT_LABEL = "commit "
_EFFECT_CHARS = 120
_TIMEOUT = re.compile(r"\Atimeout \S+ ")
_PROGRAM_WORDS = 2
_MARKUP = re.compile(
    r"(?<![*\w\"'`])\*\*(?=[^\s*])|(?<=[^\s*])\*\*(?![*\w\"'`])|^\s{0,3}#{1,6} |^```\w*$",
    re.MULTILINE,
)
_RULE = re.compile(r"[|:\- ]+")  # below the head of a table
# Precedes the agent's last words in the entry of a turn.
CLOSING = "\nagent: "
# How agents begin before they say anything.
_OPENING = re.compile(
    r"\A(?:(?:perfect|great|excellent|done|ok(?:ay)?|good|alright|now|wonderful|absolutely)\b"
    r"[^.!:\n]{0,60}[.!:]|you're (?:absolutely )?right[^.!:\n]{0,30}[.!:]|let me [^.!:\n]{0,80}:"
    r"|(?:here(?:'s| is) )?(?:a |the )?summary\b[^.!:\n]{0,40}:?)\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A command or a call that failed, once or again and again.

    Attributes:
        turn: Position of the turn in which it failed last.
        action: Its last failure.
        times: How often.
        passed: Number of the message in which it passed; None where it did not.
        changed: The files that were changed in between.
    """

    turn: int
    action: Action
    times: int = 1
    passed: int | None = None
    changed: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The failure on one line, and what passed it."""
        if self.action.is_refused:
            said = self.action.error[:_REFUSAL_CHARS]
            why = f' ("{said}", by what the host says)' if said else ""
            return f"refused by the user, not done: {self.action.label}{why}"
        again = f" ({self.times} times)" if self.times > 1 else ""
        command, error = self.action.label[:_COMMAND_CHARS], self.action.error[:_ERROR_CHARS]
        line = f"failed{again}: {command} -> {error}"
        if self.passed is None:
            return line
        return f"{line}; passed [{self.passed}] after edits of {', '.join(self.changed[-4:])}"

    @property
    def is_telling(self) -> bool:
        """Whether it says later what broke and what mended it, or what was not done."""
        if self.action.is_refused:
            return True
        if self.passed is None:
            return self.action.effect or self.action.use.kind != "execute"
        return bool(self.changed) and not self.action.is_compound


def tallied(before: Tally, turns: Sequence[Turn], numbers: Sequence[int]) -> Tally:
    """`before` with the work of `turns`, whose messages have these `numbers`."""
    names = short_names(turns)
    deeds = {verb: Counter(done) for verb, done in before.deeds.items()}
    effects = list(before.effects)
    for turn in turns:
        for action in turn.actions:
            verb, name = _deed(action, names)
            if verb:
                done = deeds.setdefault(verb, Counter())
                done[name] = done.pop(name, 0) + 1
            if action.effect and action.failed is False:
                effects.append(_effect_told(action))
    known = [number for number in (before.first, before.last, *numbers) if number >= 0]
    return Tally(
        min(known, default=-1),
        max(known, default=-1),
        {verb: dict(_most(done)) for verb, done in deeds.items()},
        tuple(dict.fromkeys(reversed(effects)))[:_MOST_EFFECTS][::-1],
    )


def merged(tallies: Sequence[Tally]) -> Tally:
    """The sum of `tallies`, which are given oldest first."""
    deeds: dict[str, Counter[str]] = {}
    for tally in tallies:
        for verb, done in tally.deeds.items():
            deeds.setdefault(verb, Counter()).update(done)
    numbers = [n for tally in tallies for n in (tally.first, tally.last) if n >= 0]
    effects = (effect for tally in tallies for effect in tally.effects)
    return Tally(min(numbers, default=-1), max(numbers, default=-1), deeds, tuple(effects))


def tally_lines(tally: Tally) -> Iterator[Line]:
    """The lines of turns without entries: their work, and what must not be repeated."""
    label = f"[{tally.first}-{tally.last}] "
    told = [
        f"{verb} {', '.join(map(_times, sorted(done.items(), key=lambda item: -item[1])))}"
        for verb in _VERBS
        if (done := tally.deeds.get(verb))
    ]
    if told:
        text = "; ".join(told)
        yield from versions((-2, 0), label, text, _TALLY_CHARS, (_TALLY_WANT, 2.0))
    if tally.effects:
        text = f"{label}done, do not repeat: {'; '.join(tally.effects)}"
        yield Line((-2, 1), _TALLY_WANT, text)


def _most(done: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The most frequent names of `done` with their times, in its order."""
    most = sorted(done, key=lambda name: -done[name])[:_MOST_NAMES]
    yield from ((name, times) for name, times in done.items() if name in most)


def log_lines(
    turns: Sequence[Turn], names: Mapping[str, str], failures: Sequence[Failure]
) -> list[Line]:
    """The lines of the log, newest turn first.

    Args:
        turns: The turns.
        names: For each path its short name; none for files that are not worth a word.
        failures: Those that are told with their turns.
    """
    lines: list[Line] = []
    told: set[str] = set()
    for at in range(len(turns) - 1, -1, -1):
        mine = [failure for failure in failures if failure.turn == at][-_MOST_FAILURES:]
        lines += _turn_lines(turns[at], at, len(turns) - 1 - at, mine, names, told)
    return lines


def commits_in(text: str) -> list[str]:
    """The lines of a command's answer that name the commits it made."""
    return [found[0] for found in _COMMIT.finditer(text)]


def failures_of(turns: Sequence[Turn], names: Mapping[str, str]) -> list[Failure]:
    """The failures, oldest first, each command with all its failures until it passed.

    What passed in a later turn says nothing of its cure.
    """
    found: list[Failure] = []
    failing: dict[str, Failure] = {}
    for at, turn in enumerate(turns):
        for action in turn.actions:
            kind, name = action.use.kind, names.get(action.use.path or "")
            if action.is_refused:
                found.append(Failure(at, action))
            elif kind == "execute" and action.failed and action.error:
                key = _program_of(action.key)
                before = failing.get(key)
                times, changed = (before.times, before.changed) if before else (0, ())
                failing[key] = Failure(at, action, times + 1, changed=changed)
            elif kind == "execute" and action.failed is False:
                passed = [failing.pop(key, None) for key in map(_program_of, action.keys)]
                found += [
                    replace(one, passed=action.number)
                    for one in passed
                    if one is not None and one.turn == at
                ]
            elif kind in _CHANGES and name and not action.failed:
                for key, failure in failing.items():
                    kept = tuple(path for path in failure.changed if path != name)
                    failing[key] = replace(failure, changed=(*kept, name))
            elif kind == "other" and action.failed and action.error:
                found.append(Failure(at, action))
    return sorted((*found, *failing.values()), key=lambda failure: failure.turn)


def open_failures(
    failures: Sequence[Failure], turns: Sequence[Turn], keys_later: Set[str]
) -> list[Failure]:
    """Those of the newest turn that nothing passed, and that are not tried again later.

    What was committed after them was fit for it.
    """
    tried = set(map(_program_of, keys_later))
    done = (one.number for turn in turns[-1:] for one in turn.actions if one.effect and one.text)
    done_at = max(done, default=-1)
    return [
        failure
        for failure in failures
        if failure.turn == len(turns) - 1
        and failure.passed is None
        and not failure.action.is_refused
        and failure.action.number >= done_at
        and tried.isdisjoint(map(_program_of, failure.action.keys))
    ]


def _program_of(key: str) -> str:
    """The program of a command: a run that passes ends its failure, whatever the arguments."""
    words = _TIMEOUT.sub("", key).split()
    return " ".join([word for word in words if not word.startswith("-")][:_PROGRAM_WORDS])


def short_names(turns: Sequence[Turn]) -> dict[str, str]:
    """For each path its last part; its last two parts where several paths share the last.

    Files in temporary folders have none, where others have.
    """
    paths = {action.use.path for turn in turns for action in turn.actions if action.use.path}
    folder = work_folder(sorted(paths))
    paths = {path for path in paths if not is_scratch(path, folder)} or paths
    last = Counter(posixpath.basename(path) for path in paths)
    return {
        path: posixpath.basename(path)
        if last[posixpath.basename(path)] == 1
        else "/".join(path.split("/")[-2:])
        for path in sorted(paths)
    }


def plain(text: str) -> str:
    """`text` without markup, empty lines and its opening phrases."""
    rows = (" ".join(row.split()) for row in _MARKUP.sub("", text).splitlines())
    flat = "\n".join(row for row in rows if row and not _RULE.fullmatch(row))
    for _ in range(3):
        opening = _OPENING.match(flat)
        if opening is None or opening.end() >= len(flat) - _SHORT_SAID_CHARS // 2:
            return flat
        flat = flat[opening.end() :]
    return flat


def _turn_lines(
    turn: Turn,
    at: int,
    age: int,
    failures: Sequence[Failure],
    names: Mapping[str, str],
    told: set[str],
) -> Iterator[Line]:
    """The entry of a turn, short and full, then its effects, failures and earlier words."""
    said = _told_by_agent(turn)
    closing = said.pop()[1] if said else ""
    if said and len(closing) < _SHORT_SAID_CHARS:
        closing = f"{said.pop()[1]} {closing}"
    # What was said last of all stands where the work stands.
    if closing in told or age == 0:
        closing = ""
    if closing.endswith(("?", "？")) and len(closing) < _QUESTION_CHARS:
        closing = ""  # which was answered
    told.add(closing)
    effects = dict.fromkeys(
        _effect_told(action) for action in turn.actions if action.effect and action.failed is False
    )
    commits = [effect for effect in effects if effect.startswith(_COMMIT_LABEL) and age]
    others = [effect for effect in effects if effect not in commits]
    head = (at, 0, 0)
    done = "; ".join((*commits, *_done(turn, names, told)))
    if not done and not (others and not closing):
        done = _undone(turn, closing, failures, has_more=bool(said and age))
    did_chars, said_chars = _SHORT_CHARS
    short = "; ".join(commits[:1]) or " → ".join(
        filter(None, (items_of(done, did_chars), telling_of(closing, said_chars)))
    )
    shown = [short] + [
        _entry(items_of(done, did_chars), telling_of(closing, said_chars))
        for did_chars, said_chars in _ENTRY_CHARS
    ]
    wants = age * _SHORT_AGE_WANT, age * AGE_WANT, 1 + age * 0.4, 1.5 + age * 0.7, 2.5 + age
    before = ""
    is_talk = not done and len(closing) < _TALK_CHARS and not _FIGURE.search(closing)
    for text, want in zip(shown, wants, strict=True):
        if text and text != before and not is_talk:
            yield Line(head, want, f"[{turn.number}] {text}", is_fuller=bool(before))
        before = text or before
    if others:
        line = f"[{turn.number}] done, do not repeat: {'; '.join(others)}"
        yield Line((at, 0, 2), age * AGE_WANT / 2, line)
    for number, failure in enumerate(failures):
        yield Line((at, 0, 3, number), 1 + number + age * 0.3, f"  {failure.told}", head)
    yield from _earlier_words(said, at, age, told)


def _entry(done: str, closing: str) -> str:
    """`done`, then the agent's closing words on a line of their own."""
    return CLOSING.join(filter(None, (done, closing))) if done else closing


def _told_by_agent(turn: Turn) -> list[tuple[int, str]]:
    """The agent's words in a turn with their messages' numbers, without announcements of calls."""
    said = ((step.number, plain(step.said)) for step in turn.steps)
    return [
        (number, text)
        for number, text in said
        if len(text) >= _LEAST_SAID_CHARS
        and not (len(text) < _ANNOUNCED_CHARS and text[-1] in ":…：")
    ]


def _earlier_words(
    said: Sequence[tuple[int, str]], at: int, age: int, told: set[str]
) -> Iterator[Line]:
    """The agent's words before the last: the longest, which gives reasons, is wanted soonest."""
    longest = max(said, key=lambda item: len(item[1]), default=None)
    for back, (number, text) in enumerate(reversed(said)):
        if text not in told and len(text) >= _SHORT_SAID_CHARS and is_telling(text):
            told.add(text)
            is_why = longest is not None and number == longest[0] and len(text) > _WHY_CHARS
            want = age * AGE_WANT + 0.3 if is_why else 3 + age + back * 0.5
            wants = want, want + 3 + age / 2, want + 6 + age
            label, place = f"  agent [{number}]: ", (at, 1, -back)
            yield from versions(
                place, label, text, _STEP_CHARS, wants, (at, 0, 0), shorten=telling_of
            )


def _effect_told(action: Action) -> str:
    """The lasting effect of a call: of a commit its hash and subject, as the answer has them."""
    if commits := _COMMIT.findall(action.text):
        return ", ".join(f"commit {name} {subject}" for name, subject in commits)
    parts = effects_in(action.use.command) if action.use.command else []
    told = [_MESSAGE.sub(r"commit \2", " ".join(part.split())) for part in parts]
    return "; ".join(part[:_EFFECT_CHARS] for part in told) or action.label


def _done(turn: Turn, names: Mapping[str, str], told: set[str]) -> Iterator[str]:
    """The files that a turn changed, each once; where none, its commands, and what it read.

    A command is told only in the turn where it ran last.
    """
    done: dict[str, dict[str, None]] = {}
    for action in turn.actions:
        verb, name = _deed(action, names)
        if verb and (verb != "ran" or name not in told):
            done.setdefault(verb, {})[name] = None
    told.update(done.get("ran", ()))
    verbs = [verb for verb in _VERBS[:2] if verb in done] or _VERBS[2:]
    for verb in verbs:
        if verb in done:
            yield f"{verb} {', '.join(done[verb])}"


def _undone(turn: Turn, closing: str, failures: Sequence[Failure], *, has_more: bool) -> str:
    """What a turn that changed nothing did, where the agent's words do not say it."""
    is_refused = any(failure.action.is_refused for failure in failures)
    if is_refused or (failures and not closing):
        return "tried"
    if closing:
        return "looked" if has_more else ""
    return _looked(turn)


def _looked(turn: Turn) -> str:
    """The calls of a turn that only looked; "" where it has none."""
    looked = dict.fromkeys(action.key[:_COMMAND_CHARS] for action in turn.actions if action.key)
    return f"looked: {', '.join(looked)}" if looked else ""


def _deed(action: Action, names: Mapping[str, str]) -> tuple[str, str]:
    """The verb and the object of a call; ("", "") for one reported elsewhere, or nowhere."""
    verb = _VERB_OF.get(action.use.kind, "")
    is_told_apart = action.effect or action.is_refused
    if is_told_apart or (action.call is None and action.name == "host"):
        return "", ""
    if verb and action.use.path:
        name = names.get(action.use.path, "")
        return (verb, name) if name and (verb == "read" or not action.failed) else ("", "")
    if action.use.kind == "execute":
        key = action.key[:_COMMAND_CHARS]
        return ("", "") if action.is_look or not key else ("ran", key)
    return "", ""  # what tools told stands with the facts


def _times(item: tuple[str, int]) -> str:
    return item[0] if item[1] == 1 else f"{item[0]} x{item[1]}"
