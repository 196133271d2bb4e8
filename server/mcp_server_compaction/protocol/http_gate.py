"""The gate of the HTTP service: which host is asked for, who asks, how often and how slowly.

Whoever passes it has a tenant's whole archive, so it is shut from the first start. The limits keep
one caller that misbehaves from shutting out the others.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

import anyio
from aiolimiter import AsyncLimiter
from cachetools import LRUCache
from context_compaction import CompactionError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_server_compaction.access.access_tokens import Verifier
from mcp_server_compaction.access.audit import Refusals
from mcp_server_compaction.access.oauth import KeysUnreachableError
from mcp_server_compaction.access.principal import LOCAL_USER, Principal, caller

# Twice what a process answers of 64 agents with lists of 50,000 tokens: work is not held up, but
# a flood of requests that ask for little is.
REQUESTS_PER_SECOND = 400
# A request that has not arrived whole by then never will: callers are on this machine, or a proxy
# that has read the request is.
RECEIVE_SECONDS = 30.0
PROBES = frozenset({"/healthz", "/readyz"})

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
            address within a cluster; the answers say nothing about a conversation.
        metadata_url: Where OAuth clients learn whose tokens are accepted.
        scheme: What callers use where a proxy stands before it, "https"; None where none does.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str] = frozenset()
    how: str = "Authorization: Bearer …"
    is_probed_by_any: bool = False
    metadata_url: str | None = None
    scheme: str | None = None


class Gate:
    """Admits a request for this host, from a page of it or from no page.

    Callers of the protocol must show their token here. The viewer's pages check that themselves,
    since people show it once.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Names,
        verifier: Verifier | None,
        guarded: Collection[str] = (),
    ) -> None:
        """`verifier` says whom a token stands for; `guarded` are the paths that need one."""
        self._app = app
        self._names = names
        self._verifier = verifier
        self._guarded = tuple(guarded)
        self._limits: LRUCache[str, AsyncLimiter] = LRUCache(10_000)
        self._refusals = Refusals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = self._noted(scope, send)
        admitted = self._wrong_name(scope) or await self._identified(scope)
        if isinstance(admitted, Principal) and not await self._has_room(admitted.tenant):
            said = f"More than {REQUESTS_PER_SECOND} requests a second. Call again."
            admitted = refused(429, said, {"Retry-After": "1"})
        if not isinstance(admitted, Principal):
            await admitted(scope, receive, send)
            return
        shown = {
            "user": _user(admitted),
            "scheme": self._names.scheme or scope["scheme"],
            # No event is kept to be sent again, and the SDK then gives no answer at all.
            "headers": [pair for pair in scope["headers"] if pair[0] != b"last-event-id"],
        }
        reset = caller.set(admitted)
        try:
            await self._app({**scope, **shown}, _in_time(receive), send)
        finally:
            caller.reset(reset)

    def _noted(self, scope: Scope, send: Send) -> Send:
        """`send`, with refusals logged, and a time to call again where that may help."""
        peer = str((scope.get("client") or ("",))[0])

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                if status in (401, 421):
                    self._refusals.log(f"{scope['method']} {scope['path']}", peer, status)
                elif status in (429, 503):
                    MutableHeaders(scope=message).setdefault("Retry-After", "5")
            await send(message)

        return send_noted

    def _wrong_name(self, scope: Scope) -> PlainTextResponse | None:
        if self._names.hosts is None:
            return None
        if scope["path"] in PROBES and self._names.is_probed_by_any:
            return None
        headers = Headers(scope=scope)
        host, origin = ", ".join(headers.getlist("host")), headers.get("origin")
        if host.lower() not in self._names.hosts:
            known = "the address that it names at its start (a team's service: its --public-url)"
            return refused(421, f"This server is not {host[:100]!r}. Call it by {known}.")
        if origin is not None and origin.lower() not in self._names.origins:
            return refused(403, f"Pages of {origin[:100]!r} may not call this server.")
        return None

    async def _identified(self, scope: Scope) -> Principal | PlainTextResponse:
        path: str = scope["path"]
        is_guarded = any(path == one or path.startswith(f"{one}/") for one in self._guarded)
        if self._verifier is None or not is_guarded:
            return LOCAL_USER
        try:
            principal = await self._verifier.verify(bearer_token(Headers(scope=scope)))
        except (CompactionError, KeysUnreachableError) as error:
            # The caller has shown nothing yet, and may not learn where the archive is.
            _logger.warning("A token could not be looked up: %s", error)
            return refused(503, "Your token cannot be looked up now. Call again.")
        if principal is not None and not principal.is_browser:
            return principal
        where = self._names.metadata_url
        challenge = "Bearer" if where is None else f'Bearer resource_metadata="{where}"'
        said = f"Send a token that is good here: {self._names.how}"
        return refused(401, said, {"WWW-Authenticate": challenge})

    async def _has_room(self, tenant: str) -> bool:
        """Count a request of `tenant`; False where there were too many."""
        limit = self._limits.get(tenant)
        if limit is None:
            limit = self._limits[tenant] = AsyncLimiter(REQUESTS_PER_SECOND, 1)
        if not limit.has_capacity():
            return False
        await limit.acquire()
        return True


def _in_time(receive: Receive) -> Receive:
    """`receive`, which gives up on a request that does not arrive whole in time."""
    deadline = anyio.current_time() + RECEIVE_SECONDS
    is_whole = False

    async def receive_in_time() -> Message:
        nonlocal is_whole
        if is_whole:  # whoever asks now waits until the caller hangs up
            return await receive()
        with anyio.CancelScope(deadline=deadline):
            message = await receive()
            is_whole = not message.get("more_body", False)
            return message
        is_whole = True
        return {"type": "http.disconnect"}

    return receive_in_time


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


def refused(status: int, why: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    """An answer in one plain sentence."""
    return PlainTextResponse(why, status_code=status, headers=headers)
