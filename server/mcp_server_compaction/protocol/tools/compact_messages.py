"""Tool: hand in a conversation, get back one that fits."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from anyio import to_thread
from context_compaction import (
    SETTING_NAMES,
    Archive,
    CompactionError,
    CompactRequest,
    CompactResult,
    CurrentContext,
    JsonObject,
    NotFoundError,
    SettingsError,
    Splice,
    compact,
    current_context,
    formats,
    history_hash,
    make_blob,
    make_splices,
    name_if_current,
    window_of,
    with_dropped_names,
)
from mcp_types import CallToolResult

from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.resume import RESUME_FORMATS
from mcp_server_compaction.hosts.session_places import CURRENT, current_transcript
from mcp_server_compaction.operations.telemetry import stage_clock
from mcp_server_compaction.protocol.arguments import parse_arguments, unknown_name
from mcp_server_compaction.protocol.compaction_call import (
    Input,
    converted,
    input_of_file,
    irreducible_lines,
    resumable_of,
    written_by,
)
from mcp_server_compaction.protocol.deps import Deps, RequestContext
from mcp_server_compaction.protocol.sampling import sampling_model
from mcp_server_compaction.protocol.schemas import (
    CompactAnswer,
    CompactArguments,
    CompactOptions,
    PreparedFigures,
    Reply,
)
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.protocol.tools.answers import structured
from mcp_server_compaction.protocol.writers import library_writer, model_for, wanted_writer
from mcp_server_compaction.reading.text_source import find_session

# What `next_step` says.
SEND = (
    "Send structuredContent.messages to the model instead of your list. Where you do not make the "
    "requests yourself, your context is unchanged."
)
APPLY = (
    "Apply structuredContent.edits to your list, from the last to the first: at start, replace "
    "delete_count messages by insert. reply='messages' gives the whole list instead. Where you do "
    "not make the requests yourself, your context is unchanged."
)
ASKED = (
    "Write the summary that summary_request asks for, then call again with the same messages, "
    "summary=<your text> and options={'continuation': <that of the request>}."
)
PREPARED = (
    "Go on with your list, only adding to it. To replace its first {0.message_count} messages, "
    "call again with all of it and options={{'apply': '{0.prepared_id}'}}."
)
ADOPTED = (
    "Nothing new was compacted: the first {0.message_count} messages were compacted by an earlier "
    "call, and its {0.context_count} messages stand for them. "
)
SAME_WINDOW = (
    "context_window is {}, as in the last call of session {} that had one. Name another to change "
    "it."
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
    deps = context.lifespan_context
    archive = await deps.archive()
    options, given, request = await _asked(arguments, archive, deps.config)
    given, request = await _with_known_window(given, request, options, deps, archive)
    stage_ended = stage_clock()

    async def report_progress(fraction: float, step: str) -> None:
        stage_ended(fraction)
        await context.session.report_progress(fraction, 1.0, step)

    sampling = sampling_model(context, deps.config.summaries.timeout_seconds)
    model = model_for(wanted_writer(arguments.summarizer, deps.config), deps.config, sampling)
    is_known = (caller.get().tenant, request.session_id) in deps.turns.recent_windows
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
    deps.turns.remember(result.session_id, result.receipt.get("context_window"))
    wrote = arguments.mode != "plan"
    if wrote:
        await deps.changes.updated(f"transcript://{result.session_id}")
        await deps.changes.listed(context.session, result.session_id)
    if arguments.reply == "receipt":
        result = await with_dropped_names(result, archive)
    answer = _answer_of(result, given.notes, wrote=wrote)
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
        return await _reply_to_model(answer, result, archive)
    splices = make_splices(given.payload, result.messages) if result.changed else ()
    is_without_list = arguments.messages is None and arguments.new_messages is None
    reply = arguments.reply or ("messages" if is_without_list else _shorter_reply(result, splices))
    if wrote and reply == "edits":
        answer.context_hash = await _followed_by(result, given, archive)
    return await _reply(answer, result, splices, reply, archive)


async def _asked(
    arguments: CompactArguments, archive: Archive, config: Config
) -> tuple[CompactOptions, Input, CompactRequest]:
    """The options, the conversation and the request of a call.

    Raises:
        CompactionError: An option is wrong, or there is no such conversation.
    """
    options, settings = _split_options(arguments.options or {})
    if options.resume is not None and arguments.transcript_path is None:
        raise SettingsError(
            "options.resume needs transcript_path: a session file of a host, or 'current'."
        )
    given = await _input_of(arguments, options, archive, config)
    request = _request_of(arguments, options, settings, given, config)
    if options.resume is not None:
        to_format = RESUME_FORMATS[options.resume]
        if to_format != given.format:
            given, request = await to_thread.run_sync(converted, given, request, to_format)
    return options, given, request


def _split_options(given: Mapping[str, Any]) -> tuple[CompactOptions, dict[str, Any]]:
    """The options of a call, and apart from them the constants of the policy it changes.

    Raises:
        SettingsError: A name is neither, or an option has a wrong value.
    """
    own = list(CompactOptions.model_fields)
    for name in given:
        if name not in own and name not in SETTING_NAMES:
            raise SettingsError(
                f"options: {unknown_name('option', name, [*own, *SETTING_NAMES])} "
                "All are described in options://compact_messages."
            )
    options = parse_arguments(
        CompactOptions, {name: value for name, value in given.items() if name in own}
    )
    return options, {name: value for name, value in given.items() if name not in own}


async def _input_of(
    arguments: CompactArguments, options: CompactOptions, archive: Archive, config: Config
) -> Input:
    """The conversation that the arguments give or point to.

    Raises:
        CompactionError: The file may not be read, or holds no conversation; or the new messages
            belong behind another list than the session's, so that a caller whose last answer was
            lost never has them put behind a list that it does not hold.
    """
    if arguments.transcript_path is not None:
        path = Path(arguments.transcript_path)
        # Where no file may be read, as over HTTP, nobody learns which there are.
        if arguments.transcript_path == CURRENT and config.roots.folders:
            path = await to_thread.run_sync(current_transcript, this_user())
        return await input_of_file(await config.roots.read_bytes(path), path.name)
    if arguments.messages is not None:
        return Input(arguments.messages)
    grown = await _grown(archive, arguments.session_id or "", arguments.new_messages)
    if options.context_hash not in (None, grown.known_name):
        raise SettingsError(
            f"new_messages belong behind the list that context_hash names, {options.context_hash}, "
            f"but the context of session {grown.session_id} is another by now. Hand in the whole "
            "list as messages."
        )
    return grown


async def _grown(archive: Archive, session_id: str, given: Sequence[JsonObject] | None) -> Input:
    """The session's context with the new messages, if any were given, behind it."""
    new = given or ()
    try:
        session_id = await find_session(archive, session_id)
        context = await current_context(session_id, archive)
    except NotFoundError:
        if given is None:
            raise
        note = f"Session {session_id} was not known: it begins with these messages."
        return Input(new, session_id=session_id, notes=(note,))
    return Input(
        [*context.messages, *new],
        format=await to_thread.run_sync(_format_of, context, new),
        session_id=session_id,
        known_count=len(context.messages),
        known_name=context.name,
    )


async def _with_known_window(
    given: Input,
    request: CompactRequest,
    options: CompactOptions,
    deps: Deps,
    archive: Archive,
) -> tuple[Input, CompactRequest]:
    """The request with the window that the session last had, if the call does not name one.

    A model that compacts the session that its host runs in a small window cannot know that window.
    """
    session_id = request.session_id
    if request.context_window or request.target_tokens or options.model or session_id is None:
        return given, request
    window = deps.turns.recent_windows.get((caller.get().tenant, session_id))
    if window is None:
        try:
            receipts = await archive.receipts(session_id, after=-1)
        except CompactionError:  # no such session, or no name for one: `compact` says which
            return given, request
        window = receipts[-1].get("context_window") if receipts else None
    if window in (None, window_of(request)):
        return given, request
    note = SAME_WINDOW.format(window, session_id)
    return replace(given, notes=(*given.notes, note)), replace(request, context_window=window)


def _format_of(context: CurrentContext, new: Sequence[JsonObject]) -> str:
    """The format of `context` and what follows it.

    Plain strings by the user and the assistant are the same in several formats: which one it is may
    only be told by the first call of a tool, long after the session began.
    """
    if formats.fits_format(new, context.format):
        return context.format
    try:
        return formats.detect([*context.messages, *new])
    except CompactionError:
        return context.format  # whose own error says what is wrong


# Fields of the request that are options of the same name.
_OPTION_NAMES = frozenset(CompactRequest.__dataclass_fields__) & set(CompactOptions.model_fields)


def _request_of(
    arguments: CompactArguments,
    options: CompactOptions,
    settings: Mapping[str, Any],
    given: Input,
    config: Config,
) -> CompactRequest:
    """What to ask the library for."""
    named = {name: getattr(options, name) for name in options.model_fields_set & _OPTION_NAMES}
    source = {
        "format": given.format,
        "model": given.model or config.model,
        "system": given.system,
        "tools": given.tools,
    }
    request: dict[str, Any] = source | {n: value for n, value in named.items() if value is not None}
    request["pinned_messages"] = tuple(given.known_count + at for at in options.pinned_messages)
    return CompactRequest(
        mode=arguments.mode,
        session_id=arguments.session_id or given.session_id,
        context_window=arguments.context_window,
        target_tokens=arguments.target_tokens,
        policy=arguments.policy or config.policy,
        settings=settings,
        instructions=arguments.instructions or "",
        summarizer=library_writer(wanted_writer(arguments.summarizer, config)),
        summary=arguments.summary,
        **request,
    )


async def _followed_by(result: CompactResult, given: Input, archive: Archive) -> str | None:
    """What names the list that goes out, where new messages alone can be put behind it.

    Not where the session's context is another: the list is an older branch, or holds a secret that
    the archive does not. New messages that were themselves put behind that context go on from it.
    """
    if given.known_count:
        return await to_thread.run_sync(history_hash, result.messages)
    return await name_if_current(result.messages, result.session_id, archive)


def _answer_of(result: CompactResult, notes: Sequence[str], *, wrote: bool) -> CompactAnswer:
    """The answer to a result, without its message list."""
    uri = f"transcript://{result.session_id}"
    receipt = result.receipt
    # What the receipt says beyond the fields that the answer has anyway.
    rest = {key: value for key, value in receipt.items() if key not in CompactAnswer.model_fields}
    answer = CompactAnswer(
        session_id=result.session_id,
        format=result.format,
        status=result.status,
        changed=result.changed,
        fits=result.fits,
        tokens=result.tokens,
        layers=list(result.layers),
        boundary=result.boundary,
        restored=list(result.restored),
        irreducible=irreducible_lines(result),
        warnings=[*notes, *result.warnings],
        message_count=len(result.messages),
        summary=result.summary,
        written_by=written_by(receipt),
        receipt=rest or None,
        context_pointer=f"{uri}/context" if wrote and result.changed else None,
    )
    if wrote and (result.changed or result.prepared):
        answer.receipt_pointer = f"{uri}/receipts"
    if (prepared := result.prepared) is not None:
        answer.prepared = PreparedFigures(
            prepared_id=prepared.prepared_id,
            message_count=prepared.message_count,
            prefix_hash=prepared.prefix_hash,
            expires=iso_time(prepared.expires_seconds),
        )
    return answer


def _shorter_reply(result: CompactResult, splices: Sequence[Splice]) -> Reply:
    """What to answer a caller with that leaves it open: edits where they hold fewer messages."""
    inserted = sum(len(splice.insert) for splice in splices)
    return "edits" if inserted < len(result.messages) and splices else "messages"


async def _reply_to_model(
    answer: CompactAnswer, result: CompactResult, archive: Archive
) -> CallToolResult:
    """For a model that named a file: the summary first, and what it cannot do with it."""
    if result.summary_prompt is not None or result.prepared is not None:
        return await _reply(answer, result, (), "receipt", archive)
    # The receipt has the rest, whole; here the summary needs the room.
    answer.receipt, answer.boundary, answer.layers = None, None, []
    if result.status == "planned":
        answer.next_step = PLANNED
    elif result.changed and answer.resume_path is None:
        answer.next_step = UNCHANGED_HOST
    return structured(answer, lead="summary")


async def _reply(
    answer: CompactAnswer,
    result: CompactResult,
    splices: Sequence[Splice],
    reply: Reply,
    archive: Archive,
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
            for one in splices
        ]
        answer.next_step = APPLY
    if answer.next_step and result.recognised and result.changed and not result.layers:
        answer.next_step = ADOPTED.format(result.recognised) + answer.next_step
    return structured(answer, beside=beside)
