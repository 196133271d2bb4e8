# pyright: basic, reportMissingImports=false
"""LangGraph: the state keeps the whole history, and the model receives a list that fits.

pip install langgraph langchain-openai
python examples/adapters/langgraph_agent.py
"""

import anyio
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from mcp_server_compaction.adapters.langgraph import model_node
from setting import MAX_STEPS, MODEL, QUESTIONS, opened, report


async def main() -> None:
    """Ask two questions in one conversation."""
    async with opened() as setting:
        model = ChatOpenAI(model=MODEL, base_url=setting.model_url, api_key="none", max_retries=0)
        graph = StateGraph(MessagesState)
        graph.add_node("model", model_node(model.bind_tools(setting.tools), setting.compaction))
        graph.add_node("tools", ToolNode(setting.tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        app, messages = graph.compile(), []
        for question in QUESTIONS:
            state = {"messages": [*messages, ("user", question)]}
            state = await app.ainvoke(state, {"recursion_limit": MAX_STEPS})
            messages = state["messages"]
            print(f"Model: {messages[-1].text}")
        report(setting)


if __name__ == "__main__":
    anyio.run(main)
