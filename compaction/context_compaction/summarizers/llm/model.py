"""The interface of a language model that writes summaries: it takes a prompt and returns text.

`summarizers.llm.anthropic` and `summarizers.llm.openai` ask the API of a provider or of a local
server. The server's `sampling` asks the model of the MCP client. A program that uses the library
can pass its own class.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from operator import add
from typing import Any, Protocol, TypeAlias

from context_compaction.messages.model import JsonObject
from context_compaction.tokens.counter import counter_for

# Receives the number of characters in each new piece of an answer.
TellChars: TypeAlias = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as its own model received it, so that the provider's cache has most of it.

    Attributes:
        messages: The messages, in the format of the provider.
        left_tokens: Tokens of the window that the conversation leaves for an answer.
        system: The system prompt, if the caller gave it.
        tools: The tool definitions, if the caller gave them.
    """

    messages: Sequence[JsonObject]
    left_tokens: int
    system: Any = None
    tools: Any = None


@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """One request to a model.

    Attributes:
        system: The instructions. Their bytes are identical for every conversation.
        user: The material. Everything that others wrote in it is escaped.
        max_tokens: Token limit of the requested text.
        conversation: If given, the request starts with it, `user` follows as the last message, and
            `system` is empty.
    """

    system: str
    user: str
    max_tokens: int
    conversation: Conversation | None = None


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The usage of requests to a model, in the model's own tokens unless `is_estimated`.

    Attributes:
        requests: Number of answered requests.
        input_tokens: Tokens of the prompts, without those from the prompt cache.
        output_tokens: Tokens of the answers.
        cache_read_tokens: Tokens read from the prompt cache.
        cache_write_tokens: Tokens written to the prompt cache.
        cost_dollars: Cost as the server reports it, or else by the provider's list price. None if
            neither is known.
        is_estimated: Whether this library estimated the tokens, because the model does not report
            them.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_dollars: float | None = None
    is_estimated: bool = False

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        sums = ModelUsage(*map(add, astuple(self)[:5], astuple(other)[:5]))
        costs = [u.cost_dollars for u in (self, other) if u.cost_dollars is not None]
        is_estimated = self.is_estimated or other.is_estimated
        return replace(sums, cost_dollars=sum(costs) if costs else None, is_estimated=is_estimated)

    def as_json(self) -> JsonObject:
        """Return the fields by name, for a receipt."""
        return asdict(self)


def estimated_usage(prompt: ModelPrompt, text: str) -> ModelUsage:
    """Return the usage of a request to a model that does not report it."""
    count = counter_for().text
    input_tokens = count(prompt.system) + count(prompt.user)
    return ModelUsage(1, input_tokens, count(text), is_estimated=True)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a model.

    Attributes:
        text: The text, which may be empty.
        usage: The tokens and the cost.
        is_cut_off: Whether the text ends because it reached its token limit.
        failure: Why the answer cannot be used, as a sentence: a refusal, a tool call, an
            interrupted text. "" if it can be used. `usage` counts in both cases.
    """

    text: str
    usage: ModelUsage
    is_cut_off: bool = False
    failure: str = ""


class SummaryModel(Protocol):
    """A language model that writes summaries."""

    @property
    def writer(self) -> str:
        """The short name for receipts, such as "anthropic"."""
        ...

    @property
    def model(self) -> str:
        """The model's name, if it is known."""
        ...

    @property
    def window_tokens(self) -> int:
        """Token limit of a request together with its answer."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """Time limit for all requests of one compaction together."""
        ...

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """Return the answer to `prompt`. A model that streams awaits `tell` for each piece.

        Cancellation ends the request.

        Raises:
            PromptTooLongError: The prompt is too long for the model. Do not send it again.
            SummaryError: There is no answer.
        """
        ...
