"""Content of the index: the text of a message, and the text of an output in parts.

The role and the tools of a message are found when it is appended, because the calls before a result
are known then, and are in the head of its record. The text is found when the message is indexed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_compaction.archive.records import (
    Blobs,
    StoredOutput,
    all_strings,
    block_texts,
    decode_text,
    info_of,
    is_encoded,
    parse_body,
    title_of,
)
from context_compaction.errors import ArchiveDamagedError, InvalidMessageError, NotFoundError
from context_compaction.formats import FORMATS
from context_compaction.messages import model
from context_compaction.messages.model import JsonObject
from context_compaction.messages.raw import chain_hash

# Of one row, so that a hit has a position and a long log is not one row. A tsvector of PostgreSQL
# has at most 16,383 positions and 1 MB.
PART_CHARS = 16_000
_OVERLAP_CHARS = (
    PART_CHARS // 16
)  # of the parts of a message, so that a phrase is found in one of them
# BM25 prefers very short texts, so a text counts as at least this many words. Measured: the MRR of
# LoCoMo rises from .45 to .48 with 30.
MIN_DOC_TERMS = 30

# Members that name a kind, repeat the content of a block, or are not readable.
_CALL_FIELDS = frozenset({"arguments", "partialJson"})  # A call's text has the arguments.
_NO_TEXT = _CALL_FIELDS | frozenset({
    "type", "role", "api", "provider", "model", "stopReason",
    "data", "signature", "thoughtSignature", "thinkingSignature", "textSignature",
    "encrypted_content", "redactedContent",
})  # fmt: skip
# Tool name of the output that stores the title which a user gave a session.
TITLE_TOOL = "session title"
# Tool name of the output that stores the host of a session and its working folder.
HOST_TOOL = "session host"
_OWN_TOOLS = (
    "compact_messages",
    "persist_large_output",
    "read_persisted_output",
    "search_transcript",
)


def is_own_tool(name: str) -> bool:
    """Whether `name` is a tool of this server; hosts put a prefix before the name."""
    own = next((tool for tool in _OWN_TOOLS if name.endswith(tool)), None)
    return own is not None and not name.removesuffix(own)[-1:].isalnum()


@dataclass(frozen=True, slots=True)
class StoredText:
    """The searchable text of a stored message.

    Attributes:
        text: The text.
        called_paths: Paths that each of its calls names, by call ID.
        answered_calls: IDs of the calls that its results answer.
        is_own: Whether it has only calls of this server's tools, or their results.
    """

    text: str
    called_paths: dict[str, tuple[str, ...]]
    answered_calls: tuple[str, ...]
    is_own: bool = False


def read_stored(raw: JsonObject, format: str, tools: Sequence[str] = ()) -> StoredText:
    """Return the searchable text of a stored message, in which hits count positions, and its paths.

    The text consists of text, readable thinking, names and arguments of calls, results, addresses,
    citations, and all strings of blocks of an unknown kind. It has no images and no encrypted
    content. For a message that its format cannot parse, it consists of all strings.

    Calls of this server's tools, their results and the thinking before them repeat what the archive
    already has. The text omits them if the message has other text.

    Args:
        raw: The message.
        format: Format of the message.
        tools: Names of the tools of its calls and results.
    """
    concerns_own = bool(tools) and all(map(is_own_tool, tools))
    try:
        message = FORMATS[format].parse_message(raw, 0)
    except (KeyError, InvalidMessageError):
        return StoredText("\n".join(all_strings(raw)), {}, ())
    texts: list[str] = []
    own: list[str] = []
    for block in message.blocks:
        parts = own if _is_own(block, concerns_own) else texts
        parts += filter(None, block_texts(block))
    calls, results = model.tool_calls(message), model.tool_results(message)
    if not own:
        names = (name for result in results for name in (result.call_id, result.name or ""))
        texts += _other_strings(raw, {*texts, *(call.call_id for call in calls), *names})
    return StoredText(
        "\n".join(texts or own),
        {call.call_id: tuple(_paths(call.arguments)) for call in calls},
        tuple(result.call_id for result in results),
        is_own=bool(own) and not texts,
    )


def _other_strings(value: Any, known: set[str]) -> Iterator[str]:
    """Yield strings of a message that its blocks do not have: citations, titles, annotations."""
    if model.is_object(value):
        for key, item in value.items():
            # In a damaged message, words can be in any field.
            has_words = isinstance(item, str) and " " in item and key not in _CALL_FIELDS
            if has_words or key not in _NO_TEXT:
                yield from _other_strings(item, known)
    elif model.is_list(value):
        for item in value:
            yield from _other_strings(item, known)
    elif isinstance(value, str) and value not in known and not is_encoded(value):
        yield value


def _is_own(block: model.Block, concerns_own: bool) -> bool:
    """Whether a block is a call of this server's tools, its result, or the thinking before it."""
    match block:
        case model.Thinking():
            return concerns_own
        case model.ToolCall():
            return is_own_tool(block.name)
        case model.ToolResult():
            return is_own_tool(block.name) if block.name else concerns_own
        case _:
            return False


def _paths(arguments: Any) -> Iterator[str]:
    """Yield arguments of a call that look like a path, or whose name says so."""
    if model.is_object(arguments):
        for name, value in arguments.items():
            if not isinstance(value, str) or len(value) > 1_000 or "\n" in value:
                continue
            has_path_name = any(word in name.lower() for word in ("path", "file"))
            if has_path_name or ("/" in value and " " not in value):
                yield value


def session_fields_of(tool: str | None, data: bytes) -> JsonObject:
    """Return the fields that an output sets for its session: a title, or host and folder."""
    if tool not in (TITLE_TOOL, HOST_TOOL):
        return {}
    text = decode_text(data) or ""
    host, _, folder = text.partition(" ")
    return {"title": title_of(text)} if tool == TITLE_TOOL else {"host": host, "folder": folder}


@dataclass(frozen=True, slots=True)
class IndexedPart:
    """Text of one row: a message, or a part of a long message or of an output.

    Attributes:
        text: The text.
        start_byte: Start of the part, in bytes for an output, in characters for a message.
        size_bytes: Length of the part in the unit of `start_byte`.
        start_char: Start of the part in characters.
        start_line: Number of the first line of the part, from 1.
        paths: Paths of the calls that the message or output answers.
        is_own: Whether it is a call of this server's tools, or its result.
    """

    text: str
    start_byte: int = 0
    size_bytes: int = 0
    start_char: int = 0
    start_line: int = 1
    paths: tuple[str, ...] = ()
    is_own: bool = False


def text_parts(
    text: str, measure: Callable[[str], int] = len, overlap_chars: int = 0
) -> Iterator[IndexedPart]:
    """Yield parts of a text of at most `PART_CHARS`, which end at a newline or space; at least one.

    Args:
        text: The text.
        measure: Returns the length of a text in the unit of `start_byte`.
        overlap_chars: Number of characters at the end of a part that the next part repeats.
    """
    start = start_byte = 0
    start_line = 1
    while True:
        stop = start + PART_CHARS
        if stop < len(text):
            stop = _cut(text, start, stop)
        yield IndexedPart(
            text[start:stop], start_byte, measure(text[start:stop]), start, start_line
        )
        if stop >= len(text):
            return
        repeats = 0 < overlap_chars < stop - start
        following = _cut(text, start, stop - overlap_chars) if repeats else stop
        start_byte += measure(text[start:following])
        start_line += text.count("\n", start, following)
        start = following


def _cut(text: str, start: int, stop: int) -> int:
    """Return the index after the last newline, or else space, before `stop`, or else `stop`."""
    return text.rfind("\n", start, stop) + 1 or text.rfind(" ", start, stop) + 1 or stop


def parts_of_records(
    records: Iterable[tuple[JsonObject, str]], blobs: Blobs
) -> Iterator[list[IndexedPart]]:
    """Yield the rows of each record; only messages and outputs have rows.

    A result has the paths of its call if both were appended together, as hosts do.

    Args:
        records: Head of each record, and the JSON text of its body.
        blobs: Large contents that bodies refer to.
    """
    paths: dict[str, tuple[str, ...]] = {}
    for head, body in records:
        try:
            if head["kind"] == "message":
                stored = read_stored(parse_body(body, blobs.get), head["format"], head["tools"])
                paths |= stored.called_paths
                called = [path for call in stored.answered_calls for path in paths.get(call, ())]
                parts = text_parts(stored.text, overlap_chars=_OVERLAP_CHARS)
                is_own = stored.is_own
            elif head["kind"] == "output":
                data = StoredOutput(
                    info_of(head, ""), parse_body(body, blobs.get), blobs
                ).read_all()
                called = [*paths.get(head["call"], ())]
                text = decode_text(data) or ""
                parts = text_parts(text, lambda part: len(part.encode("utf-8", "surrogatepass")))
                is_own = is_own_tool(head["tool"] or "")
            else:
                called, parts, is_own = [], iter(()), False
            yield [replace(part, paths=tuple(called), is_own=is_own) for part in parts]
        except (ArchiveDamagedError, NotFoundError):
            # A damaged blob hides only its own text, and `health` reports it.
            yield [IndexedPart("")]
        if head.get("last"):  # of its call, so that rows do not depend on which calls are read
            paths = {}


@dataclass(frozen=True, slots=True)
class DocText:
    """Content of a row.

    Attributes:
        text: The text.
        role: Role of the message; "tool" for an output.
        tool: Tool of the call or result, if any.
        is_own: Whether it is a call of this server's tools, or its result.
        history: Chain hash of the history that ends with the message; empty for an output.
        before: Chain hash of the history before the message; empty for an output.
        size_chars: Length of the whole message in characters; 0 for an output.
    """

    text: str
    role: str
    tool: str | None
    is_own: bool = False
    history: str = ""
    before: str = ""
    size_chars: int = 0


def doc_text(
    head: JsonObject, body: Any, start_byte: int, size_bytes: int, blobs: Blobs
) -> DocText | None:
    """Return the content of a row from its record, or None for a part of an output without text.

    Raises:
        ArchiveDamagedError: The output cannot be read.
        NotFoundError: A blob is missing.
    """
    if head["kind"] == "message":
        tools = head["tools"]
        stored = read_stored(body, head["format"], tools)
        tool = tools[0] if tools else None
        history = chain_hash(head["parent"], head["hash"])
        text = stored.text[start_byte : start_byte + size_bytes]
        size_chars = len(stored.text)
        return DocText(text, head["role"], tool, stored.is_own, history, head["parent"], size_chars)
    output = StoredOutput(info_of(head, ""), body, blobs)
    part = decode_text(output.read_bytes(start_byte, size_bytes).data)
    is_own = is_own_tool(head["tool"] or "")
    return None if part is None else DocText(part, "tool", head["tool"], is_own)
