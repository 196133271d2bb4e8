"""Layer: after history was replaced, restore recently used files, within a budget.

The layer takes file texts and never opens a file: the pipeline reads them if the roots allow it,
and else takes the last content that the transcript contains. Files that hold secrets come back by
name only.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from context_compaction.activity.files import holds_secrets, unsure_note
from context_compaction.activity.known_file import KnownFile
from context_compaction.activity.read_state import FileState
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText, LayerContext
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    is_list,
    is_object,
    make_message,
)
from context_compaction.messages.tool_results import result_text
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

CHANGED = "changed on disk since it was last read here"
SECRET = "may hold secrets"  # noqa: S105 - a note, no secret
UNKNOWN = "its text is not known"
_TEMPORARY = re.compile(r"(?:^|/)(?:\.?[Tt]e?mp|scratch(?:pad)?|\.cache|var/folders)/")
# A tool's number before a line, or the sign of a patch.
_LINE_MARK = re.compile(r"[ \t]{0,20}\d{1,7}(?:\t|→|: ?|\. | ?\| ?)|[+-]")


def recent_files(
    known: Mapping[str, KnownFile],
    kinds: Sequence[str] = ("read", "write", "edit"),
    number_of: Callable[[int], int | None] = lambda at: at,
) -> list[FileText]:
    """Files that the conversation used, by priority: certain texts first, the newest use first.

    Deleted files, empty files and files in temporary folders are left out.

    Args:
        known: The files as the calls leave them.
        kinds: What counts as use.
        number_of: The number in the transcript of the message at a position; None if it has none.
    """
    counts_changes = "write" in kinds or "edit" in kinds
    found: list[tuple[bool, int, FileText]] = []
    for file in known.values():
        used_at = file.touched_at if counts_changes else file.read_at
        if file.is_deleted or used_at < 0 or file.text == "" or _TEMPORARY.search(file.path):
            continue
        found.append((file.unsure_since is not None, -used_at, _text_of(file, used_at, number_of)))
    return [file for _, _, file in sorted(found, key=lambda item: item[:2])]


def _text_of(file: KnownFile, used_at: int, number_of: Callable[[int], int | None]) -> FileText:
    if holds_secrets(file.path):
        return FileText(file.path, None, SECRET, used_at=used_at, was_written=file.was_written)
    note = ""
    if file.unsure_since is not None:
        note = unsure_note(number_of(file.unsure_since))
    elif file.text is None and not file.parts:
        note = UNKNOWN
    parts = tuple((part.start_line, part.text) for part in file.parts)
    # Ranges that were read after the text became unsure are what the file says now.
    text = None if parts else file.text
    return FileText(
        path=file.path,
        text=text,
        note="" if parts and file.text is not None else note,
        parts=parts,
        focus=file.focus,
        used_at=used_at,
        was_written=file.was_written,
    )


def not_visible(files: Sequence[FileText], kept: Messages) -> list[FileText]:
    """Those of `files` whose text is not visible in the messages `kept`."""
    visible = visible_lines(kept)
    return [file for file in files if not file.has_content or not _is_visible(file, visible)]


def _is_visible(file: FileText, visible: frozenset[str]) -> bool:
    texts = [text for _, text in file.parts] if file.text is None else [file.text]
    lines = [line.strip() for text in texts for line in text.split("\n")]
    lines = [line for line in lines if any(map(str.isalnum, line))]
    # Edits inside lines change few of them.
    return sum(line not in visible for line in lines) <= 0.1 * len(lines)


def visible_lines(messages: Messages) -> frozenset[str]:
    """The lines that `messages` contain, without the marks of tools before them."""
    found: set[str] = set()
    for message in messages:
        for block in message.blocks:
            if isinstance(block, ToolResult):
                texts = [result_text(block)]
            elif isinstance(block, ToolCall):
                texts = list(_strings_in(block.arguments))
            else:
                texts = [block.text] if isinstance(block, Text) else []
            for text in texts:
                for line in text.split("\n"):
                    found.add(line.strip())
                    if mark := _LINE_MARK.match(line):
                        found.add(line[mark.end() :].strip())
    return frozenset(found)


def _strings_in(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            yield inner
        elif is_object(inner):
            waiting += inner.values()
        elif is_list(inner):
            waiting += inner


async def files_on_disk(paths: Sequence[str], read_file: ReadFile | None) -> dict[str, DiskFile]:
    """Those of `paths` that lie inside the roots and can be read, by path."""
    if read_file is None:
        return {}
    found = {path: await read_file(path) for path in paths}
    return {path: file for path, file in found.items() if file is not None}


def with_disk(
    files: Sequence[FileText],
    states: Mapping[str, FileState],
    on_disk: Mapping[str, DiskFile],
) -> list[FileText]:
    """`files` as they are on disk, if they were read there. Names without a text come last."""
    found = [_from_disk(file, states.get(file.path), on_disk.get(file.path)) for file in files]
    return sorted(found, key=lambda file: not file.has_content)


def _from_disk(file: FileText, state: FileState | None, on_disk: DiskFile | None) -> FileText:
    if on_disk is None or holds_secrets(file.path):
        return file
    is_changed = state is not None and state.is_changed
    if file.text is not None and not file.note:
        is_changed = is_changed or file.text.rstrip() != on_disk.text.rstrip()
    note = CHANGED if is_changed else ""
    return replace(file, text=on_disk.text, note=note, parts=())


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
