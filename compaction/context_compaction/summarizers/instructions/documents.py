"""What binds of a document: a project's rules, the text of a skill, a plan that the work follows.

Nobody typed it as a turn, but its sentences lay down rules in the same words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from context_compaction.messages.model import Message, Text
from context_compaction.summarizers.instructions.find import find_instructions, has_sign
from context_compaction.summarizers.instructions.superseded import UserInstruction

HEADING = re.compile(r"^#{1,6} .*", re.MULTILINE)
_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
# No line of a paragraph, and one that begins anew.
_BLOCK = re.compile(r"\A[ \t]*(?:[#|<>]|```|~~~|\Z)")
_ITEM = re.compile(r"\A[ \t]*(?:[-*+]|\d{1,2}[.)]) ")


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a document: its heading as it stands there, and its sentences, in order."""

    heading: str  # "" above the first
    said: tuple[UserInstruction, ...]

    @property
    def binding(self) -> list[UserInstruction]:
        """The sentences that lay down something by their words, in order."""
        return [one for one in self.said if has_sign(one)]

    @property
    def binding_share(self) -> float:
        """How much of it lays down something."""
        all_chars = sum(len(one.text) for one in self.said)
        return sum(len(one.text) for one in self.binding) / max(1, all_chars)


def sections_of(text: str) -> Iterator[Section]:
    """The sections of `text`, in order."""
    for part in _SECTION.split(text):
        head, _, body = part.partition("\n")
        heading, body = (head, body) if HEADING.match(head) else ("", part)
        yield Section(heading, instructions_in(body))


def instructions_in(text: str) -> tuple[UserInstruction, ...]:
    """The sentences of `text`, whoever wrote it, ranked as if the user had said them."""
    said = Message("user", (Text(unbroken(text), author="user"),))
    return find_instructions((said,)).standing


def unbroken(text: str) -> str:
    """`text` without the breaks that were made at a margin: a paragraph is one line."""
    rows = [row.rstrip() for row in text.split("\n")]
    pieces = rows[:1]
    for before, row in pairwise(rows):
        goes_on = not (_BLOCK.match(before) or _BLOCK.match(row) or _ITEM.match(row))
        pieces += (" " if goes_on else "\n", row)
    return "".join(pieces)
