"""What a page is, and how it becomes an answer: HTML for people, its JSON for programs."""

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
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
from starlette.responses import RedirectResponse, Response

from mcp_server_compaction.config import Config
from mcp_server_compaction.viewer.markup import linked
from mcp_server_compaction.viewer.words import FILTERS

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_FORM_BYTES = 64 * 1024
# Scripts and styles are files of ours; pictures may stand in a transcript itself. Nothing else is
# loaded, nothing of a transcript runs, and no other page may frame these.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer", by which browsers hide from us where a form stands.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

NAVIGATION = (
    ("search", "Search"),
    ("archive", "Keep and clean"),
)
SESSION_TABS = (
    ("", "Transcript"),
    ("/compactions", "Compactions"),
    ("/context", "Context now"),
    ("/keep", "Export"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """What one address shows.

    Attributes:
        template: The file of its HTML.
        document: Its content, as JSON.
        shown: What the template takes beside that.
        status: The HTTP status.
    """

    template: str
    document: JsonObject
    shown: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, with what is needed to answer it."""

    request: Request
    archive: Archive
    config: Config

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the address; empty values count as left out."""
        return {name: value for name, value in self.request.query_params.items() if value}

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    async def form(self) -> dict[str, list[str]]:
        """The fields of a form, each with its values.

        Raises:
            QueryError: It is too long.
        """
        body = await self.request.body()
        if len(body) > MAX_FORM_BYTES:
            raise QueryError(f"The form has {len(body)} bytes. Choose fewer at a time.")
        return parse_qs(body.decode("utf-8", "replace"))


def whole_number(asked: Mapping[str, str], name: str) -> int | None:
    """A number of a query or form; None where it is left out.

    Raises:
        QueryError: It is no whole number.
    """
    text = asked.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise QueryError(f"{name} is {text[:40]!r}. Give a whole number, as 12.")
    return int(text)


Handler: TypeAlias = Callable[[Visit], Awaitable[Page | Response]]


def answer(request: Request, page: Page) -> Response:
    """A page as the request wants it: `format=json` for programs."""
    if request.query_params.get("format") == "json":
        # What UTF-8 cannot carry is escaped.
        text = json.dumps(page.document)
        return Response(text, page.status, media_type="application/json")
    query = [(k, v) for k, v in request.query_params.multi_items() if k != "format"]
    html = (
        environment()
        .get_template(page.template)
        .render(
            **page.shown,
            doc=page.document,
            section=request.url.path.split("/")[1],
            # Never an address of its own making: a path may look like that of another host.
            here=f"?{urlencode(query)}&" if query else "?",
            json_address=f"?{urlencode([*query, ('format', 'json')])}",
        )
    )
    # Texts may hold half a surrogate pair, which UTF-8 cannot carry: spelt out.
    return Response(html.encode("utf-8", "backslashreplace"), page.status, media_type="text/html")


def redirect(address: str) -> Response:
    """Go on with another page."""
    return RedirectResponse(address, 303)


def failure(error: CompactionError) -> Page:
    """What went wrong, for people and programs."""
    status = 500
    if isinstance(error, NotFoundError):
        status = 404
    elif isinstance(error, QueryError | SettingsError):
        status = 400
    return problem(status, str(error))


def problem(status: int, message: str) -> Page:
    """A page that contains only this message."""
    return Page("problem.html", {"error": message, "status": status}, status=status)


@cache
def environment() -> "Environment":
    """The templates; everything that they show is escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(lambda name: _text("templates", name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS, linked=linked)
    shared: dict[str, Any] = made.globals
    shared.update(NAVIGATION=NAVIGATION, SESSION_TABS=SESSION_TABS)
    return made


STATIC_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def static_text(name: str) -> str:
    """A file that pages load.

    Raises:
        LookupError: There is none of that name.
    """
    text = _text("static", name) if name.endswith(tuple(STATIC_TYPES)) else None
    if text is None:
        raise LookupError(name)
    return text


@cache
def _text(folder: str, name: str) -> str | None:
    found = files("mcp_server_compaction.viewer").joinpath(folder, name)
    return found.read_text(encoding="utf-8") if "/" not in name and found.is_file() else None


@cache
def host_app() -> str:
    """The page that hosts with MCP Apps show beside a compaction or a search.

    It is one document, as such hosts want it: it contains its script and style, named by their
    hashes, so that nothing else runs. It loads nothing and asks the host for more by the server's
    own tools.
    """
    script, style = static_text("app.js"), static_text("app.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    template = environment().get_template("host_app.html")
    return template.render(
        policy=policy, script=script, style=style, version=version("mcp-server-compaction")
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
