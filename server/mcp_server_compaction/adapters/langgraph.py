# pyright: basic, reportMissingImports=false
"""LangGraph: the node that calls the model. The state keeps the whole history.

from mcp_server_compaction.adapters.langgraph import Compaction, model_node
compaction = Compaction(context_window=200_000)  # bind compaction.tools to the model as well
graph.add_node("model", model_node(model, compaction))
"""

from typing import Any

from mcp_server_compaction.adapters.compaction import Compaction, Fitter, blocking, require

require(__name__, "langgraph")

from langchain_core.messages import convert_to_messages, convert_to_openai_messages  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

__all__ = ["Compaction", "model_node"]


def model_node(model: Any, compaction: Fitter) -> Any:
    """Return a node that fits the state's messages and sends them to the model."""

    async def call(state: Any) -> Any:
        async def request(fitted: Any) -> Any:
            return await model.ainvoke(convert_to_messages(fitted))

        _, reply = await compaction.send(convert_to_openai_messages(state["messages"]), request)
        return {"messages": [reply]}

    return RunnableLambda(lambda state: blocking(lambda: call(state)), call)
