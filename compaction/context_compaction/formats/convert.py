"""Convert messages of one format into messages that render as a valid list of another format.

Text, calls, results, images and files are kept. Thinking is removed, because its signatures are
valid for one provider only. Blocks that only one provider understands become text with their JSON.
Results without calls and calls without results stay as they are.
"""

import hashlib
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import count

from context_compaction.errors import InvalidMessageError
from context_compaction.formats import MessageFormat, format_named
from context_compaction.formats.base import describe_media, dumps, host_id, object_or_none
from context_compaction.messages import model

# The characters that Anthropic does not allow in an ID, and the length that OpenAI Chat allows.
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ID_CHARS = 40


def convert(messages: model.Messages, *, to: str, origin: str | None = None) -> model.Messages:
    """Return the conversation without host objects, grouped as the format `to` requires.

    Consecutive messages of the assistant are joined, and so are consecutive results. If roles must
    alternate, all consecutive messages of one role are joined. Rendering splits them again if the
    format has a message for each result. System messages stay if the format has them in its list.
    Otherwise they become text of the user between `<system>` tags; `split_system` removes them
    before. Empty texts and messages are removed.

    Args:
        messages: Messages of any format.
        to: Name of the format to render them in.
        origin: The format they come from. If it is `to`, thinking and unknown blocks stay.

    Raises:
        InvalidMessageError: A block is nested too deeply to be written as JSON.
        UnknownFormatError: `to` is unknown.
    """
    target = _Target(format_named(to), keeps_foreign=origin == to)
    converted: list[model.Message] = []
    for index, message in enumerate(_with_legal_ids(messages, target)):
        try:
            plain = _plain_message(message, target)
        except RecursionError:
            problem = "it nests too deeply to be written as JSON"
            raise InvalidMessageError(index, problem, "Give it with less nesting.") from None
        if not plain.blocks:
            continue
        if converted and _are_joined(converted[-1], plain, target):
            blocks = (*converted[-1].blocks, *plain.blocks)
            converted[-1] = replace(converted[-1], blocks=blocks)
        else:
            converted.append(plain)
    return tuple(map(_in_order, converted))


def split_system(messages: model.Messages) -> tuple[str, model.Messages]:
    """Return the text of all system messages, joined by empty lines, and all other messages."""
    system = [model.text_of(message.blocks) for message in messages if message.role == "system"]
    rest = tuple(message for message in messages if message.role != "system")
    return "\n\n".join(text for text in system if text), rest


@dataclass(frozen=True, slots=True)
class _Target:
    """The format to convert to.

    Attributes:
        format: The format.
        keeps_foreign: Whether thinking and unknown blocks stay, because it is also the origin.
    """

    format: MessageFormat
    keeps_foreign: bool


def _with_legal_ids(messages: model.Messages, target: _Target) -> list[model.Message]:
    """Return the messages with IDs that every provider accepts, and results that name their tool.

    Some models number their calls from 1 in every turn. Only Chat Completions accepts a repeated
    ID, so the second call gets a number. A result answers the latest call with its ID.
    """
    used: set[str] = set()
    latest: dict[str, model.ToolCall] = {}

    def rename(block: model.Block) -> model.Block:
        if isinstance(block, model.ToolCall):
            call = replace(block, call_id=_unused_id(_legal_id(block.call_id, target), used))
            used.add(call.call_id)
            latest[block.call_id] = call
            return call
        if isinstance(block, model.ToolResult):
            call = latest.get(block.call_id) or model.ToolCall(
                _legal_id(block.call_id, target), "", None
            )
            return replace(block, call_id=call.call_id, name=block.name or call.name or None)
        return block

    return [replace(message, blocks=tuple(map(rename, message.blocks))) for message in messages]


def _unused_id(call_id: str, used: Container[str]) -> str:
    if call_id not in used:
        return call_id
    stem = call_id[: _ID_CHARS - 9]
    return next(name for n in count(2) if (name := f"{stem}_{n}") not in used)


def _legal_id(call_id: str, target: _Target) -> str:
    """Return `call_id` if every provider accepts it, else a legal ID that only depends on it."""
    if target.format.rules.calls_have_ids:
        call_id = host_id(call_id)
    if 0 < len(call_id) <= _ID_CHARS and not _ILLEGAL_IN_ID.search(call_id):
        return call_id
    stem = _ILLEGAL_IN_ID.sub("_", call_id)[: _ID_CHARS - 9]
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{stem}_{digest[:8]}"


def _plain_message(message: model.Message, target: _Target) -> model.Message:
    """Return `message` with blocks that have no host object."""
    blocks = [new for old in message.blocks for new in _plain_block(old, message.role, target)]
    role: model.Role = message.role
    if role == "system" and target.format.system_prompt != "list":
        role = "user"
        text = model.text_of(blocks)
        blocks = [model.Text(f"<system>\n{text}\n</system>")] if text else []
    return replace(message, role=role, blocks=tuple(blocks), source=None, edited=False)


def _plain_block(block: model.Block, role: model.Role, target: _Target) -> Sequence[model.Block]:
    """Return `block` without its host object; nothing if the target cannot have it."""
    if isinstance(block, model.Thinking):
        return (block,) if target.keeps_foreign else ()
    if isinstance(block, model.ToolCall):
        return (model.ToolCall(block.call_id, block.name, _as_object(block.arguments)),)
    if isinstance(block, model.ToolResult):
        content = tuple(new for old in block.content for new in _plain_part(old, target))
        return (model.ToolResult(block.call_id, content, block.is_error, block.name),)
    parts = _plain_part(block, target)
    if role == "user":
        return parts
    # Providers accept images and files only from the user.
    return [
        _described(part) if isinstance(part, model.Image | model.Document) else part
        for part in parts
    ]


def _plain_part(part: model.Part, target: _Target) -> Sequence[model.Part]:
    match part:
        case model.Text():
            return (model.Text(part.text, author=part.author),) if part.text.strip() else ()
        case model.Image() | model.Document():
            return (replace(part, source=None, edited=False),)
        case model.Opaque():
            return (part,) if target.keeps_foreign else (model.Text(dumps(part.source)),)


def _described(part: model.Image | model.Document) -> model.Text:
    text = part.text if isinstance(part, model.Document) else None
    return model.Text(describe_media(part) if text is None else text)


def _as_object(arguments: object) -> object:
    """Return arguments as an object, which every provider accepts; other values under `input`."""
    if object_or_none(arguments) is not None:
        return arguments
    return {} if arguments in (None, "") else {"input": arguments}


def _are_joined(before: model.Message, after: model.Message, target: _Target) -> bool:
    if before.role != after.role:
        return False
    if target.format.rules.roles_alternate == "all":
        return True
    return after.role == "assistant" or (_is_results(before) and _is_results(after))


def _is_results(message: model.Message) -> bool:
    return all(isinstance(block, model.ToolResult) for block in message.blocks)


def _in_order(message: model.Message) -> model.Message:
    """Return the message with results first and calls last."""
    results, calls = model.tool_results(message), model.tool_calls(message)
    if not results and not calls:
        return message
    rest = [
        block
        for block in message.blocks
        if not isinstance(block, model.ToolCall | model.ToolResult)
    ]
    return replace(message, blocks=(*results, *rest, *calls))
