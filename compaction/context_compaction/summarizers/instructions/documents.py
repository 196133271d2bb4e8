"""What binds of a document: a project's rules, the text of a skill.

Nobody typed it as a turn, but its sentences lay down rules in the same words.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from context_compaction.messages.model import Message, Text
from context_compaction.summarizers.instructions.find import find_instructions
from context_compaction.summarizers.instructions.superseded import UserInstruction

_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
# No line of a paragraph, and one that begins anew.
_BLOCK = re.compile(r"\A[ \t]*(?:[#|<>]|```|~~~|\Z)")
_ITEM = re.compile(r"\A[ \t]*(?:[-*+]|\d{1,2}[.)]) ")


def sections_of(text: str) -> Iterator[tuple[str, tuple[UserInstruction, ...]]]:
    """The sections of `text`, each with its heading, "" above the first, and its sentences."""
    for part in _SECTION.split(text):
        head, _, body = part.partition("\n")
        heading, body = (head, body) if _SECTION.match(head) else ("", part)
        yield heading, instructions_in(body)


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
