"""Find the lines of a file that the result of a read shows, with their numbers.

Tools number lines, frame them and cut them, each in its own way. A result that cannot be read for
certain shows nothing.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.calls import LINES_NAMED, arguments_by_name
from context_compaction.messages.model import is_list

# Tools cut longer lines, and some return this number of lines of a longer file without a notice.
_PAGE = 2_000
# Number of lines that a tool adds at most above and below the lines of a file.
_FRAME_LINES = 8

_NUMBER = re.compile(r"([ \t]{0,20})(\d{1,7})(\t|→|[ \t]{0,9}\||:)")
_FRAME = ("<file", "<content", "<path", "<output", "Here's the ", "Content of ", "Contents of ",
          "File: ", "[Path '", "[File: ")  # fmt: skip
_NOTICE = ("[", "(", "...", "…", "<response clipped>")
_CUT = re.compile(
    r"truncat|omitted|elided|removed|clipped|cleared|trimmed|pruned"
    r"|more lines?\b|lines? (?:not shown|left|above|below)|has more|use '?(?:offset|start_line)",
    re.IGNORECASE,
)
# Lines with which Oh My Pi marks folded code and Gemini CLI marks a part of a file.
_PARTIAL = ("\n…\n", "\n--- FILE CONTENT (truncated) ---\n")


@dataclass(frozen=True, slots=True)
class ShownLines:
    """Lines of a file.

    Attributes:
        rows: The lines without their ends. An empty last row is the newline of the row before it.
        start: Number of the first line, from 1.
        is_to_end: Whether the last row is the file's last.
        is_column: Whether the numbers form a column, as only tools write them.
    """

    rows: tuple[str, ...]
    start: int
    is_to_end: bool
    is_column: bool = False


def shown_lines(
    text: str, arguments: object, tool: str, numbering: Counter[str]
) -> ShownLines | None:
    """Return the lines that the result `text` of a read shows; None if that is not certain.

    Args:
        text: The result.
        arguments: The arguments of the call.
        tool: The name of the tool.
        numbering: By tool, how many results more had numbers than had none. This result is added.
    """
    asked = _lines_asked(arguments)
    text = without_reminder(text)
    numbered = numbered_lines(text)
    if numbered is None:
        numbering[tool] -= text.count("\n") > 1
    elif len(numbered.rows) > 2 or numbered.is_column:
        numbering[tool] += 1
    if asked is None:
        return None
    start, limit = asked
    if numbered is None:
        return _plain(text, start or 1, limit)
    # Lines of a file may begin with such numbers. Some tools count the first line from 0.
    if numbering[tool] <= 0 or numbered.start not in (start or 1, (start or 0) + 1):
        return None
    count = len(numbered.rows)
    ends = numbered.is_to_end and (limit is None or count < limit) and count != _PAGE
    # Numbered lines do not show the newline at the end of a file.
    rows = (*numbered.rows, "") if ends and any(numbered.rows[-1:]) else numbered.rows
    return replace(numbered, rows=rows, is_to_end=ends)


def without_reminder(text: str) -> str:
    """Return `text` without the notes of a host at its end."""
    stop = end = len(text)
    while True:  # positions only, because each copy of a long text takes long
        while end and text[end - 1].isspace():
            end -= 1
        start = text.rfind("<system-reminder>", 0, end)
        if start < 0 or not text.endswith("</system-reminder>", 0, end):
            return text[:stop].rstrip("\n") if stop < len(text) else text
        stop = end = start


def is_cut(text: str) -> bool:
    """Whether a host has removed something from the middle of `text`."""
    return "tokens truncated…" in text or any(map(_is_notice, text.split("\n")))


def is_shortened(text: str, whole: str) -> bool:
    """Whether `text` has parts of `whole` in order, and notices that the host left out the rest.

    Without a notice, it may be the result of another run.
    """
    has_notice, position = False, 0
    for line in map(str.strip, text.splitlines()):
        if _is_notice(line):
            has_notice = True
            continue
        position = whole.find(line, position)  # linear, because the search never goes back
        if position < 0:
            return False
        position += len(line)
    return has_notice


def numbered_lines(text: str) -> ShownLines | None:
    """Return the lines that `text` numbers consecutively; None if it does not."""
    lines = text.split("\n")
    above = next((n for n, line in enumerate(lines[:_FRAME_LINES]) if _NUMBER.match(line)), None)
    head = None if above is None else _NUMBER.match(lines[above])
    if above is None or head is None:
        return None
    rows: list[str] = []
    start, mark = int(head[2]), head[3].strip(" ")
    for line in lines[above:]:
        match = _NUMBER.match(line)
        if not match or int(match[2]) != start + len(rows) or match[3].strip(" ") != mark:
            break
        rows.append(line[match.end() :])
    below = lines[above + len(rows) :]
    frame = [line for line in (*lines[:above], *below) if line.strip()]
    if len(frame) > _FRAME_LINES or any(map(_NUMBER.match, below)):
        return None
    # The host numbers the marker that replaces the rest of the file, too.
    if any(row.startswith("<persisted-output ") or len(row) >= _PAGE for row in rows):
        return None
    if mark in (":", "|"):
        filled = [row for row in rows if row]
        has_blank = all(row.startswith(" ") for row in filled)
        if has_blank and filled and not any(row[1:2].strip() for row in filled):
            return None  # every line is indented: the blank may be the tool's or the file's
        rows = [row.removeprefix(" ") for row in rows] if has_blank else rows
    is_column = mark in ("→", "|") or (mark == "\t" and bool(head[1]))
    is_to_end = not any(_CUT.search(line[:400]) for line in frame)
    return ShownLines(tuple(rows), start, is_to_end, is_column)


def _plain(text: str, start: int, limit: int | None) -> ShownLines | None:
    """Return the lines of a result without numbers, up to a notice that there are more."""
    rows = text.split("\n")
    stop = next((n for n in range(max(0, len(rows) - 4), len(rows)) if _is_notice(rows[n])), None)
    # A tool that returns a round page of lines may have more.
    ends = stop is None and (len(rows) != _PAGE if limit is None else len(rows) < limit)
    if stop is not None:
        rows = rows[: stop - 1 if stop and not rows[stop - 1] else stop]
    is_framed = text.lstrip().startswith(_FRAME) or any(map(text.__contains__, _PARTIAL))
    is_clipped = any(len(row) >= _PAGE and _CUT.search(row[-100:]) for row in rows)
    if is_framed or is_clipped or any(map(_is_notice, rows)):
        return None
    return ShownLines(tuple(rows), start, ends)


def _is_notice(line: str) -> bool:
    return line.lstrip().startswith(_NOTICE) and _CUT.search(line[:400]) is not None


def _lines_asked(arguments: object) -> tuple[int | None, int | None] | None:
    """Return the first line and number of lines that a read asks for; None if not understood."""
    given = arguments_by_name(arguments)
    if any(given.get(key) is not None for key in ("tail", "range", "lines", "line")) or any(
        isinstance(value, str) and LINES_NAMED.search(value[-200:]) for value in given.values()
    ):
        return None
    start = _number(given, ("offset", "startline", "linenumber", "startlineoneindexed"))
    stop = _number(given, ("endline", "endlineoneindexed", "endlineoneindexedinclusive"))
    view = given.get("viewrange")
    if view is not None:
        if not (is_list(view) and len(view) == 2 and all(isinstance(n, int) for n in view)):
            return None
        start, stop = view
    limit = _number(given, ("limit", "head"))
    if stop is not None:
        limit = stop - (start or 1) + 1 if stop >= (start or 1) else None
    return (max(start, 1) if start is not None else None), limit


def _number(given: Mapping[str, object], keys: Sequence[str]) -> int | None:
    values = (given.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int)), None)
