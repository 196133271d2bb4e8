"""What the result of a read shows of a file: its lines, their numbers, whether they are all.

Tools number lines, frame them and cut them, each in its own way. A result that cannot be read for
certain shows nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.calls import LINES_NAMED, arguments_by_name
from context_compaction.messages.model import is_list

# Tools cut lines of this length, and some return this many lines of a longer file without a notice.
_LONG_LINE_CHARS = 2_000
_PAGE_LINES = 2_000
# Lines of a tool's own above and below the lines of a file.
_HEAD_LINES = 8
_TAIL_LINES = 4

_NUMBER = re.compile(r"[ \t]{0,20}(\d{1,7})(\t|→|[ \t]{0,9}\||:|\.(?= |\Z))")
# Numbers in a column of their own, as only tools write them.
_COLUMN = re.compile(r"[ \t]{1,20}\d{1,7}(?:\t|→|[ \t]{0,9}\|)|\d{1,7}(?:→|\|)|0\d{1,6}\|")
_SHOWING = re.compile(r"[Ss]howing lines (\d{1,9})\s?(?:-|to)\s?(\d{1,9})(?: of (\d{1,9}))?")
_MORE = re.compile(r"\b\d{1,9} more lines?\b.{0,200}?[Uu]se offset=(\d{1,9})")
_GEMINI_BODY = "\n--- FILE CONTENT (truncated) ---\n"
_FRAME = ("<file", "<content", "<path", "<output", "Here's the ", "Content of ", "Contents of ",
          "File: ", "[Path '", "[File: ")  # fmt: skip
_CUT = re.compile(
    r"truncat|omitted|elided|more lines?\b|lines? (?:not shown|left|above|below)|has more|clipped"
    r"|use '?(?:offset|start_line)",
    re.IGNORECASE,
)
# A mark in the middle of a text that a host has cut.
_GAP = re.compile(
    r"^.{0,12}(?:\.\.\.|…|\[) ?\[?\(?\d[\d,]{0,12} ?(?:ln|lines?|tokens?|chars?|characters|bytes) ?"
    r"(?:truncated|omitted|elided|removed)|^\[\.\.\. omitted \d|^<response clipped>"
    r"|\[(?:output )?truncated|tokens truncated…",
    re.IGNORECASE | re.MULTILINE,
)
# One of these words is in every such mark; finding a word first is much faster.
_GAP_WORDS = ("truncated", "omitted", "elided", "removed", "<response clipped>")
_FOLDED = "\n…\n"  # Oh My Pi puts this line where it folds code


@dataclass(frozen=True, slots=True)
class ShownLines:
    """Lines of a file.

    Attributes:
        rows: The lines without their ends; a last empty one is the end of the line before it.
        start: Number of the first line, from 1; None if it is not known.
        is_to_end: Whether the last row is the file's last.
    """

    rows: tuple[str, ...]
    start: int | None = 1
    is_to_end: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether these are all lines of the file."""
        return self.start == 1 and self.is_to_end


def shown_lines(
    text: str, *, start: int | None, limit: int | None, may_number: bool | None
) -> ShownLines | None:
    """The lines that the result `text` of a read shows; None if that is not certain.

    Args:
        text: The result.
        start: The first line that the call asked for, from 1; None if it asked for none, 0 if the
            result may begin elsewhere.
        limit: The number of lines that the call asked for; None if it asked for none.
        may_number: Whether the tool numbers lines; None if that is not known.
    """
    text = without_reminder(text)
    if may_number is not False and (numbered := numbered_lines(text)):
        if may_number is None and not _is_column(text):
            return None  # lines of the file itself may begin with such numbers
        if start != 0 and numbered.start not in (start or 1, (start or 0) + 1):
            return None
        count = len(numbered.rows)
        ends = numbered.is_to_end and (limit is None or count < limit) and count != _PAGE_LINES
        # Numbered lines do not show the newline at the end of a file.
        rows = (*numbered.rows, "") if ends and numbered.rows[-1] else numbered.rows
        return replace(numbered, rows=rows, is_to_end=ends)
    return _plain(text, start, limit)


def without_reminder(text: str) -> str:
    """`text` without the notes of a host at its end."""
    while text.rstrip().endswith("</system-reminder>"):
        start = text.rfind("<system-reminder>")
        if start < 0:
            break
        text = text[:start].rstrip("\n")
    return text


def is_cut(text: str) -> bool:
    """Whether something is left out of the middle of `text`."""
    small = text.lower()
    return any(word in small for word in _GAP_WORDS) and _GAP.search(text) is not None


def numbered_lines(text: str) -> ShownLines | None:
    """The lines that `text` numbers one after the other; None if it does not."""
    lines = text.split("\n")
    first = next((n for n, line in enumerate(lines[:_HEAD_LINES]) if _NUMBER.match(line)), None)
    if first is None:
        return None
    rows: list[str] = []
    head = _NUMBER.match(lines[first])
    start, mark = (int(head[1]), head[2].strip(" ")) if head else (0, "")
    for line in lines[first:]:
        found = _NUMBER.match(line)
        if not found or int(found[1]) != start + len(rows) or found[2].strip(" ") != mark:
            break
        if line.startswith("<persisted-output ", found.end()):
            return None  # the host numbered the marker that replaces the rest of the file
        rows.append(line[found.end() :])
    frame = [line for line in (*lines[:first], *lines[first + len(rows) :]) if line.strip()]
    is_interrupted = any(map(_NUMBER.match, lines[first + len(rows) :]))
    is_list_in_text = mark == "." and frame
    if is_interrupted or is_list_in_text or len(frame) > _HEAD_LINES + _TAIL_LINES:
        return None
    if any(len(row) >= _LONG_LINE_CHARS for row in rows):
        return None
    if mark in (":", "|", "."):
        filled = [row for row in rows if row]
        has_blank = all(row.startswith(" ") for row in filled)
        if has_blank and filled and not any(row[1:2].strip() for row in filled):
            return None  # every line is indented: the blank may be the tool's or the file's
        rows = [row.removeprefix(" ") for row in rows] if has_blank else rows
    return ShownLines(tuple(rows), start, not any(_CUT.search(line[:400]) for line in frame))


def tools_that_number(results: Iterable[tuple[str, str]]) -> Mapping[str, bool]:
    """Whether each tool numbers lines, by tool and text of its first results.

    A tool is left out if its results do not show it.
    """
    votes: Counter[str] = Counter()
    read: Counter[str] = Counter()
    for tool, text in results:
        read[tool] += 1
        # The first results of a tool show whether it numbers lines.
        if read[tool] > 24:
            continue
        numbered = numbered_lines(text)
        if numbered is None:
            votes[tool] -= text.count("\n") > 1
        else:
            votes[tool] += len(numbered.rows) >= 3 or _is_column(text)
    return {tool: vote > 0 for tool, vote in votes.items() if vote}


def _is_column(text: str) -> bool:
    return any(map(_COLUMN.match, text.split("\n", _HEAD_LINES)))


def _plain(text: str, start: int | None, limit: int | None) -> ShownLines | None:
    if is_cut(text) or text.lstrip().startswith(_FRAME) or _FOLDED in text:
        return None
    head, body, shown = text.partition(_GEMINI_BODY)
    if body:
        return _at_lines(shown.split("\n"), head)
    rows = text.split("\n")
    notices = [(n, rows[n]) for n in range(max(0, len(rows) - _TAIL_LINES), len(rows))]
    for n, line in reversed(notices):
        kept = rows[: n - 1] if n and not rows[n - 1] else rows[:n]
        if more := _MORE.search(line[:400]):
            return ShownLines(tuple(kept), int(more[1]) - len(kept), is_to_end=False)
        if _SHOWING.search(line[:400]):
            return _at_lines(kept, line)
    edges = [*rows[:2], *(line for _, line in notices)]
    if any(line.startswith(("[", "(", "...", "…")) and _CUT.search(line[:400]) for line in edges):
        return None
    if any(len(row) >= _LONG_LINE_CHARS and _CUT.search(row[-100:]) for row in rows):
        return None
    # A tool that returns a round page of lines may have more.
    ends = len(rows) != _PAGE_LINES if limit is None else len(rows) < limit
    return ShownLines(tuple(rows), None if start == 0 else start or 1, is_to_end=ends)


def _at_lines(rows: Sequence[str], notice: str) -> ShownLines | None:
    found = _SHOWING.search(notice[:400])
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    kept = list(rows)
    while len(kept) > last - first + 1 and not kept[-1]:
        kept.pop()
    if len(kept) != last - first + 1:
        return None
    return ShownLines(tuple(kept), first, is_to_end=bool(found[3]) and int(found[3]) == last)


def lines_asked(arguments: object) -> tuple[int | None, int | None, bool]:
    """First line and number of lines that a read asks for, and whether that is understood.

    Oh My Pi names lines behind the path, and also shows the line before them: the start is 0 then.
    """
    named = arguments_by_name(arguments)
    for value in named.values():
        if isinstance(value, str) and (found := LINES_NAMED.search(value[-200:])):
            begins = 1 if found[1] == "1" and not found[3] else 0
            return begins, int(found[2]) - int(found[1]) + 1 if found[2] else None, not found[3]
    if any(named.get(key) is not None for key in ("tail", "range", "lines", "line")):
        return None, None, False
    view = named.get("viewrange")
    if view is not None:
        if not (is_list(view) and len(view) == 2 and all(isinstance(n, int) for n in view)):
            return None, None, False
        first, last = view
        return first, (last - first + 1 if last >= first else None), True
    start = _number(named, ("offset", "startline", "linenumber", "startlineoneindexed"))
    limit = _number(named, ("limit", "head"))
    stop = _number(named, ("endline", "endlineoneindexed", "endlineoneindexedinclusive"))
    if stop is not None:
        limit = stop - (start or 1) + 1 if stop >= (start or 1) else None
    return (max(start, 1) if start is not None else None), limit, True


def _number(named: Mapping[str, object], keys: Sequence[str]) -> int | None:
    values = (named.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int)), None)
