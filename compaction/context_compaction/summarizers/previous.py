"""The summary before, read back into what it was made of, so that it is updated and not summarised.

Where the archive does not have what a summary stands for, its lines are all that is left. They are
taken as if they had been said again: the user's by the user, the agent's by the agent, the ledger
as the beginning of the next one. Then they are ranked beside what is new, word for word, and no
round makes a summary of a summary. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from context_compaction.digest import Digest, Run
from context_compaction.messages import Message, Messages, Text, ToolResult, make_message
from context_compaction.summarizers.extractive import (
    BINDING,
    DECISIONS,
    DETAILS,
    FACTS,
    LEDGER,
    NEXT,
    PREVIOUS,
    REQUESTS,
)

_SECTION = "## "
_BULLET = "- "
# The last of them is made anew each time.
_OURS = (REQUESTS, BINDING, DECISIONS, LEDGER, PREVIOUS, FACTS, NEXT, DETAILS)
_SPEAKERS: Mapping[str, Callable[[str], Message]] = {
    "user: ": lambda text: make_message("user", text),
    "agent: ": lambda text: make_message("assistant", text),
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


def read_previous(text: str, *, record_title: str) -> Previous:
    """Read a summary back.

    Args:
        text: Its text, without its frame and its pinned block.
        record_title: The line between a model's prose and the extracts beside it.
    """
    sections: dict[str, list[str]] = {title: [] for title in _OURS}
    rest: list[str] = []
    title = ""
    for line in text.splitlines():
        if line == record_title:
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
    speak = _SPEAKERS["user: " if role == "user" else "agent: "]
    return [speak(line) for line in lines]


def _fact(line: str) -> Message:
    for prefix, speak in _SPEAKERS.items():
        if line.startswith(prefix):
            return speak(line.removeprefix(prefix))
    # What stands without a speaker is a tool's, and is not taken for the user's.
    return Message("user", (ToolResult("", (Text(line),)),))


def _digest(lines: Iterable[str]) -> Digest:
    """The ledger of `lines`, as ledger.py writes it."""
    found: dict[str, list[str]] = {}
    runs: list[Run] = []
    effects: list[Run] = []
    errors: list[str] = []
    for line in lines:
        label, _, said = line.partition(": ")
        match label:
            case "done, do not repeat":
                effects.insert(0, Run(said, False))
            case "unanswered":
                effects.insert(0, Run(said, None))
            case "failed" if " -> " in said:
                command, _, error = said.partition(" -> ")
                runs.insert(0, Run(command, True, error))
            case "failed":
                errors.insert(0, said)
            case _ if label.startswith("ran ("):
                runs.insert(0, Run(said, None if label == "ran (unanswered)" else False))
            case _:
                found.setdefault(label, []).append(said)

    def paths(label: str) -> tuple[str, ...]:
        return tuple(
            path for said in found.get(label, ()) for path in reversed(said.split(", ")) if path
        )

    return Digest(
        read=paths("read"),
        written=paths("created"),
        edited=paths("changed"),
        deleted=paths("deleted"),
        runs=tuple(runs),
        effects=tuple(effects),
        errors=tuple(errors),
        plan=tuple(found.get("plan", ())),
        in_flight=tuple(call for said in found.get("in flight", ()) for call in said.split("; ")),
    )
