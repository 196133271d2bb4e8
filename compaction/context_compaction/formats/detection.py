"""Which format a list of content blocks, or of tool definitions, speaks for.

Lists in the shape of agent libraries look like a provider's messages and are not. Read as one, such
a list loses all that is in it. So it is refused, with the way to convert it.
"""

from collections.abc import Callable, Mapping

from context_compaction.formats.parsing import (
    list_or_none,
    object_or_none,
    objects_in,
    text_or_none,
)
from context_compaction.messages.model import JsonObject


def conversion_of(message: JsonObject) -> str | None:
    """What `message` is and how it is converted, where it is a library's own; else None."""
    return next((told for told, is_own in _SHAPES.items() if is_own(message)), None)


def _is_pydantic_ai(message: JsonObject) -> bool:
    return any("part_kind" in part for part in objects_in(message.get("parts")))


def _is_langchain(message: JsonObject) -> bool:
    if "role" in message:
        return False
    kind = text_or_none(message.get("type"))
    if kind in {"human", "ai"}:
        return "data" in message or "content" in message
    return "additional_kwargs" in message or ("lc" in message and "kwargs" in message)


def _is_vercel(message: JsonObject) -> bool:
    if any(isinstance(part.get("type"), str) for part in objects_in(message.get("parts"))):
        return "role" in message
    blocks = objects_in(message.get("content"))
    return any(text_or_none(block.get("type")) in {"tool-call", "tool-result"} for block in blocks)


def _is_haystack(message: JsonObject) -> bool:
    return "meta" in message and _is_untyped(message.get("content"))


def _is_llama_index(message: JsonObject) -> bool:
    return any("block_type" in block for block in objects_in(message.get("blocks")))


def _is_untyped(content: object) -> bool:
    blocks = objects_in(content)
    return bool(blocks) and not any("type" in block for block in blocks)


# The first that knows the message as its own tells what to do.
_SHAPES: Mapping[str, Callable[[JsonObject], bool]] = {
    "pydantic-ai's own (ModelMessagesTypeAdapter dumps it). Give the messages that it sends to a "
    "provider: what `_map_messages` of the model's class, such as OpenAIChatModel, makes of "
    "them": _is_pydantic_ai,
    "LangChain's own. Convert the list with langchain_core.messages.convert_to_openai_messages, "
    "and the answer back with convert_to_messages": _is_langchain,
    "the Vercel AI SDK's own. Give its parts as a provider's blocks: text as text, tool-call as "
    "tool_use, tool-result as tool_result": _is_vercel,
    "Haystack's own. Convert each message with ChatMessage.to_openai_dict_format()": _is_haystack,
    "LlamaIndex's own. Convert the list with "
    "llama_index.llms.openai.utils.to_openai_message_dicts": _is_llama_index,
}


BLOCK_TYPES: dict[str, frozenset[str]] = {
    "anthropic": frozenset({
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "mcp_tool_use",
        "mcp_tool_result",
        "image",
        "document",
        "search_result",
    }),
    "openai-chat": frozenset({"text", "image_url", "input_audio", "file", "refusal"}),
    "openai-responses": frozenset({
        "input_text",
        "output_text",
        "input_image",
        "input_file",
        "input_audio",
        "refusal",
        "computer_screenshot",
    }),
    "pi": frozenset({"text", "thinking", "toolCall", "image"}),
}  # fmt: skip


def weigh_content(content: object, format: str) -> int:
    """0 if a type is only known in other formats, 2 if one is only known in `format`, else 1.

    A string fits every format; what is neither string nor array fits none, and neither does a block
    without a type. Types that no format knows say nothing, for providers add some every month.
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
    """The format that goes with `tools`, by the shape of the first; None where that tells none."""
    listed = list_or_none(tools)
    first = (object_or_none(listed[0]) if listed else None) or {}
    return next((name for field, name in _TOOL_FIELDS if field in first), None)


_TOOL_FIELDS = (
    ("input_schema", "anthropic"),
    ("function", "openai-chat"),
    ("parameters", "openai-responses"),
)


def _others(format: str) -> frozenset[str]:
    return frozenset[str]().union(*(kinds for name, kinds in BLOCK_TYPES.items() if name != format))


_ONLY_HERE = {name: kinds - _others(name) for name, kinds in BLOCK_TYPES.items()}
_ONLY_ELSEWHERE = {name: _others(name) - kinds for name, kinds in BLOCK_TYPES.items()}
