"""Which functions a change of a file touched, added or removed, by name; only what is sure to be.

A call that edits gives a few lines. They are put back in what is known of the file, and the
functions before and after compared; of lines that are not there, or more than once, the functions
that these lines define themselves. A function that stands in them unchanged is not named.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from context_compaction.activity.file_changes import FileChange, Inserts, Patches, Replaces, Writes
from context_compaction.activity.outline import functions
from context_compaction.activity.replayed_file import ReplayedFile

# Words that a definition without a name ends with.
_NAMELESS = frozenset({"class", "constructor", "def", "default", "fn", "func", "function"})
# What a function in Python has further out than its lines: the rest of its head.
_HEAD = re.compile(r"[])}@]|(?:async +)?def\b|class\b")
# Where none of these stands, what looks like a definition may be a call.
_KEYWORD = re.compile(r"\b(?:def|fn|func|function)\b")

# Functions in order: name and lines.
_Bodies: TypeAlias = list[tuple[str, str]]


def touched_in(
    changes: Iterable[FileChange],
    names: Mapping[str, str],
    files: Mapping[str, ReplayedFile],
    most_chars: int,
) -> dict[str, str]:
    """By path the name of a file with the functions that `changes` touched, added or removed.

    Of a file that was written whole none are named, nor where all would be more than `most_chars`.
    """
    by_path: dict[str, list[FileChange]] = {}
    for made in changes:
        by_path.setdefault(made.path, []).append(made)
    told: dict[str, str] = {}
    for path, all_made in by_path.items():
        found = dict.fromkeys(_touched(path, all_made, _known_texts(files.get(path))))
        most_chars -= sum(map(len, found))
        if found and path in names and most_chars >= 0:
            told[path] = f"{names[path]} ({', '.join(found)})"
    return told


def _known_texts(known: ReplayedFile | None) -> list[str]:
    if known is None:
        return []
    return [part.text for part in known.parts] if known.text is None else [known.text]


def _touched(path: str, changes: Sequence[FileChange], texts: Sequence[str]) -> Iterator[str]:
    """The functions that `changes` touched, added or removed, in the `texts` known of the file."""
    before, apart = list(texts), list[tuple[str, str]]()
    for old, new in reversed([pair for made in changes for pair in _replaced(made)]):
        inside = [n for n, text in enumerate(before) if new.strip() and text.count(new) == 1]
        if len(inside) == 1:
            before[inside[0]] = before[inside[0]].replace(new, old)
        else:
            apart.append((old, new))
    pairs = [*zip(before, texts, strict=True), *reversed(apart)]
    for n, (old, new) in enumerate(pairs):
        if old == new:
            continue
        earlier, later = _bodies(old, path), _bodies(new, path)
        if n >= len(texts):
            earlier, later = _as_far(earlier, later), _as_far(later, earlier)
        left = Counter(earlier)
        left.subtract(later)
        yield from (name for name, body in later if left[name, body] < 0)
        # What was moved is not gone, nor a definition that only begins in what stands there.
        gone = dict.fromkeys(name for name, body in earlier if _KEYWORD.search(body))
        yield from (
            f"removed {name}" for name in gone if not any(name in there for _, there in pairs)
        )


def _as_far(bodies: _Bodies, others: _Bodies) -> _Bodies:
    """`bodies`, but of the function that the `others` break off in no more than these tell."""
    if not bodies or not others or bodies[-1][0] == others[-1][0]:
        return bodies
    name, told = others[-1]
    return [(n, told if n == name and body.startswith(told) else body) for n, body in bodies]


def _replaced(made: FileChange) -> Iterator[tuple[str, str]]:
    """The old and the new lines of each part of a change."""
    match made:
        case Replaces(old=old, new=new):
            yield old, new
        case Inserts(text=text) | Writes(text=text, appends=True):
            yield "", text
        case Patches(hunks=hunks):
            yield from (("\n".join(hunk.old), "\n".join(hunk.new)) for hunk in hunks)
        case _:
            pass


def _bodies(text: str, path: str) -> _Bodies:
    """The functions that `text` defines, with the lines of each that are of no other within it."""
    rows = text.split("\n")
    found = [one for one in functions(text, path) if one[0] not in _NAMELESS]
    owners: dict[int, int] = {}
    for at, (_, start, stop) in enumerate(found):
        last = _last_line(rows, start, stop) if path.endswith(".py") else stop
        owners.update(dict.fromkeys(range(start, last + 1), at))
    own: list[list[str]] = [[] for _ in found]
    for number, at in owners.items():
        if rows[number - 1].strip():
            own[at].append(rows[number - 1])
    return [(name, "\n".join(lines)) for (name, _, _), lines in zip(found, own, strict=True)]


def _last_line(rows: Sequence[str], start: int, stop: int) -> int:
    """The last line of a function in Python: one as far out as its first is not its own."""
    out = _indent(rows[start - 1])
    below = (n for n in range(start, stop) if rows[n].strip() and _indent(rows[n]) <= out)
    return next((n for n in below if not _HEAD.match(rows[n].strip())), stop)


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())
