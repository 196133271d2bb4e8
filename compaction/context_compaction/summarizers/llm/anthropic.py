"""Ask Anthropic's Messages API, or a compatible server, for a summary.

This is the only file of the library that calls a provider. The first request imports the SDK in a
thread, because the import takes most of a second. The SDK retries failed requests.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import to_thread

from context_compaction.errors import PromptTooLongError, SummaryError
from context_compaction.summarizers.llm.model import ModelAnswer, ModelPrompt, ModelUsage, TellChars
from context_compaction.summarizers.llm.prompt import answer_tokens
from context_compaction.tokens.models import profile_for

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import Message


# The cheapest of Anthropic's current models. Its window is larger than any prompt of this library.
DEFAULT_MODEL = "claude-haiku-5-5"
DEFAULT_URL = "https://api.anthropic.com"
DEFAULT_TIMEOUT_SECONDS = 120.0
# Errors that the SDK raises if a stream does not follow the API, because it does not check streams.
_NOT_THIS_API = (AssertionError, AttributeError, LookupError, TypeError, ValueError)

# Dollars per million tokens of input and output: Anthropic's list prices of November 2026. For any
# other model, the receipt has tokens but no cost.
_PRICES = {
    "claude-fable-5-1": (10.0, 50.0),
    "claude-opus-5-5": (4.0, 20.0),
    "claude-opus-5": (5.0, 25.0),
    "claude-opus-4-8": (5.0, 25.0),
    "claude-opus-4-7": (5.0, 25.0),
    "claude-opus-4-6": (5.0, 25.0),
    "claude-opus-4-5": (5.0, 25.0),
    "claude-sonnet-5-5": (2.0, 10.0),
    "claude-sonnet-4-6": (3.0, 15.0),
    "claude-sonnet-4-5": (3.0, 15.0),
    "claude-haiku-5-5": (0.1, 0.5),
    "claude-haiku-4-5": (1.0, 5.0),
}
# Factors on the price of prompts of more than 100,000 tokens.
_LONG_PROMPT_FACTORS = {"claude-haiku-5-5": 5.0}


@dataclass(frozen=True, slots=True)
class AnthropicModel:
    """A model behind Anthropic's Messages API, or a compatible server.

    Attributes:
        api_key: The API key. It appears in no message and no receipt.
        model: Name of the model.
        base_url: Address of the API.
        timeout_seconds: Time limit for all requests and retries of one compaction together.
    """

    api_key: str = field(repr=False)
    model: str = DEFAULT_MODEL
    base_url: str = DEFAULT_URL
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    @property
    def writer(self) -> str:
        """The name in receipts."""
        return "anthropic"

    @property
    def window_tokens(self) -> int:
        """The context window of the model, from the table of models."""
        return profile_for(self.model).context_window

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """Return the answer to `prompt`, streamed. Cancellation closes the connection.

        Raises:
            PromptTooLongError: The prompt is too long for the model. Do not send it again.
            SummaryError: There is no answer.
        """
        client = await to_thread.run_sync(self._client)
        limit_tokens = profile_for(self.model).max_output_tokens
        import anthropic
        import httpx2

        async with client:
            try:
                async with client.messages.stream(
                    model=self.model,
                    max_tokens=min(answer_tokens(prompt.max_tokens), limit_tokens),
                    # Only the instructions are cached, because they are identical for every
                    # conversation. Writing the conversation to the cache would cost a quarter more,
                    # and a repair request does not contain it.
                    system=[
                        {
                            "type": "text",
                            "text": prompt.system,
                            "cache_control": {"type": "ephemeral"},
                        }
                    ],
                    messages=[{"role": "user", "content": prompt.user}],
                ) as stream:
                    async for text in stream.text_stream:
                        await tell(len(text))
                    return _answer_of(await stream.get_final_message(), self.model)
            except anthropic.APIStatusError as error:
                raise self._status_error(error) from error
            except (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError) as error:
                why = self._why(error)
                raise SummaryError(f"The connection to {self.model} failed: {why}") from error
            except _NOT_THIS_API as error:
                raise SummaryError(
                    f"The server for {self.model} does not follow Anthropic's Messages API: "
                    "check the address of the summary model"
                ) from error

    def _status_error(self, error: "anthropic.APIStatusError") -> SummaryError:
        """Return the error for an error status of the API, with advice."""
        status = error.status_code
        why = self._why(error)
        is_long = status == 400 and "too long" in error.message.lower()
        if is_long or status == 413:
            return PromptTooLongError(f"The prompt is too long for {self.model} ({why})")
        advice = {
            401: "the key was rejected: check ANTHROPIC_API_KEY",
            403: "the key has no access to this model",
            404: "model or address not found: check the name of the summary model",
            429: "too many requests, even after retries",
            529: "overloaded, even after retries",
        }.get(status, "the request failed")
        return SummaryError(f"The API of {self.model} returned status {status}, {advice} ({why})")

    def _why(self, error: Exception) -> str:
        """Return the error's short text without the API key, which a server may echo."""
        text = getattr(error, "api_message", None) or str(error) or type(error).__name__
        return " ".join(str(text).replace(self.api_key, "[key]").split())[:200]

    def _client(self) -> "anthropic.AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            # A redirect would send the conversation to an address that the user did not choose.
            http_client=DefaultAsyncHttpxClient(follow_redirects=False),
            api_key=self.api_key,
            base_url=self.base_url,
            timeout=self.timeout_seconds,
        )


def _answer_of(message: "Message", model: str) -> ModelAnswer:
    if message.stop_reason == "model_context_window_exceeded":
        raise PromptTooLongError(f"The prompt fills the context window of {model}")
    text = "".join(block.text for block in message.content if block.type == "text")
    failure = {
        None: f"The answer of {model} was interrupted",
        "refusal": f"{model} refused to write a summary",
        "tool_use": f"{model} called a tool instead of writing a summary",
    }.get(message.stop_reason, "")
    is_cut_off = message.stop_reason == "max_tokens"
    return ModelAnswer(text, _usage_of(message, model), is_cut_off, failure)


def _usage_of(message: "Message", model: str) -> ModelUsage:
    usage = message.usage
    written = usage.cache_creation_input_tokens or 0
    read = usage.cache_read_input_tokens or 0
    name = model.partition("-20")[0]  # without the version's date
    in_dollars, out_dollars = _PRICES.get(name, (0.0, 0.0))
    inputs = usage.input_tokens + written * 1.25 + read * 0.1
    cost = (inputs * in_dollars + usage.output_tokens * out_dollars) / 1_000_000
    if usage.input_tokens + written + read > 100_000:
        cost *= _LONG_PROMPT_FACTORS.get(name, 1.0)
    return ModelUsage(1, usage.input_tokens, usage.output_tokens, read, written, round(cost, 6))
