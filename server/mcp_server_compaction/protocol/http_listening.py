"""Sockets, worker processes and connections of the HTTP service."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn
from anyio import to_thread
from context_compaction import SettingsError
from context_compaction.system import IS_WINDOWS
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

# Time for a request to arrive. Callers are on this machine or behind a proxy that buffers.
RECEIVE_SECONDS = 30.0
MAX_HEAD_BYTES = 64 * 1024


def serve(
    app: Callable[[], ASGIApp], listener: socket.socket, place: str, workers: int = 1
) -> None:
    """Serve the application until interrupted.

    Args:
        app: Creates the application, once in each process.
        listener: Bound socket.
        place: Address to print for people.
        workers: Number of processes.
    """
    service = uvicorn.Config(
        app,
        factory=True,
        http=BoundedConnection,
        # uvicorn would write its access log to standard output, which must stay empty.
        log_config=None,
        log_level="warning",
        timeout_keep_alive=15,
        # After a signal, a process finishes its requests for 10 seconds and then cancels the rest.
        # Kubernetes kills a process after 30 seconds.
        timeout_graceful_shutdown=10,
        limit_concurrency=512,
        workers=workers,
        # A process that compacts millions of tokens may respond late to its health check.
        timeout_worker_healthcheck=60,
    )
    listeners = on_one_address(listener, workers)
    for listening in listeners:
        listening.listen(64)  # Connections wait here until a process is ready.
    sys.stderr.write(f"Serving on {place}\n")
    sys.stderr.flush()
    if workers > 1:
        _Workers(service, listeners).run()
    else:
        uvicorn.Server(service).run(listeners)


class _Workers(Multiprocess):
    """Worker processes, each with its own listener. A replacement process gets all listeners."""

    def init_processes(self) -> None:
        """Start the processes."""
        self.processes += [Process(self.config, [listener]) for listener in self.sockets]
        for process in self.processes:
            process.start()


def on_one_address(listener: socket.socket, count: int) -> list[socket.socket]:
    """Return `count` sockets on the address of `listener`, including `listener`.

    Linux divides connections among the sockets of one address. If all processes share one socket,
    an idle process takes every waiting connection: of 64 simultaneous connections, one of two
    processes got 64, 51 and 45.
    """
    if count == 1 or sys.platform != "linux" or listener.family == socket.AF_UNIX:
        return [listener] * count
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    host, port = listener.getsockname()[:2]
    return [listener, *(bind(host, port, shared=True) for _ in range(count - 1))]


def share_fairly() -> None:
    """Tune the threads of this process for many concurrent callers."""
    # A busy thread keeps the interpreter for this interval, about twenty times in a call. With
    # Python's default of 0.005 a huge list delays each small call by a tenth of a second.
    sys.setswitchinterval(0.0005)
    # With anyio's default of 40 threads, the slowest of 64 callers waited 11 times the median,
    # because Python runs one thread at a time.
    to_thread.current_default_thread_limiter().total_tokens = 3


class BoundedConnection(HttpToolsProtocol):
    """A connection that is closed if a request arrives too late, or its head is too large.

    uvicorn has no such limits, so half-open connections could use all file handles of the process.
    Above `limit_concurrency` connections the server responds with 503.
    """

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes: int | None = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """Close the connection if the head of the request is too large."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()

    def on_headers_complete(self) -> None:
        """Stop counting, because the head is complete."""
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the time limit, because the request is complete."""
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the time limit of the next request."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        self._stop_timer()
        self._head_bytes = 0
        self._deadline = self.loop.call_later(RECEIVE_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound to an address.

    Args:
        host: Address of this machine.
        port: Port. 0 for a free port.
        shared: Whether other sockets of the user may use the same address.

    Raises:
        SettingsError: The port is in use, or the address does not exist.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is named, and on Windows only if the
    # listener does so. Otherwise each response waits 40 ms for the client's delayed
    # acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        # With SO_REUSEADDR on Windows, another program could take the port.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise SettingsError(
            f"Cannot use port {port} on {host}: {error.strerror}. Choose another with --port."
        ) from error
    return bound


def listen_on(path: Path) -> socket.socket:
    """Return a listening Unix socket that only the user may open. Replace an abandoned socket.

    Raises:
        SettingsError: The path is in use or cannot be created, or the system is Windows.
    """
    if IS_WINDOWS:
        raise SettingsError(
            "Python has no Unix sockets on Windows. Use --port instead of --unix-socket."
        )
    listener = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket() and not _is_served(path):
            path.unlink()
        # With chmod after bind, other users could connect in between.
        previous_umask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(previous_umask)
        listener.listen()
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"Cannot use the Unix socket {path}: {error.strerror or error}. Choose another path "
            "with --unix-socket."
        ) from error
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
