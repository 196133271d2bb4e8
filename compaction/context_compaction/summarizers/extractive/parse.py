"""The summary before, read back, so that it is brought up to date and not summarised.

Where the archive has what a summary replaces, the memory is made anew from that. Where it has
not, the summary's lines are all that is left: the user's words are read as messages, entries
of the log and of the facts precede the new ones unchanged, and what a model wrote is carried as
text. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from context_compaction.messages.model import Message, Messages, Text

USER = "The user, word for word"
LOG = "Work log, by turn, each as it stood then"
FACTS = "Files, commands and what they say"
STATE = "Where it stands"
PREVIOUS = "From the summary before"
TITLES = (USER, LOG, FACTS, STATE, PREVIOUS)
OPEN, FINISHED = "plan: ", "plan, finished: "
# The line between a model's prose and the extracts beside it.
RECORD_TITLE = "# From the record, word for word"
SECTION = "## "
# In a summary too small for titles the user's words stand behind this.
USER_LABEL = "user: "
USER_LINE = re.compile(rf"(?:\[(\d{{1,9}})\] )?{USER_LABEL}(.*)")
_TITLE_LINE = re.compile(
    rf"^(?:{re.escape(RECORD_TITLE)}[ \t]*$|## (?:{'|'.join(map(re.escape, TITLES))})[ \t]*$"
    rf"|(?={USER_LINE.pattern}))",
    re.MULTILINE,
)
_NUMBERED = re.compile(r"(?:\[(\d{1,9})\]|-) (.*)")


@dataclass(frozen=True, slots=True)
class Previous:
    """The contents of a summary.

    Attributes:
        messages: The user's words in it, oldest first.
        numbers: The number of each of these in the transcript; None where it is not known.
        entries: The entries of the log and of the facts, by title, each with the rows under it.
        plan: The items of the plan, those that are finished as "[done]".
        rest: The lines of no section of ours: the prose of a model.
    """

    messages: Messages = ()
    numbers: tuple[int | None, ...] = ()
    entries: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    plan: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()


def without_titles(prose: str) -> str:
    """`prose` with our titles in it one level lower, so that no line is read as the user's."""
    return _TITLE_LINE.sub(r"#\g<0>", prose)


def read_previous(text: str) -> Previous:
    """Parse the text of a summary, given without its frame and its pinned block."""
    sections: dict[str, list[str]] = {title: [] for title in TITLES}
    rest: list[str] = []
    title = ""
    for line in text.split("\n"):
        if line == RECORD_TITLE:
            title = ""
        elif line.startswith("#"):
            title = line.removeprefix(SECTION)
            if title not in sections:
                rest.append(line)
        elif title:
            sections.get(title, rest).append(line)
        elif line.startswith((OPEN, FINISHED)):
            sections[STATE].append(line)
        elif USER_LINE.match(line):
            sections[USER].append(line)
        else:
            rest.append(line)
    said = [
        found
        for line in sections[USER]
        if (found := USER_LINE.fullmatch(line) or _NUMBERED.fullmatch(line))
    ]
    return Previous(
        tuple(Message("user", (Text(found[2]),)) for found in said),
        tuple(int(found[1]) if found[1] else None for found in said),
        {title: tuple(_entries(sections[title])) for title in (LOG, FACTS)},
        tuple(
            line.removeprefix(OPEN).replace(FINISHED, "[done] ")
            for line in sections[STATE]
            if line.startswith((OPEN, FINISHED))
        ),
        tuple(line for line in (*sections[PREVIOUS], *rest) if line.strip()),
    )


def _entries(lines: Sequence[str]) -> Iterator[str]:
    """Each line that is not indented, with the indented ones that follow it."""
    starts = [at for at, line in enumerate(lines) if not line.startswith("  ")]
    for start, stop in pairwise([*starts, len(lines)]):
        yield "\n".join((lines[start], *(line[2:] for line in lines[start + 1 : stop])))
