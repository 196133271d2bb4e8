"""What the agent did, each call in one short form: files written, commands run, commits made."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from context_compaction.activity.file_changes import Writes
from context_compaction.activity.shell_folder import is_scratch, work_folder
from context_compaction.summarizers.extractive.commands import (
    bare_command,
    is_nameless,
    lasting_parts,
)
from context_compaction.summarizers.extractive.turns import Action, Turn

VERBS = ("wrote", "edited", "ran", "read")
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


def deeds_of(action: Action, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The verbs and objects of a call; none of one that is reported elsewhere, or nowhere."""
    if action.effect or action.is_refused:
        return
    key = action.keys[-1]
    if action.changes and not action.failed:
        for made in action.changes:
            if made.path in names:
                is_whole = isinstance(made, Writes) or action.use.kind == "write"
                yield "wrote" if is_whole else "edited", names[made.path]
    elif action.use.kind == "read" and action.use.path and action.use.path in names:
        yield "read", names[action.use.path]
    elif action.use.command and key and not action.is_look and not is_nameless(key):
        yield (
            "ran",
            key if len(key) <= _KEY_CHARS else f"{key[: _KEY_CHARS + 1].rpartition(' ')[0]} …",
        )


def done_in(
    turn: Turn, names: Mapping[str, str], told: set[str], *, has_commits: bool
) -> Iterator[str]:
    """The files that a turn changed, each once; else, without commits, its commands and reads.

    A command that is `told` already is left out, one that is not is added there.
    """
    deeds = [deed for action in turn.actions for deed in deeds_of(action, names)]
    done = {verb: dict.fromkeys(name for of, name in deeds if of == verb) for verb in VERBS}
    done["edited"] = {name: None for name in done["edited"] if name not in done["wrote"]}
    ran = [name for name in done["ran"] if name not in told]
    done["ran"] = dict.fromkeys(ran)
    told.update(ran)
    has_changes = bool(done["wrote"] or done["edited"])
    for verb in VERBS[:2] if has_changes or has_commits else VERBS[2:]:
        if done[verb]:
            yield f"{verb} {', '.join(done[verb])}"


def effects_of(turn: Turn, hashes: Mapping[str, str]) -> list[str]:
    """What a turn did that must not be repeated, each once; its commits with their `hashes`."""
    done = (action for action in turn.actions if action.effect and action.failed is False)
    return list(dict.fromkeys(_effect_told(action, hashes) for action in done))


def _effect_told(action: Action, hashes: Mapping[str, str]) -> str:
    """The lasting effect of a call: of a commit its hash and subject, where they are known."""
    if commits := _COMMIT.findall(action.text):
        return ", ".join(f"{COMMIT}{name} {subject}" for name, subject in commits)
    command = action.use.command or ""
    subjects = iter([quoted or text for _, quoted, text in _SUBJECT.findall(command)])
    told: list[str] = []
    for part in map(bare_command, lasting_parts(command)):
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
