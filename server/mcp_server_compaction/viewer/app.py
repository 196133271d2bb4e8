"""The viewer as an ASGI application: which page answers which address, and who may ask.

A request that is not admitted gets only the way to log in; that is decided before its address is
read.
"""

import gc
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from context_compaction.archive import Archive
from context_compaction.errors import CompactionError
from context_compaction.file_access import host_folders
from starlette.applications import Starlette
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
    branches,
    compactions,
    comparing,
    context_now,
    export,
    keeping,
    searching,
    sessions,
    timeline,
    transcript,
)
from mcp_server_compaction.viewer.access import Access, give_cookie
from mcp_server_compaction.viewer.places import Places
from mcp_server_compaction.viewer.web import (
    HEADERS,
    Handler,
    Page,
    Visit,
    answer,
    failure,
    problem,
    redirect,
    respond,
    static_file,
)

# A person who waits for a session to appear looks at the list about as often.
_IMPORT_SECONDS = 15.0

# So long a person sees nothing of a page whose session's log is still being read.
_PATIENCE_SECONDS = 0.5

PAGES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", sessions.listing),
    ("GET", "/sessions/{session_id}", transcript.session),
    ("GET", "/sessions/{session_id}/figures", sessions.figures_cell),
    ("GET", "/sessions/{session_id}/messages/{start:int}-{stop:int}", transcript.messages),
    ("GET", "/sessions/{session_id}/messages/{seq:int}", transcript.message),
    ("GET", "/sessions/{session_id}/messages/{seq:int}/{block:int}", transcript.block),
    ("GET", "/sessions/{session_id}/compactions", compactions.listing),
    ("GET", "/sessions/{session_id}/compactions/{number}", compactions.compaction),
    ("GET", "/sessions/{session_id}/branches", transcript.branches),
    ("GET", "/sessions/{session_id}/branches/{left}-{right}", branches.beside),
    ("GET", "/sessions/{session_id}/timeline", timeline.timeline),
    ("GET", "/sessions/{session_id}/context", context_now.context_now),
    ("GET", "/sessions/{session_id}/keep", export.keep),
    ("GET", "/sessions/{session_id}/export", export.export),
    ("GET", "/sessions/{session_id}/delete", keeping.confirm_delete),
    ("POST", "/sessions/{session_id}/delete", keeping.delete),
    ("POST", "/sessions/{session_id}/retain", keeping.retain),
    ("GET", "/outputs/{output_id}", transcript.output),
    ("GET", "/search", searching.search),
    ("GET", "/compare", comparing.comparison),
    ("POST", "/compare", comparing.begin),
    ("GET", "/archive", keeping.usage),
    ("GET", "/archive/prune", keeping.plan),
    ("POST", "/archive/prune", keeping.prune),
)


class Archives:
    """The archive, opened by the first page that needs it, while `closing` is entered."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lazy: LazyArchive | None = None
        self._background: TaskGroup | None = None
        # By tenant and session, what is set when its log was read.
        self._readings: dict[tuple[str, str], anyio.Event] = {}

    async def get(self) -> Archive:
        """The open archive.

        Raises:
            ArchiveError: It cannot be opened; the next page tries again.
        """
        if self._lazy is None:
            raise RuntimeError("The application's lifespan has not begun.")
        return await self._lazy.get()

    async def has_read(self, archive: Archive, request: Request) -> bool:
        """Whether the log of the session that a page is of was read, within `_PATIENCE_SECONDS`.

        That of a very long one takes seconds the first time. It goes on when nobody waits for it.
        """
        session_id = request.path_params["session_id"]
        key = (archive.tenant, session_id)
        event = self._readings.get(key)
        if event is None and self._background is not None:
            event = self._readings[key] = anyio.Event()
            self._background.start_soon(self._read, archive, key, event)
        if event is not None:
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await event.wait()
        return event is None or event.is_set()

    async def _read(self, archive: Archive, key: tuple[str, str], event: anyio.Event) -> None:
        began = time.monotonic()
        try:
            with suppress(CompactionError):  # the page itself says what is wrong
                await archive.session_info(key[1])
        finally:
            event.set()
            del self._readings[key]
        if time.monotonic() - began > _PATIENCE_SECONDS:
            # What a long log left in memory stays, in a million objects: a garbage collection that
            # looks at all of them holds up every page for a third of a second, again and again.
            gc.freeze()

    @asynccontextmanager
    async def closing(self, app: Starlette) -> AsyncGenerator[None]:
        """Close it behind the application, which meanwhile learns of this user's new sessions."""
        home = Path.home()
        # Only for this machine's own user: elsewhere nobody's folders are looked into.
        app.state.places = Places(home) if self._config.imports_sessions else None
        folders = host_folders(home) if self._config.imports_sessions else ()
        imports = SessionImports(self._config.archive_folder, folders, self.get)
        async with (
            lazy_archive(self._config) as self._lazy,
            comparing.comparisons(app),
            anyio.create_task_group() as background,
        ):
            background.start_soon(_import_new, imports)
            self._background = background
            yield
            background.cancel_scope.cancel()


def _is_whole_page(request: Request) -> bool:
    """Whether a person asks for a page of a session, rather than a program or a page for a part."""
    query = request.query_params
    is_read = request.method == "GET" and "session_id" in request.path_params
    asked_by_page = "hx-request" in request.headers or "part" in query
    return is_read and not asked_by_page and query.get("format") != "json"


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
            except CompactionError as error:
                return answer(request, failure(error))
            if _is_whole_page(request) and not await archives.has_read(archive, request):
                return answer(request, Page("reading.html", {"reading": True}, status=202))
            response = await respond(handler, Visit(request, archive, config))
            audit(
                f"{request.method} {handler.__qualname__}",
                request.url.path,
                str(response.status_code),
            )
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
                own = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                names = {name for name, _ in own}
                kept = [pair for pair in message.get("headers", ()) if pair[0] not in names]
                message = {**message, "headers": [*kept, *own]}
            await send(message)

        request = Request(scope, receive)
        path = request.url.path
        is_open = path in {"/healthz", "/login"} or path.startswith(("/static/", "/enter/"))
        try:
            principal = LOCAL_USER if is_open else await self._access.caller(request)
        except (CompactionError, KeysUnreachableError) as error:
            refusal: Response | None = answer(request, problem(503, str(error)))
            principal = None
        else:
            refusal = self._refusal(request, principal)
        if refusal is not None or principal is None:
            await (refusal or answer(request, _closed()))(scope, receive, send_guarded)
            return
        reset = caller.set(principal)
        try:
            await self._app(scope, receive, send_guarded)
        finally:
            caller.reset(reset)

    def _refusal(self, request: Request, principal: Principal | None) -> Response | None:
        if not self._access.may_change(request):
            return answer(request, problem(403, "This may only be asked by a page of the viewer."))
        if principal is None:
            return answer(request, _closed())
        scope: Scope = "read" if request.method in ("GET", "HEAD") else "admin"
        if request.url.path != "/login" and scope not in principal.scopes:
            lacks = f"Your token does not allow this: it lacks the scope {scope!r}."
            return answer(request, problem(403, lacks))
        return None


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
