"""What a tool's answer shows of a file: its lines, their numbers, whether they are all of it.

Tools number lines, frame them and cut them, each in its own way. An answer that cannot be read for
certain shows nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.tool_kinds import LINES_NAMED, arguments_by_name
from context_compaction.messages.model import ToolCall, ToolResult, is_object
from context_compaction.messages.tool_results import result_text

# Tools cut lines of this length, and some give so many lines of a longer file without a word.
_LONG_LINE_CHARS = 2_000
_PAGE_LINES = 2_000
_HEAD_LINES = 8
_TAIL_LINES = 4
# So many lines that begin with numbers in order are numbered by the tool ...
_TELLING_LINES = 3
# ... as so many of its first answers tell.
_TELLING_ANSWERS = 24

_NUMBERED = re.compile(r"\A[ \t]*(\d{1,7})(\t|→|[ \t]*\||:|\.(?= |\Z))(.*)\Z", re.DOTALL)
# Numbers that only a tool writes: in a column of their own.
_LAID_OUT = re.compile(r"^(?:[ \t]+\d+(?:\t|→|[ \t]*\|)|\d+(?:→|\|)|0\d+\|)", re.MULTILINE)
_SHELL_HEAD = re.compile(
    r"\A(?:Script .*\nWall time .*\nOutput:\n\n?|"
    r"(?:Chunk ID: .*\n)?(?:(?:Exit code|Process exited with code):? ?(-?\d+)\n)?"
    r"(?:Wall time: .*\n)?(?:Process exited with code (-?\d+)\n|Process running with .*\n)?"
    r"(?:(?:Total output lines|Original token count): .*\n)*Output:(?:\n|\Z))"
)
_SHOWING = re.compile(r"[Ss]howing lines (\d{1,9})\s?(?:-|to)\s?(\d{1,9})(?: of (\d{1,9}))?")
_MORE = re.compile(r"\b(\d{1,9}) more lines?\b.{0,200}?[Uu]se offset=(\d{1,9})")
_GEMINI_HEAD = re.compile(
    r"\AIMPORTANT: [^\n]*truncated[^\n]*\n(.*?)\n--- FILE CONTENT \(truncated\) ---\n", re.DOTALL
)
_WINDOW = re.compile(r"^\[File: (.+?) \((\d+) lines total\)\]$", re.MULTILINE)
# How tools begin that frame what they show; such a text without numbers is not understood.
_FRAME = re.compile(
    r"\A\s*(?:<(?:file|content|path|output)\b|Here's the |Contents? of |File: |\[Path ')"
)
_CUT = re.compile(
    r"truncat|omitted|elided|more lines?\b|lines? (?:not shown|left|above|below)|has more|clipped|"
    r"use '?(?:offset|start_line)",
    re.IGNORECASE,
)
# What stands in the middle of a text that a host has cut.
_GAP = re.compile(
    r"^.{0,12}(?:\.\.\.|…|\[) ?\[?\(?\d[\d,]{0,12} ?(?:ln|lines?|tokens?|chars?|characters|bytes) ?"
    r"(?:truncated|omitted|elided|removed)|^\[\.\.\. omitted \d"
    r"|^<response clipped>|\[(?:output )?truncated|tokens truncated…",
    re.IGNORECASE | re.MULTILINE,
)
# One of these stands in it; looking for them first is much faster.
_GAP_SIGNS = ("truncated", "omitted", "elided", "removed", "<response clipped>")
# Oh My Pi puts this line between lines of several places, and where it folds code.
_FOLDED = "\n…\n"


@dataclass(frozen=True, slots=True)
class ShownText:
    """Lines of a file.

    Attributes:
        rows: The lines without their ends; a last empty one is the end of the line before it.
        start_line: Number of the first, from 1; None where it is not known.
        is_to_end: Whether the last one is the file's last.
        is_numbered: Whether the tool had numbered them.
        path: The file, where the answer itself names it; else "".
    """

    rows: tuple[str, ...]
    start_line: int | None = 1
    is_to_end: bool = True
    is_numbered: bool = False
    path: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether this is all of the file."""
        return self.start_line == 1 and self.is_to_end


def shell_text(text: str) -> tuple[str, bool]:
    """What a command printed, without the text that the host adds, and whether it succeeded."""
    output, status = _output_and_status(text)
    return output, status == 0


def says_failed(text: str) -> bool:
    """Whether a host says so of a command, above what it printed or in the JSON around that."""
    if text.startswith("{") and '"exit_code"' not in text:  # mostly, and to parse takes its time
        return False
    return _output_and_status(text)[1] not in (0, None)


def without_head(text: str) -> tuple[str, bool]:
    """`text` without the lines that a host puts above an output, and whether they tell success.

    Of a command that still runs nobody knows.
    """
    output, status = _below_head(text)
    return output, status == 0


def _output_and_status(text: str) -> tuple[str, int | None]:
    """What a command printed, and its exit status: 0 without a word of it, None if it runs on."""
    if text.startswith("{"):
        try:
            value: object = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if is_object(value):
            output = value.get("output", value.get("stdout"))
            about = value.get("metadata")
            code = (about if is_object(about) else value).get("exit_code", 0)
            if isinstance(output, str):
                return output, code if isinstance(code, int) else None
    return _below_head(text)


def _below_head(text: str) -> tuple[str, int | None]:
    head = _SHELL_HEAD.match(text)
    if head is None:
        return text, 0
    runs_on = " running with " in head[0]
    return text[head.end() :], None if runs_on else int(head[1] or head[2] or "0")


def is_laid_out(text: str) -> bool:
    """Whether `text` contains numbers in a column, as only tools write them."""
    return _LAID_OUT.search(text) is not None


def is_cut(text: str) -> bool:
    """Whether something has been left out of the middle of `text`."""
    small = text.lower()
    return any(map(small.__contains__, _GAP_SIGNS)) and _GAP.search(text) is not None


def shown_text(
    text: str, *, start: int | None, limit: int | None, may_number: bool | None = None
) -> ShownText | None:
    """What the answer `text` of a tool that reads shows; None where that is not certain.

    Args:
        text: The answer.
        start: The line that was asked for first, from 1; None without a wish, 0 where the answer
            may begin elsewhere.
        limit: How many lines were asked for; None without a wish.
        may_number: Whether the tool numbers lines; None where that is not known.
    """
    text = without_reminder(text)
    if found := _window(text):
        return found
    if may_number is not False and (found := numbered_text(text)):
        if may_number is None and not is_laid_out(text):
            return None  # lines of the file itself may begin with such numbers
        if start != 0 and found.start_line not in (start or 1, (start or 0) + 1):
            return None
        rows, is_cut_off = found.rows, not found.is_to_end
        fewer = limit is not None and len(rows) < limit
        ends = not is_cut_off and (limit is None or fewer) and len(rows) != _PAGE_LINES
        return _with_end(replace(found, is_to_end=ends))
    return _plain(text, start, limit)


def without_reminder(text: str) -> str:
    """`text` without the notes of a host at its end."""
    while text.rstrip().endswith("</system-reminder>"):
        start = text.rfind("<system-reminder>")
        if start < 0:
            break
        text = text[:start].rstrip("\n")
    return text


def _window(text: str) -> ShownText | None:
    """What an editor with a window shows: the file's name and size, then numbered lines."""
    if "[File: " not in text:
        return None
    text = text.replace("\r\n", "\n")  # such an editor runs in a terminal
    named = _WINDOW.search(text)
    if named is None:
        return None
    found = numbered_text(text[named.end() :].lstrip("\n"), strips_blank=False)
    if found is None or found.start_line is None:
        return None
    last = found.start_line + len(found.rows) - 1
    is_to_end = last == int(named[2])
    return _with_end(replace(found, is_to_end=is_to_end, path=named[1]))


def numbered_text(text: str, *, strips_blank: bool | None = None) -> ShownText | None:
    """The lines that `text` numbers one after the other; None where it does not.

    Args:
        text: The answer of a tool.
        strips_blank: Whether a blank after the number is the tool's; None: to be seen.
    """
    lines = text.split("\n")
    if not any(map(_NUMBERED.match, lines[: _HEAD_LINES + 1])):
        return None
    found = [_NUMBERED.match(line) for line in lines]
    first = next(n for n, match in enumerate(found) if match)
    stop = next((n for n in range(first, len(lines)) if not found[n]), len(lines))
    run = [match for match in found[first:stop] if match]
    frame = [*lines[:first], *lines[stop:]]
    # Numbers that go on after a line without one are the file's own.
    if any(found[stop:]):
        return None
    if sum(1 for line in frame if line.strip()) > _HEAD_LINES + _TAIL_LINES:
        return None
    start, mark = int(run[0][1]), run[0][2].strip(" ")
    if mark == "." and any(line.strip() for line in frame):
        return None  # a list within a text
    rows = [match[3] for match in run]
    for n, match in enumerate(run):
        if int(match[1]) != start + n or match[2].strip(" ") != mark:
            return None
    if any(len(row) >= _LONG_LINE_CHARS for row in rows):
        return None
    unblanked = _unblanked(rows, strips_blank) if mark in (":", "|", ".") else rows
    # An editor's snippet of what it has changed ends where the snippet does.
    ends = not any(_CUT.search(line) for line in frame)
    return None if unblanked is None else ShownText(tuple(unblanked), start, ends, True)


def tools_that_number(reads: Sequence[tuple[ToolCall, ToolResult]]) -> Counter[str]:
    """By the tool of `reads` how many more of its answers number their lines than do not."""
    votes: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for call, result in reads:
        if asked[call.name] >= _TELLING_ANSWERS:
            continue
        asked[call.name] += 1
        text = result_text(result)
        found = numbered_text(text)
        if found is None:
            votes[call.name] -= text.count("\n") > 1
        elif len(found.rows) >= _TELLING_LINES or is_laid_out(text):
            votes[call.name] += 1
    return votes


def _unblanked(rows: list[str], strips_blank: bool | None) -> list[str] | None:
    """`rows` without the blank that a tool puts after the number, where it does."""
    held = [row for row in rows if row]
    if strips_blank is None:
        has_blank = all(row.startswith(" ") for row in held)
        strips_blank = has_blank and any(row[1:2].strip() for row in held)
        if has_blank and held and not strips_blank:
            return None  # all of it is indented: nobody can tell by how much
    return [row.removeprefix(" ") for row in rows] if strips_blank else rows


def _with_end(found: ShownText) -> ShownText:
    """`found`, and after a file's last line the end of it, which numbered lines do not show."""
    if found.is_to_end and found.rows and found.rows[-1]:
        return replace(found, rows=(*found.rows, ""))
    return found


def _plain(text: str, start: int | None, limit: int | None) -> ShownText | None:
    if is_cut(text) or _FRAME.match(text) or _FOLDED in text:
        return None
    if head := _GEMINI_HEAD.match(text):
        return _at_lines(text[head.end() :].split("\n"), head[1])
    rows = text.split("\n")
    tail = rows[-_TAIL_LINES:]
    for back, line in enumerate(reversed(tail), 1):
        if found := _MORE.search(line):
            kept = _before_notice(rows, back)
            following = int(found[2])
            return ShownText(tuple(kept), following - len(kept), is_to_end=False)
        if _SHOWING.search(line) and _CUT.search(line + " more lines"):
            return _at_lines(_before_notice(rows, back), line)
    if any(line.startswith(("[", "(", "...", "…")) and _CUT.search(line) for line in tail):
        return None
    if any(_CUT.search(line) and line.startswith(("[", "(")) for line in rows[:2]):
        return None
    if any(_CUT.search(row[-100:]) for row in rows if len(row) >= _LONG_LINE_CHARS):
        return None
    if start is None and limit is None:
        # Whoever gives a round page of lines may have more.
        return ShownText(tuple(rows), 1, is_to_end=len(rows) != _PAGE_LINES)
    ends = limit is None or len(rows) < limit
    return ShownText(tuple(rows), None if start == 0 else start or 1, is_to_end=ends)


def _before_notice(rows: Sequence[str], back: int) -> list[str]:
    """`rows` before the notice in the last but `back`, and before the empty line above that."""
    kept = list(rows[:-back])
    if kept and not kept[-1]:
        kept.pop()
    return kept


def _at_lines(rows: Sequence[str], notice: str) -> ShownText | None:
    found = _SHOWING.search(notice)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    kept = list(rows)
    while len(kept) > last - first + 1 and not kept[-1]:
        kept.pop()
    if len(kept) != last - first + 1:
        return None
    return ShownText(tuple(kept), first, is_to_end=bool(found[3]) and int(found[3]) == last)


def lines_asked(arguments: Mapping[str, object]) -> tuple[int | None, int | None, bool]:
    """First line and number of lines that a read asks for, and whether that is understood.

    Of lines that are named behind the path Oh My Pi shows the one before them too, which is 0 here.
    """
    named = arguments_by_name(arguments)
    lines = (LINES_NAMED.search(value) for value in named.values() if isinstance(value, str))
    if found := next(filter(None, lines), None):
        begins = 1 if found[1] == "1" and not found[3] else 0
        return begins, int(found[2]) - int(found[1]) + 1 if found[2] else None, not found[3]
    if any(named.get(key) is not None for key in ("tail", "range", "lines", "line")):
        return None, None, False
    if (view := named.get("viewrange")) is not None:
        if not (isinstance(view, list) and len(view) == 2):  # pyright: ignore[reportUnknownArgumentType]
            return None, None, False
        first, last = view[0], view[1]  # pyright: ignore[reportUnknownVariableType]
        if not (isinstance(first, int) and isinstance(last, int)):
            return None, None, False
        return first, (last - first + 1 if last >= first else None), True
    start = _number(named, ("offset", "startline", "linenumber", "startlineoneindexed"))
    limit = _number(named, ("limit", "head"))
    stop = _number(named, ("endline", "endlineoneindexed", "endlineoneindexedinclusive"))
    if stop is not None:
        limit = stop - (start or 1) + 1 if stop >= (start or 1) else None
    return (max(start, 1) if start is not None else None), limit, True


def _number(named: Mapping[str, object], keys: Sequence[str]) -> int | None:
    found = (named.get(key) for key in keys)
    return next((value for value in found if isinstance(value, int)), None)
