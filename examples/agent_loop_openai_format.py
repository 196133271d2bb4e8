"""An agent loop with messages in OpenAI's Chat format, over plain HTTP.

    python examples/agent_loop_openai_format.py

A scripted model on loopback answers. With OPENAI_BASE_URL (such as http://localhost:11434/v1) and
OPENAI_MODEL any server of that format works. OPENAI_API_KEY is its key, if it requires one.
"""

import json
import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio
from compactor import RECALL_TOOLS, Compactor, Json, server_command
from demo_project import FOLLOW_UP, TASK, TOOL_NAMES, TOOLS, run_tool
from httpx2 import AsyncClient
from mcp import Client
from scripted_model import ScriptedModel, demo_script, serve

SYSTEM = "You are a careful engineer. Read what you need; quote exactly."
MODEL = os.environ.get("OPENAI_MODEL", "gpt-5")
# Small, so that this short conversation has to be compacted.
CONTEXT_WINDOW = 12_000
TIMEOUT_SECONDS = 120


class Agent:
    """One conversation: its messages, its model and its tools."""

    def __init__(self, model: AsyncClient, compactor: Compactor, tools: Sequence[Json]) -> None:
        self._model = model
        self._compactor = compactor
        self._tools = tools
        self.messages: list[Json] = [{"role": "system", "content": SYSTEM}]
        self.results: list[str] = []

    async def ask(self, text: str) -> str:
        """One turn: let the model call tools until it answers."""
        print(f"\nUser: {text}")
        self.messages.append({"role": "user", "content": text})
        while True:
            self.messages, answer = await self._compactor.send(self.messages, self._post)
            self._compactor.learn(answer["usage"])
            reply = answer["choices"][0]["message"]
            self.messages.append(reply)
            calls: list[Json] = reply.get("tool_calls") or []
            if not calls:
                return reply["content"]
            for call in calls:
                result = await self._run(call["function"])
                self.messages.append({
                    "role": "tool",
                    "tool_call_id": call["id"],
                    "content": result,
                })

    async def _post(self, messages: list[Json]) -> Json:
        body = {"model": MODEL, "messages": messages, "tools": self._tools}
        response = await self._model.post("chat/completions", json=body)
        if response.status_code != 200:
            raise RuntimeError(
                f"The model's server returned {response.status_code}: {response.text}"
            )
        return response.json()

    async def _run(self, function: Json) -> str:
        name, arguments = function["name"], json.loads(function["arguments"])
        print(f"     calls {name} {arguments}")
        if name in TOOL_NAMES:
            result = run_tool(name, arguments)
        else:
            result = await self._compactor.call_tool(name, arguments)
        self.results.append(result)
        return result


@contextmanager
def model_address() -> Generator[str]:
    """Yield the address in OPENAI_BASE_URL, or of a scripted model."""
    if base_url := os.environ.get("OPENAI_BASE_URL"):
        yield base_url
        return
    with serve(ScriptedModel(demo_script())) as address:
        yield f"{address}/v1"


def _tool(name: str, description: str, schema: Json) -> Json:
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


async def main() -> None:
    """Run two turns, then read an archived output."""
    key = os.environ.get("OPENAI_API_KEY", "none")
    with tempfile.TemporaryDirectory() as archive, model_address() as address:
        async with (
            Client(server_command(archive)) as client,
            AsyncClient(
                base_url=address,
                headers={"Authorization": f"Bearer {key}"},
                timeout=TIMEOUT_SECONDS,
            ) as model,
        ):
            offered = (await client.list_tools()).tools
            recall = [
                (tool.name, tool.description or "", tool.input_schema)
                for tool in offered
                if tool.name in RECALL_TOOLS
            ]
            tools = [_tool(*tool) for tool in (*TOOLS, *recall)]
            compactor = Compactor(client, model=MODEL, context_window=CONTEXT_WINDOW, tools=tools)
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
