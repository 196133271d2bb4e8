# pyright: basic, reportMissingImports=false
"""Pydantic AI: a transport fits each request, because the framework has its own message format.

The transport works for every httpx2 client that posts `messages`, such as the clients of OpenAI and
Anthropic.

    pip install 'pydantic-ai-slim[openai]'
    python examples/adapters/pydantic_ai_agent.py
"""

import anyio
from mcp_server_compaction.adapters.pydantic_ai import fitting_client
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from setting import MODEL, QUESTIONS, opened, report


async def main() -> None:
    """Ask two questions in one conversation."""
    async with opened() as setting:
        async with fitting_client(setting.compaction) as http_client:
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
