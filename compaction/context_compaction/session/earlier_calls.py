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
    tracked_paths,
    untold,
    uses_of,
)
from context_compaction.context import CompactionContext, Originals, Plan, Validation
from context_compaction.file_access import DiskFile
from context_compaction.layers.base import FileText
from context_compaction.layers.restore_files import (
    RecentFile,
    file_texts,
    not_shown,
    recent_files,
)
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import unknown_warning
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Message, make_message
from context_compaction.messages.placeholders import Span
from context_compaction.result import CompactResult
from context_compaction.session.identify import stop_seq_of
from context_compaction.session.saved_summary import SummaryMatch
from context_compaction.session.state import SessionState, before
from context_compaction.session.thrash import RefillStats, refill_stats, thrash_warning


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """The state before this call, brought up to its list.

    Attributes:
        states: The files that the conversation used, by path.
        on_disk: Those of them that lie inside the roots, as they are now.
        refill: How the context got above its trigger; None where it is below.
        recent: Files that may be put back after some cut, newest use first.
    """

    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    on_disk: Mapping[str, DiskFile] = field(default_factory=dict[str, DiskFile])
    refill: RefillStats | None = None
    recent: Sequence[RecentFile] = ()


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that the list and earlier calls tell of, before anybody looked at the disk.

    Attributes:
        uses: What the list tells, by path ...
        states: ... and what earlier calls did.
        earlier: What the calls with shorter lists than this one left, oldest first.
    """

    uses: Mapping[str, FileUse]
    states: Mapping[str, FileState]
    earlier: Sequence[SessionState]

    @property
    def paths(self) -> list[str]:
        """Those whose content on disk matters to this call, newest use first."""
        return tracked_paths(self.uses, self.states)


@dataclass(frozen=True, slots=True)
class Decision:
    """All that is settled before a text is written.

    Attributes:
        plan: What is cleared, and where history is cut.
        past: What earlier calls tell of files.
        originals: What the text is to stand for.
        archived: What the archive has of what earlier summaries stand for.
        memory: A summary written earlier that can stand in for a new one.
    """

    plan: Plan
    past: EarlierCalls
    originals: Originals
    archived: Mapping[Span, Sequence[tuple[int | None, Message]]]
    memory: SummaryMatch | None = None


def known_files(
    context: CompactionContext, plan: Plan, states: Sequence[SessionState]
) -> KnownFiles | None:
    """What the list and the newest of `states` tell of files; None where this call is none's."""
    if not (plan.acts or context.goal.is_over or _tells(context)):
        return None
    earlier = before(states, stop_seq_of(context.seqs))
    uses = uses_of(context.messages, context.seqs, context.settings.tool_kinds)
    newest = next((s.files for s in reversed(earlier) if s.files is not None), ())
    return KnownFiles(uses, {file.path: file for file in newest}, earlier)


def earlier_calls_of(
    context: CompactionContext, known: KnownFiles | None, on_disk: Mapping[str, DiskFile]
) -> EarlierCalls:
    """The state as earlier calls left it, and what `context.messages` say beyond them.

    Args:
        context: The call.
        known: What both tell of files; None where nobody asks.
        on_disk: Those that may be read, by path.
    """
    if known is None:
        return EarlierCalls()
    settings = context.settings
    refill, recent = None, list[RecentFile]()
    # What is only prepared empties no context yet.
    if context.goal.is_over and not context.request.prepare:
        refill = refill_stats(
            context.messages, context.seqs, known.earlier, count=context.count, settings=settings
        )
    if context.policy.restores_files:
        recent = recent_files(context.messages, settings.tool_kinds, settings.restore_kinds)
    return EarlierCalls(checked(known.uses, known.states, on_disk), on_disk, refill, recent)


def files_for(past: EarlierCalls, plan: Plan) -> list[FileText]:
    """What `restore` may put back, most wanted first; nothing where no history is replaced."""
    if plan.cut is None:
        return []
    recent = not_shown(past.recent, plan.cut.first_kept)
    files = file_texts(recent, past.states, past.on_disk)
    # A name alone takes nobody's place.
    files.sort(key=lambda file: file.text is None)
    return files[: plan.level.settings.restore_files]


def noted(
    validation: Validation, past: EarlierCalls, context: CompactionContext
) -> tuple[Validation, EarlierCalls]:
    """`validation` with a note of files that changed since they were read, each change once.

    It stands before the newest request, or after the newest results: nothing there is cached yet.
    """
    messages = validation.edited.messages
    changed = untold(past.states, past.on_disk) if _tells(context) else {}
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


def _tells(context: CompactionContext) -> bool:
    """Whether this call hands back a list that may tell of files which changed."""
    is_now = context.request.mode in ("auto", "micro", "full") and not context.request.prepare
    return context.settings.tell_changed_files and is_now
