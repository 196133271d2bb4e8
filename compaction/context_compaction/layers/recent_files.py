"""Which files a conversation used, what they are to its work, and their texts.

Files that are in work, or that steer it, are restored before others once history was replaced.
"""

import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, chain
from typing import cast

from context_compaction.activity.error_line import error_lines
from context_compaction.activity.file_paths import is_absolute, names_path
from context_compaction.activity.file_replay import NEARLY_SURE, UNSURE
from context_compaction.activity.outline import (
    functions,
    is_prose,
    is_test,
    may_define,
    names_of_code,
    parts_around,
    without_documentation,
)
from context_compaction.activity.read_state import FileState
from context_compaction.activity.replayed_file import FilePart, ReplayedFile
from context_compaction.activity.script_calls import made_call
from context_compaction.activity.tool_kinds import classify
from context_compaction.activity.work_folder import is_scratch, work_folder
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText, FileUse
from context_compaction.layers.preview import words_sought
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    tool_calls,
    tool_results,
)
from context_compaction.messages.speakers import user_texts
from context_compaction.messages.tool_results import result_text

CHANGED = "changed on disk since it was last read here"
NOT_AT_HAND = "not known as a whole"
_TASK = re.compile(r"^[ \t]*(?:[-*]|\d{1,4}[.)]) \[[^\]\n]\] ", re.MULTILINE)
OPEN_TASK = re.compile(r"^[ \t]*(?:[-*]|\d{1,4}[.)]) \[ \] .*(?:\n[ \t]+\S.*)*", re.MULTILINE)
_COMMIT = re.compile(r"\bgit\b[^\n;|&]{0,80}\bcommit\b")
# Under these names projects tell agents how to work in them.
_GUIDES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
_STEERING_USES = 3
# The user may have said so many requests ago what is to be read for the work.
_TELLING_REQUESTS = 3
# A plan is wanted whole, where code has an outline: so much of it comes back at any target.
STEERING_TOKENS = 3_000
_STEERING_CHARS = 4 * STEERING_TOKENS
# One that was just written is wanted whole up to what any file may have by default.
_DOCUMENT_CHARS = 4 * 5_000
# Of so many files used last, and of prose, the texts are followed and looked through.
NEWEST_FILES = 50
_WANTED: tuple[FileUse, ...] = ("steering", "work", "named", "read", "earlier")
_MENTIONED_LINES = 25
# Of a line what stands behind its number, or the mark of a patch.
_UNMARKED = re.compile(r"\n(?:[^\S\n]*\d+(?:\t|→|: ?|\. | ?\| ?)|[+-])(.*)")
# An edit inside of a line leaves one that stands nowhere as a whole.
FEW_NEWS = 0.1


@dataclass(frozen=True, slots=True)
class RecentFile:
    """A file that the conversation used.

    Attributes:
        path: The path as the calls name it.
        seen_text: Its whole content as the calls leave it, or its last known content, or None.
        at: Position of the message that used it last, in the list that came in.
        shown_at: That of the last message from which on all of it was contained; -1: none.
        note: Why `seen_text` may not be what it is now, or why there is none; "" where it is.
        is_sure: Whether nothing in the conversation can have changed it otherwise.
        touched: First and last line of what was changed since the last commit, newest first.
        use: What it is to the work.
        named: First and last line of the functions that the newest words name.
        sought: Of a text that steers the work words of what is next.
        parts: Where `seen_text` is None, the parts that contain the latest changes: first line and
            text.
        loose: Where it is, too, what the latest changes left in lines that are not known; of one
            whose last known content is told what changes left that this lacks.
    """

    path: str
    seen_text: str | None
    at: int
    shown_at: int = -1
    note: str = NOT_AT_HAND
    is_sure: bool = False
    touched: tuple[tuple[int, int], ...] = ()
    use: FileUse = "read"
    named: tuple[tuple[int, int], ...] = ()
    sought: tuple[str, ...] = ()
    parts: tuple[tuple[int, str], ...] = ()
    loose: tuple[str, ...] = ()

    @property
    def changes(self) -> list[str]:
        """The text of what was changed last, where the whole is not known."""
        spans = (
            "\n".join(text.split("\n")[max(0, first - at) : last + 1 - at])
            for first, last in self.touched
            for at, text in self.parts
            if at <= first <= at + text.count("\n")
        )
        return [*spans, *self.loose]


def recent_files(
    replayed: Mapping[str, ReplayedFile],
    kinds: Sequence[str] = ("read", "write", "edit"),
    messages: Messages = (),
    seqs: Sequence[int] = (),
) -> list[RecentFile]:
    """Files that were used, by priority; `not_shown` returns those that a cut removes.

    First texts that steer the work, then what is in work: what was changed since the last commit,
    under the request under which anything was changed last. Then what is named for the next step,
    what was read since, and what was changed earlier, which is seldom restored. All that may be
    stale follows what is sure, and only as what was changed in it last, but for plans that the work
    itself has written. What was only read earlier is left out, and so is what lies in a temporary
    folder or outside of where all others do. Of each the newest first.

    Args:
        replayed: The files as the calls leave them.
        kinds: What counts as use. A change always makes older content stale.
        messages: The conversation, for what is in work; without it all is.
        seqs: For each position of the list their numbers in the transcript; without it none is
            told.
    """
    counts_changes = "write" in kinds or "edit" in kinds
    used = [
        file
        for file in replayed.values()
        if not file.is_deleted and (file.reads or (counts_changes and file.is_changed))
    ]
    if not counts_changes:
        used.sort(key=lambda file: -file.read_at)
        return [_recent(file, "read", _Work(), {}) for file in used]
    folder = work_folder([file.path for file in used])
    inside = [file for file in used if _is_inside(file.path, folder)]
    work = _Work.of(messages, inside)
    found: list[tuple[ReplayedFile, FileUse]]
    found = [(file, use) for file in used if (use := _use_of(file, folder, work))]
    found.sort(key=lambda item: (_is_stale(*item), _WANTED.index(item[1]), *_rank(*item)))
    numbers = {at: seqs[m.index] for at, m in enumerate(messages) if seqs and m.index is not None}
    recent = (_recent(file, use, work, numbers) for file, use in found)
    if not messages:
        return [*recent]
    # What a repair has put in stands where the message before it came in.
    came = [*accumulate((-1 if m.index is None else m.index for m in messages), max), -1]
    return [replace(one, at=came[one.at], shown_at=came[one.shown_at]) for one in recent]


def _is_stale(file: ReplayedFile, use: FileUse) -> bool:
    """Whether what is known of `file` may mislead more than it helps."""
    return file.may_be_stale and not (use == "steering" and file.is_changed)


def _rank(file: ReplayedFile, use: FileUse) -> tuple[float, int]:
    """The newest first, tests last.

    Of what was changed earlier first what was changed most often for its size.
    """
    if use == "earlier":
        return -(file.writes - 1) / max(1, len(file.text or "")), -file.used_at
    return float(is_test(file.path)), -file.used_at


@dataclass(frozen=True, slots=True)
class _Work:
    """The requests and words that the current work refers to.

    Attributes:
        since: The request under which anything was changed last, or else used.
        newest: The newest request.
        committed: The last commit: what was changed before it is settled.
        said: What is next: the newest request, how the agent's last text ends, and the open items
            of the plan.
        told: The newest requests, which may tell the agent what to read.
        named: By path first and last line of the functions that the newest words, an open
            failure and the open items of the plan name.
    """

    since: int = -1
    newest: int = -1
    committed: int = -1
    said: str = ""
    told: str = ""
    named: Mapping[str, Sequence[tuple[int, int]]] = field(
        default_factory=dict[str, Sequence[tuple[int, int]]]
    )

    @classmethod
    def of(cls, messages: Messages, files: Sequence[ReplayedFile]) -> "_Work":
        """The work in `messages`, which use `files`."""
        requests = [at for at, message in enumerate(messages) if placeholders.is_request(message)]
        if not requests:
            return cls()
        changed_at = max((file.changed_at for file in files if file.is_changed), default=-1)
        last_at = changed_at if changed_at >= 0 else max((f.used_at for f in files), default=-1)
        since = max((at for at in requests if at < last_at), default=-1)
        asked = [text for at in requests[-_TELLING_REQUESTS:] for text in user_texts(messages[at])]
        request = "\n".join(user_texts(messages[requests[-1]]))
        # What the agent said before the request is what a short one answers.
        closing = next((text for one in reversed(messages) if (text := _spoken(one))), "")
        planned = "\n".join(
            match[0]
            for file in files
            if _is_steering(file)
            for match in OPEN_TASK.finditer(_text_of_last(file))
        )
        failure = _open_failure(messages[requests[-1] :])
        next_step = "\n".join((request, closing.rpartition("\n\n")[2], failure))
        named = _named_in(
            files,
            names_of_code(next_step),
            names_of_code(f"{closing}\n{planned}"),
        )
        for file in files:
            named[file.path] = [*_places(next_step, file), *named.get(file.path, ())]
        said = f"{next_step}\n{planned}"
        told = "\n".join(asked)
        return cls(since, requests[-1], _committed_at(messages), said, told, named)

    def is_open(self, file: ReplayedFile) -> bool:
        """Whether the last change of `file` is part of the current work and not committed."""
        return self.is_new(file.changed_at)

    def is_new(self, at: int) -> bool:
        """Whether the message `at` is part of the current work and not committed."""
        return at > max(self.since, self.committed)


def _named_in(
    files: Sequence[ReplayedFile], next_names: Set[str], other_names: Set[str]
) -> dict[str, list[tuple[int, int]]]:
    """By path first and last line of the functions named, each in the file used last.

    A long one that is no part of the next step was only mentioned.
    """
    named: dict[str, list[tuple[int, int]]] = {}
    left = {*next_names, *other_names}
    for file in sorted(files, key=lambda file: -file.used_at)[:NEWEST_FILES]:
        text = file.text or ""
        if not any(may_define(text, name) for name in left):
            continue
        rows = text.split("\n")
        found = functions(text, file.path, left)
        left -= {name for name, _, _ in found}
        named[file.path] = [
            (start, stop)
            for name, start, stop in sorted(found, key=lambda part: part[0] not in next_names)
            if name in next_names
            or len(without_documentation(rows[start - 1 : stop])) <= _MENTIONED_LINES
        ]
    return named


def _places(said: str, file: ReplayedFile) -> list[tuple[int, int]]:
    """First and last line of what lies at the lines of `file` that `said` names ("a.py:12")."""
    name = posixpath.basename(file.path)
    if file.text is None or name not in said:
        return []
    place = rf'\b{re.escape(name)}(?:", line |[:(])(\d{{1,6}})\b'
    lines = {int(line) for line in re.findall(place, said)}
    last = file.text.count("\n") + 1
    return [parts_around(file.text, file.path, at, at)[0] for at in sorted(lines) if at <= last]


def _open_failure(messages: Messages) -> str:
    """The lines that name errors in the newest results; "" where all is well."""
    newest = next((found for one in reversed(messages) if (found := tool_results(one))), ())
    return "\n".join(error_lines(result_text(result)) for result in newest)


def _spoken(message: Message) -> str:
    texts = (block.text for block in message.blocks if isinstance(block, Text))
    return "\n".join(texts).rstrip() if message.role == "assistant" else ""


def _committed_at(messages: Messages) -> int:
    """Position of the last result of a call that commits; -1 where there is none."""
    messages = with_own_ids(messages)
    answered: dict[str, int] = {}
    for at in range(len(messages) - 1, -1, -1):
        for result in tool_results(messages[at]):
            answered.setdefault(result.call_id, at)
        for call in tool_calls(messages[at]):
            if (command := classify(call).command) and _COMMIT.search(command):
                return answered.get(call.call_id, at)
    return -1


def _use_of(file: ReplayedFile, folder: str, work: _Work) -> FileUse | None:
    """The role of `file` in the work; None for one that is not restored."""
    is_inside = _is_inside(file.path, folder)
    # Hosts keep the agent's plans in a folder of their own.
    if is_scratch(file.path, folder) or not (is_inside or work.is_open(file)):
        return None
    # What the user tells the agent to read steers the work, too.
    is_text = is_prose(file.path)
    is_told = is_text and file.reads and names_path(work.told, file.path)
    if _is_steering(file) or is_told or _is_new_document(file, work):
        return "steering"
    if not is_inside:
        return None
    is_spoken_of = file.is_changed and bool(work.named.get(file.path))
    if work.is_open(file):
        return "work"
    if is_spoken_of or names_path(work.said, file.path):
        return "named"
    # Documentation that was looked up for an earlier request has told what it had to.
    is_read = file.read_at > max(file.changed_at, work.newest if is_text else work.since)
    if is_read and not is_test(file.path):
        return "read"
    return "earlier" if file.is_changed and file.text is not None else None


def _is_inside(path: str, folder: str) -> bool:
    if is_absolute(path):
        return bool(folder) and path.startswith(folder)
    return not path.startswith(("~", "../"))


def _recent(
    file: ReplayedFile, use: FileUse, work: _Work, numbers: Mapping[int, int]
) -> RecentFile:
    text = file.text
    doubt = file.doubt
    is_open = work.is_open(file)
    parts = tuple(_changed_parts(file)) if is_open else ()
    loose = [left for left in file.loose if work.is_new(left.at)]
    label = NEARLY_SURE if doubt and doubt.is_slight else UNSURE
    note = f"{label}{_since(doubt.at, numbers)}: {doubt.reason}" if doubt else ""
    if text is None:
        # Older parts than a doubt may be stale as much as a whole.
        is_unsure = doubt and not doubt.is_slight
        is_older = doubt and (parts or any(left.at < doubt.at for left in loose))
        doubts = [note] if is_unsure and is_older else []
        note = "; ".join([file.lost or NOT_AT_HAND, *doubts])
        if file.last_text is not None and use == "steering":
            # Code of an older state beside newer code misleads.
            text = file.last_text
            loose = [left for left in file.loose if left.at in file.missed]
            missed = ", ".join(f"[{numbers[at]}]" for at in file.missed if at in numbers)
            note = f"{UNSURE}: without the last changes{missed and f', {missed}'}"
    if _is_stale(file, use):
        text = None
    shown_at = -1 if text is None else file.seen_at
    parts = parts if text is None else ()
    return RecentFile(
        path=file.path,
        seen_text=text,
        at=file.used_at,
        shown_at=shown_at,
        note=_plain(note),
        is_sure=file.is_sure,
        touched=file.touched if is_open else (),
        use=use,
        named=tuple(work.named.get(file.path, ())),
        sought=tuple(words_sought(work.said)) if use == "steering" else (),
        parts=parts,
        loose=tuple(left.text for left in loose),
    )


def _changed_parts(file: ReplayedFile) -> Iterator[tuple[int, str]]:
    """First line and text of the parts of `file` in which something was changed last.

    None whose lines may have other numbers by now: they would be told as certain.
    """
    for part in file.parts if file.text is None else (FilePart(1, file.text),):
        is_changed = any(part.start_line <= at <= to <= part.stop_line for at, to in file.touched)
        if is_changed and not part.is_moved:
            yield part.start_line, part.text


def _since(at: int, numbers: Mapping[int, int]) -> str:
    return f" since [{numbers[at]}]" if at in numbers else ""


def _plain(note: str) -> str:
    """`note`, which may quote a command, on one line and without a bracket that would end it."""
    return " ".join(note.split()).translate({ord("("): "[", ord(")"): "]"})


def _text_of_last(file: ReplayedFile) -> str:
    return (file.last_text if file.text is None else file.text) or ""


def _is_steering(file: ReplayedFile) -> bool:
    """Whether the text is a plan, a specification, notes.

    That is one that the agent wrote or used repeatedly, or a list of tasks that has open ones.
    """
    text = _text_of_last(file)
    if not is_prose(file.path) or not text or len(text) > _STEERING_CHARS:
        return False
    if posixpath.basename(file.path) in _GUIDES:
        return True
    tasks = _TASK if file.is_changed else OPEN_TASK
    return tasks.search(text) is not None or file.reads + file.writes >= _STEERING_USES


def _is_new_document(file: ReplayedFile, work: _Work) -> bool:
    """Whether the work itself has just written the text: what comes next refers to it.

    A commit settles code, but not what a design or a report says.
    """
    is_known = file.text is not None and not file.may_be_stale
    is_whole = not file.reads or file.seen_at == file.changed_at  # written, or written anew
    is_written = is_known and is_whole and file.changed_at > work.since
    return is_written and is_prose(file.path) and len(file.text or "") <= _DOCUMENT_CHARS


def with_text(files: Sequence[RecentFile]) -> list[RecentFile]:
    """Those of `files` that are restored with their text, where known, not by name alone."""
    return [file for file in files if file.use != "earlier"]


def not_shown(files: Sequence[RecentFile], messages: Messages, first_kept: int) -> list[RecentFile]:
    """Those of `files` with a text that `messages` from `first_kept` on do not contain.

    A text of the work, or that steers it, may have been written there by a call that is clipped by
    now. Of what else is cleared there the messages themselves come back, as far as there is room.
    One whose text is not known is wanted where these do not use it, where its name stands, or where
    they do not show what was changed in it last: a call that is clipped shows nothing.
    """
    kept = messages[first_kept:]
    # Messages may have gone before these: they alone say where they stood.
    first = next((one.index for one in kept if one.index is not None), math.inf)

    @cache
    def lines(since: float) -> frozenset[str]:
        return lines_shown(_from_last_call(kept, since))

    # Of a long tail its end mostly has all, from the call on that wrote the first of them there.
    stays = [file.shown_at for file in files if file.use in ("steering", "work")]
    written_at = min((at for at in stays if at >= first), default=first)
    uses = [file.at for file in files if file.seen_text is None and file.changes]
    changed_at = min((at for at in uses if at >= first), default=first)

    def are_shown(changes: Sequence[str]) -> bool:
        return all(any(is_shown(text, lines(at)) for at in (changed_at, first)) for text in changes)

    return [
        file
        for file in files
        if file.seen_text != ""
        and (file.seen_text is not None or file.at < first or not are_shown(file.changes))
        and (
            file.shown_at < first
            or (
                file.use in ("steering", "work")
                and not is_shown(file.seen_text or "", lines(written_at))
            )
        )
    ]


def _from_last_call(messages: Messages, until: float) -> Messages:
    """`messages` from the last call on that came in before position `until`; else all."""
    before = (
        at
        for at in reversed(range(len(messages)))
        if (index := messages[at].index) is not None and index < until and tool_calls(messages[at])
    )
    return messages[next(before, 0) :]


def is_shown(text: str, shown: Set[str]) -> bool:
    """Whether `shown` has the lines of `text`, but for a few, as edits inside of lines leave."""
    lines = [line for line in map(str.strip, text.splitlines()) if any(map(str.isalnum, line))]
    return sum(line not in shown for line in lines) <= FEW_NEWS * len(lines)


def lines_shown(messages: Messages) -> frozenset[str]:
    """The lines that `messages` contain, those of calls and results without their marks too."""
    texts: list[str] = []
    plain: list[str] = []
    for message in messages:
        for block in message.blocks:
            if isinstance(block, ToolResult):
                texts.append(result_text(block))
            elif isinstance(block, ToolCall):
                texts += _texts_in(made_call(block).arguments)
            elif isinstance(block, Text):
                plain += block.text.splitlines()
    marked = [line for text in texts for line in text.splitlines()]
    unmarked = _UNMARKED.findall("\n".join(["", *marked]))
    return frozenset(map(str.strip, chain(plain, marked, unmarked)))


def _texts_in(given: object) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, dict):
        yield from chain.from_iterable(map(_texts_in, cast("dict[str, object]", given).values()))
    elif isinstance(given, list):
        yield from chain.from_iterable(map(_texts_in, cast("list[object]", given)))


async def files_on_disk(paths: Sequence[str], read_file: ReadFile | None) -> dict[str, DiskFile]:
    """Those of `paths` that lie inside the roots and can be read, by path."""
    if read_file is None:
        return {}
    found = {path: await read_file(path) for path in paths}
    return {path: file for path, file in found.items() if file is not None}


def file_texts(
    files: Sequence[RecentFile],
    states: Mapping[str, FileState],
    on_disk: Mapping[str, DiskFile],
) -> list[FileText]:
    """What to restore of `files`; one without a known text stays a path."""
    return [_text_of(file, states.get(file.path), on_disk.get(file.path)) for file in files]


def _text_of(file: RecentFile, state: FileState | None, on_disk: DiskFile | None) -> FileText:
    if on_disk is None:
        return FileText(
            path=file.path,
            text=file.seen_text,
            note=file.note,
            touched=file.touched,
            use=file.use,
            named=file.named,
            sought=file.sought,
            parts=file.parts,
            loose=file.loose,
        )
    is_changed = state is not None and state.is_changed
    if file.is_sure and file.seen_text is not None:
        is_changed = is_changed or not _same(file.seen_text, on_disk.text)
    is_known = _same(file.seen_text or "", on_disk.text)
    touched, named = (file.touched, file.named) if is_known else ((), ())
    note = CHANGED if is_changed else ""
    return FileText(file.path, on_disk.text, note, touched, file.use, named, file.sought)


def _same(one: str, other: str) -> bool:
    return one.rstrip().splitlines() == other.rstrip().splitlines()
