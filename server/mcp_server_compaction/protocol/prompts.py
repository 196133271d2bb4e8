"""Prompts that a person picks in the host: archive the conversation, or search the archive."""

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from mcp_server_compaction.protocol.arguments import unknown_name
from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.texts import texts

# Claude Code passes only the first word, and shows the model the whole line next to the prompt.
_WHOLE_LINE = "(If <command-args> contains more words, treat all of them as my input.)"


async def list_prompts(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListPromptsResult:
    """Handle `prompts/list`."""
    prompts = [
        Prompt(
            name=name,
            title=prompt["title"],
            description=prompt["description"],
            arguments=[PromptArgument(**prompt["argument"])],
        )
        for name, prompt in texts()["prompts"].items()
    ]
    return ListPromptsResult(prompts=prompts)


async def get_prompt(_context: RequestContext, params: GetPromptRequestParams) -> GetPromptResult:
    """Handle `prompts/get`."""
    prompts: dict[str, Any] = texts()["prompts"]
    prompt = prompts.get(params.name)
    if prompt is None:
        raise MCPError(INVALID_PARAMS, unknown_name("prompt", params.name, prompts))
    argument, values = prompt["argument"]["name"], params.arguments or {}
    for name in values:
        if name != argument:
            raise MCPError(INVALID_PARAMS, unknown_name("argument", name, [argument]))
    value = values.get(argument, "")
    if prompt["argument"]["required"] and not value:
        raise MCPError(INVALID_PARAMS, f"The prompt {params.name} needs the argument {argument}.")
    text = prompt["text"].format(
        question=value,
        focus=f" and instructions={value!r}" if value else "",
        whole_line=f"{_WHOLE_LINE} " if value else "",
    )
    message = PromptMessage(role="user", content=TextContent(type="text", text=text))
    return GetPromptResult(description=prompt["description"], messages=[message])
