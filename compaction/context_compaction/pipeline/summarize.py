"""The summary's text: the originals that it is about, its writer, and the checks of the text.

Originals come from the caller's list or the archive.

The host or a model writes the text; if that fails, extracts take its place. Each such text is
saved with the span that it describes. A host may also pass one between compactions (mode "record"
with `summary`). A later compaction reuses a saved text that reaches up to its cut point, or nearly,
and extracts cover the rest. Claude Code compacts by its session memory in the same way.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias

from anyio import to_thread

from context_compaction import errors, formats
from context_compaction.activity.background import running_jobs
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import AppendResult, ArchivedMessage
from context_compaction.compaction_state import MAX_FAILURES, SavedSummary, wait_seconds
from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Plan,
    SummaryMatch,
    SummaryText,
)
from context_compaction.layers.cut_point import CutPoint, request_of
from context_compaction.messages import placeholders
from context_compaction.messages.model import JsonObject, Message, Messages, text_of
from context_compaction.messages.pins import Pin, carried_by, pin_block, with_pin_block
from context_compaction.messages.placeholders import Span
from context_compaction.messages.raw import HEAD_CHARS
from context_compaction.messages.speakers import with_authors
from context_compaction.pipeline.assemble import assemble
from context_compaction.redaction import Gates
from context_compaction.request import CompactRequest
from context_compaction.result import SummaryPrompt
from context_compaction.summarizers.extractive.items import HEAD_TOKENS
from context_compaction.summarizers.extractive.render import (
    bought_items,
    earlier_entries,
    entries_before,
    extract,
    render,
)
from context_compaction.summarizers.llm import check, writer
from context_compaction.summarizers.llm.model import Conversation, SummaryModel, TellChars
from context_compaction.summarizers.llm.prompt import SummaryJob, fullest_version, parts_of
from context_compaction.tokens.counter import counter_for
from context_compaction.tokens.models import profile_for

# Checkpoint text if the summary describes the beginning of the running turn as well.
_IN_SUMMARY = "Told in the summary above."
# A saved summary is used if at most this share of the target is between its end and the cut.
GAP_SHARE = 0.1
# Token limit of the extracts that a model writes from.
_EXTRACTS_TOKENS = 3_000
# Providers keep a prompt in their cache for this long.
_CACHE_SECONDS = 300
# Room for the instruction after the conversation, and the least room for the answer.
_INSTRUCTION_TOKENS, _ANSWER_TOKENS = 5_000, 8_000
# The archived originals of earlier summaries, by the span that each summary replaces.
Archived: TypeAlias = Mapping[Span, OriginalMessages]

# So many of the newest originals behind an earlier summary are read again. For older ones the words
# of that summary stay, so that the cost of a compaction does not grow with the session.
MAX_ORIGINALS = 300
_NONE = OriginalMessages()


async def read_originals(
    context: CompactionContext, plan: Plan, archive: Archive
) -> Mapping[Span, Sequence[ArchivedMessage]]:
    """Read the newest originals of each earlier summary that `plan` replaces."""
    spans = (_own_span(context, message) for message in plan.replaced)
    return {
        span: await _read_span(span, archive, context.format) for span in spans if span is not None
    }


async def _read_span(span: Span, archive: Archive, format: str) -> Sequence[ArchivedMessage]:
    start = max(span.start_seq, span.stop_seq - MAX_ORIGINALS + 1)
    try:
        messages = await archive.read_messages(
            span.session_id, start, span.stop_seq, head=span.head
        )
    except (errors.NotFoundError, errors.ArchiveDamagedError):
        return []
    return [message for message in messages if message.format == format]


def parsed_originals(read: Mapping[Span, Sequence[ArchivedMessage]], format: str) -> Archived:
    """Return the originals that were read, parsed."""
    return {span: _as_originals(items, format) for span, items in read.items()}


def _as_originals(items: Sequence[ArchivedMessage], format: str) -> OriginalMessages:
    messages = with_authors(formats.parse([item.raw for item in items], format=format))
    numbers = (None if m.index is None else items[m.index].seq for m in messages)
    return OriginalMessages(messages, tuple(numbers))


def with_archived(
    context: CompactionContext, messages: Messages, archived: Archived
) -> Iterator[tuple[Message, OriginalMessages]]:
    """Yield each message with what it replaces: archived originals, and its text about others."""
    for message in messages:
        replaced = placeholders.originals_of(message)
        if replaced is None and not placeholders.is_request_extract(message):
            yield message, _NONE  # nearly all messages
            continue
        span = _own_span(context, message)
        found = _NONE if span is None else archived.get(span, _NONE)
        if replaced is not None:
            summary = carried_by(message)
            text = summary.body if summary else text_of(message.blocks)
            unarchived = text
            if span is not None and found.numbers:
                first = found.numbers[0] or span.start_seq
                unarchived = entries_before(text, first) if first > span.start_seq else ""
            found = replace(found, earlier=text, unarchived=unarchived)
        yield message, found


def originals_of(context: CompactionContext, plan: Plan) -> OriginalMessages:
    """Return the originals of what `plan` replaces.

    Cleared results are taken from the caller's list, and messages behind earlier summaries from the
    archive, so that facts do not erode.
    """
    parts: list[OriginalMessages] = []
    for message, found in with_archived(context, plan.replaced, plan.archived):
        if not found.earlier:
            given = message if message.index is None else context.parsed[message.index]
            full_messages = found.messages or (given,)
            numbers = (context.number_of(message),) * len(full_messages)
            found = OriginalMessages(full_messages, numbers)
        parts.append(found)
    history_count = sum(len(part.messages) for part in parts[: len(plan.history)])
    return replace(OriginalMessages.joined(*parts), history_count=history_count)


def _own_span(context: CompactionContext, message: Message) -> Span | None:
    """Return the span that a summary of this session replaces, or None.

    An extract of a long request replaces that request.
    """
    if placeholders.is_request_extract(message):
        return context.span_of((message,)) if context.number_of(message) is not None else None
    span = placeholders.originals_of(message)
    # A span without a head could belong to any branch.
    if span is None or not span.head or span.session_id != context.session.session_id:
        return None
    return span if context.is_own(message) else None


def brings_text(request: CompactRequest) -> bool:
    """Whether the host writes the summary, or has written it."""
    return request.summary is not None or request.summarizer == "host"


def uses_model(context: CompactionContext, plan: Plan) -> bool:
    """Whether the model given to `compact`, if any, writes the summary."""
    request = context.request
    # A rejected prompt must shrink without another model call.
    if request.summarizer != "auto" or request.mode == "reactive":
        return False
    return request.summary is None and plan.cut is not None


def asks_host(context: CompactionContext, plan: Plan) -> bool:
    """Whether the host's own model must write the summary now."""
    request = context.request
    if request.summarizer != "host" or request.mode in ("plan", "reactive"):
        return False
    is_missing = request.summary is None and plan.memory is None
    return is_missing and _host_job(context, plan) is not None


async def summarize(
    context: CompactionContext,
    plan: Plan,
    model: SummaryModel | None,
    *,
    now_seconds: float,
    report_chars: TellChars,
) -> SummaryText:
    """Return the text of the summary's writer, with its own report; no text for extracts.

    Raises:
        SettingsError: The `continuation` does not belong to this conversation.
    """
    request = context.request
    if plan.memory is not None:
        return _saved_text(plan.memory)
    if request.summary is not None and request.mode == "record":
        return await to_thread.run_sync(_text_to_record, context)
    if request.summary is not None:
        warnings = _continuation_warnings(context, plan)
        words = await to_thread.run_sync(_with_host_text, context, plan)
        return replace(words, warnings=(*warnings, *words.warnings))
    if model is None or not uses_model(context, plan):
        return SummaryText()
    return await _with_model(context, plan, model, now_seconds, report_chars)


def _saved_text(match: SummaryMatch) -> SummaryText:
    """Return a saved summary as the text of this one."""
    saved = match.summary
    report = {
        "writer": saved.writer,
        "at_seconds": saved.at_seconds,
        "stop_seq": saved.stop_seq,
        "messages_since": len(match.since),
        "tokens_since": max(0, match.gap_tokens),
    }
    return SummaryText(writer="memory", prose=saved.text, memory=report)


def find_saved_summary(context: CompactionContext, plan: Plan) -> SummaryMatch | None:
    """Return the saved summary whose end is nearest to the cut point; None if none is usable.

    It must describe everything that is replaced in this branch, fit, have the same instructions,
    and leave at most `GAP_SHARE` of the target before the cut point.
    """
    request, cut = context.request, plan.cut
    if request.mode == "plan" or cut is None or request.summary is not None or request.range:
        return None
    if request.summarizer == "extractive":
        return None
    first = context.span_of(plan.replaced).start_seq
    most_tokens = context.budget.message_tokens * GAP_SHARE
    saved = (state.memory for state in reversed(context.session.states) if state.memory)
    matches = [
        _match(context, plan.edited.messages, cut, summary)
        for summary in saved
        if summary.start_seq <= first and summary.instructions == request.instructions
        if context.count.text(summary.text) <= plan.text_tokens
    ]
    usable = [match for match in matches if match and match.gap_tokens <= most_tokens]
    return min(usable, key=lambda match: abs(match.gap_tokens), default=None)


def _match(
    context: CompactionContext, messages: Messages, cut: CutPoint, summary: SavedSummary
) -> SummaryMatch | None:
    """Return how far `summary` ends from `cut`; None if its end is not in the list."""
    ends = [_end_seq(context, message) for message in messages]
    if summary.stop_seq not in ends:
        return None
    end, stop = len(ends) - ends[::-1].index(summary.stop_seq), cut.first_kept
    if end >= stop:
        return SummaryMatch(summary, (), -context.count.total(messages[stop:end]))
    request_at = None if cut.folds_request else cut.request_at
    since = tuple(messages[index] for index in range(end, stop) if index != request_at)
    return SummaryMatch(summary, since, context.count.total(since))


def _end_seq(context: CompactionContext, message: Message) -> int:
    """Return the number of the last archived message that `message` is or replaces, or -1."""
    span = placeholders.originals_of(message)
    if span is not None:
        return span.stop_seq if span.session_id == context.session.session_id else -1
    number = context.number_of(message)
    return -1 if number is None else number


def _job(context: CompactionContext, plan: Plan) -> SummaryJob:
    """Return the writer's job; its text may have a third of the tokens that it replaces."""
    replaced, record = plan.originals(), _record_of(context, plan)
    replaced_tokens = context.count.messages(replaced.messages)
    replaced_tokens += context.count.text(replaced.unarchived)
    later = plan.edited.messages[plan.cut.first_kept :] if plan.cut else ()
    return SummaryJob(
        record=parts_of(record.messages, record.numbers),
        previous=record.earlier,
        has_originals=not record.unarchived,
        max_tokens=min(plan.text_tokens, replaced_tokens // 3),
        extracts=cache(partial(_extract, context, replaced)),
        kept=parts_of(later, [context.number_of(message) for message in later]),
        pinned=tuple(_format_pin(context, pin, later) for pin in context.pins.candidates),
        kept_messages=len(later),
        instructions=context.request.instructions,
        outline=context.settings.summary_outline,
        too_long=context.settings.summary_too_long,
        retries=context.settings.summary_retries,
    )


def _conversation(context: CompactionContext, model: SummaryModel) -> Conversation | None:
    """Return the conversation if `model` is its own model and the provider may have it cached."""
    request, session = context.request, context.session
    takes = getattr(model, "shares_cache", False) and getattr(model, "list_format", "")
    # The instruction speaks of everything but the last messages, which a chosen range is not.
    if takes != context.format or model.model != request.model or request.range is not None:
        return None
    left_tokens = model.window_tokens - context.budget.before.upper - _INSTRUCTION_TOKENS
    # After a pause the provider has forgotten it, and all of it would cost more than a transcript.
    if request.idle_seconds > _CACHE_SECONDS or left_tokens < _ANSWER_TOKENS:
        return None
    return Conversation(session.payload, left_tokens, request.system, request.tools)


def _record_of(context: CompactionContext, plan: Plan) -> OriginalMessages:
    """Return the input of a writer: all replaced messages and the running request."""
    originals, cut = plan.originals(), plan.cut
    if cut is None or cut.request_at is None or cut.folds_request:
        return originals
    request, at = request_of(plan.edited.messages, cut.request_at), originals.history_count
    messages, numbers = originals.messages, originals.numbers
    return replace(
        originals,
        messages=(*messages[:at], request, *messages[at:]),
        numbers=(*numbers[:at], context.number_of(request), *numbers[at:]),
    )


def _format_pin(context: CompactionContext, pin: Pin, later: Messages) -> str:
    """Return a pinned text for the writer's prompt, with the place of its message."""
    if pin.index is None:
        return f"[beside the record] {pin.marked_text}"
    number = context.session.seqs[pin.index]
    place = ", after the record" if any(m.index == pin.index for m in later) else ""
    return f"[{'earlier' if number < 0 else number}{place}] {pin.marked_text}"


def _source_of(context: CompactionContext, record: OriginalMessages) -> check.GroundingSource:
    """Return the source against which a text about `record` is checked.

    The text may also refer to messages that stay.
    """
    replaced = set(map(id, record.messages))
    other_messages = (message for message in context.messages if id(message) not in replaced)
    return check.source_of(
        (*record.messages, *other_messages),
        user_texts=(record.earlier, *context.pins.texts, context.request.instructions),
        other_texts=(str(context.request.system or ""),),
    )


def _with_host_text(context: CompactionContext, plan: Plan) -> SummaryText:
    """Return the host's text, if it is usable."""
    job = _host_job(context, plan)
    if job is None:
        warning = "The given summary is not used, because no history had to be replaced."
        return SummaryText(warnings=(warning,))
    room_tokens = min(int(job.max_tokens * writer.LENGTH_TOLERANCE), plan.text_tokens)
    if context.request.range is not None:
        room_tokens = plan.text_tokens
    record, refused = _record_of(context, plan), "used. {}. Verbatim extracts take its place"
    return _accepted_text(context, record, plan.replaced, room_tokens, refused)


def _text_to_record(context: CompactionContext) -> SummaryText:
    """Return the host's text, passed between compactions, as a summary that is only archived."""
    record, room_tokens = OriginalMessages(context.messages), context.settings.summary_tokens
    return _accepted_text(context, record, context.messages, room_tokens, "saved. {}")


def _accepted_text(
    context: CompactionContext,
    record: OriginalMessages,
    covered: Messages,
    room_tokens: int,
    refused: str,
) -> SummaryText:
    """Return the host's text about `record`; if it is not usable, the warning `refused`."""
    text, source = context.request.summary or "", _source_of(context, record)
    try:
        prose = writer.accepted(text, source, room_tokens, context.count)
    except errors.SummaryError as error:
        return SummaryText(warnings=(f"The given summary is not {refused.format(error)}.",))
    span = context.span_of(covered)
    return SummaryText(writer="host", warnings=prose.warnings, prose=prose.text, covered_span=span)


def _host_job(context: CompactionContext, plan: Plan) -> SummaryJob | None:
    """Return the job of the host's model; None if the summary would be too short."""
    job = _job(context, plan)
    is_useful = plan.history and plan.text_tokens
    return job if is_useful or job.max_tokens >= writer.MIN_PROSE_TOKENS else None


def prompt_for_host(context: CompactionContext, plan: Plan) -> SummaryPrompt:
    """Return the prompt with which a host's model writes the summary, with its token.

    The token names the last message to summarize and the branch up to it.
    """
    request, span = context.request, context.span_of(plan.replaced)
    # A host cannot report that a prompt is too long, so it is clipped beforehand.
    job = replace(_job(context, plan), too_long="clip")
    window_tokens = request.context_window or profile_for(request.model).context_window
    room_tokens = job.room_tokens(window_tokens, context.count)
    prompt = fullest_version(job, room_tokens, context.count).prompt
    user, token = context.gates.json(prompt.user), f"{span.stop_seq}@{span.head}"
    return SummaryPrompt(prompt.system, user, prompt.max_tokens, token)


def _continuation_warnings(context: CompactionContext, plan: Plan) -> tuple[str, ...]:
    """Check that the host's summary was requested for this list, and return warnings about it.

    Raises:
        SettingsError: The token is invalid or belongs to another list.
    """
    token, session = context.request.continuation, context.session
    if token is None:
        return ()
    stop_seq, _, head = token.partition("@")
    if not stop_seq.isdecimal() or head not in {name[:HEAD_CHARS] for name in session.heads}:
        raise errors.SettingsError(
            f"The continuation {token[:60]!r} does not belong to this list of session "
            f"{session.session_id}. Pass it exactly as summary_request contains it, or call again "
            "without summary and continuation to get a new request."
        )
    newest_seq = context.span_of(plan.replaced).stop_seq
    if not plan.text_tokens or newest_seq <= int(stop_seq):
        return ()
    return (
        f"The conversation has grown since the summary was requested. Messages {int(stop_seq) + 1} "
        f"to {newest_seq} are in it only as verbatim extracts.",
    )


async def _with_model(
    context: CompactionContext,
    plan: Plan,
    model: SummaryModel,
    now_seconds: float,
    report_chars: TellChars,
) -> SummaryText:
    """Return the model's text; on failure no text but a warning."""
    job = _job(context, plan)
    window_tokens = model.window_tokens
    # In the window of a small model, text and later messages must leave room for the conversation.
    kept = job.kept[-max(3, window_tokens // 1_500) :]
    job = replace(job, kept=kept, max_tokens=min(job.max_tokens, window_tokens // 6))
    if conversation := _conversation(context, model):
        max_tokens = min(job.max_tokens, int(conversation.left_tokens / writer.LENGTH_TOLERANCE))
        job = replace(job, conversation=conversation, max_tokens=max_tokens)
    if job.max_tokens < writer.MIN_PROSE_TOKENS:
        return SummaryText()
    report: JsonObject = {"writer": model.writer, "name": model.model, "requested": False}
    if wait := wait_seconds(context.session.all_states, now_seconds):
        warning = (
            f"The summary consists of verbatim extracts: {model.model} failed {MAX_FAILURES} "
            f"times in a row and is not called for {wait:.0f} seconds."
        )
        return SummaryText(warnings=(warning,), model={**report, "waits_seconds": round(wait)})
    calls = writer.ModelCalls(model, report_chars, context.gates.json)
    prose, failure = None, ""
    source = await to_thread.run_sync(_source_of, context, _record_of(context, plan))
    try:
        prose = await writer.write_prose(job, source, calls, context.count)
    except errors.SummaryError as error:
        failure = str(error)
    report |= {
        "requested": True,
        "at_seconds": round(now_seconds),
        "routes": [prose.route] if prose else [],
        "was_repaired": bool(prose and prose.was_repaired),
        "failure": failure or None,
        **calls.usage.as_json(),
    }
    if prose is None:
        warning = f"The summary consists of verbatim extracts, because the model failed: {failure}."
        return SummaryText(warnings=(warning,), model=report)
    return SummaryText(
        writer=model.writer,
        warnings=prose.warnings,
        model=report,
        prose=prose.text,
        covered_span=context.span_of(plan.replaced),
    )


def _extract(context: CompactionContext, record: OriginalMessages) -> str:
    """Return the extracts that a model writes from."""
    messages, numbers = record.messages, record.numbers
    return extract(messages, numbers, _EXTRACTS_TOKENS, context.count, lost=record.unarchived)


def with_extracts(context: CompactionContext, plan: Plan) -> Plan:
    """Return `plan` with extracts as its texts, if its cut point is not decided by a fill."""
    given, max_tokens = plan.originals(), plan.text_tokens
    lost_count = len(earlier_entries(given.unarchived).messages)
    while max_tokens > 0:
        items = bought_items(
            given.messages, given.numbers, max_tokens, context.count, lost=given.unarchived
        )
        before = [item for item in items if item.at < lost_count + given.history_count]
        inside = [item for item in items if item.at >= lost_count + given.history_count]
        filled = replace(plan, summary=render(before), checkpoint=render(inside))
        excess_tokens = -context.room_tokens(assemble(context, filled).messages)
        if excess_tokens <= 0 or context.request.range is not None:
            return filled
        # A text may count more inside its message, especially next to another script.
        max_tokens -= excess_tokens + HEAD_TOKENS
    return plan


def with_prose(plan: Plan, prose: str) -> Plan:
    """Return `plan` with `prose` as the text of everything that summary and checkpoint replace."""
    if not plan.history:
        return replace(plan, summary="", checkpoint=prose)
    return replace(plan, summary=prose, checkpoint=_IN_SUMMARY if plan.prefix else "")


async def session_notes(
    payload: Sequence[JsonObject],
    *,
    format: str,
    session_id: str,
    archive: Archive,
    max_tokens: int,
) -> str:
    """Return the summary of a whole conversation as extracts, however short it is.

    Unlike `compact`, this edits and writes nothing. The archive only gives the numbers of the
    messages, and decides whether secrets are removed.

    Args:
        payload: The conversation, as the provider's API takes it.
        format: Name of its format.
        session_id: Its session.
        archive: The archive that holds the session.
        max_tokens: Token limit of the extracts.

    Raises:
        InvalidMessageError: A message is malformed.
        ArchiveError: The archive cannot be read.
    """
    messages = await to_thread.run_sync(_parsed, payload, format)
    appended = await archive.append(session_id, messages, format=format, dry_run=True)
    text = await to_thread.run_sync(_notes, messages, appended, session_id, max_tokens)
    return Gates(archive.redaction, messages).json(text) if text else ""


def _parsed(payload: Sequence[JsonObject], format: str) -> Messages:
    return with_authors(formats.parse(list(payload), format=format))


def _notes(messages: Messages, appended: AppendResult, session_id: str, max_tokens: int) -> str:
    numbers = [seq if seq >= 0 else None for seq in appended.seqs]
    known = [number for number in numbers if number is not None]
    text = extract(messages, numbers, max_tokens, counter_for(None))
    if not text or not known:
        return ""
    span = placeholders.Span(session_id, min(known), max(known), appended.head[:HEAD_CHARS])
    running = [Pin(job.line, "running") for job in running_jobs(messages)]
    return placeholders.summary(span, with_pin_block(pin_block(running, ()), text))
