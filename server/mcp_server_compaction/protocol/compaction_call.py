"""Input and output of a compaction, shared by the tool and the command line.

Reads a conversation from a file, converts it to another format, chooses the writer of the summary,
and writes the compacted conversation as a session of a host.

A conversation is sent to a provider or another server only if the configuration names a model. A
call can choose between the models that it names, but neither an address nor a key: the caller may
be a model that reads text by strangers, and that text could ask for another address.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    JsonObject,
    NewSession,
    Roots,
    SettingsError,
    SummarizerName,
    Text,
    compact,
    convert,
    counter_for,
    formats,
    history_hash,
    read_conversation,
    split_system,
)

from mcp_server_compaction.config import SUMMARIZER_VARIABLE, Config, WriterName
from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.session_files import Resumable, write_resumable

if TYPE_CHECKING:
    from context_compaction import SummaryModel

    from mcp_server_compaction.protocol.tools.compact_messages import SamplingModel

_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Input:
    """The conversation of a call.

    Attributes:
        payload: The messages.
        format: Format of the messages. None to detect it.
        session_id: Session that the source names.
        model: Model that the source names.
        provider: Provider of the model.
        system: System prompt that the source contains.
        tools: Tool definitions that the source contains.
        cwd: Working folder of the conversation, the start of relative paths.
        context_count: Number of leading messages that come from the archive.
        context_hash: Hash of the messages that come from the archive.
        notes: Remarks on the source for the caller.
    """

    payload: Sequence[JsonObject]
    format: str | None = None
    session_id: str | None = None
    model: str | None = None
    system: Any = None
    tools: Any = None
    cwd: str | None = None
    context_count: int = 0
    context_hash: str | None = None
    notes: tuple[str, ...] = ()
    provider: str | None = None

    def count_tokens(self, model: str | None) -> tuple[int, int]:
        """Return the tokens of the system prompt and the tools, and those of the messages."""
        count = counter_for(model)
        overhead = count.overhead(system=self.system, tools=self.tools)
        return overhead, count.messages(formats.parse(self.payload, format=self.format))

    def request(self, config: Config, model: str | None = None, **fields: Any) -> CompactRequest:
        """Return a request for this conversation.

        Args:
            config: Configuration of the process, which names a model if nothing else does.
            model: Model that the call names.
            fields: Other fields of the request.
        """
        known = {name: getattr(self, name) for name in ("session_id", "system", "tools")}
        return CompactRequest(
            format=self.format, model=model or self.model or config.model, **(known | fields)
        )


async def input_of_file(data: bytes, name: str) -> Input:
    """Return the conversation in a file's bytes.

    Raises:
        CompactionError: The file contains no conversation.
    """
    conversation = await to_thread.run_sync(partial(read_conversation, data, name=name))
    # Both classes name what they share alike.
    names = Input.__dataclass_fields__.keys() & conversation.__dataclass_fields__.keys()
    return Input(**{name: getattr(conversation, name) for name in names})


async def archived_input(archive: Archive, session_id: str) -> Input:
    """Return the current context of an archived session, with the model that was last named.

    Raises:
        NotFoundError: There is no such session.
    """
    format, messages = await archive.context(session_id)
    receipts = await archive.receipts(session_id, after=-1)
    model: str | None = receipts[-1].get("counted_for") if receipts else None
    # Anthropic and pi write the model into each answer.
    answers = (m["model"] for m in reversed(messages) if isinstance(m.get("model"), str))
    return Input(
        messages,
        format=format,
        session_id=session_id,
        model=model or next(answers, None),
        context_count=len(messages),
        context_hash=await to_thread.run_sync(history_hash, messages),
    )


async def compacted(
    source: Input,
    request: CompactRequest,
    archive: Archive,
    config: Config,
    to_format: str | None,
    **options: Any,
) -> tuple[Input, CompactResult]:
    """Compact a conversation in another format, as a separate session of the archive.

    Args:
        source: The conversation.
        request: The request for it.
        archive: The archive.
        config: Configuration of the process, which names the readable folders.
        to_format: Name of the format. None for the format of the conversation.
        options: Other arguments of `compact`.

    Returns:
        The conversation that was compacted, and the result. An undone list is converted afterwards,
        because only the session in its own format can be undone.

    Raises:
        CompactionError: The messages cannot be read, or cannot be written in that format; or the
            request names a range of them.
    """
    other = None if to_format == source.format else to_format
    if other and request.mode != "undo":
        source, request = await to_thread.run_sync(_converted, source, request, other)
    reader = config.roots.reader(source.cwd)
    result = await compact(source.payload, request, archive=archive, read_file=reader, **options)
    if other and request.mode == "undo":
        undone = replace(source, payload=result.messages, format=result.format)
        source, _ = await to_thread.run_sync(_converted, undone, request, other)
        result = replace(result, messages=[*source.payload])
    return source, result


def _converted(
    source: Input, request: CompactRequest, to_format: str
) -> tuple[Input, CompactRequest]:
    if request.range is not None:
        raise SettingsError(
            f"range counts the messages in format {source.format}, but a conversion to {to_format} "
            "changes their numbers. Summarize the range in a separate call."
        )
    parsed = formats.parse(source.payload, format=source.format)
    system = source.system
    if formats.FORMATS[to_format].system_prompt == "beside":
        in_list, parsed = split_system(parsed)
        system = "\n\n".join(text for text in (system, in_list) if text) or None
    messages = convert(parsed, to=to_format, origin=source.format)
    payload = formats.render(messages, format=to_format)
    session_id = f"{request.session_id}.{to_format}" if request.session_id else None
    return (
        replace(source, payload=payload, format=to_format, system=system),
        replace(request, format=to_format, session_id=session_id, system=system),
    )


async def resumable_of(
    result: CompactResult,
    host: str,
    source: Input,
    archive: Archive,
    *,
    within: Roots | None = None,
) -> Resumable:
    """Write the result as a session that `host` can continue.

    Args:
        result: The result, in the format of the host.
        host: Name of the host.
        source: The conversation that was compacted.
        archive: Archive of the conversation.
        within: Folders that may be written to. None allows any folder.

    Raises:
        CompactionError: The session cannot be written, or the host removed all texts from it.
    """
    info = await archive.session_info(result.session_id)
    messages = formats.parse(source.payload, format=source.format)
    if all(isinstance(b, Text) and not b.text.strip() for m in messages for b in m.blocks):
        raise SettingsError(
            f"The messages of session {info.session_id} are empty, because the host removed their "
            "texts. Read the earlier messages in the archive, for example with: "
            f"mcp-server-compaction read transcript://{info.session_id}/messages/0-9"
        )
    session = NewSession(
        session_id="",
        origin=result.session_id,
        cwd=source.cwd or "",
        seconds=time.time(),
        tokens=result.tokens.after,
        title=f"{info.title[:_TITLE_CHARS]} (compacted)".lstrip(),
        model=source.model,
        provider=source.provider,
    )
    return await to_thread.run_sync(
        write_resumable, host, result.messages, session, this_user(), within
    )


def what_was_undone(result: CompactResult) -> str:
    """Return a sentence that says what the mode "undo" changed."""
    if pointer := result.receipt.get("restore"):
        return f"{pointer} is back in the list in full."
    return f"Compaction {result.receipt['undone']} was taken back, and everything since follows."


def written_by(receipt: JsonObject) -> str | None:
    """Return the writer of the summary, with the name of its model. None without a summary."""
    writer: str | None = receipt.get("writer")
    model, memory = receipt.get("model"), receipt.get("memory_used")
    if memory:
        return f"{writer} ({memory['writer']})"
    return f"{writer} ({model['name']})" if model and model["writer"] == writer else writer


def irreducible_lines(result: CompactResult) -> list[str]:
    """Return one line for each piece that cannot be made smaller."""
    return [
        f"{piece.description}: {piece.tokens} tokens"
        + (f" (message {piece.index})" if piece.index is not None else "")
        for piece in result.irreducible
    ]


def effective_writer(requested: WriterName, config: Config) -> WriterName:
    """Return the writer that the call names, or else the writer of the configuration."""
    return config.summaries.writer if requested == "auto" else requested


def library_writer(writer: WriterName) -> SummarizerName:
    """Return the library's name of the writer. A model is passed separately, as "auto"."""
    return writer if writer == "extractive" or writer == "host" else "auto"


def model_for(
    writer: WriterName,
    config: Config,
    sampling: "SamplingModel | None",
    name: str | None = None,
    *,
    shares_cache: bool = False,
) -> "SummaryModel | None":
    """Return the model that writes the summary. None for extracts and for the host's own text.

    Args:
        writer: The writer that the call or the configuration names.
        config: Configuration of the process.
        sampling: Model of the client, if the client offers it.
        name: The model that the call names. None for the first one of the configuration.
        shares_cache: Whether the messages are those of the caller's requests to its model.

    Raises:
        SettingsError: The named writer or model is not available.
    """
    summaries = config.summaries
    if writer == "model" or (writer == "auto" and (name or summaries.models)):
        models = [m for m in summaries.models if name in (None, m, m.partition(":")[2])]
        if not models:
            problem = "The summary writer 'model' needs a model"
            raise SettingsError(
                f"{f'Unknown summarizer_model {name!r}' if name else problem}. This server allows: "
                f"{', '.join(summaries.models) or 'none'}. Add --summarizer-model where the server "
                "is started, or use summarizer='auto'."
            )
        from context_compaction import summary_model

        return summary_model(
            models[0],
            url=summaries.url,
            key_env=summaries.key_env,
            timeout_seconds=summaries.timeout_seconds,
            context_window=summaries.context_window,
            shares_cache=shares_cache,
        )
    if writer == "sampling" and sampling is None:
        raise SettingsError(
            "The summary writer 'sampling' needs a client that offers its model, and this client "
            "does not. Use summarizer='auto'."
        )
    return sampling if writer in ("sampling", "auto") else None


def writer_lines(config: Config) -> list[str]:
    """Return one line for each writer, for `doctor`: whether it is available."""
    summaries = config.summaries
    model = "model: not available, --summarizer-model is not set"
    if summaries.models:
        model = (
            f"model: {', '.join(summaries.models)} at {summaries.url or 'the provider'}, key from "
            f"{summaries.key_env or 'nowhere'}, timeout {summaries.timeout_seconds:g} seconds "
            "(not tested)"
        )
    default: str = summaries.writer
    if default == "auto":
        default = "auto: the model, else the client's model if it offers one, else extractive"
    return [
        "extractive: always available (no model needed)",
        "host: available; the caller's model writes, see summarizer='host'",
        model,
        "sampling: available if the client offers its model; no client is connected here",
        f"Default: {default} (change it with {SUMMARIZER_VARIABLE})",
    ]
