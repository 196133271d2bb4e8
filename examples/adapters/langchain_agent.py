# pyright: basic, reportMissingImports=false
"""LangChain's `create_agent`: a middleware fits the messages of each model call.

pip install langchain langchain-openai
python examples/adapters/langchain_agent.py
"""

import anyio
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from mcp_server_compaction.adapters.langchain import CompactionMiddleware
from setting import MAX_STEPS, MODEL, QUESTIONS, opened, report


async def main() -> None:
    """Ask two questions in one conversation."""
    async with opened() as setting:
        model = ChatOpenAI(model=MODEL, base_url=setting.model_url, api_key="none", max_retries=0)
        middleware = [CompactionMiddleware(setting.compaction)]
        agent = create_agent(model, setting.tools, middleware=middleware)
        messages: list = []
        for question in QUESTIONS:
            state = {"messages": [*messages, {"role": "user", "content": question}]}
            state = await agent.ainvoke(state, {"recursion_limit": MAX_STEPS})
            messages = state["messages"]
            print(f"Model: {messages[-1].text}")
        report(setting)


if __name__ == "__main__":
    anyio.run(main)
