"""The files in work: in the conversation, in the state of earlier calls, and on disk.

Earlier calls saved file states in the archive, so every process knows the same.
"""

from collections.abc import Iterator, Mapping

from context_compaction.activity.files import follow_files, holds_secrets, unsure_note
from context_compaction.activity.known_file import FileState, tracked_paths, updated_states
from context_compaction.context import CompactionContext, FilesInWork, Plan
from context_compaction.file_access import DiskFile
from context_compaction.layers.base import FileText
from context_compaction.layers.restore import (
    CHANGED,
    not_visible,
    recent_files,
    with_disk_content,
)
from context_compaction.messages.tool_results import newest_results
from context_compaction.summarizers.extractive.items import FileItem
from context_compaction.summarizers.instructions.own_words import OMISSION

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


def paths_to_read(files: FilesInWork | None) -> list[str]:
    """Return the paths whose content on disk matters to this call, most recently used first."""
    return list(tracked_paths(files.files, files.states)) if files else []


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
        text, note = file.text, ""
        if text is None:
            text = f"\n{OMISSION}\n".join(part.text for part in file.parts)
        if file.unsure_since is not None:
            note = unsure_note(context.number_of(context.messages[file.unsure_since]))
        if disk := files.on_disk.get(path):
            state = files.states.get(path)
            text, note = disk.text, CHANGED if state and state.is_changed else ""
        is_shown = unread and file.read_at >= unread.start
        if text.strip() and not (file.is_deleted or is_shown or holds_secrets(path)):
            index = file.used_at + shift
            yield FileItem(path, text, index, file.focus, note, file.was_written, file.names)


def files_to_restore(context: CompactionContext, plan: Plan) -> list[FileText]:
    """Return files that the layer `restore` may restore, highest priority first.

    None is restored if no history is replaced.
    """
    settings = plan.level.settings
    if plan.cut is None or plan.fills or context.request.range is not None:
        return []
    if not (settings.restore_files and context.policy.restores_files):
        return []
    recent = recent_files(
        plan.files.files,
        context.messages,
        context.settings.restore_kinds,
        lambda index: context.number_of(context.messages[index]),
    )
    hidden = not_visible(recent, plan.edited.messages[plan.cut.first_kept :])
    return with_disk_content(hidden, plan.files.states, plan.files.on_disk)
