"""The summary's text for a plan: its writer, its prompt, and the checks of the prose.

Prose is written by the host or by a model; where it fails, extracts replace it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from context_compaction.archive import Store
from context_compaction.context import (
    CompactionContext,
    OriginalMessages,
    Originals,
    Plan,
    SummaryText,
    span_of,
)
from context_compaction.errors import NotFoundError, SummaryError
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.messages.pins import Pin
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import user_text
from context_compaction.pipeline.extracts import extract_of, extracts, with_extracts
from context_compaction.pipeline.originals import number_of
from context_compaction.pipeline.redaction_gates import GuardedModel
from context_compaction.request import CompactRequest
from context_compaction.result import SummaryPrompt
from context_compaction.session import continuation
from context_compaction.session.earlier_calls import Decision
from context_compaction.session.load import Session
from context_compaction.session.state import SessionState, wait_seconds
from context_compaction.summarizers.extractive.parse import read_previous
from context_compaction.summarizers.llm import check
from context_compaction.summarizers.llm.model import SummaryModel, TellChars
from context_compaction.summarizers.llm.prompt import (
    MOST_PROSE_SHARE,
    PROSE_SHARE,
    SummaryJob,
    fullest_prompt,
)
from context_compaction.summarizers.llm.writer import (
    MIN_PROSE_TOKENS,
    ModelCalls,
    Prose,
    accepted,
    gathered,
    write_prose,
)
from context_compaction.tokens.models import profile_for

# Of the log and the facts that a model writes from.
_EXTRACTS_TOKENS = 3_000
# "plan" costs nothing, and what a provider refused is mended without asking another.
_MODES_WITHOUT_MODEL = ("plan", "reactive")
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
    return is_missing and _host_job(context, decision.plan, decision.originals) is not None


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


@dataclass(frozen=True, slots=True)
class _Job:
    """One text that is to be written, of at most `max_tokens`, and what a model is asked for it."""

    record: OriginalMessages
    max_tokens: int
    assignment: SummaryJob

    @property
    def is_prefix(self) -> bool:
        return self.assignment.is_turn_prefix

    @property
    def has_room_for_prose(self) -> bool:
        return self.assignment.max_tokens >= MIN_PROSE_TOKENS


def _jobs(context: CompactionContext, plan: Plan, originals: Originals) -> tuple[_Job, _Job]:
    """The summary of history, and the checkpoint of what the running turn began with."""
    return (
        _job(context, plan, originals.history, plan.summary_tokens, is_prefix=False),
        _job(context, plan, originals.prefix, plan.checkpoint_tokens, is_prefix=True),
    )


def _job(
    context: CompactionContext,
    plan: Plan,
    record: OriginalMessages,
    max_tokens: int,
    *,
    is_prefix: bool,
) -> _Job:
    """The job for `record`; prose has at most a third of what it replaces."""
    record_tokens = context.count.messages(record.messages) + context.count.text(record.lost)
    said_tokens = sum(context.count.text(user_text(message)) for message in record.messages)
    # What the user said stands beside it, word for word.
    least, most = (int(max_tokens * share) for share in (PROSE_SHARE, MOST_PROSE_SHARE))
    room_tokens = min(max(least, max_tokens - said_tokens), most)
    kept = _kept_after(plan, is_prefix=is_prefix)
    assignment = SummaryJob(
        messages=record.messages,
        previous=record.earlier,
        has_originals=not (record.lost or record.is_short),
        max_tokens=min(room_tokens, record_tokens // 3),
        numbers=record.numbers,
        # What the user said is in the record itself.
        extracts=partial(extract_of, context, record, _EXTRACTS_TOKENS, is_prefix=True),
        kept=kept,
        kept_numbers=tuple(number_of(context, message) for message in kept),
        pinned=tuple(_pin_told(context, plan, pin) for pin in context.pins.candidates),
        instructions=context.request.instructions,
        is_turn_prefix=is_prefix,
        outline=context.settings.summary_outline,
        too_long=context.settings.summary_too_long,
        retries=context.settings.summary_retries,
    )
    return _Job(record, max_tokens, assignment)


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
    lost = read_previous(record.lost)
    # What stays may be named as well, and so may what an earlier summary named.
    numbers = {number for number in context.seqs if number >= 0}
    numbers.update(map(int, _NUMBER.findall(f"{record.earlier}\n{record.lost}")))
    numbers.update(number for number in (*lost.numbers, *record.numbers) if number is not None)
    replaced = set(map(id, record.messages))
    # What is said in the part that stays is no invention either.
    beside = (message for message in context.messages if id(message) not in replaced)
    return check.source_of(
        (*lost.messages, *record.messages, *beside),
        user_texts=(record.earlier, *context.pins.texts, context.request.instructions),
        numbers=numbers,
    )


def summarize_with_host_text(
    context: CompactionContext, plan: Plan, originals: Originals
) -> SummaryText:
    """The summary for `plan` with the prose that the host gave, if it may be used."""
    plain = extracts(context, plan, originals)
    job = _host_job(context, plan, originals)
    if job is None:
        warning = "The summary that was given is not used: no history had to be replaced."
        return replace(plain, warnings=(warning,))
    source = grounding_source(context, job.record)
    try:
        prose = accepted(context.request.summary or "", source, job.max_tokens, context.count)
    except SummaryError as error:
        warning = f"The summary that was given is not used. {error}. Verbatim extracts stand there."
        return replace(plain, warnings=(warning,))
    text = _beside(context, prose.text, job)
    words = replace(plain, writer="host", warnings=prose.warnings)
    if job.is_prefix:
        return replace(words, checkpoint=text)
    return replace(words, summary=text, prose=prose.text)


def _host_job(context: CompactionContext, plan: Plan, originals: Originals) -> _Job | None:
    """What the host's model writes: the summary of history, or else of what the run began with."""
    summary, checkpoint = _jobs(context, plan, originals)
    if plan.summary_tokens:
        return summary
    return checkpoint if checkpoint.has_room_for_prose else None


async def ask_host(
    context: CompactionContext, decision: Decision, archive: Store, now_seconds: float
) -> SummaryPrompt:
    """The prompt with which a host's model writes the summary, with its continuation token."""
    span = span_of(context, decision.plan.history or decision.plan.prefix)
    token = continuation.issue(span, await _raws(span, archive), now_seconds)
    return await to_thread.run_sync(_prompt_for, context, decision, token)


def _prompt_for(context: CompactionContext, decision: Decision, token: str) -> SummaryPrompt:
    request, job = context.request, _host_job(context, decision.plan, decision.originals)
    assert job is not None  # noqa: S101  # the host is asked for it
    window_tokens = request.context_window or profile_for(request.model).context_window
    prompt = fullest_prompt(job.assignment, context.count, window_tokens)
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
    stop = span_of(context, plan.history or plan.prefix).stop_seq
    if not plan.text_tokens or stop <= given.span.stop_seq:
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
    jobs = _jobs(context, plan, originals)
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
    texts = await gathered([partial(_text, job, calls, context) for job in jobs], 2)
    (summary, prose, _), (checkpoint, _, _) = texts
    written = [found for _, found, _ in texts if found is not None]
    failures = [why for _, _, why in texts if why]
    report |= {
        "requested": True,
        "at_seconds": round(now_seconds),
        "routes": [prose.route for prose in written],
        "was_repaired": any(prose.was_repaired for prose in written),
        "failure": "; ".join(failures) or None,
        **calls.usage.as_json(),
    }
    return SummaryText(
        summary,
        checkpoint,
        model.writer if written else "extractive",
        (
            *(f"Verbatim extracts stand in the summary, not a model's: {why}." for why in failures),
            *(warning for prose in written for warning in prose.warnings),
        ),
        report,
        prose.text if prose else "",
    )


async def _text(
    job: _Job, calls: ModelCalls, context: CompactionContext
) -> tuple[str, Prose | None, str]:
    """The text of one job, with the model's prose in it; else extracts, and why there is none."""
    failure = ""
    if job.has_room_for_prose:
        source = await to_thread.run_sync(grounding_source, context, job.record)
        try:
            prose = await write_prose(job.assignment, source, calls, context.count)
        except SummaryError as error:
            failure = str(error)
        else:
            return await to_thread.run_sync(_beside, context, prose.text, job), prose, ""
    extract = partial(extract_of, is_prefix=job.is_prefix)
    text = await to_thread.run_sync(extract, context, job.record, job.max_tokens)
    return text, None, failure


def _beside(context: CompactionContext, prose: str, job: _Job) -> str:
    """The whole text of `job`: its prose, and extracts beside it."""
    return with_extracts(context, prose, job.record, job.max_tokens, is_prefix=job.is_prefix)


def summary_to_record(context: CompactionContext) -> SummaryText:
    """The host's text, passed in between compactions, as a summary that only the archive keeps."""
    source = grounding_source(context, OriginalMessages(context.messages))
    room_tokens = int(context.settings.summary_tokens * PROSE_SHARE)
    try:
        prose = accepted(context.request.summary or "", source, room_tokens, context.count)
    except SummaryError as error:
        return SummaryText("", "", warnings=(f"The summary that was given is not kept. {error}.",))
    return SummaryText("", "", "host", prose.warnings, prose=prose.text)
