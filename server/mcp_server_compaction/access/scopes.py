"""Scopes that the requests of the protocol need."""

from collections.abc import Mapping
from typing import Any

from context_compaction import is_object
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from mcp_server_compaction.access.audit import audit
from mcp_server_compaction.access.principal import Scope, caller

# Scopes of tools and methods. Other requests reveal nothing about a conversation.
_SCOPES: dict[str, Scope] = {
    "compact_messages": "write",
    "persist_large_output": "write",
    "read_persisted_output": "read",
    "search_transcript": "read",
    "completion/complete": "read",
    "prompts/get": "read",
    "resources/list": "read",
    "resources/read": "read",
    "resources/subscribe": "read",
    "subscriptions/listen": "read",
}
# Parameters that the audit log shows as the target of a request.
_TARGETS = ("output_id", "query", "session_id", "uri")


async def check_scope(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Refuse a request that the caller's token does not allow, and log reading requests.

    Raises:
        MCPError: The token lacks the scope.
    """
    params = ctx.params or {}
    name = str(params.get("name", "")) if ctx.method == "tools/call" else ctx.method
    scope = _SCOPES.get(name)
    if scope is not None and scope not in caller.get().scopes:
        audit(name, _target(params), "refused")
        raise MCPError(
            INVALID_REQUEST,
            f"Your access token does not allow {name}, because it lacks the scope {scope!r}. Ask "
            "the operator of this server for a token that has it.",
        )
    result = await call_next(ctx)
    if scope == "read":
        audit(name, _target(params))
    return result


def _target(params: Mapping[str, Any]) -> str:
    arguments = params.get("arguments")
    values: Mapping[str, Any] = arguments if is_object(arguments) else params
    return next((str(values[name]) for name in _TARGETS if values.get(name)), "")
