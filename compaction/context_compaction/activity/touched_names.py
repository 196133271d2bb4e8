"""Which functions a change of a file touched or added, by name; only what is sure to be one.

A call that edits gives a few lines. The lines that it changed are sought in what is known of the
file, whose functions around them are named; where they are not there, or more than once, the
functions that the new lines define and the old ones do not, or otherwise.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from context_compaction.activity.file_changes import FileChange, Inserts, Patches, Replaces, Writes
from context_compaction.activity.file_parts import same_ends
from context_compaction.activity.outline import functions
from context_compaction.activity.replayed_file import ReplayedFile

# Words that a definition without a name ends with.
_NAMELESS = frozenset({"class", "constructor", "def", "default", "fn", "func", "function"})
# A text with its functions: name, first and last line.
_Outlined: TypeAlias = tuple[str, list[tuple[str, int, int]]]


def touched_in(
    changes: Iterable[FileChange],
    names: Mapping[str, str],
    files: Mapping[str, ReplayedFile],
    most_chars: int,
) -> dict[str, str]:
    """By path the name of a file with the functions that `changes` touched or added.

    Of a file that was written whole none are named, nor where all would be more than `most_chars`.
    """
    by_path: dict[str, list[FileChange]] = {}
    for made in changes:
        by_path.setdefault(made.path, []).append(made)
    told: dict[str, str] = {}
    for path, all_made in by_path.items():
        texts = [(text, functions(text, path)) for text in _known_texts(files.get(path))]
        found = dict.fromkeys(name for made in all_made for name in _touched(made, texts))
        most_chars -= sum(map(len, found))
        if found and path in names and most_chars >= 0:
            told[path] = f"{names[path]} ({', '.join(found)})"
    return told


def _known_texts(known: ReplayedFile | None) -> list[str]:
    if known is None:
        return []
    return [part.text for part in known.parts] if known.text is None else [known.text]


def _touched(made: FileChange, texts: Sequence[_Outlined]) -> Iterator[str]:
    """The functions that `made` touched or added, in the `texts` that are known of its file."""
    for old, new in _replaced(made):
        inside = [one for one in texts if new.strip() and one[0].count(new) == 1]
        found = _around(inside[0], old, new) if len(inside) == 1 else _defined(old, new, made.path)
        yield from (name for name in found if name not in _NAMELESS)


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


def _around(known: _Outlined, old: str, new: str) -> list[str]:
    """The innermost functions that the lines of `new` which are not in `old` are in."""
    text, defined = known
    before, after = old.split("\n"), new.split("\n")
    head, tail = same_ends(before, after)
    start = text.count("\n", 0, text.index(new)) + 1
    first, last = start + head, start + len(after) - tail - 1
    # Where lines were only left out, those around the gap are of what they were left out of.
    first, last = (first, last) if first <= last else (first - 1, first)
    hit = [one for one in defined if one[1] <= last and first <= one[2]]
    return [
        name
        for name, begin, end in hit
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for _, b, e in hit)
    ]


def _defined(old: str, new: str, path: str) -> list[str]:
    """The functions that `new` defines, and `old` does not or otherwise."""
    before = set(_bodies(old, path))
    return [name for name, body in _bodies(new, path) if (name, body) not in before]


def _bodies(text: str, path: str) -> list[tuple[str, str]]:
    rows = text.split("\n")
    return [
        (name, "\n".join(rows[start - 1 : stop]).rstrip())
        for name, start, stop in functions(text, path)
    ]
