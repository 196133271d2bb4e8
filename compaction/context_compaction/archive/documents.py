"""What the index holds: of a message its role, tools and text; of an output its text in parts.

Role and tools are found when a message is appended, where the calls before a result are at hand,
and kept in its record's head. The text is found when it is indexed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_compaction.archive.records import Blobs, StoredOutput, decode_text, info_of
from context_compaction.errors import ArchiveDamagedError, InvalidMessageError, NotFoundError
from context_compaction.formats import FORMATS
from context_compaction.messages.history_hash import chain_hash
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_list,
    is_object,
    starts_turn,
    tool_calls,
    tool_results,
)

# PostgreSQL's tsvector ends at 1 MB, so a longer message has several rows.
MAX_INDEXED_CHARS = 300_000
PART_CHARS = 16_000  # so that a hit names a place, and one long log does not outweigh a message
TITLE_CHARS = 80
# BM25 would put a text of three words before any longer one; a text counts as this long at least.
# Measured: LoCoMo's MRR rises from .45 to .48 with 30, own questions stay the same.
MIN_DOC_TERMS = 30

# Pictures, signatures and encrypted content: no word of them is searched for.
_ENCODED = re.compile(r"(?:data:[^,]{0,100},)?[A-Za-z0-9+/_-]{200,}={0,2}")
# Members that name a kind, repeat what a block has, or nobody can read.
_NO_TEXT = frozenset({
    "type", "role", "arguments", "partialJson", "api", "provider", "model", "stopReason",
    "data", "signature", "thoughtSignature", "thinkingSignature", "textSignature",
    "encrypted_content", "redactedContent",
})  # fmt: skip
# Under this name the title that a user gave a session is stored as an output.
TITLE_TOOL = "session title"
_OWN_TOOLS = (
    "compact_messages",
    "persist_large_output",
    "read_persisted_output",
    "search_transcript",
)


def role_of(message: Message) -> str:
    """The role under which `message` is found: "tool" where it carries results only."""
    if message.role == "user" and message.blocks and not starts_turn(message):
        return "tool"
    return message.role


def tools_of(messages: Sequence[Message], start: int = 0) -> list[list[str]]:
    """For each message from `start`, the names of the tools that it calls or that answer in it."""
    new = messages[start:]
    names = _names_of_answered(messages[:start], new) if start else {}
    tools: list[list[str]] = []
    for message in new:
        calls = tool_calls(message)
        names |= {call.call_id: call.name for call in calls}
        told = (result.name or names.get(result.call_id) for result in tool_results(message))
        tools.append(list(dict.fromkeys([*(call.name for call in calls), *filter(None, told)])))
    return tools


def _names_of_answered(before: Sequence[Message], new: Sequence[Message]) -> dict[str, str]:
    """By call id, the tools of the calls in `before` that `new` answers."""
    missing = {result.call_id for message in new for result in tool_results(message)}
    missing -= {call.call_id for message in new for call in tool_calls(message)}
    names: dict[str, str] = {}
    for message in reversed(before):
        if not missing:
            break
        for call in tool_calls(message):
            if call.call_id in missing:
                names[call.call_id] = call.name
                missing.discard(call.call_id)
    return names


def is_own_tool(name: str) -> bool:
    """Whether `name` is one of our four tools, as every host's name for them ends."""
    own = next((tool for tool in _OWN_TOOLS if name.endswith(tool)), None)
    return own is not None and not name.removesuffix(own)[-1:].isalnum()


def message_text(raw: JsonObject, format: str) -> str:
    """The text of a stored message, as its hits count positions.

    Text, thinking that can be read, names and arguments of calls, results, addresses, citations,
    and all strings of blocks of an unknown kind; no pictures and nothing encrypted. A message that
    the format can no longer read (it was stored by another version) returns all its strings.
    """
    return read_stored(raw, format).text


@dataclass(frozen=True, slots=True)
class StoredText:
    """The searchable text of a stored message.

    Attributes:
        text: Its text, as `message_text` returns it.
        called_paths: By call id, the paths that each call in it names.
        answered_calls: The ids of the calls that it answers.
        is_own: Whether all of it is calls of our own tools or their answers.
    """

    text: str
    called_paths: dict[str, tuple[str, ...]]
    answered_calls: tuple[str, ...]
    is_own: bool = False


def read_stored(raw: JsonObject, format: str, tools: Sequence[str] = ()) -> StoredText:
    """The text and paths of a stored message.

    What our own tools were asked and answered, and the thought of asking, repeats what the archive
    holds, so it is not found beside other text; a message of nothing else has it as its text.

    Args:
        raw: The message.
        format: Its format.
        tools: The names of the tools that it calls or that answer in it.
    """
    concerns_own = bool(tools) and all(map(is_own_tool, tools))
    try:
        message = FORMATS[format].parse_message(raw, 0)
    except (KeyError, InvalidMessageError):
        return StoredText("\n".join(_strings(raw)), {}, ())
    texts: list[str] = []
    own: list[str] = []
    for block in message.blocks:
        parts = own if _is_own(block, concerns_own) else texts
        parts += filter(None, _block_texts(block))
    if not own:
        texts += _other_strings(raw, {*texts, *_identifiers(message)})
    return StoredText(
        "\n".join(texts or own),
        {call.call_id: tuple(_paths(call.arguments)) for call in tool_calls(message)},
        tuple(result.call_id for result in tool_results(message)),
        is_own=bool(own) and not texts,
    )


def _identifiers(message: Message) -> Iterator[str]:
    """The ids of the calls in `message`, and the names beside results."""
    for call in tool_calls(message):
        yield call.call_id
    for result in tool_results(message):
        yield result.call_id
        yield result.name or ""


def _other_strings(value: Any, known: set[str]) -> Iterator[str]:
    """The strings of a message that its blocks do not show: citations, titles, annotations."""
    if is_object(value):
        for key, item in value.items():
            if key not in _NO_TEXT:
                yield from _other_strings(item, known)
    elif is_list(value):
        for item in value:
            yield from _other_strings(item, known)
    elif isinstance(value, str) and value not in known and not is_encoded(value):
        yield value


def _is_own(block: Block, concerns_own: bool) -> bool:
    match block:
        case Thinking():
            return concerns_own
        case ToolCall():
            return is_own_tool(block.name)
        case ToolResult():
            return is_own_tool(block.name) if block.name else concerns_own
        case _:
            return False


def _paths(arguments: Any) -> Iterator[str]:
    """The paths among the arguments of a call: what looks like one, or is called one."""
    if is_object(arguments):
        for name, value in arguments.items():
            if not isinstance(value, str) or len(value) > 1_000 or "\n" in value:
                continue
            is_called_path = any(word in name.lower() for word in ("path", "file"))
            if is_called_path or ("/" in value and " " not in value):
                yield value


# What hosts put before the user's own words: their environment, notes and instructions as elements,
# and commands that the host itself obeys.
_HOST_ELEMENT = re.compile(r"\s*<([a-z][a-z_-]*)>.*?</\1>", re.DOTALL)
_HOST_COMMAND = re.compile(r"/[\w:-]+\s*(?:\n|\Z)")


def title_of(text: str) -> str:
    """A session's title: the first line of the user's first text; "" where a host wrote all."""
    while found := _HOST_ELEMENT.match(text):
        text = text[found.end() :]
    text = text.strip()
    if _HOST_COMMAND.match(text):
        return ""
    line = " ".join(text.split("\n", 1)[0].split())
    return storable(line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…")


def is_encoded(text: str) -> bool:
    """Whether `text` is a picture, a signature or encrypted content, with no word to search for."""
    return _ENCODED.fullmatch(text) is not None


def storable(text: str) -> str:
    """`text` with "?" for lone surrogates and zeros, which databases refuse."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def _block_texts(block: Block) -> list[str]:
    match block:
        case Text() | Thinking():
            return [block.text]
        case ToolCall():
            return [block.name, *_strings(block.arguments)]
        case ToolResult():
            return ["\n".join(text for part in block.content for text in _block_texts(part))]
        case Image():
            return [block.url or ""]
        case Document():
            return [block.url or "", block.text or ""]
        case Opaque():
            return [string for string in _strings(block.source) if not is_encoded(string)]


def _strings(value: Any) -> list[str]:
    """Every string and number among the values of a JSON value, in order."""
    if is_object(value):
        return [string for item in value.values() for string in _strings(item)]
    if is_list(value):
        return [string for item in value for string in _strings(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


@dataclass(frozen=True, slots=True)
class IndexedPart:
    """One text that the index can find: a message, or a part of a long message or an output.

    Attributes:
        text: The text itself.
        start_byte: Where it begins in the output, or in characters in the message.
        size_bytes: Its length in the output, or in characters in a long message; 0 for a whole
            message.
        start_char: Where it begins, in characters.
        start_line: Number of its first line, from 1.
        paths: Those of the calls that it answers.
        is_own: Whether our own tools were asked it or answered it.
    """

    text: str
    start_byte: int = 0
    size_bytes: int = 0
    start_char: int = 0
    start_line: int = 1
    paths: tuple[str, ...] = ()
    is_own: bool = False


def message_parts(stored: StoredText, paths: tuple[str, ...]) -> Iterator[IndexedPart]:
    """The parts of a message's text: one, or several that end between words."""
    text, start = stored.text, 0
    while len(text) - start > MAX_INDEXED_CHARS:
        end = start + MAX_INDEXED_CHARS
        end = max(text.rfind(" ", start, end), text.rfind("\n", start, end)) + 1 or end
        piece = IndexedPart(text[start:end], start, end - start, start)
        yield replace(piece, paths=paths, is_own=stored.is_own)
        start = end
    size = len(text) - start if start else 0
    yield IndexedPart(text[start:], start, size, start, paths=paths, is_own=stored.is_own)


def output_parts(text: str) -> Iterator[IndexedPart]:
    """The parts of an output's text: `PART_CHARS` at most, cut at newlines; at least one."""
    start_byte = start_char = 0
    start_line = 1
    while True:
        end = start_char + PART_CHARS
        if end < len(text):
            end = text.rfind("\n", start_char, end) + 1 or end
        piece = text[start_char:end]
        size_bytes = len(piece.encode("utf-8", "surrogatepass"))
        yield IndexedPart(piece, start_byte, size_bytes, start_char, start_line)
        start_byte += size_bytes
        start_char += len(piece)
        start_line += piece.count("\n")
        if start_char >= len(text):
            return


def parts_of_records(
    records: Iterable[tuple[JsonObject, Callable[[], Any]]], blobs: Blobs
) -> Iterator[list[IndexedPart]]:
    """What is found of each record: nothing but messages and outputs.

    A result is found under the paths of its call where both were appended together, as hosts do.

    Args:
        records: Each one's head, and what returns its body.
        blobs: The large contents that bodies name.
    """
    paths: dict[str, tuple[str, ...]] = {}
    for head, body in records:
        try:
            if head["kind"] == "message":
                stored = read_stored(body(), head["format"], head["tools"])
                paths |= stored.called_paths
                about = [path for call in stored.answered_calls for path in paths.get(call, ())]
                yield list(message_parts(stored, tuple(about)))
            elif head["kind"] == "output":
                data = StoredOutput(info_of(head, ""), body(), blobs).read_whole()
                about = list(paths.get(head["call"], ()))
                parts = output_parts(decode_text(data) or "")
                is_own = is_own_tool(head["tool"] or "")
                yield [replace(part, paths=tuple(about), is_own=is_own) for part in parts]
            else:
                yield []
        except (ArchiveDamagedError, NotFoundError):
            # A damaged blob hides its own text only; the doctor reports it.
            yield [IndexedPart("")]
        if head.get("last"):  # of its call; the same whatever calls are read with it
            paths = {}


@dataclass(frozen=True, slots=True)
class DocText:
    """What a row contains.

    Attributes:
        text: Its text.
        role: Who wrote it.
        tool: The tool that was called or answered.
        is_own: Whether our own tools were asked it or answered it.
        history: Names the history that ends with a message ...
        before: ... and the one that it continues; empty for an output.
    """

    text: str
    role: str
    tool: str | None
    is_own: bool = False
    history: str = ""
    before: str = ""


def doc_text(
    head: JsonObject, body: Any, start_byte: int, size_bytes: int, blobs: Blobs
) -> DocText | None:
    """What a row contains, given its record; None where it is a part of an output without text.

    Raises:
        ArchiveDamagedError: The output cannot be read.
        NotFoundError: A blob is missing.
    """
    if head["kind"] == "message":
        tools = head["tools"]
        stored = read_stored(body, head["format"], tools)
        tool = tools[0] if tools else None
        history = chain_hash(head["parent"], head["hash"])
        end = start_byte + size_bytes if size_bytes else None
        text = stored.text[start_byte:end]
        return DocText(text, head["role"], tool, stored.is_own, history, head["parent"])
    output = StoredOutput(info_of(head, ""), body, blobs)
    part = decode_text(output.read_bytes(start_byte, size_bytes).data)
    own = is_own_tool(head["tool"] or "")
    return None if part is None else DocText(part, "tool", head["tool"], own)
