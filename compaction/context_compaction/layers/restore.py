"""Layer: restore recently used files within a budget after history was replaced.

The layer takes file contents and never opens a file. The pipeline reads files inside the roots, and
otherwise uses the last content in the transcript. Files that may contain secrets are only named.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from context_compaction.activity.files import holds_secrets, unsure_note
from context_compaction.activity.known_file import FileState, KnownFile
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText, LayerContext
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Message, Messages, make_message, tool_results
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

CHANGED = "changed on disk since it was last read here"
SECRET = "may contain secrets"  # noqa: S105 - a note, not a secret
UNKNOWN = "content unknown"
_TEMPORARY_FOLDERS = frozenset({
    "tmp", "temp", "Tmp", "Temp", ".tmp", ".temp", "scratch", "scratchpad", ".cache",
})  # fmt: skip
# A smaller part of a file is not informative.
_MIN_PART_TOKENS = 80
# For line numbers and line breaks of a partial file.
_PART_FRAME_TOKENS = 24
_MAX_NAMED_FILES = 4


def recent_files(
    known: Mapping[str, KnownFile],
    messages: Messages,
    kinds: Sequence[str] = ("read", "write", "edit"),
    number_of: Callable[[int], int | None] = lambda index: index,
) -> list[FileText]:
    """Return the files that the conversation used: certain contents first, then newest use first.

    Deleted files, empty files and files in temporary folders are omitted.

    Args:
        known: The files after all calls in `messages`.
        messages: The conversation.
        kinds: Kinds of tools that count as use.
        number_of: Returns the number in the transcript of the message at an index; None if it has
            none.
    """
    counts_changes = "write" in kinds or "edit" in kinds
    ranked: list[tuple[bool, int, FileText]] = []
    for file in known.values():
        used_at = file.used_at if counts_changes else file.read_at
        if file.is_deleted or used_at < 0 or file.text == "" or _is_temporary(file.path):
            continue
        note = ""
        if file.unsure_since is not None:
            note = unsure_note(number_of(file.unsure_since))
        elif file.text is None and not file.parts:
            note = UNKNOWN
        text = FileText(file.path, file.text, note, focus=file.focus)
        if file.parts:
            # Ranges that were read after the content became unsure are certain.
            parts = tuple((part.start_line, part.text) for part in file.parts)
            note = note if file.text is None else ""
            text = FileText(file.path, None, note, parts, file.focus)
        if holds_secrets(file.path):
            text = FileText(file.path, None, SECRET)
        shown_at = next((index for index in (file.read_at, file.written_at) if index >= 0), used_at)
        text = replace(text, shown_in=messages[shown_at].index)
        ranked.append((file.unsure_since is not None, -used_at, text))
    return [file for _, _, file in sorted(ranked, key=lambda item: item[:2])]


def _is_temporary(path: str) -> bool:
    folders = path.split("/")[:-1]
    return not _TEMPORARY_FOLDERS.isdisjoint(folders) or "/var/folders/" in f"/{path}"


def not_visible(files: Sequence[FileText], messages: Messages) -> list[FileText]:
    """Return the files that no result in `messages` shows."""
    shown = {
        message.index
        for message in messages
        if not all(map(placeholders.seems_placeholder, tool_results(message)))
    }
    return [file for file in files if file.shown_in not in shown]


async def files_on_disk(paths: Sequence[str], read_file: ReadFile | None) -> dict[str, DiskFile]:
    """Return the files at `paths` that are inside the roots and can be read, by path."""
    if read_file is None:
        return {}
    files = {path: await read_file(path) for path in paths}
    return {path: file for path, file in files.items() if file is not None}


def with_disk_content(
    files: Sequence[FileText], states: Mapping[str, FileState], on_disk: Mapping[str, DiskFile]
) -> list[FileText]:
    """Return `files` with the content on disk if it was read. Files without content come last."""
    updated: list[FileText] = []
    for file in files:
        disk, state = on_disk.get(file.path), states.get(file.path)
        if disk is not None and not holds_secrets(file.path):
            note = CHANGED if state is not None and state.is_changed else ""
            file = replace(file, text=disk.text, note=note, parts=())
        updated.append(file)
    return sorted(updated, key=lambda file: not file.has_content)


def restore_files(messages: Messages, context: LayerContext) -> Step:
    """Insert one message with the files at `files_at`. Files without content are only named."""
    count, index = context.count, context.files_at
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
            return Step((*messages[:index], message, *messages[index:]), edits)
        chosen.pop()
    return Step(messages)


def _message_of(chosen: Sequence[tuple[str, str, str]]) -> Message:
    texts = [text for _, action, text in chosen if action != "named"]
    names = [text for _, action, text in chosen if action == "named"]
    return make_message("user", placeholders.restored_files(texts, names))


def _chosen(
    files: Sequence[FileText], count: MessageCounter, settings: Settings, room_tokens: int
) -> list[tuple[str, str, str]]:
    """Return path, action and text of each file that fits, by priority. Some are only named."""
    remaining_tokens = room_tokens - count.message(_message_of([("", "restored", "")]))
    chosen: list[tuple[str, str, str]] = []
    named: list[FileText] = []
    for file in files:
        max_tokens = min(settings.restore_file_tokens, remaining_tokens)
        may_restore = file.has_content and len(chosen) < settings.restore_files
        action, text = _restored(file, count, max_tokens) if may_restore else ("", "")
        size_tokens = count.text(text) + 1
        if text and size_tokens <= remaining_tokens:
            chosen.append((file.path, action, text))
            remaining_tokens -= size_tokens
        else:
            named.append(file)
    for file in named[:_MAX_NAMED_FILES]:
        name = placeholders.quoted(f"{file.path} ({file.note})" if file.note else file.path)
        remaining_tokens -= count.text(f", {name}")
        if remaining_tokens >= 0:
            chosen.append((file.path, "named", name))
    return chosen


def _restored(file: FileText, count: MessageCounter, max_tokens: int) -> tuple[str, str]:
    """Return the action, and the whole file or the lines around its last edit; "" if none fit."""
    if file.text is not None and count.text(file.text) <= max_tokens:
        return "restored", placeholders.restored_file(file.path, file.text, file.note)
    if max_tokens < _MIN_PART_TOKENS:
        return "", ""
    parts = file.parts if file.text is None else ((1, file.text),)
    label = f"Parts of: {file.path}{f' ({file.note})' if file.note else ''}"
    remaining_tokens = max_tokens - count.text(label) - _PART_FRAME_TOKENS
    texts: list[str] = []
    for first_line, text in reversed(parts):  # the last part is the newest
        lines = text.split("\n")
        focus = text.count("\n", 0, file.focus) if file.text is not None else 0
        span = _lines_around(lines, focus, count, remaining_tokens)
        if not span:
            break
        part = "\n".join(lines[span.start : span.stop])
        part = f"Lines {first_line + span.start}-{first_line + span.stop - 1}:\n{part}"
        texts.append(part)
        remaining_tokens -= count.text(part) + 1
    if not texts:
        return "", ""
    return "outlined", placeholders.quoted("\n".join([label, *reversed(texts)]))


def _lines_around(
    lines: Sequence[str], focus: int, count: MessageCounter, max_tokens: int
) -> range:
    """Return the range of lines around line `focus` that fit, equally far in both directions."""
    start = stop = min(focus, len(lines))
    while start > 0 or stop < len(lines):
        is_before = start > 0 and (focus - start < stop - focus or stop == len(lines))
        max_tokens -= count.text(lines[start - 1 if is_before else stop]) + 1
        if max_tokens < 0:
            break
        start, stop = (start - 1, stop) if is_before else (start, stop + 1)
    return range(start, stop)
