"""What a message format is to the rest: its rules, how it is recognised, read and written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from context_compaction.formats.parsing import Node
from context_compaction.messages.model import JsonObject, Message, Messages
from context_compaction.messages.tool_pairs import ProviderRules


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """One provider's message shape.

    Attributes:
        name: What `format=` names.
        rules: What the provider demands of a list.
        recognises: How well one raw message fits: 0 not at all, 1 could be, 2 speaks for it.
        parse: Reads one raw message; raises `InvalidMessageError`.
        render_edited: Writes a message that is new or was edited, as one raw message or several.
        system_prompt: Where the format has the system prompt: in the "list", "beside" it in a
            field of the request, or "nowhere", as in a session file. A system message that comes
            from another format stays in the list, or becomes text of the user's.
        link: Gives ids to calls and results that the format leaves without; None where all have.
    """

    name: str
    rules: ProviderRules
    recognises: Callable[[JsonObject], int]
    parse: Callable[[Node], Message]
    render_edited: Callable[[Message], list[JsonObject]]
    system_prompt: Literal["list", "beside", "nowhere"]
    link: Callable[[Messages], Messages] | None = None

    def parse_message(self, raw: JsonObject, index: int) -> Message:
        """The raw message at `index` of a list; raises `InvalidMessageError`."""
        return self.parse(Node(raw, index))

    def render_message(self, message: Message) -> list[JsonObject]:
        """The host's own object if nobody edited the message; else a copy, or new ones."""
        if message.source is not None and not message.edited:
            return [message.source]
        return self.render_edited(message)
