# pyright: basic, reportMissingImports=false
"""Run each framework for 30 turns with its adapter and without: bytes sent, and prefixes kept.

Run: python benchmarks/adapters.py            (needs `pip install --group adapters`)

In each turn the user asks for a file of about 2,000 tokens, and a scripted model on loopback reads
it with a tool, in two requests. "Lines" are the user's lines in the documentation of the adapter.
The prefix is kept if the messages of a request begin with all messages of the request before, so
that the provider's prompt cache applies.
"""

import importlib.util
import itertools
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread
from typing import Any

import anyio

TURNS = 30
WINDOW = 60_000
FRAMEWORKS = {
    "langchain": "langchain",
    "langgraph": "langgraph",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai-slim",
}
Ask = Callable[[str], Awaitable[str]]


async def read_file(path: str) -> str:
    """Read one file."""
    return "\n".join(f"{path} line {number}: value_{number * 7}" for number in range(200))


@contextmanager
def scripted_model() -> Generator[tuple[str, list[bytes]]]:
    """Yield the address of a model that calls the tool after each question, and its requests."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(body)
            messages = json.loads(body)["messages"]
            message: dict[str, Any] = {"role": "assistant", "content": f"Answer {len(bodies)}."}
            if messages[-1]["role"] == "user":
                arguments = json.dumps({"path": f"src/file_{len(bodies)}.py"})
                function = {"name": "read_file", "arguments": arguments}
                call = {"id": f"call_{len(bodies)}", "type": "function", "function": function}
                message |= {"content": None, "tool_calls": [call]}
            finish = "tool_calls" if "tool_calls" in message else "stop"
            choice = {"index": 0, "message": message, "finish_reason": finish}
            answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-5"}
            data = json.dumps({**answer, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Print no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    server.shutdown()


def langchain(url: str, options: dict[str, Any] | None) -> Ask:
    from langchain.agents import create_agent
    from langchain_core.tools import StructuredTool
    from langchain_openai import ChatOpenAI

    middleware: list[Any] = []
    if options is not None:
        from mcp_server_compaction.adapters.langchain import CompactionMiddleware

        middleware = [CompactionMiddleware(**options)]
    model = ChatOpenAI(model="gpt-5", base_url=url, api_key="none")
    tools = [StructuredTool.from_function(coroutine=read_file)]
    return _graph(create_agent(model, tools, middleware=middleware))


def langgraph(url: str, options: dict[str, Any] | None) -> Ask:
    from langchain_core.tools import StructuredTool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    tools = [StructuredTool.from_function(coroutine=read_file)]
    model = ChatOpenAI(model="gpt-5", base_url=url, api_key="none").bind_tools(tools)

    async def plain(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    node: Any = plain
    if options is not None:
        from mcp_server_compaction.adapters.langgraph import Compaction, model_node

        node = model_node(model, Compaction(**options))
    graph = StateGraph(MessagesState)
    graph.add_node("model", node)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return _graph(graph.compile())


def _graph(agent: Any) -> Ask:
    messages: list[Any] = []

    async def ask(question: str) -> str:
        messages.append({"role": "user", "content": question})
        state = await agent.ainvoke({"messages": messages}, {"recursion_limit": 50})
        messages[:] = state["messages"]
        return str(messages[-1].text)

    return ask


def openai_agents(url: str, options: dict[str, Any] | None) -> Ask:
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=url, api_key="none")
    model = OpenAIChatCompletionsModel(model="gpt-5", openai_client=client)
    agent = Agent(name="reader", model=model, tools=[function_tool(read_file)])
    config = RunConfig(tracing_disabled=True)
    if options is not None:
        from mcp_server_compaction.adapters.openai_agents import Compaction, input_filter

        config.call_model_input_filter = input_filter(Compaction(**options))
    items: list[Any] = []

    async def ask(question: str) -> str:
        items.append({"role": "user", "content": question})
        result = await Runner.run(agent, items, run_config=config)
        items[:] = result.to_input_list()
        return str(result.final_output)

    return ask


def pydantic_ai(url: str, options: dict[str, Any] | None) -> Ask:
    import httpx2
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = httpx2.AsyncClient()
    if options is not None:
        from mcp_server_compaction.adapters.pydantic_ai import fitting_client

        client = fitting_client(**options)
    provider = OpenAIProvider(base_url=url, api_key="none", http_client=client)
    agent = Agent(OpenAIChatModel("gpt-5", provider=provider), tools=[read_file])
    history: list[Any] = []

    async def ask(question: str) -> str:
        result = await agent.run(question, message_history=history)
        history[:] = result.all_messages()
        return str(result.output)

    return ask


def run(name: str, options: dict[str, Any] | None) -> list[bytes]:
    """Return the bodies of the requests of a run of 30 turns."""

    async def turns() -> None:
        ask = globals()[name](url, options)
        for number in range(TURNS):
            answer = await ask(f"Question {number}: what does the next file contain?")
            if not answer.startswith("Answer"):
                raise SystemExit(f"{name} answered {answer!r}")

    with scripted_model() as (url, bodies):
        anyio.run(turns)
    return bodies


def kept_prefixes(bodies: list[bytes]) -> int:
    """Return the number of requests that begin with all messages of the request before."""
    lists = [json.loads(body)["messages"] for body in bodies]
    pairs = itertools.pairwise(lists)
    return sum(later[: len(earlier)] == earlier for earlier, later in pairs)


def user_lines(name: str) -> int:
    """Return the number of the user's lines in the documentation of an adapter."""
    text = importlib.import_module(f"mcp_server_compaction.adapters.{name}").__doc__ or ""
    return len(text.split("\n\n")[1].splitlines())


def main() -> None:
    """Print the table."""
    print("| framework | the user's lines | MB sent without | MB sent with | largest request "
          "without, KB | with, KB | prefix kept |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for name, distribution in FRAMEWORKS.items():
        if importlib.util.find_spec(name if name != "openai_agents" else "agents") is None:
            sys.stderr.write(f"{distribution} is not installed\n")
            continue
        plain = run(name, None)
        with tempfile.TemporaryDirectory() as archive:
            fitted = run(name, {"archive": archive, "context_window": WINDOW})
        kept = f"{kept_prefixes(fitted)} of {len(fitted) - 1}"
        sent = [sum(map(len, bodies)) / 1e6 for bodies in (plain, fitted)]
        most = [max(map(len, bodies)) / 1e3 for bodies in (plain, fitted)]
        print(
            f"| {distribution} {version(distribution)} | {user_lines(name)} | {sent[0]:.2f} | "
            f"{sent[1]:.2f} | {most[0]:.0f} | {most[1]:.0f} | {kept} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
