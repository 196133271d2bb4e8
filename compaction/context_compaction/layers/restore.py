"""Layer: after history was replaced, restore recently used files, within a budget.

The layer takes file texts and never opens a file: the pipeline reads them if the roots allow it,
and else takes the last content that the transcript contains. Files that hold secrets come back by
name only.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from context_compaction.activity.files import holds_secrets, unsure_note
from context_compaction.activity.known_file import FileState, KnownFile
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText, LayerContext
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    make_message,
    tool_results,
)
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

CHANGED = "changed on disk since it was last read here"
SECRET = "may hold secrets"  # noqa: S105 - a note, no secret
UNKNOWN = "content unknown"
_TEMPORARY = re.compile(r"(?:^|/)(?:\.?[Tt]e?mp|scratch(?:pad)?|\.cache|var/folders)/")


def recent_files(
    known: Mapping[str, KnownFile],
    messages: Messages,
    kinds: Sequence[str] = ("read", "write", "edit"),
    number_of: Callable[[int], int | None] = lambda at: at,
) -> list[FileText]:
    """Files that the conversation used, by priority: certain texts first, the newest use first.

    Deleted files, empty files and files in temporary folders are left out.

    Args:
        known: The files as the calls in `messages` leave them.
        messages: The conversation.
        kinds: What counts as use.
        number_of: The number in the transcript of the message at a position; None if it has none.
    """
    counts_changes = "write" in kinds or "edit" in kinds
    found: list[tuple[bool, int, FileText]] = []
    for file in known.values():
        used_at = file.used_at if counts_changes else file.read_at
        if file.is_deleted or used_at < 0 or file.text == "" or _TEMPORARY.search(file.path):
            continue
        note = ""
        if file.unsure_since is not None:
            note = unsure_note(number_of(file.unsure_since))
        elif file.text is None and not file.parts:
            note = UNKNOWN
        text = FileText(file.path, file.text, note, focus=file.focus)
        if file.parts:
            # Ranges that were read after the text became unsure are what the file says now.
            parts = tuple((part.start_line, part.text) for part in file.parts)
            note = note if file.text is None else ""
            text = FileText(file.path, None, note, parts, file.focus)
        if holds_secrets(file.path):
            text = FileText(file.path, None, SECRET)
        shown_at = next((at for at in (file.read_at, file.written_at) if at >= 0), used_at)
        text = replace(text, shown_in=messages[shown_at].index)
        found.append((file.unsure_since is not None, -used_at, text))
    return [file for _, _, file in sorted(found, key=lambda item: item[:2])]


def not_visible(files: Sequence[FileText], kept: Messages) -> list[FileText]:
    """Those of `files` that no result in the messages `kept` shows."""
    shown = {
        message.index
        for message in kept
        if not all(map(placeholders.seems_placeholder, tool_results(message)))
    }
    return [file for file in files if file.shown_in not in shown]


async def files_on_disk(paths: Sequence[str], read_file: ReadFile | None) -> dict[str, DiskFile]:
    """Those of `paths` that lie inside the roots and can be read, by path."""
    if read_file is None:
        return {}
    found = {path: await read_file(path) for path in paths}
    return {path: file for path, file in found.items() if file is not None}


def with_disk_content(
    files: Sequence[FileText],
    states: Mapping[str, FileState],
    on_disk: Mapping[str, DiskFile],
) -> list[FileText]:
    """`files` as they are on disk, if they were read there. Names without a text come last."""
    found: list[FileText] = []
    for file in files:
        disk, state = on_disk.get(file.path), states.get(file.path)
        if disk is not None and not holds_secrets(file.path):
            note = CHANGED if state is not None and state.is_changed else ""
            file = replace(file, text=disk.text, note=note, parts=())
        found.append(file)
    return sorted(found, key=lambda file: not file.has_content)


def restore_files(messages: Messages, context: LayerContext) -> Step:
    """Insert one message with the files at `files_at`; those without a text are only named."""
    count, at = context.count, context.files_at
    room_tokens = min(
        context.settings.restore_total_tokens, context.limit_tokens - count.messages(messages)
    )
    chosen = _chosen(context.files, count, context.settings, room_tokens) if context.files else []
    while chosen:
        message = _message_of(chosen)
        if count.message(message) <= room_tokens:
            edits = tuple(
                Edit("restore", action, None, 0, count.text(text), note=path)
                for path, action, text in chosen
            )
            return Step((*messages[:at], message, *messages[at:]), edits)
        chosen.pop()
    return Step(messages)


def _message_of(chosen: Sequence[tuple[str, str, str]]) -> Message:
    texts = [text for _, action, text in chosen if action != "named"]
    names = [text for _, action, text in chosen if action == "named"]
    return make_message("user", placeholders.restored_files(texts, names))


def _chosen(
    files: Sequence[FileText], count: MessageCounter, settings: Settings, room_tokens: int
) -> list[tuple[str, str, str]]:
    """What is restored of `files`, by priority: path, action ("restored" …), text."""
    left_tokens = room_tokens - count.message(_message_of([("", "restored", "")]))
    chosen: list[tuple[str, str, str]] = []
    named: list[FileText] = []
    for file in files:
        most_tokens = min(settings.restore_file_tokens, left_tokens)
        is_wanted = file.has_content and len(chosen) < settings.restore_files
        action, text = _form_of(file, count, most_tokens) if is_wanted else ("", "")
        size_tokens = count.text(text) + 1
        if text and size_tokens <= left_tokens:
            chosen.append((file.path, action, text))
            left_tokens -= size_tokens
        else:
            named.append(file)
    for file in named[:4]:
        name = placeholders.quoted(f"{file.path} ({file.note})" if file.note else file.path)
        left_tokens -= count.text(f", {name}")
        if left_tokens >= 0:
            chosen.append((file.path, "named", name))
    return chosen


def _form_of(file: FileText, count: MessageCounter, most_tokens: int) -> tuple[str, str]:
    """The file whole, or the lines around its last edit; an action and a text, "" if none fits."""
    if file.text is not None and count.text(file.text) <= most_tokens:
        return "restored", placeholders.restored_file(file.path, file.text, file.note)
    # A part of fewer tokens says nothing.
    if most_tokens < 80:
        return "", ""
    parts = file.parts if file.text is None else ((1, file.text),)
    label = f"Parts of: {file.path}{f' ({file.note})' if file.note else ''}"
    left_tokens = most_tokens - count.text(label) - 24
    texts: list[str] = []
    for start, text in reversed(parts):  # the last one was read or written last
        rows = text.split("\n")
        focus = text.count("\n", 0, file.focus) if file.text is not None else 0
        span = _rows_around(rows, focus, count, left_tokens)
        if not span:
            break
        part = "\n".join(rows[span.start : span.stop])
        part = f"Lines {start + span.start}-{start + span.stop - 1}:\n{part}"
        texts.append(part)
        left_tokens -= count.text(part) + 1
    if not texts:
        return "", ""
    return "outlined", placeholders.quoted("\n".join([label, *reversed(texts)]))


def _rows_around(rows: Sequence[str], focus: int, count: MessageCounter, most_tokens: int) -> range:
    """The rows around row `focus` that fit: as far before it as after it."""
    start = stop = min(focus, len(rows))
    while start > 0 or stop < len(rows):
        is_before = start > 0 and (focus - start < stop - focus or stop == len(rows))
        most_tokens -= count.text(rows[start - 1 if is_before else stop]) + 1
        if most_tokens < 0:
            break
        start, stop = (start - 1, stop) if is_before else (start, stop + 1)
    return range(start, stop)
