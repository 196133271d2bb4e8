"""Gemini's contents: roles user and model; the kind of a part is the field that it has.

Fields are parsed in camelCase (REST) and snake_case (the Python SDK). An edited part keeps its
spelling, and a new part is in camelCase. `base.link` gives IDs to calls without one.
"""

from context_compaction.formats import base
from context_compaction.messages import model
from context_compaction.messages.tool_pairs import ProviderRules

RULES = ProviderRules(
    groups_results=True,
    first_role_user=True,
    refuses_empty_text=True,
    joins_assistant_messages=True,
    results_follow_call=True,
    refuses_empty_messages=True,
    unique_call_ids=True,
    calls_follow_user=True,
    may_end_empty=False,
    joins_results=False,
    calls_have_ids=False,
)

_ROLES: dict[str, model.Role] = {
    "user": "user",
    "function": "user",
    "tool": "user",
    "system": "system",
    "model": "assistant",
}
_FIELDS = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "video_metadata": "videoMetadata",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
}
_KINDS = ("text", "functionCall", "functionResponse", "inlineData", "fileData")
_SIDE_FIELDS = {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}
_OUTPUT_KEYS = ("output", "result", "content", "error")


def recognises(message: model.JsonObject) -> int:
    """Return how well a message fits; see `MessageFormat.recognises`."""
    role = message.get("role")
    if (role is not None and base.text_or_none(role) not in _ROLES) or "content" in message:
        return 0
    if "parts" not in message:
        return 1 if role == "model" else 0
    has_known_part = any(_kind_of(part) in _KINDS for part in base.objects_in(message["parts"]))
    return 2 if role is not None or has_known_part else 0


def parse(message: base.Node) -> model.Message:
    """Parse one content; raises `InvalidMessageError`."""
    raw = message.raw
    has_role = raw.get("role") is not None
    # The API treats a content without a role as the user's.
    role = message.role(_ROLES, 'Give "user" or "model".') if has_role else "user"
    if raw.get("parts") is None and role == "assistant":
        # The SDK omits `parts` if the model answered nothing.
        return model.Message(role, (), source=raw, index=message.index)
    remedy = 'Give an array such as [{"text": "..."}].'
    blocks = tuple(map(_parse_part, message.objects("parts", remedy)))
    return model.Message(role, blocks, source=raw, index=message.index)


def _parse_part(part: base.Node) -> model.Block:
    kind = _kind_of(part.raw)
    if kind is None:
        part.refuse("the part is an empty object", 'Give a part such as {"text": "..."}.')
    if kind not in _KINDS:
        return model.Opaque(kind, part.raw)
    key = _spelling(part.raw, kind)
    part.where = f"{part.where} ({key})"
    if kind == "text":
        text = part.text("text")
        signature = base.text_or_none(part.raw.get(_spelling(part.raw, "thoughtSignature")))
        is_thought = part.raw.get("thought")
        return (
            model.Thinking(text, signature, part.raw) if is_thought else model.Text(text, part.raw)
        )
    holder = part.object(key)
    match kind:
        case "functionCall":
            has_arguments = holder.raw.get("args") is not None
            arguments = holder.object("args").raw if has_arguments else {}
            return model.ToolCall(_id_of(holder), holder.name("name"), arguments, source=part.raw)
        case "functionResponse":
            return _parse_response(part.raw, holder)
        case _:
            return _parse_media(part.raw, holder, kind)


def _kind_of(part: model.JsonObject) -> str | None:
    """Return the field that names the kind of a part, in camelCase; None for an empty part."""
    keys = [_FIELDS.get(key, key) for key, value in part.items() if value is not None]
    return next((key for key in keys if key not in _SIDE_FIELDS), keys[0] if keys else None)


def _spelling(holder: model.JsonObject, name: str) -> str:
    """Return the key of the field `name` in `holder`: camelCase unless it uses snake_case."""
    if name in holder:
        return name
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return snake if snake in holder else name


def _id_of(holder: base.Node) -> str:
    return "" if holder.raw.get("id") is None else holder.text("id")


def _parse_response(part: model.JsonObject, holder: base.Node) -> model.ToolResult:
    name = holder.name("name", "Give the name of the function that ran.")
    has_response = holder.raw.get("response") is not None
    remedy = 'Give an object such as {"output": "..."}.'
    response = holder.object("response", remedy).raw if has_response else {}
    content: list[model.Part] = []
    if response:
        key = _output_key(response)
        content.append(model.Text(base.dumps(response) if key is None else response[key]))
    if isinstance(holder.raw.get("parts"), list):
        parts = map(_parse_part, holder.objects("parts", ""))
        content += [part for part in parts if isinstance(part, model.Part)]
    is_error = list(response) == ["error"]
    return model.ToolResult(_id_of(holder), tuple(content), is_error, name=name, source=part)


def _output_key(response: model.JsonObject) -> str | None:
    """Return the key of a response that is one string under a usual name; else None."""
    key, value = next(iter(response.items()), ("", None))
    is_text = len(response) == 1 and key in _OUTPUT_KEYS and isinstance(value, str)
    return key if is_text else None


def _parse_media(
    part: model.JsonObject, holder: base.Node, kind: str
) -> model.Image | model.Document:
    type_key, url_key = _spelling(holder.raw, "mimeType"), _spelling(holder.raw, "fileUri")
    if kind == "inlineData":
        media_type, data, url = holder.text(type_key), holder.text("data"), None
    else:
        media_type = base.text_or_none(holder.raw.get(type_key)) or base.UNKNOWN_FILE
        data, url = None, holder.text(url_key)
    media = model.Image if media_type.startswith("image/") else model.Document
    return media(media_type, data=data, url=url, source=part)


def render_edited(message: model.Message) -> list[model.JsonObject]:
    """Render a copy of the host's object with the edits, or a new object."""
    parts: list[model.JsonObject] = []
    for block in message.blocks:
        parts.append(_render_part(block))
        if isinstance(block, model.ToolResult) and block.source is None:
            # A new response contains only text, so its media follow it.
            media = (
                part for part in block.content if isinstance(part, model.Image | model.Document)
            )
            parts += map(_render_part, media)
    role = "model" if message.role == "assistant" else "user"
    return [{**(message.source or {"role": role}), "parts": parts}]


def _render_part(block: model.Block) -> model.JsonObject:
    if isinstance(block, model.Image | model.Document):
        is_edited = block.edited or block.source is None
        return _render_media(block) if is_edited else block.source or {}
    return base.render_block(block, _changes)


def _changes(
    block: model.Text | model.Thinking | model.ToolCall | model.ToolResult | model.Opaque,
) -> model.JsonObject:
    match block:
        case model.Text():
            return {"text": block.text}
        case model.Thinking():
            is_signed = block.source is None and block.signature
            signature = {"thoughtSignature": block.signature} if is_signed else {}
            return {"text": block.text, "thought": True, **signature}
        case model.ToolCall():
            return _call_changes(block)
        case model.ToolResult():
            return _response_changes(block)
        case model.Opaque():
            return block.source


def _render_media(block: model.Image | model.Document) -> model.JsonObject:
    if isinstance(block, model.Document) and block.text is not None:
        return {"text": block.text}
    side = {key: value for key, value in (block.source or {}).items() if key in _SIDE_FIELDS}
    if block.url is not None:
        return {**side, "fileData": {"mimeType": block.media_type, "fileUri": block.url}}
    return {**side, "inlineData": {"mimeType": block.media_type, "data": block.data or ""}}


def _call_changes(call: model.ToolCall) -> model.JsonObject:
    source = call.source or {}
    key = _spelling(source, "functionCall")
    changes: model.JsonObject = {"name": call.name, "args": base.object_arguments(call)}
    if not base.is_generated(call.call_id):
        changes["id"] = call.call_id
    return {key: {**source.get(key, {}), **changes}}


def _response_changes(result: model.ToolResult) -> model.JsonObject:
    source = result.source or {}
    key = _spelling(source, "functionResponse")
    holder: model.JsonObject = source.get(key, {})
    before = base.object_or_none(holder.get("response")) or {}
    output_key = _output_key(before) or ("error" if result.is_error else "output")
    text = "\n".join(
        part.text if isinstance(part, model.Text) else base.dumps(part.source)
        for part in result.content
        if isinstance(part, model.Text | model.Opaque)
    )
    changed: model.JsonObject = {
        "name": base.name_of(result),
        **holder,
        "response": {output_key: text},
    }
    if result.source is None and not base.is_generated(result.call_id):
        changed["id"] = result.call_id
    if changed.pop("parts", None) is not None:
        media = (part for part in result.content if isinstance(part, model.Image | model.Document))
        sources = [part.source for part in media if part.source is not None]
        if sources:
            changed["parts"] = sources
    return {key: changed}


FORMAT = base.MessageFormat("gemini", RULES, recognises, parse, render_edited, "beside", base.link)
