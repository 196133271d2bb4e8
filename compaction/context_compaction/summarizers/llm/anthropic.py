"""Ask Anthropic's Messages API, or a compatible server, for a summary.

The first request imports the SDK in a thread, because the import takes seconds. The SDK retries
failed requests.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from context_compaction.errors import PromptTooLongError
from context_compaction.messages.model import JsonObject
from context_compaction.summarizers.llm.model import (
    NOT_THIS_API,
    ApiModel,
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    TellChars,
)

if TYPE_CHECKING:
    import anthropic
    import httpx2
    from anthropic.types import Message

ANTHROPIC_URL = "https://api.anthropic.com"

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
# All headers that a request needs, without the one with the key.
_HEADERS = frozenset({
    "accept", "anthropic-version", "connection", "content-length", "content-type", "host",
    "user-agent",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicModel(ApiModel):
    """A model behind Anthropic's Messages API, or a compatible server."""

    base_url: str = ANTHROPIC_URL

    @property
    def writer(self) -> str:
        """The name in receipts."""
        return "anthropic"

    @property
    def list_format(self) -> str:
        """The format of the conversations that the API takes."""
        return "anthropic"

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """Return the answer to `prompt`, streamed. Cancellation closes the connection.

        Raises:
            PromptTooLongError: The prompt is too long for the model. Do not send it again.
            SummaryError: There is no answer.
        """
        client = await to_thread.run_sync(self._client)
        import anthropic
        import httpx2

        failures = (anthropic.AnthropicError, httpx2.HTTPError, httpx2.StreamError, *NOT_THIS_API)
        async with client:
            try:
                async with client.messages.stream(
                    model=self.model, max_tokens=self.answer_tokens(prompt), **_content_of(prompt)
                ) as stream:
                    async for text in stream.text_stream:
                        await tell(len(text))
                    return self._answer_of(await stream.get_final_message())
            except anthropic.APIStatusError as error:
                text = error.api_message or error.message
                raise self.status_error(error.status_code, text) from error
            except failures as error:
                raise self.stream_error(error, "Anthropic's Messages API") from error

    def _client(self) -> "anthropic.AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        return AsyncAnthropic(
            http_client=DefaultAsyncHttpxClient(
                # A redirect would send the conversation to an address that the user did not choose.
                follow_redirects=False,
                event_hooks={"request": [_header_filter(self.api_key)]},
            ),
            api_key=self.api_key or "none",  # None would make the SDK search for a key
            base_url=self.base_url,
            timeout=self.timeout_seconds,
        )

    def _answer_of(self, message: "Message") -> ModelAnswer:
        if message.stop_reason == "model_context_window_exceeded":
            raise PromptTooLongError(f"The prompt fills the context window of {self.model}")
        text = "".join(block.text for block in message.content if block.type == "text")
        return self.answer(text, message.stop_reason or "", self._usage_of(message))

    def _usage_of(self, message: "Message") -> ModelUsage:
        usage = message.usage
        written = usage.cache_creation_input_tokens or 0
        read = usage.cache_read_input_tokens or 0
        tokens = ModelUsage(1, usage.input_tokens, usage.output_tokens, read, written)
        name = self.model.partition("-20")[0]  # without the version's date
        if name not in _PRICES:
            return tokens
        in_dollars, out_dollars = _PRICES[name]
        inputs = usage.input_tokens + written * 1.25 + read * 0.1
        cost = (inputs * in_dollars + usage.output_tokens * out_dollars) / 1_000_000
        if usage.input_tokens + written + read > 100_000:
            cost *= _LONG_PROMPT_FACTORS.get(name, 1.0)
        return replace(tokens, cost_dollars=round(cost, 6))


def _content_of(prompt: ModelPrompt) -> JsonObject:
    """Return system prompt, tools and messages of a request."""
    user: JsonObject = {"role": "user", "content": prompt.user}
    given = prompt.conversation
    if given is None:
        # Only the instructions are cached, because they are identical for every conversation.
        # Writing the conversation to the cache would cost a quarter more, and a repair request does
        # not contain it.
        return {"system": _marked(prompt.system), "messages": [user]}
    messages = list(given.messages)
    if not any("cache_control" in block for m in messages for block in _blocks(m["content"])):
        messages[-1] = {**messages[-1], "content": _marked(messages[-1]["content"])}
    # A `tool_choice` that differs from the earlier requests would make their cache useless.
    content = {"system": given.system, "tools": given.tools, "messages": [*messages, user]}
    return {name: value for name, value in content.items() if value}


def _blocks(content: Any) -> list[JsonObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _marked(content: Any) -> list[JsonObject]:
    """Return the blocks of `content` with a cache breakpoint after the last one."""
    *blocks, last = _blocks(content)
    return [*blocks, {**last, "cache_control": {"type": "ephemeral"}}]


def _header_filter(key: str | None) -> "Callable[[httpx2.Request], Awaitable[None]]":
    """Return a hook that leaves the headers of the API and this key in a request.

    The SDK adds headers that it finds in the environment, which may hold other keys.
    """

    async def keep_own_headers(request: "httpx2.Request") -> None:
        for name in set(request.headers) - _HEADERS:
            del request.headers[name]
        if key:
            request.headers["x-api-key"] = key

    return keep_own_headers
