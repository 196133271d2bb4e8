"""Detect formats by the shape of content blocks and of tool definitions.

Message lists of agent libraries look like a provider's list. Read as such a list, they would lose
all their content. So they are refused, with the way to convert them.
"""

from context_compaction.formats.base import list_or_none, object_or_none, objects_in, text_or_none
from context_compaction.messages.model import JsonObject

# For each library a phrase that says whose list it is and how to convert it.
_PYDANTIC_AI = (
    "pydantic-ai's own (ModelMessagesTypeAdapter dumps it). Give the messages that it sends to a "
    "provider: what `_map_messages` of the model's class, such as OpenAIChatModel, makes of them"
)
_LANGCHAIN = (
    "LangChain's own. Convert the list with langchain_core.messages.convert_to_openai_messages, "
    "and the answer back with convert_to_messages"
)
_VERCEL = (
    "the Vercel AI SDK's own. Give its parts as a provider's blocks: text as text, tool-call as "
    "tool_use, tool-result as tool_result"
)
_HAYSTACK = "Haystack's own. Convert each message with ChatMessage.to_openai_dict_format()"
_LLAMA_INDEX = (
    "LlamaIndex's own. Convert the list with llama_index.llms.openai.utils.to_openai_message_dicts"
)


def conversion_of(message: JsonObject) -> str | None:
    """Return whose message an agent library's `message` is and how to convert it; else None."""
    parts, blocks = objects_in(message.get("parts")), objects_in(message.get("content"))
    if any("part_kind" in part for part in parts):
        return _PYDANTIC_AI
    if "role" not in message:
        is_typed = text_or_none(message.get("type")) in {"human", "ai"}
        is_dumped = is_typed and ("data" in message or "content" in message)
        is_built = "additional_kwargs" in message or {"lc", "kwargs"} <= message.keys()
        return _LANGCHAIN if is_dumped or is_built else None
    kinds = {text_or_none(block.get("type")) for block in blocks}
    if any(isinstance(part.get("type"), str) for part in parts) or kinds & {
        "tool-call",
        "tool-result",
    }:
        return _VERCEL
    if "meta" in message and blocks and not any("type" in block for block in blocks):
        return _HAYSTACK
    if any("block_type" in block for block in objects_in(message.get("blocks"))):
        return _LLAMA_INDEX
    return None


BLOCK_TYPES: dict[str, frozenset[str]] = {
    "anthropic": frozenset({
        "text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use",
        "mcp_tool_use", "mcp_tool_result", "image", "document", "search_result",
    }),
    "openai-chat": frozenset({"text", "image_url", "input_audio", "file", "refusal"}),
    "openai-responses": frozenset({
        "input_text", "output_text", "input_image", "input_file", "input_audio", "refusal",
        "computer_screenshot",
    }),
    "pi": frozenset({"text", "thinking", "toolCall", "image"}),
}  # fmt: skip


def weigh_content(content: object, format: str) -> int:
    """Return how well content fits `format`: 0 not at all, 1 possibly, 2 only this format has it.

    A string fits every format. A value that is neither string nor array fits no format, and neither
    does a block without a type. Unknown block types decide nothing, because providers often add
    types.
    """
    if isinstance(content, str):
        return 1
    blocks = list_or_none(content)
    if blocks is None:
        return 0
    kinds = {text_or_none((object_or_none(block) or {}).get("type")) for block in blocks}
    if None in kinds or kinds & _ONLY_ELSEWHERE[format]:
        return 0
    return 2 if kinds & _ONLY_HERE[format] else 1


def format_of_tools(tools: object) -> str | None:
    """Return the format of tool definitions by the shape of the first; None if it is unknown."""
    listed = list_or_none(tools)
    first = (object_or_none(listed[0]) if listed else None) or {}
    return next((name for field, name in _TOOL_FIELDS if field in first), None)


_TOOL_FIELDS = (
    ("input_schema", "anthropic"),
    ("function", "openai-chat"),
    ("parameters", "openai-responses"),
)


def _types_elsewhere(format: str) -> frozenset[str]:
    return frozenset[str]().union(*(kinds for name, kinds in BLOCK_TYPES.items() if name != format))


_ONLY_HERE = {name: kinds - _types_elsewhere(name) for name, kinds in BLOCK_TYPES.items()}
_ONLY_ELSEWHERE = {name: _types_elsewhere(name) - kinds for name, kinds in BLOCK_TYPES.items()}
