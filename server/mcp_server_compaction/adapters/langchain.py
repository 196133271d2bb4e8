# pyright: basic, reportMissingImports=false
"""LangChain: a middleware of `create_agent`, which also gives the model the two archive tools.

from mcp_server_compaction.adapters.langchain import CompactionMiddleware
agent = create_agent(model, tools, middleware=[CompactionMiddleware(context_window=200_000)])
"""

from typing import Any

from context_compaction import is_prompt_too_long

from mcp_server_compaction.adapters.compaction import Compaction, Fitter, blocking, require

require(__name__, "langchain")

from langchain.agents.middleware import AgentMiddleware  # noqa: E402
from langchain_core.messages import convert_to_messages, convert_to_openai_messages  # noqa: E402
from langchain_core.tools import StructuredTool  # noqa: E402


class CompactionMiddleware(AgentMiddleware):  # type: ignore[misc]  # LangChain is optional
    """Sends a list that fits to the model; the agent's state keeps the whole history.

    Args:
        compaction: Makes messages fit; None for a new `Compaction` with `options`.
        options: See `Compaction`.
    """

    def __init__(self, compaction: Fitter | None = None, **options: Any) -> None:
        super().__init__()
        self._compaction = compaction or Compaction(**options)
        functions = getattr(self._compaction, "tools", ())
        self.tools = [StructuredTool.from_function(coroutine=one) for one in functions]

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Fit the list and send it; send a smaller list if it is rejected."""

        async def send(fitted: Any) -> Any:
            return await handler(request.override(messages=convert_to_messages(fitted)))

        history = convert_to_openai_messages(request.messages)
        return (await self._compaction.send(history, send))[1]

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Do the same for an agent that is called without `await`."""
        history = convert_to_openai_messages(request.messages)
        fitted = blocking(lambda: self._compaction.fit(history))
        try:
            return handler(request.override(messages=convert_to_messages(fitted)))
        except Exception as error:
            if not is_prompt_too_long(error):
                raise
        fitted = blocking(lambda: self._compaction.fit(fitted, mode="reactive"))
        return handler(request.override(messages=convert_to_messages(fitted)))
