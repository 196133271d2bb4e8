"""Pages and how they are rendered: HTML for people, JSON for programs."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, urlencode

from context_compaction import (
    Archive,
    CompactionError,
    JsonObject,
    NotFoundError,
    QueryError,
    SettingsError,
)
from starlette.requests import Request
from starlette.responses import Response

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
