"""`compact()`: the straight line from messages to messages that fit, one stage a line.

read -> archive (durable before anything is lost) -> load the session -> plan -> summarize ->
finish (assemble, validate, report) -> save. The stages between the archive's are pure and run in a
thread; in one call of it, where neither host nor model writes a text.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from anyio import to_thread

from context_compaction.archive import Store
from context_compaction.context import CompactionContext, Plan, ReceivedInput, SummaryText
from context_compaction.errors import NotFoundError, SettingsError
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
from context_compaction.layers.recent_files import files_on_disk
from context_compaction.messages.model import JsonObject
from context_compaction.pipeline.decision import decide
from context_compaction.pipeline.grown import (
    Grown,
    append_new,
    goes_on,
    known_beginning,
    known_of,
    outcome_of,
    remember,
    still_holds,
)
from context_compaction.pipeline.originals import needs_archive, read_span, spans_in
from context_compaction.pipeline.plan import make_plan
from context_compaction.pipeline.prepare import context_of, read_input
from context_compaction.pipeline.report import Outcome, finish, needs_summary, stats_of
from context_compaction.pipeline.summarize import (
    ask_host,
    asks_host,
    brings_text,
    summarize,
)
from context_compaction.redaction import RedactionMode
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session.earlier_calls import Decision, KnownFiles, known_files
from context_compaction.session.known_list import KNOWN_LISTS, KnownList
from context_compaction.session.load import Session, load, store
from context_compaction.session.save import keep_counts, new_counts, save
from context_compaction.summarizers.llm.model import SummaryModel


async def compact(
    payload: Sequence[JsonObject],
    request: CompactRequest | None = None,
    *,
    archive: Store,
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
        archive: Keeps the originals, durably, before anything is edited.
        read_file: Reads a file to put back after history was replaced; without it the text that
            the conversation last saw is used.
        model: Writes the prose of a summary where the request leaves that open; without it, or
            where it fails, verbatim extracts replace it. It is never called in the modes "plan"
            and "reactive".
        report_progress: Called with the progress of the work.
        before_compaction: Called once it is certain that something is to be compacted, before a
            summary is written; not where a host's summary is still wanted.
        after_compaction: Called with the complete result.

    Raises:
        InvalidMessageError: A message is malformed; nothing was written.
        UnknownFormatError: The format cannot be found; nothing was written.
        SettingsError: An option is out of range, nothing was written; or `continuation` or `apply`
            does not belong to this conversation, which is archived then and nothing more.
        NotFoundError: The session holds nothing prepared under the name that `apply` gives.
        ArchiveError: The originals could not be kept; nothing was edited.
        HookError: A hook raised; the error's `result` holds what was done, if anything.

    Cancellation leaves the originals archived or not at all, never in part.
    """
    tell, now_seconds = report_progress or silent, time.time()
    request = request or CompactRequest()
    given = await to_thread.run_sync(_received, payload, request, archive)
    await tell(0.2, "read")
    written = 0
    if isinstance(given, Grown):
        appended = await append_new(given, archive)
        if appended is not None and still_holds(given, appended):
            await tell(0.4, "archived")
            outcome = outcome_of(given, appended, archive.redaction)
            remember(given, appended, archive)
            await tell(1.0, done_line(outcome.stats))
            return outcome.result
        written = appended.written if appended is not None else 0
        given = await to_thread.run_sync(read_input, payload, request)
    given = await _in_format_of_session(given, archive)
    stored = await store(given, archive)
    stored = replace(
        stored, appended=replace(stored.appended, written=stored.appended.written + written)
    )
    await tell(0.4, "archived")
    session = await load(given, stored, archive, now_seconds)
    asks_somebody = read_file or model or report_progress or before_compaction
    if not (asks_somebody or brings_text(given.request) or needs_archive(given, stored)):
        at_once = partial(_at_once, given, session, archive.redaction, now_seconds)
        outcome, known_list, counts = await to_thread.run_sync(at_once)
    else:
        context, plan, known = await to_thread.run_sync(_planned, given, session, archive.redaction)
        await tell(0.6, "cleared")
        on_disk = await files_on_disk(known.paths if known else (), read_file)
        spans = spans_in(context, plan)
        states, name = session.all_states, context.format
        read = {span: await read_span(span, states, archive, name) for span in spans}
        deciding = partial(decide, has_model=model is not None)
        decision = await to_thread.run_sync(deciding, context, session, plan, known, on_disk, read)
        if asks_host(context, decision):
            prompt = await ask_host(context, decision, archive, now_seconds)
            return needs_summary(given, context, prompt)
        if decision.plan.acts and context.request.mode != "plan":
            await tell_before(before_compaction, tell, stats_of(context, decision.plan, None))
        words = await summarize(
            context,
            session,
            decision,
            archive,
            model,
            now_seconds=now_seconds,
            tell=chars_teller(tell),
        )
        end = partial(_finished, given, session, context, decision, words, now_seconds)
        outcome, known_list, counts = await to_thread.run_sync(end)
        await tell(0.8, "written")
    await save(archive, stored.session_id, outcome.commit)
    await keep_counts(archive, given, stored.session_id, counts)
    if known_list is not None:
        KNOWN_LISTS.keep(archive, known_list, stored.appended)
    await tell_after(after_compaction, outcome.stats, outcome.result)
    await tell(1.0, done_line(outcome.stats))
    return outcome.result


def _received(
    payload: Sequence[JsonObject], request: CompactRequest, archive: Store
) -> Grown | ReceivedInput:
    """The list, as one that goes on from a known one, or read."""
    found = known_beginning(payload, request, archive)
    grown = goes_on(*found, payload, request) if found else None
    return grown or read_input(payload, request, found)


async def _in_format_of_session(given: ReceivedInput, archive: Store) -> ReceivedInput:
    """`given`, read in the format of its session, where several fit.

    What a compaction leaves may be plain strings, which tell no format: read in another one, the
    list would be mended by rules of a provider that it is not for. The session is that which the
    caller names, or a summary in the list.
    """
    named = (given.request.session_id, *given.claims.session_ids)
    session_id = next(filter(None, named), None)
    if len(given.fitting) < 2 or session_id is None:
        return given
    try:
        known, _ = await archive.context(session_id, limit=0)  # its format alone
    except (NotFoundError, SettingsError):  # anybody may write a summary
        return given
    if known == given.format or known not in given.fitting:
        return given
    request = replace(given.request, format=known)
    return await to_thread.run_sync(read_input, given.payload, request)


def _planned(
    given: ReceivedInput, session: Session, redaction: RedactionMode
) -> tuple[CompactionContext, Plan, KnownFiles | None]:
    """The call, its plan, and the known files that it concerns."""
    context = context_of(given, session, redaction)
    plan = make_plan(context, session)
    return context, plan, known_files(context, plan, session.states)


def _at_once(
    given: ReceivedInput, session: Session, redaction: RedactionMode, now_seconds: float
) -> tuple[Outcome, KnownList | None, Mapping[bytes, Any]]:
    """The outcome where neither host nor model writes a text."""
    context, plan, known = _planned(given, session, redaction)
    decision = decide(context, session, plan, known, {}, {})
    return _finished(given, session, context, decision, None, now_seconds)


def _finished(
    given: ReceivedInput,
    session: Session,
    context: CompactionContext,
    decision: Decision,
    words: SummaryText | None,
    now_seconds: float,
) -> tuple[Outcome, KnownList | None, Mapping[bytes, Any]]:
    """The outcome, the list as it is remembered, and the counts that are to be kept."""
    outcome = finish(given, session, context, decision, words, now_seconds)
    known_list = known_of(given, session, context, outcome)
    return outcome, known_list, new_counts(context, session)
