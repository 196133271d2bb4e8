"""The summary before, read back, so that it is brought up to date and not summarised.

Where the archive has what a summary replaces, the memory is made anew from that. Where it has
not, the summary's lines are all that is left: the user's words are read as messages, and the other
entries are carried as they are. Pure.
"""

import re
from dataclasses import dataclass

from context_compaction.messages.model import Message, Messages, Text

USER = "The user, word for word"
LOG = "Work log, by turn, each as it stood then"
FACTS = "Files, commands and what they say"
STATE = "Where it stands"
PREVIOUS = "From the summary before"
TITLES = (USER, LOG, FACTS, STATE, PREVIOUS)
PLAN = "plan"  # how its lines begin
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
    """The contents of a summary."""

    messages: Messages = ()  # the user's words in it, oldest first
    numbers: tuple[int | None, ...] = ()  # in the transcript, where they are known
    # What else goes on: each line with the indented ones below it. Where it stood then does not,
    # but for the plan.
    entries: tuple[str, ...] = ()


def without_titles(prose: str) -> str:
    """`prose` with our titles in it one level lower, so that no line is read as the user's."""
    return _TITLE_LINE.sub(r"#\g<0>", prose)


def read_previous(text: str) -> Previous:
    """Parse the text of a summary, given without its frame and its pinned block."""
    said: list[re.Match[str]] = []
    entries: list[str] = []
    title = ""
    for line in text.split("\n"):
        if line == RECORD_TITLE or line.startswith("#"):
            title = line.removeprefix(SECTION) if line != RECORD_TITLE else ""
            if title in ("", *TITLES):
                continue
        found = USER_LINE.fullmatch(line) if title in (USER, "") else None
        found = found or (_NUMBERED.fullmatch(line) if title == USER else None)
        if found:
            said.append(found)
        elif title != USER and (title != STATE or line.startswith(PLAN)):
            if entries and title in TITLES and line.startswith("  "):
                entries[-1] += f"\n{line[2:]}"
            elif line.strip():
                entries.append(line)
    return Previous(
        tuple(Message("user", (Text(one[2]),)) for one in said),
        tuple(int(one[1]) if one[1] else None for one in said),
        tuple(entries),
    )
