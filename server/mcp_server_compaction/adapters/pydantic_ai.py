"""Pydantic AI: an HTTP client that fits each request, because the framework has its own messages.

from mcp_server_compaction.adapters.pydantic_ai import fitting_client
provider = OpenAIProvider(http_client=fitting_client(context_window=200_000))
agent = Agent(OpenAIChatModel("gpt-5", provider=provider), tools=tools)

The client works with every SDK that takes an httpx2 client and posts `messages` or `input`, such as
the SDKs of OpenAI and Anthropic.
"""

import json
from typing import Any

import httpx2
from context_compaction import is_list

from mcp_server_compaction.adapters.compaction import Compaction, Fitter, require

require(__name__, "pydantic-ai-slim")

# As in the SDKs of OpenAI and Anthropic.
_TIMEOUT = httpx2.Timeout(600, connect=5)


def fitting_client(compaction: Fitter | None = None, **options: Any) -> httpx2.AsyncClient:
    """Return a client for the SDK of a provider.

    Args:
        compaction: Makes messages fit; None for a new `Compaction` with `options`.
        options: See `Compaction`.
    """
    transport = _FittingTransport(compaction or Compaction(**options))
    return httpx2.AsyncClient(transport=transport, timeout=_TIMEOUT)


class _RejectedError(Exception):
    """The provider returned 400. The SDK raises its own error for it."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response.text)
        self.response = response


class _FittingTransport(httpx2.AsyncHTTPTransport):
    """Fits the messages of a conversation before each request."""

    def __init__(self, compaction: Fitter) -> None:
        super().__init__()
        self._compaction = compaction

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Fit the list and send it; send a smaller list if it is rejected."""
        data = await request.aread()
        body: Any = json.loads(data) if data[:1] == b"{" else {}
        field = next((name for name in ("messages", "input") if is_list(body.get(name))), None)
        if field is None:
            return await super().handle_async_request(request)

        async def post(messages: list[Any]) -> httpx2.Response:
            headers = {k: v for k, v in request.headers.items() if k != "content-length"}
            fitted = httpx2.Request(
                request.method, request.url, headers=headers, json={**body, field: messages}
            )
            response = await super(_FittingTransport, self).handle_async_request(fitted)
            if response.status_code == 400:
                await response.aread()
                raise _RejectedError(response)
            return response

        try:
            return (await self._compaction.send(body[field], post))[1]
        except _RejectedError as error:
            return error.response
