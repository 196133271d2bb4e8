"""Ask a server that speaks OpenAI's Chat Completions or Responses API for a summary.

OpenAI, Ollama, llama.cpp, vLLM, LM Studio, OpenRouter and most gateways speak one of them. This is
a thin client on httpx, which the SDKs of Anthropic and MCP need anyway. OpenAI's own package would
add 30 MB to the installation, and its import takes 1.4 seconds of CPU time instead of 0.13.
"""

import json
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
from anyio import to_thread

from context_compaction.messages.model import JsonObject, is_object
from context_compaction.summarizers.llm.model import (
    NOT_THIS_API,
    ApiModel,
    Conversation,
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    TellChars,
    estimated_usage,
)

if TYPE_CHECKING:
    import httpx2

OPENAI_URL = "https://api.openai.com/v1"
OpenAIApi: TypeAlias = Literal["chat", "responses"]

# Retries as in the SDKs of OpenAI and Anthropic: at most two, and no longer wait than a minute.
_RETRY_SECONDS = (0.5, 1.0)
_MAX_RETRY_AFTER_SECONDS = 60.0
_BUSY = (408, 409, 429)


@dataclass(slots=True)
class _Stream:
    """The events of an answer, put together.

    Attributes:
        texts: Pieces of the text.
        ending: Word of the API for the end of the answer. "" until it ends.
        usage: Usage as the API reports it.
        error: Error that the server reports inside the stream.
    """

    texts: list[str] = field(default_factory=list[str])
    ending: str = ""
    usage: JsonObject = field(default_factory=dict[str, Any])
    error: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIModel(ApiModel):
    """A model behind OpenAI's Chat Completions or Responses API, or a compatible server.

    Attributes:
        api: The API: "chat" or "responses".
    """

    base_url: str = OPENAI_URL
    api: OpenAIApi = "chat"

    @property
    def writer(self) -> str:
        """The name in receipts."""
        return "openai"

    @property
    def list_format(self) -> str:
        """The format of the conversations that the API takes."""
        return f"openai-{self.api}"

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """Return the answer to `prompt`, streamed. Cancellation closes the connection.

        Raises:
            PromptTooLongError: The prompt is too long for the model. Do not send it again.
            SummaryError: There is no answer.
        """
        client = await to_thread.run_sync(self._client)
        import httpx2

        take = _take_chat if self.api == "chat" else _take_responses
        stream = _Stream()
        async with client:
            try:
                response = await self._response(client, prompt)
                async with aclosing(response):
                    async for event in httpx2.EventSource(response):
                        if event.data == "[DONE]":
                            break
                        if text := take(json.loads(event.data), stream):
                            stream.texts.append(text)
                            await tell(len(text))
            except (httpx2.HTTPError, httpx2.StreamError, *NOT_THIS_API) as error:
                raise self.stream_error(error, "this API of OpenAI") from error
        if stream.error is not None:
            raise self.status_error(response.status_code, json.dumps(stream.error))
        text = "".join(stream.texts)
        usage = _usage_of(stream.usage) or estimated_usage(prompt, text)
        return self.answer(text, stream.ending, usage)

    def _client(self) -> "httpx2.AsyncClient":
        import httpx2

        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        # A redirect would send the conversation to an address that the user did not choose.
        return httpx2.AsyncClient(
            headers=headers, timeout=self.timeout_seconds, follow_redirects=False
        )

    async def _response(
        self, client: "httpx2.AsyncClient", prompt: ModelPrompt
    ) -> "httpx2.Response":
        """Return the open response to `prompt`, after retries."""
        import httpx2

        path = "chat/completions" if self.api == "chat" else "responses"
        url = f"{self.base_url.rstrip('/')}/{path}"
        waits_seconds = list(_RETRY_SECONDS)
        while True:
            request = client.build_request("POST", url, json=self._body(prompt))
            try:
                response = await client.send(request, stream=True)
            except httpx2.TransportError:
                if not waits_seconds:
                    raise
                await anyio.sleep(waits_seconds.pop(0))
                continue
            if response.is_success:
                return response
            async with aclosing(response):
                text = (await response.aread()).decode("utf-8", "replace")
            is_busy = response.status_code in _BUSY or response.status_code >= 500
            if not is_busy or not waits_seconds:
                raise self.status_error(response.status_code, text)
            await anyio.sleep(_wait_seconds(response, waits_seconds.pop(0)))

    def _body(self, prompt: ModelPrompt) -> JsonObject:
        limit_tokens = self.answer_tokens(prompt)
        given = prompt.conversation or Conversation((), 0, prompt.system)
        body: JsonObject = {"model": self.model, "stream": True}
        if given.tools:
            body |= {"tools": given.tools, "tool_choice": "none"}
        messages = [*given.messages, {"role": "user", "content": prompt.user}]
        if self.api == "responses":
            body |= {"instructions": given.system} if given.system else {}
            return {**body, "input": messages, "store": False, "max_output_tokens": limit_tokens}
        if given.system:
            messages.insert(0, {"role": "system", "content": given.system})
        # OpenAI's newer models refuse the old name, and Ollama knows only the old one.
        limit = "max_completion_tokens" if self.base_url == OPENAI_URL else "max_tokens"
        usage = {"stream_options": {"include_usage": True}}
        return {**body, **usage, "messages": messages, limit: limit_tokens}


def _wait_seconds(response: "httpx2.Response", seconds: float) -> float:
    """Return how long to wait before a retry: as the server asks, or else `seconds`."""
    try:
        asked_seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return seconds
    return asked_seconds if 0 < asked_seconds <= _MAX_RETRY_AFTER_SECONDS else seconds


def _take_chat(event: JsonObject, stream: _Stream) -> str:
    """Add an event of Chat Completions to `stream`, and return its text."""
    stream.error = event.get("error") or stream.error
    stream.usage = _object_in(event, "usage") or stream.usage
    for choice in event.get("choices") or ():
        delta = _object_in(choice, "delta")
        if stream.ending != "refusal":
            is_refusal = bool(delta.get("refusal"))
            stream.ending = "refusal" if is_refusal else choice.get("finish_reason") or ""
        return str(delta.get("content") or "")
    return ""


def _take_responses(event: JsonObject, stream: _Stream) -> str:
    """Add an event of Responses to `stream`, and return its text."""
    match event["type"]:
        case "response.output_text.delta":
            return str(event["delta"])
        case "response.refusal.delta":
            stream.ending = "refusal"
        case "error":
            stream.error = event
        case "response.completed" | "response.incomplete" | "response.failed":
            response = _object_in(event, "response")
            stream.error = response.get("error")
            stream.usage = _object_in(response, "usage")
            reason = _object_in(response, "incomplete_details").get("reason")
            calls = any(item["type"].endswith("_call") for item in response["output"])
            ending = "tool_calls" if calls else str(reason or response["status"])
            stream.ending = stream.ending or ending
        case _:
            pass
    return ""


def _object_in(value: JsonObject, key: str) -> JsonObject:
    inner = value.get(key)
    return inner if is_object(inner) else {}


def _usage_of(usage: JsonObject) -> ModelUsage | None:
    """Return the reported usage of either API, with the cost that OpenRouter reports, or None."""
    if not usage:
        return None
    inputs = usage.get("prompt_tokens", usage.get("input_tokens")) or 0
    outputs = usage.get("completion_tokens", usage.get("output_tokens")) or 0
    details = (_object_in(usage, f"{name}_tokens_details") for name in ("prompt", "input"))
    read = sum(detail.get("cached_tokens") or 0 for detail in details)
    return ModelUsage(1, inputs - read, outputs, read, cost_dollars=usage.get("cost"))
