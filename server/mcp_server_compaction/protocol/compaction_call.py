"""A conversation to be compacted: read from a file, converted, and written as a session again.

The tool and the command line share it; it is loaded by the first of their calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anyio import to_thread
from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    JsonObject,
    Roots,
    SettingsError,
    Text,
    convert,
    formats,
    read_conversation,
    split_system,
)

from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.resume import Resumable, write_resumable


@dataclass(frozen=True, slots=True)
class Input:
    """The conversation of one call.

    Attributes:
        payload: Its messages.
        format: Their format, where the source says it.
        session_id: The session, where the source names one.
        model: The model, where the source names one.
        provider: The provider of the model, where the source names one.
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
    provider: str | None = None


async def input_of_file(data: bytes, name: str) -> Input:
    """The conversation in a file's bytes.

    Raises:
        CompactionError: It holds no conversation.
    """
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
        provider=found.provider,
    )


def converted(
    given: Input, request: CompactRequest, to_format: str
) -> tuple[Input, CompactRequest]:
    """The conversation in another format, archived as a session of its own.

    Raises:
        CompactionError: The messages cannot be read, or not be written in that format.
    """
    parsed = formats.parse(given.payload, format=given.format)
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
) -> Resumable:
    """A session that `host` goes on with, made of a result.

    Args:
        result: Of the conversation, in the format of the host.
        host: Which host.
        given: What was compacted.
        archive: Where it is archived.
        within: The folders that may be written to; None for any.

    Raises:
        CompactionError: It cannot be written, or the host removed all words of the session.
    """
    info = await archive.session_info(result.session_id)
    messages = formats.parse(given.payload, format=given.format)
    if all(isinstance(b, Text) and not b.text.strip() for m in messages for b in m.blocks):
        raise SettingsError(
            f"The messages of session {info.session_id} are empty: its host removed their words. "
            "Read the earlier ones in the archive, for example with: "
            f"mcp-server-compaction read transcript://{info.session_id}/messages/0-9"
        )
    write = partial(
        write_resumable,
        host,
        result.messages,
        origin=result.session_id,
        tokens=result.tokens.after,
        folders=this_user(),
        title=info.title,
        model=given.model,
        provider=given.provider,
        cwd=given.folder,
        within=within,
    )
    return await to_thread.run_sync(write)


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
