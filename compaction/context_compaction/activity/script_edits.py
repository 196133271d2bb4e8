"""Edits that a script for `sed -i` spells out.

What is not understood for certain is not followed: the answer is None, and the caller has a doubt.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PART = re.compile(r"[ \t]*(?:/((?:\\.|[^/\\\n])+)/[ \t]*)?(s|d)")
_MOST_STARS = 3


@dataclass(frozen=True, slots=True)
class LineEdit:
    """On lines where `where` is found (all without it), `old` gives `new`; None drops the line."""

    where: re.Pattern[str] | None
    old: re.Pattern[str] | None
    new: str | None
    everywhere: bool = False


def sed_edits(script: str) -> tuple[LineEdit, ...] | None:
    """The edits of a script for sed in its basic syntax; None where it does anything else."""
    edits: list[LineEdit] = []
    at = 0
    while found := _PART.match(script, at):
        where = _pattern(found[1]) if found[1] else None
        if found[1] and where is None:
            return None
        at = found.end()
        if found[2] == "d":
            if where is None:
                return None
            edits.append(LineEdit(where, None, None))
        else:
            parts = _parts(script, at)
            if parts is None:
                return None
            old, new, flags, at = parts
            pattern, replacement = _pattern(old), _replacement(new)
            if pattern is None or replacement is None or flags not in ("", "g"):
                return None
            edits.append(LineEdit(where, pattern, replacement, flags == "g"))
        rest = re.match(r"[ \t]*(?:;|\n|\Z)[ \t]*", script[at:])
        if rest is None:
            return None
        at += rest.end()
    return tuple(edits) if edits and at == len(script) else None


def edited_rows(rows: Sequence[str], edits: Sequence[LineEdit]) -> tuple[list[str], int]:
    """Lines after `edits`, and how many times one of them did anything."""
    kept: list[str] = []
    done = 0
    for row in rows:
        text: str | None = row
        for edit in edits:
            if text is None or (edit.where and not edit.where.search(text)):
                continue
            if edit.old is None or edit.new is None:
                text, times = None, 1
            else:
                text, times = edit.old.subn(edit.new, text, count=0 if edit.everywhere else 1)
            done += times
        kept += [] if text is None else text.split("\n")
    return kept, done


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
    r"(?P<open>\\\()|(?P<close>\\\)(?!\*))|\\(?P<plain>[^\w\s+?|{}<>()])|(?P<set>\[\^?\]?[^\]\[\\]*\])"
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
