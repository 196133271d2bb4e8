"""A language model as the summary writers see it: it takes a prompt and returns text and its price.

Two implementations: `summarizers.anthropic` asks Anthropic's API, and the server's `sampling` asks
the model of the MCP client. A program that uses the library may pass its own.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, astuple, dataclass, replace
from operator import add
from typing import Protocol, TypeAlias

from context_compaction.messages.model import JsonObject

# Told the characters that one more piece of the answer has.
TellChars: TypeAlias = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """One request to a model.

    Attributes:
        system: Our instructions; the same bytes for every conversation.
        user: The material, with everything that others wrote escaped.
        max_tokens: Most tokens of the text that is asked for.
    """

    system: str
    user: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The usage of requests to a model, in its own tokens unless `is_estimated`.

    Attributes:
        requests: Requests that were answered.
        input_tokens: Tokens of the prompts, without those of the prompt cache.
        output_tokens: Tokens written.
        cache_read_tokens: Tokens read from the prompt cache.
        cache_write_tokens: Tokens written to the prompt cache.
        cost_dollars: By the provider's list price; 0 where the price is not known.
        is_estimated: Whether the tokens are our estimate, because the model does not report them.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_dollars: float = 0.0
    is_estimated: bool = False

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        sums = ModelUsage(*map(add, astuple(self), astuple(other)))
        return replace(sums, is_estimated=self.is_estimated or other.is_estimated)

    def as_json(self) -> JsonObject:
        """The fields by name, for a receipt."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a model.

    Attributes:
        text: Its text; may be empty.
        usage: Its tokens and price.
        is_cut_off: Whether the text ends where it reached the limit of its length.
        failure: Why this is no answer, as a sentence: a refusal, a tool call, a text that broke
            off. `usage` counts all the same.
    """

    text: str
    usage: ModelUsage
    is_cut_off: bool = False
    failure: str = ""


class SummaryModel(Protocol):
    """A language model that writes summaries."""

    @property
    def writer(self) -> str:
        """The short name for receipts, as "anthropic"."""
        ...

    @property
    def model(self) -> str:
        """The model's name, as far as that is known."""
        ...

    @property
    def window_tokens(self) -> int:
        """Most tokens of a request and its answer together."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """Limit of one compaction for this model, all its requests together."""
        ...

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """The answer to `prompt`; a model that streams awaits `tell` for each piece of it.

        Raises:
            PromptTooLongError: The prompt exceeds the model; it must not be sent again.
            SummaryError: There is no answer.

        Cancellation ends the request.
        """
        ...
