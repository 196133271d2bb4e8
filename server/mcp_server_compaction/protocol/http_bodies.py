"""The bodies of requests to the protocol: JSON that is read once, and refused in our own words.

The SDK decodes a body twice, on the event loop: of a list of 50,000 tokens that took a tenth of a
loaded call. So the message list is decoded here, large ones in a thread, and handed to its tool.
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

# A conversation of a million tokens is about 5 MB of JSON; the SDK's default is 4 MiB.
MAX_BODY_BYTES = 64 * 1024 * 1024
# Up to here a body is decoded faster than a thread begins to.
_SMALL_BODY_BYTES = 256 * 1024
_LIST_ARGUMENTS = ("messages", "new_messages")
LISTS = "mcp_server_compaction.lists"  # where a request's scope holds them


@dataclass(frozen=True, slots=True)
class Lists:
    """The message lists of a tool call, by the name of the argument, and the size of the body."""

    arguments: JsonObject
    body_bytes: int


def json_bodies(app: ASGIApp) -> ASGIApp:
    """`app`, given whole bodies that are messages of the protocol, without their message lists."""
    return RequestBodyLimitMiddleware(_JsonBodies(app), MAX_BODY_BYTES)


def arguments_of(request: Any, given: JsonObject) -> JsonObject:
    """The arguments of a tool's call, with the lists of its HTTP request; None on stdio."""
    lists: Lists | None = None if request is None else request.scope.get(LISTS)
    return given if lists is None else given | lists.arguments


def size_of(request: Any) -> int:
    """How many bytes the body of a request had; 0 on stdio."""
    lists: Lists | None = None if request is None else request.scope.get(LISTS)
    return 0 if lists is None else lists.body_bytes


class _JsonBodies:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if Headers(scope=scope).get("content-encoding", "identity") != "identity":
            refusal = PlainTextResponse("Send the body as it is: no packed body is read.", 415)
            await refusal(scope, receive, send)
            return
        message = await receive()
        if message["type"] != "http.request":
            await PlainTextResponse("The body did not arrive.", 408)(scope, receive, send)
            return
        body: bytes = message["body"]
        if len(body) <= _SMALL_BODY_BYTES:
            found = _taken_apart(body)
        else:
            found = await to_thread.run_sync(_taken_apart, body)
        if isinstance(found, Refusal):
            said = found.error.model_dump_json(exclude_unset=True)
            await Response(said, 400, media_type="application/json")(scope, receive, send)
            return
        rest, lists = found
        scope = {**scope, "headers": [*scope["headers"]], LISTS: Lists(lists, len(body))}
        MutableHeaders(scope=scope)["content-length"] = str(len(rest))
        held: list[Message] = [{"type": "http.request", "body": rest, "more_body": False}]

        async def receive_rest() -> Message:
            return held.pop() if held else await receive()

        await self._app(scope, receive_rest, send)


def _taken_apart(body: bytes) -> tuple[bytes, JsonObject] | Refusal:
    """A body without the message lists of a tool call, and these by the name of the argument."""
    message = read_message(body)
    if isinstance(message, Refusal):
        return message
    params = message.get("params")
    given = params.get("arguments") if is_object(params) else None
    lists: JsonObject = {}
    if is_object(given) and message.get("method") == "tools/call":
        lists = {name: given.pop(name) for name in _LIST_ARGUMENTS if is_list(given.get(name))}
    return to_json(message), lists
