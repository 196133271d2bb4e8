"""The summary's text for a plan: its writer, its prompt, and the checks of the prose.

Verbatim extracts need no model: they are the whole text, or are added to prose. Prose is written by
the host or by a model; where it fails, extracts replace it. A summary that was written earlier is
used again where it reaches the cut.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from context_compaction.activity.digest import digest
from context_compaction.archive import Store
from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    SummaryText,
    fills_target,
    span_of,
)
from context_compaction.errors import NotFoundError, SummaryError
from context_compaction.file_access import DiskFile
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.messages.pins import Pin
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import user_text
from context_compaction.pipeline.assemble import excess_tokens
from context_compaction.pipeline.originals import (
    Read,
    number_of,
    originals_of,
    parsed_originals,
)
from context_compaction.pipeline.plan import (
    beside_prose,
    filled,
    has_slack,
    with_longer_tail,
    with_more_files,
    with_more_words,
)
from context_compaction.pipeline.redaction_gates import GuardedModel
from context_compaction.request import CompactRequest
from context_compaction.result import SummaryPrompt
from context_compaction.session import continuation
from context_compaction.session.earlier_calls import Decision, KnownFiles, earlier_calls_of
from context_compaction.session.load import Session
from context_compaction.session.saved_summary import SummaryMatch, summary_that_reaches
from context_compaction.session.state import SessionState, wait_seconds
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.summarizers.extractive.parse import RECORD_TITLE, read_previous
from context_compaction.summarizers.llm import check, host
from context_compaction.summarizers.llm.model import SummaryModel, TellChars
from context_compaction.summarizers.llm.prompt import (
    PROSE_SHARE,
    SummaryJob,
    fullest_prompt,
)
from context_compaction.summarizers.llm.writer import (
    MIN_PROSE_TOKENS,
    ModelCalls,
    Prose,
    gathered,
    write_prose,
)
from context_compaction.tokens.models import profile_for

# Of the room beside the text, this part is for what came after it; the rest is for all of it.
_SINCE_SHARE = 0.6
_SINCE_TITLE = "# Since that was written, word for word"
_MIN_RECORD_TOKENS = 60
# Of the log and the facts that a model writes from.
_EXTRACTS_TOKENS = 3_000
_FITTINGS = 4
_CHECKPOINT_MARGIN_TOKENS = 100
# "plan" costs nothing, and what a provider refused is mended without asking another.
_MODES_WITHOUT_MODEL = ("plan", "reactive")
_NUMBER = re.compile(r"(?<=[\[, -])\d{1,9}(?=[\], -])")
# A longer tail leaves extracts less to tell, and so some room again: filled once more where that is
# more than a tenth. A list that is full to the brim would be compacted again by its next message.
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
    if brings_text(context.request):
        plan = _with_short_checkpoint(context, plan, originals)
    memory = summary_that_reaches(context, plan, session.states)
    return Decision(plan, earlier_calls, originals, archived, memory)


def _with_short_checkpoint(context: CompactionContext, plan: Plan, originals: Originals) -> Plan:
    """`plan` with what its checkpoint, which a host never writes, leaves of its room for prose."""
    checkpoint = extract_of(context, originals.prefix, plan.checkpoint_tokens, is_prefix=True)
    # The same lines have to fit again.
    used_tokens = context.count.text(checkpoint) + _CHECKPOINT_MARGIN_TOKENS
    left_tokens = plan.checkpoint_tokens - used_tokens
    if not plan.summary_tokens or left_tokens <= 0:
        return plan
    return replace(
        plan,
        summary_tokens=plan.summary_tokens + left_tokens,
        checkpoint_tokens=plan.checkpoint_tokens - left_tokens,
    )


def brings_text(request: CompactRequest) -> bool:
    """Whether the host writes the summary, or has written it."""
    return request.summary is not None or request.summarizer == "host"


def asks_host(context: CompactionContext, decision: Decision) -> bool:
    """Whether the host's own model is to write the summary now."""
    request = context.request
    if request.summarizer != "host" or request.mode in _MODES_WITHOUT_MODEL:
        return False
    is_missing = request.summary is None and decision.memory is None
    return is_missing and decision.plan.summary_tokens > 0


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
    archive: Store,
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
        host_text = partial(summarize_with_host_text, context, plan, decision.originals)
        words = await to_thread.run_sync(host_text)
        return replace(words, warnings=(*notes, *words.warnings))
    if model is None or not asks_model(context, plan):
        return None
    return await _summarize_with_model(
        context,
        decision,
        GuardedModel(model, context.gates),
        states=session.all_states,
        now_seconds=now_seconds,
        tell=tell,
    )


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
    if words.prose:
        roomier = _shared_as_in(told, roomier)
    if roomier.text_tokens > told.text_tokens:
        longer = _text_for(context, roomier, words, decision)
        # A text that is cut to fit its message may come out shorter than the one before.
        if _text_tokens(context, longer) > _text_tokens(context, words):
            plan, words = replace(roomier, level=plan.level), longer
    return _with_more_files(context, plan, words, decision), words


def _text_for(
    context: CompactionContext, plan: Plan, words: SummaryText, decision: Decision
) -> SummaryText:
    """`words` for another `plan`: its extracts, beside the same prose where there is any."""
    originals = originals_of(context, plan, decision.archived)
    if not words.prose:
        return extracts(context, plan, originals, words.warnings)
    told = with_extracts(context, words.prose, originals.history, plan.summary_tokens)
    assert plan.cut is not None and decision.plan.cut is not None  # noqa: S101, PT018  # has prose
    if plan.cut.request_at == decision.plan.cut.request_at:
        return replace(words, summary=told)  # of the same turn; what stays of it is told twice
    checkpoint = extract_of(context, originals.prefix, plan.checkpoint_tokens, is_prefix=True)
    return replace(words, summary=told, checkpoint=checkpoint)


def _text_tokens(context: CompactionContext, words: SummaryText) -> int:
    return context.count.text(words.summary) + context.count.text(words.checkpoint)


def _refilled(
    context: CompactionContext, plan: Plan, words: SummaryText, decision: Decision
) -> tuple[Plan, SummaryText]:
    """`plan` with the longer tail for which `words` leave room, and the text for what it cuts."""
    longer_tail = filled
    if words.prose:
        if not fills_target(context):
            return plan, words
        # What the prose left of its room is not for more extracts.
        longer_tail = with_longer_tail
        unspent_tokens = int(plan.summary_tokens * PROSE_SHARE) - context.count.text(words.prose)
        plan = replace(plan, summary_tokens=plan.summary_tokens - max(0, unspent_tokens))
        words = _text_for(context, plan, words, decision)
    for refill in range(_REFILLS):
        told = spent(context, plan, words)
        if refill and not has_slack(context, told, decision.earlier_calls):
            break
        fuller = longer_tail(context, told, decision.earlier_calls)
        if words.prose:
            fuller = _shared_as_in(told, fuller)
        if fuller.cut == plan.cut:
            if fuller.level != plan.level:  # more of what is unread: the same words stand beside it
                plan = fuller
            break
        plan, words = fuller, _text_for(context, fuller, words, decision)
    return plan, words


def _shared_as_in(told: Plan, plan: Plan) -> Plan:
    """`plan` with no more for the checkpoint than `told` has: prose has its length already."""
    checkpoint_tokens = told.checkpoint_tokens if plan.prefix else 0
    return replace(
        plan,
        summary_tokens=plan.text_tokens - checkpoint_tokens,
        checkpoint_tokens=checkpoint_tokens,
    )


def _with_more_files(
    context: CompactionContext, plan: Plan, words: SummaryText, decision: Decision
) -> Plan:
    told = spent(context, plan, words)
    return replace(plan, level=with_more_files(context, told, decision.earlier_calls).level)


def job_of(
    context: CompactionContext,
    plan: Plan,
    record: OriginalMessages,
    max_tokens: int,
    is_prefix: bool,
) -> SummaryJob:
    """What a model is asked to write for `record`: at most a third of what it replaces."""
    record_tokens = context.count.messages(record.messages) + context.count.text(record.lost)
    kept = _kept_after(plan, is_prefix=is_prefix)
    return SummaryJob(
        messages=record.messages,
        previous=record.earlier,
        has_originals=not (record.lost or record.is_short),
        max_tokens=min(int(max_tokens * PROSE_SHARE), record_tokens // 3),
        numbers=record.numbers,
        # What the user said is in the record itself.
        extracts=extract_of(context, record, _EXTRACTS_TOKENS, is_prefix=True),
        kept=kept,
        kept_numbers=tuple(number_of(context, message) for message in kept),
        pinned=tuple(_pin_told(context, plan, pin) for pin in context.pins.candidates),
        instructions=context.request.instructions,
        is_turn_prefix=is_prefix,
        outline=context.settings.summary_outline,
        too_long=context.settings.summary_too_long,
        retries=context.settings.summary_retries,
    )


def _kept_after(plan: Plan, *, is_prefix: bool) -> Messages:
    """The messages that stay after the text of history, or of the beginning of the running turn."""
    if plan.cut is None:
        return ()
    start = plan.cut.first_kept if is_prefix else plan.cut.goes_on_at
    return plan.edited.messages[start:]


def _pin_told(context: CompactionContext, plan: Plan, pin: Pin) -> str:
    """A pinned text for the prompt of a writer: with its number, or marked as earlier or given."""
    if pin.index is None:
        return f"[beside the record] {pin.shown}"
    number = context.seqs[pin.index]
    replaced = {message.index for message in plan.replaced}
    place = "" if pin.index in replaced else ", after the record"
    return f"[{'earlier' if number < 0 else number}{place}] {pin.shown}"


def grounding_source(context: CompactionContext, record: OriginalMessages) -> check.GroundingSource:
    """The source that prose for `record` is checked against."""
    # What the user says in the part that stays is no invention either.
    user_texts = (*_requests(context), *context.pins.texts, context.request.instructions)
    lost = read_previous(record.lost)
    # What stays may be named as well, and so may what an earlier summary named.
    numbers = {number for number in context.seqs if number >= 0}
    numbers.update(map(int, _NUMBER.findall(f"{record.earlier}\n{record.lost}")))
    numbers.update(number for number in (*lost.numbers, *record.numbers) if number is not None)
    replaced = set(map(id, record.messages))
    return check.source_of(
        (*lost.messages, *record.messages),
        user_texts=user_texts,
        previous=record.earlier,
        beside=tuple(message for message in context.messages if id(message) not in replaced),
        numbers=numbers,
    )


def _requests(context: CompactionContext) -> list[str]:
    return [text for message in context.messages if (text := user_text(message))]


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
        written = context.count.text(words.summary) + context.count.text(words.checkpoint)
        shrink = max(0.0, 1 - (excess + 4) / max(1, written))
        summary_tokens = int(min(summary_tokens, context.count.text(words.summary)) * shrink)
        checkpoint_tokens = int(
            min(checkpoint_tokens, context.count.text(words.checkpoint)) * shrink
        )
    return replace(words, summary="", checkpoint="")


def spent(context: CompactionContext, plan: Plan, words: SummaryText) -> Plan:
    """`plan` with the room that `words` take: one of them may have had what the other left."""
    return replace(
        plan,
        summary_tokens=context.count.text(words.summary),
        checkpoint_tokens=context.count.text(words.checkpoint),
    )


def with_extracts(
    context: CompactionContext,
    prose: str,
    record: OriginalMessages,
    max_tokens: int,
    *,
    is_prefix: bool = False,
) -> str:
    """The prose, and in the room that it leaves the user's words and the facts that it lacks."""
    left = max_tokens - context.count.text(f"{prose}\n{RECORD_TITLE}\n") - 2
    extract = ""
    if left >= _MIN_RECORD_TOKENS:
        extract = extract_of(context, record, left, is_prefix=is_prefix, beside=prose)
    return f"{prose}\n{RECORD_TITLE}\n{extract}" if extract else prose


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
        digest(record.messages, context.settings.tool_kinds),
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
        tally=record.tally,
    )
    return writer.write(asked, context.count)


def summarize_with_host_text(
    context: CompactionContext, plan: Plan, originals: Originals
) -> SummaryText:
    """The summary for `plan` with the prose that the host gave, if it may be used."""
    plain = extracts(context, plan, originals)
    if not plan.summary_tokens:
        warning = "The summary that was given is not used: no history had to be replaced."
        return replace(plain, warnings=(warning,))
    source = grounding_source(context, originals.history)
    try:
        prose = host.accept(
            context.request.summary or "", source, plan.summary_tokens, context.count
        )
    except SummaryError as error:
        warning = f"The summary that was given is not used. {error}. Verbatim extracts stand there."
        return replace(plain, warnings=(warning,))
    text = with_extracts(context, prose.text, originals.history, plan.summary_tokens)
    return replace(plain, summary=text, writer="host", warnings=prose.warnings, prose=prose.text)


async def ask_host(
    context: CompactionContext, decision: Decision, archive: Store, now_seconds: float
) -> SummaryPrompt:
    """The prompt with which a host's model writes the summary, with its continuation token."""
    span = span_of(context, decision.plan.history)
    token = continuation.issue(span, await _raws(span, archive), now_seconds)
    return await to_thread.run_sync(_prompt_for, context, decision, token)


def _prompt_for(context: CompactionContext, decision: Decision, token: str) -> SummaryPrompt:
    history = decision.originals.history
    assignment = job_of(context, decision.plan, history, decision.plan.summary_tokens, False)
    request = context.request
    window_tokens = request.context_window or profile_for(request.model).context_window
    prompt = fullest_prompt(assignment, context.count, window_tokens)
    user = context.gates.json(prompt.user)
    return SummaryPrompt(prompt.system, user, prompt.max_tokens, token)


async def _continuation_warnings(
    context: CompactionContext, plan: Plan, archive: Store, now_seconds: float
) -> tuple[str, ...]:
    """The warnings about the token of the host's summary.

    Raises:
        SettingsError: It is none of ours, has expired, or belongs to another conversation.
    """
    token = context.request.continuation
    if token is None:
        return ()
    given = continuation.parse_continuation(token, context.session_id, now_seconds)
    continuation.verify(given, await _raws(given.span, archive))
    stop = span_of(context, plan.history).stop_seq
    if not plan.summary_tokens or stop <= given.span.stop_seq:
        return ()
    return (
        f"The conversation has grown since the summary was asked for: of messages "
        f"{given.span.stop_seq + 1} to {stop} only verbatim extracts stand in it.",
    )


async def _raws(span: Span, archive: Store) -> list[JsonObject]:
    try:
        found = await archive.read_messages(
            span.session_id, span.start_seq, span.stop_seq, head=span.head or None
        )
    except NotFoundError:
        return []
    return [item.raw for item in found]


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
    parts = (
        (originals.history, plan.summary_tokens, False),
        (originals.prefix, plan.checkpoint_tokens, True),
    )
    jobs = [_Job(*part, job_of(context, plan, *part)) for part in parts]
    if not any(job.has_room_for_prose for job in jobs):
        return None
    report: JsonObject = {"writer": model.writer, "name": model.model, "requested": False}
    settings = context.settings
    if wait := wait_seconds(
        states,
        now_seconds,
        max_failures=settings.breaker_failures,
        cool_down_seconds=settings.breaker_cool_down_seconds,
    ):
        warning = (
            f"Verbatim extracts stand in the summary: {model.model} failed "
            f"{settings.breaker_failures} times in a row and is left alone for {wait:.0f} seconds."
        )
        plain = await to_thread.run_sync(extracts, context, plan, originals, (warning,))
        return replace(plain, model={**report, "waits_seconds": round(wait)})
    calls = ModelCalls(model, tell)
    summary, checkpoint = await gathered([partial(_text, job, calls, context) for job in jobs], 2)
    written = [text.prose for text in (summary, checkpoint) if text.prose is not None]
    failures = [text.failure for text in (summary, checkpoint) if text.failure]
    report |= {
        "requested": True,
        "at_seconds": round(now_seconds),
        "routes": [prose.route for prose in written],
        "was_repaired": any(prose.was_repaired for prose in written),
        "failure": "; ".join(failures) or None,
        **calls.usage.as_json(),
    }
    return SummaryText(
        summary.text,
        checkpoint.text,
        model.writer if written else "extractive",
        (
            *(f"Verbatim extracts stand in the summary, not a model's: {why}." for why in failures),
            *(warning for prose in written for warning in prose.warnings),
        ),
        report,
        summary.prose.text if summary.prose else "",
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """One text that is to be written: the summary, or the checkpoint."""

    record: OriginalMessages
    max_tokens: int
    is_prefix: bool
    assignment: SummaryJob

    @property
    def has_room_for_prose(self) -> bool:
        return self.assignment.max_tokens >= MIN_PROSE_TOKENS


@dataclass(frozen=True, slots=True)
class _Written:
    """The outcome of a job: its text, the prose in it, or why there is none."""

    text: str
    prose: Prose | None = None
    failure: str = ""


async def _text(job: _Job, calls: ModelCalls, context: CompactionContext) -> _Written:
    """The text of one job: a model's where it can be used, else extracts."""
    failure = ""
    if job.has_room_for_prose:
        source = await to_thread.run_sync(grounding_source, context, job.record)
        try:
            prose = await write_prose(job.assignment, source, calls, context.count)
        except SummaryError as error:
            failure = str(error)
        else:
            finish = partial(with_extracts, is_prefix=job.is_prefix)
            text = await to_thread.run_sync(finish, context, prose.text, job.record, job.max_tokens)
            return _Written(text, prose)
    extract = partial(extract_of, is_prefix=job.is_prefix)
    text = await to_thread.run_sync(extract, context, job.record, job.max_tokens)
    return _Written(text, failure=failure)


def reuse_summary(
    context: CompactionContext, plan: Plan, originals: Originals, match: SummaryMatch
) -> SummaryText:
    """The summary for `plan`: the saved one, what followed it, and extracts from the record."""
    plain = extracts(context, plan, originals)
    text, room_tokens = match.memory.text, plan.summary_tokens
    numbers = {message.index for message in match.since}
    since = tuple(m for m in originals.history.since if m.index in numbers)
    if since:
        left = room_tokens - context.count.text(f"{text}\n{_SINCE_TITLE}\n") - 2
        newer = OriginalMessages(
            since,
            later=originals.history.later,
            numbers=tuple(number_of(context, message) for message in since),
        )
        told = extract_of(context, newer, int(left * _SINCE_SHARE))
        text = f"{text}\n{_SINCE_TITLE}\n{told}" if told else text
    text = with_extracts(context, text, originals.history, room_tokens)
    used: JsonObject = {
        "writer": match.memory.writer,
        "at_seconds": match.memory.at_seconds,
        "stop_seq": match.memory.stop_seq,
        "messages_since": len(match.since),
        "tokens_since": max(0, match.gap_tokens),
    }
    return replace(plain, summary=text, writer="memory", memory=used)


def summary_to_record(context: CompactionContext) -> SummaryText:
    """The host's text, passed in between compactions, as a summary that only the archive keeps."""
    source = grounding_source(context, OriginalMessages(context.messages))
    room_tokens = int(context.settings.summary_tokens * PROSE_SHARE)
    try:
        prose = host.accept(context.request.summary or "", source, room_tokens, context.count)
    except SummaryError as error:
        return SummaryText("", "", warnings=(f"The summary that was given is not kept. {error}.",))
    return SummaryText("", "", "host", prose.warnings, prose=prose.text)
