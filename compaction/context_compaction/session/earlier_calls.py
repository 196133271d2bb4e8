"""What one call knows of the session's earlier compactions: the read state, and how it refilled.

Both stand in the states that calls leave, and nowhere else. Pure: the pipeline reads those and the
disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from context_compaction.activity.read_state import (
    FileState,
    FileUse,
    changed_warning,
    checked,
    refreshed,
    tracked_paths,
    untold,
    uses_of,
)
from context_compaction.context import CompactionContext, Plan, SummaryText, Validation
from context_compaction.file_access import DiskFile
from context_compaction.layers.base import FileText
from context_compaction.layers.restore_files import file_texts, not_shown, recent_files, shown_file
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import made_in, unknown_warning
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Messages, make_message, text_of
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session.identify import repeat_key, stop_seq_of
from context_compaction.session.saved_summary import summary_to_save
from context_compaction.session.state import Filling, ModelCall, Rejection, SessionState
from context_compaction.session.thrash import RefillStats, refill_stats, thrash_warning


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """The state before this call, brought up to its list.

    Attributes:
        states: The files that the conversation used, by path.
        on_disk: Those of them that lie inside the roots, as they are now.
        refill: How the context got above its trigger; None where it is below.
    """

    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    on_disk: Mapping[str, DiskFile] = field(default_factory=dict[str, DiskFile])
    refill: RefillStats | None = None


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that the list and earlier calls tell of, before anybody looked at the disk."""

    uses: Mapping[str, FileUse]
    states: Mapping[str, FileState]

    @property
    def paths(self) -> list[str]:
        """Those whose content on disk matters to this call, newest use first."""
        return tracked_paths(self.uses, self.states)


def known_files(context: CompactionContext, states: Sequence[SessionState]) -> KnownFiles:
    """What `context.messages` and the newest of `states` tell of files."""
    uses = uses_of(context.messages, context.seqs, context.settings.tool_kinds)
    newest = next((s.files for s in reversed(states) if s.files is not None), ())
    return KnownFiles(uses, {file.path: file for file in newest})


def earlier_calls_of(
    context: CompactionContext,
    earlier: Sequence[SessionState],
    known: KnownFiles,
    on_disk: Mapping[str, DiskFile],
    *,
    is_over: bool,
) -> EarlierCalls:
    """The state as `earlier` calls left it, and what `context.messages` say beyond them.

    Args:
        context: The call.
        earlier: What the calls with shorter lists than this one left, oldest first.
        known: What the two tell of files.
        on_disk: Those that may be read, by path.
        is_over: Whether the list is above its trigger.
    """
    states = checked(known.uses, known.states, on_disk)
    if not is_over:
        return EarlierCalls(states, on_disk)
    refill = refill_stats(
        context.messages, context.seqs, earlier, count=context.count, settings=context.settings
    )
    return EarlierCalls(states, on_disk, refill)


def files_for(past: EarlierCalls, context: CompactionContext, plan: Plan) -> list[FileText]:
    """What `restore` may put back, most wanted first; nothing where no history is replaced."""
    if plan.cut is None or not context.policy.restores_files:
        return []
    settings = context.settings
    used = recent_files(context.messages, settings.tool_kinds, settings.restore_kinds)
    recent = not_shown(used, plan.cut.first_kept)
    most = plan.level.settings.restore_files
    return file_texts(recent[:most], past.states, past.on_disk)


def noted(
    validation: Validation, past: EarlierCalls, context: CompactionContext, *, may_tell: bool
) -> tuple[Validation, EarlierCalls]:
    """`validation` with a note of files that changed since they were read, each change once.

    It stands before the newest request, or after the newest results: nothing there is cached yet.
    """
    messages = validation.edited.messages
    changed = untold(past.states, past.on_disk) if may_tell else {}
    warning = changed_warning(changed)
    if warning is None or validation.status == "no_progress":
        return validation, past
    if not messages or messages[-1].role != "user":
        return validation, past
    note = make_message("user", placeholders.changed_files(warning))
    at = len(messages) - 1 if placeholders.is_request(messages[-1]) else len(messages)
    edit = Edit("changed_files", "added", None, 0, context.count.message(note))
    step = Step((*messages[:at], note, *messages[at:]), (edit,))
    edited = validation.edited.then("changed_files", step, context.count)
    known = replace(past, states={**past.states, **changed})
    return replace(validation, edited=edited, status="compacted"), known


def with_warnings(
    result: CompactResult, past: EarlierCalls, context: CompactionContext
) -> CompactResult:
    """`result` with what the past has to say."""
    notes = [unknown_warning(context.messages), changed_warning(past.states)]
    receipt = result.receipt
    if past.refill is not None:
        notes.append(thrash_warning(past.refill, context.settings))
        receipt = {**receipt, "refill": past.refill.as_json()}
    warnings = (*result.warnings, *(note for note in notes if note is not None))
    return replace(result, warnings=warnings, receipt={**receipt, "warnings": list(warnings)})


def state_after(
    past: EarlierCalls,
    context: CompactionContext,
    plan: Plan,
    words: SummaryText,
    result: CompactResult,
    messages: Messages,
    *,
    wishes: CompactRequest,
    rejection: Rejection | None,
    now_seconds: float,
) -> SessionState:
    """What this call leaves for later ones.

    Args:
        past: What it knew of the earlier ones.
        context: The call.
        plan: What was decided.
        words: What was written.
        result: The outcome.
        messages: Those that go out.
        wishes: The request as it came in.
        rejection: What the provider had refused.
        now_seconds: The time.
    """
    memory = summary_to_save(context, plan, words, wishes, now_seconds)
    model = _model_call(words)
    if not result.changed and result.prepared is None and model is None and rejection is None:
        # A summary for later; it is no compaction, so nothing else of this call is remembered.
        return SessionState(memory=memory)
    made = made_in(messages)
    if result.prepared is not None:
        # The context stays as it is until this is applied; what was written serves before.
        return SessionState(memory=memory, model=model, made=made)
    put_back = "\n".join(text_of(m.blocks) for m in messages if placeholders.is_synthetic(m))
    shown = [
        path
        for path, file in past.on_disk.items()
        if f"\n{shown_file(path, file.text)}" in put_back
    ]
    free_tokens = result.tokens.trigger - result.tokens.after
    return SessionState(
        stop_seq=stop_seq_of(context.seqs),
        files=refreshed(past.states, shown, past.on_disk),
        filling=Filling(past.refill.streak, free_tokens) if past.refill else None,
        rejection=rejection,
        memory=memory,
        model=model,
        made=made,
        repeat_key=repeat_key(result.messages, wishes),
    )


def _model_call(words: SummaryText) -> ModelCall | None:
    report = words.model or {}
    if not report.get("requested"):
        return None
    return ModelCall(float(report.get("at_seconds", 0)), failed=bool(report.get("failure")))
