"""Listening: sockets, processes, and connections whose requests begin in time."""

import asyncio
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn
from anyio import to_thread
from context_compaction import SettingsError
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

# The head of a request must arrive in this time, and may have so many bytes.
HEAD_SECONDS = 20.0
MAX_HEAD_BYTES = 64 * 1024
KEEP_ALIVE_SECONDS = 15  # after an answer; uvicorn counts them
MAX_CONNECTIONS = 512
BACKLOG = 64
# A process that compacts millions of tokens may answer its health check late.
HEALTHCHECK_SECONDS = 60
# A process that is to end finishes its requests; what takes longer is cancelled, and so are the
# streams of clients that only listen. Kubernetes kills after 30 seconds.
GRACE_SECONDS = 10
# Python runs one thread at a time, so that more of them only take it from each other and from the
# loop: with 40, as anyio has it, the last of 64 callers waited 11 times as long as the median one.
COMPUTE_THREADS = 3
# How long a busy thread keeps the interpreter while the loop wants it, which it does some twenty
# times a call. Python's 0.005 lets a huge list hold up each small call by a tenth of a second.
SWITCH_SECONDS = 0.0005


def serve(app: Callable[[], ASGIApp], listener: socket.socket, told: str, workers: int = 1) -> None:
    """Serve what `app` makes, in each of so many processes; `told` says where, at the start."""
    service = uvicorn.Config(
        app,
        factory=True,
        http=BoundedConnection,
        # uvicorn would write its access log to standard output.
        log_config=None,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        workers=workers,
        timeout_worker_healthcheck=HEALTHCHECK_SECONDS,
    )
    listeners = _on_one_address(listener, workers)
    for one in listeners:
        one.listen(BACKLOG)  # connections wait until a process is ready
    sys.stderr.write(f"Serving on {told}\n")
    sys.stderr.flush()
    if workers > 1:
        _Workers(service, listeners).run()
    else:
        uvicorn.Server(service).run(listeners)


class _Workers(Multiprocess):
    """Several processes, each with a listener of its own; one that replaces another has all."""

    def init_processes(self) -> None:
        """Start them."""
        for listener in self.sockets:
            process = Process(self.config, [listener])
            process.start()
            self.processes.append(process)


def _on_one_address(listener: socket.socket, count: int) -> list[socket.socket]:
    """`listener` and others on its address, between which Linux parts the connections.

    Of one listener for all, whoever is idle for a moment takes every connection that waits: of 64
    that came at once, one of two processes had 64, 51 or 45.
    """
    if sys.platform != "linux" or listener.family == socket.AF_UNIX:
        return [listener] * count
    listeners = [listener]
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    for _ in range(count - 1):
        another = socket.socket(listener.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        another.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        another.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        another.bind(listener.getsockname())
        listeners.append(another)
    return listeners


def share_fairly() -> None:
    """Set this process up for many callers at once, when all it needs is loaded."""
    sys.setswitchinterval(SWITCH_SECONDS)
    to_thread.current_default_thread_limiter().total_tokens = COMPUTE_THREADS


class BoundedConnection(HttpToolsProtocol):
    """A connection whose requests need a head that arrives in time and is not too large.

    uvicorn waits for ever, and keeps whatever comes: half-open connections used up every file of
    the process. `limit_concurrency` answers with 503 where too many are open.
    """

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection is open."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Something of a request came."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._deadline is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._stop_clock()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """The next request may come, or came already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._stop_clock()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._stop_clock()
        self._head_bytes = 0
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bind(host: str, port: int) -> socket.socket:
    """A socket on an address.

    Raises:
        SettingsError: The port is taken, or there is no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once only over sockets whose protocol is named. Over others an answer waits
    # for the client's delayed acknowledgement: 40 ms a call.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise SettingsError(
            f"Port {port} on {host} cannot be used: {error.strerror}. Choose another with --port."
        ) from error
    return bound


def listen_on(path: Path) -> socket.socket:
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
