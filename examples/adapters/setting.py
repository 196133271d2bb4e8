"""Shared setup of the adapters: a scripted model, the server, and tools of a small project."""

import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction.client import CompactionClient
from mcp_types import TextContent

sys.path.append(str(Path(__file__).parents[1]))

from demo_project import FOLLOW_UP, TASK, run_tool
from scripted_model import ScriptedModel, demo_script, serve

QUESTIONS = (TASK, FOLLOW_UP)
MODEL = "gpt-5"
MAX_STEPS = 60


@dataclass(frozen=True)
class Setting:
    """Setup of one example.

    Attributes:
        model_url: Address of the scripted model.
        compaction: Client for the conversation.
        tools: Four tools for the model.
        call_log: One entry per call of the server: "all" or "new" messages, and the status.
    """

    model_url: str
    compaction: CompactionClient
    tools: tuple[Callable[..., Awaitable[str]], ...]
    call_log: list[str]


@asynccontextmanager
async def opened(rejected_request: int = 4) -> AsyncGenerator[Setting]:
    """Start a scripted model on loopback, and the server as a child process.

    Args:
        rejected_request: Number of the request that the model rejects as too long, from 1; 0
            rejects none.
    """
    model = ScriptedModel(demo_script(), rejected_request)
    with tempfile.TemporaryDirectory() as archive, serve(model) as url:
        arguments = ["-m", "mcp_server_compaction", "--archive", archive]
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            call_log: list[str] = []

            async def call_tool(name: str, arguments: dict[str, object]) -> object:
                result = await client.call_tool(name, arguments)
                answer: dict[str, object] = result.structured_content or {"status": "rejected"}
                call_log.append(f"{'all' if 'messages' in arguments else 'new'} {answer['status']}")
                return result

            # The window is small because this conversation is short.
            compaction = CompactionClient(call_tool, context_window=12_000)
            yield Setting(f"{url}/v1", compaction, _tools(client), call_log)


def _tools(client: Client) -> tuple[Callable[..., Awaitable[str]], ...]:
    async def text_of(name: str, arguments: dict[str, object]) -> str:
        result = await client.call_tool(name, arguments)
        return "\n".join(block.text for block in result.content if isinstance(block, TextContent))

    async def list_files() -> str:
        """List the project's files."""
        return run_tool("list_files", {})

    async def read_file(path: str) -> str:
        """Read one file."""
        return run_tool("read_file", {"path": path})

    async def search_transcript(query: str, limit: int = 5) -> str:
        """Search messages that left the context."""
        return await text_of("search_transcript", {"query": query, "limit": limit})

    async def read_persisted_output(output_id: str, pattern: str = "") -> str:
        """Read the text at a pointer; with a pattern, only matching lines."""
        given = {"output_id": output_id, "pattern": pattern}
        return await text_of("read_persisted_output", {k: v for k, v in given.items() if v})

    return list_files, read_file, search_transcript, read_persisted_output


def report(setting: Setting) -> None:
    """Print how many calls the server received, and their results."""
    calls = setting.call_log
    print(
        f"{len(calls)} calls: {sum(call.startswith('all') for call in calls)} with the whole list, "
        f"{sum(call.endswith('compacted') for call in calls)} compacted"
    )
