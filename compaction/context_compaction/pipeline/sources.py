"""What a plan needs besides the list: archived originals, and the files in work.

Originals come from the caller's list or the archive. File states of earlier calls are in the
archive, so every process knows the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from context_compaction import formats
from context_compaction.activity.files import follow_files, unsure_note, without_secrets
from context_compaction.activity.known_file import FileState, tracked_paths, updated_states
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import ArchivedMessage
from context_compaction.context import CompactionContext, FilesInWork, OriginalMessages, Plan
from context_compaction.errors import ArchiveDamagedError, NotFoundError
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages, text_of, tool_results
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import newest_results, with_authors
from context_compaction.summarizers.extractive.items import FileItem
from context_compaction.summarizers.extractive.render import entries_before
from context_compaction.summarizers.instructions.sentences import OMISSION

# The archived originals of earlier summaries, by the span that each summary replaces.
Archived: TypeAlias = Mapping[Span, OriginalMessages]

# So many of the newest originals behind an earlier summary are read again. For older ones the words
# of that summary stay, so that the cost of a compaction does not grow with the session.
MAX_ORIGINALS = 300
_NONE = OriginalMessages()


async def read_originals(
    context: CompactionContext, plan: Plan, archive: Archive
) -> Mapping[Span, Sequence[ArchivedMessage]]:
    """Read the newest originals of each earlier summary that `plan` replaces."""
    spans = (_own_span(context, message) for message in plan.replaced)
    return {
        span: await _read_span(span, archive, context.format) for span in spans if span is not None
    }


async def _read_span(span: Span, archive: Archive, format: str) -> Sequence[ArchivedMessage]:
    start = max(span.start_seq, span.stop_seq - MAX_ORIGINALS + 1)
    try:
        messages = await archive.read_messages(
            span.session_id, start, span.stop_seq, head=span.head
        )
    except (NotFoundError, ArchiveDamagedError):
        return []
    return [message for message in messages if message.format == format]


def parsed_originals(read: Mapping[Span, Sequence[ArchivedMessage]], format: str) -> Archived:
    """Return the originals that were read, parsed."""
    return {span: _parsed(items, format) for span, items in read.items()}


def _parsed(items: Sequence[ArchivedMessage], format: str) -> OriginalMessages:
    messages = with_authors(formats.parse([item.raw for item in items], format=format))
    numbers = (None if m.index is None else items[m.index].seq for m in messages)
    return OriginalMessages(messages, tuple(numbers))


def with_archived(
    context: CompactionContext, messages: Messages, archived: Archived
) -> Iterator[tuple[Message, OriginalMessages]]:
    """Yield each message with what it replaces: archived originals, and its text about others."""
    for message in messages:
        replaced = placeholders.originals_of(message)
        if replaced is None and not placeholders.is_request_extract(message):
            yield message, _NONE  # nearly all messages
            continue
        span = _own_span(context, message)
        found = _NONE if span is None else archived.get(span, _NONE)
        if replaced is not None:
            summary = carried_by(message)
            text = summary.body if summary else text_of(message.blocks)
            unarchived = text
            if span is not None and found.numbers:
                first = found.numbers[0] or span.start_seq
                unarchived = entries_before(text, first) if first > span.start_seq else ""
            found = replace(found, earlier=text, unarchived=unarchived)
        yield message, found


def originals_of(context: CompactionContext, plan: Plan) -> OriginalMessages:
    """Return the originals of what `plan` replaces.

    Cleared results are taken from the caller's list, and messages behind earlier summaries from the
    archive, so that facts do not erode.
    """
    parts: list[OriginalMessages] = []
    for message, found in with_archived(context, plan.replaced, plan.archived):
        if not found.earlier:
            given = message if message.index is None else context.parsed[message.index]
            full_messages = found.messages or (given,)
            numbers = (context.number_of(message),) * len(full_messages)
            found = OriginalMessages(full_messages, numbers)
        parts.append(found)
    history_count = sum(len(part.messages) for part in parts[: len(plan.history)])
    return replace(OriginalMessages.joined(*parts), history_count=history_count)


def _own_span(context: CompactionContext, message: Message) -> Span | None:
    """Return the span that a summary of this session replaces, or None.

    An extract of a long request replaces that request.
    """
    if placeholders.is_request_extract(message):
        return context.span_of((message,)) if context.number_of(message) is not None else None
    span = placeholders.originals_of(message)
    # A span without a head could belong to any branch.
    if span is None or not span.head or span.session_id != context.session.session_id:
        return None
    return span if context.is_own(message) else None


_CHANGED = "changed on disk since it was last read here"
_UNKNOWN = FileState("", "", -1, "", "", 0.0, is_changed=False)


def reports_changed_files(context: CompactionContext) -> bool:
    """Whether this call may append a note that lists files changed on disk."""
    return context.settings.list_changed_files and returns_list(context)


def returns_list(context: CompactionContext) -> bool:
    """Whether the caller sends the returned list to the model next."""
    return context.request.mode in ("auto", "micro", "full") and not context.request.prepare


def find_files(context: CompactionContext, plan: Plan) -> FilesInWork | None:
    """Return the files in work before the disk is read; None if this call needs none."""
    if not (plan.acts or context.budget.is_over or reports_changed_files(context)):
        return None
    files = follow_files(context.messages, context.settings.tool_kinds)
    # States of longer lists are skipped, so that a repeated call returns the same bytes.
    stop_seq = max(context.session.seqs, default=-1)
    earlier = (
        state.files for state in reversed(context.session.states) if state.stop_seq < stop_seq
    )
    newest = next((states for states in earlier if states is not None), ())
    return FilesInWork(files, {state.path: state for state in newest})


async def files_on_disk(
    files: FilesInWork | None, read_file: ReadFile | None
) -> dict[str, DiskFile]:
    """Return the files in work that are inside the roots and can be read, by path."""
    if files is None or read_file is None:
        return {}
    found = {path: await read_file(path) for path in tracked_paths(files.files, files.states)}
    return {path: file for path, file in found.items() if file is not None}


def with_disk(
    context: CompactionContext, files: FilesInWork | None, on_disk: Mapping[str, DiskFile]
) -> FilesInWork:
    """Return `files` with their states compared with the disk."""
    if files is None:
        return FilesInWork()
    seqs = context.session.seqs
    states = updated_states(files.files, files.states, on_disk, context.messages, seqs)
    has_baseline = reports_changed_files(context) and any(
        state.disk_sha256
        and not state.seen_sha256
        and state.seq != files.states.get(path, _UNKNOWN).seq
        for path, state in states.items()
    )
    return FilesInWork(files.files, states, on_disk, has_baseline)


def file_items(context: CompactionContext, files: FilesInWork, shift: int) -> Iterator[FileItem]:
    """Yield the files that a filled target may contain, as on disk or as the list shows them last.

    Args:
        context: The call.
        files: The files in work.
        shift: Number of messages that the record has before the list's first message.
    """
    if not (context.policy.restores_files and context.settings.restore_files):
        return
    unread = newest_results(context.messages)
    for path, file in files.files.items():
        is_shown = unread and file.read_at >= unread.start
        known = _text_of(context, files, path)
        if known.text.strip() and not is_shown:
            index = file.used_at + shift
            yield FileItem(
                path, known.text, index, file.focus, known.note, file.was_written, file.names
            )


def _text_of(context: CompactionContext, files: FilesInWork, path: str) -> FileText:
    """Return the last known text of a file, without deleted files and files with secrets."""
    file, state = files.files[path], files.states.get(path)
    if file.is_deleted:
        return FileText(path, "")
    if disk := files.on_disk.get(path):
        note = _CHANGED if state and state.is_changed else ""
        return FileText(path, without_secrets(path, disk.text), note)
    text, note = without_secrets(path, file.text or ""), ""
    if text and not file.is_whole:
        text = f"{OMISSION}\n{text}\n{OMISSION}"
    if file.unsure_since is not None:
        note = unsure_note(context.number_of(context.messages[file.unsure_since]))
    return FileText(path, text, note)


def files_to_restore(context: CompactionContext, plan: Plan) -> list[FileText]:
    """Return the files that were read, for the layer `restore`: certain ones first, then newest.

    None is restored if no history is replaced, or if the target was filled.
    """
    if plan.cut is None or plan.fills or context.request.range is not None:
        return []
    kept = plan.edited.messages[plan.cut.first_kept :]
    shown = {
        message.index
        for message in kept
        if not all(map(placeholders.seems_placeholder, tool_results(message)))
    }
    read = [
        file
        for file in plan.files.files.values()
        if file.read_at >= 0 and not file.is_deleted
        if context.messages[file.read_at].index not in shown
    ]
    read.sort(key=lambda file: (file.unsure_since is not None, -file.read_at))
    return [_text_of(context, plan.files, file.path) for file in read]
