"""Verbatim extracts of messages, which need no model. Pure."""

from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    SummaryText,
)
from context_compaction.pipeline.assemble import assemble
from context_compaction.summarizers.extractive.render import extract

# Where prose tells of history and of the running turn's beginning, it stands before the request.
TOLD_ABOVE = "Told in the summary above."
_FITTINGS = 4


def extract_of(context: CompactionContext, record: OriginalMessages, max_tokens: int) -> str:
    """Extracts of `record` within `max_tokens`."""
    return extract(record.messages, record.numbers, max_tokens, context.count, lost=record.lost)


def extracts(context: CompactionContext, plan: Plan, originals: Originals) -> SummaryText:
    """The texts for a plan whose policy decides where to cut."""
    share = 1.0
    for _ in range(_FITTINGS):
        summary = extract_of(context, originals.history, int(plan.summary_tokens * share))
        checkpoint = extract_of(context, originals.prefix, int(plan.checkpoint_tokens * share))
        done = assemble(context, plan, summary, checkpoint)
        excess_tokens = -context.room_tokens(done.messages)
        if excess_tokens <= 0:
            return SummaryText(summary, checkpoint)
        # A text counts a little more inside its message, and much more beside another script.
        share *= max(0.0, 1 - (excess_tokens + _FITTINGS) / max(1, plan.text_tokens * share))
    return SummaryText("", "")


def prose_texts(plan: Plan, prose: str) -> tuple[str, str]:
    """Summary and checkpoint, where prose tells of all that both replace."""
    if not plan.history:
        return "", prose
    return prose, TOLD_ABOVE if plan.prefix else ""
