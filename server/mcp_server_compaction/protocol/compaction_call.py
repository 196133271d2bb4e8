"""From the arguments of `compact_messages` to the library's request, and from its result back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from context_compaction import (
    SETTING_NAMES,
    Archive,
    CompactionError,
    CompactRequest,
    CompactResult,
    CurrentContext,
    JsonObject,
    Messages,
    NotFoundError,
    Roots,
    SettingsError,
    current_context,
    history_hash,
    name_if_current,
)

from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.session_places import CURRENT, current_transcript
from mcp_server_compaction.protocol.arguments import parse_arguments, unknown_name
from mcp_server_compaction.protocol.schemas import (
    CompactAnswer,
    CompactArguments,
    CompactOptions,
    PreparedFigures,
)
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.protocol.writers import library_writer, wanted_writer

if TYPE_CHECKING:
    from mcp_server_compaction.hosts.resume import Resumable


@dataclass(frozen=True, slots=True)
class Input:
    """The conversation of one call.

    Attributes:
        payload: Its messages.
        format: Their format, where the source says it.
        session_id: The session, where the source names one.
        model: The model, where the source names one.
        system: The system prompt, where the source holds it.
        tools: The tool definitions, where the source holds them.
        folder: The working folder of the conversation, which relative paths start from.
        known_count: How many of the messages the archive supplied, before those of the call ...
        known_name: ... and what names these.
        notes: What the caller should know of the source.
    """

    payload: Sequence[JsonObject]
    format: str | None = None
    session_id: str | None = None
    model: str | None = None
    system: Any = None
    tools: Any = None
    folder: str | None = None
    known_count: int = 0
    known_name: str | None = None
    notes: tuple[str, ...] = ()


async def input_of(
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
    if arguments.new_messages is None:
        return Input(arguments.messages or [])
    grown = await _grown(archive, arguments.session_id or "", arguments.new_messages)
    if options.context_hash not in (None, grown.known_name):
        raise SettingsError(
            f"new_messages belong behind the list that context_hash names, {options.context_hash}, "
            f"but the context of session {grown.session_id} is another by now. Hand in the whole "
            "list as messages."
        )
    return grown


async def input_of_file(data: bytes, name: str) -> Input:
    """The conversation in a file's bytes.

    Raises:
        CompactionError: It holds no conversation.
    """
    from context_compaction import read_conversation

    found = await to_thread.run_sync(partial(read_conversation, data, name=name))
    return Input(
        found.payload,
        format=found.format,
        session_id=found.session_id,
        model=found.model,
        system=found.system,
        tools=found.tools,
        folder=found.cwd,
        notes=found.notes,
    )


async def _grown(archive: Archive, session_id: str, new: Sequence[JsonObject]) -> Input:
    try:
        context = await current_context(session_id, archive)
    except NotFoundError:
        note = f"Session {session_id} was not known: it begins with these messages."
        return Input(new, session_id=session_id, notes=(note,))
    return Input(
        [*context.messages, *new],
        format=await to_thread.run_sync(_format_of, context, new),
        session_id=session_id,
        known_count=len(context.messages),
        known_name=context.name,
    )


def _format_of(context: CurrentContext, new: Sequence[JsonObject]) -> str:
    """The format of `context` and what follows it.

    Plain strings by the user and the assistant are the same in several formats: which one it is may
    only be told by the first call of a tool, long after the session began.
    """
    from context_compaction import formats

    if formats.goes_on(new, context.format):
        return context.format
    try:
        return formats.detect([*context.messages, *new])
    except CompactionError:
        return context.format  # whose own error says what is wrong


async def followed_by(result: CompactResult, given: Input, archive: Archive) -> str | None:
    """What names the list that goes out, where new messages alone can be put behind it.

    Not where the session's context is another: the list is an older branch, or holds a secret that
    the archive does not. New messages that were themselves put behind that context go on from it.
    """
    if given.known_count:
        return await to_thread.run_sync(history_hash, result.messages)
    return await name_if_current(result.messages, result.session_id, archive)


def compact_request_of(
    arguments: CompactArguments,
    options: CompactOptions,
    settings: Mapping[str, Any],
    given: Input,
    config: Config,
) -> CompactRequest:
    """What to ask the library for."""
    return CompactRequest(
        mode=arguments.mode,
        format=options.format or given.format,
        session_id=arguments.session_id or given.session_id,
        parent_session_id=options.parent_session_id,
        model=options.model or given.model or config.model,
        context_window=arguments.context_window,
        max_output_tokens=options.max_output_tokens,
        target_tokens=arguments.target_tokens,
        overhead_tokens=options.overhead_tokens,
        system=given.system if options.system is None else options.system,
        tools=given.tools if options.tools is None else options.tools,
        usage=options.usage,
        usage_message_index=options.usage_message_index,
        policy=arguments.policy or config.policy,
        settings=settings,
        pinned=tuple(options.pinned),
        pinned_messages=tuple(given.known_count + at for at in options.pinned_messages),
        snip_messages=tuple(options.snip_messages),
        unpin=tuple(options.unpin),
        instructions=arguments.instructions or "",
        summarizer=library_writer(wanted_writer(arguments.summarizer, config)),
        summary=arguments.summary,
        continuation=options.continuation,
        idle_seconds=options.idle_seconds,
        prepare=options.prepare,
        apply=options.apply,
    )


def converted(
    given: Input, request: CompactRequest, to_format: str
) -> tuple[Input, CompactRequest]:
    """The conversation in another format, archived as a session of its own.

    Raises:
        CompactionError: The messages cannot be read, or not be written in that format.
    """
    from context_compaction import convert, formats, split_system

    parsed: Messages = formats.parse(given.payload, format=given.format)
    system = given.system
    if formats.FORMATS[to_format].system_prompt == "beside":
        in_list, parsed = split_system(parsed)
        system = "\n\n".join(text for text in (system, in_list) if text) or None
    messages = convert(parsed, to=to_format, origin=given.format)
    payload = formats.render(messages, format=to_format)
    session_id = f"{request.session_id}.{to_format}" if request.session_id else None
    return (
        replace(given, payload=payload, format=to_format, system=system),
        replace(request, format=to_format, session_id=session_id, system=system),
    )


async def resumable_of(
    result: CompactResult,
    host: str,
    given: Input,
    archive: Archive,
    *,
    within: Roots | None = None,
) -> "Resumable":
    """A session that `host` goes on with, made of a result.

    Args:
        result: Of the conversation, in the format of the host.
        host: Which host.
        given: What was compacted.
        archive: Where it is archived.
        within: The folders that may be written to; None for any.

    Raises:
        CompactionError: It cannot be written.
    """
    from mcp_server_compaction.hosts.resume import write_resumable  # the writers of all hosts

    write = partial(
        write_resumable,
        host,
        result.messages,
        origin=result.session_id,
        tokens=result.tokens.after,
        places=this_user(),
        title=(await archive.session_info(result.session_id)).title,
        model=given.model,
        cwd=given.folder,
        within=within,
    )
    return await to_thread.run_sync(write)


def split_options(given: Mapping[str, Any]) -> tuple[CompactOptions, dict[str, Any]]:
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


def answer_of(result: CompactResult, notes: Sequence[str], *, wrote: bool) -> CompactAnswer:
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


def written_by(receipt: JsonObject) -> str | None:
    """Who wrote the summary, with the model's name where one did; None without a summary."""
    writer: str | None = receipt.get("writer")
    model, memory = receipt.get("model"), receipt.get("memory_used")
    if memory:
        return f"{writer} ({memory['writer']})"
    return f"{writer} ({model['name']})" if model and model["writer"] == writer else writer


def irreducible_lines(result: CompactResult) -> list[str]:
    """What could not be made smaller, a line each."""
    return [
        f"{piece.description}: {piece.tokens} tokens"
        + (f" (message {piece.index})" if piece.index is not None else "")
        for piece in result.irreducible
    ]
