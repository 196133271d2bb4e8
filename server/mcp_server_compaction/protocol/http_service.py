"""Service over Streamable HTTP, for one user on this machine or for a team behind a proxy.

For one user it needs the local token, which is in a file that only the user can read, or it uses a
Unix socket that only the user can open. For a team it has the public address of the proxy, and
needs tokens of the archive or of an OAuth server.
"""

import logging
import socket
import sys
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from context_compaction import CompactionError, SettingsError
from context_compaction.system import IS_WINDOWS
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from mcp_server_compaction.access import access_tokens
from mcp_server_compaction.access.oauth import JwtVerifier
from mcp_server_compaction.access.principal import SCOPES, write_audit
from mcp_server_compaction.config import LOOPBACK_HOSTS, Config, Service, is_loopback
from mcp_server_compaction.protocol.app import build_server, load_engine, reduce_gc
from mcp_server_compaction.protocol.deps import GetArchive, LazyArchive
from mcp_server_compaction.protocol.http_gate import (
    MAX_BODY_BYTES,
    Gate,
    Names,
    json_bodies,
)
from mcp_server_compaction.protocol.http_listening import bind, listen_on, serve, share_fairly
from mcp_server_compaction.protocol.stdio import log_to_stderr
from mcp_server_compaction.protocol.telemetry import METRICS_PATH, measured, metrics_route
from mcp_server_compaction.viewer.app import Access, viewer_app

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"
# A load balancer waits for a few seconds, and treats a missing response as "not ready".
READINESS_SECONDS = 2.0
# ID of no token. Looking it up is the cheapest request to an archive.
_MISSING_TOKEN = "0" * 16
_logger = logging.getLogger(__name__)


def serve_http(config: Config, service: Service) -> None:
    """Serve MCP at /mcp and the viewer at / until interrupted.

    Several processes share only the archive, and any process handles any call. The server then
    cannot send requests to the client, so the client's model writes no summaries.

    Raises:
        SettingsError: The options contradict each other, the host is no loopback address and there
            is no public URL, the port or path is in use, or other users may read the token file.
    """
    service = _checked(service, config)
    token = None
    if service.unix_socket is not None:
        listener, names = listen_on(service.unix_socket), Names(None)
        place = f"{service.unix_socket} (a Unix socket; the path is {MCP_PATH})"
    elif service.public_url is not None:
        listener = bind(service.host, service.port)
        names = _public_names(service.public_url, service.oauth_issuer)
        place = f"{_address_of(listener)} as {service.public_url}{MCP_PATH}"
    elif not is_loopback(service.host):
        raise SettingsError(
            f"{service.host} is no loopback address. Use 127.0.0.1. For a team, pass the address "
            "that callers use with --public-url; callers then need tokens."
        )
    else:
        listener = bind(service.host, service.port)
        token = access_tokens.ensure_local_token(config.archive_folder)
        names = _local_names(listener)
        # Print the token only on a terminal, because readers of a log file must not learn it.
        shown = token if sys.stderr.isatty() else "$TOKEN"
        place = (
            f"{_address_of(listener)}{MCP_PATH}\nCallers send 'Authorization: Bearer {shown}'. "
            f"The token is in {config.archive_folder / access_tokens.TOKEN_FILE}"
        )
    serve(partial(http_app, config, service, names, token), listener, place, service.workers)


def serve_pages(config: Config, *, port: int, opens: bool) -> None:
    """Serve only the viewer, on this machine, until interrupted.

    Args:
        config: Configuration of the process.
        port: Port to listen on. 0 for a free port.
        opens: Whether to open the user's browser.

    Raises:
        SettingsError: The port is in use, or other users may read the token file.
    """
    log_to_stderr()
    listener = bind("127.0.0.1", port)
    listener.listen()  # so that the browser can connect before the server is ready
    names, address = _local_names(listener), _address_of(listener)
    archives = LazyArchive(config)
    access = Access(
        access_tokens.is_local_token(access_tokens.ensure_local_token(config.archive_folder)),
        archives.get,
    )
    place = f"{address} (opened in your browser)"
    if not (opens and webbrowser.open(f"{address}/enter/{access.new_entry()}")):
        place = f"{address}/enter/{access.new_entry()} (open this in a browser; it works once)"
    reduce_gc()
    serve(lambda: Gate(viewer_app(config, access, archives), names, None), listener, place)


def http_app(config: Config, service: Service, names: Names, token: str | None) -> ASGIApp:
    """Return the service as an ASGI application.

    Args:
        config: Configuration of the process.
        service: Options of the service.
        names: Accepted names of the service. Without hosts, callers need no token.
        token: Local token of the user. None for a team's service.
    """
    log_to_stderr()
    if service.audit_log is not None:
        write_audit(service.audit_log)
    archives = LazyArchive(config)
    verify: access_tokens.Verify | None = None
    if names.hosts is not None or token is not None:
        checks: list[access_tokens.Verify] = [access_tokens.StoredTokens(archives.get).verify]
        if token is not None:
            checks.insert(0, access_tokens.is_local_token(token))
        if (issuer := service.oauth_issuer) is not None:
            keys_url, claim = service.oauth_jwks_url, service.oauth_tenant_claim
            checks.append(JwtVerifier(issuer, service.audience, keys_url, claim).verify)
        verify = access_tokens.any_of(checks)
    server = build_server(config, archives.get)
    server.middleware.append(measured)
    protocol = server.streamable_http_app(
        # The gate checks Host and Origin. The SDK's check is not exact: it compares prefixes.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        stateless_http=service.is_stateless,
        max_request_body_size=MAX_BODY_BYTES,
        # A session takes 37 KB, and most clients never return to theirs.
        session_idle_timeout=600.0,
        max_sessions=1_000,
        streamable_http_path=MCP_PATH,
    )
    viewer = viewer_app(config, Access(verify, archives.get), archives)
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
            reduce_gc()
            yield

    async def ready(_: Request) -> PlainTextResponse:
        if await readiness.check():
            return PlainTextResponse("ready")
        # The reason is only in the log, because anybody may send this request.
        return PlainTextResponse("The archive does not respond.", 503)

    routes: list[BaseRoute] = [Route(MCP_PATH, json_bodies(protocol)), Route("/readyz", ready)]
    if service.metrics:
        routes.append(metrics_route())
    if service.oauth_issuer is not None:
        routes.append(Route(f"{METADATA_PATH}{MCP_PATH}", JSONResponse(_metadata(service))))
    served = Starlette(routes=[*routes, Mount("/", viewer)], lifespan=lifespan)
    return Gate(served, names, verify, guarded=[MCP_PATH, METRICS_PATH])


def _metadata(service: Service) -> dict[str, Any]:
    """Return the metadata of this resource for OAuth clients (RFC 9728)."""
    return {
        "resource": service.audience,
        "authorization_servers": [service.oauth_issuer],  # unchanged: clients compare the text
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
    }


def _checked(service: Service, config: Config) -> Service:
    """Return the options with a public URL without a slash at its end.

    Raises:
        SettingsError: The options contradict each other.
    """
    if IS_WINDOWS and service.workers > 1:
        raise SettingsError("On Windows, HTTP runs with one process. Omit --workers.")
    if service.metrics and service.workers > 1:
        raise SettingsError(
            "--metrics works with one worker only, because each request reaches another process. "
            "Start several services with one worker each, or export metrics by OTLP."
        )
    if service.public_url is None:
        if service.oauth_issuer or service.oauth_audience or service.oauth_jwks_url:
            raise SettingsError(
                "OAuth tokens are issued for the URL of the service. Add --public-url."
            )
        return service
    if service.unix_socket is not None:
        raise SettingsError(
            "--unix-socket is for one user, --public-url for a team. Omit one of the two."
        )
    if config.roots.folders:
        raise SettingsError("A team's service cannot read files of this machine. Omit --root.")
    return replace(service, public_url=_public_url(service.public_url))


def _public_url(url: str) -> str:
    parts = urlsplit(url)
    is_here = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if (
        not (parts.scheme == "https" or is_here)
        or parts.path not in ("", "/")
        or parts.query
        or parts.username
    ):
        raise SettingsError(
            f"Invalid public URL {url!r}. Pass the address that callers use, without a path, for "
            "example https://compaction.example.org"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _public_names(public_url: str, issuer: str | None) -> Names:
    parts = urlsplit(public_url)
    return Names(
        hosts=frozenset({parts.netloc.lower()}),
        origins=frozenset({public_url.lower()}),
        header_help="Authorization: Bearer …, with a token of `mcp-server-compaction token create`"
        + ("." if issuer is None else f" or of {issuer}."),
        allows_any_probe=True,
        metadata_url=f"{public_url}{METADATA_PATH}{MCP_PATH}" if issuer is not None else None,
        scheme=parts.scheme,
    )


def _local_names(listener: socket.socket) -> Names:
    address, port = listener.getsockname()[:2]
    hosts = frozenset(f"{_in_url(name)}:{port}" for name in (*LOOPBACK_HOSTS, address))
    return Names(
        hosts=hosts,
        origins=frozenset(f"http://{name}" for name in hosts),
        header_help="Authorization: Bearer … (the token is in the archive's file "
        f"{access_tokens.TOKEN_FILE}).",
    )


def _address_of(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"http://{_in_url(address)}:{port}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Readiness:
    """A check of whether the archive responds. Concurrent checks share one request."""

    def __init__(self, archive: GetArchive) -> None:
        self._archive = archive
        self._background: TaskGroup | None = None
        self._pending: anyio.Event | None = None
        self._responds = False

    @asynccontextmanager
    async def checking(self) -> AsyncGenerator[None]:
        """Allow checks until the end of the block."""
        async with anyio.create_task_group() as self._background:
            yield
            self._background.cancel_scope.cancel()

    async def check(self) -> bool:
        """Whether the archive responds within `READINESS_SECONDS`."""
        if self._background is None:
            raise RuntimeError("Readiness.checking has not been entered.")
        if self._pending is None:
            self._pending = anyio.Event()
            self._background.start_soon(self._request, self._pending)
        pending = self._pending
        with anyio.move_on_after(READINESS_SECONDS):
            await pending.wait()
        return pending.is_set() and self._responds

    async def _request(self, pending: anyio.Event) -> None:
        self._responds = False
        try:
            await (await self._archive()).token(_MISSING_TOKEN)
            self._responds = True
        except CompactionError as error:
            _logger.warning("The archive does not respond: %s", error)
        finally:
            self._pending = None
            pending.set()
