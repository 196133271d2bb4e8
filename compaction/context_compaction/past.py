"""What one call knows of the session's earlier compactions: the read state, and how it refilled.

Both stand in the receipts and nowhere else, so that they hold across calls, processes and restarts.
Pure: the pipeline reads the receipts and the disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from context_compaction import markers
from context_compaction.attribution import unknown_warning
from context_compaction.compaction import CompactResult
from context_compaction.edits import Edit, Step
from context_compaction.layer_context import FileText
from context_compaction.messages import JsonObject, Messages, make_message, text_of
from context_compaction.outcome import Verdict
from context_compaction.read_state import (
    FileState,
    FileUse,
    changed_warning,
    checked,
    refreshed,
    states_from,
    tracked_paths,
    untold,
    uses_of,
)
from context_compaction.receipt import stop_seq_of
from context_compaction.restore import not_shown, recent_files, shown_file
from context_compaction.restore_files import file_texts
from context_compaction.roots import DiskFile
from context_compaction.task import Shape, Task
from context_compaction.thrash import Refill, refill_of, thrash_warning


@dataclass(frozen=True, slots=True)
class Past:
    """The state before this call, brought up to its list.

    Attributes:
        states: The files that the conversation used, by path.
        on_disk: Those of them that lie inside the roots, as they are now.
        refill: How the context got above its trigger; None where it is below.
    """

    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    on_disk: Mapping[str, DiskFile] = field(default_factory=dict[str, DiskFile])
    refill: Refill | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The files that the list and the receipts tell of, before anybody looked at the disk."""

    uses: Mapping[str, FileUse]
    states: Mapping[str, FileState]

    @property
    def paths(self) -> list[str]:
        """Those whose content on disk matters to this call, newest use first."""
        return tracked_paths(self.uses, self.states)


def known_of(task: Task, receipts: Sequence[JsonObject]) -> Known:
    """What `task.messages` and the newest of `receipts` tell of files."""
    uses = uses_of(task.messages, task.seqs, task.settings.tool_kinds)
    return Known(uses, states_from(receipts))


def past_of(
    task: Task,
    receipts: Sequence[JsonObject],
    known: Known,
    on_disk: Mapping[str, DiskFile],
    *,
    is_over: bool,
) -> Past:
    """The state as `receipts` have it, and what `task.messages` say beyond them.

    Args:
        task: The call.
        receipts: The session's receipts of shorter lists than this one, oldest first.
        known: What the two tell of files.
        on_disk: Those that may be read, by path.
        is_over: Whether the list is above its trigger.
    """
    states = checked(known.uses, known.states, on_disk)
    if not is_over:
        return Past(states, on_disk)
    refill = refill_of(task.messages, task.seqs, receipts, count=task.count, settings=task.settings)
    return Past(states, on_disk, refill)


def files_for(past: Past, task: Task, shape: Shape) -> list[FileText]:
    """What `restore` may put back, most wanted first; nothing where no history is replaced."""
    if shape.cut is None or not task.policy.restores_files:
        return []
    settings = task.settings
    used = recent_files(task.messages, settings.tool_kinds, settings.restore_kinds)
    recent = not_shown(used, shape.cut.first_kept)
    most = shape.rung.settings.restore_files
    return file_texts(recent[:most], past.states, past.on_disk)


def noted(verdict: Verdict, past: Past, task: Task, *, may_tell: bool) -> tuple[Verdict, Past]:
    """`verdict` with a note of files that changed since they were read, each change once.

    It stands before the newest request, or after the newest results: nothing there is cached yet.
    """
    messages = verdict.draft.messages
    changed = untold(past.states, past.on_disk) if may_tell else {}
    warning = changed_warning(changed)
    if warning is None or verdict.status == "no_progress":
        return verdict, past
    if not messages or messages[-1].role != "user":
        return verdict, past
    note = make_message("user", markers.changed_files(warning))
    at = len(messages) - 1 if markers.is_request(messages[-1]) else len(messages)
    edit = Edit("changed_files", "added", None, 0, task.count.message(note))
    step = Step((*messages[:at], note, *messages[at:]), (edit,))
    draft = verdict.draft.then("changed_files", step, task.count)
    known = replace(past, states={**past.states, **changed})
    return replace(verdict, draft=draft, status="compacted"), known


def told(result: CompactResult, past: Past, task: Task) -> CompactResult:
    """`result` with what the past has to say."""
    notes = [unknown_warning(task.messages), changed_warning(past.states)]
    receipt = result.receipt
    if past.refill is not None:
        notes.append(thrash_warning(past.refill, task.settings))
        receipt = {**receipt, "refill": past.refill.as_json()}
    warnings = (*result.warnings, *(note for note in notes if note is not None))
    return replace(result, warnings=warnings, receipt={**receipt, "warnings": list(warnings)})


def kept(past: Past, task: Task, messages: Messages) -> JsonObject:
    """What the archived receipt carries to later calls; `messages` are those that go out."""
    put_back = "\n".join(text_of(m.blocks) for m in messages if markers.is_made(m))
    shown = [
        path
        for path, file in past.on_disk.items()
        if f"\n{shown_file(path, file.text)}" in put_back
    ]
    return {
        "stop_seq": stop_seq_of(task.seqs),
        "read_state": refreshed(past.states, shown, past.on_disk),
    }
