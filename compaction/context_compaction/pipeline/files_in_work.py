"""The files in work: in the conversation, in the state of earlier calls, and on disk.

Earlier calls saved file states in the archive, so every process knows the same.
"""

from collections.abc import Iterator, Mapping

from context_compaction.activity.files import follow_files, holds_secrets, unsure_note
from context_compaction.activity.known_file import FileState, tracked_paths, updated_states
from context_compaction.context import CompactionContext, FilesInWork, Plan
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText
from context_compaction.messages import placeholders
from context_compaction.messages.model import tool_results
from context_compaction.messages.tool_results import newest_results
from context_compaction.summarizers.extractive.items import FileItem
from context_compaction.summarizers.instructions.own_words import OMISSION

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
    if file.is_deleted or holds_secrets(path):
        return FileText(path, "")
    if disk := files.on_disk.get(path):
        return FileText(path, disk.text, _CHANGED if state and state.is_changed else "")
    text, note = file.text, ""
    if text is None:
        text = f"\n{OMISSION}\n".join(part.text for part in file.parts)
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
