# pyright: basic, reportMissingImports=false
"""LangChain's `create_agent`: a middleware fits the messages of each model call.

pip install langchain langchain-openai
python examples/adapters/langchain_agent.py
"""

import anyio
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langchain_openai import ChatOpenAI
from mcp_server_compaction.client import CompactionClient
from setting import MAX_STEPS, MODEL, QUESTIONS, opened, report


# --8<-- [start:adapter]
class Fitting(AgentMiddleware):
    """Sends a list that fits to the model; the agent's state keeps the whole history."""

    def __init__(self, compaction: CompactionClient) -> None:
        super().__init__()
        self._compaction = compaction

    async def awrap_model_call(self, request, handler):
        """Fit the list and send it; send a smaller list if it is rejected."""

        async def send(fitted):
            return await handler(request.override(messages=convert_to_messages(fitted)))

        history = convert_to_openai_messages(request.messages)
        return (await self._compaction.send(history, send))[1]
        # --8<-- [end:adapter]


async def main() -> None:
    """Ask two questions in one conversation."""
    async with opened() as setting:
        model = ChatOpenAI(model=MODEL, base_url=setting.model_url, api_key="none", max_retries=0)
        agent = create_agent(model, setting.tools, middleware=[Fitting(setting.compaction)])
        messages: list = []
        for question in QUESTIONS:
            state = {"messages": [*messages, {"role": "user", "content": question}]}
            state = await agent.ainvoke(state, {"recursion_limit": MAX_STEPS})
            messages = state["messages"]
            print(f"Model: {messages[-1].text}")
        report(setting)


if __name__ == "__main__":
    anyio.run(main)
