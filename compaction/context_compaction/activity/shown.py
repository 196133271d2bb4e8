"""Find the lines of a file that the result of a read shows, with their numbers.

Tools number lines, frame them and cut them, each in its own way. A result that cannot be read for
certain shows nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.calls import LINES_NAMED, arguments_by_name
from context_compaction.messages.model import is_list

# Tools cut longer lines, and some return this number of lines of a longer file without a notice.
_PAGE = 2_000
# Number of lines that a tool adds at most above and below the lines of a file.
_FRAME_LINES = 8

_NUMBER = re.compile(r"([ \t]{0,20})(\d{1,7})(\t|→|[ \t]{0,9}\||:|\.(?= |\Z))")
_FRAME = ("<file", "<content", "<path", "<output", "Here's the ", "Content of ", "Contents of ",
          "File: ", "[Path '", "[File: ")  # fmt: skip
_NOTICE = ("[", "(", "...", "…", "<response clipped>")
_CUT = re.compile(
    r"truncat|omitted|elided|removed|clipped|more lines?\b|lines? (?:not shown|left|above|below)"
    r"|has more|use '?(?:offset|start_line)",
    re.IGNORECASE,
)
# Every mark that a host puts into the middle of a text contains one of these words.
_GAP_WORDS = ("truncated", "omitted", "elided", "removed", "<response clipped>")
# Lines with which Oh My Pi marks folded code and Gemini CLI marks a part of a file.
_PARTIAL = ("\n…\n", "\n--- FILE CONTENT (truncated) ---\n")


@dataclass(frozen=True, slots=True)
class ShownLines:
    """Lines of a file.

    Attributes:
        rows: The lines without their ends. An empty last row is the newline of the row before it.
        start: Number of the first line, from 1; None if it is not known.
        is_to_end: Whether the last row is the file's last.
        is_column: Whether the numbers form a column, as only tools write them.
    """

    rows: tuple[str, ...]
    start: int | None = 1
    is_to_end: bool = True
    is_column: bool = False


def shown_lines(
    text: str, *, start: int | None, limit: int | None, may_number: bool | None
) -> ShownLines | None:
    """Return the lines that the result `text` of a read shows; None if that is not certain.

    Args:
        text: The result.
        start: The first line that the call asked for, from 1; None if it asked for none, 0 if the
            result may begin elsewhere.
        limit: The number of lines that the call asked for; None if it asked for none.
        may_number: Whether the tool numbers lines; None if that is not known.
    """
    text = without_reminder(text)
    numbered = None if may_number is False else numbered_lines(text)
    if numbered is None:
        return _plain(text, start, limit)
    if may_number is None and not numbered.is_column:
        return None  # lines of the file itself may begin with such numbers
    # Some tools count the first line that is asked for from 0.
    if start != 0 and numbered.start not in (start or 1, (start or 0) + 1):
        return None
    count = len(numbered.rows)
    ends = numbered.is_to_end and (limit is None or count < limit) and count != _PAGE
    # Numbered lines do not show the newline at the end of a file.
    rows = (*numbered.rows, "") if ends and numbered.rows[-1] else numbered.rows
    return replace(numbered, rows=rows, is_to_end=ends)


def without_reminder(text: str) -> str:
    """Return `text` without the notes of a host at its end."""
    while text.rstrip().endswith("</system-reminder>") and "<system-reminder>" in text:
        text = text[: text.rfind("<system-reminder>")].rstrip("\n")
    return text


def is_cut(text: str) -> bool:
    """Whether a host has removed something from the middle of `text`."""
    lower = text.lower()
    if not any(word in lower for word in _GAP_WORDS):
        return False
    return "tokens truncated…" in lower or any(map(_is_notice, text.split("\n")))


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
    is_list_in_text = mark == "." and frame
    if is_list_in_text or len(frame) > _FRAME_LINES or any(map(_NUMBER.match, below)):
        return None
    # The host numbers the marker that replaces the rest of the file, too.
    if any(row.startswith("<persisted-output ") or len(row) >= _PAGE for row in rows):
        return None
    if mark in (":", "|", "."):
        filled = [row for row in rows if row]
        has_blank = all(row.startswith(" ") for row in filled)
        if has_blank and filled and not any(row[1:2].strip() for row in filled):
            return None  # every line is indented: the blank may be the tool's or the file's
        rows = [row.removeprefix(" ") for row in rows] if has_blank else rows
    is_column = mark in ("→", "|") or (mark == "\t" and bool(head[1]))
    is_to_end = not any(_CUT.search(line[:400]) for line in frame)
    return ShownLines(tuple(rows), start, is_to_end, is_column)


def tools_that_number(results: Iterable[tuple[str, str]]) -> Mapping[str, bool]:
    """Return whether each tool numbers lines, by tool; without tools whose results do not show it.

    Args:
        results: Tool and text of results of reads. The first 24 of a tool are looked at.
    """
    votes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for tool, text in results:
        counts[tool] += 1
        if counts[tool] <= 24:
            numbered = numbered_lines(text)
            if numbered is None:
                votes[tool] -= text.count("\n") > 1
            else:
                votes[tool] += len(numbered.rows) >= 3 or numbered.is_column
    return {tool: vote > 0 for tool, vote in votes.items() if vote}


def _plain(text: str, start: int | None, limit: int | None) -> ShownLines | None:
    """Return the lines of a result without numbers, up to a notice that there are more."""
    is_framed = text.lstrip().startswith(_FRAME) or any(map(text.__contains__, _PARTIAL))
    rows = text.split("\n")
    if is_framed or is_cut(text) or any(map(_is_notice, rows[:2])):
        return None
    first = None if start == 0 else start or 1
    for number in range(max(0, len(rows) - 4), len(rows)):
        if _is_notice(rows[number]):
            stop = number - 1 if not rows[number - 1] else number
            return ShownLines(tuple(rows[:stop]), first, is_to_end=False)
    if any(len(row) >= _PAGE and _CUT.search(row[-100:]) for row in rows):
        return None
    # A tool that returns a round page of lines may have more.
    ends = len(rows) != _PAGE if limit is None else len(rows) < limit
    return ShownLines(tuple(rows), first, is_to_end=ends)


def _is_notice(line: str) -> bool:
    return line.lstrip().startswith(_NOTICE) and _CUT.search(line[:400]) is not None


def lines_asked(arguments: object) -> tuple[int | None, int | None, bool]:
    """Return the first line and number of lines that a read asks for, and a flag.

    The flag says whether the arguments are understood. Oh My Pi names lines after the path and also
    shows the line before them, so the first line is 0 in that case.
    """
    given = arguments_by_name(arguments)
    for value in given.values():
        if isinstance(value, str) and (match := LINES_NAMED.search(value[-200:])):
            first = 1 if match[1] == "1" and not match[3] else 0
            return first, int(match[2]) - int(match[1]) + 1 if match[2] else None, not match[3]
    if any(given.get(key) is not None for key in ("tail", "range", "lines", "line")):
        return None, None, False
    start = _number(given, ("offset", "startline", "linenumber", "startlineoneindexed"))
    stop = _number(given, ("endline", "endlineoneindexed", "endlineoneindexedinclusive"))
    view = given.get("viewrange")
    if view is not None:
        if not (is_list(view) and len(view) == 2 and all(isinstance(n, int) for n in view)):
            return None, None, False
        start, stop = view
    limit = _number(given, ("limit", "head"))
    if stop is not None:
        limit = stop - (start or 1) + 1 if stop >= (start or 1) else None
    return (max(start, 1) if start is not None else None), limit, True


def _number(given: Mapping[str, object], keys: Sequence[str]) -> int | None:
    values = (given.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int)), None)
