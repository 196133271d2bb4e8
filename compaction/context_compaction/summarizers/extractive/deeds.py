"""What the agent did, each call in one short form; and what failed, until it passed."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import TypeAlias

from context_compaction.activity.command_line import (
    bare_command,
    bare_effect,
    is_nameless,
    one_line,
)
from context_compaction.activity.commits import (
    KnownCommits,
    PassedRun,
    branch_told,
    commits_in,
    known_commits,
    subjects_in,
)
from context_compaction.activity.error_line import counts_failures, error_lines, outcome_line
from context_compaction.activity.file_changes import Deletes, FileChange, Writes
from context_compaction.activity.work_folder import is_scratch, work_folder
from context_compaction.summarizers.extractive.said import head_of, pieces_of, telling_of
from context_compaction.summarizers.extractive.turns import Action, Turn

COMMIT = "commit "  # how the effect of one begins
_KEY_CHARS = 60
_ERROR_CHARS = 200
_REFUSAL_CHARS = 80
_THOUGHT_CHARS = 300  # two or three sentences
_MOST_CHANGED = 4
_CHANGES = ("wrote", "edited", "deleted")
_PROGRAM_WORDS = 2
# "npm run build" is passed by no "npm run lint".
_RUN_WORDS = 3
# Behind a pipe the exit status is hidden, and these show only a part of what was said.
_FILTERED = re.compile(r"\|\s*(?:\w*grep|rg|wc|awk|sed|cut|jq|sort|uniq)\b")
# What only makes ready for a commit, or is one.
_OF_COMMIT = ("git commit", "git add", "git rm", "git mv")
# A row that is an address alone: of the request or the issue that a command opened.
_ADDRESS = re.compile(r"^https?://\S{4,200}$", re.MULTILINE)
Run: TypeAlias = tuple[str, ...]  # the words by which it is known again


def short_names(turns: Sequence[Turn]) -> dict[str, str]:
    """For each path its last part; its last two parts where several paths share the last.

    Files in temporary folders have none, where others have.
    """
    actions = [action for turn in turns for action in turn.actions]
    paths = {action.use.path for action in actions if action.use.path}
    paths.update(made.path for action in actions for made in action.changes if made.path)
    folder = work_folder(sorted(paths))
    paths = {path for path in paths if not is_scratch(path, folder)} or paths
    parts = {path: path.split("/") for path in sorted(paths)}
    last = Counter(names[-1] for names in parts.values())
    return {
        path: "/".join(names[-1 if last[names[-1]] == 1 else -2 :]) for path, names in parts.items()
    }


def done_in(
    turn: Turn, names: Mapping[str, str], told: set[str]
) -> tuple[list[str], list[str], list[str]]:
    """The files that a turn wrote, edited and deleted; what it ran and read; what it searched with.

    What is reported elsewhere is left out, and so is a command that is `told` already; one that is
    not is added there.
    """
    changed: dict[str, str] = {}  # by the name of a file what was done to it
    ran, read, searched = dict[str, None](), dict[str, None](), dict[str, None]()
    for action in turn.actions:
        key, use = one_line(action.keys[-1], _KEY_CHARS), action.use
        if action.lasting or action.is_refused:
            continue
        if action.changes and not action.failed:
            for made in action.changes:
                name = names.get(made.path, "")
                changed[name] = _verb_of(made, changed.get(name), is_write=use.kind == "write")
        elif use.kind == "read":
            read[names.get(use.path or "", "")] = None
        elif use.kind in ("search", "list"):
            searched[one_line(action.label, _KEY_CHARS)] = None
        elif use.command and not (action.is_look or is_nameless(key) or key in told):
            ran[key] = None
    told.update(ran)
    by_verb = {verb: [name for name, one in changed.items() if one == verb] for verb in _CHANGES}
    aside = _listed({"ran": ran, "read": read})
    return _listed(by_verb), aside, _listed({"searched with": searched})


def _verb_of(made: FileChange, before: str | None, *, is_write: bool) -> str:
    """What was done to a file by a change; one that the turn wrote is no edited one."""
    if isinstance(made, Deletes):
        return "deleted"
    return "wrote" if is_write or isinstance(made, Writes) or before == "wrote" else "edited"


def _listed(by_verb: Mapping[str, Iterable[str]]) -> list[str]:
    told = ((verb, ", ".join(filter(None, objects))) for verb, objects in by_verb.items())
    return [f"{verb} {objects}" for verb, objects in told if objects]


def effects_of(actions: Iterable[Action], known: KnownCommits) -> list[str]:
    """What `actions` did that must not be repeated, each once; their commits as `known`."""
    done = (action for action in actions if action.lasting and action.failed is False)
    return list(dict.fromkeys(told for one in done for told in _effects_told(one, known)))


def _effects_told(action: Action, known: KnownCommits) -> Iterator[str]:
    """The lasting effect of a call: of each commit its hash and subject, where they are known."""
    commits = commits_in(action.text)
    for made in commits:
        at = known.replaced.get(made.name)
        told = f"{made.name} {made.subject}" if at is None else f"amended at [{at}]"
        yield f"{COMMIT}{told}"
    subjects = iter(subjects_in(action.use.command or ""))
    parts = [bare_effect(part) for part in action.lasting if action.use.command]
    if commits:
        parts = [part for part in parts if not part.startswith(_OF_COMMIT)]
    for at, part in enumerate(parts):
        if part.startswith("git commit") and (subject := next(subjects, "")):
            parts[at] = " ".join(f"{COMMIT}{known.hashes.get(subject, '')} {subject}".split())
    if parts and (made_at := _ADDRESS.findall(action.text)):
        parts[-1] = f"{parts[-1]} -> {made_at[-1]}"
    yield from parts or (() if commits else action.lasting)


def is_commit(action: Action) -> bool:
    """Whether a call committed something, as far as its command or its answer says so."""
    if action.failed is not False or not (action.use.command and action.lasting):
        return False
    is_asked = any(bare_command(part).startswith("git commit") for part in action.lasting)
    return is_asked or bool(commits_in(action.text))


def commits_of(turns: Sequence[Turn]) -> KnownCommits:
    """What the commands of `turns` tell of the commits."""
    return known_commits(_runs_that_passed(turns))


def branch_of(turns: Sequence[Turn]) -> str:
    """What the commands of `turns` tell of the branch that is checked out."""
    return branch_told(_runs_that_passed(turns))


def _runs_that_passed(turns: Sequence[Turn]) -> Iterator[PassedRun]:
    ran = (one for turn in turns for one in turn.actions if one.use.command and not one.failed)
    return (PassedRun(one.number, one.use.command or "", one.text) for one in ran)


@dataclass(frozen=True, slots=True)
class Failure:
    """A command or a call that failed in a turn, once or again and again."""

    action: Action  # its last failure
    passed: int | None = None  # the number of the message in which it passed in the same turn
    changed: tuple[str, ...] = ()  # the files that were changed in between

    @property
    def told(self) -> str:
        """The failure on one line, and what passed it."""
        action = self.action
        if action.is_refused:
            if action.error:
                # It may be what is to be done: "Fix all in this order", said to a plan.
                said = head_of(action.error, _REFUSAL_CHARS)
                words = f'the user said instead: "{said}" (by what the host says)'
                return f"not done: {action.label}; {words}"
            return f"refused by the user, not done: {action.label}"
        line = f"failed: {action.keys[-1] or action.label} -> {action.error[:_ERROR_CHARS]}"
        if self.passed is None:
            return line
        changed = ", ".join(self.changed[-_MOST_CHANGED:])
        return f"{line}; passed [{self.passed}] after edits of {changed}"

    @property
    def is_telling(self) -> bool:
        """Whether it says later what broke and what mended it, or what was not done."""
        if self.action.is_refused:
            return True
        if self.action.is_compound:
            return False  # which of its parts failed is not known
        if self.passed is None:
            return bool(self.action.lasting) or self.action.use.kind != "execute"
        return bool(self.changed)


def after_failures(turn: Turn) -> set[int]:
    """The numbers of the steps that follow a failure: there the agent says what it came from."""
    return {
        step.number
        for before, step in pairwise(turn.steps)
        if any(a.failed and a.error and a.use.command and not a.is_look for a in before.actions)
    }


def thoughts_on_failures(turn: Turn) -> dict[int, list[str]]:
    """By the number of its step, in pieces, what the agent thought behind a failure in silence.

    Other thoughts are mostly guesses and plans, of which many are dropped.
    """
    causes = after_failures(turn)
    silent = (one for one in turn.steps if one.number in causes and one.thought and not one.pieces)
    told = ((one.number, telling_of(pieces_of(one.thought), _THOUGHT_CHARS)) for one in silent)
    return {number: pieces_of(thought) for number, thought in told if thought}


@dataclass(frozen=True, slots=True)
class _Failing:
    """A run that has failed and not passed since."""

    nth: int  # of the turn's calls, where it failed first
    change_count: int  # files that were changed before that
    action: Action  # its last failure


def failures_in(turn: Turn, names: Mapping[str, str]) -> list[Failure]:
    """The failures of a turn, each command and tool with all its failures until it passed."""
    found: list[Failure] = []
    failing: defaultdict[Run, dict[Run, _Failing]] = defaultdict(dict)  # by program
    changed: list[str] = []
    for nth, action in enumerate(turn.actions):
        runs = _runs_of(action)
        if action.is_refused:
            found.append(Failure(action))
        elif runs and action.failed and action.error:
            run = runs[-1]
            same = failing[run[:_PROGRAM_WORDS]]
            first = same.get(run, _Failing(nth, len(changed), action))
            same[run] = replace(first, action=action)
        elif action.failed is False and runs:
            of_programs = ((run, failing[run[:_PROGRAM_WORDS]]) for run in runs)
            ended = [same.pop(one) for run, same in of_programs for one in _same(run, same)]
            for one in sorted(ended, key=attrgetter("nth")):
                if _tells_success(action):
                    since = tuple(dict.fromkeys(changed[one.change_count :]))
                    found.append(Failure(one.action, action.number, since))
        elif not action.failed:
            changed += [names[made.path] for made in action.changes if made.path in names]
    left = (one for same in failing.values() for one in same.values())
    return [*found, *(Failure(one.action) for one in sorted(left, key=attrgetter("nth")))]


def open_failures(newest: Sequence[Turn], keys_later: Set[str] | None) -> list[Failure]:
    """Those of the newest turn that nothing passed, and that are not tried again later.

    What was committed after them was fit for it; `keys_later` is None once another turn runs.
    """
    if keys_later is None:
        return []
    tried: defaultdict[Run, set[Run]] = defaultdict(set)
    for run in map(_run_of, keys_later):
        tried[run[:_PROGRAM_WORDS]].add(run)
    done = (one.number for turn in newest for one in turn.actions if one.lasting and one.text)
    done_at = max(done, default=-1)
    return [
        failure
        for turn in newest
        for failure in failures_in(turn, {})
        if failure.passed is None
        and not failure.action.is_refused
        and failure.action.number >= done_at
        and not any(
            _same(run, tried[run[:_PROGRAM_WORDS]]) for run in map(_run_of, failure.action.keys)
        )
    ]


def _runs_of(action: Action) -> list[Run]:
    """By what the failure of a call is ended: by a run of one of its commands, by the same tool.

    What a tool should have changed, another call of it does not.
    """
    if action.use.kind == "execute":
        return [] if action.is_look else [*map(_run_of, action.keys)]
    if action.use.kind == "other":
        return [(action.label if action.lasting else action.name,)]
    return []


def _run_of(key: str) -> Run:
    """Its program and the first words, as far as none is quoted: a message says nothing of it."""
    words = [word for word in key.split() if word[0] not in "-&"][:_RUN_WORDS]
    return (*words[:1], *takewhile(lambda word: word[0] not in "'\"", words[1:]))


def _same(run: Run, others: Collection[Run]) -> list[Run]:
    """Those of `others`, runs of its program, that are the same, of more words or of less."""
    program = run[:_PROGRAM_WORDS]
    return [*others] if run == program else [one for one in (run, program) if one in others]


def _tells_success(action: Action) -> bool:
    """Whether a command that did not fail says so, where a pipe would hide a failure."""
    command = action.use.command or ""
    if "|" not in command:
        return True
    if outcome_line(action.text, failed=False):
        return not counts_failures(action.text)
    return not _FILTERED.search(command) and not error_lines(action.text)
