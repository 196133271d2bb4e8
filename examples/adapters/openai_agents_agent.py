# pyright: basic, reportMissingImports=false
"""OpenAI Agents: a filter fits the items of each model call; the runner keeps the whole history.

The filter does not see the provider's response. If the provider rejects a prompt as too long, the
run fails; call `await compaction.fit(items, mode="reactive")` before the next run.

    pip install openai-agents
    python examples/adapters/openai_agents_agent.py
"""

import anyio
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from mcp_server_compaction.adapters.openai_agents import input_filter
from openai import AsyncOpenAI
from setting import MAX_STEPS, MODEL, QUESTIONS, opened, report


async def main() -> None:
    """Ask two questions in one conversation."""
    async with opened(rejected_request=0) as setting:
        client = AsyncOpenAI(base_url=setting.model_url, api_key="none", max_retries=0)
        model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        agent = Agent(name="reader", model=model, tools=[*map(function_tool, setting.tools)])
        run_config = RunConfig(
            call_model_input_filter=input_filter(setting.compaction), tracing_disabled=True
        )
        items: list = []
        for question in QUESTIONS:
            items.append({"role": "user", "content": question})
            result = await Runner.run(agent, items, run_config=run_config, max_turns=MAX_STEPS)
            items = result.to_input_list()
            print(f"Model: {result.final_output}")
        report(setting)


if __name__ == "__main__":
    anyio.run(main)
