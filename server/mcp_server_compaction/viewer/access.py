"""Who may look: a program shows the token, and a browser a cookie that it got for it.

The cookie is not the token: browsers show cookies to every port of a host. It is made anew by each
process, is good for these pages alone, and never for what changes something without a look at where
the request comes from.
"""

import hmac
import secrets
from collections import OrderedDict

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

_KEY_BYTES = 32
# Whoever has the token may ask for many; the oldest browser has to show it again.
_MAX_BROWSERS = 100
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Access:
    """Who has shown the token. Without one (a Unix socket), whoever gets here may look."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self._browsers: OrderedDict[str, None] = OrderedDict()
        self._entries: set[str] = set()

    def new_entry(self) -> str:
        """A key that lets one browser in, once: unlike the token, it may stand in an address."""
        key = secrets.token_urlsafe(_KEY_BYTES)
        self._entries.add(key)
        return key

    def enter(self, key: str) -> str | None:
        """The cookie for a key, which is used up; None for a wrong one."""
        if key not in self._entries:
            return None
        self._entries.remove(key)
        return self._new_browser()

    def log_in(self, token: str) -> str | None:
        """The cookie for the token; None for a wrong one."""
        return self._new_browser() if self._is_token(token) else None

    def has_token(self, headers: Headers) -> bool:
        """Whether the request itself shows the token: no browser sends that unasked."""
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._is_token(shown.strip())

    def admits(self, request: Request) -> bool:
        """Whether the request may be answered."""
        if self._token is None or self.has_token(request.headers):
            return True
        return request.cookies.get(cookie_name(request), "") in self._browsers

    def may_change(self, request: Request) -> bool:
        """Whether a request that was let in may also change something.

        One with a cookie must come from a page of ours: browsers say so, and pages cannot.
        """
        headers = request.headers
        if request.method in _SAFE or self.has_token(headers):
            return True
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site == "same-origin"
        return headers.get("origin") == f"{request.url.scheme}://{headers.get('host', '')}"

    def _is_token(self, shown: str) -> bool:
        return self._token is not None and hmac.compare_digest(
            shown.encode("utf-8", "surrogateescape"), self._token.encode("ascii")
        )

    def _new_browser(self) -> str:
        cookie = secrets.token_urlsafe(_KEY_BYTES)
        self._browsers[cookie] = None
        if len(self._browsers) > _MAX_BROWSERS:
            self._browsers.popitem(last=False)
        return cookie


def cookie_name(request: Request) -> str:
    """Cookies know no ports, and several viewers may run."""
    return f"mcp-compaction-{request.url.port or 80}"


def give_cookie(response: Response, request: Request, cookie: str) -> None:
    """Have the browser show `cookie` from now on, until it is closed."""
    response.set_cookie(cookie_name(request), cookie, httponly=True, samesite="strict", path="/")
