"""What a message format is to the rest: its rules, how it is recognised, read and written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from context_compaction.messages.model import JsonObject, Message, Messages
from context_compaction.messages.provider_rules import ProviderRules


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """One provider's message shape.

    Attributes:
        name: What `format=` names.
        rules: What the provider demands of a list.
        recognises: How well one raw message fits: 0 not at all, 1 could be, 2 speaks for it.
        parse_message: Raw message and its index to `Message`; raises `InvalidMessageError`.
        render_message: `Message` to one raw message, or several for a message without a source.
        system_prompt: Where the format has the system prompt: in the "list", "beside" it in a
            field of the request, or "nowhere", as in a session file. A system message that comes
            from another format stays in the list, or becomes text of the user's.
        link: Gives ids to calls and results that the format leaves without; None where all have.
    """

    name: str
    rules: ProviderRules
    recognises: Callable[[JsonObject], int]
    parse_message: Callable[[JsonObject, int], Message]
    render_message: Callable[[Message], list[JsonObject]]
    system_prompt: Literal["list", "beside", "nowhere"]
    link: Callable[[Messages], Messages] | None = None
