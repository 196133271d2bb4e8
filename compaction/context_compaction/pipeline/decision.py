"""What is decided before a text is written, and the plan that its text leaves room in.

A summary that was written earlier is used again where it reaches the cut. Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    SummaryText,
)
from context_compaction.file_access import DiskFile
from context_compaction.messages.model import JsonObject
from context_compaction.messages.placeholders import Span
from context_compaction.pipeline.extracts import extract_of, extracts, spent, texts_with
from context_compaction.pipeline.fill_target import (
    beside_prose,
    filled,
    fills_with_tail,
    has_slack,
    with_more_files,
    with_more_words,
    with_results_back,
    with_whole_tail,
)
from context_compaction.pipeline.originals import (
    Read,
    joined,
    number_of,
    originals_of,
    parsed_originals,
)
from context_compaction.pipeline.plan import with_room
from context_compaction.pipeline.summarize import asks_model, brings_text, summary_to_record
from context_compaction.session.earlier_calls import (
    Decision,
    KnownFiles,
    SummaryMatch,
    earlier_calls_of,
    summary_that_reaches,
)
from context_compaction.session.resume import Session
from context_compaction.summarizers.llm.prompt import PROSE_SHARE

# Of the room beside the text, this part is for what came after it; the rest is for all of it.
_SINCE_SHARE = 0.6
_SINCE_TITLE = "# Since that was written, word for word"
# A longer tail leaves extracts less to tell, and so some room again: filled once more where that is
# more than a twentieth. A list full to the brim would be compacted again by its next message.
_REFILLS = 2


def decide(
    context: CompactionContext,
    session: Session,
    plan: Plan,
    known: KnownFiles | None,
    on_disk: Mapping[str, DiskFile],
    read: Mapping[Span, Read],
    *,
    has_model: bool = False,
) -> Decision:
    """All that is decided before a text is written: `plan` filled, and what the text replaces.

    Args:
        context: The call.
        session: Its session.
        plan: What is cleared, and where history is cut.
        known: The known files; None where none are needed.
        on_disk: Those that may be read, by path.
        read: The archived originals of earlier summaries.
        has_model: Whether there is a model to write the text.
    """
    archived = parsed_originals(read, context.format)
    earlier_calls = earlier_calls_of(context, plan, known, on_disk)
    plan = filled(context, plan, earlier_calls)
    if brings_text(context.request) or (has_model and asks_model(context, plan)):
        plan = beside_prose(context, plan, earlier_calls)
    originals = originals_of(context, plan, archived)
    memory = summary_that_reaches(context, plan, session.states)
    return Decision(plan, earlier_calls, originals, archived, memory)


def written(
    context: CompactionContext, decision: Decision, words: SummaryText | None
) -> tuple[Plan, SummaryText]:
    """The text that the list will contain, and the plan with the room that it leaves filled."""
    plan, originals = decision.plan, decision.originals
    if words is None and decision.memory is not None:
        words = reuse_summary(context, plan, originals, decision.memory)
    elif words is None and context.request.summary is not None:
        words = summary_to_record(context)
    elif words is None:
        words = extracts(context, plan, originals)
    is_plain = words.writer == "extractive" and words.model is None
    if plan.cut is None or not (is_plain or words.prose):
        return _with_more_files(context, plan, words, decision), words
    # A text that left room free is written anew, for the longer tail that fills it.
    plan, words = _refilled(context, plan, words, decision)
    # Then come the files of the work, then more words, and last what may be put back too.
    told = spent(context, _with_more_files(context, plan, words, decision), words)
    roomier = with_more_words(context, told, decision.earlier_calls)
    if roomier.text_tokens > told.text_tokens:
        longer = _text_for(context, roomier, words, decision)
        # A text that is cut to fit its message may come out shorter than the one before.
        if spent(context, roomier, longer).text_tokens > told.text_tokens:
            plan, words = replace(roomier, level=plan.level), longer
    plan = _with_more_files(context, plan, words, decision)
    # Where neither files nor words have more to tell, what was cleared has the rest.
    back = with_results_back(context, spent(context, plan, words), decision.earlier_calls)
    return replace(plan, edited=back.edited, bare=back.bare), words


def _text_for(
    context: CompactionContext, plan: Plan, words: SummaryText, decision: Decision
) -> SummaryText:
    """`words` for another `plan`: its extracts, beside the same prose where there is any."""
    originals = originals_of(context, plan, decision.archived)
    if not words.prose:
        return extracts(context, plan, originals, words.warnings)
    summary, checkpoint = texts_with(context, plan, originals, words.prose)
    return replace(words, summary=summary, checkpoint=checkpoint)


def _refilled(
    context: CompactionContext, plan: Plan, words: SummaryText, decision: Decision
) -> tuple[Plan, SummaryText]:
    """`plan` with the longer tail for which `words` leave room, and the text for what it cuts."""
    longer_tail = filled
    if words.prose:
        if not fills_with_tail(context):
            return plan, words
        # What the prose left of its room is not for more extracts.
        longer_tail = with_whole_tail
        unspent_tokens = int(plan.text_tokens * PROSE_SHARE) - context.count.text(words.prose)
        plan = with_room(context, plan, plan.text_tokens - max(0, unspent_tokens))
        words = _text_for(context, plan, words, decision)
    for refill in range(_REFILLS):
        told = spent(context, plan, words)
        if refill and not has_slack(context, told, decision.earlier_calls):
            break
        before, plan = plan, longer_tail(context, told, decision.earlier_calls)
        if plan.cut == before.cut:  # of what stays more is left: the same words stand beside it
            break
        words = _text_for(context, plan, words, decision)
    return plan, words


def _with_more_files(
    context: CompactionContext, plan: Plan, words: SummaryText, decision: Decision
) -> Plan:
    told = spent(context, plan, words)
    return replace(plan, level=with_more_files(context, told, decision.earlier_calls).level)


def reuse_summary(
    context: CompactionContext, plan: Plan, originals: Originals, match: SummaryMatch
) -> SummaryText:
    """The summary for `plan`: the saved one, what followed it, and extracts from the record."""
    text, record = match.memory.text, joined(originals)
    numbers = {message.index for message in match.since}
    since = tuple(message for message in record.since if message.index in numbers)
    if since:
        left = plan.text_tokens - context.count.text(f"{text}\n{_SINCE_TITLE}\n") - 2
        newer = OriginalMessages(
            since,
            later=record.later,
            numbers=tuple(number_of(context, message) for message in since),
        )
        told = extract_of(context, newer, int(left * _SINCE_SHARE))
        text = f"{text}\n{_SINCE_TITLE}\n{told}" if told else text
    summary, checkpoint = texts_with(context, plan, originals, text)
    used: JsonObject = {
        "writer": match.memory.writer,
        "at_seconds": match.memory.at_seconds,
        "stop_seq": match.memory.stop_seq,
        "messages_since": len(match.since),
        "tokens_since": max(0, match.gap_tokens),
    }
    return SummaryText(summary, checkpoint, "memory", prose=text, memory=used)
