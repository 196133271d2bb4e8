"""What the adapters share: a scripted model, the server, and the tools of a small project."""

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
MOST_STEPS = 60


@dataclass(frozen=True)
class Setting:
    """Where the model is, the conversation's compaction, and four tools for the model."""

    model_url: str
    compaction: CompactionClient
    tools: tuple[Callable[..., Awaitable[str]], ...]
    compacted: list[str]


@asynccontextmanager
async def opened(refused_request: int = 4) -> AsyncGenerator[Setting]:
    """A scripted model on loopback, and the server as a process of its own.

    Args:
        refused_request: The request that the model refuses as too long; from 1, and 0 for none.
    """
    model = ScriptedModel(demo_script(), refused_request)
    with tempfile.TemporaryDirectory() as archive, serve(model) as url:
        arguments = ["-m", "mcp_server_compaction", "--archive", archive]
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            compacted: list[str] = []

            async def call_tool(name: str, arguments: dict[str, object]) -> object:
                result = await client.call_tool(name, arguments)
                answer: dict[str, object] = result.structured_content or {"status": "refused"}
                compacted.append(
                    f"{'all' if 'messages' in arguments else 'new'} {answer['status']}"
                )
                return result

            # Small, so that this short conversation has to be compacted.
            compaction = CompactionClient(call_tool, context_window=12_000)
            yield Setting(f"{url}/v1", compaction, _tools(client), compacted)


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
        """Search what has left the context."""
        return await text_of("search_transcript", {"query": query, "limit": limit})

    async def read_persisted_output(output_id: str, pattern: str = "") -> str:
        """Read what a pointer names; with a pattern, the lines that match."""
        wanted = {"output_id": output_id, "pattern": pattern}
        return await text_of("read_persisted_output", {k: v for k, v in wanted.items() if v})

    return list_files, read_file, search_transcript, read_persisted_output


def report(setting: Setting) -> None:
    """What travelled to the server, and what came of it."""
    calls = setting.compacted
    print(
        f"{len(calls)} calls: {sum(call.startswith('all') for call in calls)} with the whole list, "
        f"{sum(call.endswith('compacted') for call in calls)} compacted"
    )
