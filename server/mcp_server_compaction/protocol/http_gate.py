"""Gate of the HTTP service: checks Host, Origin and access token, and limits the rate.

A caller that passes the gate can read the whole archive of a tenant, so the gate is closed by
default. The limits keep one misbehaving caller from blocking the others.

Behind the gate, bodies are decoded once, and refused with a readable error. The SDK decodes a body
twice, on the event loop. With a list of 50,000 tokens that took a tenth of a call under load. So a
middleware removes the message lists from the body, decodes large bodies in a thread, and passes the
lists to the tool.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from aiolimiter import AsyncLimiter
from anyio import to_thread
from cachetools import LRUCache
from context_compaction import CompactionError, JsonObject, is_list, is_object
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import RequestBodyLimitMiddleware
from pydantic_core import to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_server_compaction.access.access_tokens import Verify
from mcp_server_compaction.access.oauth import KeysUnreachableError
from mcp_server_compaction.access.principal import LOCAL_USER, Principal, audit_refusal, caller
from mcp_server_compaction.protocol.deps import LARGE_BODY_BYTES, LISTS, Lists
from mcp_server_compaction.protocol.stdio import Refusal, read_message

# Twice the rate that a process reaches for 64 agents with lists of 50,000 tokens. It stops a flood
# of cheap requests, but no real work.
REQUESTS_PER_SECOND = 400
# Maximum number of lines in the audit log in a minute for callers without a valid token, so that
# they cannot fill the disk.
REFUSALS_PER_MINUTE = 60
PROBES = frozenset({"/healthz", "/readyz"})

_logger = logging.getLogger(__name__)
# A conversation of a million tokens is about 5 MB of JSON. The SDK's default limit is 4 MiB.
MAX_BODY_BYTES = 64 * 1024 * 1024
_LIST_ARGUMENTS = ("messages", "new_messages")


@dataclass(frozen=True, slots=True)
class Names:
    """Names under which the service is called.

    Attributes:
        hosts: Accepted values of the header Host, with ports. None for a Unix socket, which no
            browser can reach.
        origins: Accepted values of the header Origin.
        header_help: How to pass a token, for callers without one.
        allows_any_probe: Whether probes may use any Host, for example an address in a cluster. The
            responses contain nothing from a conversation.
        metadata_url: Address of the metadata for OAuth clients.
        scheme: Scheme that callers use if a proxy is in front, "https". None without a proxy.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str] = frozenset()
    header_help: str = "Authorization: Bearer …"
    allows_any_probe: bool = False
    metadata_url: str | None = None
    scheme: str | None = None

    def refusal(self, scope: Scope) -> PlainTextResponse | None:
        """Return a refusal of the request's Host or Origin. None if both are accepted."""
        if self.hosts is None or (scope["path"] in PROBES and self.allows_any_probe):
            return None
        headers = Headers(scope=scope)
        host, origin = ", ".join(headers.getlist("host")), headers.get("origin")
        if host.lower() not in self.hosts:
            return PlainTextResponse(
                f"Wrong Host {host[:100]!r}. Use the address that the server printed at its start, "
                "or for a team's service the address in --public-url.",
                421,
            )
        if origin is not None and origin.lower() not in self.origins:
            return PlainTextResponse(f"Pages of {origin[:100]!r} may not call this server.", 403)
        return None


@dataclass(slots=True)
class Gate:
    """ASGI middleware that admits requests with the right Host, Origin and access token.

    It checks tokens for the guarded paths. The viewer's pages check their own tokens, because
    people pass a token once and then use a cookie.

    Attributes:
        app: Application that gets admitted requests.
        names: Accepted names of the service.
        verify: Check of access tokens. None to admit callers without a token.
        guarded: Paths that need a token.
    """

    app: ASGIApp
    names: Names
    verify: Verify | None
    guarded: Collection[str] = ()
    _limiters: LRUCache[str, AsyncLimiter] = field(default_factory=lambda: LRUCache(10_000))
    _refusals: AsyncLimiter = field(default_factory=lambda: AsyncLimiter(REFUSALS_PER_MINUTE, 60))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it to the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = self._logging_send(scope, send)
        result = self.names.refusal(scope) or await self._identify(scope)
        if isinstance(result, Principal) and not await self._is_within_rate(result.tenant):
            reason = f"More than {REQUESTS_PER_SECOND} requests in a second. Call again later."
            result = PlainTextResponse(reason, 429, {"Retry-After": "1"})
        if not isinstance(result, Principal):
            await result(scope, receive, send)
            return
        changes = {
            "user": _sdk_user(result),
            "scheme": self.names.scheme or scope["scheme"],
            # The server stores no events, and the SDK would not respond to this header at all.
            "headers": [pair for pair in scope["headers"] if pair[0] != b"last-event-id"],
        }
        reset = caller.set(result)
        try:
            await self.app({**scope, **changes}, receive, send)
        finally:
            caller.reset(reset)

    def _logging_send(self, scope: Scope, send: Send) -> Send:
        """Return `send` that logs refusals and adds Retry-After to temporary failures."""
        peer = str((scope.get("client") or ("",))[0])

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                if status in (401, 421) and self._refusals.has_capacity():
                    await self._refusals.acquire()
                    audit_refusal(f"{scope['method']} {scope['path']}", peer, status)
                elif status in (429, 503):
                    MutableHeaders(scope=message).setdefault("Retry-After", "5")
            await send(message)

        return send_logged

    async def _identify(self, scope: Scope) -> Principal | PlainTextResponse:
        """Return the caller, or a refusal if a guarded path is requested without a valid token."""
        path: str = scope["path"]
        is_guarded = any(path == name or path.startswith(f"{name}/") for name in self.guarded)
        if self.verify is None or not is_guarded:
            return LOCAL_USER
        try:
            principal = await self.verify(bearer_token(Headers(scope=scope)))
        except (CompactionError, KeysUnreachableError) as error:
            # The reason is only logged, because this caller must not learn where the archive is.
            _logger.warning("A token could not be checked: %s", error)
            return PlainTextResponse("Your token cannot be checked now. Call again later.", 503)
        if principal is not None and not principal.is_browser:
            return principal
        url = self.names.metadata_url
        challenge = "Bearer" if url is None else f'Bearer resource_metadata="{url}"'
        reason = f"Send a valid access token: {self.names.header_help}"
        return PlainTextResponse(reason, 401, {"WWW-Authenticate": challenge})

    async def _is_within_rate(self, tenant: str) -> bool:
        """Whether the tenant is within its rate. Counts this request."""
        limiter = self._limiters.get(tenant)
        if limiter is None:
            limiter = self._limiters[tenant] = AsyncLimiter(REQUESTS_PER_SECOND, 1)
        if not limiter.has_capacity():
            return False
        await limiter.acquire()
        return True


def bearer_token(headers: Headers) -> str:
    """Return the access token of a request. "" if it has none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _sdk_user(principal: Principal) -> AuthenticatedUser:
    """Return the caller in the SDK's form. The SDK ties a session with a handshake to its user."""
    name = f"{principal.tenant}/{principal.user}"
    claims = {"iss": principal.issuer} if principal.issuer else None
    scopes = [str(scope) for scope in sorted(principal.scopes)]
    return AuthenticatedUser(
        AccessToken(token="", client_id=name, scopes=scopes, subject=name, claims=claims)
    )


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
            return  # because the caller has disconnected
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
