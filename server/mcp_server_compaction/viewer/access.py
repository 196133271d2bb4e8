"""Access to the pages: a program presents a token, a browser a cookie issued for one.

The cookie is not that token: browsers send cookies to every port of a host. It is a short-lived
token of its own, good for these pages alone, and never for what changes something without a look at
where the request comes from.
"""

import secrets
from collections.abc import Awaitable, Callable

from context_compaction import Archive
from starlette.requests import Request
from starlette.responses import Response

from mcp_server_compaction.access.access_tokens import StoredTokens, Verifier, create_cookie
from mcp_server_compaction.access.principal import LOCAL_USER, Principal
from mcp_server_compaction.protocol.http_gate import bearer_token

_KEY_BYTES = 32
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Access:
    """Checks tokens and cookies. Without a verifier (a Unix socket), every caller is admitted."""

    def __init__(
        self, verifier: Verifier | None, archive: Callable[[], Awaitable[Archive]]
    ) -> None:
        self._verifier = verifier
        self._archive = archive
        self._cookies = StoredTokens(archive)
        self._entries: set[str] = set()

    def new_entry(self) -> str:
        """A key that lets one browser of this user in, once: it may stand in an address."""
        key = secrets.token_urlsafe(_KEY_BYTES)
        self._entries.add(key)
        return key

    async def enter(self, key: str) -> str | None:
        """The cookie for a key, which is used up; None for a wrong one."""
        if key not in self._entries:
            return None
        self._entries.remove(key)
        return await create_cookie(await self._archive(), LOCAL_USER)

    async def log_in(self, token: str) -> str | None:
        """The cookie for a token; None for a wrong one."""
        principal = None if self._verifier is None else await self._verifier.verify(token)
        if principal is None:
            return None
        return await create_cookie(
            await (await self._archive()).for_tenant(principal.tenant), principal
        )

    async def caller(self, request: Request) -> Principal | None:
        """The caller; None where the request has no valid token or cookie."""
        if self._verifier is None:
            return LOCAL_USER
        if token := bearer_token(request.headers):
            return await self._verifier.verify(token)
        return await self._cookies.verify(request.cookies.get(cookie_name(request), ""))

    def may_change(self, request: Request) -> bool:
        """Whether a request may change something, whoever sends it.

        One with a cookie must come from a page of ours: browsers report that, and pages cannot
        forge it. No browser sends a token unasked.
        """
        headers = request.headers
        if request.method in _SAFE or bearer_token(headers):
            return True
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site == "same-origin"
        return headers.get("origin") == f"{request.url.scheme}://{headers.get('host', '')}"


def cookie_name(request: Request) -> str:
    """Cookies know no ports, and several viewers may run."""
    return f"mcp-compaction-{request.url.port or 80}"


def give_cookie(response: Response, request: Request, cookie: str) -> None:
    """Set `cookie` in the browser, until it is closed."""
    response.set_cookie(
        cookie_name(request),
        cookie,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )
