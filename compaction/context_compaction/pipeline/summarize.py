"""The summary's text for a plan: its writer, its prompt, and the checks of the prose.

Prose is written by the host or by a model; where it fails, extracts replace it.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive import AppendResult, Archive
from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    SummaryText,
    span_of,
)
from context_compaction.errors import NotFoundError, SettingsError, SummaryError
from context_compaction.layers.cut_point import request_of
from context_compaction.messages import placeholders
from context_compaction.messages.history_hash import HEAD_CHARS, history_hash
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.messages.pins import Pin
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import user_text, with_authors
from context_compaction.pipeline.assemble import assemble
from context_compaction.pipeline.originals import joined
from context_compaction.redaction import gates_of
from context_compaction.request import CompactRequest
from context_compaction.result import SummaryPrompt
from context_compaction.session.earlier_calls import Decision
from context_compaction.session.resume import Session
from context_compaction.session.state import SessionState, wait_seconds
from context_compaction.summarizers.extractive.render import extract
from context_compaction.summarizers.llm import check
from context_compaction.summarizers.llm.model import SummaryModel, TellChars
from context_compaction.summarizers.llm.prompt import (
    MOST_PROSE_SHARE,
    PROSE_SHARE,
    SummaryJob,
    fullest_version,
)
from context_compaction.summarizers.llm.record import parts_of
from context_compaction.summarizers.llm.writer import (
    LENGTH_TOLERANCE,
    MIN_PROSE_TOKENS,
    ModelCalls,
    accepted,
    write_prose,
)
from context_compaction.tokens.counter import counter_for
from context_compaction.tokens.models import profile_for

# Where prose tells of history and of the running turn's beginning, it stands before the request.
TOLD_ABOVE = "Told in the summary above."
_FITTINGS = 4
# Of the log and the facts that a model writes from.
_EXTRACTS_TOKENS = 3_000
# "plan" costs nothing, and what a provider refused is mended without asking another.
# A model that fails at a session's summaries so many times in a row, as with Claude Code, is not
# called until so much time has passed; then once, to see.
_MAX_FAILURES = 3
COOL_DOWN_SECONDS = 900
_MODES_WITHOUT_MODEL = ("plan", "reactive")
# A person may have to approve the host's request to its model.
_LIFETIME_SECONDS = 3_600
_CONTINUATION = re.compile(r"c2-(\d{1,12})-(\d{1,12})-([0-9a-f]{0,12})-(\d{1,12})-[0-9a-f]{24}")
_NUMBER = re.compile(r"(?<=[\[, -])\d{1,9}(?=[\], -])")


def brings_text(request: CompactRequest) -> bool:
    """Whether the host writes the summary, or has written it."""
    return request.summary is not None or request.summarizer == "host"


def asks_host(context: CompactionContext, decision: Decision) -> bool:
    """Whether the host's own model is to write the summary now."""
    request = context.request
    if request.summarizer != "host" or request.mode in _MODES_WITHOUT_MODEL:
        return False
    is_missing = request.summary is None and decision.memory is None
    return is_missing and _host_job(context, decision) is not None


def asks_model(context: CompactionContext, plan: Plan) -> bool:
    """Whether a model of ours is to write the summary, where there is one."""
    request = context.request
    if request.summarizer != "auto" or request.mode in _MODES_WITHOUT_MODEL:
        return False
    return request.summary is None and plan.cut is not None


async def summarize(
    context: CompactionContext,
    session: Session,
    decision: Decision,
    archive: Archive,
    model: SummaryModel | None,
    *,
    now_seconds: float,
    tell: TellChars,
) -> SummaryText | None:
    """The summary by its writer; None where it has none, and is made of extracts.

    Raises:
        SettingsError: The `continuation` does not belong to this conversation.
    """
    request, plan = context.request, decision.plan
    if decision.memory is not None or (request.summary is not None and request.mode == "record"):
        return None
    if request.summary is not None:
        notes = await _continuation_warnings(context, plan, archive, now_seconds)
        words = await to_thread.run_sync(_summarize_with_host_text, context, decision)
        return replace(words, warnings=(*notes, *words.warnings))
    if model is None or not asks_model(context, plan):
        return None
    return await _summarize_with_model(
        context,
        decision,
        model,
        states=session.all_states,
        now_seconds=now_seconds,
        tell=tell,
    )


def _job(context: CompactionContext, plan: Plan, originals: Originals) -> SummaryJob:
    """The text about all that is replaced; prose has at most a third of what it replaces."""
    replaced, record = joined(originals), _record_of(context, plan, originals)
    replaced_tokens = context.count.messages(replaced.messages) + context.count.text(replaced.lost)
    said_tokens = sum(context.count.text(user_text(message)) for message in replaced.messages)
    # What the user said stands beside it, word for word.
    least, most = (int(plan.text_tokens * share) for share in (PROSE_SHARE, MOST_PROSE_SHARE))
    room_tokens = min(max(least, plan.text_tokens - said_tokens), most)
    kept = plan.edited.messages[plan.cut.first_kept :] if plan.cut else ()
    return SummaryJob(
        record=parts_of(record.messages, record.numbers),
        previous=record.earlier,
        has_originals=not (record.lost or record.is_short),
        max_tokens=min(room_tokens, replaced_tokens // 3),
        # What the user said is in the record itself.
        extracts=cache(partial(extract_of, context, replaced, _EXTRACTS_TOKENS)),
        kept=parts_of(kept, [context.number_of(message) for message in kept]),
        pinned=tuple(_pin_told(context, pin, kept) for pin in context.pins.candidates),
        instructions=context.request.instructions,
        outline=context.settings.summary_outline,
        too_long=context.settings.summary_too_long,
        retries=context.settings.summary_retries,
    )


def _record_of(context: CompactionContext, plan: Plan, originals: Originals) -> OriginalMessages:
    """What a writer reads: all that is replaced, and the running request in its place."""
    before, cut = originals.history, plan.cut
    if cut is not None and cut.request_at is not None and not cut.folds_request:
        request = request_of(plan.edited.messages, cut.request_at)
        before = replace(
            before,
            messages=(*before.messages, request),
            numbers=(*before.numbers, context.number_of(request)),
        )
    return joined(replace(originals, history=before))


def _pin_told(context: CompactionContext, pin: Pin, kept: Messages) -> str:
    """A pinned text for the prompt of a writer: with its number, or marked as earlier or given."""
    if pin.index is None:
        return f"[beside the record] {pin.shown}"
    number = context.seqs[pin.index]
    place = ", after the record" if any(m.index == pin.index for m in kept) else ""
    return f"[{'earlier' if number < 0 else number}{place}] {pin.shown}"


def _source_of(context: CompactionContext, record: OriginalMessages) -> check.GroundingSource:
    """The source that prose for `record` is checked against."""
    # What stays may be named as well, and so may what an earlier summary named.
    numbers = {number for number in context.seqs if number >= 0}
    numbers.update(map(int, _NUMBER.findall(f"{record.earlier}\n{record.lost}")))
    numbers.update(number for number in record.numbers if number is not None)
    replaced = set(map(id, record.messages))
    # What is said in the part that stays is no invention either.
    beside = (message for message in context.messages if id(message) not in replaced)
    return check.source_of(
        (*record.messages, *beside),
        user_texts=(record.earlier, *context.pins.texts, context.request.instructions),
        numbers=numbers,
    )


def _summarize_with_host_text(context: CompactionContext, decision: Decision) -> SummaryText:
    """The summary with the prose that the host gave, if it may be used."""
    plan, originals = decision.plan, decision.originals
    job = _host_job(context, decision)
    if job is None:
        warning = "The summary that was given is not used: no history had to be replaced."
        return SummaryText("", "", warnings=(warning,))
    source = _source_of(context, _record_of(context, plan, originals))
    room_tokens = min(int(job.max_tokens * LENGTH_TOLERANCE), plan.text_tokens)
    try:
        prose = accepted(context.request.summary or "", source, room_tokens, context.count)
    except SummaryError as error:
        warning = f"The summary that was given is not used. {error}. Verbatim extracts stand there."
        return SummaryText("", "", warnings=(warning,))
    told = span_of(context, plan.replaced)
    return SummaryText("", "", "host", prose.warnings, prose=prose.text, told=told)


def _host_job(context: CompactionContext, decision: Decision) -> SummaryJob | None:
    """What the host's model is asked for; None where that is not worth it."""
    job = _job(context, decision.plan, decision.originals)
    is_worth_it = decision.plan.summary_tokens or job.max_tokens >= MIN_PROSE_TOKENS
    return job if is_worth_it else None


async def ask_host(
    context: CompactionContext, decision: Decision, archive: Archive, now_seconds: float
) -> SummaryPrompt:
    """The prompt with which a host's model writes the summary, with its continuation token."""
    span = span_of(context, decision.plan.replaced)
    token = await _continuation(span, archive, int(now_seconds) + _LIFETIME_SECONDS)
    return await to_thread.run_sync(_prompt_for, context, decision, token)


def _prompt_for(context: CompactionContext, decision: Decision, token: str) -> SummaryPrompt:
    request = context.request
    # A host cannot report that a prompt is too long.
    job = replace(_job(context, decision.plan, decision.originals), too_long="clip")
    window_tokens = request.context_window or profile_for(request.model).context_window
    prompt = fullest_version(job, job.room_tokens(window_tokens), context.count).prompt
    user = context.gates.json(prompt.user)
    return SummaryPrompt(prompt.system, user, prompt.max_tokens, token)


async def _continuation_warnings(
    context: CompactionContext, plan: Plan, archive: Archive, now_seconds: float
) -> tuple[str, ...]:
    """The warnings about the token of the host's summary.

    Raises:
        SettingsError: It is none of ours, has expired, or belongs to another conversation.
    """
    token = context.request.continuation
    if token is None:
        return ()
    found = _CONTINUATION.fullmatch(token)
    if found is None:
        raise SettingsError(
            f"continuation is {token[:60]!r}. Give it exactly as summary_request had it, or leave "
            "it out."
        )
    start_seq, stop_seq, expires_seconds = (int(found[number]) for number in (1, 2, 4))
    if now_seconds > expires_seconds:
        raise SettingsError(
            "The continuation has expired: the conversation may have moved on since. Call again "
            "without summary and continuation to get a new request."
        )
    span = Span(context.session_id, start_seq, stop_seq, found[3])
    if await _continuation(span, archive, expires_seconds) != token:
        raise SettingsError(
            f"The continuation does not belong to session {context.session_id}: the summary would "
            "stand for another conversation. Call again without summary and continuation to get a "
            "new request."
        )
    stop = span_of(context, plan.replaced).stop_seq
    if not plan.text_tokens or stop <= stop_seq:
        return ()
    return (
        f"The conversation has grown since the summary was asked for: of messages "
        f"{stop_seq + 1} to {stop} only verbatim extracts stand in it.",
    )


async def _continuation(span: Span, archive: Archive, expires_seconds: int) -> str:
    """The token that ties a summary to the messages that a host was asked to summarise.

    It names them and holds a hash of what the archive has of them. So no key has to be kept, it
    holds across restarts and processes, and a summary of another conversation is recognised.
    """
    start, stop, head = span.start_seq, span.stop_seq, span.head
    try:
        found = await archive.read_messages(span.session_id, start, stop, head=head or None)
    except NotFoundError:
        found = []
    history = history_hash(item.raw for item in found)
    named = json.dumps([span.session_id, start, stop, expires_seconds, history])
    digest = hashlib.blake2b(named.encode("ascii"), digest_size=12).hexdigest()
    return f"c2-{start}-{stop}-{head}-{expires_seconds}-{digest}"


async def _summarize_with_model(
    context: CompactionContext,
    decision: Decision,
    model: SummaryModel,
    *,
    states: Sequence[SessionState],
    now_seconds: float,
    tell: TellChars,
) -> SummaryText | None:
    """The summary with the prose of `model`; extracts where that fails, and why.

    Args:
        context: The call.
        decision: What is replaced.
        model: The writer.
        states: The states of the session's calls, oldest first: the model's failures among them.
        now_seconds: The time.
        tell: Called as the text grows.
    """
    plan, originals = decision.plan, decision.originals
    job = _job(context, plan, originals)
    if job.max_tokens < MIN_PROSE_TOKENS:
        return None
    report: JsonObject = {"writer": model.writer, "name": model.model, "requested": False}
    if wait := wait_seconds(
        states,
        now_seconds,
        max_failures=_MAX_FAILURES,
        cool_down_seconds=COOL_DOWN_SECONDS,
    ):
        warning = (
            f"Verbatim extracts stand in the summary: {model.model} failed "
            f"{_MAX_FAILURES} times in a row and is left alone for {wait:.0f} seconds."
        )
        plain = SummaryText("", "", warnings=(warning,))
        return replace(plain, model={**report, "waits_seconds": round(wait)})
    calls = ModelCalls(model, tell, context.gates.json)
    prose, failure = None, ""
    record = _record_of(context, plan, originals)
    source = await to_thread.run_sync(_source_of, context, record)
    try:
        prose = await write_prose(job, source, calls, context.count)
    except SummaryError as error:
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
        warning = f"Verbatim extracts stand in the summary, not a model's: {failure}."
        plain = SummaryText("", "", warnings=(warning,))
        return replace(plain, model=report)
    told = span_of(context, plan.replaced)
    return SummaryText("", "", model.writer, prose.warnings, report, prose.text, told)


def summary_to_record(context: CompactionContext) -> SummaryText:
    """The host's text, passed in between compactions, as a summary that only the archive keeps."""
    source = _source_of(context, OriginalMessages(context.messages))
    room_tokens = int(context.settings.summary_tokens * PROSE_SHARE)
    try:
        prose = accepted(context.request.summary or "", source, room_tokens, context.count)
    except SummaryError as error:
        return SummaryText("", "", warnings=(f"The summary that was given is not kept. {error}.",))
    told = span_of(context, context.messages)
    return SummaryText("", "", "host", prose.warnings, prose=prose.text, told=told)


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


async def session_notes(
    payload: Sequence[JsonObject],
    *,
    format: str,
    session_id: str,
    archive: Archive,
    max_tokens: int,
) -> str:
    """The summary of a whole conversation, made of extracts; however short it is.

    Unlike `compact`, this edits nothing and writes nothing: the archive tells only the numbers of
    the messages, and whether secrets are taken out.

    Args:
        payload: The conversation, as the provider's API takes it.
        format: The name of its format.
        session_id: Its session.
        archive: The archive that holds the session.
        max_tokens: The most that the extracts may count.

    Raises:
        InvalidMessageError: A message is malformed.
        ArchiveError: The archive cannot be read.
    """
    messages = await to_thread.run_sync(_parsed, payload, format)
    placed = await archive.append(session_id, messages, format=format, dry_run=True)
    text = await to_thread.run_sync(_notes, messages, placed, session_id, max_tokens)
    return gates_of(archive.redaction, messages).json(text) if text else ""


def _parsed(payload: Sequence[JsonObject], format: str) -> Messages:
    return with_authors(formats.parse(list(payload), format=format))


def _notes(messages: Messages, placed: AppendResult, session_id: str, max_tokens: int) -> str:
    numbers = [seq if seq >= 0 else None for seq in placed.seqs]
    known = [number for number in numbers if number is not None]
    text = extract(messages, numbers, max_tokens, counter_for(None))
    if not text or not known:
        return ""
    span = placeholders.Span(session_id, min(known), max(known), placed.head[:HEAD_CHARS])
    return placeholders.summary(span, text)
