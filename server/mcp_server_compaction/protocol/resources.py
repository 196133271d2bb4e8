"""Lists of resources and prompts, completion of session IDs, and subscriptions.

All texts for models and people, also those of the tools, are in `texts.toml`.
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import mcp_types as types
from context_compaction import QueryError
from mcp.shared.exceptions import MCPError

from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import unknown_name
from mcp_server_compaction.protocol.sessions import iso_time

if TYPE_CHECKING:
    from context_compaction import SessionInfo

OPTIONS_URI = "options://compact_messages"
POLICIES_URI = "policies://compact_messages"
# Page that a host with MCP Apps shows next to a reply. Both URIs name the same document.
APP_URIS = {
    "compact_messages": "ui://mcp-server-compaction/compaction",
    "search_transcript": "ui://mcp-server-compaction/search",
}
PAGE_SIZE = 25
JSON_TYPE = "application/json"
JSON_LINES_TYPE = "application/jsonl"
TEXT_TYPE = "text/plain"
# Claude Code passes only the first word, and shows the model the whole line next to the prompt.
_WHOLE_LINE = "(If <command-args> contains more words, treat all of them as my input.)"


async def list_resources(
    context: RequestContext, params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    """Handle `resources/list`: options and policies, then sessions, newest first."""
    cursor = params.cursor if params else None
    archive = await context.lifespan_context.archive()
    try:
        sessions, next_cursor = await archive.sessions(limit=PAGE_SIZE, cursor=cursor)
    except QueryError as error:
        raise QueryError(f"{error} Start again without a cursor.") from error
    first = [] if cursor else [types.Resource(**resource) for resource in texts()["resources"]]
    return types.ListResourcesResult(
        resources=[*first, *map(_session_resource, sessions)], next_cursor=next_cursor
    )


def _session_resource(session: "SessionInfo") -> types.Resource:
    last_time = iso_time(session.last_seconds)
    return types.Resource(
        uri=f"transcript://{session.session_id}",
        name=session.session_id,
        title=session.title or session.session_id,
        description=f"{session.message_count} messages, last active {last_time}",
        mime_type=JSON_TYPE,
    )


async def list_resource_templates(
    _context: RequestContext, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    """Handle `resources/templates/list`."""
    templates = [types.ResourceTemplate(**template) for template in texts()["templates"]]
    return types.ListResourceTemplatesResult(resource_templates=templates)


async def subscribe(
    context: RequestContext, params: types.SubscribeRequestParams
) -> types.EmptyResult:
    """Handle `resources/subscribe`, which clients with a handshake use."""
    context.lifespan_context.changes.subscribe(context.session, params.uri)
    return types.EmptyResult()


async def unsubscribe(
    context: RequestContext, params: types.UnsubscribeRequestParams
) -> types.EmptyResult:
    """Handle `resources/unsubscribe`, which clients with a handshake use."""
    context.lifespan_context.changes.unsubscribe(context.session, params.uri)
    return types.EmptyResult()


async def complete(
    context: RequestContext, params: types.CompleteRequestParams
) -> types.CompleteResult:
    """Handle `completion/complete`: session IDs that start with the typed text, newest first."""
    matches: list[str] = []
    if params.argument.name == "session_id":
        archive = await context.lifespan_context.archive()
        sessions, _ = await archive.sessions(limit=1_000)
        names = [session.session_id for session in sessions]
        matches = [name for name in names if name.startswith(params.argument.value)]
    values = matches[:100]  # The protocol allows at most 100 values.
    has_more = len(matches) > len(values)
    return types.CompleteResult(
        completion=types.Completion(values=values, total=len(matches), has_more=has_more)
    )


async def list_prompts(
    _context: RequestContext, _params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    """Handle `prompts/list`."""
    prompts = [
        types.Prompt(
            name=name,
            title=prompt["title"],
            description=prompt["description"],
            arguments=[types.PromptArgument(**prompt["argument"])],
        )
        for name, prompt in texts()["prompts"].items()
    ]
    return types.ListPromptsResult(prompts=prompts)


async def get_prompt(
    _context: RequestContext, params: types.GetPromptRequestParams
) -> types.GetPromptResult:
    """Handle `prompts/get`."""
    prompts: dict[str, Any] = texts()["prompts"]
    prompt = prompts.get(params.name)
    if prompt is None:
        raise MCPError(types.INVALID_PARAMS, unknown_name("prompt", params.name, prompts))
    argument, values = prompt["argument"]["name"], params.arguments or {}
    for name in values:
        if name != argument:
            raise MCPError(types.INVALID_PARAMS, unknown_name("argument", name, [argument]))
    value = values.get(argument, "")
    if prompt["argument"]["required"] and not value:
        raise MCPError(
            types.INVALID_PARAMS, f"The prompt {params.name} needs the argument {argument}."
        )
    text = prompt["text"].format(
        question=value,
        focus=f" and instructions={value!r}" if value else "",
        whole_line=f"{_WHOLE_LINE} " if value else "",
    )
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=prompt["description"], messages=[message])


@cache
def texts() -> dict[str, Any]:
    """Return the content of `texts.toml`, by section."""
    return tomllib.loads(
        files("mcp_server_compaction.protocol").joinpath("texts.toml").read_text("utf-8")
    )
