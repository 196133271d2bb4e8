"""Amazon Bedrock's Converse API: roles user and assistant; a block has one field, its kind.

Bytes are base64 text, as in the HTTP API. Cache points are between blocks and have no content, so
they are no blocks here. An edited copy of a message keeps each cache point after the block that it
followed. Other kinds (search results, server tools and others) are `Opaque`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace

from context_compaction.formats import anthropic, base
from context_compaction.messages import model
from context_compaction.messages.raw import CACHE_POINT, cache_points

# The checks of Bedrock ("A conversation must alternate between user and assistant roles", "The text
# field in the ContentBlock object ... is blank") and of Claude, the strictest of its models: signed
# thinking, unique IDs, results before text, no white space at the end.
RULES = replace(
    anthropic.RULES,
    documents_need_text=True,
    joins_assistant_messages=False,
    # Roles alternate, so results in adjacent messages are never accepted.
    joins_results=False,
    may_end_empty=False,
    roles_alternate="all",
    system_follows_user=False,
)

_ROLES: dict[str, model.Role] = {"user": "user", "assistant": "assistant"}
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

# Fields of messages in other formats, and of their blocks if the `type` is missing.
_FOREIGN_FIELDS = {"type", "tool_calls", "tool_call_id", "function_call", "parts", "stopReason"}
_FOREIGN_BLOCKS = {"source", "image_url", "file", "input_audio", "refusal"}

_CONTENT_REMEDY = 'Give an array of blocks such as [{"text": "..."}].'
_BYTES_REMEDY = "Give base64 text as the HTTP API has it: base64.b64encode(data).decode()."


def recognises(message: model.JsonObject) -> int:
    """Return how well a message fits; see `MessageFormat.recognises`."""
    if base.text_or_none(message.get("role")) not in _ROLES or not _FOREIGN_FIELDS.isdisjoint(
        message
    ):
        return 0
    blocks = base.list_or_none(message.get("content"))
    if blocks is None:
        return 0
    weights = [_weigh(base.object_or_none(block) or {}) for block in blocks]
    # An unknown block decides nothing, because the API gets new kinds every year.
    return 0 if 0 in weights else max(weights, default=1)


def _weigh(block: model.JsonObject) -> int:
    if "type" in block:
        return 0
    if _kind_of(block) in _KINDS:
        return 2
    is_union = len(block) == 1 and isinstance(next(iter(block.values())), dict)
    return 1 if is_union and _FOREIGN_BLOCKS.isdisjoint(block) else 0


def _kind_of(block: model.JsonObject) -> str | None:
    """Return the field that names the kind of a block; the first field if all are unknown.

    None for an empty block.
    """
    return next((key for key in block if key in _KINDS), next(iter(block), None))


def parse(message: base.Node) -> model.Message:
    """Parse one message; raises `InvalidMessageError`."""
    role = message.role(_ROLES, 'Give "user" or "assistant"; the system prompt has its own field.')
    parsed = map(_parse_block, message.objects("content", _CONTENT_REMEDY))
    blocks = tuple(block for block in parsed if block is not None)
    return model.Message(role, blocks, source=message.raw, index=message.index)


def _parse_block(block: base.Node) -> model.Block | None:
    """Parse a block; returns None for a cache point."""
    kind = _kind_of(block.raw)
    if kind is None:
        block.refuse("the block is an empty object", 'Give a block such as {"text": "..."}.')
    if kind == CACHE_POINT:
        return None
    block.where = f"{block.where} ({kind})"
    if kind == "text":
        return model.Text(block.text("text"), source=block.raw)
    if kind == "json":
        return model.Text(base.dumps(block.raw["json"]), source=block.raw)
    read = _READERS.get(kind)
    parsed = read(block.object(kind), block.raw) if read else None
    return parsed or model.Opaque(kind, block.raw)


def _parse_guarded(holder: base.Node, source: model.JsonObject) -> model.Text | None:
    """Parse content for a guardrail, whose text is the user's; None for other content."""
    is_text = base.object_or_none(holder.raw.get("text")) is not None
    return model.Text(holder.object("text").text("text"), source=source) if is_text else None


def _parse_cited(holder: base.Node, source: model.JsonObject) -> model.Text:
    pieces = base.objects_in(holder.raw.get("content"))
    return model.Text(
        "".join(base.text_or_none(p.get("text")) or "" for p in pieces), source=source
    )


def _parse_reasoning(holder: base.Node, source: model.JsonObject) -> model.Thinking | None:
    if "redactedContent" in holder.raw:
        return model.Thinking("", holder.text("redactedContent", _BYTES_REMEDY), source=source)
    if base.object_or_none(holder.raw.get("reasoningText")) is None:
        return None
    reasoning = holder.object("reasoningText")
    signature = base.text_or_none(reasoning.raw.get("signature"))
    return model.Thinking(reasoning.text("text"), signature, source=source)


def _parse_media(
    holder: base.Node, source: model.JsonObject
) -> model.Image | model.Document | None:
    remedy = 'Give {"bytes": "..."} in base64, or {"s3Location": {"uri": "s3://..."}}.'
    origin = holder.object("source", remedy)
    data = origin.text("bytes", _BYTES_REMEDY) if "bytes" in origin.raw else None
    has_url = data is None and "s3Location" in origin.raw
    url = origin.object("s3Location", remedy).text("uri") if has_url else None
    kind, name = _kind_of(source) or "", base.text_or_none(holder.raw.get("format"))
    text = base.text_or_none(origin.raw.get("text")) if kind != "image" else None
    if data is None and url is None and text is None:
        return None
    if kind == "image":
        return model.Image(f"image/{name or '*'}", data=data, url=url, source=source)
    media_type = f"{kind}/{_VIDEO_FORMATS.get(name or '*', name or '*')}"
    if kind == "document":
        media_type = _DOCUMENT_TYPES.get(name or "txt", base.UNKNOWN_FILE)
    return model.Document(media_type, data=data, url=url, text=text, source=source)


def _parse_call(holder: base.Node, source: model.JsonObject) -> model.ToolCall | None:
    if "type" in holder.raw:  # A server tool
        return None
    arguments = holder.raw.get("input", {})
    return model.ToolCall(holder.name("toolUseId"), holder.name("name"), arguments, source=source)


def _parse_result(holder: base.Node, source: model.JsonObject) -> model.ToolResult | None:
    if "type" in holder.raw:
        return None
    call_id = holder.name("toolUseId", "Give the id of the toolUse block that it answers.")
    blocks = map(_parse_block, holder.objects("content", _CONTENT_REMEDY))
    content = tuple(b for b in blocks if isinstance(b, model.Part))
    return model.ToolResult(call_id, content, holder.raw.get("status") == "error", source=source)


_READERS: dict[str, Callable[[base.Node, model.JsonObject], model.Block | None]] = {
    "guardContent": _parse_guarded,
    "citationsContent": _parse_cited,
    "reasoningContent": _parse_reasoning,
    **dict.fromkeys(("image", "document", "video", "audio"), _parse_media),
    "toolUse": _parse_call,
    "toolResult": _parse_result,
}
_KINDS = {*_READERS, "text", "json", "searchResult", CACHE_POINT}


def render_edited(message: model.Message) -> list[model.JsonObject]:
    """Render a copy of the host's object with the edits, or a new object."""
    content = _render_blocks(message)
    has_document = any("document" in block for block in content)
    if has_document and not any("text" in block for block in content):
        content.append({"text": "(document)"})  # The API requires a text next to a document.
    role = "assistant" if message.role == "assistant" else "user"
    return [{**(message.source or {"role": role}), "content": content}]


def _render_blocks(message: model.Message) -> list[model.JsonObject]:
    """Render the blocks, each followed by its cache points."""
    points = cache_points(message)
    content: list[model.JsonObject] = []
    for block in message.blocks:
        content.append(_render_block(block))
        block_points = points.pop(id(block.source), [])
        # "Cache point cannot be inserted after reasoning block."
        if not isinstance(block, model.Thinking):
            content += block_points
    return content


def _render_block(block: model.Block) -> model.JsonObject:
    source = block.source
    if source is not None and not block.edited:
        return source
    match block:
        case model.Text():
            return _render_text(block)
        case model.Image() | model.Document():
            return _render_media(block)
        case model.Thinking():
            kind, changes = "reasoningContent", _reasoning(block)
        case model.ToolCall():
            kind, changes = "toolUse", _call_changes(block)
        case model.ToolResult():
            kind, changes = "toolResult", _result_changes(block)
        case model.Opaque():
            return block.source
    return {**(source or {}), kind: {**_source_field(block, kind), **changes}}


def _source_field(block: model.Block, kind: str) -> model.JsonObject:
    """Return the object under `kind` in the host's block; empty for a new block."""
    content: model.JsonObject = (block.source or {}).get(kind, {})
    return content


def _render_text(block: model.Text) -> model.JsonObject:
    source = block.source or {}
    guarded = base.object_or_none(source.get("guardContent"))
    if guarded is not None:
        content = {**guarded["text"], "text": block.text}
        return {**source, "guardContent": {**guarded, "text": content}}
    # A block has only one kind, so edited JSON or cited text becomes plain text.
    other_fields = {key: value for key, value in source.items() if key not in _KINDS}
    return {**other_fields, "text": block.text}


def _reasoning(block: model.Thinking) -> model.JsonObject:
    holder = _source_field(block, "reasoningContent")
    if "redactedContent" in holder or (not holder and not block.text):
        return {"redactedContent": block.signature or ""}
    reasoning: model.JsonObject = {**holder.get("reasoningText", {}), "text": block.text}
    if block.signature is not None:
        reasoning["signature"] = block.signature
    return {"reasoningText": reasoning}


def _render_media(block: model.Image | model.Document) -> model.JsonObject:
    if isinstance(block, model.Document) and block.text is not None:
        return {"text": block.text}
    kind, form = _kind_and_format(block)
    if form is None or (block.url is not None and not block.url.startswith("s3://")):
        return {"text": base.describe_media(block)}
    data = block.data or ""
    is_url = block.url is not None
    origin: model.JsonObject = {"s3Location": {"uri": block.url}} if is_url else {"bytes": data}
    holder: model.JsonObject = {"format": form, "source": origin}
    if kind == "document":  # The name must be unique and have only the API's characters.
        digest = hashlib.sha256((block.url or data).encode("utf-8", "surrogatepass")).hexdigest()
        holder = {"name": f"document-{digest[:8]}", **holder}
    return {kind: {**_source_field(block, kind), **holder}}


def _kind_and_format(block: model.Image | model.Document) -> tuple[str, str | None]:
    """Return the field of an image or file and its format; None if the API has no such format."""
    kind, _, name = block.media_type.partition("/")
    if isinstance(block, model.Image):
        name = "jpeg" if name == "jpg" else name
        return "image", name if name in _IMAGE_FORMATS else None
    if kind == "video":
        names = {subtype: api_name for api_name, subtype in _VIDEO_FORMATS.items()}
        return "video", names.get(name, name)
    if kind == "audio":
        return "audio", name
    return "document", _DOCUMENT_FORMATS.get(block.media_type)


def _call_changes(call: model.ToolCall) -> model.JsonObject:
    return {"toolUseId": call.call_id, "name": call.name, "input": base.object_arguments(call)}


def _result_changes(result: model.ToolResult) -> model.JsonObject:
    content = [_render_block(part) for part in result.content]
    # "The content field ... cannot be empty when status value is error". Some models always refuse
    # empty content.
    changes: model.JsonObject = {"toolUseId": result.call_id, "content": content or [{"text": ""}]}
    if result.is_error or "status" in _source_field(result, "toolResult"):
        changes["status"] = "error" if result.is_error else "success"
    return changes


FORMAT = base.MessageFormat("bedrock-converse", RULES, recognises, parse, render_edited, "beside")
