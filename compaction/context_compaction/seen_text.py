"""Whether a file still says what a tool showed of it: tools number lines, frame them, cut them.

Pure, and linear in the lines. In doubt the file counts as unchanged: a warning that is wrong half
of the time is not read.
"""

import re
from collections.abc import Sequence

# "  12\ttext", "12→text", "12|text", "12: text", as hosts number the lines of what they read.
_NUMBERED = re.compile(r"\A[ \t]*\d+(?:\t|→|[ \t]*\||: ?|$)(.*)", re.DOTALL)
# Lines that a tool puts around a text, or in the place of what it left out.
_FRAME = re.compile(r"\A\s*(?:<|\[|\(|```|---|===|File\b|Here\b|Contents?\b)", re.IGNORECASE)
_CUT = re.compile(r"\[\.\.\.|\.\.\.|…|truncat|omitted|more lines|clipped", re.IGNORECASE)
_FRAME_LINES = 4  # at either end
# Tools cut very long lines; so much of a line stands for all of it.
_SAME_LINE_CHARS = 400


def still_says(on_disk: str, seen: str, *, is_whole: bool) -> bool:
    """Whether the file's text `on_disk` agrees with `seen`, what a tool showed of it before.

    Args:
        on_disk: The file's text now.
        seen: The tool's answer.
        is_whole: Whether all of the file was asked for, not a range.
    """
    file = [_head(line) for line in on_disk.splitlines()]
    lines = [_head(line) for line in seen.splitlines()]
    if _agree(lines, file, is_whole=is_whole):
        return True
    numbered = [_head(found.group(1)) for line in lines if (found := _NUMBERED.match(line))]
    if numbered and len(numbered) * 2 > sum(1 for line in lines if line):
        # A line without a number is the tool's own.
        was_cut = any(_CUT.search(line) for line in lines if not _NUMBERED.match(line))
        return _agree(numbered, file, is_whole=is_whole and not was_cut)
    if any(_CUT.search(line) for line in (*lines[: _FRAME_LINES + 1], *lines[-_FRAME_LINES:])):
        return True  # what was left out cannot be compared
    return _agree(_without_frame(lines), file, is_whole=is_whole)


def _agree(lines: Sequence[str], file: Sequence[str], *, is_whole: bool) -> bool:
    shown, there = _trimmed(lines), _trimmed(file)
    # One after the other, whatever stands before and after them.
    return shown == there if is_whole else _joined(shown) in _joined(there)


def _head(line: str) -> str:
    return line.rstrip()[:_SAME_LINE_CHARS]


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without empty lines at either end, which tools add and drop."""
    held = [at for at, line in enumerate(lines) if line]
    return list(lines[held[0] : held[-1] + 1]) if held else []


def _without_frame(lines: Sequence[str]) -> list[str]:
    start, stop = 0, len(lines)
    for _ in range(_FRAME_LINES):
        if start < stop and (not lines[start] or _FRAME.match(lines[start])):
            start += 1
        if start < stop and (not lines[stop - 1] or _FRAME.match(lines[stop - 1])):
            stop -= 1
    return list(lines[start:stop])


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(("", *lines, ""))
