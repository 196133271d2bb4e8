"""Outcomes of calls: exit code, the line of the error, JSON data.

Every function reads a bounded part of an output, so that a long output costs no more than a short
one.
"""

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from context_compaction.messages.model import (
    SEARCHED_CHARS,
    ToolResult,
    compact_json,
    is_list,
    is_object,
    result_text,
)

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
    if not is_object(value):
        return None
    output = value.get("output", value.get("stdout"))
    about = value.get("metadata")
    code = (about if is_object(about) else value).get("exit_code")
    return (output, code if isinstance(code, int) else None) if isinstance(output, str) else None


def is_failed(result: ToolResult | None) -> bool | None:
    """Whether a call failed, by its flag or by its exit code; None if it has no result."""
    if result is None:
        return None
    try:
        return result.is_error or bool(command_output(result_text(result))[1])
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
    for full_line in reversed(TERMINAL_CODE.sub("", text[-SEARCHED_CHARS:]).split("\n")):
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
    return value if is_object(value) or is_list(value) else None


def json_line(value: Any) -> str:
    """Return a JSON value on one line; a string without quotes."""
    return " ".join((value if isinstance(value, str) else compact_json(value)).split())


def arguments_line(arguments: Mapping[str, Any]) -> str:
    """Return arguments by name on one line, without null values."""
    given = ((key, value) for key, value in arguments.items() if value is not None)
    return ", ".join(f"{key}={v if isinstance(v, str) else json_line(v)}" for key, v in given)


def refusal_comment(result: ToolResult) -> str | None:
    """Return the user's comment on a refused call, on one line; "" without a comment.

    None if the user did not refuse the call. The host's words are read, not the user's.
    """
    text = result_text(result)
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
