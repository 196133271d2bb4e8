"""The viewer as an ASGI application: addresses of the pages, and access control.

Programs send an access token. Browsers send a cookie that was issued for a token: a separate,
short-lived token that opens only these pages, because browsers send cookies to every port of a
host. A request that is not admitted gets only the login page, before its address is read.
"""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

from context_compaction import Archive, CompactionError, host_folders
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from mcp_server_compaction.access.access_tokens import StoredTokens, Verify, create_cookie
from mcp_server_compaction.access.oauth import KeysUnreachableError
from mcp_server_compaction.access.principal import LOCAL_USER, Principal, Scope, audit, caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.session_imports import SessionImports
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.protocol.http_gate import bearer_token
from mcp_server_compaction.viewer import compactions, context_now, sessions, storage, web
from mcp_server_compaction.viewer.web import LongPages

PAGES: tuple[tuple[str, str, web.Handler], ...] = (
    ("GET", "/", sessions.session_list),
    ("GET", "/sessions/{session_id}", sessions.session),
    ("GET", "/sessions/{session_id}/messages/{start:int}-{stop:int}", sessions.messages),
    ("GET", "/sessions/{session_id}/messages/{seq:int}/{block:int}", sessions.block),
    ("GET", "/sessions/{session_id}/files", sessions.files),
    ("GET", "/sessions/{session_id}/files/{path:path}", sessions.file),
    ("GET", "/restore", sessions.restored),
    ("GET", "/sessions/{session_id}/branches", sessions.branches),
    ("GET", "/sessions/{session_id}/compactions", compactions.compaction_list),
    ("GET", "/sessions/{session_id}/compactions/{number}", compactions.compaction),
    ("POST", "/sessions/{session_id}/compactions/{number:int}/undo", compactions.undo),
    ("POST", "/sessions/{session_id}/put-back", compactions.undo),
    ("GET", "/sessions/{session_id}/undone", compactions.undone),
    ("GET", "/sessions/{session_id}/context", context_now.context_now),
    ("GET", "/sessions/{session_id}/export", storage.export),
    ("GET", "/sessions/{session_id}/download", storage.download),
    ("GET", "/sessions/{session_id}/delete", storage.confirm_delete),
    ("POST", "/sessions/{session_id}/delete", storage.delete),
    ("POST", "/sessions/{session_id}/protect", storage.protect),
    ("GET", "/outputs/{output_id}", sessions.output),
    ("GET", "/search", sessions.search),
    ("GET", "/storage", storage.usage),
    ("GET", "/storage/prune", storage.plan),
    ("POST", "/storage/prune", storage.prune),
)


class Access:
    """Access control by tokens and cookies.

    Args:
        verify: Checks tokens. None admits every caller (on a Unix socket).
        archive: Returns the archive, which stores the cookies.
    """

    def __init__(self, verify: Verify | None, archive: Callable[[], Awaitable[Archive]]) -> None:
        self._verify = verify
        self._archive = archive
        self._cookies = StoredTokens(archive)
        self._entry_keys: set[str] = set()

    def new_entry(self) -> str:
        """Create a key that admits one browser of this machine's user, one time."""
        key = secrets.token_urlsafe()
        self._entry_keys.add(key)
        return key

    async def enter(self, key: str) -> str | None:
        """Exchange an entry key for a cookie. None if the key is wrong or was used before."""
        if key not in self._entry_keys:
            return None
        self._entry_keys.remove(key)
        return await create_cookie(await self._archive(), LOCAL_USER)

    async def log_in(self, token: str) -> str | None:
        """Exchange an access token for a cookie. None if the token is wrong."""
        principal = None if self._verify is None else await self._verify(token)
        if principal is None:
            return None
        return await create_cookie(await principal.own_archive(await self._archive()), principal)

    async def caller(self, request: Request) -> Principal | None:
        """Return the caller, or None if the request has no valid token or cookie."""
        if self._verify is None:
            return LOCAL_USER
        if token := bearer_token(request.headers):
            return await self._verify(token)
        return await self._cookies.verify(request.cookies.get(_cookie_name(request), ""))

    def has_safe_origin(self, request: Request) -> bool:
        """Whether no other site can have caused a request that changes something.

        A change with a cookie must come from a page of the viewer. Browsers report the origin, and
        pages cannot forge it. No browser sends a token by itself.
        """
        headers = request.headers
        if request.method in ("GET", "HEAD", "OPTIONS") or bearer_token(headers):
            return True
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site == "same-origin"
        return headers.get("origin") == f"{request.url.scheme}://{headers.get('host', '')}"


def _cookie_name(request: Request) -> str:
    """Return a cookie name that contains the port, because several viewers may run on a host."""
    return f"mcp-compaction-{request.url.port or 80}"


def _set_cookie(response: Response, request: Request, cookie: str) -> None:
    """Set the cookie in the browser until the browser is closed."""
    response.set_cookie(
        _cookie_name(request),
        cookie,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


def viewer_app(config: Config, access: Access, archives: LazyArchive) -> Starlette:
    """Build the application with all pages.

    Args:
        config: Settings of the process.
        access: Access control.
        archives: Opens the archive; the application closes it.
    """
    pages = LongPages()

    def endpoint(handler: web.Handler) -> Callable[[Request], object]:
        async def page_of(request: Request) -> Response:
            try:
                archive = await caller.get().own_archive(await archives.get())
                page = await handler(web.PageRequest(request, archive, config))
            except CompactionError as error:
                page = web.error_page(error)
            response = page if isinstance(page, Response) else web.render(request, page)
            name = f"{request.method} {handler.__qualname__}"
            audit(name, request.url.path, str(response.status_code))
            return response

        async def respond(request: Request) -> Response:
            return await pages.respond(request, partial(page_of, request))

        return respond

    async def enter(request: Request) -> Response:
        cookie = await access.enter(request.path_params["key"])
        if cookie is None:
            return web.render(request, _login("This address was used before or is wrong."))
        # A page instead of a redirect, because some browsers do not send a cookie that was set by
        # a redirect to its target.
        response = web.render(request, web.Page("entered.html", {"entered": True}))
        _set_cookie(response, request, cookie)
        return response

    async def log_in(request: Request) -> Response:
        form = await web.PageRequest(request, await archives.get(), config).form()
        cookie = await access.log_in(form.get("token", "").strip())
        if cookie is None:
            return web.render(request, _login("This token is wrong."))
        response = RedirectResponse("/", 303)
        _set_cookie(response, request, cookie)
        return response

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        # A server for a team does not read the folders of the user who runs it.
        folders = host_folders(Path.home()) if config.imports_sessions else ()
        imports = SessionImports(config.archive_folder, folders, archives.get)
        async with archives.running(), pages.running() as background:
            # The session list reloads as often.
            background.start_soon(imports.catch_up_every, 15)
            yield

    routes = [
        *(
            Route(path, endpoint(handler), methods=[method], name=handler.__qualname__)
            for method, path, handler in PAGES
        ),
        Route("/enter/{key}", enter),
        Route("/login", log_in, methods=["POST"]),
        Route("/healthz", PlainTextResponse("ok")),
        Route("/static/{name}", _static_file),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_exception_handler(404, _not_found)
    app.add_exception_handler(405, _not_found)
    app.add_exception_handler(CompactionError, _failed)
    app.add_middleware(_AccessMiddleware, access=access)
    return app


class _AccessMiddleware:
    """Middleware that admits or refuses requests, and sets the headers of every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(web.HEADERS)
            await send(message)

        request = Request(scope, receive)
        admitted = await self._admit(request)
        if isinstance(admitted, web.Page):
            await web.render(request, admitted)(scope, receive, send_with_headers)
            return
        reset = caller.set(admitted)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            caller.reset(reset)

    async def _admit(self, request: Request) -> Principal | web.Page:
        """Return the caller, or the page that refuses the request."""
        path = request.url.path
        is_open = path in {"/healthz", "/login"} or path.startswith(("/static/", "/enter/"))
        if not self._access.has_safe_origin(request):
            return web.message_page(403, "Only a page of the viewer can send this request.")
        try:
            principal = LOCAL_USER if is_open else await self._access.caller(request)
        except (CompactionError, KeysUnreachableError) as error:
            return web.message_page(503, str(error))
        if principal is None:
            return _login("Enter an access token to see the archive.")
        scope: Scope = "read" if request.method in ("GET", "HEAD") else "admin"
        if path != "/login" and scope not in principal.scopes:
            return web.message_page(403, f"Your token does not have the scope {scope!r}.")
        return principal


def _login(message: str) -> web.Page:
    return web.Page("login.html", {"error": message}, status=401)


async def _not_found(request: Request, _: Exception) -> Response:
    return web.render(request, web.message_page(404, "This page does not exist."))


async def _failed(request: Request, error: Exception) -> Response:
    return web.render(request, web.error_page(cast("CompactionError", error)))


async def _static_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in web.STATIC_TYPES:
        return web.render(request, web.message_page(404, "This file does not exist."))
    return Response(web.static_text(name), media_type=web.STATIC_TYPES[name])
