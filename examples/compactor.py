"""What an agent program puts in front of its model calls: one object that keeps the list small."""

import json
import re
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent

Json: TypeAlias = dict[str, Any]

# The tools of the server that the model itself may call; compacting is the program's business.
RECALL_TOOLS = frozenset({"read_persisted_output", "search_transcript"})
_OUTPUT_ID = re.compile(r"o_[0-9a-f]{24}")


def server_command(archive_folder: str) -> StdioServerParameters:
    """The server as a process of its own; `mcp-server-compaction` alone does the same."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_server_compaction", "--archive", archive_folder]
    )


class Compactor:
    """Compacts one conversation over MCP, and remembers what the next call should know.

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
        self._context_window = context_window
        self._options: Json = {"model": model, "tools": list(tools), "system": system}
        self._usage: Json = {}
        self._session_id: str | None = None
        self._output_id: str | None = None

    async def fit(self, messages: list[Json], *, mode: str = "auto") -> list[Json]:
        """The list to send: the very same if it fits, else one that does.

        Raises:
            RuntimeError: The server refused the call; nothing was changed.
        """
        arguments: Json = {
            "messages": messages,
            "mode": mode,
            "context_window": self._context_window,
            "options": {**self._options, **self._usage},
        }
        if self._session_id is not None:
            arguments["session_id"] = self._session_id
        answer = _answer(await self._client.call_tool("compact_messages", arguments))
        self._session_id = answer["session_id"]
        _print_answer(answer, len(messages))
        if not answer["changed"]:
            return messages
        # The provider's figure belongs to the old list.
        self._usage = {}
        # A later summary may leave the pointer out; the output stays in the archive all the same.
        if self._output_id is None and (found := _OUTPUT_ID.search(json.dumps(answer["messages"]))):
            self._output_id = found.group()
        return answer["messages"]

    def learn(self, usage: Json, message_index: int) -> None:
        """Give the next call the provider's own count, for the answer at `message_index`."""
        self._usage = {"usage": usage, "usage_message_index": message_index}

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


def _answer(result: CallToolResult) -> Json:
    if result.is_error or result.structured_content is None:
        raise RuntimeError("\n".join(_texts(result)))
    return result.structured_content


def _texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def _print_answer(answer: Json, message_count: int) -> None:
    tokens = answer["tokens"]
    line = f"{message_count:3} messages, {tokens['before']:6,} tokens: {answer['status']}"
    if answer["changed"]:
        layers = ", ".join(layer["name"] for layer in answer["layers"])
        line += f" to {answer['message_count']} messages, {tokens['after']:,} tokens by {layers}"
    print(line)
