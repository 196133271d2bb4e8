"""An agent loop with Anthropic's SDK that compacts its messages over MCP before each model call.

    python examples/agent_loop_anthropic.py

Without ANTHROPIC_API_KEY a scripted model on loopback answers, and no network is used. With a key
the real API answers.
"""

import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import anyio
from anthropic import AsyncAnthropic
from anthropic.types import Message, MessageParam, ToolParam
from compactor import RECALL_TOOLS, Compactor, Json, server_command
from demo_project import FOLLOW_UP, TASK, TOOL_NAMES, TOOLS, run_tool
from mcp import Client
from scripted_model import ScriptedModel, demo_script, serve

SYSTEM = "You are a careful engineer. Read what you need; quote exactly."
MODEL = "claude-sonnet-5"
# The window is small because this conversation is short.
CONTEXT_WINDOW = 16_000


class Agent:
    """One conversation: its messages, its model and its tools."""

    def __init__(self, model: AsyncAnthropic, compactor: Compactor, tools: Sequence[Json]) -> None:
        self._model = model
        self._compactor = compactor
        self._tools = tools
        self.messages: list[Json] = []
        self.results: list[str] = []

    async def ask(self, text: str) -> str:
        """Run one turn: let the model call tools until it answers."""
        print(f"\nUser: {text}")
        self.messages.append({"role": "user", "content": text})
        while True:
            self.messages, reply = await self._compactor.send(self.messages, self._create)
            self._compactor.learn(reply.usage.to_dict())
            self.messages.append({
                "role": "assistant",
                "content": [block.to_dict() for block in reply.content],
            })
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": await self._run(block)}
                for block in reply.content
                if block.type == "tool_use"
            ]
            if not results:
                return "".join(block.text for block in reply.content if block.type == "text")
            self.messages.append({"role": "user", "content": results})

    async def _create(self, messages: list[Json]) -> Message:
        return await self._model.messages.create(
            model=MODEL,
            max_tokens=1_024,
            system=SYSTEM,
            tools=cast("list[ToolParam]", self._tools),
            messages=cast("list[MessageParam]", messages),
        )

    async def _run(self, call: Any) -> str:
        print(f"     calls {call.name} {call.input}")
        if call.name in TOOL_NAMES:
            result = run_tool(call.name, call.input)
        else:
            result = await self._compactor.call_tool(call.name, call.input)
        self.results.append(result)
        return result


@contextmanager
def connect_model() -> Generator[AsyncAnthropic]:
    """Yield a client for the real API if there is a key, otherwise for a scripted model."""
    if os.environ.get("ANTHROPIC_API_KEY"):
        yield AsyncAnthropic()
        return
    with serve(ScriptedModel(demo_script())) as address:
        yield AsyncAnthropic(base_url=address, api_key="none")


async def main() -> None:
    """Run two turns, then read an archived output."""
    with tempfile.TemporaryDirectory() as archive, connect_model() as model:
        async with Client(server_command(archive)) as client, model:
            offered = (await client.list_tools()).tools
            recall = [
                (tool.name, tool.description or "", tool.input_schema)
                for tool in offered
                if tool.name in RECALL_TOOLS
            ]
            tools = [
                {"name": name, "description": description, "input_schema": schema}
                for name, description, schema in (*TOOLS, *recall)
            ]
            compactor = Compactor(
                client, model=MODEL, context_window=CONTEXT_WINDOW, tools=tools, system=SYSTEM
            )
            agent = Agent(model, compactor, tools)
            for question in (TASK, FOLLOW_UP):
                print(f"Model: {await agent.ask(question)}")
            archived = await compactor.first_archived_output()
            if archived is not None:
                output_id, text = archived
                same = "exactly" if text in agent.results else "NOT"
                print(f"\n{output_id} is {same} the text of a tool result.")


if __name__ == "__main__":
    anyio.run(main)
