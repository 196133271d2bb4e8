"""A proxy in front of a PostgreSQL server that records each statement."""

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

from tests.support.environment import SHORT_FOLDER

_END_SECONDS = 30.0


class Statements:
    """Statements of all connections, in the order in which they arrived.

    Attributes:
        address: URL of a connection through the proxy.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._asked: list[str] = []

    def add(self, statement: str) -> None:
        with self._lock:
            self._asked.append(statement)

    def take(self) -> list[str]:
        """Return the statements since the last call."""
        with self._lock:
            statements, self._asked = self._asked, []
        return statements


@contextmanager
def counted(address: str) -> Generator[Statements]:
    """Run a proxy to the server at `address`, on a socket in its own folder."""
    known = conninfo_to_dict(address)
    host, port = str(known.get("host") or "localhost"), int(known.get("port") or 5432)
    with TemporaryDirectory(prefix="way-", dir=SHORT_FOLDER) as folder:
        parts = urlsplit(address)
        name = parts.netloc.rpartition("@")[0]
        query = f"host={quote(folder, safe='')}&port=5432&sslmode=disable"
        way = urlunsplit(parts._replace(netloc=f"{name}@", query=query))
        statements = Statements(way)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(Path(folder) / ".s.PGSQL.5432"))
        listener.listen()
        ways: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    ways.append(threading.Thread(target=serve, args=(client,)))
                    ways[-1].start()

        def serve(client: socket.socket) -> None:
            with client, _connected(host, port) as server:
                replies = threading.Thread(target=_pass, args=(server, client))
                replies.start()
                _ask(client, server, statements)
                replies.join()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield statements
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *ways):
                thread.join(_END_SECONDS)
            listener.close()


def _connected(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=None)
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    _close(source, target)


def _ask(client: socket.socket, server: socket.socket, statements: Statements) -> None:
    """Forward messages of a client (type, length and content) and record their statements."""
    with client.makefile("rb") as stream, suppress(OSError, struct.error):
        (size,) = struct.unpack(">I", start := stream.read(4))  # the first message has no type
        server.sendall(start + stream.read(size - 4))
        while head := stream.read(5):
            kind, size = struct.unpack(">cI", head)
            body = stream.read(size - 4)
            if kind in (b"Q", b"P"):  # a simple query; or a name, its end, and a query
                text = body if kind == b"Q" else body.split(b"\0", 1)[1]
                statements.add(text.split(b"\0", 1)[0].decode())
            server.sendall(head + body)
    _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for endpoint in sockets:
        with suppress(OSError):
            endpoint.shutdown(socket.SHUT_RDWR)
