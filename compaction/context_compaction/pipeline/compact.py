"""`compact()`: one stage after the other, from messages to messages that fit.

read -> archive -> load -> plan -> summarize -> assemble -> validate -> report -> save. Only the
first three stages, the summary's model and the last stage do I/O; all others run in a thread.
An exception of a hook becomes a `HookError`; the originals are archived then.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from anyio import to_thread

from context_compaction.archive.archive import Archive
from context_compaction.context import (
    CompactionContext,
    FilesInWork,
    Finished,
    Plan,
    Session,
    SummaryText,
)
from context_compaction.errors import HookError
from context_compaction.file_access import ReadFile
from context_compaction.messages.model import JsonObject
from context_compaction.messages.raw import cache_markers, keep_cache_markers
from context_compaction.pipeline.assemble import (
    assemble,
    files_on_disk,
    files_to_restore,
    find_files,
    validate,
    with_notes,
)
from context_compaction.pipeline.read import context_of, read
from context_compaction.pipeline.report import (
    Outcome,
    needs_summary,
    redaction_report,
    report,
    stats_of,
)
from context_compaction.pipeline.solve import decide, make_plan, with_text
from context_compaction.pipeline.summarize import (
    asks_host,
    prompt_for_host,
    read_originals,
    summarize,
)
from context_compaction.redaction import RedactionMode
from context_compaction.request import CompactRequest
from context_compaction.result import CompactionStats, CompactResult
from context_compaction.session.resume import load, store
from context_compaction.session.save import save
from context_compaction.session.undo import undo
from context_compaction.summarizers.llm.model import SummaryModel, TellChars

Hook: TypeAlias = Callable[[CompactionStats], Awaitable[None]]
# Receives the fraction done (0 to 1) and a short name of the step.
ReportProgress: TypeAlias = Callable[[float, str], Awaitable[None]]

_STARTED, _WRITTEN = 0.62, 0.8
_REPORT_EVERY_CHARS = 500
# What to do after a hook raised.
_NOTHING_EDITED = (
    "Nothing was edited; the conversation is archived. Fix or remove the hook, then call again."
)
_ALL_DONE = "The compaction succeeded and is archived; see `result` on this error. Fix the hook."


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
    """Archive `payload`, then return messages that fit the target; `payload` never changes.

    Args:
        payload: The conversation, as the provider's API takes it.
        request: The options; the defaults suit a 200K window.
        archive: Stores the originals durably before anything is edited.
        read_file: Reads a file to restore after history was replaced. Without it, the content that
            the conversation last showed is used.
        model: Writes the summary if the request leaves that open. Without it, or if it fails, the
            summary consists of verbatim extracts. The mode "reactive" never calls it. In mode
            "plan" its text is returned as `draft`.
        report_progress: Called with the progress of the work.
        before_compaction: Called once it is certain that something is compacted, before a summary
            is written. It is not called while a host's summary is missing.
        after_compaction: Called with the complete result.

    Raises:
        InvalidMessageError: A message is malformed; nothing was written.
        UnknownFormatError: The format cannot be detected; nothing was written.
        SettingsError: An option is out of range, and nothing was written; or `continuation` or
            `apply` does not belong to this conversation, which is archived but not edited.
        NotFoundError: The session has no prepared compaction with the ID in `apply`, or the list
            went through no compaction that can be undone.
        ArchiveError: The originals could not be stored; nothing was edited.
        HookError: A hook raised; the error's `result` holds the result, if there is one.

    Cancellation leaves the originals archived or not at all, never in part.
    """
    progress, now_seconds = report_progress or _silent, time.time()
    given = await read(payload, request or CompactRequest(), archive)
    await progress(0.2, "read")
    session_id, appended = await store(given, archive)
    await progress(0.4, "archived")
    session = await load(given, session_id, appended, archive, now_seconds)
    if session.request.mode == "undo":
        undone = await undo(session, archive)
        await progress(1.0, "undone")
        return undone
    context, plan, files = await to_thread.run_sync(_plan, session, archive.redaction)
    await progress(0.6, "cleared")
    words = SummaryText()
    if files is not None or context.request.summary is not None:
        on_disk = await files_on_disk(files, read_file)
        originals = await read_originals(context, plan, archive)
        deciding = partial(decide, has_model=model is not None)
        plan = await to_thread.run_sync(deciding, context, plan, files, on_disk, originals)
        if asks_host(context, plan):
            prompt = await to_thread.run_sync(prompt_for_host, context, plan)
            return needs_summary(context, prompt)
        if plan.acts and context.request.mode != "plan":
            stats = stats_of(context, plan, None)
            size = f"{stats.compacted_blocks} blocks of {stats.tokens_before} tokens"
            await progress(_STARTED, f"compacting {size}")
            await _call_hook("before_compaction", before_compaction, stats, _NOTHING_EDITED)
        words = await summarize(
            context, plan, model, now_seconds=now_seconds, report_chars=_chars_reporter(progress)
        )
    outcome = await to_thread.run_sync(_finish, context, plan, words, now_seconds)
    await progress(0.8, "written")
    await save(archive, session_id, outcome.commit)
    if outcome.stats is not None:
        await _call_hook(
            "after_compaction", after_compaction, outcome.stats, _ALL_DONE, outcome.result
        )
    await progress(1.0, _done_line(outcome.stats))
    return outcome.result


def _plan(
    session: Session, redaction: RedactionMode
) -> tuple[CompactionContext, Plan, FilesInWork | None]:
    """Return the context of the call, its plan, and the files in work."""
    context = context_of(session, redaction)
    plan = make_plan(context)
    return context, plan, find_files(context, plan)


def _finish(
    context: CompactionContext, plan: Plan, words: SummaryText, now_seconds: float
) -> Outcome:
    """Write the text, then assemble, validate and report."""
    gates = context.gates
    plan, words = with_text(context, plan, words)
    secrets = redaction_report(context, plan)
    words, edited = words.redacted(gates) if gates.mode == "on" else words, plan.edited
    if plan.acts:
        files = files_to_restore(context, plan)
        summary, checkpoint = gates.json(plan.summary), gates.json(plan.checkpoint)
        plan = replace(plan, summary=summary, checkpoint=checkpoint)
        edited = assemble(context, plan, files)
        if plan.cut is not None:
            # The summary takes over the cache markers of the messages that it replaces.
            markers = cache_markers(context.messages)
            edited = replace(edited, messages=keep_cache_markers(markers, edited.messages))
        edited = edited.redacted(gates)
    validation, noted_files = with_notes(context, validate(context, edited), plan.files)
    plan = replace(plan, files=noted_files)
    return report(Finished(context, plan, words, validation, now_seconds), secrets)


async def _silent(fraction: float, step: str) -> None:
    """Report nothing: the default `ReportProgress`."""


async def _call_hook(
    name: str,
    hook: Hook | None,
    stats: CompactionStats,
    remedy: str,
    result: CompactResult | None = None,
) -> None:
    """Call `hook` if there is one.

    Raises:
        HookError: The hook raised; the error has the `result`, if there is one.
    """
    if hook is None:
        return
    try:
        await hook(stats)
    except Exception as error:
        problem = f"The hook {name} raised {type(error).__name__}: {error}."
        raise HookError(f"{problem} {remedy}", result) from error


def _done_line(stats: CompactionStats | None) -> str:
    """Return the last line of the progress report."""
    if stats is None:
        return "done"
    return (
        f"done: {stats.tokens_before} -> {stats.tokens_after} tokens, {stats.compacted_blocks} "
        f"blocks compacted, {stats.summary_block_count} summaries"
    )


def _chars_reporter(report_progress: ReportProgress) -> TellChars:
    """Return a function that reports how many characters of a summary were written."""
    written = reported = 0

    async def report_chars(chars: int) -> None:
        nonlocal written, reported
        written += chars
        if written - reported >= _REPORT_EVERY_CHARS:
            reported = written
            # The final length is unknown, so the reported share approaches the end ever slower.
            share = 1 - 0.5 ** (written / (8 * _REPORT_EVERY_CHARS))
            fraction = _STARTED + (_WRITTEN - _STARTED) * share
            await report_progress(fraction, f"writing, {written} characters")

    return report_chars
