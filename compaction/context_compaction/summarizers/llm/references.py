"""Numbers of messages in a summary: one that no message has is removed; the statement stays.

Whether a message says what a line says of it is not asked. Where a name of the line had to stand
near it, one reference in six of good summaries went, and no false one.
"""

import re
from collections.abc import Set

_REFERENCE = re.compile(r"(?<![\w\])}])\[(\d{1,9}(?:(?: ?[-–,;] ?| and )\d{1,9}){0,40})\]")
_NUMBER = re.compile(r"\d+")
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"#{1,6} ")


def without_false_numbers(text: str, known: Set[int]) -> tuple[str, tuple[str, ...]]:
    """`text` without numbers of messages that are not `known`, and the lines that contained them.

    Where none are known, none is false.
    """
    if not known:
        return text, ()
    lines = text.split("\n")
    checked = [line if _HEADING.match(line) else _checked(line, known) for line in lines]
    changed = (old.strip() for old, new in zip(lines, checked, strict=True) if new != old)
    return "\n".join(checked), tuple(changed)


def _checked(line: str, known: Set[int]) -> str:
    code = [found.span() for found in _CODE.finditer(line)]
    for found in reversed([*_REFERENCE.finditer(line)]):
        if any(start < found.start() < end for start, end in code):
            continue
        parts = [" ".join(part.split()) for part in re.split(r"[,;]| and ", found[1])]
        true = [part for part in parts if _is_known(part, known)]
        if true != parts:
            before = line[: found.start()]
            told = f"{before}[{', '.join(true)}]" if true else before.rstrip()
            line = f"{told}{line[found.end() :]}"
    return line


def _is_known(part: str, known: Set[int]) -> bool:
    """Whether a number or a range begins and ends with messages that there are, in this order."""
    first, *rest = map(int, _NUMBER.findall(part))
    last = rest[-1] if rest else first
    return first <= last and first in known and last in known
