"""Pages and how they are rendered: HTML for people, JSON for programs.

A browser shows the progress of a page that takes long, with figures, and then the page.
"""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, urlencode

import anyio
from anyio.abc import TaskGroup
from context_compaction import (
    Archive,
    CompactionError,
    JsonObject,
    NotFoundError,
    QueryError,
    SettingsError,
    reporting_work,
)
from starlette.requests import Request
from starlette.responses import Response

from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.viewer.formatting import FILTERS
from mcp_server_compaction.viewer.markup import linked

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_FORM_BYTES = 64 * 1024
# Scripts and styles come only from this package. Images may also be `data:` addresses, because
# transcripts contain images. No other site may frame the pages.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer" browsers would send no origin with a form, so the viewer would refuse it.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC_TYPES = {
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "style.css": "text/css",
    "viewer.js": "text/javascript",
}
NAVIGATION = (("search", "Search"), ("storage", "Storage"))
SESSION_TABS = (
    ("", "Transcript"),
    ("/compactions", "Compactions"),
    ("/context", "Context now"),
    ("/files", "Files"),
    ("/export", "Export"),
    ("/delete", "Delete"),
)
_PATIENCE_SECONDS = 0.5  # a page that takes no longer is shown without its progress
_KEPT_SECONDS = 10.0  # a finished page that no browser has fetched since is made again


@dataclass(frozen=True, slots=True)
class Page:
    """The content of one address.

    Attributes:
        template: File name of its HTML template.
        document: Content of the page as JSON, also available to the template.
        values: Further values for the template.
        status: HTTP status.
    """

    template: str
    document: JsonObject
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page, with the objects needed to answer it.

    Attributes:
        http: The HTTP request.
        archive: The caller's archive.
        config: Settings of the process.
    """

    http: Request
    archive: Archive
    config: Config

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters of the address, without empty values."""
        return {name: value for name, value in self.http.query_params.items() if value}

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.http.path_params[name])

    def includes(self, part: str) -> bool:
        """Whether the response includes a part that takes time to compute.

        Browsers show the page without the part, then request it with `part=NAME`. JSON documents
        contain all parts.
        """
        query = self.query
        return query.get("part") == part or query.get("format") == "json"

    async def form(self) -> dict[str, str]:
        """Return the first value of each field of a form, without empty values.

        Raises:
            QueryError: The form is too long. The rest of it is not read.
        """
        body = bytearray()
        async for chunk in self.http.stream():
            body += chunk
            if len(body) > MAX_FORM_BYTES:
                raise QueryError(f"The form is too long. Send at most {MAX_FORM_BYTES} bytes.")
        fields = parse_qs(body.decode("utf-8", "replace"))
        return {name: values[0] for name, values in fields.items()}


Handler: TypeAlias = Callable[[PageRequest], Awaitable[Page | Response]]


def number_field(values: Mapping[str, str], name: str) -> int | None:
    """Return a number from a query or form, or None if it is missing.

    Raises:
        QueryError: The value is not a whole number of at most nine digits.
    """
    text = values.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise QueryError(
            f"Invalid {name} {text[:40]!r}. Use a whole number of at most 9 digits, for example 12."
        )
    return int(text)


def render(request: Request, page: Page) -> Response:
    """Render a page as HTML, or as JSON if the address has `format=json`."""
    if request.query_params.get("format") == "json":
        # json.dumps escapes unpaired surrogates, which UTF-8 cannot represent.
        return Response(json.dumps(page.document), page.status, media_type="application/json")
    query = [(k, v) for k, v in request.query_params.multi_items() if k != "format"]
    template = templates().get_template(page.template)
    html = template.render(
        **page.values,
        doc=page.document,
        section=request.url.path.split("/")[1],
        # Relative addresses, because a path such as //evil.example would name another host.
        query_prefix=f"?{urlencode(query)}&" if query else "?",
        json_address=f"?{urlencode([*query, ('format', 'json')])}",
    )
    # UTF-8 cannot represent unpaired surrogates, so they are escaped.
    return Response(html.encode("utf-8", "backslashreplace"), page.status, media_type="text/html")


def error_page(error: CompactionError) -> Page:
    """Return the page for an expected error, with its HTTP status."""
    status = 500
    if isinstance(error, NotFoundError):
        status = 404
    elif isinstance(error, QueryError | SettingsError):
        status = 400
    return message_page(status, str(error))


def message_page(status: int, message: str) -> Page:
    """Return a page that contains only an error message."""
    return Page("error.html", {"error": message, "status": status}, status=status)


@cache
def templates() -> "Environment":
    """Load the templates. They escape all values except safe HTML, such as that of `linked`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mcp_server_compaction.viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS, linked=linked)
    shared: dict[str, Any] = environment.globals
    shared.update(NAVIGATION=NAVIGATION, SESSION_TABS=SESSION_TABS)
    return environment


@cache
def static_text(name: str) -> str:
    """Read a script, style or icon of this package, by its file name.

    Pass no name from a request unchecked, because every text stays in memory.
    """
    path = files("mcp_server_compaction.viewer").joinpath("static", name)
    return path.read_text(encoding="utf-8")


@dataclass(slots=True)
class _Work:
    """The work for one page.

    Attributes:
        done: Set when the work has ended.
        figures: How many units are `done`, how many there are in `total`, and the `unit`. With a
            total of 0, the unit names the work that must end first.
        ended_seconds: When the work ended, by the clock of the event loop; infinite before.
        result: The page, or the unexpected error that ended the work; None before the end.
    """

    done: anyio.Event = field(default_factory=anyio.Event)
    figures: JsonObject = field(default_factory=JsonObject)
    ended_seconds: float = inf
    result: Response | Exception | None = None

    async def run(self, make: Callable[[], Awaitable[Response]]) -> None:
        """Make the page."""
        try:
            with reporting_work(self._report):
                self.result = await make()
        except Exception as error:  # noqa: BLE001, raised again by the request that fetches the page
            self.result = error
        self.ended_seconds = anyio.current_time()
        self.done.set()

    def _report(self, done: int, total: int, unit: str) -> None:
        self.figures = {"done": done, "total": total, "unit": unit}


class LongPages:
    """The pages that are being made for browsers, by tenant and address."""

    def __init__(self) -> None:
        self._works: dict[tuple[str, str], _Work] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[TaskGroup]:
        """Yield the tasks that make the pages; they are cancelled at the end."""
        async with anyio.create_task_group() as self._tasks:
            yield self._tasks
            self._tasks.cancel_scope.cancel()

    async def respond(self, request: Request, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return the page, or the progress of the work on it if that takes long.

        Programs wait for the page. A browser asks for the same address again, and gets the page of
        the work that the first request started.
        """
        if not _shows_progress(request):
            return await make()
        oldest = anyio.current_time() - _KEPT_SECONDS
        self._works = {k: w for k, w in self._works.items() if w.ended_seconds > oldest}
        key = caller.get().tenant, f"{request.url.path}?{request.url.query}"
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = _Work()
            self._tasks.start_soon(work.run, make)
        with anyio.move_on_after(_PATIENCE_SECONDS):
            await work.done.wait()
        if not work.done.is_set():
            return render(request, _progress_page(request, work))
        self._works.pop(key, None)
        if isinstance(work.result, Response):
            return work.result
        raise work.result or RuntimeError("The page was not made.")


def _shows_progress(request: Request) -> bool:
    """Whether a browser asks for a page, or for a part that replaces nothing."""
    headers, query = request.headers, request.query_params
    is_browser = "hx-request" in headers or "text/html" in headers.get("accept", "")
    is_part = query.get("part") == "rows" or query.get("format") == "json"
    return request.method == "GET" and is_browser and not is_part


def _progress_page(request: Request, work: _Work) -> Page:
    values = {"address": f"{request.url.path}?{request.url.query}"}
    template = "progress_part.html" if "hx-request" in request.headers else "progress.html"
    return Page(template, work.figures, values, status=202)


@cache
def host_app() -> str:
    """Return the page as HTML."""
    script, style = static_text("app.js"), static_text("app.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return (
        templates()
        .get_template("host_app.html")
        .render(policy=policy, script=script, style=style, version=version("mcp-server-compaction"))
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
