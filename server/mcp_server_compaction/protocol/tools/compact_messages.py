"""Tool: hand in a conversation, get back one that fits."""

from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

from anyio import to_thread
from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    SettingsError,
    make_blob,
    make_splices,
)
from mcp_types import CallToolResult

from mcp_server_compaction.config import Config
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
    CompactOptions,
    Reply,
)
from mcp_server_compaction.protocol.tools.answers import structured
from mcp_server_compaction.protocol.writers import model_for, wanted_writer

# What `next_step` says.
SEND = (
    "Send structuredContent.messages to the model instead of your list. Where you do not make the "
    "requests yourself, your context is unchanged."
)
APPLY = (
    "Apply structuredContent.edits to your list, from the last to the first: at start, replace "
    "delete_count messages by insert. Where you do not make the requests yourself, your context is "
    "unchanged."
)
ASKED = (
    "Write the summary that summary_request asks for, then call again with the same messages, "
    "summary=<your text> and options={'continuation': <that of the request>}."
)
PREPARED = (
    "Go on with your list, only adding to it. To replace its first {0.message_count} messages, "
    "call again with all of it and options={{'apply': '{0.prepared_id}'}}."
)
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


async def compact_messages(context: RequestContext, arguments: CompactArguments) -> CallToolResult:
    """Compact one conversation and answer with as much of it as was asked for."""
    # The engine loads the tokenizer and SQLite: hosts wait for `initialize`, not for this.
    from context_compaction import compact, is_recent, with_losses

    from mcp_server_compaction.operations.telemetry import stage_clock
    from mcp_server_compaction.protocol.sampling import sampling_model

    deps = context.lifespan_context
    archive = await deps.archive()
    options, given, request = await _asked(arguments, archive, deps.config)
    stage_ended = stage_clock()

    async def report_progress(fraction: float, step: str) -> None:
        stage_ended(fraction)
        await context.session.report_progress(fraction, 1.0, step)

    sampling = sampling_model(context, deps.config.summaries.timeout_seconds)
    model = model_for(
        wanted_writer(arguments.summarizer, deps.config),
        deps.config,
        sampling,
    )
    is_known = request.session_id is not None and is_recent(archive, request.session_id)
    turn = deps.turns.of(context.request, is_known=is_known)
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
    wrote = arguments.mode != "plan"
    if wrote:
        await deps.changes.updated(f"transcript://{result.session_id}")
        await deps.changes.listed(context.session, result.session_id)
    if arguments.reply == "receipt":
        result = await with_losses(result, archive)
    answer = answer_of(result, given.notes, wrote=wrote)
    if options.resume is not None and wrote:
        if result.changed:
            resumable = await resumable_of(
                result, options.resume, given, archive, within=deps.config.roots
            )
            answer.resume_path = str(resumable.path)
            answer.next_step = RESUMED.format(resumable.command)
        elif result.status == "unchanged":
            answer.next_step = NOT_RESUMED
    if arguments.transcript_path is not None and arguments.reply is None:
        return await _reply_to_model(answer, result, given, archive)
    reply = arguments.reply or _shorter_reply(result, given)
    if wrote and reply == "edits":
        answer.context_hash = await followed_by(result, given, archive)
    return await _reply(answer, result, given, reply, archive)


async def _asked(
    arguments: CompactArguments, archive: Archive, config: Config
) -> tuple[CompactOptions, Input, CompactRequest]:
    """The options, the conversation and the request of a call.

    Raises:
        CompactionError: An option is wrong, or there is no such conversation.
    """
    options, settings = split_options(arguments.options or {})
    if options.resume is not None and arguments.transcript_path is None:
        raise SettingsError(
            "options.resume needs transcript_path: a session file of a host, or 'current'."
        )
    given = await input_of(arguments, options, archive, config)
    request = compact_request_of(arguments, options, settings, given, config)
    if options.resume is not None:
        from mcp_server_compaction.hosts.resume import RESUME_FORMATS  # the writers of all hosts

        to_format = RESUME_FORMATS[options.resume]
        if to_format != given.format:
            given, request = await to_thread.run_sync(converted, given, request, to_format)
    return options, given, request


def _shorter_reply(result: CompactResult, given: Input) -> Reply:
    """What to answer a caller with that leaves it open: edits where they hold fewer messages."""
    splices = make_splices(given.payload, result.messages) if result.changed else ()
    inserted = sum(len(splice.insert) for splice in splices)
    return "edits" if inserted < len(result.messages) and splices else "messages"


async def _reply_to_model(
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
    if (prompt := result.summary_prompt) is not None:
        answer.next_step = ASKED
        if reply == "receipt":
            # The transcript goes into the archive: whoever writes the summary reads it in parts.
            blob = make_blob(prompt.user, tool_name="summary_request")
            await archive.commit(answer.session_id, blobs=[blob])
            read = f"Read the transcript with read_persisted_output {blob.output_id}"
            answer.summary_request = replace(prompt, user=read)
        else:
            beside["summary_request"] = asdict(prompt)
    elif result.status == "planned":
        answer.next_step = PLANNED
    elif result.prepared is not None:
        answer.next_step = PREPARED.format(result.prepared)
    elif result.changed and reply == "messages":
        beside["messages"] = result.messages
        answer.next_step = SEND
    elif result.changed and reply == "edits":
        # Not `asdict`, which would copy the messages.
        beside["edits"] = [
            {"start": one.start, "delete_count": one.delete_count, "insert": list(one.insert)}
            for one in make_splices(given.payload, result.messages)
        ]
        answer.next_step = APPLY
    return structured(answer, beside=beside)
