"""Wire formats: the only place where a provider's JSON is read or written.

Each format is one module with `parse_message` and `render_message`; this file finds the format and
walks the list. `files` reads session files of known hosts, `convert` turns one format into another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from context_compaction.messages import JsonObject, Message, Messages
from context_compaction.wire.rules import WireRules

__all__ = ["FORMATS", "WireFormat", "WireRules", "detect", "parse", "render"]


@dataclass(frozen=True, slots=True)
class WireFormat:
    """One provider's message shape.

    Attributes:
        name: "anthropic", "openai-chat", "openai-responses", "gemini" or "pi".
        rules: What the provider demands of a list.
        recognises: How surely one raw message is of this format: 0 no, 1 could be, 2 only this.
        parse_message: Raw message and its index to `Message`; raises `InvalidMessageError`.
        render_message: `Message` to one raw message, or several for a message without a source.
    """

    name: str
    rules: WireRules
    recognises: Callable[[JsonObject], int]
    parse_message: Callable[[JsonObject, int], Message]
    render_message: Callable[[Message], list[JsonObject]]


FORMATS: Mapping[str, WireFormat] = {}


def detect(payload: Sequence[JsonObject]) -> str:
    """The name of the format that fits every message of `payload`.

    Raises:
        InvalidMessageError: A message is not a JSON object.
        UnknownFormatError: No format fits, or the list is empty.
    """
    raise NotImplementedError


def parse(payload: Sequence[JsonObject], *, format: str | None = None) -> Messages:
    """The messages of `payload`, each with its index and its host object as `source`.

    Raises:
        InvalidMessageError: Names the first malformed message, what is wrong, what is right.
        UnknownFormatError: `format` is unknown, or was not given and cannot be found.
    """
    raise NotImplementedError


def render(messages: Messages, *, format: str) -> list[JsonObject]:
    """The list for the provider: untouched messages are the host's own objects."""
    raise NotImplementedError
