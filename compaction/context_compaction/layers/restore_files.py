"""Layer: after history was replaced, put recently used files back, within a budget.

It takes file texts and never opens a file: the pipeline reads them, where the roots allow it, or
else takes the last content that stands in the transcript.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from context_compaction.activity.file_replay import UNSURE
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.activity.outline import outline
from context_compaction.activity.read_state import FileState
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText, FileUse
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Messages, make_message
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

CHANGED = "changed on disk since it was last read here"
FROM_TRANSCRIPT = "as last seen in the conversation"
REPLAYED = "as the calls leave it"
NOT_AT_HAND = "not at hand; read it again"
TOO_LARGE = "too large to put back whole"
NO_ROOM = "too large for the room that is left"

_PROSE = (".md", ".mdx", ".markdown", ".txt", ".rst", ".org", ".adoc")
_TASK = re.compile(r"^[ \t]*[-*] \[[ xX]\] ", re.MULTILINE)
_STEERING_USES = 3
_LINES_AROUND = 3
_FRAME_TOKENS = 80
# A plan is wanted whole, where code has an outline: so much of it comes back at any target.
_STEERING_TOKENS = 2_000
_WANTED: tuple[FileUse, ...] = ("steering", "changed", "read", "aside")
# A small file costs little more than its outline.
_SMALL_FILE_TOKENS = 250
_TEMPORARY = re.compile(r"(?:^|/)(?:\.?te?mp|scratch(?:pad)?|\.cache|var/folders)/")
_MOST_OF_ALL = 0.8


@dataclass(frozen=True, slots=True)
class RecentFile:
    """A file that the conversation used.

    Attributes:
        path: The path as the calls name it.
        seen_text: Its whole content as the calls leave it, or None.
        at: Position of the message that used it last.
        shown_at: Position of the last message from which on all of it stands; -1 where none does.
        note: Where `seen_text` is from, or why it is not known.
        is_sure: Whether nothing that the conversation tells of can have changed it otherwise.
        touched: First and last line of what was changed last, newest first.
        use: What it is to the work.
    """

    path: str
    seen_text: str | None
    at: int
    shown_at: int = -1
    note: str = NOT_AT_HAND
    is_sure: bool = False
    touched: tuple[tuple[int, int], ...] = ()
    use: FileUse = "read"


def recent_files(
    replayed: Mapping[str, ReplayedFile], kinds: Sequence[str] = ("read", "write", "edit")
) -> list[RecentFile]:
    """Files that were used, most wanted first; `not_shown` has those that a cut takes away.

    First texts that steer the work, then what the conversation changed, then what it only read,
    then scratch files and others outside of the work's folder; of each the newest first.

    Args:
        replayed: The files as the calls leave them.
        kinds: What counts as use. A change always counts as one that makes older content stale.
    """
    counts_changes = "write" in kinds or "edit" in kinds
    used = [
        file
        for file in replayed.values()
        if not file.is_deleted and (file.reads or (counts_changes and file.is_changed))
    ]
    if not counts_changes:
        used.sort(key=lambda file: -file.read_at)
        return [_recent(file, "read") for file in used]
    folder = _folder_of([file.path for file in used])
    uses: dict[str, FileUse] = {file.path: _use_of(file, folder) for file in used}
    used.sort(key=lambda file: (_WANTED.index(uses[file.path]), -file.used_at))
    return [_recent(file, uses[file.path]) for file in used]


def _use_of(file: ReplayedFile, folder: str) -> FileUse:
    if _TEMPORARY.search(file.path):
        return "aside"
    if _is_steering(file):
        return "steering"
    if not _is_inside(file.path, folder):
        return "aside"
    return "changed" if file.is_changed else "read"


def _is_inside(path: str, folder: str) -> bool:
    is_relative = not path.startswith(("/", "~", "../"))
    return path.startswith(folder) if folder else is_relative


def _folder_of(paths: Sequence[str]) -> str:
    """Where the work goes on: the folder with most files; "" where paths are relative to it."""
    paths = [path for path in paths if not _TEMPORARY.search(path)]
    absolute = [path for path in paths if path.startswith("/")]
    if 2 * len(absolute) < len(paths):
        return ""
    folder = "/"
    while True:
        below = Counter(path[len(folder) :].partition("/")[0] for path in absolute
                        if path.startswith(folder) and "/" in path[len(folder) :])  # fmt: skip
        name, files = below.most_common(1)[0] if below else ("", 0)
        if not files or files < _MOST_OF_ALL * len(absolute):
            return folder
        folder += f"{name}/"


def _recent(file: ReplayedFile, use: FileUse) -> RecentFile:
    note = NOT_AT_HAND
    if file.text is not None:
        note = f"{REPLAYED}, edits replayed: {file.edits}" if file.edits else FROM_TRANSCRIPT
        note += f"{UNSURE}{file.doubt}" if file.doubt else ""
    elif file.lost:
        note = f"{file.lost}; read it again"
    shown_at = -1 if file.text is None else file.seen_at
    return RecentFile(
        file.path, file.text, file.used_at, shown_at, _plain(note), file.is_sure, file.touched, use
    )


def _plain(note: str) -> str:
    """`note`, which may quote a command, on one line and without a bracket that would end it."""
    return " ".join(note.split()).translate({ord("("): "[", ord(")"): "]"})


def _is_steering(file: ReplayedFile) -> bool:
    """Whether it is a text that the agent wrote or came back to: a plan, a specification, notes."""
    if not file.path.lower().endswith(_PROSE) or file.text is None:
        return False
    is_checklist = _TASK.search(file.text) is not None
    return (is_checklist and file.is_changed) or file.reads + file.writes >= _STEERING_USES


def not_shown(files: Sequence[RecentFile], first_kept: int) -> list[RecentFile]:
    """Those of `files` with a text that what stays from `first_kept` on does not show."""
    return [file for file in files if file.shown_at < first_kept and file.seen_text != ""]


def restore_files(
    messages: Messages,
    *,
    count: MessageCounter,
    settings: Settings,
    files: Sequence[FileText],
    at: int,
    limit_tokens: int,
) -> Step:
    """Insert one message with `files` at position `at`; those without a text are only named.

    Args:
        messages: The list.
        count: The token counter.
        settings: `restore_files`, `restore_file_tokens`, `restore_total_tokens`.
        files: What to put back, most wanted first.
        at: Where; between a summary and what follows it.
        limit_tokens: What all messages may count afterwards.
    """
    room_tokens = min(settings.restore_total_tokens, limit_tokens - count.messages(messages))
    wanted = files[: settings.restore_files]
    chosen = _chosen(wanted, count, settings, room_tokens)
    while chosen:
        texts = [part for _, action, part in sorted(chosen) if action != "named"]
        names = [part for _, action, part in sorted(chosen) if action == "named"]
        message = make_message("user", placeholders.restored_files(texts, names))
        if count.message(message) <= room_tokens:
            edits = tuple(
                Edit("restore", action, None, 0, count.text(part), note=wanted[n].path)
                for n, action, part in sorted(chosen)
            )
            return Step((*messages[:at], message, *messages[at:]), edits)
        chosen.pop()
    return Step(messages)


# Which file, how it comes back, and its text.
_Chosen: TypeAlias = tuple[int, str, str]


def _chosen(
    files: Sequence[FileText], count: MessageCounter, settings: Settings, room_tokens: int
) -> list[_Chosen]:
    """What comes back of `files`, the most wanted first.

    First what steers the work, whole, and of what was changed how it is laid out; then as much more
    of each as there is room for.
    """
    left_tokens = room_tokens - count.message(
        make_message("user", placeholders.restored_files([""], [""]))
    )
    chosen: dict[int, tuple[str, str]] = {}
    for forms_of in (_first_forms, _forms):
        for n, file in enumerate(files):
            held_tokens = count.text(chosen[n][1]) + 1 if n in chosen else 0
            most_tokens = min(largest_tokens(file, settings), left_tokens + held_tokens)
            for action, part in forms_of(file, count, most_tokens):
                if n in chosen and action in ("named", chosen[n][0]) and part == chosen[n][1]:
                    break
                more_tokens = count.text(part) + 1 - held_tokens
                if more_tokens <= left_tokens and not (n in chosen and action == "named"):
                    chosen[n] = (action, part)
                    left_tokens -= more_tokens
                    break
    return [(n, action, part) for n, (action, part) in chosen.items()]


def largest_tokens(file: RecentFile | FileText, settings: Settings) -> int:
    """What `file` may count where it is put back whole."""
    most_tokens = settings.restore_file_tokens
    return max(most_tokens, _STEERING_TOKENS) if file.use == "steering" else most_tokens


def _first_forms(
    file: FileText, count: MessageCounter, most_tokens: int
) -> Iterator[tuple[str, str]]:
    """What is wanted of `file` before more of any other: nothing of one that was only read."""
    if file.text is None or file.use not in ("steering", "changed"):
        return
    if file.use == "steering" or count.text(file.text) <= _SMALL_FILE_TOKENS:
        yield from _whole(file, count, most_tokens)
    yield from _outline_of(file, _outline_rows(file, count, most_tokens // 2))


def _forms(file: FileText, count: MessageCounter, most_tokens: int) -> Iterator[tuple[str, str]]:
    """How `file` may be put back, the fullest first: whole, as an outline, by name."""
    if file.text is None:
        note = f" ({file.note})" if file.note else ""
        yield "named", placeholders.quoted(f"File: {file.path}{note}")
        return
    yield from _whole(file, count, most_tokens)
    if file.use == "aside":
        return
    yield from _outline_of(file, _outlined(file, count, most_tokens))
    yield "named", placeholders.quoted(f"File: {file.path} ({NO_ROOM}; read it again)")


def _whole(file: FileText, count: MessageCounter, most_tokens: int) -> Iterator[tuple[str, str]]:
    text = file.text or ""
    if count.text(text) <= most_tokens:
        note = f" ({file.note})" if file.note else ""
        whole = shown_file(file.path, text)
        yield "restored", placeholders.quoted(f"File: {file.path}{note}\n{whole}")


def _outline_of(file: FileText, body: str) -> Iterator[tuple[str, str]]:
    if not body:
        return
    size = f"{(file.text or '').count(chr(10)) + 1} lines"
    notes = "; ".join(filter(None, (file.note, f"{TOO_LARGE}: {size}")))
    text = f"Outline of: {file.path} ({notes})\n{body}\nEnd of outline: {file.path}"
    yield "outlined", placeholders.quoted(text)


def _outline_rows(file: FileText, count: MessageCounter, max_tokens: int) -> str:
    """What `file` defines, as much of it as has room."""
    return _fitting(outline(file.text or "", file.path).split("\n"), count, max_tokens)


def _outlined(file: FileText, count: MessageCounter, max_tokens: int) -> str:
    """What `file` defines, and what was changed in it last, within `max_tokens`."""
    text = file.text or ""
    rows = text.split("\n")
    parts: list[str] = []
    if half := _outline_rows(file, count, max_tokens // 2):
        parts.append(half)
    shown: list[range] = []
    for start, stop in file.touched:
        span = range(max(1, start - _LINES_AROUND), min(len(rows), stop + _LINES_AROUND) + 1)
        if any(span.start < other.stop and other.start < span.stop for other in shown):
            continue
        passage = "\n".join(rows[span.start - 1 : span.stop - 1])
        part = f"Lines {span.start}-{span.stop - 1}, changed last:\n{passage}"
        if count.text("\n".join([*parts, part])) <= max_tokens - _FRAME_TOKENS:
            parts.append(part)
            shown.append(span)
    return "\n".join(parts)


def _fitting(rows: Sequence[str], count: MessageCounter, max_tokens: int) -> str:
    """As many of the first `rows` as have room, and how many more there are."""
    kept: list[str] = []
    left_tokens = max_tokens
    for row in rows:
        left_tokens -= count.text(row) + 1
        if left_tokens < 0:
            break
        kept.append(row)
    left_out = len(rows) - len(kept)
    return "\n".join([*kept, f"… {left_out} more" if left_out else ""]).rstrip() if kept else ""


def shown_file(path: str, text: str) -> str:
    """How a restored file stands under its first line."""
    return placeholders.quoted(f"{text}\nEnd of file: {path}")


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
    """What to put back of `files`; one that nobody has the text of stays a path."""
    return [_text_of(file, states.get(file.path), on_disk.get(file.path)) for file in files]


def _text_of(file: RecentFile, state: FileState | None, on_disk: DiskFile | None) -> FileText:
    if on_disk is None:
        return FileText(file.path, file.seen_text, file.note, file.touched, file.use)
    is_changed = state is not None and state.is_changed
    if file.is_sure and file.seen_text is not None:
        is_changed = is_changed or not _same(file.seen_text, on_disk.text)
    touched = file.touched if _same(file.seen_text or "", on_disk.text) else ()
    return FileText(file.path, on_disk.text, CHANGED if is_changed else "", touched, file.use)


def _same(one: str, other: str) -> bool:
    return one.rstrip().splitlines() == other.rstrip().splitlines()
