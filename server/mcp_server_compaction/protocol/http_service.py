"""Streamable HTTP on this machine: who may come in, how many, and how often.

Whoever passes the gate has the whole archive, so the gate is shut from the first start: a bearer
token that lies in a file of the user's alone, or a Unix socket that only the user can open. Limits
keep one program that misbehaves from shutting out the others.
"""

import asyncio
import hmac
import ipaddress
import os
import resource
import secrets
import socket
import stat
import sys
import webbrowser
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from aiolimiter import AsyncLimiter
from anyio import to_thread
from context_compaction.errors import SettingsError
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.app import build_server
from mcp_server_compaction.protocol.logs import log_to_stderr
from mcp_server_compaction.protocol.stdio import without_halves
from mcp_server_compaction.viewer.access import Access
from mcp_server_compaction.viewer.app import viewer_app

MCP_PATH = "/mcp"
# A conversation of a million tokens is about 5 MB of JSON; the SDK's default is 4 MiB.
MAX_BODY_BYTES = 64 * 1024 * 1024
# A request that has not arrived whole by then never will: callers sit on this machine.
RECEIVE_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 15
# What a session holds in memory is small (37 KB), but nobody comes back for most of them.
SESSION_IDLE_SECONDS = 600.0
MAX_SESSIONS = 1_000
MAX_CONNECTIONS = 512
# asyncio accepts so many at a time before any of them is looked at: where that is more than the
# process may open, it writes a traceback for each (Python 3.11).
BACKLOG = 64
# A process that compacts millions of tokens may not get to say that it is well before.
HEALTHCHECK_SECONDS = 60
REQUESTS_PER_SECOND = 200
TOKEN_FILE = "http-token"  # noqa: S105, a name
_TOKEN_BYTES = 32
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def serve_http(
    config: Config, *, host: str, port: int, unix_socket: Path | None = None, workers: int = 1
) -> None:
    """Serve MCP at /mcp and the viewer at / on a loopback address or a Unix socket.

    Several processes share nothing but the archive: any of them answers any call. No client can
    then be asked anything in between, so that its own model writes no summaries.

    Args:
        config: What the process was told.
        host: A loopback address, or "localhost".
        port: 0 takes a free one; standard error says which.
        unix_socket: Serve on this path instead, where only the user may connect and no token is
            asked for.
        workers: How many processes answer. One that dies is replaced.

    Raises:
        SettingsError: The host is no loopback address, the port or the path is taken, or the file
            of the token is open to others.
    """
    if unix_socket is None:
        listener = _bind(host, port, is_shared=workers > 1)
        hosts, address = _names_of(listener, host)
        token = ensure_token(config.archive_folder)
        told = f"{address}{MCP_PATH}\n{_where_the_token_is(config, token)}"
    else:
        listener, hosts, token = _listen_on(unix_socket), None, None
        told = f"{unix_socket} (a Unix socket; the path is {MCP_PATH})"
    app = partial(http_app, config, hosts=hosts, token=token, stateless=workers > 1)
    _serve(app, listener, told, workers)


def serve_pages(config: Config, *, port: int, opens: bool) -> None:
    """Serve the viewer alone on this machine until interrupted.

    Args:
        config: What the process was told.
        port: 0 takes a free one.
        opens: Whether to open the user's browser.

    Raises:
        SettingsError: The port is taken, or the file of the token is open to others.
    """
    log_to_stderr()
    listener = _bind("127.0.0.1", port)
    listener.listen()
    hosts, address = _names_of(listener, "127.0.0.1")
    access = Access(ensure_token(config.archive_folder))
    # The listener takes connections already: the browser waits until they are answered.
    if opens and webbrowser.open(f"{address}/enter/{access.new_entry()}"):
        told = f"{address} (opened in your browser)"
    else:
        told = f"{address}/enter/{access.new_entry()} (open this in a browser; it is good once)"
    _serve(lambda: Gate(viewer_app(config, access), hosts, token=None), listener, told)


def _names_of(listener: socket.socket, host: str) -> tuple[set[str], str]:
    """What may stand in Host, and the address to show."""
    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return {f"{name}:{port}" for name in (*_LOOPBACK_NAMES, shown)}, f"http://{shown}:{port}"


def _serve(
    app: Callable[[], ASGIApp], listener: socket.socket, told: str, workers: int = 1
) -> None:
    service = uvicorn.Config(
        app,
        factory=True,
        http=BoundedProtocol,
        # uvicorn would write its access log to standard output.
        log_config=None,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        backlog=BACKLOG,
        workers=workers,
        timeout_worker_healthcheck=HEALTHCHECK_SECONDS,
    )
    if workers > 1:
        is_path = listener.family == socket.AF_UNIX
        _Workers(service, listener if is_path else _ListenerEach(listener), told).run()
        return
    listener.listen()
    _announce(told)
    uvicorn.Server(service).run([listener])


def _announce(told: str) -> None:
    sys.stderr.write(f"Serving on {told}\n")
    sys.stderr.flush()


class _Workers(Multiprocess):
    """Several processes, announced when all of them listen."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, told: str) -> None:
        super().__init__(config, [listener])
        self._told = told

    def init_processes(self) -> None:
        """Start them; one that does not come up is dealt with as one that died."""
        super().init_processes()
        for process in self.processes:
            process.wait_until_ready(HEALTHCHECK_SECONDS, self.should_exit)
        _announce(self._told)


def http_app(
    config: Config, *, hosts: set[str] | None, token: str | None, stateless: bool = False
) -> ASGIApp:
    """The service as an ASGI application.

    Args:
        config: What the process was told.
        hosts: The values of Host, each with its port, that may be asked for; None for a Unix
            socket, where no browser gets to.
        token: What a caller must show; None where the socket itself keeps others out.
        stateless: Whether the calls of one client may go to different processes.
    """
    log_to_stderr()
    protocol = build_server(config).streamable_http_app(
        # The gate checks Host and Origin, exactly: the SDK compares beginnings.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        stateless_http=stateless,
        max_request_body_size=MAX_BODY_BYTES,
        session_idle_timeout=SESSION_IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
        streamable_http_path=MCP_PATH,
    )
    viewer = viewer_app(config, Access(token))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with (
            protocol.router.lifespan_context(protocol),
            viewer.router.lifespan_context(viewer),
        ):
            yield

    served = Starlette(routes=[Route(MCP_PATH, protocol), Mount("/", viewer)], lifespan=lifespan)
    return Gate(served, hosts, token)


class Gate:
    """Lets a request in that asks for this host, from a page of it or from no page.

    Callers of MCP must show the token here. The viewer's pages see to that themselves, since people
    show it once.
    """

    def __init__(self, app: ASGIApp, hosts: set[str] | None, token: str | None) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        self._rate = AsyncLimiter(REQUESTS_PER_SECOND, time_period=1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope), scope["path"])
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            await self._rate.acquire()  # there is room, so this does not wait
            receive = _with_clean_body(receive)
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> PlainTextResponse | None:
        if self._hosts is not None:
            host, origin = headers.get("host", ""), headers.get("origin")
            if host.lower() not in self._hosts:
                return _refused(421, f"This server is not {host[:100]!r}.")
            if origin is not None and origin.lower() not in {f"http://{h}" for h in self._hosts}:
                return _refused(403, f"Pages of {origin[:100]!r} may not call this server.")
        is_protocol = path == MCP_PATH or path.startswith(f"{MCP_PATH}/")
        if is_protocol and self._token is not None and not self._has_token(headers):
            return _refused(
                401,
                f"Send the token: Authorization: Bearer … (it lies in the archive's {TOKEN_FILE}).",
                {"WWW-Authenticate": "Bearer"},
            )
        if not self._rate.has_capacity():
            said = f"More than {REQUESTS_PER_SECOND} requests a second. Call again."
            return _refused(429, said, {"Retry-After": "1"})
        return None

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            shown.strip().encode("utf-8", "surrogateescape"), (self._token or "").encode("ascii")
        )


def _with_clean_body(receive: Receive) -> Receive:
    """`receive` with the body in one piece, without halves of surrogate pairs as on stdio.

    What is larger than a body may be goes on as it came, to be refused.
    """

    async def received() -> Message:
        message = await receive()
        body = message.get("body", b"")
        pieces = [body]
        size_bytes = len(body)
        while message.get("more_body") and size_bytes <= MAX_BODY_BYTES:
            message = await receive()
            pieces.append(message.get("body", b""))
            size_bytes += len(pieces[-1])
        if message["type"] != "http.request":
            return message
        body = b"".join(pieces)
        if size_bytes <= MAX_BODY_BYTES:
            body = await to_thread.run_sync(_without_halves, body)
        return {**message, "body": body}

    return received


def _without_halves(body: bytes) -> bytes:
    text = without_halves(body.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape")


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(why, status_code=status, headers=headers)


class BoundedProtocol(H11Protocol):
    """A connection that must send whole requests in time, and one of a bounded number.

    uvicorn bounds neither: idle and half-sent requests held every file of the process, and the
    loop wrote 121 MB of tracebacks in 40 seconds.
    """

    _deadline: "asyncio.TimerHandle | None" = None
    _since: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or another's place for it."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch()
        if len(self.connections) > _max_connections():
            # Whoever waits longest for the rest of a request makes room: half-open connections
            # shut nobody out. Where all are being answered, it is the one that came last.
            self.logger.warning("Too many connections: one was closed unanswered.")
            peers = [peer for peer in self.connections if isinstance(peer, BoundedProtocol)]
            min(peers, key=BoundedProtocol._rank).transport.abort()

    def _rank(self) -> tuple[bool, float]:
        """Who is to go first: who waits, the longest; then who came last."""
        waits = self._deadline is not None
        return (not waits, self._since if waits else -self._since)

    def data_received(self, data: bytes) -> None:
        """Something of a request came."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the clock while a request is still to come or has come in part."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(RECEIVE_SECONDS, self._hang_up)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self._deadline = None
        self.transport.abort()


def _max_connections() -> int:
    """A quarter of the files that this process may open.

    The archive needs some, and twice `BACKLOG` is open before the first is closed.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_CONNECTIONS, max(8, soft // 4))


def ensure_token(folder: Path) -> str:
    """The token of the archive in `folder`, made by the first call.

    Raises:
        SettingsError: The file is open to others, empty, or cannot be written.
    """
    path = folder / TOKEN_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(handle, secrets.token_urlsafe(_TOKEN_BYTES).encode("ascii") + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
        status, text = path.stat(), path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The token's file {path} cannot be used: {error}.") from error
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise SettingsError(
            f"The token's file {path} may be read by others. Delete it, and a new token is made "
            "by the next start."
        )
    if len(text) < _TOKEN_BYTES:
        raise SettingsError(f"The token's file {path} holds no token. Delete it and start again.")
    return text


def _where_the_token_is(config: Config, token: str) -> str:
    path = config.archive_folder / TOKEN_FILE
    # Where standard error is kept as a log, the token would lie there for whoever reads logs.
    shown = token if sys.stderr.isatty() else "$TOKEN"
    return f"Callers send 'Authorization: Bearer {shown}'; the token lies in {path}"


def _bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A socket on a loopback address; `is_shared` with others of this user that say so too."""
    if not _is_loopback(host):
        raise SettingsError(
            f"{host} is no loopback address. Serve on 127.0.0.1: other machines must not reach "
            "this server."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    try:
        option = socket.SO_REUSEPORT if is_shared else socket.SO_REUSEADDR
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise SettingsError(
            f"Port {port} on {host} cannot be used: {error.strerror}. Choose another with --port."
        ) from error
    return bound


class _ListenerEach(socket.socket):
    """Becomes, in each process that it is handed to, a listener of that process's own.

    The kernel parts the connections among them. Of one listener for all, whoever is idle for a
    moment takes every connection that waits, and serves them alone for as long as they last.
    """

    def __init__(self, bound: socket.socket) -> None:
        """`bound` keeps the port; nobody listens on it."""
        super().__init__(fileno=bound.detach())

    def __reduce__(self) -> tuple[Any, ...]:
        """What the other process calls, with what."""
        host, port, *_ = self.getsockname()
        return _own_listener, (host, port)


def _own_listener(host: str, port: int) -> socket.socket:
    listener = _bind(host, port, is_shared=True)
    listener.listen()
    return listener


def _listen_on(path: Path) -> socket.socket:
    """A listening Unix socket that only the user may open; one that nobody serves is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket() and not _is_served(path):
            path.unlink()
        former = os.umask(0o177)  # between bind and chmod anybody could connect
        try:
            listener.bind(str(path))
        finally:
            os.umask(former)
        listener.listen()
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"The Unix socket {path} cannot be used: {error.strerror or error}. Choose "
            "another path with --unix-socket."
        ) from error
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
