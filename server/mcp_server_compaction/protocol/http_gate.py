"""The gate of the HTTP service: which host is asked for, who asks, and how often.

Whoever passes it has a tenant's whole archive, so it is shut from the first start. Limits keep one
caller that misbehaves from shutting out the others.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from context_compaction.errors import CompactionError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_server_compaction.access.audit import Refusals
from mcp_server_compaction.access.oauth import KeysUnreachableError
from mcp_server_compaction.access.principal import LOCAL_USER, Principal, caller
from mcp_server_compaction.access.rates import Rates
from mcp_server_compaction.access.verifying import Verifier

# Twice what a process answers of 64 agents with lists of 50,000 tokens: work is not held up, but
# a flood of requests that ask for little is.
REQUESTS_PER_SECOND = 400
PROBES = frozenset({"/healthz", "/readyz"})
# For whoever meets a limit, or an archive that is away, where nothing says it better.
RETRY_SECONDS = 5

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Names:
    """What the service may be called.

    Attributes:
        hosts: The values of Host, each with its port; None for a Unix socket, where no browser
            gets to.
        origins: The pages that may ask.
        how: How to come in, for whoever shows no token.
        is_probed_by_any: Whether whoever watches over the service may ask by any name, as by its
            address within a cluster; what it learns is nothing.
        metadata_url: Where OAuth clients learn whose tokens are taken.
        scheme: What callers use where a proxy stands before it, "https"; None where none does.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str] = frozenset()
    how: str = "Authorization: Bearer …"
    is_probed_by_any: bool = False
    metadata_url: str | None = None
    scheme: str | None = None


class Gate:
    """Lets a request in that asks for this host, from a page of it or from no page.

    Callers of the protocol must show their token here. The viewer's pages see to that themselves,
    since people show it once.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Names,
        verifier: Verifier | None,
        guarded: Collection[str] = (),
    ) -> None:
        """`verifier` tells whom a token stands for; `guarded` are the paths that want one."""
        self._app = app
        self._names = names
        self._verifier = verifier
        self._guarded = tuple(guarded)
        self._rates = Rates(REQUESTS_PER_SECOND)
        self._refusals = Refusals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = self._noted(scope, send)
        refusal = self._wrong_name(headers, scope["path"])
        principal: Principal | None = LOCAL_USER
        if refusal is None and self._verifier is not None and self._is_guarded(scope["path"]):
            try:
                principal = await self._verifier.verify(bearer_token(headers))
            except (CompactionError, KeysUnreachableError) as error:
                # Where the archive lies is nobody's business who has shown nothing yet.
                _logger.warning("A token could not be looked up: %s", error)
                refusal = refused(503, "Your token cannot be looked up now. Call again.")
            if principal is None or principal.is_browser:
                refusal = self._unknown_caller()
        if refusal is None and principal is not None:
            size_bytes = _length(headers)
            if not await self._rates.taken(principal.tenant, size_bytes):
                said = f"More than {REQUESTS_PER_SECOND} requests a second. Call again."
                refusal = refused(429, said, {"Retry-After": "1"})
        if refusal is not None:
            await refusal(scope, receive, send)
        elif principal is not None:
            reset = caller.set(principal)
            try:
                shown = {
                    "user": _user(principal),
                    "scheme": self._names.scheme or scope["scheme"],
                    # No event is kept to be sent again, and the SDK then gives no answer at all.
                    "headers": [pair for pair in scope["headers"] if pair[0] != b"last-event-id"],
                }
                await self._app({**scope, **shown}, self._counted(headers, receive), send)
            finally:
                caller.reset(reset)

    def _noted(self, scope: Scope, send: Send) -> Send:
        """`send`, with refusals logged, and told when to come again where it may help."""
        peer = str((scope.get("client") or ("",))[0])

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                if status in (401, 421):
                    self._refusals.log(f"{scope['method']} {scope['path']}", peer, status)
                elif status in (429, 503):
                    MutableHeaders(scope=message).setdefault("Retry-After", str(RETRY_SECONDS))
            await send(message)

        return send_noted

    def _counted(self, headers: Headers, receive: Receive) -> Receive:
        """`receive`, with the bytes counted that no Content-Length announced."""
        if "content-length" in headers:
            return receive
        tenant = caller.get().tenant

        async def receive_counted() -> Message:
            message = await receive()
            if size_bytes := len(message.get("body", b"")):
                await self._rates.came_in(tenant, size_bytes)
            return message

        return receive_counted

    def _is_guarded(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in self._guarded)

    def _wrong_name(self, headers: Headers, path: str) -> PlainTextResponse | None:
        if self._names.hosts is None or (path in PROBES and self._names.is_probed_by_any):
            return None
        host, origin = ", ".join(headers.getlist("host")), headers.get("origin")
        if host.lower() not in self._names.hosts:
            known = "the address that it names at its start (a team's service: its --public-url)"
            return refused(421, f"This server is not {host[:100]!r}. Call it by {known}.")
        if origin is not None and origin.lower() not in self._names.origins:
            return refused(403, f"Pages of {origin[:100]!r} may not call this server.")
        return None

    def _unknown_caller(self) -> PlainTextResponse:
        where = self._names.metadata_url
        challenge = "Bearer" if where is None else f'Bearer resource_metadata="{where}"'
        said = f"Send a token that is good here: {self._names.how}"
        return refused(401, said, {"WWW-Authenticate": challenge})


def bearer_token(headers: Headers) -> str:
    """The token that a request shows; "" where it shows none."""
    scheme, _, shown = headers.get("authorization", "").partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else ""


def _user(principal: Principal) -> AuthenticatedUser:
    """The caller for the SDK, which lets nobody else go on in a session of the handshake era."""
    named = f"{principal.tenant}/{principal.user}"
    claims = {"iss": principal.issuer} if principal.issuer else None
    scopes = [str(scope) for scope in sorted(principal.scopes)]
    return AuthenticatedUser(
        AccessToken(token="", client_id=named, scopes=scopes, subject=named, claims=claims)
    )


def _length(headers: Headers) -> int:
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 16 else 0


def refused(status: int, why: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    """An answer in one plain sentence."""
    return PlainTextResponse(why, status_code=status, headers=headers)
