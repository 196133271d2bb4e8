"""What the agent did, each call in one short form: files written, commands run, commits made."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from context_compaction.activity.file_changes import Writes
from context_compaction.activity.shell_folder import is_scratch, work_folder
from context_compaction.summarizers.extractive.commands import (
    bare_command,
    is_nameless,
    lasting_parts,
    one_line,
)
from context_compaction.summarizers.extractive.turns import Action, Turn

COMMIT = "commit "  # how the effect of one begins
_COMMIT = re.compile(
    r"^\[[^\]\s]{1,80}(?: \([^)]{1,40}\))? ([0-9a-f]{7,40})\] (.{1,120})", re.MULTILINE
)
# The subject that a command gives, quoted or as the first line of a text.
_SUBJECT = re.compile(
    r"\bgit commit\b[^\n;&|]{0,200}?"
    r"(?: -\w*m ?(['\"])(?!\$\()(.{1,120}?)(?:\1|\n|\Z)|<<-?[^\n]{0,80}\n(.{1,120}))"
)
# Where a log lists commits, each with its subject.
_LISTED = re.compile(r"^\W{0,8}([0-9a-f]{7,40}) (?:\([^)\n]{1,80}\) )?(\S.{0,118})$", re.MULTILINE)
_KEY_CHARS = 60
_EFFECT_CHARS = 120


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
        path: "/".join(names[-1 if last[names[-1]] == 1 else -2 :]) for path, names in parts.items()
    }


def done_in(turn: Turn, names: Mapping[str, str], told: set[str]) -> tuple[list[str], list[str]]:
    """The files that a turn wrote and edited; the commands that it ran and the files it read.

    What is reported elsewhere is left out, and so is a command that is `told` already; one that is
    not is added there.
    """
    done: dict[str, dict[str, None]] = {"wrote": {}, "edited": {}, "ran": {}, "read": {}}
    for action in turn.actions:
        key, use = one_line(action.keys[-1], _KEY_CHARS), action.use
        if action.effect or action.is_refused:
            continue
        if action.changes and not action.failed:
            for made in action.changes:
                is_whole = isinstance(made, Writes) or use.kind == "write"
                done["wrote" if is_whole else "edited"][names.get(made.path, "")] = None
        elif use.kind == "read":
            done["read"][names.get(use.path or "", "")] = None
        elif use.command and not (action.is_look or is_nameless(key) or key in told):
            done["ran"][key] = None
    told.update(done["ran"])
    for name in done["wrote"]:
        done["edited"].pop(name, None)
    wrote, edited, ran, read = (
        [f"{verb} {', '.join(filter(None, objects))}"] if any(objects) else []
        for verb, objects in done.items()
    )
    return [*wrote, *edited], [*ran, *read]


def effects_of(turn: Turn, hashes: Mapping[str, str], chars: int = _EFFECT_CHARS) -> list[str]:
    """What a turn did that must not be repeated, each once; its commits with their `hashes`."""
    done = (action for action in turn.actions if action.effect and action.failed is False)
    return list(dict.fromkeys(_effect_told(action, hashes, chars) for action in done))


def _effect_told(action: Action, hashes: Mapping[str, str], chars: int) -> str:
    """The lasting effect of a call: of a commit its hash and subject, where they are known."""
    if commits := _COMMIT.findall(action.text):
        return ", ".join(f"{COMMIT}{name} {subject}" for name, subject in commits)
    command = action.use.command or ""
    subjects = iter([quoted or text for _, quoted, text in _SUBJECT.findall(command)])
    told: list[str] = []
    for part in (bare_command(one, chars) for one in lasting_parts(command)):
        if part.startswith("git commit") and (subject := next(subjects, "")):
            told.append(" ".join(f"{COMMIT}{hashes.get(subject, '')} {subject}".split()))
        else:
            told.append(part)
    return "; ".join(told) or action.label


def commits_in(text: str) -> list[str]:
    """The lines of a command's answer that name the commits it made."""
    return [found[0] for found in _COMMIT.finditer(text)]


def hashes_in(turns: Sequence[Turn]) -> dict[str, str]:
    """The hashes of commits by subject, from what git commands list."""
    return {
        subject: name
        for turn in turns
        for action in turn.actions
        if action.use.command and "git" in action.use.command
        for name, subject in _LISTED.findall(action.text)
    }
