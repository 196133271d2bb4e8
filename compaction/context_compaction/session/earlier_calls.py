"""What earlier calls of the session recorded: files and summaries.

Both are in the states that calls leave, so every process reads the same. Pure: the pipeline reads
those and the disk.

Session memory: every summary that a model or the host writes is kept with the number of the last
message that it replaces; a host may also pass one in between compactions (mode "record" with
`summary`). When history is replaced later, and such a text reaches up to the cut or nearly, no
other is written: extracts cover what lies between. Claude Code compacts by its session memory in
the same way, before it calls a model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from context_compaction.activity.digest import open_todos
from context_compaction.activity.files import follow_files
from context_compaction.activity.known_file import KnownFile
from context_compaction.activity.read_state import (
    FileState,
    changed_warning,
    checked,
    tracked_paths,
    untold,
)
from context_compaction.context import (
    CompactionContext,
    Originals,
    Plan,
    Validation,
    span_of,
)
from context_compaction.file_access import DiskFile
from context_compaction.layers.base import FileText
from context_compaction.layers.cut_point import CutPoint
from context_compaction.layers.repair import alternate_roles
from context_compaction.layers.restore import not_visible, recent_files, with_disk_content
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    make_message,
)
from context_compaction.messages.placeholders import Span
from context_compaction.session.state import SavedSummary, SessionState, before, stop_seq_of
from context_compaction.summarizers.extractive.carried import Carried

# A summary written earlier replaces a new one if at most this part of the target lies between its
# end and the cut.
GAP_SHARE = 0.1
_MOST_TODOS = 20


@dataclass(frozen=True, slots=True)
class SummaryMatch:
    """A memory that reaches the cut.

    Attributes:
        memory: The memory.
        since: The messages between its end and the cut.
        gap_tokens: Tokens between its end and the cut; negative where it reaches beyond.
    """

    memory: SavedSummary
    since: Messages
    gap_tokens: int


_UNKNOWN = FileState("", "", -1, "", "", 0.0, False)


@dataclass(frozen=True, slots=True)
class FilesInWork:
    """The files that the list and earlier calls name.

    Attributes:
        files: Those of the list, as the conversation leaves them, by path.
        states: What earlier calls recorded, by path; once the disk is read, for this list.
        on_disk: Those of them that lie inside the roots, as they are now.
        has_baseline: Whether a file was taken as it is on disk, because a command may have changed
            it. Only a saved state tells later calls of that.
    """

    files: Mapping[str, KnownFile] = field(default_factory=dict[str, KnownFile])
    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    on_disk: Mapping[str, DiskFile] = field(default_factory=dict[str, DiskFile])
    has_baseline: bool = False

    @property
    def paths(self) -> list[str]:
        """Those whose content on disk matters to this call, newest use first."""
        return list(tracked_paths(self.files, self.states))


@dataclass(frozen=True, slots=True)
class Decision:
    """All that is decided before a text is written.

    Attributes:
        plan: What is cleared, and where history is cut.
        files: The files in work.
        originals: The messages that the text is to replace.
        archived: The archived originals of earlier summaries.
        memory: A summary written earlier that can replace a new one.
    """

    plan: Plan
    files: FilesInWork = field(default_factory=FilesInWork)
    originals: Originals = field(default_factory=Originals)
    archived: Mapping[Span, Carried] = field(default_factory=dict[Span, Carried])
    memory: SummaryMatch | None = None


def known_files(
    context: CompactionContext, plan: Plan, states: Sequence[SessionState]
) -> FilesInWork | None:
    """The files before the disk is read; None where this call needs none."""
    if not (plan.acts or context.budget.is_over or _tells(context)):
        return None
    earlier = before(states, stop_seq_of(context.seqs))
    files = follow_files(context.messages, context.settings.tool_kinds)
    newest = next((s.files for s in reversed(earlier) if s.files is not None), ())
    return FilesInWork(files, {file.path: file for file in newest})


def checked_files(
    context: CompactionContext, known: FilesInWork | None, on_disk: Mapping[str, DiskFile]
) -> FilesInWork:
    """`known` with the states brought up to date with the list and the disk."""
    if known is None:
        return FilesInWork()
    states = checked(known.files, known.states, on_disk, context.messages, context.seqs)
    has_baseline = _tells(context) and any(
        state.disk_sha256 and not state.seen_sha256 and state.seq != before.seq
        for path, state in states.items()
        for before in [known.states.get(path, _UNKNOWN)]
    )
    return FilesInWork(known.files, states, on_disk, has_baseline)


def files_to_restore(context: CompactionContext, known: FilesInWork, plan: Plan) -> list[FileText]:
    """Files that `restore` may put back, most wanted first; none where no history is replaced."""
    if plan.cut is None or plan.fills or not context.policy.restores_files:
        return []
    if not plan.level.settings.restore_files:
        return []
    recent = recent_files(
        known.files,
        context.messages,
        context.settings.restore_kinds,
        lambda at: context.number_of(context.messages[at]),
    )
    files = not_visible(recent, plan.edited.messages[plan.cut.first_kept :])
    return with_disk_content(files, known.states, known.on_disk)


def noted(
    validation: Validation, known: FilesInWork, context: CompactionContext
) -> tuple[Validation, FilesInWork]:
    """`validation` with a note of files that changed since they were read, each change once.

    It precedes the newest request, or follows the newest results: nothing there is cached yet.
    """
    changed = untold(known.states, known.on_disk) if _tells(context) else {}
    warning = changed_warning(changed)
    if warning is None or not _takes_notes(validation):
        return validation, known
    text = placeholders.changed_files(warning)
    known = replace(known, states={**known.states, **changed})
    return _with_note(validation, context, "changed_files", text), known


def with_todos(validation: Validation, context: CompactionContext) -> Validation:
    """`validation` with a note of the open todos: once for a request, and after a compaction."""
    if not (context.settings.tell_open_todos and _is_now(context) and _takes_notes(validation)):
        return validation
    messages, items = validation.edited.messages, open_todos(context.messages)[:_MOST_TODOS]
    is_request = placeholders.is_request(messages[-1])
    before = messages[:-1] if is_request else messages
    is_known = any(map(placeholders.todos_in, before[-2:])) if is_request else open_todos(messages)
    text = placeholders.open_todos(items)
    if not items or is_known or context.room_tokens(messages) < 2 * context.count.text(text):
        return validation
    return _with_note(validation, context, "open_todos", text)


def _takes_notes(validation: Validation) -> bool:
    """Whether the list is given back for a request or results, which a note can stand beside."""
    messages = validation.edited.messages
    is_given = validation.status != "no_progress"
    return is_given and bool(messages) and messages[-1].role == "user"


def _with_note(
    validation: Validation, context: CompactionContext, name: str, text: str
) -> Validation:
    """Add a message of ours before the newest request, or behind the newest results."""
    messages = validation.edited.messages
    note = make_message("user", text)
    at = len(messages) - 1 if placeholders.is_request(messages[-1]) else len(messages)
    edit = Edit(name, "added", None, 0, context.count.message(note))
    step = Step((*messages[:at], note, *messages[at:]), (edit,))
    if context.rules.roles_alternate:
        alternating = alternate_roles(step.messages, context.rules)
        step = Step(alternating.messages, (edit, *alternating.edits))
    edited = validation.edited.then(name, step, context.count)
    return replace(validation, edited=edited, status="compacted")


def _tells(context: CompactionContext) -> bool:
    """Whether this call returns a list that may contain a note of changed files."""
    return context.settings.tell_changed_files and _is_now(context)


def _is_now(context: CompactionContext) -> bool:
    return context.request.mode in ("auto", "micro", "full") and not context.request.prepare


def summary_that_reaches(
    context: CompactionContext, plan: Plan, states: Sequence[SessionState]
) -> SummaryMatch | None:
    """The memory whose end lies nearest to the cut of `plan`; None where none can be used.

    It must tell of all that is replaced in this very conversation, fit, have the same instructions,
    and leave at most `GAP_SHARE` of the target before the cut uncovered.
    """
    request, cut = context.request, plan.cut
    if request.mode == "plan" or cut is None or request.summary is not None:
        return None
    if request.summarizer == "extractive":
        return None
    first = span_of(context, plan.replaced).start_seq
    found = [
        match
        for memory in (state.memory for state in reversed(states))
        if memory is not None
        if memory.start_seq <= first and memory.instructions == request.instructions
        if context.count.text(memory.text) <= plan.text_tokens
        for match in [_match(context, plan.edited.messages, cut, memory)]
        if match is not None and match.gap_tokens <= context.limits.tokens * GAP_SHARE
    ]
    return min(found, key=lambda match: abs(match.gap_tokens), default=None)


def _match(
    context: CompactionContext, messages: Messages, cut: CutPoint, memory: SavedSummary
) -> SummaryMatch | None:
    """How far `memory` ends from `cut`; None where its end is not in the list."""
    ends = [_end_seq(context, message) for message in messages]
    if memory.stop_seq not in ends:
        return None
    at, stop = len(ends) - ends[::-1].index(memory.stop_seq), cut.first_kept
    if at >= stop:
        return SummaryMatch(memory, (), -context.count.total(messages[stop:at]))
    stays = () if cut.folds_request else (cut.request_at,)
    since = tuple(messages[n] for n in range(at, stop) if n not in stays)
    return SummaryMatch(memory, since, context.count.total(since))


def _end_seq(context: CompactionContext, message: Message) -> int:
    """Number of the last archived message that `message` is or replaces; -1 for none."""
    made = placeholders.originals_of(message)
    if made is not None:
        return made.stop_seq if made.session_id == context.session_id else -1
    return context.seqs[message.index] if message.index is not None else -1
