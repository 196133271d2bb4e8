"""Clients, conversations and readers that the server's tests share."""

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.app import build_server
from mcp_types import CallToolResult, TextContent

Era: TypeAlias = Literal["modern", "legacy"]
Json: TypeAlias = dict[str, Any]

TIMEOUT_SECONDS = 150


@asynccontextmanager
async def connect(config: Config, era: Era = "modern", **options: Any) -> AsyncGenerator[Client]:
    """Yield a client of a server in this process, with a time limit."""
    mode = "legacy" if era == "legacy" else "auto"
    with anyio.fail_after(TIMEOUT_SECONDS):
        async with Client(build_server(config), mode=mode, **options) as client:
            yield client


@asynccontextmanager
async def spawned(environment: dict[str, str]) -> AsyncGenerator[Client]:
    """Yield a client of a separate server process, with a time limit."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_server_compaction"], env=environment
    )
    with anyio.fail_after(150):
        async with Client(server, mode="legacy") as client:
            yield client


def text_of(result: CallToolResult, block: int = 0) -> str:
    """Return the text of a content block."""
    content = result.content[block]
    assert isinstance(content, TextContent)
    return content.text


def error_of(result: CallToolResult) -> str:
    """Return the text of a failed call."""
    assert result.is_error, text_of(result)
    return text_of(result)


def answer_of(result: CallToolResult) -> Json:
    """Return the structured content of a successful call."""
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return result.structured_content


def conversation(calls: int = 12, result_lines: int = 120) -> list[Json]:
    """Return an Anthropic conversation of one long task with `calls` tool calls."""
    messages: list[Json] = [{"role": "user", "content": "Find out why the checkout test fails."}]
    for number in range(calls):
        messages.append({
            "role": "assistant",
            "content": [
                {"type": "text", "text": f"I look at module {number}."},
                {
                    "type": "tool_use",
                    "id": f"call_{number}",
                    "name": "Bash",
                    "input": {"command": f"cat src/module_{number}.py"},
                },
            ],
        })
        messages.append({
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": f"call_{number}",
                    "content": output(number, result_lines),
                }
            ],
        })
    messages.append({"role": "assistant", "content": "The test fails because of a timeout."})
    messages.append({"role": "user", "content": "Now mend it."})
    return messages


def output(number: int = 0, lines: int = 120) -> str:
    """Return the text of a tool result with distinct lines and names."""
    return "\n".join(
        f"line {line} of module_{number}: value_{number}_{line} = compute({line * 7 + number})"
        for line in range(1, lines + 1)
    )


def parsed(result: CallToolResult) -> Json:
    """Return the JSON in the text block of a reply."""
    return json.loads(text_of(result))


class Sampler:
    """A client's model that responds by a script and records its requests."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.asked: list[types.CreateMessageRequestParams] = []
        self._answer = answer

    async def __call__(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        self.asked.append(params)
        content = params.messages[0].content
        assert isinstance(content, types.TextContent)
        answer = self._answer(content.text)
        if not isinstance(answer, str):
            return answer
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=answer),
            model="a model",
            stop_reason="endTurn",
        )
