"""What a message format is to the rest: its rules, how it is recognised, read and written."""

from collections.abc import Callable
from dataclasses import dataclass

from context_compaction.messages.model import JsonObject, Message, Messages
from context_compaction.messages.provider_rules import ProviderRules


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """One provider's message shape.

    Attributes:
        name: "anthropic", "openai-chat", "openai-responses", "gemini", "pi" or
            "bedrock-converse".
        rules: What the provider demands of a list.
        recognises: How well one raw message fits: 0 not at all, 1 could be, 2 speaks for it.
        parse_message: Raw message and its index to `Message`; raises `InvalidMessageError`.
        render_message: `Message` to one raw message, or several for a message without a source.
        link: Gives ids to calls and results that the format leaves without; None where all have.
    """

    name: str
    rules: ProviderRules
    recognises: Callable[[JsonObject], int]
    parse_message: Callable[[JsonObject, int], Message]
    render_message: Callable[[Message], list[JsonObject]]
    link: Callable[[Messages], Messages] | None = None
