"""What earlier calls of the session recorded: files, summaries, and how the context refilled.

All are in the states that calls leave, so every process reads the same. Pure: the pipeline reads
those and the disk.

Session memory: every summary that a model or the host writes is kept with the number of the last
message that it replaces; a host may also pass one in between compactions (mode "record" with
`summary`). When history is replaced later, and such a text reaches up to the cut or nearly, no
other is written: extracts cover what lies between. Claude Code compacts by its session memory in
the same way, before it calls a model.

The thrash guard: if what a compaction freed is full again soon, several times in a row, a warning
names the sources. Claude Code stops there (its issues 41796, 60600 and 82131), and its users had to
guess at the cause. A turn is an answer of the model here, as it is there: one request of the user
may lead to many.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from context_compaction.activity.calls import classify
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
from context_compaction.layers.restore import not_visible, recent_files, with_disk
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import unknown_warning
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    ToolCall,
    ToolResult,
    make_message,
)
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.session.state import SavedSummary, SessionState, before, stop_seq_of
from context_compaction.summarizers.extractive.carried import Carried

# The context thrashes if it is at its trigger again within this many answers of the model, so many
# times in a row.
_THRASH_TURNS = 3
_THRASH_TIMES = 3
_NAMED_SOURCES = 3
_TARGET_CHARS = 80
# A summary written earlier replaces a new one if at most this part of the target lies between its
# end and the cut.
GAP_SHARE = 0.1


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


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """The state before this call, brought up to its list.

    Attributes:
        files: The files as the conversation leaves them, by path.
        states: What is known of them and of those of earlier calls, by path.
        on_disk: Those of them that lie inside the roots, as they are now.
        refills: How many times in a row the context was full again soon; None if it is not full.
        thrash_warning: The warning about that, if it is due.
        recent: Files that the layer `restore` may put back, highest priority first.
    """

    files: Mapping[str, KnownFile] = field(default_factory=dict[str, KnownFile])
    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    on_disk: Mapping[str, DiskFile] = field(default_factory=dict[str, DiskFile])
    refills: int | None = None
    thrash_warning: str | None = None
    recent: Sequence[FileText] = ()


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that the list and earlier calls name, before the disk is read.

    Attributes:
        files: Those of the list, as the conversation leaves them ...
        states: ... and the states that earlier calls left, both by path.
        earlier: The states of calls with shorter lists than this one, oldest first.
    """

    files: Mapping[str, KnownFile]
    states: Mapping[str, FileState]
    earlier: Sequence[SessionState]

    @property
    def paths(self) -> list[str]:
        """Those whose content on disk matters to this call, newest use first."""
        return list(tracked_paths(self.files, self.states))


@dataclass(frozen=True, slots=True)
class Decision:
    """All that is decided before a text is written.

    Attributes:
        plan: What is cleared, and where history is cut.
        earlier_calls: The files that they recorded, and how the context was filled since.
        originals: The messages that the text is to replace.
        archived: The archived originals of earlier summaries.
        memory: A summary written earlier that can replace a new one.
    """

    plan: Plan
    earlier_calls: EarlierCalls = field(default_factory=EarlierCalls)
    originals: Originals = field(default_factory=Originals)
    archived: Mapping[Span, Carried] = field(default_factory=dict[Span, Carried])
    memory: SummaryMatch | None = None


def known_files(
    context: CompactionContext, plan: Plan, states: Sequence[SessionState]
) -> KnownFiles | None:
    """The files that the list and the newest of `states` name; None where this call needs none."""
    if not (plan.acts or context.budget.is_over or _tells(context)):
        return None
    earlier = before(states, stop_seq_of(context.seqs))
    files = follow_files(context.messages, context.settings.tool_kinds)
    newest = next((s.files for s in reversed(earlier) if s.files is not None), ())
    return KnownFiles(files, {file.path: file for file in newest}, earlier)


def earlier_calls_of(
    context: CompactionContext,
    plan: Plan,
    known: KnownFiles | None,
    on_disk: Mapping[str, DiskFile],
) -> EarlierCalls:
    """The state that earlier calls left, brought up to date with `context.messages`.

    Args:
        context: The call.
        plan: Its plan: no file is put back where history stays.
        known: The files that both name; None where none are needed.
        on_disk: Those that may be read, by path.
    """
    if known is None:
        return EarlierCalls()
    refills, warning = None, None
    recent: Sequence[FileText] = ()
    # What is only prepared empties no context yet.
    if context.budget.is_over and not context.request.prepare:
        refills, warning = _refills(context, known.earlier)
    if plan.cut is not None and context.policy.restores_files and not plan.fills:
        recent = _recent_files(context, known.files)
    states = checked(known.files, known.states, on_disk, context.messages, context.seqs)
    return EarlierCalls(known.files, states, on_disk, refills, warning, recent)


def files_for(earlier_calls: EarlierCalls, plan: Plan) -> list[FileText]:
    """Files that `restore` may put back, most wanted first; none where no history is replaced."""
    if plan.cut is None or not plan.level.settings.restore_files:
        return []
    files = not_visible(earlier_calls.recent, plan.edited.messages[plan.cut.first_kept :])
    return with_disk(files, earlier_calls.states, earlier_calls.on_disk)


def _recent_files(context: CompactionContext, known: Mapping[str, KnownFile]) -> list[FileText]:
    def number_of(at: int) -> int | None:
        index = context.messages[at].index
        return None if index is None or context.seqs[index] < 0 else context.seqs[index]

    return recent_files(known, context.settings.restore_kinds, number_of)


def noted(
    validation: Validation, earlier_calls: EarlierCalls, context: CompactionContext
) -> tuple[Validation, EarlierCalls]:
    """`validation` with a note of files that changed since they were read, each change once.

    It precedes the newest request, or follows the newest results: nothing there is cached yet.
    """
    messages = validation.edited.messages
    changed = untold(earlier_calls.states, earlier_calls.on_disk) if _tells(context) else {}
    warning = changed_warning(changed)
    if warning is None or validation.status == "no_progress":
        return validation, earlier_calls
    if not messages or messages[-1].role != "user":
        return validation, earlier_calls
    note = make_message("user", placeholders.changed_files(warning))
    at = len(messages) - 1 if placeholders.is_request(messages[-1]) else len(messages)
    edit = Edit("changed_files", "added", None, 0, context.count.message(note))
    step = Step((*messages[:at], note, *messages[at:]), (edit,))
    if context.rules.roles_alternate:
        alternating = alternate_roles(step.messages, context.rules)
        step = Step(alternating.messages, (edit, *alternating.edits))
    edited = validation.edited.then("changed_files", step, context.count)
    known = replace(earlier_calls, states={**earlier_calls.states, **changed})
    return replace(validation, edited=edited, status="compacted"), known


def warnings_of(earlier_calls: EarlierCalls, context: CompactionContext) -> tuple[str, ...]:
    """The warnings that earlier calls give rise to."""
    warnings = (
        unknown_warning(context.messages),
        changed_warning(earlier_calls.states) if earlier_calls.states else None,
        earlier_calls.thrash_warning,
    )
    return tuple(warning for warning in warnings if warning is not None)


def _tells(context: CompactionContext) -> bool:
    """Whether this call returns a list that may contain a note of changed files."""
    is_now = context.request.mode in ("auto", "micro", "full") and not context.request.prepare
    return context.settings.tell_changed_files and is_now


def _refills(context: CompactionContext, states: Sequence[SessionState]) -> tuple[int, str | None]:
    """How many times in a row the context was full again soon, and the warning if it thrashes.

    `states` are those of calls with shorter lists than this one, oldest first.
    """
    last = next((state for state in reversed(states) if state.refills is not None), None)
    if last is None or last.refills is None:
        return 0, None
    messages = context.messages
    since = [
        at
        for at, message in enumerate(messages)
        if message.index is not None and context.seqs[message.index] > last.stop_seq
    ]
    turns = sum(1 for at in since if _begins_answer(messages, at))
    refills = last.refills + 1 if turns <= _THRASH_TURNS else 0
    if refills < _THRASH_TIMES:
        return refills, None
    sources = _sources(context, tuple(messages[at] for at in since))
    named = ", ".join(
        f"{name} ({tokens // max(1, turns)} tokens a turn)" for name, tokens in sources
    )
    return refills, (
        f"Thrashing: {refills} times in a row the context was full again within "
        f"{_THRASH_TURNS} turns of a compaction. What fills it: {named}. Ask these for "
        "less (a range, a filter, a limit), pass what is large through persist_large_output, lower "
        "persist_result_tokens, give the work to a sub-agent, or take a larger window."
    )


def _begins_answer(messages: Messages, at: int) -> bool:
    """Whether the model begins to speak here; adjacent messages of its are one answer."""
    return messages[at].role == "assistant" and (at == 0 or messages[at - 1].role != "assistant")


def _sources(context: CompactionContext, messages: Messages) -> list[tuple[str, int]]:
    """The largest sources of `messages`: a tool with its file or command, or a role."""
    index, tokens = index_calls(context.messages), Counter[str]()
    for message in messages:
        rest = context.count.message(message)
        for block in message.blocks:
            if isinstance(block, ToolResult):
                call = index.calls.get(block.call_id)
                tokens[_name_of(call, context) if call else index.name_of(block)] += (
                    size := context.count.block(block)
                )
                rest -= size
        tokens[f"messages of the {message.role}"] += rest
    return tokens.most_common(_NAMED_SOURCES)


def _name_of(call: ToolCall, context: CompactionContext) -> str:
    """The tool with its file or command, on one line and short: both are the model's text."""
    use = classify(call, context.settings.tool_kinds)
    target = " ".join((use.path or use.command or "").split())
    return f"{call.name[:_TARGET_CHARS]} {target[:_TARGET_CHARS]}".strip()


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
