# pyright: basic, reportMissingImports=false
"""OpenAI Agents: a filter of the items of each model call. The runner keeps the whole history.

from mcp_server_compaction.adapters.openai_agents import Compaction, input_filter
config = RunConfig(call_model_input_filter=input_filter(Compaction(context_window=200_000)))
result = await Runner.run(agent, items, run_config=config)

The filter does not see the provider's response. If the provider rejects a prompt as too long, the
run fails; call `await compaction.fit(items, mode="reactive")` before the next run.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from mcp_server_compaction.adapters.compaction import Compaction, Fitter, require

require(__name__, "openai-agents")

from agents.models.fake_id import FAKE_RESPONSES_ID  # noqa: E402
from agents.run import ModelInputData  # noqa: E402

__all__ = ["Compaction", "input_filter"]


def input_filter(compaction: Fitter) -> Callable[[Any], Awaitable[Any]]:
    """Return a function for `RunConfig.call_model_input_filter`."""

    async def fit(data: Any) -> Any:
        items = data.model_data.input
        has_fakes = any(item.get("id") == FAKE_RESPONSES_ID for item in items)
        items = await compaction.fit(items)
        if has_fakes:
            # For other APIs the framework gives all messages one ID. `fit` removes it, because IDs
            # must be unique, but the framework knows its own messages by it.
            items = [
                {"id": FAKE_RESPONSES_ID, **item} if item.get("type") == "message" else item
                for item in items
            ]
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    return fit
