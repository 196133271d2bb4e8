"""`compact()`: the straight line from messages to messages that fit, and its effects.

parse -> count -> archive.append (durable before anything is lost) -> repair -> clear -> cut ->
write -> restore -> check -> commit -> render. Only this file calls both layers and archive.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from anyio import to_thread

from context_compaction import background, wire
from context_compaction.archive import Archive, ContextEntry
from context_compaction.attempts import (
    Shape,
    Task,
    finish,
    fits,
    full_rungs,
    shape_by_clearing,
    shape_that_fits,
)
from context_compaction.call import Call, call_of, task_of
from context_compaction.compaction import (
    CompactRequest,
    CompactResult,
)
from context_compaction.draft import Draft
from context_compaction.goal import after_estimate
from context_compaction.hooks import (
    Hook,
    ReportProgress,
    chars_teller,
    done_line,
    silent,
    tell_after,
    tell_before,
)
from context_compaction.messages import JsonObject
from context_compaction.microcompact import microcompact
from context_compaction.outcome import Verdict, answer, judge, stats_of
from context_compaction.persist import persist
from context_compaction.receipt import context_entries, repeat_key, token_report
from context_compaction.restore import FileText, recent_files
from context_compaction.restore_files import ReadFile, file_texts
from context_compaction.rungs import Rung, first_rung, ladder, reactive_ladder
from context_compaction.session import identify
from context_compaction.summarizers.model import SummaryModel
from context_compaction.writing import (
    Sources,
    Words,
    continuation_warnings,
    extracts,
    host_words,
    issue_continuation,
    model_words,
    prompt_for,
    sources_of,
)

# "plan" costs nothing, and what a provider refused is mended without asking another.
_MODES_WITHOUT_MODEL = ("plan", "reactive")


async def compact(
    payload: Sequence[JsonObject],
    request: CompactRequest | None = None,
    *,
    archive: Archive,
    read_file: ReadFile | None = None,
    model: SummaryModel | None = None,
    report_progress: ReportProgress | None = None,
    before_compaction: Hook | None = None,
    after_compaction: Hook | None = None,
) -> CompactResult:
    """Archive `payload`, then bring it down to its target; it is never changed itself.

    Args:
        payload: The conversation, as the provider's API takes it.
        request: What to do; the defaults suit a 200K window.
        archive: Where the originals go, durably, before anything is edited.
        read_file: Reads a file to put back after history was replaced; without it the text that
            the conversation last saw is used.
        model: Writes the prose of a summary where the request leaves that open; without it, or
            where it fails, verbatim extracts stand there. It is never asked in the modes "plan"
            and "reactive".
        report_progress: Told how far the work is.
        before_compaction: Told once it is certain that something is to be compacted, before a
            summary is written; not where a host's summary is still wanted.
        after_compaction: Told when the result stands.

    Raises:
        InvalidMessageError: A message is malformed; nothing was written.
        UnknownFormatError: The format cannot be found; nothing was written.
        SettingsError: An option is out of range, nothing was written; or `continuation` or `apply`
            does not belong to this conversation, which is archived then and nothing more.
        NotFoundError: The session holds nothing prepared under the name that `apply` gives.
        ArchiveError: The originals could not be kept; nothing was edited.
        HookError: A hook raised; the error says what was done, and has it.

    Cancellation leaves the originals archived or not at all, never in part.
    """
    request = request or CompactRequest()
    background.check(request)
    tell = report_progress or silent
    call = await to_thread.run_sync(call_of, payload, request)
    await tell(0.2, "counted")
    session_id = await identify(
        call.parsed, format=call.format, named=request.session_id, archive=archive
    )
    appended = await archive.append(
        session_id,
        call.parsed,
        format=call.format,
        parent_session_id=request.parent_session_id,
        dry_run=request.mode == "plan",
    )
    await tell(0.4, "archived")
    given = payload
    if request.prepare:
        count = background.settled_count(call.parsed, wire.FORMATS[call.format].rules)
        request = background.settled_request(request, count, call.format)
        payload = payload[:count]
        call = await to_thread.run_sync(call_of, payload, request)
    task = task_of(call, request, session_id, appended.seqs[: len(payload)])
    applied = await _applied(payload, request, session_id, archive)
    if applied is not None:
        shape = await to_thread.run_sync(background.applied_shape, task, applied, call.format)
    elif appended.written == 0 and await _is_repeated(payload, request, session_id, archive):
        shape = Shape(Draft(task.messages), Rung(call.settings, 0.0))
    else:
        shape = await to_thread.run_sync(_shape, call, task, request)
    await tell(0.6, "cleared")
    acts = request.mode != "plan" and (shape.cut is not None or bool(shape.draft.edits))
    sources = await sources_of(task, shape, call.parsed, archive, call.format)
    if _asks_host(request) and request.summary is None and shape.summary_tokens:
        return await _needs_summary(given, call, task, shape, sources, request, archive)
    if acts:
        await tell_before(before_compaction, tell, stats_of(task, call.goal, shape, None))
    words = await _words(task, shape, sources, request, archive, model, tell)
    await tell(0.8, "written")
    files = await _files(task, shape, read_file)
    verdict = await to_thread.run_sync(_verdict, call, task, shape, words, files, request)
    rendered = [wire.FORMATS[call.format].render_message(m) for m in verdict.draft.messages]
    result = answer(
        payload,
        [raw for raws in rendered for raw in raws],
        task=task,
        goal=call.goal,
        parsed=call.parsed,
        repaired=call.repaired,
        shape=shape,
        verdict=verdict,
        words=words,
        format=call.format,
    )
    if request.mode == "plan":
        return replace(result, messages=list(payload), changed=False)
    if applied is not None:
        result = background.applied_result(result, verdict, applied)
    if request.prepare:
        result = background.prepared_result(
            result, given, len(payload), call.repaired, verdict, rendered, time.time()
        )
    context = context_entries(verdict.draft.messages, rendered, task.seqs)
    await _keep(result, verdict, words, context, request, archive)
    stats = stats_of(task, call.goal, shape, verdict.draft.messages) if acts else None
    if stats is not None:
        await tell_after(after_compaction, stats, result)
    await tell(1.0, done_line(stats))
    return result


def _shape(call: Call, task: Task, request: CompactRequest) -> Shape:
    """What the mode asks for, everything decided but the words."""
    gentle = first_rung(call.settings)
    harder = ladder(call.settings, task.limits.tokens)
    keeps = bool(call.settings.reactive_keep_messages)
    may_replace = "summarize" in call.policy.layers
    match request.mode:
        case "record":
            return Shape(Draft(task.messages), gentle)
        case "micro":
            wants_all = request.target_tokens is None
            return shape_by_clearing(
                task, replace(gentle, needs_minimum=False, clears_all=wants_all)
            )
        case "full" if may_replace:
            return shape_that_fits(task, full_rungs(task), always_cut=True)
        case "reactive" if may_replace:
            return shape_that_fits(
                task, reactive_ladder(call.settings, task.limits.tokens), always_cut=keeps
            )
        case _ if not call.goal.is_over and request.mode in ("auto", "plan"):
            return _below_trigger(task, gentle, request.idle_seconds)
        case _ if not may_replace:
            return shape_by_clearing(task, gentle)
        case _:
            cleared = shape_by_clearing(task, gentle)
            done = finish(task, cleared, summary="", checkpoint="", files=())
            return cleared if fits(task, done.messages) else shape_that_fits(task, harder)


def _below_trigger(task: Task, rung: Rung, idle_seconds: float) -> Shape:
    """Only what is not cached yet may be edited; or, after a long pause, anything old."""
    settings = rung.settings
    is_idle = idle_seconds > settings.idle_clear_seconds
    if settings.clear_every_turn:
        return shape_by_clearing(task, replace(rung, needs_minimum=not is_idle))
    draft = Draft(task.messages)
    if "persist" in task.policy.layers:
        step = persist(
            draft.messages,
            count=task.count,
            result_tokens=settings.persist_result_tokens,
            newest_chars=settings.persist_newest_chars,
            preview_chars=settings.preview_chars,
            only_newest=True,
        )
        draft = draft.then("persist", step, task.count)
    if is_idle and "microcompact" in task.policy.layers:
        step = microcompact(
            draft.messages, count=task.count, settings=settings, needs_minimum=False
        )
        draft = draft.then("microcompact", step, task.count)
    return Shape(draft, rung)


async def _applied(
    payload: Sequence[JsonObject], request: CompactRequest, session_id: str, archive: Archive
) -> JsonObject | None:
    """The receipt of what is to be applied, if anything is."""
    if request.apply is None:
        return None
    receipts = await archive.receipts(session_id)
    return background.find(receipts, request.apply, payload, session_id, time.time())


async def _keep(
    result: CompactResult,
    verdict: Verdict,
    words: Words,
    context: Sequence[ContextEntry],
    request: CompactRequest,
    archive: Archive,
) -> None:
    """Make durable what `result` rests on."""
    blobs = verdict.draft.blobs
    receipt = {**result.receipt, "repeat_key": repeat_key(result.messages, request)}
    if result.prepared is not None:
        # The context stays as it is until this is applied.
        await archive.commit(result.session_id, blobs=blobs, receipt=result.receipt)
    elif result.changed:
        await archive.commit(result.session_id, blobs=blobs, receipt=receipt, context=context)
    elif words.model is not None:
        # What a model took is told even where nothing came of it, and the same list is not sent to
        # it again.
        await archive.commit(result.session_id, receipt=receipt)


async def _is_repeated(
    payload: Sequence[JsonObject], request: CompactRequest, session_id: str, archive: Archive
) -> bool:
    """Whether this very list is what the session's last compaction gave for the same wishes."""
    if not payload or request.mode == "reactive":
        return False
    receipts = await archive.receipts(session_id)
    keys = (receipt["repeat_key"] for receipt in reversed(receipts) if "repeat_key" in receipt)
    return next(keys, None) == repeat_key(payload, request)


async def _files(task: Task, shape: Shape, read_file: ReadFile | None) -> list[FileText]:
    if shape.cut is None or "restore" not in task.policy.layers:
        return []
    settings = task.settings
    recent = recent_files(
        task.messages, shape.cut.first_kept, settings.tool_kinds, settings.restore_kinds
    )
    return await file_texts(recent, read_file, shape.rung.settings.restore_files)


def _verdict(
    call: Call,
    task: Task,
    shape: Shape,
    words: Words,
    files: list[FileText],
    request: CompactRequest,
) -> Verdict:
    draft = finish(task, shape, summary=words.summary, checkpoint=words.checkpoint, files=files)
    return judge(task, call.goal, call.repaired, draft, request.mode)


async def _needs_summary(
    payload: Sequence[JsonObject],
    call: Call,
    task: Task,
    shape: Shape,
    sources: Sources,
    request: CompactRequest,
    archive: Archive,
) -> CompactResult:
    """Ask the host for the words; nothing but the originals was written."""
    token = await issue_continuation(task, shape, archive, time.time())
    prompt = await to_thread.run_sync(prompt_for, task, sources, shape, request, token)
    after = after_estimate(call.goal, call.parsed, call.count)
    return CompactResult(
        session_id=task.session_id,
        format=call.format,
        status="needs_summary",
        messages=list(payload),
        changed=False,
        fits=False,
        tokens=token_report(call.goal, after),
        summary_prompt=prompt,
    )


def _asks_host(request: CompactRequest) -> bool:
    return request.summarizer == "host" and request.mode not in _MODES_WITHOUT_MODEL


async def _words(
    task: Task,
    shape: Shape,
    sources: Sources,
    request: CompactRequest,
    archive: Archive,
    model: SummaryModel | None,
    tell: ReportProgress,
) -> Words:
    """The words for `shape`, by whoever the request lets write."""
    if request.summary is not None:
        now = time.time()
        notes = await continuation_warnings(task, shape, request, archive, now)
        words = await to_thread.run_sync(host_words, task, shape, sources, request)
        return replace(words, warnings=(*notes, *words.warnings))
    asks_model = request.summarizer == "auto" and request.mode not in _MODES_WITHOUT_MODEL
    if model is None or not asks_model or shape.cut is None:
        return await to_thread.run_sync(extracts, task, shape, sources)
    return await model_words(
        task,
        shape,
        sources,
        request,
        model,
        receipts=await archive.receipts(task.session_id),
        now_seconds=time.time(),
        tell=chars_teller(tell),
    )
