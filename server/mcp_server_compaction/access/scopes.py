"""What a caller's token must allow, request by request of the protocol."""

from collections.abc import Mapping
from typing import Any

from context_compaction import is_object
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from mcp_server_compaction.access.audit import audit
from mcp_server_compaction.access.principal import Scope, caller

# Everything else tells nothing of any conversation.
_TOOLS: dict[str, Scope] = {
    "compact_messages": "write",
    "persist_large_output": "write",
    "read_persisted_output": "read",
    "search_transcript": "read",
}
_METHODS: dict[str, Scope] = {
    "completion/complete": "read",
    "prompts/get": "read",
    "resources/list": "read",
    "resources/read": "read",
    "resources/subscribe": "read",
    "subscriptions/listen": "read",
}
# What a request may be about, for the audit log.
_TARGETS = ("output_id", "query", "session_id", "uri")


async def allow(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answer only what the caller's token allows, and log what was read.

    Raises:
        MCPError: It lacks the scope.
    """
    params = ctx.params or {}
    name = str(params.get("name", "")) if ctx.method == "tools/call" else ctx.method
    scope = _TOOLS.get(name) or _METHODS.get(name)
    if scope is not None and scope not in caller.get().scopes:
        audit(name, _target(params), "refused")
        raise MCPError(
            INVALID_REQUEST,
            f"This token does not allow {name}: it lacks the scope {scope!r}. Ask whoever gave it "
            "for one that has it.",
        )
    answered = await call_next(ctx)
    if scope == "read":
        audit(name, _target(params))
    return answered


def _target(params: Mapping[str, Any]) -> str:
    arguments = params.get("arguments")
    given: Mapping[str, Any] = arguments if is_object(arguments) else params
    return next((str(given[name]) for name in _TARGETS if given.get(name)), "")
