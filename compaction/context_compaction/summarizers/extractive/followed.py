"""Documents that the work follows without changing them: what binds of them, under their names.

A plan is mostly read once, at the beginning, where the user names it. It steers where the agent
comes back to it: where it says the words of its headings after it has read them.
"""

import posixpath
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from context_compaction.activity.file_paths import names_path
from context_compaction.activity.outline import is_prose
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.messages.model import Messages, text_of
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive.fit import Line, Place, versions
from context_compaction.summarizers.extractive.said import head_of
from context_compaction.summarizers.extractive.turns import Turn
from context_compaction.summarizers.instructions.documents import HEADING, Section, sections_of
from context_compaction.summarizers.instructions.superseded import UserInstruction
from context_compaction.summarizers.instructions.typed_text import values_of, words_of

# Of fewer headings some are spoken of by chance.
_LEAST_HEADINGS = 3
_MOST_DOCUMENTS = 2
_MOST_CHARS = 24_000
_CHARS, _WANTS = (500, 1_500), (1.0, 2.0)
_FOLLOWED = ", which the work follows, of it:"
_TOLD = re.compile(rf"^(\S.*) (\[\d+\]){_FOLLOWED}\n((?:  .+(?:\n|\Z))+)", re.MULTILINE)
_FENCED = re.compile(r"^[ \t]*```.*?^[ \t]*```[^\n]*$", re.MULTILINE | re.DOTALL)
# What is labelled is an item of the work ("WP5: Types"): the log tells what came of it.
_LABELLED = re.compile(r"#+ [A-Za-z]+[-_]?\d+\b")
_ENDS = (".", "!", "?", ":", "。", "！", "？", "：")


def followed_lines(
    place: Place,
    turns: Sequence[Turn],
    files: Mapping[str, ReplayedFile],
    asked: str,
    request: SummaryInput,
) -> Iterator[Line]:
    """The lines of the documents that the work follows, first of that which it speaks of most.

    The user has named them in what was `asked`, and the agent speaks of them in `turns` and in what
    comes later. Those that an earlier summary tells of follow: nobody reads them again.
    """
    found: dict[str, list[str]] = {}
    for path, number, text in _followed(turns, files, asked, request.later):
        sections = [one for one in sections_of(text) if one.heading and one.binding]
        found[f"{path} [{number}]"] = [_binding_of(sections, chars) for chars in _CHARS]
    for path, number, rows in _TOLD.findall(request.earlier):
        if path not in files or not files[path].is_changed:
            whole = "\n".join(map(str.strip, rows.splitlines()))
            found.setdefault(f"{path} {number}", [head_of(whole, chars) for chars in _CHARS])
    for age, (label, told) in enumerate([*found.items()][:_MOST_DOCUMENTS]):
        wants = (want + age for want in _WANTS)
        yield from versions((*place, age), f"{label}{_FOLLOWED}\n", told, wants)


def _followed(
    turns: Sequence[Turn], files: Mapping[str, ReplayedFile], asked: str, later: Messages
) -> list[tuple[str, int, str]]:
    """Path, number of the message that shows it, and text of what is followed, most first."""
    alike = Counter(map(posixpath.basename, files))  # of several "SKILL.md" none is named
    named = (
        (path, file.text or file.last_text or "")
        for path, file in files.items()
        if file.reads and not file.is_changed and is_prose(path)
        if alike[posixpath.basename(path)] == 1 and names_path(asked, path)
    )
    read = [(path, _FENCED.sub("", text[:_MOST_CHARS])) for path, text in named if text]
    if not read:
        return []
    said = [(step.number, _words(step.said)) for turn in turns for step in turn.steps]
    goes_on = (text_of(one.blocks) for one in later if one.role == "assistant")
    said += [(sys.maxsize, _words(text)) for text in goes_on]
    found: dict[str, tuple[int, int, str]] = {}  # a copy is told once
    for path, text in read:
        headings = HEADING.findall(text)
        number = _shown_at(turns, headings[0]) if headings else -1
        if number >= 0 and (times := _spoken_of(headings, said, number)) >= _LEAST_HEADINGS:
            found[text] = -times, number, path
    return [
        (path, number, text)
        for text, (_, number, path) in sorted(found.items(), key=lambda one: one[1])
    ]


def _words(text: str) -> frozenset[str]:
    return words_of(text) | values_of(text)


def _shown_at(turns: Sequence[Turn], heading: str) -> int:
    """The number of the message whose call showed the document first; -1 where none did."""
    actions = (one for turn in turns for one in turn.actions)
    return next((one.number for one in actions if heading in one.text), -1)


def _spoken_of(headings: Sequence[str], said: Sequence[tuple[int, Set[str]]], number: int) -> int:
    """How many headings the agent speaks of after `number`.

    Words that it had said before are none of the document's.
    """
    before = frozenset[str]().union(*(words for at, words in said if at <= number))
    news = [words for heading in headings if (words := _words(heading) - before)]
    later = [words for at, words in said if at > number]
    return sum(any(2 * len(new & words) >= len(new) for words in later) for new in news)


def _binding_of(sections: Sequence[Section], chars: int) -> str:
    """What binds of a document in about `chars`: its sections, first those that mostly bind.

    Of one that has no room as a whole the sentences that lay down something.
    """
    wanted = sorted(
        (_LABELLED.match(one.heading) is not None, -one.binding_share, at)
        for at, one in enumerate(sections)
    )
    rows: dict[int, str] = {}
    for _, _, at in wanted:
        for said in (sections[at].said, sections[at].binding):
            row = f"{sections[at].heading.strip('# ')}: {_joined(said)}"
            if not rows or len(row) <= chars:
                rows[at] = head_of(row, chars)
                chars -= len(row)
                break
    return "\n".join(rows[at] for at in sorted(rows))


def _joined(said: Sequence[UserInstruction]) -> str:
    return " ".join(f"{one.text}{'' if one.text.endswith(_ENDS) else '.'}" for one in said)
