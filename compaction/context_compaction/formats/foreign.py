"""Shapes of agent libraries that look like a provider's messages and are not.

Read as one, such a list loses all that is in it. So it is refused, with the way to convert it.
"""

from collections.abc import Callable, Mapping

from context_compaction.formats.parsing import objects_in, text_or_none
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
