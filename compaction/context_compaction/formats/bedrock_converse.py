"""Amazon Bedrock's Converse API: roles user and assistant, blocks told apart by their one field.

Bytes are read as the HTTP API has them, in base64 text. Cache points stand between blocks and say
nothing, so they are no blocks here: the edited copy of a message keeps each behind the block that
it followed. What has no meaning for us (search results, server tools...) is `Opaque`.
"""

import hashlib
from collections.abc import Callable
from typing import Any, TypeAlias

from context_compaction.formats import data_urls
from context_compaction.formats.base import MessageFormat
from context_compaction.formats.parsing import (
    dumps,
    list_or_none,
    object_or_none,
    objects_in,
    refuse,
    require_list,
    require_name,
    require_object,
    require_text,
    text_or_none,
)
from context_compaction.messages.cache_control import CACHE_POINT, cache_points
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from context_compaction.messages.provider_rules import ProviderRules

# Bedrock's own checks ("A conversation must alternate between user and assistant roles", "The text
# field in the ContentBlock object ... is blank"), and behind them those of Claude, the strictest
# of its models: signed thinking, unique ids, results before text, no white space at the end.
RULES = ProviderRules(
    groups_results=True,
    first_role_user=True,
    text_after_results=True,
    refuses_empty_text=True,
    thinking_is_bound=True,
    joins_assistant_messages=False,
    results_follow_call=True,
    refuses_empty_messages=True,
    refuses_trailing_thinking=True,
    refuses_trailing_space=True,
    unique_call_ids=True,
    may_end_empty=False,
    roles_alternate=True,
)

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
_IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
_VIDEO_FORMATS = {"three_gp": "3gpp"}
_DOCUMENT_TYPES = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
_DOCUMENT_FORMATS = {media_type: name for name, media_type in _DOCUMENT_TYPES.items()}

# Fields of messages in other formats, and of their blocks where the `type` was left out.
_FOREIGN_FIELDS = {"type", "tool_calls", "tool_call_id", "function_call", "parts", "stopReason"}
_FOREIGN_BLOCKS = {"source", "image_url", "file", "input_audio", "refusal"}

_CONTENT_REMEDY = 'Give an array of blocks such as [{"text": "..."}].'
_BLOCK_REMEDY = 'Give a block such as {"text": "..."}.'
_SOURCE_REMEDY = 'Give {"bytes": "..."} in base64, or {"s3Location": {"uri": "s3://..."}}.'
_BYTES_REMEDY = "Give base64 text as the HTTP API has it: base64.b64encode(data).decode()."

_Reader: TypeAlias = Callable[[JsonObject, int, str], Block]


def recognises(message: JsonObject) -> int:
    """0 no, 1 could be, 2 speaks for it."""
    if text_or_none(message.get("role")) not in _ROLES or not _FOREIGN_FIELDS.isdisjoint(message):
        return 0
    blocks = list_or_none(message.get("content"))
    if blocks is None:
        return 0
    weights = [_weigh(object_or_none(block) or {}) for block in blocks]
    # A block that we do not know says nothing, for the API gains some every year.
    return 0 if 0 in weights else max(weights, default=1)


def _weigh(block: JsonObject) -> int:
    if "type" in block:
        return 0
    if _kind_of(block) in _KINDS:
        return 2
    is_union = len(block) == 1 and isinstance(next(iter(block.values())), dict)
    return 1 if is_union and _FOREIGN_BLOCKS.isdisjoint(block) else 0


def _kind_of(block: JsonObject) -> str | None:
    """The field that says what the block is; the first for an unknown one, None for an empty one.

    The block of a cache point holds nothing else.
    """
    return next((key for key in block if key in _KINDS), next(iter(block), None))


def parse_message(raw: JsonObject, index: int) -> Message:
    """One message; raises `InvalidMessageError`."""
    name = require_name(raw, "role", index, "the message", 'Give "user" or "assistant".')
    role = _ROLES.get(name)
    if role is None:
        refuse(
            index,
            f"the role {name!r} is unknown in the format bedrock-converse",
            'Give "user" or "assistant"; the system prompt stands beside the list.',
        )
    values = require_list(raw.get("content"), index, "`content`", _CONTENT_REMEDY)
    blocks = (_parse_block(value, index, f"content[{n}]") for n, value in enumerate(values))
    return Message(
        role, tuple(block for block in blocks if block is not None), source=raw, index=index
    )


def _parse_block(value: object, index: int, where: str) -> Block | None:
    """The block; None for a cache point."""
    block = require_object(value, index, where, _BLOCK_REMEDY)
    kind = _kind_of(block)
    if kind is None:
        refuse(index, f"{where} is an empty object", _BLOCK_REMEDY)
    if kind == CACHE_POINT:
        return None
    read = _READERS.get(kind)
    return Opaque(kind, block) if read is None else read(block, index, f"{where} ({kind})")


def _parse_text(block: JsonObject, index: int, where: str) -> Text:
    return Text(require_text(block, "text", index, where), source=block)


def _parse_json(block: JsonObject, _index: int, _where: str) -> Text:
    return Text(dumps(block["json"]), source=block)


def _parse_guarded(block: JsonObject, index: int, where: str) -> Text | Opaque:
    """What a guardrail is to look at; a text there is what the user said."""
    holder = require_object(block["guardContent"], index, where, "Give an object.")
    said = object_or_none(holder.get("text"))
    if said is None:
        return Opaque("guardContent", block)
    return Text(require_text(said, "text", index, where), source=block)


def _parse_cited(block: JsonObject, index: int, where: str) -> Text:
    holder = require_object(block["citationsContent"], index, where, "Give an object.")
    pieces = (text_or_none(piece.get("text")) or "" for piece in objects_in(holder.get("content")))
    return Text("".join(pieces), source=block)


def _parse_reasoning(block: JsonObject, index: int, where: str) -> Thinking | Opaque:
    holder = require_object(block["reasoningContent"], index, where, "Give an object.")
    if "redactedContent" in holder:
        data = require_text(holder, "redactedContent", index, where, _BYTES_REMEDY)
        return Thinking("", data, source=block)
    said = object_or_none(holder.get("reasoningText"))
    if said is None:
        return Opaque("reasoningContent", block)
    text = require_text(said, "text", index, where)
    return Thinking(text, text_or_none(said.get("signature")), source=block)


def _parse_image(block: JsonObject, index: int, where: str) -> Image | Opaque:
    holder = require_object(block["image"], index, where, "Give an object.")
    media_type = f"image/{text_or_none(holder.get('format')) or '*'}"
    data, url = _origin(holder, index, where)
    if data is None and url is None:
        return Opaque("image", block)
    return Image(media_type, data=data, url=url, source=block)


def _parse_document(block: JsonObject, index: int, where: str) -> Document | Opaque:
    kind = _kind_of(block) or ""
    holder = require_object(block[kind], index, where, "Give an object.")
    media_type = _document_type(kind, text_or_none(holder.get("format")))
    data, url = _origin(holder, index, where)
    text = text_or_none(holder["source"].get("text"))
    if data is None and url is None and text is None:
        return Opaque(kind, block)
    return Document(media_type, data=data, url=url, text=text, source=block)


def _document_type(kind: str, name: str | None) -> str:
    if kind == "document":
        return _DOCUMENT_TYPES.get(name or "txt", data_urls.UNKNOWN_FILE)
    if kind == "video" and name is not None:
        name = _VIDEO_FORMATS.get(name, name)
    return f"{kind}/{name or '*'}"


def _origin(holder: JsonObject, index: int, where: str) -> tuple[str | None, str | None]:
    """Base64 text and address of a picture or file, one of which it has at most."""
    origin = require_object(holder.get("source"), index, f"{where}: `source`", _SOURCE_REMEDY)
    if "bytes" in origin:
        return require_text(origin, "bytes", index, where, _BYTES_REMEDY), None
    if "s3Location" in origin:
        place = require_object(origin["s3Location"], index, f"{where}: s3Location", _SOURCE_REMEDY)
        return None, require_text(place, "uri", index, where)
    return None, None


def _parse_call(block: JsonObject, index: int, where: str) -> ToolCall | Opaque:
    holder = require_object(block["toolUse"], index, where, "Give an object.")
    if "type" in holder:  # a tool that the model's server runs
        return Opaque("toolUse", block)
    call_id = require_name(holder, "toolUseId", index, where)
    name = require_name(holder, "name", index, where)
    return ToolCall(call_id, name, holder.get("input", {}), source=block)


def _parse_result(block: JsonObject, index: int, where: str) -> ToolResult | Opaque:
    holder = require_object(block["toolResult"], index, where, "Give an object.")
    if "type" in holder:
        return Opaque("toolResult", block)
    remedy = "Give the id of the toolUse block that it answers."
    call_id = require_name(holder, "toolUseId", index, where, remedy)
    values = require_list(holder.get("content"), index, f"{where}: `content`", _CONTENT_REMEDY)
    content: list[Part] = []
    for n, value in enumerate(values):
        part = _parse_block(value, index, f"{where}: content[{n}]")
        if isinstance(part, Text | Image | Document | Opaque):
            content.append(part)
    return ToolResult(call_id, tuple(content), holder.get("status") == "error", source=block)


_READERS: dict[str, _Reader] = {
    "text": _parse_text,
    "json": _parse_json,
    "guardContent": _parse_guarded,
    "citationsContent": _parse_cited,
    "reasoningContent": _parse_reasoning,
    "image": _parse_image,
    "document": _parse_document,
    "video": _parse_document,
    "audio": _parse_document,
    "toolUse": _parse_call,
    "toolResult": _parse_result,
}
_KINDS = {*_READERS, CACHE_POINT, "searchResult"}


def render_message(message: Message) -> list[JsonObject]:
    """The host's own object, an edited copy of it, or a new one."""
    source = message.source
    if source is not None and not message.edited:
        return [source]
    content = _with_text(_render_blocks(message))
    if source is None:
        return [
            {"role": "assistant" if message.role == "assistant" else "user", "content": content}
        ]
    return [{**source, "content": content}]


def _render_blocks(message: Message) -> list[JsonObject]:
    """The blocks, each with the cache points that stood behind it."""
    points = cache_points(message)
    content: list[JsonObject] = []
    for block in message.blocks:
        content.append(_render_block(block))
        behind = points.pop(id(block.source), [])
        # "Cache point cannot be inserted after reasoning block."
        if not isinstance(block, Thinking):
            content += behind
    return content


def _with_text(content: list[JsonObject]) -> list[JsonObject]:
    """A message with a document must have a text too."""
    if any("document" in block for block in content) and not any("text" in b for b in content):
        return [*content, {"text": "(document)"}]
    return content


def _render_block(block: Block) -> JsonObject:
    if block.source is not None and not block.edited:
        return block.source
    match block:
        case Text():
            return _render_text(block)
        case Thinking():
            return {**(block.source or {}), "reasoningContent": _reasoning(block)}
        case Image() | Document():
            return _render_media(block)
        case ToolCall():
            return _render_call(block)
        case ToolResult():
            return _render_result(block)
        case Opaque():
            return block.source


def _render_text(block: Text) -> JsonObject:
    source = block.source or {}
    guarded = object_or_none(source.get("guardContent"))
    if guarded is not None:
        said = {**guarded["text"], "text": block.text}
        return {**source, "guardContent": {**guarded, "text": said}}
    # A block holds one of the fields: JSON or cited text becomes plain text.
    kept = {key: value for key, value in source.items() if key not in _KINDS}
    return {**kept, "text": block.text}


def _reasoning(block: Thinking) -> JsonObject:
    holder: JsonObject = (block.source or {}).get("reasoningContent", {})
    if "redactedContent" in holder or (not holder and not block.text):
        return {**holder, "redactedContent": block.signature or ""}
    said: JsonObject = {**holder.get("reasoningText", {}), "text": block.text}
    if block.signature is not None:
        said["signature"] = block.signature
    return {**holder, "reasoningText": said}


def _render_media(block: Image | Document) -> JsonObject:
    if isinstance(block, Document) and block.text is not None:
        return {"text": block.text}
    kind, form = _kind_and_format(block)
    if form is None or (block.url is not None and not block.url.startswith("s3://")):
        return {"text": data_urls.describe(block)}
    data = block.data or ""
    origin: JsonObject = {"bytes": data} if block.url is None else _s3_location(block.url)
    holder: JsonObject = {"format": form, "source": origin}
    if kind == "document":
        holder = {"name": _document_name(block.url or data), **holder}
    return {kind: {**(block.source or {}).get(kind, {}), **holder}}


def _s3_location(uri: str) -> JsonObject:
    return {"s3Location": {"uri": uri}}


def _document_name(content: str) -> str:
    """A name that the API takes, and that no other document in the list has."""
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    return f"document-{digest[:8]}"


def _kind_and_format(block: Image | Document) -> tuple[str, str | None]:
    """The field of a picture or file and its format there; None where the API has none for it."""
    kind, _, name = block.media_type.partition("/")
    if isinstance(block, Image):
        name = "jpeg" if name == "jpg" else name
        return "image", name if name in _IMAGE_FORMATS else None
    if kind == "video":
        names = {theirs: ours for ours, theirs in _VIDEO_FORMATS.items()}
        return "video", names.get(name, name)
    if kind == "audio":
        return "audio", name
    return "document", _DOCUMENT_FORMATS.get(block.media_type)


def _render_call(call: ToolCall) -> JsonObject:
    source = call.source or {}
    arguments = object_or_none(call.arguments)
    given = {"input": call.arguments} if arguments is None else arguments
    changes = {"toolUseId": call.call_id, "name": call.name, "input": given}
    return {**source, "toolUse": {**source.get("toolUse", {}), **changes}}


def _render_result(result: ToolResult) -> JsonObject:
    source = result.source or {}
    holder: JsonObject = source.get("toolResult", {})
    content = [_render_block(part) for part in result.content]
    # "The content field ... cannot be empty when status value is error"; some models never take it.
    changes: dict[str, Any] = {"toolUseId": result.call_id, "content": content or [{"text": ""}]}
    if result.is_error or "status" in holder:
        changes["status"] = "error" if result.is_error else "success"
    return {**source, "toolResult": {**holder, **changes}}


FORMAT = MessageFormat(
    "bedrock-converse", RULES, recognises, parse_message, render_message, "beside"
)
