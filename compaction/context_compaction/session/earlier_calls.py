"""One call's view of the session's earlier compactions: files read, and how the context refilled.

Both are in the states that calls leave, so every process reads the same. Pure: the pipeline reads
those and the disk.

The thrash guard: when what a compaction freed is full again at once, name its source. Claude Code
stops where "the context refilled to the limit within 3 turns of the previous compact, 3 times in a
row" (its issues 41796, 60600 and 82131), and its users had to guess at the cause. We never stop; we
name the cause. A turn is an answer of the model here, as it is there: one request of the user may
lead to many.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from context_compaction.activity.read_state import (
    FileState,
    FileUse,
    changed_warning,
    checked,
    tracked_paths,
    untold,
    uses_of,
)
from context_compaction.activity.tool_kinds import classify
from context_compaction.context import CompactionContext, Originals, Plan, Validation
from context_compaction.file_access import DiskFile
from context_compaction.layers.base import FileText
from context_compaction.layers.recent_files import (
    RecentFile,
    file_texts,
    not_shown,
)
from context_compaction.layers.repair import alternate_roles
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import unknown_warning
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    JsonObject,
    Message,
    Messages,
    ToolCall,
    ToolResult,
    make_message,
)
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.result import CompactResult
from context_compaction.session.saved_summary import SummaryMatch
from context_compaction.session.state import SessionState, before, stop_seq_of
from context_compaction.settings import Settings
from context_compaction.summarizers.extractive.carried import Carried
from context_compaction.tokens.counter import MessageCounter

# The context thrashes where it is at its trigger again within this many answers of the model, so
# many times in a row.
_THRASH_TURNS = 3
_THRASH_TIMES = 3
_MAX_SOURCES = 5
_NAMED_SOURCES = 3
_TARGET_CHARS = 80


@dataclass(frozen=True, slots=True)
class FillSource:
    """One source of the messages that followed the last compaction.

    Attributes:
        name: The tool and the file or command it was called for, or the role that spoke.
        tokens: The tokens of all of them.
        count: How many results or messages.
    """

    name: str
    tokens: int
    count: int


@dataclass(frozen=True, slots=True)
class RefillStats:
    """How the context reached its trigger again.

    Attributes:
        turns: Answers of the model since the last compaction; None where there was none.
        tokens: Tokens added since ...
        room_tokens: ... and those that the compaction had left free below the trigger.
        streak: How many times in a row it took `_THRASH_TURNS` or fewer, this time included.
        sources: What was added, largest first.
    """

    turns: int | None
    tokens: int
    room_tokens: int
    streak: int
    sources: tuple[FillSource, ...]

    def as_json(self) -> JsonObject:
        """The JSON for the receipt."""
        return {**asdict(self), "sources": [asdict(source) for source in self.sources]}


@dataclass(frozen=True, slots=True)
class EarlierCalls:
    """The state before this call, brought up to its list.

    Attributes:
        states: The files that the conversation used, by path.
        on_disk: Those of them that lie inside the roots, as they are now.
        refill: How the context rose above its trigger; None where it is below.
        recent: Files that may be put back after some cut, newest use first.
    """

    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    on_disk: Mapping[str, DiskFile] = field(default_factory=dict[str, DiskFile])
    refill: RefillStats | None = None
    recent: Sequence[RecentFile] = ()


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that the list and earlier calls name, before the disk is read.

    Attributes:
        uses: Their uses in the list, by path ...
        states: ... and their states by earlier calls.
        earlier: The states of calls with shorter lists than this one, oldest first.
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
    """All that is decided before a text is written.

    Attributes:
        plan: What is cleared, and where history is cut.
        earlier_calls: The files that they recorded, and how the context was filled since.
        originals: The messages that the text is to replace.
        archived: The archived originals of earlier summaries.
        memory: A summary written earlier that can replace a new one.
    """

    plan: Plan
    earlier_calls: EarlierCalls
    originals: Originals
    archived: Mapping[Span, Carried]
    memory: SummaryMatch | None = None


def known_files(
    context: CompactionContext, plan: Plan, states: Sequence[SessionState]
) -> KnownFiles | None:
    """The files that the list and the newest of `states` name; None where this call needs none."""
    if not (plan.acts or context.budget.is_over or _tells(context)):
        return None
    earlier = before(states, stop_seq_of(context.seqs))
    uses = uses_of(context.messages, context.seqs, context.settings.tool_kinds)
    newest = next((s.files for s in reversed(earlier) if s.files is not None), ())
    return KnownFiles(uses, {file.path: file for file in newest}, earlier)


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
    settings = context.settings
    refill: RefillStats | None = None
    recent: Sequence[RecentFile] = ()
    # What is only prepared empties no context yet.
    if context.budget.is_over and not context.request.prepare:
        refill = _refill_stats(
            context.messages, context.seqs, known.earlier, count=context.count, settings=settings
        )
    if plan.cut is not None and context.policy.restores_files:
        recent = context.recent()
    return EarlierCalls(checked(known.uses, known.states, on_disk), on_disk, refill, recent)


def files_for(earlier_calls: EarlierCalls, plan: Plan) -> list[FileText]:
    """Files that `restore` may put back, most wanted first; none where no history is replaced."""
    if plan.cut is None or not plan.level.settings.restore_files:
        return []
    recent = not_shown(earlier_calls.recent, plan.edited.messages, plan.cut.first_kept)
    files = file_texts(recent, earlier_calls.states, earlier_calls.on_disk)
    # A name alone takes nobody's place.
    files.sort(key=lambda file: not file.is_told)
    return files


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
        alternating = alternate_roles(step.messages)
        step = Step(alternating.messages, (edit, *alternating.edits))
    edited = validation.edited.then("changed_files", step, context.count)
    known = replace(earlier_calls, states={**earlier_calls.states, **changed})
    return replace(validation, edited=edited, status="compacted"), known


def with_warnings(
    result: CompactResult, earlier_calls: EarlierCalls, context: CompactionContext
) -> CompactResult:
    """`result` with the warnings that earlier calls give rise to."""
    notes = [unknown_warning(context.messages), changed_warning(earlier_calls.states)]
    receipt = result.receipt
    if earlier_calls.refill is not None:
        notes.append(_thrash_warning(earlier_calls.refill))
        receipt = {**receipt, "refill": earlier_calls.refill.as_json()}
    warnings = (*result.warnings, *(note for note in notes if note is not None))
    return replace(result, warnings=warnings, receipt={**receipt, "warnings": list(warnings)})


def _tells(context: CompactionContext) -> bool:
    """Whether this call returns a list that may contain a note of changed files."""
    is_now = context.request.mode in ("auto", "micro", "full") and not context.request.prepare
    return context.settings.tell_changed_files and is_now


def _refill_stats(
    messages: Messages,
    seqs: Sequence[int],
    states: Sequence[SessionState],
    *,
    count: MessageCounter,
    settings: Settings,
) -> RefillStats:
    """What was added since the newest compaction that found the context above its trigger.

    Args:
        messages: The list that came in, now above the trigger again.
        seqs: For each position of the list that came in, its number in the transcript.
        states: The states of calls with shorter lists than this one, oldest first.
        count: The token counter.
        settings: `tool_kinds`, to name what was read.
    """
    last = next((state for state in reversed(states) if state.filling is not None), None)
    if last is None or last.filling is None:
        return RefillStats(None, 0, 0, 0, ())
    stop_seq = last.stop_seq
    since = [at for at, m in enumerate(messages) if m.index is not None if seqs[m.index] > stop_seq]
    turns = sum(1 for at in since if _begins_answer(messages, at))
    is_soon = turns <= _THRASH_TURNS
    sources = _sources([messages[at] for at in since], index_calls(messages), count, settings)
    return RefillStats(
        turns,
        sum(source.tokens for source in sources),
        last.filling.free_tokens,
        last.filling.streak + 1 if is_soon else 0,
        sources[:_MAX_SOURCES],
    )


def _thrash_warning(refill: RefillStats) -> str | None:
    """The warning for the caller; None while the context does not thrash."""
    if refill.streak < _THRASH_TIMES:
        return None
    turns = max(1, refill.turns or 0)
    named = ", ".join(
        f"{source.name} ({source.tokens // turns} tokens a turn)"
        for source in refill.sources[:_NAMED_SOURCES]
    )
    return (
        f"Thrashing: {refill.streak} times in a row the context was full again within "
        f"{_THRASH_TURNS} turns of a compaction; this time {refill.tokens} tokens came in "
        f"{refill.turns} turns, where {max(0, refill.room_tokens)} were free. "
        f"What fills it: {named}. Ask these for less (a range, a filter, a limit), pass what is "
        "large through persist_large_output, lower persist_result_tokens, give the work to a "
        "sub-agent, or take a larger window."
    )


def _begins_answer(messages: Messages, at: int) -> bool:
    """Whether the model begins to speak here; adjacent messages of its are one answer."""
    return messages[at].role == "assistant" and (at == 0 or messages[at - 1].role != "assistant")


def _sources(
    messages: Sequence[Message], index: CallIndex, count: MessageCounter, settings: Settings
) -> tuple[FillSource, ...]:
    tokens: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for message in messages:
        rest = count.message(message)
        for block in message.blocks:
            if isinstance(block, ToolResult):
                call = index.calls.get(block.call_id)
                name = _name_of(call, settings.tool_kinds) if call else index.name_of(block)
                size = count.block(block)
                rest -= size
                tokens[name] += size
                counts[name] += 1
        if any(not isinstance(block, ToolResult) for block in message.blocks):
            name = f"messages of the {message.role}"
            tokens[name] += rest
            counts[name] += 1
    found = (FillSource(name, tokens[name], counts[name]) for name in tokens)
    return tuple(sorted(found, key=lambda source: (-source.tokens, source.name)))


def _name_of(call: ToolCall, extra_kinds: Mapping[str, str]) -> str:
    """The tool with its file or command, on one line and bounded: both are the model's text."""
    use = classify(call, extra_kinds)
    target = " ".join((use.path or use.command or "").split())
    if len(target) > _TARGET_CHARS:
        target = f"{target[:_TARGET_CHARS]}…"
    name = call.name[:_TARGET_CHARS]
    return f"{name} {target}" if target else name
