"""What an agent program puts in front of its model calls, with prints of what happens."""

import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction.client import CompactionClient, says_too_long
from mcp_types import CallToolResult, TextContent

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

# The tools of the server that the model itself may call; compacting is the program's business.
RECALL_TOOLS = frozenset({"read_persisted_output", "search_transcript"})
_OUTPUT_ID = re.compile(r"o_[0-9a-f]{24}")


def server_command(archive_folder: str) -> StdioServerParameters:
    """The server as a process of its own; `mcp-server-compaction` alone does the same."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_server_compaction", "--archive", archive_folder]
    )


class Compactor:
    """One conversation's `CompactionClient`, which prints what happens and reads back.

    Args:
        client: Connected to the server.
        model: Name of the model, for its tokenizer.
        context_window: Tokens of its window.
        tools: The tool definitions, as the request carries them; only counted, as is ...
        system: ... the system prompt, where it stands beside the messages.
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
        """Make the list fit and send it; smaller once more, if the provider refuses it."""

        async def show(fitted: list[Json]) -> T:
            _print_answer(self._compaction.answer)
            # A later summary may leave the pointer out; the output stays in the archive.
            found = _OUTPUT_ID.search(json.dumps(fitted))
            self._output_id = self._output_id or (found and found.group())
            try:
                return await request(fitted)
            except Exception as error:
                if says_too_long(error):
                    print("The provider says that the prompt is too long.")
                raise

        return await self._compaction.send(messages, show)

    def learn(self, usage: Json) -> None:
        """Give the next call the provider's own count, of the request just answered."""
        self._compaction.learn(usage)

    async def call_tool(self, name: str, arguments: Json) -> str:
        """The text that a tool of the server answers; the model reads errors too."""
        return "\n".join(_texts(await self._client.call_tool(name, arguments)))

    async def read_back(self) -> tuple[str, str] | None:
        """The first output id that a compacted list named, and the whole text behind it."""
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
