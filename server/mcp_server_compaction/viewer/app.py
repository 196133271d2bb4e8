"""The viewer as an ASGI application: which page answers which address, and who may ask.

A request that is not admitted gets only the way to log in; that is decided before its address is
read.
"""

from collections.abc import AsyncGenerator, Callable
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

from mcp_server_compaction.access.audit import audit
from mcp_server_compaction.access.oauth import KeysUnreachableError
from mcp_server_compaction.access.principal import LOCAL_USER, Principal, Scope, caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.session_imports import START_SECONDS, SessionImports
from mcp_server_compaction.protocol.deps import LazyArchive, lazy_archive
from mcp_server_compaction.viewer import (
    compactions,
    context_now,
    export,
    keeping,
    searching,
    sessions,
    timeline,
    transcript,
)
from mcp_server_compaction.viewer.access import Access, give_cookie
from mcp_server_compaction.viewer.web import (
    HEADERS,
    Handler,
    Page,
    Visit,
    answer,
    failure,
    problem,
    redirect,
    static_file,
)

# A person who waits for a session to appear looks at the list about as often.
_IMPORT_SECONDS = 15.0

PAGES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", sessions.listing),
    ("GET", "/sessions/{session_id}", transcript.session),
    ("GET", "/sessions/{session_id}/messages/{start:int}-{stop:int}", transcript.messages),
    ("GET", "/sessions/{session_id}/messages/{seq:int}/{block:int}", transcript.block),
    ("GET", "/sessions/{session_id}/compactions", compactions.listing),
    ("GET", "/sessions/{session_id}/compactions/{number}", compactions.compaction),
    ("GET", "/sessions/{session_id}/branches", transcript.branches),
    ("GET", "/sessions/{session_id}/timeline", timeline.timeline),
    ("GET", "/sessions/{session_id}/context", context_now.context_now),
    ("GET", "/sessions/{session_id}/keep", export.keep),
    ("GET", "/sessions/{session_id}/export", export.export),
    ("GET", "/sessions/{session_id}/delete", keeping.confirm_delete),
    ("POST", "/sessions/{session_id}/delete", keeping.delete),
    ("POST", "/sessions/{session_id}/retain", keeping.retain),
    ("GET", "/outputs/{output_id}", transcript.output),
    ("GET", "/search", searching.search),
    ("GET", "/archive", keeping.usage),
    ("GET", "/archive/prune", keeping.plan),
    ("POST", "/archive/prune", keeping.prune),
)


class Archives:
    """The archive, opened by the first page that needs it, while `closing` is entered."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lazy: LazyArchive | None = None

    async def get(self) -> Archive:
        """The open archive.

        Raises:
            ArchiveError: It cannot be opened; the next page tries again.
        """
        if self._lazy is None:
            raise RuntimeError("The application's lifespan has not begun.")
        return await self._lazy.get()

    @asynccontextmanager
    async def closing(self, _: Starlette) -> AsyncGenerator[None]:
        """Close it behind the application, which meanwhile learns of this user's new sessions."""
        # Only for this machine's own user: elsewhere nobody's folders are looked into.
        folders = host_folders(Path.home()) if self._config.imports_sessions else ()
        imports = SessionImports(self._config.archive_folder, folders, self.get)
        async with (
            lazy_archive(self._config) as self._lazy,
            anyio.create_task_group() as background,
        ):
            background.start_soon(_import_new, imports)
            yield
            background.cancel_scope.cancel()


async def _import_new(imports: SessionImports) -> None:
    """Archive what hosts have written since, for as long as somebody may look."""
    while True:
        await imports.catch_up(START_SECONDS)
        await anyio.sleep(_IMPORT_SECONDS)


def viewer_app(config: Config, access: Access, archives: Archives) -> Starlette:
    """All pages.

    Args:
        config: The settings of the process.
        access: Checks who is admitted.
        archives: Opens the archive; the application closes it.
    """

    def endpoint(handler: Handler) -> Callable[[Request], object]:
        async def answered(request: Request) -> Response:
            try:
                archive = await (await archives.get()).for_tenant(caller.get().tenant)
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
        give_cookie(response, request, cookie)
        return response

    async def log_in(request: Request) -> Response:
        form = await Visit(request, await archives.get(), config).form()
        cookie = await access.log_in(form.get("token", [""])[0].strip())
        if cookie is None:
            return answer(request, _closed("That is not the token."))
        response = redirect("/")
        give_cookie(response, request, cookie)
        return response

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
    app = Starlette(routes=routes, lifespan=archives.closing)
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
    found = static_file(request.path_params["name"])
    if found is None:
        return answer(request, problem(404, "There is no such file."))
    return Response(found[0], media_type=found[1])


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok")
