"""Compaction for an agent program, with a line of output for each step."""

import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from context_compaction import is_prompt_too_long
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction.client import CompactionClient
from mcp_types import CallToolResult, TextContent

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

# Server tools for the model. The program itself calls `compact_messages`.
RECALL_TOOLS = frozenset({"read_persisted_output", "search_transcript"})
_OUTPUT_ID = re.compile(r"o_[0-9a-f]{24}")


def server_command(archive_folder: str) -> StdioServerParameters:
    """Return the command that starts the server as a child process."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_server_compaction", "--archive", archive_folder]
    )


class Compactor:
    """A `CompactionClient` for one conversation, which prints each step.

    Args:
        client: Client connected to the server.
        model: Name of the model, which determines the tokenizer.
        context_window: Window of the model in tokens.
        tools: Tool definitions of the request. They only count toward the window.
        system: System prompt, if it is not in the message list. It only counts toward the window.
    """

    def __init__(
        self,
        client: Client,
        *,
        model: str,
        context_window: int,
        tools: Sequence[Json],
        system: str | None = None,
    ) -> None:
        self._client = client
        options = {"model": model, "tools": list(tools), "system": system}
        self._compaction = CompactionClient(client, context_window=context_window, options=options)
        self._output_id: str | None = None

    async def send(
        self, messages: list[Json], request: Callable[[list[Json]], Awaitable[T]]
    ) -> tuple[list[Json], T]:
        """Fit the list and send it; send a smaller list if the provider rejects it."""

        async def show(fitted: list[Json]) -> T:
            _print_answer(self._compaction.answer)
            # Keep the first pointer, because a later summary may omit it.
            match = _OUTPUT_ID.search(json.dumps(fitted))
            self._output_id = self._output_id or (match and match.group())
            try:
                return await request(fitted)
            except Exception as error:
                if is_prompt_too_long(error):
                    print("The provider rejected the prompt as too long.")
                raise

        return await self._compaction.send(messages, show)

    def learn(self, usage: Json) -> None:
        """Use the provider's token count of the last request for the next estimate."""
        self._compaction.learn(usage)

    async def call_tool(self, name: str, arguments: Json) -> str:
        """Call a tool of the server and return its text, which may be an error."""
        return "\n".join(_texts(await self._client.call_tool(name, arguments)))

    async def first_archived_output(self) -> tuple[str, str] | None:
        """Return the first output ID in a compacted list, and its full text."""
        if self._output_id is None:
            return None
        arguments = {"output_id": self._output_id}
        result = await self._client.call_tool("read_persisted_output", arguments)
        return self._output_id, _texts(result)[0]


def _texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def _print_answer(answer: Json) -> None:
    tokens = answer["tokens"]
    line = f"{tokens['before']:6,} tokens: {answer['status']}"
    if answer["changed"]:
        layers = ", ".join(layer["name"] for layer in answer["layers"])
        line += f" to {answer['message_count']} messages, {tokens['after']:,} tokens by {layers}"
    print(line)
