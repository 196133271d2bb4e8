"""What results say: exit code, the line of the error, JSON data, and lines of a file.

The functions about outcomes read a bounded part of an output, so that a long output costs no more
than a short one. Tools number lines of files, frame them and cut them, each in its own way. A
result that cannot be read for certain shows no lines.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_compaction.activity.calls import LINES_NAMED, arguments_by_name
from context_compaction.messages import model

_logger = logging.getLogger(__name__)

# Texts with which hosts replace the result of a call that the user refused.
_REFUSED = re.compile(
    r".{0,80}\b(?:user (?:doesn't want|does not want|rejected|denied|declined|refused)"
    r"|(?:rejected|denied|declined|refused) by (?:the )?user)\b",
    re.IGNORECASE,
)
# Words of Claude Code, OpenCode and Cline before the user's comment, and after it.
_COMMENT_STARTS = ("the user said:", "reason for the rejection:", "following feedback:")
_COMMENT_ENDS = ("</feedback>", "\n\nNote: The user's next message may contain ")
# Claude Code writes this itself in the place of a comment.
_NO_COMMENT = "The user wants to clarify these questions."
_REFUSAL_CHARS = 400
LINE_CHARS = 300  # a longer line is cut; minified files have lines of megabytes
TERMINAL_CODE = re.compile(r"\x1b\[[\d;]{0,12}[A-Za-z]")
# A word that names an error or a failed check.
ERROR = re.compile(
    r"\b(?:\w*errors?|\w*exception|failed|failure|fatal|traceback|panic(?:ked)?|assert\w*|denied"
    r"|not found)\b",
    re.IGNORECASE,
)
# Lines that hosts put above the output of a command.
_HEAD = (
    "Chunk ID:", "Exit code", "Wall time", "Process exited with code", "Process running with",
    "Total output lines:", "Original token count:", "Script ",
)  # fmt: skip
_EXIT_STATUS = re.compile(
    r"^.{0,32}\b(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code)\D{0,4}(\d{1,9})\W{0,3}$",
    re.IGNORECASE | re.MULTILINE,
)
_FAILS_FIRST = re.compile(
    r"\A\W{0,9}(?:<tool_use_error>|(?:\w{1,30} ){0,3}(?:error|failed|failure|cannot|could not"
    r"|unable|no match|not found|invalid|denied|exception|rejected|aborted|cancelled))",
    re.IGNORECASE,
)
# Words of an edit that changed nothing, and of an edit that changed something.
_UNCHANGED = (
    "not applied", "not made", "not written", "not changed", "introduced new syntax error",
    "no replacement", "no changes were made", "no change was made", "not found in",
    "did not match", "string to replace", "must be unique", "multiple occurrences",
)  # fmt: skip
_CHANGED = (
    "success", "updated", "replaced", "edited", "written", "wrote", "created", "saved", "applied",
)  # fmt: skip


def command_output(text: str) -> tuple[str, int | None]:
    """Return the output of a command, without the host's lines, and its exit code.

    The code is 0 if the host does not state one, and None if the command still runs.
    """
    if text.startswith("{"):
        return _json_output(text) or (text, _code_at_end(text))
    start = 0
    code: int | None = 0
    for _ in range(len(_HEAD)):
        stop = text.find("\n", start)
        line = text[start : stop if stop >= 0 else len(text)][:LINE_CHARS]
        if line.strip() == "Output:":
            return (text[stop + 1 :] if stop >= 0 else ""), code
        if stop < 0 or not line.startswith(_HEAD):
            break
        last = line.split()[-1]
        if line.startswith(("Exit code", "Process exited")) and last.lstrip("-").isdecimal():
            code = int(last)
        elif line.startswith("Process running with"):
            code = None
        start = stop + 1
    return text, code or _code_at_end(text)


def _code_at_end(text: str) -> int:
    """Return the exit code that the end of a result states; 0 if it states none."""
    end = text[-400:]
    has_words = "exit" in end.lower() or "return" in end.lower()
    match = _EXIT_STATUS.search(end) if has_words else None
    return int(match[1]) if match else 0


def _json_output(text: str) -> tuple[str, int | None] | None:
    has_code = '"exit_code"' in text[-400:] + text[:400]
    value = parsed_json(text, len(text)) if has_code else None
    if not model.is_object(value):
        return None
    output = value.get("output", value.get("stdout"))
    about = value.get("metadata")
    code = (about if model.is_object(about) else value).get("exit_code")
    return (output, code if isinstance(code, int) else None) if isinstance(output, str) else None


def is_failed(result: model.ToolResult | None) -> bool | None:
    """Whether a call failed, by its flag or by its exit code; None if it has no result."""
    if result is None:
        return None
    try:
        return result.is_error or bool(command_output(model.result_text(result))[1])
    except Exception:  # a result may have any content
        _logger.exception("the outcome of a call cannot be read")
        return result.is_error


def begins_with_failure(text: str) -> bool:
    """Whether the first words of a result name a failure."""
    return _FAILS_FIRST.match(text) is not None


def is_unchanged(text: str) -> bool:
    """Whether the result of an edit says that nothing was changed."""
    head = text[:LINE_CHARS].lower()
    if any(words in head for words in _UNCHANGED):
        return True
    return begins_with_failure(head) and not any(word in head for word in _CHANGED)


def error_line(text: str) -> str:
    """Return the newest line that names an error; the last line if none does."""
    last = ""
    for full_line in reversed(TERMINAL_CODE.sub("", text[-model.SEARCHED_CHARS :]).split("\n")):
        if line := full_line.strip()[:LINE_CHARS]:
            if ERROR.search(line) and not line.startswith("Traceback ("):
                return line
            last = last or line
    return last


# JSON -----------------------------------------------------------------------------------------


def parsed_json(text: str, max_chars: int = 100_000) -> Any:
    """Return the JSON object or list that `text` is; None if it is neither, or too long."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > max_chars:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if model.is_object(value) or model.is_list(value) else None


def json_line(value: Any) -> str:
    """Return a JSON value on one line; a string without quotes."""
    return " ".join((value if isinstance(value, str) else model.compact_json(value)).split())


def arguments_line(arguments: Mapping[str, Any]) -> str:
    """Return arguments by name on one line, without null values."""
    given = ((key, value) for key, value in arguments.items() if value is not None)
    return ", ".join(f"{key}={v if isinstance(v, str) else json_line(v)}" for key, v in given)


def refusal_comment(result: model.ToolResult) -> str | None:
    """Return the user's comment on a refused call, on one line; "" without a comment.

    None if the user did not refuse the call. The host's words are read, not the user's.
    """
    text = model.result_text(result)
    if not _REFUSED.match(text):
        return None
    head = text[:_REFUSAL_CHARS].lower()
    starts = [head.find(words) + len(words) for words in _COMMENT_STARTS if words in head]
    comment = text[min(starts) :].lstrip().removeprefix("<feedback>") if starts else ""
    if comment.startswith(_NO_COMMENT):
        return ""
    for end in _COMMENT_ENDS:
        comment = comment.partition(end)[0]
    return " ".join(comment.split())


# Lines of files that results show -----------------------------------------------------------------


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
        if not (model.is_list(view) and len(view) == 2 and all(isinstance(n, int) for n in view)):
            return None
        start, stop = view
    limit = _number(given, ("limit", "head"))
    if stop is not None:
        limit = stop - (start or 1) + 1 if stop >= (start or 1) else None
    return (max(start, 1) if start is not None else None), limit


def _number(given: Mapping[str, object], keys: Sequence[str]) -> int | None:
    values = (given.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int)), None)
