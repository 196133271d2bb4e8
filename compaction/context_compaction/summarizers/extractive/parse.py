"""The summary before, read back into what it was made of, so that it is updated and not summarised.

Where the archive does not have what a summary stands for, its lines are all that is left. They are
taken as if they had been said again: the user's by the user, the agent's by the agent, the ledger
as the beginning of the next one. Then they are ranked beside what is new, word for word, and no
round makes a summary of a summary. Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from context_compaction.activity.digest import CommandRun, Digest
from context_compaction.activity.file_ledger import FileAction, FileEntry
from context_compaction.messages.model import Message, Messages, Text, ToolResult
from context_compaction.messages.speakers import LABELS
from context_compaction.summarizers.extractive.writer import (
    BINDING,
    DECISIONS,
    DETAILS,
    FACTS,
    LEDGER,
    NEXT,
    PREVIOUS,
    REQUESTS,
)

# The line between a model's prose and the extracts beside it.
RECORD_TITLE = "# From the record, word for word"
_SECTION = "## "
_BULLET = "- "
# The last of them is made anew each time.
TITLES = (REQUESTS, BINDING, DECISIONS, LEDGER, PREVIOUS, FACTS, NEXT, DETAILS)
_TITLE_LINE = re.compile(
    rf"^(?:{re.escape(RECORD_TITLE)}|## (?:{'|'.join(map(re.escape, TITLES))}))[ \t]*$",
    re.MULTILINE,
)
_SPEAKERS: Mapping[str, Callable[[str], Message]] = {
    LABELS["user"]: lambda text: Message("user", (Text(text),)),
    LABELS["agent"]: lambda text: Message("assistant", (Text(text),)),
    LABELS["host"]: lambda text: Message("user", (Text(text, author="host"),)),
}


@dataclass(frozen=True, slots=True)
class Previous:
    """What a summary said.

    Attributes:
        messages: Its lines as messages, in an order in which they may have been said.
        digest: Its ledger.
        rest: What stands in no section of ours: the prose of a model.
    """

    messages: Messages = ()
    digest: Digest = field(default_factory=Digest)
    rest: str = ""


def without_titles(prose: str) -> str:
    """`prose` with our titles in it one level lower: no line under them speaks for the user."""
    return _TITLE_LINE.sub(r"#\g<0>", prose)


def read_previous(text: str) -> Previous:
    """Read the text of a summary back, which is without its frame and its pinned block."""
    sections: dict[str, list[str]] = {title: [] for title in TITLES}
    rest: list[str] = []
    title = ""
    for line in text.splitlines():
        if line == RECORD_TITLE:
            title = ""
        elif line.startswith("#"):
            title = line.removeprefix(_SECTION)
            if title not in sections:
                rest.append(line)
        elif title in sections:
            sections[title].append(line.removeprefix(_BULLET))
        else:
            rest.append(line)
    goal, *requests = sections[REQUESTS] or [""]
    said = (
        *_by("user", [goal] if goal else []),
        *(_fact(line) for line in sections[FACTS]),
        *_by("assistant", sections[DECISIONS]),
        # In one message: which of them came in one turn is not known any more.
        *([Message("user", tuple(map(Text, sections[BINDING])))] if sections[BINDING] else ()),
        *_by("user", requests),
        *_by("assistant", sections[NEXT]),
    )
    left = "\n".join([*sections[PREVIOUS], *rest]).strip()
    return Previous(said, _digest(sections[LEDGER]), left)


def _by(role: str, lines: Iterable[str]) -> list[Message]:
    label = LABELS["user" if role == "user" else "agent"]
    return [_SPEAKERS[label](line.removeprefix(label)) for line in lines]


def _fact(line: str) -> Message:
    for prefix, speak in _SPEAKERS.items():
        if line.startswith(prefix):
            return speak(line.removeprefix(prefix))
    # What stands without a speaker is a tool's, and is not taken for the user's.
    text = line.removeprefix(LABELS["tool"])
    return Message("user", (ToolResult("", (Text(text),)),))


def _digest(lines: Iterable[str]) -> Digest:
    """The ledger of `lines`, as action_log.py writes it."""
    found: dict[str, list[str]] = {}
    runs: list[CommandRun] = []
    effects: list[CommandRun] = []
    errors: list[str] = []
    for line in lines:
        label, _, said = line.partition(": ")
        match label:
            case "done, do not repeat":
                effects.insert(0, CommandRun(said, False))
            case "unanswered":
                effects.insert(0, CommandRun(said, None))
            case "failed" if " -> " in said:
                command, _, error = said.partition(" -> ")
                runs.insert(0, CommandRun(command, True, error))
            case "failed":
                errors.insert(0, said)
            case _ if label.startswith("ran ("):
                runs.insert(0, CommandRun(said, None if label == "ran (unanswered)" else False))
            case _:
                found.setdefault(label, []).append(said)

    read = [path for said in found.get("read", ()) for path in reversed(said.split(", ")) if path]
    files = [FileEntry(path, ("read",)) for path in read]
    short = [file for said in found.get("files", ()) for file in said.split(", ")]
    files += map(_short_file, reversed(short))
    files += map(_file, reversed(found.get("file", [])))

    def paths(state: FileAction) -> tuple[str, ...]:
        return tuple(file.path for file in files if state in file.states)

    return Digest(
        read=paths("read"),
        written=paths("created"),
        edited=paths("changed"),
        deleted=paths("deleted"),
        files=tuple(files),
        runs=tuple(runs),
        effects=tuple(effects),
        errors=tuple(errors),
        plan=tuple(found.get("plan", ())),
        in_flight=tuple(call for said in found.get("in flight", ()) for call in said.split("; ")),
    )


def _file(line: str) -> FileEntry:
    """The file of a line as action_log.py writes it: "path (read, changed; sha256 12345678)"."""
    path, _, said = line.removesuffix(")").rpartition(" (")
    states, _, known = said.partition("; sha256 ")
    return FileEntry(path, _states(states), known_sha256=known)


def _short_file(line: str) -> FileEntry:
    """The file of a short ledger: "path changed"."""
    path, _, state = line.rpartition(" ")
    return FileEntry(path, _states(state))


def _states(said: str) -> tuple[FileAction, ...]:
    found = tuple(state for state in get_args(FileAction) if state in said.split(", "))
    return found or ("read",)
