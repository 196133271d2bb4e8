"""Tool `compact_messages`: take a conversation and return one that fits.

The model that the MCP client offers can write the summary: sampling, up to protocol version
2025-11-25. The specification has deprecated it. Since 2026-07-28 a client that refuses a request
ends the whole call. A summary must never make a compaction fail, so such clients are not asked.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import mcp_types as types
from anyio import to_thread
from context_compaction import (
    SETTING_NAMES,
    Archive,
    CompactionError,
    CompactRequest,
    CompactResult,
    JsonObject,
    ModelAnswer,
    ModelPrompt,
    NotFoundError,
    SettingsError,
    Splice,
    SummaryError,
    TellChars,
    answer_tokens,
    estimated_usage,
    formats,
    history_hash,
    make_blob,
    make_splices,
    profile_for,
    window_of,
    with_dropped_names,
)
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import CallToolResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.session_files import CURRENT, RESUME_FORMATS, current_transcript
from mcp_server_compaction.protocol.compaction_call import (
    Input,
    archived_input,
    compacted,
    effective_writer,
    input_of_file,
    irreducible_lines,
    library_writer,
    model_for,
    resumable_of,
    what_was_undone,
    written_by,
)
from mcp_server_compaction.protocol.deps import Deps, RequestContext
from mcp_server_compaction.protocol.resources import texts
from mcp_server_compaction.protocol.schemas import (
    CompactArguments,
    CompactOptions,
    CompactReply,
    PreparedReply,
    ReplyKind,
    parse_arguments,
    unknown_name,
)
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.protocol.telemetry import stage_clock
from mcp_server_compaction.protocol.tools import structured
from mcp_server_compaction.reading.text_source import find_session

# Texts of `next_step` and `warnings`.
_NOTES: Mapping[str, str] = texts()["compact_messages"]

# Options that are fields of the request with the same name.
_REQUEST_OPTIONS = frozenset(CompactRequest.__dataclass_fields__) & set(CompactOptions.model_fields)

# Fields of the result that the reply has as they are.
_SAME_FIELDS = (
    "session_id", "format", "status", "changed", "fits", "tokens", "layers", "boundary", "restored",
    "summary", "draft",
)  # fmt: skip


async def compact_messages(context: RequestContext, arguments: CompactArguments) -> CallToolResult:
    """Compact a conversation and return the kind of reply that the call asks for."""
    deps = context.lifespan_context
    archive = await deps.archive()
    options, source, request = await _read_call(arguments, archive, deps.config)
    source, request = await _with_known_window(source, request, options, deps, archive)
    end_stage = stage_clock()

    async def report_progress(fraction: float, step: str) -> None:
        end_stage(fraction)
        await context.session.report_progress(fraction, 1.0, step)

    sampling = sampling_model(context, deps.config.summaries.timeout_seconds)
    writer = effective_writer(arguments.summarizer, deps.config)
    # The requests that belong to a session file are not known exactly, so no cache has them.
    is_request = arguments.messages is not None or arguments.new_messages is not None
    model = model_for(
        writer, deps.config, sampling, options.summarizer_model, shares_cache=is_request
    )
    if arguments.mode == "plan" and arguments.summarizer != "model":
        model = None  # A plan is free, unless the call asks for the model's text.
    is_known = (caller.get().tenant, request.session_id) in deps.turns.recent_windows
    turn = deps.turns.of(context.request, is_known=is_known)
    async with turn if model is None else nullcontext():
        end_stage(0.0)
        source, result = await compacted(
            source,
            request,
            archive,
            deps.config,
            RESUME_FORMATS.get(options.resume or ""),
            model=model,
            report_progress=report_progress,
        )
    deps.turns.remember(result.session_id, result.receipt.get("context_window"))
    is_stored = arguments.mode != "plan"
    if is_stored:
        await deps.changes.updated(f"transcript://{result.session_id}")
        await deps.changes.listed(context.session, result.session_id)
    if arguments.reply == "receipt":
        result = await with_dropped_names(result, archive)
    reply = _reply_without_list(result, source.notes, is_stored=is_stored)
    if options.resume is not None and is_stored:
        if result.changed or result.status == "undone":
            resumable = await resumable_of(
                result, options.resume, source, archive, within=deps.config.roots
            )
            reply.resume_path = str(resumable.path)
            reply.next_step = _NOTES["resumed"].format(resumable.command)
        elif result.status == "unchanged":
            reply.next_step = _NOTES["not_resumed"]
    if arguments.transcript_path is not None and arguments.reply is None:
        return await _model_reply(reply, result, archive)
    splices = make_splices(source.payload, result.messages) if result.changed else ()
    kind = arguments.reply or _default_kind(arguments, result, splices)
    if is_stored and (kind == "edits" or arguments.new_messages is not None):
        reply.context_hash = await _next_context_hash(result, source, archive)
    return await _program_reply(reply, result, splices, kind, archive)


async def _read_call(
    arguments: CompactArguments, archive: Archive, config: Config
) -> tuple[CompactOptions, Input, CompactRequest]:
    """Return the options, the conversation and the library's request of a call.

    Raises:
        CompactionError: An option is wrong, or the conversation cannot be read.
    """
    options, settings = _split_options(arguments.options or {})
    if options.resume is not None and arguments.transcript_path is None:
        raise SettingsError(
            "options.resume needs transcript_path: a session file of a host, or 'current'."
        )
    source = await _read_source(arguments, options, archive, config)
    return options, source, _request(arguments, options, settings, source, config)


def _split_options(values: Mapping[str, Any]) -> tuple[CompactOptions, dict[str, Any]]:
    """Return the options of a call, and separately the policy's constants that it changes.

    Raises:
        SettingsError: A name is unknown, or an option has a wrong value.
    """
    own_names = list(CompactOptions.model_fields)
    for name in values:
        if name not in own_names and name not in SETTING_NAMES:
            raise SettingsError(
                f"options: {unknown_name('option', name, [*own_names, *SETTING_NAMES])} "
                "Read options://compact_messages for all options."
            )
    own = {name: value for name, value in values.items() if name in own_names}
    settings = {name: value for name, value in values.items() if name not in own_names}
    return parse_arguments(CompactOptions, own), settings


async def _read_source(
    arguments: CompactArguments, options: CompactOptions, archive: Archive, config: Config
) -> Input:
    """Return the conversation that the arguments contain or refer to.

    Raises:
        CompactionError: The file may not be read or contains no conversation, or `context_hash` is
            not the session's context. The caller may then lack a reply, so new messages cannot be
            appended safely.
    """
    if arguments.transcript_path is not None:
        path = Path(arguments.transcript_path)
        # Without readable folders, as over HTTP, the caller must not learn which files exist.
        if arguments.transcript_path == CURRENT and config.roots.folders:
            path = await to_thread.run_sync(current_transcript, this_user())
        return await input_of_file(await config.roots.read_bytes(path), path.name)
    if arguments.messages is not None:
        return Input(arguments.messages)
    source = await _extended_session(archive, arguments.session_id or "", arguments.new_messages)
    if options.context_hash not in (None, source.context_hash):
        raise SettingsError(
            f"context_hash {options.context_hash} is out of date: the context of session "
            f"{source.session_id} has changed. Pass the whole conversation as messages."
        )
    return source


async def _extended_session(
    archive: Archive, session_id: str, new_messages: Sequence[JsonObject] | None
) -> Input:
    """Return the session's context, followed by the new messages if there are any."""
    new = new_messages or ()
    try:
        known = await archived_input(archive, await find_session(archive, session_id))
    except NotFoundError:
        if new_messages is None:
            raise
        return Input(new, session_id=session_id, notes=(_NOTES["new_session"].format(session_id),))
    format_name = await to_thread.run_sync(_extended_format, known, new)
    return replace(known, payload=[*known.payload, *new], format=format_name)


def _extended_format(known: Input, new: Sequence[JsonObject]) -> str | None:
    """Return the format of the context and the new messages together.

    Plain texts of the user and the assistant fit several formats. The first tool call, which may
    come much later, decides between them.
    """
    if known.format and formats.fits_format(new, known.format):
        return known.format
    try:
        return formats.detect([*known.payload, *new])
    except CompactionError:
        return known.format  # Parsing in this format then reports what is wrong.


async def _with_known_window(
    source: Input, request: CompactRequest, options: CompactOptions, deps: Deps, archive: Archive
) -> tuple[Input, CompactRequest]:
    """Use the window of the session's last call if this call names neither window nor model.

    A model that compacts the session of its own host cannot know the host's window.
    """
    session_id = request.session_id
    if request.context_window or request.target_tokens or options.model or session_id is None:
        return source, request
    window = deps.turns.recent_windows.get((caller.get().tenant, session_id))
    if window is None:
        try:
            receipts = await archive.receipts(session_id, after=-1)
        except (
            CompactionError
        ):  # The session is missing or its ID is invalid: `compact` reports it.
            return source, request
        window = receipts[-1].get("context_window") if receipts else None
    if window in (None, window_of(request)):
        return source, request
    notes = (*source.notes, _NOTES["same_window"].format(window, session_id))
    return replace(source, notes=notes), replace(request, context_window=window)


def _request(
    arguments: CompactArguments,
    options: CompactOptions,
    settings: Mapping[str, Any],
    source: Input,
    config: Config,
) -> CompactRequest:
    fields: dict[str, Any] = {
        name: value
        for name in options.model_fields_set & _REQUEST_OPTIONS
        if (value := getattr(options, name)) is not None
    }
    fields["pinned_messages"] = tuple(source.context_count + n for n in options.pinned_messages)
    request = source.request(
        config,
        options.model,
        mode=arguments.mode,
        context_window=arguments.context_window,
        target_tokens=arguments.target_tokens,
        policy=arguments.policy or config.policy,
        settings=settings,
        instructions=arguments.instructions or "",
        summarizer=library_writer(effective_writer(arguments.summarizer, config)),
        summary=arguments.summary,
        session_id=arguments.session_id or source.session_id,
    )
    return replace(request, **fields)


async def _next_context_hash(result: CompactResult, source: Input, archive: Archive) -> str | None:
    """Return the hash of the returned list if later new messages can be appended to it.

    None if the session's context is another list: the returned list is an older branch, or contains
    a secret that the archive does not. New messages of this call were already appended to the
    session's context, so the result continues that context.
    """
    name = await to_thread.run_sync(history_hash, result.messages)
    if source.context_count:
        return name
    try:
        if archive.redaction == "on":
            # The archive hashes messages before redaction, so the stored list is hashed again.
            _, messages = await archive.context(result.session_id)
            current = await to_thread.run_sync(history_hash, messages)
        else:
            current = await archive.context_name(result.session_id)
    except NotFoundError:
        return None
    return name if name == current else None


def _reply_without_list(
    result: CompactResult, notes: Sequence[str], *, is_stored: bool
) -> CompactReply:
    uri = f"transcript://{result.session_id}"
    receipt = {
        key: value for key, value in result.receipt.items() if key not in CompactReply.model_fields
    }
    reply = CompactReply(
        **{name: getattr(result, name) for name in _SAME_FIELDS},
        irreducible=irreducible_lines(result),
        warnings=[*notes, *result.warnings],
        message_count=len(result.messages),
        written_by=written_by(result.receipt),
        receipt=receipt or None,
        context_pointer=f"{uri}/context" if is_stored and result.changed else None,
    )
    if is_stored and (result.changed or result.prepared):
        reply.receipt_pointer = f"{uri}/receipts"
    if (prepared := result.prepared) is not None:
        reply.prepared = PreparedReply(
            prepared_id=prepared.prepared_id,
            message_count=prepared.message_count,
            prefix_hash=prepared.prefix_hash,
            expires=iso_time(prepared.expires_seconds),
        )
    return reply


def _default_kind(
    arguments: CompactArguments, result: CompactResult, splices: Sequence[Splice]
) -> ReplyKind:
    """Return "edits" if the caller has the list and edits contain fewer messages than the list."""
    if arguments.messages is None and arguments.new_messages is None:
        return "messages"
    inserted_count = sum(len(splice.insert) for splice in splices)
    return "edits" if splices and inserted_count < len(result.messages) else "messages"


async def _model_reply(
    reply: CompactReply, result: CompactResult, archive: Archive
) -> CallToolResult:
    """Return the reply for a model that named a file: the summary first, and no list."""
    if result.summary_prompt is not None or result.prepared is not None:
        return await _program_reply(reply, result, (), "receipt", archive)
    # The summary needs the space. The archived receipt contains these fields.
    reply.receipt, reply.boundary, reply.layers = None, None, []
    if result.status == "planned":
        reply.next_step = _NOTES["planned"]
    elif result.changed and reply.resume_path is None:
        reply.next_step = _NOTES["unchanged_host"]
    return structured(reply, lead="summary")


async def _program_reply(
    reply: CompactReply,
    result: CompactResult,
    splices: Sequence[Splice],
    kind: ReplyKind,
    archive: Archive,
) -> CallToolResult:
    """Return the reply with the list, the edits or the prompt that a program needs."""
    lists: dict[str, Any] = {}
    if (prompt := result.summary_prompt) is not None:
        reply.next_step = _NOTES["write_summary"]
        if kind == "receipt":
            # The transcript is archived, so that the writer of the summary can read it in parts.
            blob = make_blob(prompt.user, tool_name="summary_request")
            await archive.commit(reply.session_id, blobs=[blob])
            text = f"Read the transcript with read_persisted_output {blob.output_id}"
            reply.summary_request = replace(prompt, user=text)
        else:
            lists["summary_request"] = asdict(prompt)
    elif result.status == "planned":
        reply.next_step = _NOTES["planned"]
    elif result.prepared is not None:
        reply.next_step = _NOTES["prepared"].format(result.prepared)
    elif result.changed and kind == "messages":
        lists["messages"] = result.messages
        reply.next_step = _NOTES["send"]
    elif result.changed and kind == "edits":
        # `asdict` would copy the messages.
        lists["edits"] = [
            {"start": at.start, "delete_count": at.delete_count, "insert": list(at.insert)}
            for at in splices
        ]
        reply.next_step = _NOTES["apply"]
    if result.status == "undone":
        undone = _NOTES["undone"].format(what_was_undone(result))
        reply.next_step = undone + (reply.next_step or "")
    elif reply.next_step and result.recognised and result.changed and not result.layers:
        reply.next_step = _NOTES["already_compacted"].format(result.recognised) + reply.next_step
    return structured(reply, lists=lists)


@dataclass(frozen=True, slots=True)
class SamplingModel:
    """The model of the client that makes a call.

    Attributes:
        session: Connection to the client.
        request_id: The call that the sampling requests belong to.
        timeout_seconds: Maximum time to wait, because a person may have to approve the request.
        writer: Name of the writer in receipts.
        model: Name of the model in receipts. Only the client knows the real name.
    """

    session: ServerSession
    request_id: str | int | None
    timeout_seconds: float
    writer: str = "sampling"
    model: str = "the client's model"

    @property
    def window_tokens(self) -> int:
        """The context window of an unknown model, in tokens."""
        return profile_for(None).context_window

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """See `SummaryModel.write`."""
        result = await self._request(prompt)
        text, failure = "", ""
        if isinstance(result.content, types.TextContent):
            text = result.content.text
            if result.stop_reason in {"toolUse", "refusal"}:
                failure = f"The client's model did not write ({result.stop_reason})"
        else:
            failure = "The client's model returned something other than text"
        await tell(len(text))
        usage = estimated_usage(prompt, text)  # because clients report no tokens
        return ModelAnswer(text, usage, result.stop_reason == "maxTokens", failure)

    async def _request(self, prompt: ModelPrompt) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text=prompt.user)
        request = types.CreateMessageRequest(
            params=types.CreateMessageRequestParams(
                messages=[types.SamplingMessage(role="user", content=content)],
                system_prompt=prompt.system,
                max_tokens=answer_tokens(prompt.max_tokens, self.window_tokens),
                include_context="none",
            )
        )
        metadata = ServerMessageMetadata(related_request_id=self.request_id)
        try:
            return await self.session.send_request(
                request, types.CreateMessageResult, metadata=metadata
            )
        except MCPError as error:
            reason = " ".join(str(error).split())[:200]
            raise SummaryError(f"The client did not let its model write: {reason}") from error
        except ValidationError as error:
            raise SummaryError("The client returned an invalid sampling result") from error


def sampling_model(context: RequestContext, timeout_seconds: float) -> SamplingModel | None:
    """Return the client's model. None if the client offers no model or a refusal ends the call."""
    session = context.session
    capabilities = session.client_capabilities
    if capabilities is None or capabilities.sampling is None or not session.can_send_request:
        return None
    if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    return SamplingModel(session, context.request_id, timeout_seconds)
