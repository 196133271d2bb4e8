"""Bodies of HTTP requests: decoded once, and refused with a readable error.

The SDK decodes a body twice, on the event loop. With a list of 50,000 tokens that took a tenth of a
call under load. This middleware removes the message lists from the body, decodes large bodies in a
thread, and passes the lists to the tool.
"""

from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from context_compaction import JsonObject, is_list, is_object
from mcp.server.transport_security import RequestBodyLimitMiddleware
from pydantic_core import to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_server_compaction.protocol.stdio import Refusal, read_message

# A conversation of a million tokens is about 5 MB of JSON. The SDK's default limit is 4 MiB.
MAX_BODY_BYTES = 64 * 1024 * 1024
# About 250,000 tokens. A larger request may take a second, and must not delay the others: it is
# decoded in a thread, and it waits for other large requests.
LARGE_BODY_BYTES = 1024 * 1024
_LIST_ARGUMENTS = ("messages", "new_messages")
LISTS = "mcp_server_compaction.lists"  # key in the scope of a request


@dataclass(frozen=True, slots=True)
class Lists:
    """The message lists that were removed from a tool call.

    Attributes:
        arguments: The lists, by name of the argument.
        body_bytes: Size of the whole body.
    """

    arguments: JsonObject
    body_bytes: int


def json_bodies(app: ASGIApp) -> ASGIApp:
    """Return `app` behind a middleware that limits and decodes the bodies of requests."""

    async def decoded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        if Headers(scope=scope).get("content-encoding", "identity") != "identity":
            refusal = PlainTextResponse("Send the body without a Content-Encoding.", 415)
            await refusal(scope, receive, send)
            return
        message = await receive()
        if message["type"] != "http.request":
            return  # The caller is gone.
        body: bytes = message["body"]
        if len(body) <= LARGE_BODY_BYTES:
            result = _without_lists(body)
        else:
            result = await to_thread.run_sync(_without_lists, body)
        if isinstance(result, Refusal):
            error = result.error.model_dump_json(exclude_unset=True)
            await Response(error, 400, media_type="application/json")(scope, receive, send)
            return
        rest, lists = result
        scope = {**scope, "headers": [*scope["headers"]], LISTS: Lists(lists, len(body))}
        MutableHeaders(scope=scope)["content-length"] = str(len(rest))
        messages: list[Message] = [{"type": "http.request", "body": rest, "more_body": False}]

        async def receive_rest() -> Message:
            return messages.pop() if messages else await receive()

        await app(scope, receive_rest, send)

    return RequestBodyLimitMiddleware(decoded, MAX_BODY_BYTES)


def lists_of(request: Any) -> Lists:
    """Return the lists of an HTTP request. On stdio (None) the call itself contains them."""
    lists: Lists | None = None if request is None else request.scope.get(LISTS)
    return lists or Lists({}, 0)


def _without_lists(body: bytes) -> tuple[bytes, JsonObject] | Refusal:
    """Return a body without the message lists of its tool call, and these lists by argument."""
    message = read_message(body)
    if isinstance(message, Refusal):
        return message
    params = message.get("params")
    arguments = params.get("arguments") if is_object(params) else None
    lists: JsonObject = {}
    if is_object(arguments) and message.get("method") == "tools/call":
        names = [name for name in _LIST_ARGUMENTS if is_list(arguments.get(name))]
        lists = {name: arguments.pop(name) for name in names}
    return to_json(message), lists
