"""What models behind HTTP APIs have in common: address, key, limits, and texts of failures."""

from dataclasses import dataclass, field

from context_compaction.errors import PromptTooLongError, SummaryError, is_prompt_too_long
from context_compaction.summarizers.llm.model import ModelAnswer, ModelPrompt, ModelUsage
from context_compaction.summarizers.llm.prompt import answer_tokens
from context_compaction.tokens.models import profile_for

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
