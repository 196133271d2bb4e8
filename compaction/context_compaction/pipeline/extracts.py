"""Verbatim extracts, which need no model: a whole summary, or what stands beside prose."""

from dataclasses import replace

from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    SummaryText,
)
from context_compaction.pipeline.assemble import excess_tokens
from context_compaction.pipeline.originals import joined
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.summarizers.extractive.parse import RECORD_TITLE

# Where prose tells of history and of the running turn's beginning, it stands before the request.
_TOLD_ABOVE = "Told in the summary above."
_MIN_RECORD_TOKENS = 60
_FITTINGS = 4


def extracts(
    context: CompactionContext, plan: Plan, originals: Originals, warnings: tuple[str, ...] = ()
) -> SummaryText:
    """The summary for `plan` without any model."""
    # A request that is folded away with its turn must be told like any other.
    stays = plan.cut is not None and not plan.cut.folds_request
    summary_tokens, checkpoint_tokens = plan.summary_tokens, plan.checkpoint_tokens
    words = SummaryText("", "", warnings=warnings)
    # A text counts a little more inside its message, and much more beside another script.
    for _ in range(_FITTINGS if plan.cut else 0):
        checkpoint = extract_of(context, originals.prefix, checkpoint_tokens, is_prefix=stays)
        # What the checkpoint leaves goes to the summary: it would shrink with every round.
        left = checkpoint_tokens - context.count.text(checkpoint) if summary_tokens else 0
        summary = extract_of(context, originals.history, summary_tokens + left)
        words = replace(words, summary=summary, checkpoint=checkpoint)
        excess = excess_tokens(context, plan, words.summary, words.checkpoint)
        if excess <= 0 or not (words.summary or words.checkpoint):
            return words
        told = spent(context, plan, words)
        shrink = max(0.0, 1 - (excess + 4) / max(1, told.text_tokens))
        summary_tokens = int(min(summary_tokens, told.summary_tokens) * shrink)
        checkpoint_tokens = int(min(checkpoint_tokens, told.checkpoint_tokens) * shrink)
    return replace(words, summary="", checkpoint="")


def spent(context: CompactionContext, plan: Plan, words: SummaryText) -> Plan:
    """`plan` with the room that `words` take: one of them may have had what the other left."""
    return replace(
        plan,
        summary_tokens=context.count.text(words.summary),
        checkpoint_tokens=context.count.text(words.checkpoint),
    )


def texts_with(
    context: CompactionContext, plan: Plan, originals: Originals, prose: str
) -> tuple[str, str]:
    """Summary and checkpoint for `plan` with prose about all that both replace.

    In the room that it leaves stand the user's words and the facts that it lacks.
    """
    checkpoint = _TOLD_ABOVE if plan.history and plan.prefix else ""
    room_tokens = plan.text_tokens - context.count.text(checkpoint)
    left = room_tokens - context.count.text(f"{prose}\n{RECORD_TITLE}\n") - 2
    if left >= _MIN_RECORD_TOKENS:
        is_prefix = not plan.history
        record = joined(originals)
        extract = extract_of(context, record, left, is_prefix=is_prefix, beside=prose)
        prose = f"{prose}\n{RECORD_TITLE}\n{extract}" if extract else prose
    return (prose, checkpoint) if plan.history else ("", prose)


def extract_of(
    context: CompactionContext,
    record: OriginalMessages,
    max_tokens: int,
    *,
    is_prefix: bool = False,
    beside: str = "",
) -> str:
    """Verbatim extracts from the record, of at most `max_tokens`, to be added to `beside`."""
    if max_tokens <= 0 or not (record.messages or record.lost):
        return ""
    is_in_list = len(record.since) == len(record.messages)
    asked = SummaryInput(
        record.messages,
        max_tokens,
        previous=record.lost,
        later=record.later,
        instructions=context.request.instructions,
        pinned=record.pinned,
        numbers=record.numbers,
        tool_kinds=context.settings.tool_kinds,
        is_turn_prefix=is_prefix,
        # What comes from the archive is not in the list, nor are the files of that time; what was
        # made short tells no file's text.
        files=context.replayed() if record.is_short or is_in_list else None,
        beside=beside,
        effects=record.effects,
    )
    return writer.write(asked, context.count)
