"""The interface of a language model that writes summaries: it takes a prompt and returns text.

`summarizers.llm.anthropic` and `summarizers.llm.openai` ask the API of a provider or of a local
server. The server's `sampling` asks the model of the MCP client. A program that uses the library
can pass its own class. `ApiModel` is what models behind HTTP APIs have in common.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from operator import add
from typing import Any, Protocol, TypeAlias

from context_compaction.errors import PromptTooLongError, SummaryError, is_prompt_too_long
from context_compaction.messages.model import JsonObject
from context_compaction.tokens.counter import counter_for
from context_compaction.tokens.models import profile_for

# Receives the number of characters in each new piece of an answer.
TellChars: TypeAlias = Callable[[int], Awaitable[None]]


DEFAULT_TIMEOUT_SECONDS = 120.0
# Errors of reading a stream that does not follow its API. Neither httpx nor the SDK checks streams.
NOT_THIS_API = (AssertionError, AttributeError, LookupError, TypeError, ValueError)

_ADVICE = {
    401: "the key was rejected: check the variable that holds the key",
    403: "the key has no access to this model",
    404: "model or address not found: check the name and the address of the summary model",
    429: "too many requests, even after retries",
    529: "overloaded, even after retries",
}
# How an answer can end, in the words of all APIs. Any other end is a failure.
_COMPLETE = ("end_turn", "stop_sequence", "stop", "completed")
_CUT_OFF = ("max_tokens", "length", "max_output_tokens")
_FAILURES = {
    "": "The answer of {} was interrupted",
    "refusal": "{} refused to write a summary",
    "content_filter": "{} refused to write a summary",
    "tool_use": "{} called a tool instead of writing a summary",
    "tool_calls": "{} called a tool instead of writing a summary",
}


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


def answer_tokens(max_tokens: int, window_tokens: int, *, thinking_tokens: int = 4_000) -> int:
    """Return the token limit of an answer: twice the requested length, and room for thinking.

    Newer models think without being asked to, and thinking counts as output. In a small window, the
    prompt gets two thirds.
    """
    return min(max_tokens * 2 + thinking_tokens, window_tokens // 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiModel:
    """A model behind an HTTP API.

    Attributes:
        model: Name of the model.
        base_url: Address of the API.
        api_key: The API key, which appears in no message and no receipt. None sends no key.
        timeout_seconds: Time limit for all requests and retries of one compaction together.
        context_window: Token limit of a request with its answer. None uses the table of models.
        shares_cache: Whether the conversation's own requests can be in the prompt cache of this
            API. If the model is also the conversation's own, the summary is then requested in the
            conversation itself.
    """

    model: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    context_window: int | None = None
    shares_cache: bool = True

    @property
    def window_tokens(self) -> int:
        """The context window of the model."""
        return self.context_window or profile_for(self.model).context_window

    def answer_tokens(self, prompt: ModelPrompt) -> int:
        """Return the token limit of the answer to `prompt`."""
        given, limit_tokens = prompt.conversation, profile_for(self.model).max_output_tokens
        if given is not None:
            limit_tokens = min(limit_tokens, given.left_tokens)
        return min(answer_tokens(prompt.max_tokens, self.window_tokens), limit_tokens)

    def answer(self, text: str, ending: str, usage: ModelUsage) -> ModelAnswer:
        """Return the answer with this text and usage; `ending` is the API's word for its end."""
        failure = ""
        if ending not in _COMPLETE and ending not in _CUT_OFF:
            failure = _FAILURES.get(ending, f"The answer of {{}} ended with {ending[:40]!r}")
        return ModelAnswer(text, usage, ending in _CUT_OFF, failure.format(self.model))

    def status_error(self, status: int, text: str) -> SummaryError:
        """Return the error for an error status of the API, with advice."""
        reason = self.reason(text)
        if status == 413 or is_prompt_too_long(text):
            return PromptTooLongError(f"The prompt is too long for {self.model} ({reason})")
        advice = _ADVICE.get(status, "the request failed")
        return SummaryError(
            f"The API of {self.model} returned status {status}, {advice} ({reason})"
        )

    def stream_error(self, error: Exception, api: str) -> SummaryError:
        """Return the error for a failed connection, or for a stream that does not follow `api`."""
        if isinstance(error, NOT_THIS_API):
            return SummaryError(
                f"The server for {self.model} does not follow {api}: check the address of the "
                "summary model"
            )
        reason = self.reason(str(error) or type(error).__name__)
        return SummaryError(f"The connection to {self.model} failed: {reason}")

    def reason(self, text: str) -> str:
        """Return a short text of the server without the API key, which a server may echo."""
        text = text.replace(self.api_key, "[key]") if self.api_key else text
        return " ".join(text.split())[:200]
