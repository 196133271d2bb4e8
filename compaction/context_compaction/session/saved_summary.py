"""Session memory: a summary written earlier replaces a new one where it reaches the cut.

Every summary that a model or the host writes is kept with the number of the last message that it
replaces; a host may also pass one in between compactions (mode "record" with `summary`). When
history is replaced later, and such a text reaches up to the cut or nearly, no other is
written: extracts cover what lies between. Claude Code compacts by its session memory in the same
way, before it calls a model. Pure: the archive's receipts hold the texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from context_compaction.context import CompactionContext, Plan, SummaryText, span_of
from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages
from context_compaction.request import CompactRequest
from context_compaction.session.state import SavedSummary, SessionState

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


def summary_to_save(
    words: SummaryText, request: CompactRequest, now_seconds: float
) -> SavedSummary | None:
    """The summary to save for later compactions; None where none was written."""
    if words.told is None:
        return None
    return SavedSummary(
        words.prose,
        words.told.start_seq,
        words.told.stop_seq,
        words.writer,
        request.instructions,
        int(now_seconds),
    )


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
