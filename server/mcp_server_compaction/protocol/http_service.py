"""Streamable HTTP: the service of one user on this machine, or of a team behind a proxy.

On this machine it asks for a token that lies in a file of the user's alone, or is a Unix socket
that only the user can open. For a team it goes by the name that the proxy has outside, and asks for
tokens of the archive or of an OAuth server.
"""

import socket
import sys
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from anyio import to_thread
from context_compaction import SettingsError
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from mcp_server_compaction.access.access_tokens import (
    TOKEN_FILE,
    AnyOf,
    LocalToken,
    StoredTokens,
    Verifier,
    ensure_local_token,
)
from mcp_server_compaction.access.audit import write_audit
from mcp_server_compaction.access.oauth import JwtVerifier, OAuthSettings
from mcp_server_compaction.access.principal import SCOPES
from mcp_server_compaction.config import LOOPBACK_HOSTS, Config, is_loopback
from mcp_server_compaction.operations.readiness import Readiness
from mcp_server_compaction.operations.telemetry import METRICS_PATH, measured, metrics_route
from mcp_server_compaction.protocol.app import build_server, collect_seldom, load_engine
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.protocol.http_bodies import MAX_BODY_BYTES, json_bodies
from mcp_server_compaction.protocol.http_gate import Gate, Names, refused
from mcp_server_compaction.protocol.http_listening import (
    bind,
    listen_on,
    serve,
    share_fairly,
)
from mcp_server_compaction.protocol.logs import log_to_stderr
from mcp_server_compaction.viewer.app import Access, viewer_app

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class Service:
    """How a service is reached, and by whom.

    Attributes:
        host: The address that is listened on.
        port: 0 takes a free one; standard error names it.
        unix_socket: Listen on this path instead, where only the user may connect and no token is
            asked for.
        workers: How many processes answer. One that dies is replaced.
        public_url: What the service is called outside, where a proxy passes requests on to it; so
            it is a team's. None for one user on this machine.
        oauth: Whose tokens are taken beside the archive's own.
        audit_log: The file in which it is written down who read and deleted what.
        has_metrics: Whether `/metrics` shows Prometheus the figures of the process.
        logs_json: Whether standard error gets objects of JSON, and no lines for people.
    """

    host: str = "127.0.0.1"
    port: int = 0
    unix_socket: Path | None = None
    workers: int = 1
    public_url: str | None = None
    oauth: OAuthSettings | None = None
    audit_log: Path | None = None
    has_metrics: bool = False
    logs_json: bool = False

    @property
    def is_stateless(self) -> bool:
        """Whether the calls of one client may go to different processes."""
        return self.workers > 1 or self.public_url is not None


def serve_http(config: Config, service: Service) -> None:
    """Serve MCP at /mcp and the viewer at / until interrupted.

    Several processes share nothing but the archive: any of them answers any call. The server can
    then ask no client anything in between, so a client's own model writes no summaries.

    Raises:
        SettingsError: The host is no loopback address and no public URL is given, the port or the
            path is taken, or the file of the token is open to others.
    """
    token = None
    if service.unix_socket is not None:
        listener, names = listen_on(service.unix_socket), Names(None)
        place = f"{service.unix_socket} (a Unix socket; the path is {MCP_PATH})"
    elif service.public_url is not None:
        listener = bind(service.host, service.port)
        names = _public_names(service.public_url, service.oauth)
        place = f"{_address_of(listener)} as {service.public_url}{MCP_PATH}"
    elif not is_loopback(service.host):
        raise SettingsError(
            f"{service.host} is no loopback address. Serve on 127.0.0.1, or say by --public-url "
            "what a team's callers call the service, which then wants their tokens."
        )
    else:
        listener = bind(service.host, service.port)
        token = ensure_local_token(config.archive_folder)
        names = _local_names(listener)
        # Where standard error is kept as a log, whoever reads logs would find the token.
        shown = token if sys.stderr.isatty() else "$TOKEN"
        place = (
            f"{_address_of(listener)}{MCP_PATH}\nCallers send 'Authorization: Bearer {shown}'; "
            f"the token lies in {config.archive_folder / TOKEN_FILE}"
        )
    serve(partial(http_app, config, service, names, token), listener, place, service.workers)


def serve_pages(config: Config, *, port: int, opens: bool) -> None:
    """Serve the viewer alone on this machine until interrupted.

    Args:
        config: The configuration of the process.
        port: 0 takes a free one.
        opens: Whether to open the user's browser.

    Raises:
        SettingsError: The port is taken, or the file of the token is open to others.
    """
    log_to_stderr()
    listener = bind("127.0.0.1", port)
    listener.listen()  # the browser waits until it is answered
    names, address = _local_names(listener), _address_of(listener)
    archives = LazyArchive(config)
    access = Access(LocalToken(ensure_local_token(config.archive_folder)), archives.get)
    place = f"{address} (opened in your browser)"
    if not (opens and webbrowser.open(f"{address}/enter/{access.new_entry()}")):
        place = f"{address}/enter/{access.new_entry()} (open this in a browser; it is good once)"
    serve(lambda: Gate(viewer_app(config, access, archives), names, None), listener, place)


def http_app(config: Config, service: Service, names: Names, token: str | None) -> ASGIApp:
    """The service as an ASGI application.

    Args:
        config: The configuration of the process.
        service: Who may call, and what is written of it.
        names: What it may be called; without hosts, whoever gets here is let in.
        token: What this machine's user may show.
    """
    oauth = service.oauth
    log_to_stderr(as_json=service.logs_json)
    if service.audit_log is not None:
        write_audit(service.audit_log)
    archives = LazyArchive(config)
    verifier: Verifier | None = None
    if names.hosts is not None or token is not None:
        own = [LocalToken(token)] if token is not None else []
        others = [JwtVerifier(oauth)] if oauth is not None else []
        verifier = AnyOf([*own, StoredTokens(archives.get), *others])
    server = build_server(config, archives.get)
    server.middleware.append(measured)
    protocol = server.streamable_http_app(
        # The gate checks Host and Origin, exactly: the SDK compares beginnings.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        stateless_http=service.is_stateless,
        max_request_body_size=MAX_BODY_BYTES,
        # A session holds little memory (37 KB), but nobody comes back for most of them.
        session_idle_timeout=600.0,
        max_sessions=1_000,
        streamable_http_path=MCP_PATH,
    )
    viewer = viewer_app(config, Access(verifier, archives.get), archives)
    readiness = Readiness(archives.get)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with (
            viewer.router.lifespan_context(viewer),
            readiness.checking(),
            protocol.router.lifespan_context(protocol),
        ):
            await to_thread.run_sync(load_engine, config)
            share_fairly()
            collect_seldom()
            yield

    async def ready(_: Request) -> PlainTextResponse:
        if await readiness.check():
            return PlainTextResponse("ready")
        # Anybody may ask: what is wrong with the archive stands in the log.
        return refused(503, "The archive does not answer.")

    routes: list[BaseRoute] = [
        Route(MCP_PATH, json_bodies(protocol)),
        Route("/readyz", ready),
    ]
    if service.has_metrics:
        routes.append(metrics_route())
    if oauth is not None:
        routes.append(Route(f"{METADATA_PATH}{MCP_PATH}", JSONResponse(_metadata(oauth))))
    served = Starlette(routes=[*routes, Mount("/", viewer)], lifespan=lifespan)
    return Gate(served, names, verifier, guarded=[MCP_PATH, METRICS_PATH])


def _metadata(oauth: OAuthSettings) -> dict[str, Any]:
    """What OAuth clients learn of this resource (RFC 9728)."""
    return {
        "resource": oauth.audience,
        "authorization_servers": [oauth.issuer],  # to the letter: clients compare it so
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
    }


def check_public_url(url: str) -> str:
    """`url` without a slash at its end, if a service can be called that.

    Raises:
        SettingsError: It is none, or not encrypted on its way here from other machines.
    """
    parts = urlsplit(url)
    is_here = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if (
        not (parts.scheme == "https" or is_here)
        or parts.path not in ("", "/")
        or parts.query
        or parts.username
    ):
        raise SettingsError(
            f"The service cannot be called {url!r}. Give the address that callers use, as "
            "https://compaction.example.org, without a path."
        )
    return f"{parts.scheme}://{parts.netloc}"


def _public_names(public_url: str, oauth: OAuthSettings | None) -> Names:
    parts = urlsplit(public_url)
    return Names(
        hosts=frozenset({parts.netloc.lower()}),
        origins=frozenset({public_url.lower()}),
        how="Authorization: Bearer …, a token made by `mcp-server-compaction token create`"
        + ("." if oauth is None else f" or of {oauth.issuer}."),
        is_probed_by_any=True,
        metadata_url=f"{public_url}{METADATA_PATH}{MCP_PATH}" if oauth is not None else None,
        scheme=parts.scheme,
    )


def _local_names(listener: socket.socket) -> Names:
    address, port = listener.getsockname()[:2]
    hosts = frozenset(f"{_in_url(name)}:{port}" for name in (*LOOPBACK_HOSTS, address))
    return Names(
        hosts=hosts,
        origins=frozenset(f"http://{name}" for name in hosts),
        how=f"Authorization: Bearer … (it lies in the archive's {TOKEN_FILE}).",
    )


def _address_of(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"http://{_in_url(address)}:{port}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
