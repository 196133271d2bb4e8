# pyright: basic, reportMissingImports=false
"""Pydantic AI: a transport fits each request, because the framework has its own message format.

The transport works for every httpx2 client that posts `messages`, such as the clients of OpenAI and
Anthropic.

    pip install 'pydantic-ai-slim[openai]'
    python examples/adapters/pydantic_ai_agent.py
"""

import json

import anyio
import httpx2
from mcp_server_compaction.client import CompactionClient
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from setting import MODEL, QUESTIONS, opened, report


# --8<-- [start:adapter]
class RejectedError(Exception):
    """The provider returned 400. The SDK raises its own error for it."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response.text)
        self.response = response


class FittingTransport(httpx2.AsyncHTTPTransport):
    """Fits the messages of one conversation before each request."""

    def __init__(self, compaction: CompactionClient) -> None:
        super().__init__()
        self._compaction = compaction

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Fit the list and send it; send a smaller list if it is rejected."""
        body = json.loads(await request.aread())

        async def post(messages: list[dict]) -> httpx2.Response:
            headers = {k: v for k, v in request.headers.items() if k != "content-length"}
            fitted = httpx2.Request(
                request.method, request.url, headers=headers, json={**body, "messages": messages}
            )
            response = await super(FittingTransport, self).handle_async_request(fitted)
            if response.status_code == 400:
                await response.aread()
                raise RejectedError(response)
            return response

        try:
            return (await self._compaction.send(body["messages"], post))[1]
        except RejectedError as error:
            return error.response
            # --8<-- [end:adapter]


async def main() -> None:
    """Ask two questions in one conversation."""
    async with opened() as setting:
        transport = FittingTransport(setting.compaction)
        async with httpx2.AsyncClient(transport=transport) as http_client:
            provider = OpenAIProvider(
                base_url=setting.model_url, api_key="none", http_client=http_client
            )
            agent = Agent(OpenAIChatModel(MODEL, provider=provider), tools=setting.tools)
            history: list = []
            for question in QUESTIONS:
                result = await agent.run(question, message_history=history)
                history = result.all_messages()
                print(f"Model: {result.output}")
        report(setting)


if __name__ == "__main__":
    anyio.run(main)
