"""The commits that git commands made, as their answers and command lines name them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from context_compaction.activity.shell_words import QUOTED

_MADE = re.compile(
    r"^\[([^\]\s]{1,80}(?: \([^)]{1,40}\))?) ([0-9a-f]{7,40})\] (.{1,120})", re.MULTILINE
)
# The subject that a command gives, quoted or as the first line of a text.
_SUBJECT = re.compile(
    r"\bgit commit\b[^\n;&|]{0,200}?"
    r"(?: -\w*m ?(['\"])(?!\$\()(.{1,120}?)(?:\1|\n|\Z)|<<-?[^\n]{0,80}\n(.{1,120}))"
)
# Where a log lists commits, each with its subject.
_LISTED = re.compile(r"^\W{0,8}([0-9a-f]{7,40}) (?:\([^)\n]{1,80}\) )?(\S.{0,118})$", re.MULTILINE)
# What takes the place of the newest commits; what is quoted is no command.
_REWRITES = re.compile(
    r"\bgit\b[^\n;&|]{0,80}? (?:(?P<rebase>rebase\b)|(?P<amend>commit\b[^\n;&|]{0,200} --amend\b)"
    r"|reset (?!--hard)[^\n;&|]{0,20}(?:HEAD|@)(?:~(?P<back>\d{0,2})|\^))[^\n;&|]{0,200}"
)
# The branch that a checkout or a status names, and one that a push brought to where it goes.
_BRANCH = re.compile(
    r"^(?:Switched to (?:a new )?branch '|On branch |## (?=\S+\.\.\.))([^\s']+?)(?='|\.\.\.|\s*$)",
    re.MULTILINE,
)
_ASKS_BRANCH = re.compile(r"\bgit (?:branch --show-current|rev-parse --abbrev-ref HEAD)\s*\Z")
_PUSHED = re.compile(
    r"^\W{1,4}(?:[0-9a-f]{7,40}\.{2,3}[0-9a-f]{7,40}|\[new branch\]) +(\S+) +-> \1\s*$",
    re.MULTILINE,
)
# What may bring work into a history, with git or in its place.
_SETTLES = re.compile(
    r"\bgit\b[^\n]{0,400}\b(?:commit|push|merge|rebase|cherry-pick|revert|am)\b"
    r"|\b(?:gh pr|glab mr|jj|hg|gt|svn)\b"
)
_FOLDED = ("fixup! ", "squash! ", "amend! ")


class PassedRun(NamedTuple):
    """A command that did not fail, and its answer."""

    number: int  # of the message that gives it
    command: str
    answer: str


@dataclass(frozen=True, slots=True)
class GitCommit:
    """A commit as the answer of `git commit` names it."""

    branch: str
    name: str
    subject: str


@dataclass(frozen=True, slots=True)
class KnownCommits:
    """What the commands of a conversation tell of its commits.

    Attributes:
        hashes: Their hashes by subject, as logs list them.
        replaced: The hashes that later commits took the place of, each with the number of the
            message in which the last did.
    """

    hashes: Mapping[str, str]
    replaced: Mapping[str, int]


def commits_in(text: str) -> list[GitCommit]:
    """The commits that a command's answer says it made."""
    return [GitCommit(*found) for found in _MADE.findall(text)]


def commit_lines(text: str) -> Iterator[str]:
    """The lines of a command's answer that name the commits it made."""
    return (found[0] for found in _MADE.finditer(text))


def subjects_in(command: str) -> list[str]:
    """The subjects that a command line gives its commits."""
    return [quoted or text for _, quoted, text in _SUBJECT.findall(command)]


def known_commits(runs: Iterable[PassedRun]) -> KnownCommits:
    """What `runs` tell of the commits."""
    of_git = [run for run in runs if "git" in run.command]
    listed = (found for run in of_git for found in _LISTED.findall(run.answer))
    return KnownCommits({subject: name for name, subject in listed}, _replaced(of_git))


def branch_told(runs: Iterable[PassedRun]) -> str:
    """The branch that is checked out, with its last commit and push.

    "" without either, but for one that a command has asked for.
    """
    branch = asked = ""
    made: dict[str, tuple[int, str]] = {}
    pushed: dict[str, int] = {}
    for number, command, answer in (run for run in runs if "git" in run.command):
        if _ASKS_BRANCH.search(command) and len(answer.split()) == 1:
            branch = asked = answer.strip()
        for commit in commits_in(answer):
            branch = commit.branch.partition(" ")[0]
            made[branch] = number, commit.name
        branch = [branch, *_BRANCH.findall(answer)][-1]
        pushed.update((name, number) for name in _PUSHED.findall(answer))
    at, name = made.get(branch, (-1, ""))
    pushed_at = pushed.get(branch, -1)
    if max(at, pushed_at) < 0:
        return branch if branch == asked else ""
    parts = [branch, f"last commit {name} [{at}]" if at >= 0 else ""]
    parts.append(f"pushed [{pushed_at}]" if pushed_at >= at else "no push of it is told")
    return ", ".join(filter(None, parts))


def is_without_commit(commands: Sequence[str]) -> bool:
    """Whether `commands` use git, and none of them may have committed or pushed anything."""
    uses_git = any("git " in command for command in commands)
    return uses_git and not any(map(_SETTLES.search, commands))


def _replaced(runs: Iterable[PassedRun]) -> dict[str, int]:
    """The replaced commits.

    By an `--amend`, after a `reset` that leaves the files as they are, and of a fixup by a rebase.
    """
    standing: list[GitCommit] = []
    place_of: dict[str, str] = {}  # the hash of what took the place
    placed: dict[str, int] = {}
    undone = same = 0
    for number, command, answer in runs:
        for found in _REWRITES.finditer(QUOTED.sub("''", command)):
            if found["rebase"]:
                folded = [one for one in standing if one.subject.startswith(_FOLDED)]
                place_of.update((one.name, one.name) for one in folded)
                placed.update((one.name, number) for one in folded)
            elif found["amend"] and "--no-edit" in found[0]:
                same += 1  # its subject stays
            else:
                undone += 1 if found["amend"] else int(found["back"] or 1)
        for made in commits_in(answer):
            gone = [one for one in standing if one.branch == made.branch][
                -undone or len(standing) :
            ]
            alike = [one for one in standing if one.subject == made.subject and one not in gone]
            gone += alike[-1:] if len(gone) < undone + same else []
            place_of.update((one.name, made.name) for one in gone)
            placed[made.name] = number
            standing = [*(one for one in standing if one not in gone), made]
            undone = same = 0
    return {name: placed[_last(name, place_of)] for name in place_of}


def _last(name: str, place_of: Mapping[str, str]) -> str:
    while place_of.get(name, name) != name:
        name = place_of[name]
    return name
