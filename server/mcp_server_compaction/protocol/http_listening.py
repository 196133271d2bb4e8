"""Listening: sockets, processes, and connections that are bounded in number and time."""

import asyncio
import ipaddress
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from anyio import to_thread
from context_compaction.errors import SettingsError
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

# A request that has not arrived whole by then never will: callers sit on this machine, or a proxy
# that has read the request does.
RECEIVE_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 15
# Of a request, before and behind its body and between two pieces of it.
MAX_FRAME_BYTES = 64 * 1024
MAX_CONNECTIONS = 512
# asyncio accepts so many at a time before any of them is looked at: where that is more than the
# process may open, it writes a traceback for each (Python 3.11).
BACKLOG = 64
# A process that compacts millions of tokens may not get to say that it is well before.
HEALTHCHECK_SECONDS = 60
# A process that is to end finishes its requests; what takes longer is cancelled, whole. Less than
# the 30 seconds after which Kubernetes kills.
GRACE_SECONDS = 25
# Python runs one thread at a time, so that more of them only take it from each other and from the
# loop: with 40, as anyio has it, the last of 64 callers waited 11 times as long as the median one.
# One may be busy for seconds with a huge list; what a thread waits for has others do the work.
COMPUTE_THREADS = 3
# How long a busy thread keeps the interpreter while the loop wants it, which it does some twenty
# times a call. Python's 0.005 lets a huge list hold up each small call by a tenth of a second.
SWITCH_SECONDS = 0.0005
# How long a connection that no process can take now waits until they are asked again.
DEALT_AGAIN_SECONDS = 0.1


def serve(app: Callable[[], ASGIApp], listener: socket.socket, told: str, workers: int = 1) -> None:
    """Serve what `app` makes, in each of so many processes; `told` says where, at the start."""
    service = uvicorn.Config(
        app,
        factory=True,
        http=BoundedProtocol,
        # uvicorn would write its access log to standard output.
        log_config=None,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
        workers=workers,
        timeout_worker_healthcheck=HEALTHCHECK_SECONDS,
    )
    if workers > 1:
        _Workers(service, listener, told).run()
        return
    listener.listen()
    _announce(told)
    uvicorn.Server(service).run([listener])


def share_fairly() -> None:
    """Set this process up for many callers at once, when all it needs is loaded."""
    sys.setswitchinterval(SWITCH_SECONDS)
    to_thread.current_default_thread_limiter().total_tokens = COMPUTE_THREADS


def _announce(told: str) -> None:
    sys.stderr.write(f"Serving on {told}\n")
    sys.stderr.flush()


class _Workers(Multiprocess):
    """Several processes, announced when all of them are ready; each gets every nth connection.

    The kernel parts connections by chance: of 64, one of two processes gets 36 and is busy when the
    other has nothing left. Of one listener for all, whoever is idle for a moment takes every
    connection that waits, and serves them alone for as long as they last.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket, told: str) -> None:
        self._dealer = Dealer(listener)
        super().__init__(config, [self._dealer])
        self._told = told

    def init_processes(self) -> None:
        """Start them; one that does not come up is dealt with as one that died."""
        super().init_processes()
        for process in self.processes:
            process.wait_until_ready(HEALTHCHECK_SECONDS, self.should_exit)
        threading.Thread(target=self._dealer.deal, daemon=True).start()
        _announce(self._told)

    def terminate_all(self) -> None:
        """Let nobody in any more, then end them."""
        self._dealer.stop()
        super().terminate_all()


class Dealer(socket.socket):
    """Listens for all processes, and becomes in each that it is handed to a listener of its own."""

    def __init__(self, bound: socket.socket) -> None:
        """`bound` has an address."""
        super().__init__(fileno=bound.detach())
        self.listen()
        # By our end theirs, which must be open here until the process has it: the next is started.
        self._starting: dict[socket.socket, socket.socket] = {}
        self._ready: deque[socket.socket] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        """What the other process calls, with what."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)  # nobody waits for a process that takes none
        for started in [*self._starting.values()]:
            started.close()  # else we would not see that a process ended before it was ready
        self._starting[ours] = theirs
        return Dealt, (theirs,)

    def deal(self) -> None:
        """Hand out connections, to each process in turn, until `stop`."""
        while self.fileno() >= 0:
            try:
                connection, _ = self.accept()
            except OSError:
                time.sleep(DEALT_AGAIN_SECONDS)  # none can be opened now, or this is the end
                continue
            with connection:
                while self.fileno() >= 0 and not self._is_dealt(connection):
                    select.select(self._starting, [], [], DEALT_AGAIN_SECONDS)

    def stop(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for one
        self.close()

    def _is_dealt(self, connection: socket.socket) -> bool:
        """Whether a process took a connection."""
        for player in [*self._starting]:
            with suppress(BlockingIOError):
                player.recv(1)  # it is ready
                self._starting.pop(player).close()
                self._ready.append(player)
        for _ in range(len(self._ready)):
            player = self._ready.popleft()
            try:
                socket.send_fds(player, [b"c"], [connection.fileno()])
            except (BrokenPipeError, ConnectionResetError):
                player.close()  # its process has ended
            except OSError:
                self._ready.append(player)  # it, or all have many that nobody has looked at yet
            else:
                self._ready.append(player)
                return True
        return False


class Dealt(socket.socket):
    """The listener of one process: what it accepts are connections that the dealer handed to it."""

    def __init__(self, channel: socket.socket) -> None:
        """`channel` brings them."""
        super().__init__(fileno=channel.detach())

    def listen(self, _backlog: int = 0) -> None:
        """Say that this process is ready."""
        self.send(b"r")

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        data, handles, _, _ = socket.recv_fds(self, 1, 1)
        if not data:  # the dealer is gone, and with it whoever starts and ends processes
            signal.raise_signal(signal.SIGTERM)
        if not handles:  # or this process may open no more files
            raise BlockingIOError
        connection = socket.socket(fileno=handles[0])
        connection.set_inheritable(False)
        try:
            return connection, connection.getpeername()
        except OSError as error:
            connection.close()
            raise ConnectionAbortedError from error


class BoundedProtocol(HttpToolsProtocol):
    """A connection that must send whole requests in time, and one of a bounded number.

    uvicorn bounds neither: idle and half-sent requests held every file of the process, and the
    loop wrote 121 MB of tracebacks in 40 seconds. Nor does it bound headers where httptools parses
    them, which takes a twentieth off the CPU of a loaded call beside h11.
    """

    _deadline: "asyncio.TimerHandle | None" = None
    _since: float = 0.0
    _unanswered = 0  # requests that came whole
    _frame_bytes = 0  # what came since headers, a piece of a body or a request were complete
    _is_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or another's place for it."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch()
        if len(self.connections) <= _max_connections():
            return
        # One that was closed in this turn of the loop is lost in the next: without asking, all that
        # come at once would close the same one.
        peers = [
            peer
            for peer in self.connections
            if isinstance(peer, BoundedProtocol) and not peer.transport.is_closing()
        ]
        if len(peers) > _max_connections():
            # Whoever waits longest for the rest of a request makes room: half-open connections
            # shut nobody out. Where all are being answered, it is the one that came last.
            self.logger.warning("Too many connections: one was closed unanswered.")
            min(peers, key=BoundedProtocol._rank).transport.abort()

    def _rank(self) -> tuple[bool, float]:
        """Who is to go first: who waits, the longest; then who came last."""
        waits = self._deadline is not None
        return (not waits, self._since if waits else -self._since)

    def data_received(self, data: bytes) -> None:
        """Something of a request came."""
        self._frame_bytes += len(data)
        super().data_received(data)
        if self._frame_bytes > MAX_FRAME_BYTES and not self.transport.is_closing():
            self.logger.warning("A request's headers are too large: its connection was closed.")
            self.transport.abort()
        self._watch()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._is_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header came; one behind the body is none."""
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The body follows."""
        super().on_headers_complete()
        self._is_head = False
        self._frame_bytes = 0

    def on_body(self, body: bytes) -> None:
        """A piece of the body came."""
        super().on_body(body)
        self._frame_bytes = 0

    def on_message_complete(self) -> None:
        """A request came whole."""
        super().on_message_complete()
        self._unanswered += 1
        self._frame_bytes = 0

    def on_response_complete(self) -> None:
        """The next request may come."""
        self._unanswered -= 1
        super().on_response_complete()
        self._watch()

    def shutdown(self) -> None:
        """The process is to end: a stream that only listens has nothing to finish."""
        super().shutdown()
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete and self._only_listens():
            self.transport.close()

    def _only_listens(self) -> bool:
        headers = dict(self.scope["headers"])
        is_stream = b"text/event-stream" in headers.get(b"accept", b"")
        return headers.get(b"mcp-method") == b"subscriptions/listen" or (
            self.scope["method"] == "GET" and is_stream
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the clock while a request is still to come or has come in part."""
        if self._unanswered > 0:
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
