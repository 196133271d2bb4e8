"""Edits that a script for `sed -i` spells out.

What is not understood for certain is not followed: the result is None, and the caller doubts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

_ADDRESS = r"/(?:\\.|[^/\\\n])+/|\d{1,7}|\$"
_PART = re.compile(rf"[ \t]*(?:({_ADDRESS})[ \t]*(?:,[ \t]*({_ADDRESS})[ \t]*)?)?(s|d)")
_MOST_STARS = 3


# A line of a file: by its number, the last one ("$"), or those in which something is found.
Address: TypeAlias = int | Literal["$"] | re.Pattern[str]


@dataclass(frozen=True, slots=True)
class LineEdit:
    """An edit of lines: `new` replaces `old` in them; None drops them.

    Attributes:
        where: The lines; with `until` those from one on up to the next of those, all without it.
        old: What is looked for.
        new: The replacement.
        everywhere: Whether in a line more than once.
        until: The end of a range.
    """

    where: Address | None
    old: re.Pattern[str] | None
    new: str | None
    everywhere: bool = False
    until: Address | None = None


def sed_edits(script: str) -> tuple[LineEdit, ...] | None:
    """The edits of a script for sed in its basic syntax; None where it does anything else."""
    edits: list[LineEdit] = []
    at = 0
    while found := _PART.match(script, at):
        where, until = _address(found[1]), _address(found[2])
        if (found[1] and where is None) or (found[2] and until is None):
            return None
        at = found.end()
        if found[3] == "d":
            if where is None:
                return None
            edits.append(LineEdit(where, None, None, until=until))
        else:
            parts = _parts(script, at)
            if parts is None:
                return None
            old, new, flags, at = parts
            pattern, replacement = _pattern(old), _replacement(new)
            if pattern is None or replacement is None or flags not in ("", "g"):
                return None
            edits.append(LineEdit(where, pattern, replacement, flags == "g", until))
        rest = re.match(r"[ \t]*(?:;|\n|\Z)[ \t]*", script[at:])
        if rest is None:
            return None
        at += rest.end()
    return tuple(edits) if edits and at == len(script) else None


def _address(text: str | None) -> Address | None:
    if not text:
        return None
    if text == "$":
        return "$"
    return int(text) if text.isdigit() else _pattern(text[1:-1])


def edited_rows(rows: Sequence[str], edits: Sequence[LineEdit]) -> tuple[list[str], int]:
    """Lines after `edits`, and how many times one of them did anything."""
    kept: list[str] = []
    ends: dict[int, int | None] = {}  # of ranges that are open: the last line, where it is known
    done = 0
    for number, row in enumerate(rows, 1):
        text: str | None = row
        is_last = number == len(rows)
        for n, edit in enumerate(edits):
            if text is None or not _is_meant(ends, n, edit, text, number, is_last=is_last):
                continue
            if edit.old is None or edit.new is None:
                text, times = None, 1
            else:
                text, times = edit.old.subn(edit.new, text, count=0 if edit.everywhere else 1)
            done += times
        kept += [] if text is None else text.split("\n")
    return kept, done


def _is_meant(
    ends: dict[int, int | None], n: int, edit: LineEdit, text: str, number: int, *, is_last: bool
) -> bool:
    """Whether `edit`, the one with number `n`, is done to this line; keeps what ranges are open."""
    if edit.until is None:
        return edit.where is None or _is_at(edit.where, text, number, is_last=is_last)
    if n in ends:
        if isinstance(edit.until, int):
            is_end, is_within = number >= edit.until, number <= edit.until
        else:
            is_end, is_within = _is_at(edit.until, text, number, is_last=is_last), True
        if is_end:
            del ends[n]
        if is_within:
            return True
    if edit.where is None or not _is_at(edit.where, text, number, is_last=is_last):
        return False
    if not (isinstance(edit.until, int) and edit.until <= number):
        ends[n] = None
    return True


def _is_at(where: Address, text: str, number: int, *, is_last: bool) -> bool:
    if isinstance(where, int):
        return where == number
    if isinstance(where, re.Pattern):
        return where.search(text) is not None
    return is_last


def _parts(script: str, at: int) -> tuple[str, str, str, int] | None:
    """Pattern, replacement and flags of an `s` with its separator at `at`, and where it ends."""
    mark = script[at : at + 1]
    if not mark or mark in "\\\n" or mark.isalnum():
        return None
    texts: list[str] = []
    at += 1
    for _ in range(2):
        start = at
        while at < len(script) and script[at] != mark:
            at += 2 if script[at] == "\\" else 1
        if at >= len(script):
            return None
        texts.append(
            script[start:at].replace("\\" + mark, mark) if mark != "/" else script[start:at]
        )
        at += 1
    stop = next((n for n in range(at, len(script)) if not script[n].isalnum()), len(script))
    return texts[0], texts[1], script[at:stop], stop


_ATOM = re.compile(
    r"(?P<open>\\\()|(?P<close>\\\)(?!\*))|(?P<or>\\\|)|\\(?P<plain>[^\w\s+?|{}<>()])|(?P<set>\[\^?\]?[^\]\[\\]*\])"
    r"|(?P<star>\*)|(?P<start>\A\^)|(?P<end>\$\Z)|(?P<dot>\.)|(?P<char>[^\\\[])"
)


def _pattern(basic: str) -> re.Pattern[str] | None:
    """A basic expression of POSIX as one of Python; None where it is more than a simple one."""
    out: list[str] = []
    at = 0
    while atom := _ATOM.match(basic, at):
        at = atom.end()
        is_first = not out or out[-1] in ("(", "^")
        match atom.lastgroup:
            case "open" | "close":
                out.append("(" if atom["open"] else ")")
            case "or":
                out.append("|")
            case "star":
                out.append("\\*" if is_first else "*")
            case "end":
                out.append("\\Z")
            case "plain" | "char":
                out.append(re.escape(atom["plain"] or atom["char"]))
            case _:
                out.append(atom[0])
    # A group that is repeated, and many repetitions, take too long on some texts.
    if at < len(basic) or not out or out.count("*") > _MOST_STARS or "**" in "".join(out):
        return None
    try:
        return re.compile("".join(out))
    except re.error:
        return None


def _replacement(text: str) -> str | None:
    """A replacement of sed as one of Python."""
    out: list[str] = []
    at = 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        at += 2 if char == "\\" else 1
        if char == "&":
            out.append("\\g<0>")
        elif char != "\\":
            out.append(char)
        elif following.isdigit():
            out.append(f"\\g<{following}>")
        elif following == "n":
            out.append("\n")
        elif following and not following.isalnum():
            out.append("\\\\" if following == "\\" else following)
        else:
            return None
    return "".join(out)
