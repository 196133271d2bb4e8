"""Tool: hand in a conversation, get back one that fits."""

from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from anyio import to_thread
from context_compaction import Archive, CompactResult, SettingsError, make_blob, make_splices
from mcp_types import CallToolResult, InputRequiredResult

from mcp_server_compaction.protocol.compaction_call import (
    Input,
    answer_of,
    compact_request_of,
    converted,
    followed_by,
    input_of,
    resumable_of,
    split_options,
)
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import (
    CompactAnswer,
    CompactArguments,
    Reply,
    ResumeHost,
    SummaryRequest,
)
from mcp_server_compaction.protocol.tools.answers import structured
from mcp_server_compaction.protocol.writers import model_for, wanted_writer

NOT_HERE = "Where you do not make the requests yourself, your context is unchanged."
PLANNED = "Nothing was written: this is what mode='auto' would do."
UNCHANGED_HOST = (
    "This host's context is unchanged: no tool can replace it. Tell the user to run the host's own "
    "compact command, or to begin a new session with this summary. Claude Code, Codex and pi can "
    "go on with what is left here: call with options={'resume': 'claude-code'} (codex, pi)."
)
RESUMED = (
    "This host's context is unchanged. Tell the user to end this session and to go on with the "
    "compacted one by: {}"
)
NOT_RESUMED = "No session was written, since nothing was compacted. mode='full' compacts now."


async def compact_messages(
    context: RequestContext, arguments: CompactArguments
) -> CallToolResult | InputRequiredResult:
    """Compact one conversation and answer with as much of it as was asked for."""
    # The engine loads the tokenizer and SQLite: hosts wait for `initialize`, not for this.
    from context_compaction import compact, is_recent, with_losses

    from mcp_server_compaction.operations.telemetry import stage_clock
    from mcp_server_compaction.protocol.sampling import (
        AnswersPendingError,
        is_modern,
        sampling_model,
    )

    deps = context.lifespan_context
    archive = await deps.archive()
    given = await input_of(arguments, archive, deps.config)
    request = compact_request_of(arguments, given, deps.config)
    host = _resume_host(arguments)
    to_format = given.format
    if host:
        from mcp_server_compaction.hosts.resume import RESUME_FORMATS  # the writers of all hosts

        to_format = RESUME_FORMATS[host]
    if to_format is not None and to_format != given.format:
        given, request = await to_thread.run_sync(converted, given, request, to_format)

    stage_ended = stage_clock()

    async def report_progress(fraction: float, step: str) -> None:
        stage_ended(fraction)
        await context.session.report_progress(fraction, 1.0, step)

    sampling = sampling_model(context, deps.config.summaries.timeout_seconds)
    model = model_for(
        wanted_writer(arguments.summarizer, deps.config),
        deps.config,
        sampling,
        may_refuse=is_modern(context.session),
    )
    is_known = request.session_id is not None and is_recent(archive, request.session_id)
    turn = deps.turns.of(context.request, is_known=is_known)
    try:
        async with turn if model is None else nullcontext():
            stage_ended(0.0)
            result = await compact(
                given.payload,
                request,
                archive=archive,
                read_file=deps.config.roots.reader(given.folder),
                model=model,
                report_progress=report_progress,
            )
    except AnswersPendingError as pending:
        return pending.result
    wrote = arguments.mode != "plan"
    if wrote:
        await deps.changes.updated(f"transcript://{result.session_id}")
        await deps.changes.listed(context.session, result.session_id)
    told = await with_losses(result, archive) if arguments.reply == "receipt" else result
    answer = answer_of(told, given.notes, wrote=wrote)
    if host and result.changed and wrote:
        roots = deps.config.roots
        resumable = await resumable_of(result, host, given, archive, within=roots)
        answer.resume_path = str(resumable.path)
        answer.next_step = RESUMED.format(resumable.command)
    elif host and result.status == "unchanged":
        answer.next_step = NOT_RESUMED
    if arguments.transcript_path is not None and arguments.reply is None:
        return await _told(answer, result, given, archive)
    reply = arguments.reply or _shorter_reply(result, given)
    if wrote and reply == "edits":
        answer.context_hash = await followed_by(result, given, archive)
    return await _reply(answer, result, given, reply, archive)


def _shorter_reply(result: CompactResult, given: Input) -> Reply:
    """What to answer a caller with that leaves it open: edits where they hold fewer messages."""
    splices = make_splices(given.payload, result.messages) if result.changed else ()
    inserted = sum(len(splice.insert) for splice in splices)
    return "edits" if inserted < len(result.messages) and splices else "messages"


def _resume_host(arguments: CompactArguments) -> ResumeHost | None:
    """The host that is to go on with what is left.

    Raises:
        SettingsError: An option is wrong, or the conversation stands in no file.
    """
    host = split_options(arguments.options or {})[0].resume
    if host is not None and arguments.transcript_path is None:
        raise SettingsError(
            "options.resume needs transcript_path: a session file of a host, or 'current'."
        )
    return host


async def _told(
    answer: CompactAnswer, result: CompactResult, given: Input, archive: Archive
) -> CallToolResult:
    """For a model that named a file: the summary first, and what it cannot do with it."""
    if result.summary_prompt is not None or result.prepared is not None:
        return await _reply(answer, result, given, "receipt", archive)
    # The receipt has the rest, whole; here the summary needs the room.
    answer.receipt, answer.boundary, answer.layers = None, None, []
    if result.status == "planned":
        answer.next_step = PLANNED
    elif result.changed and answer.resume_path is None:
        answer.next_step = UNCHANGED_HOST
    return structured(answer, lead="summary")


async def _reply(
    answer: CompactAnswer, result: CompactResult, given: Input, reply: Reply, archive: Archive
) -> CallToolResult:
    beside: dict[str, Any] = {}
    if result.summary_prompt is not None:
        answer.summary_request = SummaryRequest(**asdict(result.summary_prompt))
        answer.next_step = (
            "Write the summary that summary_request asks for, then call again with the same "
            "messages, summary=<your text> and options={'continuation': <that of the request>}."
        )
        if reply == "receipt":
            await _file_prompt(answer, answer.summary_request, archive)
        else:
            beside["summary_request"] = answer.summary_request.model_dump()
            answer.summary_request = None
    elif result.status == "planned":
        answer.next_step = PLANNED
    elif result.prepared is not None:
        answer.next_step = (
            "Go on with your list, only adding to it. To replace its first "
            f"{result.prepared.message_count} messages, call again with all of it and "
            f"options={{'apply': '{result.prepared.prepared_id}'}}."
        )
    elif result.changed and reply == "messages":
        beside["messages"] = result.messages
        answer.next_step = (
            f"Send structuredContent.messages to the model instead of your list. {NOT_HERE}"
        )
    elif result.changed and reply == "edits":
        beside["edits"] = [
            {
                "start": splice.start,
                "delete_count": splice.delete_count,
                "insert": list(splice.insert),
            }
            for splice in make_splices(given.payload, result.messages)
        ]
        answer.next_step = (
            "Apply structuredContent.edits to your list, from the last to the first: at start, "
            f"replace delete_count messages by insert. {NOT_HERE}"
        )
    return structured(answer, beside=beside)


async def _file_prompt(answer: CompactAnswer, prompt: SummaryRequest, archive: Archive) -> None:
    """Put a long prompt into the archive, for a caller that reads in parts."""
    blob = make_blob(prompt.user, tool_name="summary_request")
    await archive.commit(answer.session_id, blobs=[blob])
    prompt.user = f"Read the transcript with read_persisted_output {blob.output_id}"
