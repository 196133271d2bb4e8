"""A conversation without a format, which `rendering` writes in any format.

Generated conversations consist of these, so that one generator serves every format and a failing
example shrinks to few, short turns.
"""

from dataclasses import dataclass
from typing import Literal

from .json_types import Json

# A real picture: a red dot of 5 by 5 pixels, PNG, base64.
TINY_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO"
    "9TXL0Y4OHwAAAABJRU5ErkJggg=="
)
# The smallest text that readers take for a PDF, base64.
TINY_PDF = (
    "JVBERi0xLjQKMSAwIG9iajw8L1R5cGUvQ2F0YWxvZz4+ZW5kb2JqCnRyYWlsZXI8PC9Sb290IDEgMCBSPj4KJSVFT0Y="
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a user request or tool result. `text` is empty for images."""

    kind: Literal["text", "image", "document", "unknown"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with its result. A result of one text can be written as a string."""

    name: str
    arguments: Json
    result: tuple[Part, ...]
    is_error: bool = False
    as_list: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A response of the model with one or more parallel tool calls."""

    calls: tuple[Call, ...]
    text: str = ""
    thinking: str | None = None
    aside: str = ""
    """Text of the user next to the results, for formats that allow it there."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The user's request, the model's steps, and its final response (empty if still at work)."""

    request: tuple[Part, ...]
    steps: tuple[Step, ...] = ()
    answer: str = "Done."
    thinking: str | None = None
    instruction: str = ""
    """A system message that follows the request."""
    extras: bool = False
    """Whether unknown fields, unknown blocks and the like appear in this turn."""
