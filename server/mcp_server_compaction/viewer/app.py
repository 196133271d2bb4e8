"""The viewer as an ASGI application: which page answers which address, and who may ask.

A program presents a token, a browser a cookie issued for one. The cookie is not that token:
browsers send cookies to every port of a host. It is a short-lived token of its own, good for these
pages alone, and never for what changes something without a look at where the request comes from. A
request that is not admitted gets only the way to log in; that is decided before its address is
read.
"""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from context_compaction import Archive, CompactionError, host_folders
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from mcp_server_compaction.access.access_tokens import StoredTokens, Verifier, create_cookie
from mcp_server_compaction.access.audit import audit
from mcp_server_compaction.access.oauth import KeysUnreachableError
from mcp_server_compaction.access.principal import LOCAL_USER, Principal, Scope, caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.session_imports import START_SECONDS, SessionImports
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.protocol.http_gate import bearer_token
from mcp_server_compaction.viewer import compactions, context_now, keeping, searching, sessions
from mcp_server_compaction.viewer.web import (
    HEADERS,
    STATIC_TYPES,
    Handler,
    Page,
    Visit,
    answer,
    failure,
    problem,
    redirect,
    static_text,
)

PAGES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", sessions.listing),
    ("GET", "/sessions/{session_id}", sessions.session),
    ("GET", "/sessions/{session_id}/messages/{start:int}-{stop:int}", sessions.messages),
    ("GET", "/sessions/{session_id}/messages/{seq:int}/{block:int}", sessions.block),
    ("GET", "/sessions/{session_id}/compactions", compactions.listing),
    ("GET", "/sessions/{session_id}/compactions/{number}", compactions.compaction),
    ("GET", "/sessions/{session_id}/branches", sessions.branches),
    ("GET", "/sessions/{session_id}/context", context_now.context_now),
    ("GET", "/sessions/{session_id}/keep", keeping.keep),
    ("GET", "/sessions/{session_id}/export", keeping.export),
    ("GET", "/sessions/{session_id}/delete", keeping.confirm_delete),
    ("POST", "/sessions/{session_id}/delete", keeping.delete),
    ("POST", "/sessions/{session_id}/retain", keeping.retain),
    ("GET", "/outputs/{output_id}", sessions.output),
    ("GET", "/search", searching.search),
    ("GET", "/archive", keeping.usage),
    ("GET", "/archive/prune", keeping.plan),
    ("POST", "/archive/prune", keeping.prune),
)


async def _import_new(imports: SessionImports) -> None:
    """Archive what hosts have written since, for as long as somebody may look."""
    while True:
        await imports.catch_up(START_SECONDS)
        await anyio.sleep(15)  # a person who waits for a session looks about as often


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
        key = secrets.token_urlsafe()
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
        return await create_cookie(await principal.own(await self._archive()), principal)

    async def caller(self, request: Request) -> Principal | None:
        """The caller; None where the request has no valid token or cookie."""
        if self._verifier is None:
            return LOCAL_USER
        if token := bearer_token(request.headers):
            return await self._verifier.verify(token)
        return await self._cookies.verify(request.cookies.get(_cookie_name(request), ""))

    def may_change(self, request: Request) -> bool:
        """Whether a request may change something, whoever sends it.

        One with a cookie must come from a page of ours: browsers report that, and pages cannot
        forge it. No browser sends a token unasked.
        """
        headers = request.headers
        if request.method in ("GET", "HEAD", "OPTIONS") or bearer_token(headers):
            return True
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site == "same-origin"
        return headers.get("origin") == f"{request.url.scheme}://{headers.get('host', '')}"


def _cookie_name(request: Request) -> str:
    """Cookies know no ports, and several viewers may run."""
    return f"mcp-compaction-{request.url.port or 80}"


def _give_cookie(response: Response, request: Request, cookie: str) -> None:
    """Set `cookie` in the browser, until it is closed."""
    response.set_cookie(
        _cookie_name(request),
        cookie,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )


def viewer_app(config: Config, access: Access, archives: LazyArchive) -> Starlette:
    """All pages.

    Args:
        config: The settings of the process.
        access: Checks who is admitted.
        archives: Opens the archive; the application closes it.
    """

    def endpoint(handler: Handler) -> Callable[[Request], object]:
        async def answered(request: Request) -> Response:
            try:
                archive = await caller.get().own(await archives.get())
                made = await handler(Visit(request, archive, config))
            except CompactionError as error:
                made = failure(error)
            response = made if isinstance(made, Response) else answer(request, made)
            name = f"{request.method} {handler.__qualname__}"
            audit(name, request.url.path, str(response.status_code))
            return response

        return answered

    async def enter(request: Request) -> Response:
        cookie = await access.enter(request.path_params["key"])
        if cookie is None:
            return answer(request, _closed("This address was used before, or is none of ours."))
        # No redirect: a cookie that is set on the way is not shown by every browser at its end.
        response = answer(request, Page("entered.html", {"entered": True}))
        _give_cookie(response, request, cookie)
        return response

    async def log_in(request: Request) -> Response:
        form = await Visit(request, await archives.get(), config).form()
        cookie = await access.log_in(form.get("token", [""])[0].strip())
        if cookie is None:
            return answer(request, _closed("That is not the token."))
        response = redirect("/")
        _give_cookie(response, request, cookie)
        return response

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        # Only for this machine's own user: elsewhere nobody's folders are looked into.
        folders = host_folders(Path.home()) if config.imports_sessions else ()
        imports = SessionImports(config.archive_folder, folders, archives.get)
        async with archives.running(), anyio.create_task_group() as background:
            background.start_soon(_import_new, imports)
            yield
            background.cancel_scope.cancel()

    routes = [
        *(
            Route(path, endpoint(handler), methods=[method], name=handler.__qualname__)
            for method, path, handler in PAGES
        ),
        Route("/enter/{key}", enter),
        Route("/login", log_in, methods=["POST"]),
        Route("/healthz", _healthy),
        Route("/static/{name}", _static),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_exception_handler(404, _nothing_here)
    app.add_exception_handler(405, _nothing_here)
    app.add_middleware(_Door, access=access)
    return app


class _Door:
    """Admits a request, or answers with the way to log in; sets the headers of every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        admitted = await self._admitted(request)
        if isinstance(admitted, Page):
            await answer(request, admitted)(scope, receive, send_guarded)
            return
        reset = caller.set(admitted)
        try:
            await self._app(scope, receive, send_guarded)
        finally:
            caller.reset(reset)

    async def _admitted(self, request: Request) -> Principal | Page:
        """Who asks, or the page that refuses it."""
        path = request.url.path
        is_open = path in {"/healthz", "/login"} or path.startswith(("/static/", "/enter/"))
        if not self._access.may_change(request):
            return problem(403, "This may only be asked by a page of the viewer.")
        try:
            principal = LOCAL_USER if is_open else await self._access.caller(request)
        except (CompactionError, KeysUnreachableError) as error:
            return problem(503, str(error))
        if principal is None:
            return _closed()
        scope: Scope = "read" if request.method in ("GET", "HEAD") else "admin"
        if path != "/login" and scope not in principal.scopes:
            return problem(403, f"Your token does not allow this: it lacks the scope {scope!r}.")
        return principal


def _closed(why: str = "") -> Page:
    return Page("login.html", {"error": why or "Show the token to see the archive."}, status=401)


async def _nothing_here(request: Request, _: Exception) -> Response:
    return answer(request, problem(404, "There is no such page."))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    try:
        text = static_text(name)
    except LookupError:
        return answer(request, problem(404, "There is no such file."))
    return Response(text, media_type=STATIC_TYPES[name[name.rfind(".") :]])


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok")
