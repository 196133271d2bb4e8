"""`compact()`: the straight line from messages to messages that fit, and its effects.

parse -> count -> archive.append (durable before anything is lost) -> repair -> clear -> cut ->
write -> restore -> check -> commit -> render. Only this file calls both layers and archive.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive import AppendResult, Archive
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Originals,
    Plan,
    SummaryText,
    Validation,
)
from context_compaction.errors import NotFoundError
from context_compaction.file_access import ReadFile
from context_compaction.hooks import (
    Hook,
    ReportProgress,
    chars_teller,
    done_line,
    silent,
    tell_after,
    tell_before,
)
from context_compaction.layers.base import FileText
from context_compaction.layers.restore_files import files_on_disk
from context_compaction.messages.attribution import Ours
from context_compaction.messages.edits import Blob
from context_compaction.messages.history_hash import HEAD_CHARS, history_hash
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.pipeline.assemble import finish
from context_compaction.pipeline.originals import read_originals
from context_compaction.pipeline.plan import filled, has_slack, make_plan
from context_compaction.pipeline.prepare import (
    PreparedInput,
    context_of,
    parse_payload,
    prepare,
    without_snipped,
)
from context_compaction.pipeline.redaction_gates import (
    Gates,
    GuardedModel,
    gates_of,
    redaction_report,
    with_redaction,
)
from context_compaction.pipeline.report import build_result, context_entries, stats_of, token_report
from context_compaction.pipeline.summarize import (
    continuation_warnings,
    extracts,
    issue_continuation,
    prompt_for,
    reuse_summary,
    spent,
    summarize_with_host_text,
    summarize_with_model,
    summary_to_record,
)
from context_compaction.pipeline.validate import validate
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session import prepared
from context_compaction.session.earlier_calls import (
    EarlierCalls,
    earlier_calls_of,
    files_for,
    known_files,
    noted,
    state_after,
    with_warnings,
)
from context_compaction.session.identify import identify, ours_in, repeat_key, stop_seq_of
from context_compaction.session.recognised import Start, answered, asks_anew, named, start_of
from context_compaction.session.rejections import (
    PromptTooLongRejections,
    rejection_of,
    rejections_of,
    with_rejections,
)
from context_compaction.session.saved_summary import SummaryMatch, summary_that_reaches
from context_compaction.session.state import SessionState, before, states_of, with_state
from context_compaction.summarizers.instructions.collect_pins import check_pins, pin_blobs
from context_compaction.summarizers.llm.model import SummaryModel

# "plan" costs nothing, and what a provider refused is mended without asking another.
# A longer tail leaves extracts less to tell, and so some room again: filled once more where that is
# more than a tenth. A list that is full to the brim would be compacted again by its next message.
_REFILLS = 2
_MODES_WITHOUT_MODEL = ("plan", "reactive")
_ACTED = ("repaired", "compacted")


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
    prepared.check(request)
    tell = report_progress or silent
    parsed, format_name = await to_thread.run_sync(parse_payload, payload, request)
    check_pins(request, parsed)
    await tell(0.2, "read")
    session_id = await identify(
        parsed, format=format_name, named=request.session_id, archive=archive
    )
    appended = await archive.append(
        session_id,
        parsed,
        format=format_name,
        parent_session_id=request.parent_session_id,
        dry_run=request.mode == "plan",
    )
    await tell(0.4, "archived")
    given, came_in, wishes = payload, parsed, request
    standing_heads = appended.standing.heads if appended.standing else ()
    earlier = _Receipts(archive, session_id, (*appended.heads, *standing_heads))
    start = await _start(given, parsed, appended, request, earlier)
    start, parsed = await to_thread.run_sync(_settled, start, parsed, format_name)
    payload, request = start.payload, start.request
    ours = await ours_in(parsed, session_id, archive)
    call = await to_thread.run_sync(prepare, parsed, format_name, request, ours)
    call, refusals = await _refused(call, start, ours, earlier)
    context = context_of(call, request, session_id, start.seqs, start.heads, start.places)
    call, context = await to_thread.run_sync(without_snipped, call, context, request)
    applied = await _applied(payload, request, earlier)
    if applied is not None:
        plan = await to_thread.run_sync(prepared.applied_plan, context, applied, call.format)
    elif refusals.is_spent or await _is_repeated(start, wishes, appended, earlier):
        plan = Plan(EditedMessages(context.messages), EffortLevel(call.settings, 0.0))
    else:
        skipped = refusals.harder_levels
        plan = await to_thread.run_sync(make_plan, context, call.goal, request, skipped)
    await tell(0.6, "cleared")
    past = await _past(call, context, plan, request, earlier, read_file)
    files_at = partial(files_for, past, context)
    plan = await to_thread.run_sync(filled, context, plan, files_at)
    acts = request.mode != "plan" and (plan.cut is not None or bool(plan.edited.edits))
    sources = await read_originals(context, plan, call.parsed, archive, call.format)
    gates = await _gates(archive, call)
    memory = await _memory(context, plan, request, earlier)
    asks_host = _asks_host(request) and request.summary is None and memory is None
    if asks_host and plan.summary_tokens:
        return await _needs_summary(given, call, context, plan, sources, request, archive, gates)
    if acts:
        await tell_before(before_compaction, tell, stats_of(context, call.goal, plan, None))
    model = model and GuardedModel(model, gates)
    said = await _words(context, plan, sources, request, archive, earlier, model, memory, tell)
    plan, said = await _without_slack(call, context, plan, said, files_at, archive)
    report = partial(redaction_report, gates.mode, came_in, appended, sources, said)
    secrets = await to_thread.run_sync(report)
    words = gates.words(said)
    await tell(0.8, "written")
    judged = partial(_validated, gates=gates, is_repeated=start.is_repeated)
    validation = await to_thread.run_sync(
        judged, call, context, plan, words, files_at(plan), request
    )
    validation, past = noted(validation, past, context, may_tell=_tells(context, request))
    rendered = [formats.FORMATS[call.format].render_message(m) for m in validation.edited.messages]
    result = build_result(
        payload,
        [raw for raws in rendered for raw in raws],
        context=context,
        goal=call.goal,
        parsed=call.parsed,
        repaired=call.repaired,
        plan=plan,
        validation=validation,
        words=words,
        format_name=call.format,
        request=request,
    )
    if applied is not None:
        result = prepared.applied_result(result, validation, applied)
    result = with_redaction(named(with_warnings(result, past, context), start), secrets)
    if request.mode == "plan":
        result = answered(result, start, context)
        status = "planned" if result.status in _ACTED else result.status
        receipt = {**result.receipt, "status": status}
        return replace(result, status=status, messages=list(given), changed=False, receipt=receipt)
    result = with_rejections(result, payload, refusals)
    if request.prepare:
        result = prepared.prepared_result(
            result, given, start, call.repaired, validation, rendered, time.time()
        )
    result = await _placed(result, start, archive)
    if _leaves_a_trace(result, words):
        state = state_after(
            past,
            context,
            plan,
            words,
            result,
            validation.edited.messages,
            wishes=wishes,
            rejection=rejection_of(result, refusals),
            now_seconds=time.time(),
        )
        receipt = gates.json(with_state(result.receipt, state))
        await _keep(result, validation, context, words, rendered, receipt, archive, start)
    result = answered(result, start, context)
    stats = stats_of(context, call.goal, plan, validation.edited.messages) if acts else None
    await tell_after(after_compaction, stats, result)
    await tell(1.0, done_line(stats))
    return result


@dataclass(slots=True)
class _Receipts:
    """What the session's earlier calls left, read at most once in this one.

    Attributes:
        archive: Where they stand.
        session_id: The session.
        heads: What names the list of this call, after each of its messages.
    """

    archive: Archive
    session_id: str
    heads: Sequence[str]
    _read: Sequence[SessionState] | None = None

    async def states(self) -> Sequence[SessionState]:
        """Those of the list's own history, oldest first: what another branch knew is not told."""
        if self._read is None:
            self._read = states_of(await self.archive.receipts(self.session_id, heads=self.heads))
        return self._read

    async def states_of_all_branches(self) -> Sequence[SessionState]:
        """Whatever the session has, for what names its own list or tells no text."""
        return states_of(await self.of_all_branches())

    async def of_all_branches(self) -> Sequence[JsonObject]:
        """The receipts themselves, for what was prepared."""
        return await self.archive.receipts(self.session_id)


async def _start(
    given: Sequence[JsonObject],
    parsed: Messages,
    appended: AppendResult,
    request: CompactRequest,
    earlier: _Receipts,
) -> Start:
    """What this call goes on from: the list itself, or what a compaction left of its beginning."""
    plain = Start(given, appended.seqs, appended.heads, request, appended.head)
    standing = appended.standing
    if standing is None or request.mode == "record":
        return plain
    if request.apply is not None and prepared.is_prepared_for(
        await earlier.of_all_branches(), request.apply, given
    ):
        return plain
    start = start_of(given, parsed, appended, request, standing)
    if standing.message_count < len(given):
        return start
    is_repeated = await _is_outcome(start.payload, request, earlier)
    if asks_anew(request) and not is_repeated:
        return plain
    return replace(start, is_repeated=is_repeated)


def _settled(start: Start, parsed: Messages, format_name: str) -> tuple[Start, Messages]:
    """`start` and its messages; where they are to be prepared, those that nothing will change."""
    if start.recognised is not None:
        parsed = formats.parse(start.payload, format=format_name)
    if not start.request.prepare:
        return start, parsed
    count = prepared.settled_message_count(parsed, formats.FORMATS[format_name].rules)
    settled = replace(
        start,
        payload=start.payload[:count],
        seqs=start.seqs[:count],
        heads=start.heads[:count],
        history=start.heads[count - 1] if count else "",
        request=prepared.settled_request(start.request, count, format_name),
        # Positions are kept as those of the list in which this will be found again.
        places=None,
    )
    return settled, formats.parse(settled.payload, format=format_name)


async def _refused(
    call: PreparedInput, start: Start, ours: Ours, earlier: _Receipts
) -> tuple[PreparedInput, PromptTooLongRejections]:
    """Where this call tells of a refusal: what is known of them, and the goal that is left."""
    request = start.request
    if request.mode != "reactive" or not start.payload or start.is_repeated:
        return call, PromptTooLongRejections()
    retries = call.settings.reactive_retries
    refusals = rejections_of(start.payload, await earlier.states_of_all_branches(), retries)
    harder = refusals.harder(request)
    if harder is not request:
        call = await to_thread.run_sync(prepare, call.parsed, call.format, harder, ours)
    return call, refusals


async def _applied(
    payload: Sequence[JsonObject], request: CompactRequest, earlier: _Receipts
) -> JsonObject | None:
    """The receipt of what is to be applied, if anything is."""
    if request.apply is None:
        return None
    receipts, now = await earlier.of_all_branches(), time.time()
    return prepared.find(receipts, request.apply, payload, earlier.session_id, now)


async def _placed(result: CompactResult, start: Start, archive: Archive) -> CompactResult:
    """`result` with its place in the receipt: the branch, and the session that started its own."""
    if not result.changed and result.prepared is None:
        return result
    parent = (await archive.session_info(result.session_id)).parent_session_id
    place = {"head": start.history[:HEAD_CHARS], "parent_session_id": parent}
    return replace(result, receipt={**result.receipt, **place})


def _leaves_a_trace(result: CompactResult, words: SummaryText) -> bool:
    """Whether the archive keeps more of this call than the messages; mostly it does not."""
    if result.changed or result.prepared is not None or "reactive" in result.receipt:
        return True
    return words.model is not None or bool(words.prose)


async def _keep(
    result: CompactResult,
    validation: Validation,
    context: CompactionContext,
    words: SummaryText,
    rendered: Sequence[Sequence[JsonObject]],
    receipt: JsonObject,
    archive: Archive,
    start: Start,
) -> None:
    """Make durable what `result` rests on; its context stands for the list from now on."""
    blobs = (*_dated(validation, context), *pin_blobs(context.pins.candidates))
    head, listed = start.history, ""
    if start.recognised is not None:
        listed = history_hash(start.payload)
    if result.prepared is not None:
        # The context stays as it is until this is applied.
        receipt = {**receipt, "prepared": result.receipt["prepared"]}
        await archive.commit(result.session_id, blobs=blobs, receipt=receipt, head=head)
    elif result.changed:
        entries = context_entries(validation.edited.messages, rendered, context.seqs)
        await archive.commit(
            result.session_id,
            blobs=blobs,
            receipt=receipt,
            context=entries,
            head=head,
            listed=listed,
        )
    elif words.model is not None or "reactive" in receipt:
        # What a model took is told even where nothing came of it, and the same list is not sent to
        # it again; a refusal is a fact whatever came of it.
        await archive.commit(result.session_id, receipt=receipt, head=head)
    elif words.prose:
        # A summary for later; it is no compaction, so nothing else of this call is told.
        names = ("session_id", "format", "status", "tokens", "state")
        receipt = {name: receipt[name] for name in names}
        await archive.commit(result.session_id, receipt=receipt, head=head)


def _dated(validation: Validation, context: CompactionContext) -> list[Blob]:
    """The draft's blobs, each with the archived message that held it."""
    seqs = {
        pointer: context.seqs[edit.index]
        for edit in validation.edited.edits
        if edit.index is not None
        for pointer in edit.pointers
    }
    return [replace(blob, seq=seqs.get(blob.output_id)) for blob in validation.edited.blobs]


async def _memory(
    context: CompactionContext, plan: Plan, request: CompactRequest, earlier: _Receipts
) -> SummaryMatch | None:
    """The summary written earlier that can stand in for a new one, if there is one."""
    if plan.cut is None or request.mode == "plan":
        return None
    states = await earlier.states()
    return await to_thread.run_sync(summary_that_reaches, context, plan, request, states)


async def _is_repeated(
    start: Start, request: CompactRequest, appended: AppendResult, earlier: _Receipts
) -> bool:
    """Whether this call was answered before, or hands in that answer; not one that was refused."""
    if start.is_repeated:
        return True
    if not start.payload or appended.written or request.mode == "reactive":
        return False
    return await _is_outcome(start.payload, request, earlier)


async def _is_outcome(
    payload: Sequence[JsonObject], request: CompactRequest, earlier: _Receipts
) -> bool:
    """Whether this very list is what the session's last compaction gave for the same wishes."""
    keys = (state.repeat_key for state in reversed(await earlier.states()))
    last = next(filter(None, keys), None)
    return last is not None and last == repeat_key(payload, request)


async def _past(
    call: PreparedInput,
    context: CompactionContext,
    plan: Plan,
    request: CompactRequest,
    earlier: _Receipts,
    read_file: ReadFile | None,
) -> EarlierCalls:
    """What earlier compactions know, where this call may be one."""
    may_act = plan.cut is not None or bool(plan.edited.edits) or call.goal.is_over
    if not may_act and not _tells(context, request):
        return EarlierCalls()
    try:
        states = before(await earlier.states(), stop_seq_of(context.seqs))
    except NotFoundError:  # a plan for a session that is not archived yet
        states = ()
    known = await to_thread.run_sync(known_files, context, states)
    on_disk = await files_on_disk(known.paths, read_file)
    # What is only prepared empties no context yet.
    look_back = partial(earlier_calls_of, is_over=call.goal.is_over and not request.prepare)
    return await to_thread.run_sync(look_back, context, states, known, on_disk)


def _tells(context: CompactionContext, request: CompactRequest) -> bool:
    """Whether this call hands back a list that may tell of files which changed."""
    is_now = request.mode in ("auto", "micro", "full") and not request.prepare
    return context.settings.tell_changed_files and is_now


def _validated(
    call: PreparedInput,
    context: CompactionContext,
    plan: Plan,
    words: SummaryText,
    files: list[FileText],
    request: CompactRequest,
    *,
    gates: Gates,
    is_repeated: bool,
) -> Validation:
    edited = finish(context, plan, summary=words.summary, checkpoint=words.checkpoint, files=files)
    edited = gates.edited(edited)
    return validate(
        context, call.goal, call.repaired, edited, request.mode, is_repeated=is_repeated
    )


async def _without_slack(
    call: PreparedInput,
    context: CompactionContext,
    plan: Plan,
    words: SummaryText,
    files_at: Callable[[Plan], Sequence[FileText]],
    archive: Archive,
) -> tuple[Plan, SummaryText]:
    """Extracts that left room free are written anew, for the longer tail that fills it."""
    if words.writer != "extractive" or words.model is not None or plan.cut is None:
        return plan, words
    for refill in range(_REFILLS):
        told = spent(context, plan, words)
        if refill and not await to_thread.run_sync(has_slack, context, told, files_at):
            break
        fuller = await to_thread.run_sync(filled, context, told, files_at)
        if fuller.cut == plan.cut:
            break
        sources = await read_originals(context, fuller, call.parsed, archive, call.format)
        words = await to_thread.run_sync(extracts, context, fuller, sources, words.warnings)
        plan = fuller
    return plan, words


async def _gates(archive: Archive, call: PreparedInput) -> Gates:
    """The gates of this call; off the loop only where its list is looked through."""
    if archive.redaction != "on":
        return Gates(archive.redaction)
    return await to_thread.run_sync(gates_of, call.parsed)


async def _needs_summary(
    payload: Sequence[JsonObject],
    call: PreparedInput,
    context: CompactionContext,
    plan: Plan,
    sources: Originals,
    request: CompactRequest,
    archive: Archive,
    gates: Gates,
) -> CompactResult:
    """Ask the host for the summary; nothing but the originals was written."""
    token = await issue_continuation(context, plan, archive, time.time())
    asked = await to_thread.run_sync(prompt_for, context, sources, plan, request, token)
    prompt = replace(asked, user=gates.json(asked.user))
    tokens = token_report(call.goal, call.goal.before, request.mode)
    return CompactResult(
        session_id=context.session_id,
        format=call.format,
        status="needs_summary",
        messages=list(payload),
        changed=False,
        fits=tokens.upper <= tokens.limit,
        tokens=tokens,
        summary_prompt=prompt,
    )


def _asks_host(request: CompactRequest) -> bool:
    return request.summarizer == "host" and request.mode not in _MODES_WITHOUT_MODEL


async def _words(
    context: CompactionContext,
    plan: Plan,
    sources: Originals,
    request: CompactRequest,
    archive: Archive,
    earlier: _Receipts,
    model: SummaryModel | None,
    memory: SummaryMatch | None,
    tell: ReportProgress,
) -> SummaryText:
    """The summary for `plan`, by the summarizer that the request asks for."""
    if memory is not None:
        return await to_thread.run_sync(reuse_summary, context, plan, sources, memory)
    if request.summary is not None and request.mode == "record":
        return await to_thread.run_sync(summary_to_record, context, request)
    if request.summary is not None:
        now = time.time()
        notes = await continuation_warnings(context, plan, request, archive, now)
        words = await to_thread.run_sync(summarize_with_host_text, context, plan, sources, request)
        return replace(words, warnings=(*notes, *words.warnings))
    asks_model = request.summarizer == "auto" and request.mode not in _MODES_WITHOUT_MODEL
    if model is None or not asks_model or plan.cut is None:
        return await to_thread.run_sync(extracts, context, plan, sources)
    return await summarize_with_model(
        context,
        plan,
        sources,
        request,
        model,
        states=await earlier.states_of_all_branches(),
        now_seconds=time.time(),
        tell=chars_teller(tell),
    )
