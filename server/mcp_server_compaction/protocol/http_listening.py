"""Listening: sockets, processes, and connections whose requests begin in time."""

import asyncio
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


def serve(
    app: Callable[[], ASGIApp], listener: socket.socket, place: str, workers: int = 1
) -> None:
    """Serve what `app` makes in `workers` processes; `place` tells people where it is served."""
    service = uvicorn.Config(
        app,
        factory=True,
        http=BoundedConnection,
        # uvicorn would write its access log to standard output.
        log_config=None,
        log_level="warning",
        timeout_keep_alive=15,
        # A process that is to end finishes its requests; then it cancels those that take longer,
        # and the streams of clients that only listen. Kubernetes kills after 30 seconds.
        timeout_graceful_shutdown=10,
        limit_concurrency=512,
        workers=workers,
        # A process that compacts millions of tokens may answer its health check late.
        timeout_worker_healthcheck=60,
    )
    listeners = on_one_address(listener, workers)
    for one in listeners:
        one.listen(64)  # connections wait until a process is ready
    sys.stderr.write(f"Serving on {place}\n")
    sys.stderr.flush()
    if workers > 1:
        _Workers(service, listeners).run()
    else:
        uvicorn.Server(service).run(listeners)


class _Workers(Multiprocess):
    """Several processes, each with a listener of its own; a replacement gets all listeners."""

    def init_processes(self) -> None:
        """Start them."""
        self.processes += [Process(self.config, [listener]) for listener in self.sockets]
        for process in self.processes:
            process.start()


def on_one_address(listener: socket.socket, count: int) -> list[socket.socket]:
    """`listener` and others on its address, between which Linux divides the connections.

    If all processes share one listener, an idle process takes every connection that waits: of 64
    that came at once, one of two processes had 64, 51 or 45.
    """
    if count == 1 or sys.platform != "linux" or listener.family == socket.AF_UNIX:
        return [listener] * count
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    host, port = listener.getsockname()[:2]
    return [listener, *(bind(host, port, shared=True) for _ in range(count - 1))]


def share_fairly() -> None:
    """Set this process up for many callers at once, when all it needs is loaded."""
    # A busy thread keeps the interpreter this long while the loop wants it, some twenty times a
    # call. With Python's 0.005 a huge list holds up each small call by a tenth of a second.
    sys.setswitchinterval(0.0005)
    # Python runs one thread at a time: with anyio's 40, the last of 64 callers waited 11 times as
    # long as the median one.
    to_thread.current_default_thread_limiter().total_tokens = 3


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


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket on an address, which other sockets of this user may share.

    Raises:
        SettingsError: The port is taken, or there is no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once only over sockets whose protocol is named. Over others an answer waits
    # for the client's delayed acknowledgement: 40 ms a call.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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
