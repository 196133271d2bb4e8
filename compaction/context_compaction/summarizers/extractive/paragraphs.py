"""Texts in whole paragraphs, which are bought or left out as a whole. Linear in the text."""

import re
from collections.abc import Sequence

# A text this short is one piece; a longer paragraph is parted into groups of lines ...
SHORT_CHARS = 1_200
# ... of about this size, and so is a text without paragraphs: an output, code.
GROUP_CHARS = 600
LEFT_OUT = "[…]"

_BREAK = re.compile(r"\n[ \t]*\n")
_LIST_ROW = re.compile(r"\s*(?:[-*+•✓✅☐]|\d{1,4}[.)]|\|)\s?|\s{2,}\S")
_FENCE = "```"


def paragraphs(text: str) -> list[str]:
    """The paragraphs of `text`: a list with the line that introduces it, a fence in one."""
    text = text.strip("\n")
    if len(text) < SHORT_CHARS:
        return [text] if text.strip() else []
    found: list[str] = []
    is_fenced = False
    for part in _BREAK.split(text):
        is_joined = is_fenced or (
            bool(found) and (_introduces(found[-1]) or _goes_on(found[-1], part))
        )
        if is_joined and len(found[-1]) + len(part) < SHORT_CHARS:
            found[-1] += f"\n\n{part}"
        else:
            found.append(part)
        is_fenced ^= part.count(_FENCE) % 2 == 1
    return [
        piece
        for part in found
        for piece in ([part] if len(part) < SHORT_CHARS else line_groups(part))
    ]


def _introduces(before: str) -> bool:
    """Whether a text ends with a heading, or with a line that announces what follows."""
    last = before[before.rfind("\n\n") + 1 :].strip()
    is_heading = len(last) < 80 and "\n" not in last
    return is_heading or last.rstrip(" *_").endswith(":")


def _goes_on(before: str, part: str) -> bool:
    last_row = before[before.rfind("\n") + 1 :]
    return bool(_LIST_ROW.match(part) and _LIST_ROW.match(last_row))


def line_groups(text: str, most_chars: int = GROUP_CHARS) -> list[str]:
    """Whole lines in groups of about `most_chars`; a longer line is cut there."""
    groups: list[list[str]] = []
    size_chars = 0
    for line in text.strip("\n").split("\n"):
        starts = range(0, len(line) or 1, most_chars)
        for part in (line[start : start + most_chars] for start in starts):
            if not groups or size_chars + len(part) > most_chars:
                groups.append([])
                size_chars = 0
            groups[-1].append(part)
            size_chars += len(part) + 1
    found = ("\n".join(group) for group in groups)
    return [group for group in found if group.strip()]


def shown(pieces: Sequence[str], bought: frozenset[int] | set[int]) -> str:
    """The pieces that were bought, in order, with a mark wherever others are left out."""
    lines: list[str] = []
    last = -1
    for at in sorted(bought):
        if at > last + 1:
            lines.append(LEFT_OUT)
        lines.append(pieces[at])
        last = at
    if last + 1 < len(pieces):
        lines.append(LEFT_OUT)
    return "\n".join(lines)
