"""`compact()`: the straight line from messages to messages that fit, one stage a line.

read -> archive (durable before anything is lost) -> load the session -> plan -> summarize ->
finish (assemble, validate, report) -> save. The stages between the archive's are pure and run in a
thread.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from anyio import to_thread

from context_compaction.archive import Archive
from context_compaction.context import NO_TEXT, CompactionContext, Plan, ReceivedInput, SummaryText
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
from context_compaction.layers.restore import files_on_disk
from context_compaction.messages.model import JsonObject
from context_compaction.pipeline.assemble import assemble
from context_compaction.pipeline.originals import read_originals
from context_compaction.pipeline.read import context_of, read
from context_compaction.pipeline.report import (
    Outcome,
    needs_summary,
    redaction_report,
    report,
    stats_of,
)
from context_compaction.pipeline.solve import decide, make_plan, written
from context_compaction.pipeline.summarize import ask_host, asks_host, summarize
from context_compaction.pipeline.validate import validate
from context_compaction.redaction import RedactionMode
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session.earlier_calls import (
    Decision,
    FilesInWork,
    files_to_restore,
    known_files,
    noted,
    with_todos,
)
from context_compaction.session.resume import Session, load, store
from context_compaction.session.save import Finished, save
from context_compaction.summarizers.llm.model import SummaryModel


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
    given = await read(payload, request, archive)
    await tell(0.2, "read")
    session_id, appended = await store(given, archive)
    await tell(0.4, "archived")
    session = await load(given, session_id, appended, archive, now_seconds)
    context, plan, known = await to_thread.run_sync(_planned, given, session, archive.redaction)
    await tell(0.6, "cleared")
    decision = Decision(plan)
    words: SummaryText | None = NO_TEXT
    if known is not None or context.request.summary is not None:
        on_disk = await files_on_disk(known.paths if known else (), read_file)
        originals = await read_originals(context, plan, session, archive)
        deciding = partial(decide, has_model=model is not None)
        decision = await to_thread.run_sync(
            deciding, context, session, plan, known, on_disk, originals
        )
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
    outcome = await to_thread.run_sync(
        _finished, given, session, context, decision, words, now_seconds
    )
    await tell(0.8, "written")
    await save(archive, session_id, outcome.to_save)
    await tell_after(after_compaction, outcome.stats, outcome.result)
    await tell(1.0, done_line(outcome.stats))
    return outcome.result


def _planned(
    given: ReceivedInput, session: Session, redaction: RedactionMode
) -> tuple[CompactionContext, Plan, FilesInWork | None]:
    """The call, its plan, and the known files that it concerns."""
    context = context_of(given, session, redaction)
    plan = make_plan(context, session)
    return context, plan, known_files(context, plan, session.states)


def _finished(
    given: ReceivedInput,
    session: Session,
    context: CompactionContext,
    decision: Decision,
    words: SummaryText | None,
    now_seconds: float,
) -> Outcome:
    """Assemble, validate, report; if `words` is None, the summary is made of verbatim extracts."""
    plan, gates = decision.plan, context.gates
    if words is None or plan.cut is not None:
        plan, words = written(context, decision, words)
    secrets = redaction_report(context, given.messages, session, decision, words)
    words, edited = words.redacted(gates), plan.edited
    if plan.acts:
        restored = files_to_restore(context, decision.files, plan)
        edited = assemble(context, plan, words.summary, words.checkpoint, restored).redacted(gates)
    validation = validate(context, edited, is_repeated=session.is_answered)
    validation, files = noted(validation, decision.files, context)
    validation = with_todos(validation, context)
    decision = replace(decision, plan=plan, files=files)
    done = Finished(given, session, context, decision, words, validation, now_seconds)
    return report(done, secrets)
