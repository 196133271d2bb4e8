"""Facts under what they belong to: paths, tools with their records, commands with their answers.

Every fact has its owner, and the same call is told by its newest answer. What files contain stands
with the files; what came of finished turns, in the log.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from context_compaction.activity.command_line import is_nameless
from context_compaction.activity.commits import is_without_commit
from context_compaction.activity.error_line import outcome_line
from context_compaction.activity.file_changes import Deletes, FileChange
from context_compaction.activity.json_rows import codes_in, members, parsed_json
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.activity.tool_kinds import is_bookkeeping
from context_compaction.activity.work_folder import is_scratch, work_folder
from context_compaction.summarizers.extractive.deeds import branch_of, is_commit
from context_compaction.summarizers.extractive.fit import Line, versions
from context_compaction.summarizers.extractive.said import ends_of, head_of
from context_compaction.summarizers.extractive.turns import Action, Turn

_PATHS_ON_A_LINE = 6
_MOST_FILES = 40
_RECORD_CHARS = (100, 240, 1_000)
_RECORD_WANTS = (0.0, 1.0, 2.5)
# Where answers of commands and tools stand, behind files and records.
OUTPUTS = 2
_OUTPUT_CHARS = 300
_OUTPUT_WANT = 3.0
# A last line that tells what came of a run.
_FIGURE = re.compile(r"\d")
# A row that says only how long it took, that it is over, or how to go on with a sub-agent.
_NO_NEWS = re.compile(
    r"Wall time:? [\d.]+ s\w*|(?:real|user|sys)\s+[\dhm.]+s|exit(?: ?code)?: ?0|Output:"
    r"|\(?no output\)?\.?|<shellId: .*>|agentId: .*|<usage>.*|\w+: \d+|.*</usage>",
    re.IGNORECASE,
)
_BRANCH_WANT = 1.5
# A command that passed so many times belongs to how the work is done here: its checks, its build.
_OFTEN = 3
_HABITS, _HABIT_WANTS = (3, 8), (2.0, 3.0)
# What files contain stands with them, and what was found in them is looked for anew.
_TOLD_ELSEWHERE = ("read", "write", "edit", "notebook", "search", "list")
_CODES_CHARS, _FIRST_CHARS = 400, 160
# The first record of all, if its tool gave no other, says who it is about: its codes go before what
# binds, the rest after.
_FIRST_WANTS = (-0.4, -0.05, 2.5)


def fact_lines(
    turns: Sequence[Turn],
    files: Mapping[str, ReplayedFile],
    keys_later: Set[str] | None,
) -> Iterator[Line]:
    """The lines of the facts: paths, then JSON records, then answers of commands and tools.

    What stays in full runs the commands `keys_later` again. They are None where that begins another
    turn: what came of a finished one stands in the log.
    """
    yield from _file_lines(turns, files)
    yield from _habit_lines(turns)
    records: dict[str, dict[str, tuple[Action, Any]]] = {}
    outputs: dict[str, Action] = {}
    for turn in turns:
        is_running = keys_later is not None and turn is turns[-1]
        for action in turn.actions:
            if not _is_told_here(action, is_running=is_running):
                continue
            value = parsed_json(action.text) if is_running or not action.use.command else None
            if value is not None:
                records.setdefault(action.name, {}).pop(action.label, None)
                records[action.name][action.label] = action, value
            elif is_running and not is_nameless(key := action.keys[-1]):
                outputs.pop(key, None)
                if key not in (keys_later or ()):
                    outputs[key] = action
    for at, found in enumerate(records.values()):
        for number, (action, value) in enumerate(found.values()):
            yield from _record_lines((1, at, number), action, value, len(found) - 1 - number)
    for age, action in enumerate(reversed(outputs.values())):
        yield from _output_lines(action, age)


def _is_told_here(action: Action, *, is_running: bool) -> bool:
    """Whether the answer of a call is told with the facts, not with files, log or state."""
    if not action.text or action.use.kind in _TOLD_ELSEWHERE or is_bookkeeping(action.name):
        return False
    if action.is_look or (action.lasting and action.use.command):
        return False
    return not action.failed or (action.is_compound and is_running)


def _file_lines(turns: Sequence[Turn], replayed: Mapping[str, ReplayedFile]) -> Iterator[Line]:
    """The paths of the files that were changed and are still there, newest change first.

    Those that were not changed since the last commit stand apart: they may be committed.
    """
    actions = [action for turn in turns for action in turn.actions]
    done = [action for action in actions if action.failed is False]
    made = [(one, action.number) for action in done for one in action.changes]
    used = (action.use.path for action in actions if action.use.path)
    folder = work_folder([*(one.path for one, _ in made), *used])
    newest: dict[str, tuple[FileChange, int]] = {}
    for one, number in reversed(made):
        newest.setdefault(one.path, (one, number))
    gone = {path for path, file in replayed.items() if file.is_deleted}
    gone.update(path for path, (one, _) in newest.items() if isinstance(one, Deletes))
    paths = [
        path
        for path in newest
        if path and path not in gone
        if not (path.startswith("../") or is_scratch(path, folder) or "*" in path)
    ][:_MOST_FILES]
    names = [path.removeprefix(folder) for path in paths]
    if not paths:
        return
    commit = max((action.number for action in done if is_commit(action)), default=-1)
    since = sum(newest[path][1] > commit for path in paths)
    texts = [_told_apart(names[:most], since, commit) for most in (_PATHS_ON_A_LINE, _MOST_FILES)]
    if len(names) > _PATHS_ON_A_LINE:
        texts[0] += f" and {len(names) - _PATHS_ON_A_LINE} more"
    label = f"changed (in {folder})" if folder else "changed"
    yield from versions((0,), label, texts, (1.0, 3.0))


def branch_lines(turns: Sequence[Turn], keys_later: Set[str]) -> Iterator[Line]:
    """The branch that is checked out, and whether changes were committed at all.

    Where what comes later commits or pushes, that tells it.
    """
    if any(key.startswith(("git commit", "git push")) for key in keys_later):
        return
    if branch := branch_of(turns):
        yield Line((0, 0), _BRANCH_WANT, f"branch: {branch}")
    done = [action for turn in turns for action in turn.actions if action.failed is False]
    if any(action.changes for action in done) and is_without_commit([
        action.use.command for action in done if action.use.command
    ]):
        yield Line((0, 2), _BRANCH_WANT, "git: no commit or push by the agent is told")


def _habit_lines(turns: Sequence[Turn]) -> Iterator[Line]:
    """The commands that passed again and again, in several turns, most often first."""
    times, in_turns = Counter[str](), Counter[str]()
    for turn in turns:
        ran = (one for one in turn.actions if one.use.command and not one.lasting)
        passed = (one for one in ran if one.failed is False and not one.is_look)
        keys = Counter(key for one in passed for key in one.keys if not is_nameless(key))
        times.update(keys)
        in_turns.update(keys.keys())
    habits = [one for one in times.most_common() if one[1] >= _OFTEN and in_turns[one[0]] > 1]
    # How often, a reader would take for all runs, of which the newest stand below.
    texts = ("; ".join(key for key, _ in habits[:most]) for most in _HABITS)
    yield from versions((0, 1), "passed again and again: ", texts, _HABIT_WANTS)


def _told_apart(names: Sequence[str], since: int, commit: int) -> str:
    """The names of changed files, the first of them changed `since` the last commit."""
    newer, older = ", ".join(names[:since]), ", ".join(names[since:])
    if commit < 0:
        return f": {newer}"
    if not newer:
        return f" up to commit [{commit}]: {older}"
    return f" since commit [{commit}]: {newer}{f'; before: {older}' if older else ''}"


def _record_lines(place: tuple[int, ...], action: Action, value: Any, age: float) -> Iterator[Line]:
    """The answer of a tool: what is asked for by its code, then the rest."""
    label = f"{action.label} [{action.number}]: "
    told = "; ".join(members(value)) or "nothing"
    codes = head_of(codes_in(value), _CODES_CHARS)
    texts = [head_of(told, chars) for chars in _RECORD_CHARS]
    if codes:
        # What is told already stays.
        whole = texts[-1] if texts[-1] == told else f"{codes}; {texts[-1]}"
        texts = [head_of(codes, _FIRST_CHARS), codes, whole]
    is_first = bool(codes) and place[1] + place[2] + age == 0
    yield from versions(
        place, label, texts, _FIRST_WANTS if is_first else [age + want for want in _RECORD_WANTS]
    )


def _output_lines(action: Action, age: int) -> Iterator[Line]:
    """The answer of a command or a tool; of a long one the outcome, or a report's two ends.

    What stands in a long output, the agent told in its words.
    """
    rows = [row for line in action.text.splitlines() if (row := line.strip()[:_OUTPUT_CHARS])]
    rows = [row for row in rows if not _NO_NEWS.fullmatch(row)]
    if not rows:
        return
    shown = " / ".join(rows)
    if len(shown) > _OUTPUT_CHARS and action.use.kind == "execute":
        outcome = outcome_line(action.text, failed=False) or rows[-1]
        if action.is_compound or not _FIGURE.search(outcome):
            return  # nobody knows whose it is, or chatter of a build
        shown = f"… {outcome}"
    text = f"{action.label} [{action.number}] -> {ends_of(shown, _OUTPUT_CHARS)}"
    yield Line((OUTPUTS, action.number, -age), _OUTPUT_WANT + age * 0.5, text)
