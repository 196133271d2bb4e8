"""Gets the words of a summary: the originals for the writer, the writer, and what came of it.

Verbatim extracts are always at hand. Prose of a model, or of the host, takes the larger part of the
room where there is some that passed its checks; extracts fill the rest, so that the user's words
and the ledger stand in every summary whoever wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from context_compaction import markers, wire
from context_compaction.archive import Archive
from context_compaction.attempts import Shape, Task, excess_tokens, pins_at, span_of
from context_compaction.compaction import CompactRequest, SummaryPrompt
from context_compaction.cut_point import history_of, turn_prefix_of
from context_compaction.digest import digest, merged
from context_compaction.errors import NotFoundError, SummaryError
from context_compaction.messages import JsonObject, Message, Messages, text_of
from context_compaction.pins import carried_by
from context_compaction.summarizers import (
    SummaryRequest,
    breaker,
    check,
    continuation,
    extractive,
    host,
)
from context_compaction.summarizers.language import speaker_language
from context_compaction.summarizers.llm import MIN_PROSE_TOKENS, Calls, Prose, gathered, write_prose
from context_compaction.summarizers.model import SummaryModel, TellChars
from context_compaction.summarizers.previous import Previous, read_previous
from context_compaction.summarizers.prompt import (
    Assignment,
    clipped,
    parts_of,
    render,
    summary_prompt,
)

# Prose may take this part of a summary's room; the rest is for extracts from the record.
PROSE_SHARE = 0.7
_RECORD_TITLE = "# From the record, word for word"
_MIN_RECORD_TOKENS = 60
_FITTINGS = 4


@dataclass(frozen=True, slots=True)
class Record:
    """What one summary stands for, in the original words.

    Attributes:
        messages: All of it that is at hand.
        since: Those messages that no earlier summary stood for.
        earlier: The text of earlier summaries in it.
        lost: The text of those whose originals are not in the archive.
        later: Requests of the user that stay in the context after it.
        pinned: Texts that stand beside it word for word.
    """

    messages: Messages = ()
    since: Messages = ()
    earlier: str = ""
    lost: str = ""
    later: Messages = ()
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """What a writer reads: history, and the beginning of the running turn."""

    history: Record = Record()
    prefix: Record = Record()


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of a summary and of a checkpoint, who wrote them, and what to know about it.

    Attributes:
        summary: The text that stands for history.
        checkpoint: The text that stands for the beginning of the running turn.
        writer: "extractive", "host", or the name of the model's provider.
        warnings: What the caller should know.
        model: What was asked of a model, for the receipt; None where none was.
        prose: What of `summary` the host or a model wrote; with mode "record", what it gave.
        memory: The summary written earlier that stands in it, for the receipt; None without one.
    """

    summary: str
    checkpoint: str
    writer: str = "extractive"
    warnings: tuple[str, ...] = ()
    model: JsonObject | None = None
    prose: str = ""
    memory: JsonObject | None = None


async def sources_of(
    task: Task, shape: Shape, parsed: Messages, archive: Archive, format: str
) -> Sources:
    """The originals of what `shape` replaces.

    Results that the clearing layers replaced are taken from the list that came in, and what an
    earlier summary of ours stands for from the archive, so that facts do not erode.
    """
    if shape.cut is None:
        return Sources()
    staying = shape.draft.messages[shape.cut.goes_on_at :]
    later = tuple(message for message in staying if markers.is_request(message))
    pinned = tuple(pin.text for pin in pins_at(task, shape, shape.cut))

    async def record_of(messages: Messages) -> Record:
        originals: list[Message] = []
        since: list[Message] = []
        earlier: list[str] = []
        lost: list[str] = []
        for message in messages:
            span = markers.originals_of(message)
            if span is None:
                since.append(parsed[message.index] if message.index is not None else message)
                originals.append(since[-1])
                continue
            found = await _archived(span, task.session_id, archive, format)
            originals.extend(found)
            ours = carried_by(message)
            earlier.append(ours.body if ours else text_of(message.blocks))
            if not found:
                lost.append(earlier[-1])
        texts = "\n".join(earlier), "\n".join(lost)
        return Record(tuple(originals), tuple(since), *texts, later, pinned)

    return Sources(
        await record_of(history_of(shape.draft.messages, shape.cut)),
        await record_of(turn_prefix_of(shape.draft.messages, shape.cut)),
    )


def extracts(task: Task, shape: Shape, sources: Sources, warnings: tuple[str, ...] = ()) -> Words:
    """The words for `shape` without any model."""
    # A request that is folded away with its turn must be told like any other.
    stays = shape.cut is not None and not shape.cut.folds_request
    summary_tokens, checkpoint_tokens = shape.summary_tokens, shape.checkpoint_tokens
    words = Words("", "", warnings=warnings)
    # A text counts a little more inside its message, and much more beside another script.
    for _ in range(_FITTINGS if shape.cut else 0):
        words = replace(
            words,
            summary=extract_of(task, sources.history, summary_tokens),
            checkpoint=extract_of(task, sources.prefix, checkpoint_tokens, is_prefix=stays),
        )
        excess = excess_tokens(task, shape, words.summary, words.checkpoint)
        if excess <= 0 or not (words.summary or words.checkpoint):
            return words
        written = task.count.text(words.summary) + task.count.text(words.checkpoint)
        shrink = max(0.0, 1 - (excess + 4) / max(1, written))
        summary_tokens = int(min(summary_tokens, task.count.text(words.summary)) * shrink)
        checkpoint_tokens = int(min(checkpoint_tokens, task.count.text(words.checkpoint)) * shrink)
    return replace(words, summary="", checkpoint="")


def host_words(task: Task, shape: Shape, sources: Sources, request: CompactRequest) -> Words:
    """The words for `shape` with the prose that the host gave, if it may be used."""
    plain = extracts(task, shape, sources)
    if not shape.summary_tokens:
        warning = "The summary that was given is not used: no history had to be replaced."
        return replace(plain, warnings=(warning,))
    source = source_for(task, sources.history, request)
    try:
        prose = host.accept(request.summary or "", source, shape.summary_tokens, task.count)
    except SummaryError as error:
        warning = f"The summary that was given is not used. {error}. Verbatim extracts stand there."
        return replace(plain, warnings=(warning,))
    text = with_extracts(task, prose.text, sources.history, shape.summary_tokens)
    return replace(plain, summary=text, writer="host", warnings=prose.warnings, prose=prose.text)


async def model_words(
    task: Task,
    shape: Shape,
    sources: Sources,
    request: CompactRequest,
    model: SummaryModel,
    *,
    receipts: Sequence[JsonObject],
    now_seconds: float,
    tell: TellChars,
) -> Words:
    """The words for `shape` with the prose of `model`; extracts where that fails, and why.

    Args:
        task: The call.
        shape: What is replaced.
        sources: The originals of that.
        request: What the caller wants.
        model: Who writes.
        receipts: The session's, oldest first: they say how the model has done.
        now_seconds: The time.
        tell: Hears of the text's growth.
    """
    jobs = (
        _job(task, sources.history, shape.summary_tokens, False, request),
        _job(task, sources.prefix, shape.checkpoint_tokens, True, request),
    )
    if not any(job.has_room_for_prose for job in jobs):
        return await to_thread.run_sync(extracts, task, shape, sources)
    report: JsonObject = {"writer": model.writer, "name": model.model, "requested": False}
    settings = task.settings
    if wait := breaker.wait_seconds(
        receipts,
        now_seconds,
        max_failures=settings.breaker_failures,
        cool_down_seconds=settings.breaker_cool_down_seconds,
    ):
        warning = (
            f"Verbatim extracts stand in the summary: {model.model} failed "
            f"{settings.breaker_failures} times in a row and is left alone for {wait:.0f} seconds."
        )
        plain = await to_thread.run_sync(extracts, task, shape, sources, (warning,))
        return replace(plain, model={**report, "waits_seconds": round(wait)})
    calls = Calls(model, tell)
    summary, checkpoint = await gathered([partial(_text, job, calls, task) for job in jobs], 2)
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
    return Words(
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


def prompt_for(
    task: Task, sources: Sources, shape: Shape, request: CompactRequest, token: str
) -> SummaryPrompt:
    """What a host's model needs to write the summary of `shape`."""
    assignment = _assignment(task, sources.history, shape.summary_tokens, False, request)
    record = render(clipped(parts_of(assignment.messages)))
    prompt = summary_prompt(assignment, record, sources.history.lost)
    return SummaryPrompt(prompt.system, prompt.user, prompt.max_tokens, token)


async def issue_continuation(task: Task, shape: Shape, archive: Archive, now_seconds: float) -> str:
    """The token that ties the host's summary to the history of `shape`."""
    span = history_span(task, shape)
    return continuation.issue(span, await _raws(span, archive), now_seconds)


async def continuation_warnings(
    task: Task, shape: Shape, request: CompactRequest, archive: Archive, now_seconds: float
) -> tuple[str, ...]:
    """What to say of the token that came with the host's summary.

    Raises:
        SettingsError: It is none of ours, has expired, or belongs to another conversation.
    """
    if request.continuation is None:
        return ()
    given = continuation.parse(request.continuation, task.session_id, now_seconds)
    continuation.verify(given, await _raws(given.span, archive))
    stop = history_span(task, shape).stop_seq
    if not shape.summary_tokens or stop <= given.span.stop_seq:
        return ()
    return (
        f"The conversation has grown since the summary was asked for: of messages "
        f"{given.span.stop_seq + 1} to {stop} only verbatim extracts stand in it.",
    )


def _assignment(
    task: Task, record: Record, max_tokens: int, is_prefix: bool, request: CompactRequest
) -> Assignment:
    """What a model is asked to write for `record`: at most half of what it stands for."""
    record_tokens = task.count.messages(record.messages) + task.count.text(record.lost)
    return Assignment(
        messages=record.messages,
        since=record.since,
        previous=record.earlier,
        has_originals=not record.lost,
        max_tokens=min(int(max_tokens * PROSE_SHARE), record_tokens // 3),
        pinned=task.pins.texts,
        instructions=request.instructions,
        language=speaker_language(_requests(task)),
        is_turn_prefix=is_prefix,
        outline=task.settings.summary_outline,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """One text that is to be written: the summary, or the checkpoint."""

    record: Record
    max_tokens: int
    is_prefix: bool
    assignment: Assignment
    request: CompactRequest

    @property
    def has_room_for_prose(self) -> bool:
        return self.assignment.max_tokens >= MIN_PROSE_TOKENS


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of a job: its text, the prose in it, or why there is none."""

    text: str
    prose: Prose | None = None
    failure: str = ""


def _job(
    task: Task, record: Record, max_tokens: int, is_prefix: bool, request: CompactRequest
) -> _Job:
    assignment = _assignment(task, record, max_tokens, is_prefix, request)
    return _Job(record, max_tokens, is_prefix, assignment, request)


async def _text(job: _Job, calls: Calls, task: Task) -> _Written:
    """The text of one job: a model's where that can be had, else extracts."""
    failure = ""
    if job.has_room_for_prose:
        source = await to_thread.run_sync(source_for, task, job.record, job.request)
        try:
            prose = await write_prose(job.assignment, source, calls, task.count)
        except SummaryError as error:
            failure = str(error)
        else:
            finish = partial(with_extracts, is_prefix=job.is_prefix)
            text = await to_thread.run_sync(finish, task, prose.text, job.record, job.max_tokens)
            return _Written(text, prose)
    extract = partial(extract_of, is_prefix=job.is_prefix)
    text = await to_thread.run_sync(extract, task, job.record, job.max_tokens)
    return _Written(text, failure=failure)


def source_for(task: Task, record: Record, request: CompactRequest) -> check.Source:
    """What prose for `record` is held against."""
    # What the user says in the part that stays is no invention either.
    user_texts = (*_requests(task), *task.pins.texts, request.instructions)
    messages = (*_previous(record).messages, *record.messages)
    return check.source_of(messages, user_texts=user_texts, previous=record.earlier)


def _requests(task: Task) -> list[str]:
    return [text_of(m.blocks) for m in task.messages if markers.is_request(m)]


def with_extracts(
    task: Task, prose: str, record: Record, max_tokens: int, *, is_prefix: bool = False
) -> str:
    """The prose, and extracts from the record in the room that it leaves."""
    left = max_tokens - task.count.text(f"{prose}\n{_RECORD_TITLE}\n") - 2
    extract = ""
    if left >= _MIN_RECORD_TOKENS:
        extract = extract_of(task, record, left, is_prefix=is_prefix)
    return f"{prose}\n{_RECORD_TITLE}\n{extract}" if extract else prose


def extract_of(task: Task, record: Record, max_tokens: int, *, is_prefix: bool = False) -> str:
    """Verbatim extracts from the record, of at most `max_tokens`."""
    if max_tokens <= 0 or not (record.messages or record.lost):
        return ""
    before = _previous(record)
    asked = SummaryRequest(
        (*before.messages, *record.messages),
        merged(before.digest, digest(record.messages, task.settings.tool_kinds)),
        max_tokens,
        previous=before.rest,
        later=record.later,
        instructions=task.instructions,
        pinned=record.pinned,
        is_turn_prefix=is_prefix,
    )
    return extractive.write(asked, task.count)


def _previous(record: Record) -> Previous:
    """What is left of originals that the archive does not have."""
    return read_previous(record.lost, record_title=_RECORD_TITLE)


def history_span(task: Task, shape: Shape) -> markers.Span:
    """The archived originals of the history that `shape` replaces."""
    if shape.cut is None:
        return span_of(task, ())
    return span_of(task, history_of(shape.draft.messages, shape.cut))


async def _raws(span: markers.Span, archive: Archive) -> list[JsonObject]:
    try:
        found = await archive.read_messages(span.session_id, span.start_seq, span.stop_seq)
    except NotFoundError:
        return []
    return [item.raw for item in found]


async def _archived(span: markers.Span, session_id: str, archive: Archive, format: str) -> Messages:
    if span.session_id != session_id:
        return ()
    try:
        found = await archive.read_messages(session_id, span.start_seq, span.stop_seq)
    except NotFoundError:
        return ()
    return wire.parse([item.raw for item in found if item.format == format], format=format)
