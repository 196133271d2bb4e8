"""Run the proxy: its socket, archive and client."""

import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

import anyio
import httpx2
import uvicorn
from anyio import to_thread

from mcp_server_compaction.config import LOOPBACK_HOSTS, Config
from mcp_server_compaction.protocol.app import load_engine, reduce_gc
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.protocol.http_listening import bind
from mcp_server_compaction.proxy.app import Proxy, Upstream
from mcp_server_compaction.proxy.sessions import Options, Sessions
from mcp_server_compaction.proxy.status import Status, read_statuses, status_lines

# Hosts keep connections for minutes. One that the proxy closes first can break a request.
_KEEP_ALIVE_SECONDS = 600
_CONNECTIONS = 1_000
# Time for answers that still stream when the proxy ends.
_END_SECONDS = 5


def listen(port: int) -> socket.socket:
    """Return a listening socket that only programs of this machine can reach.

    Raises:
        SettingsError: The port is in use.
    """
    listener = bind("127.0.0.1", port)
    listener.listen(128)
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of the proxy."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def serve_proxy(config: Config, options: Options, upstream: str, listener: socket.socket) -> None:
    """Serve until interrupted, and print the address on standard error."""
    status = Status(address_of(listener), upstream, is_observing=options.is_observing)

    def announce(_: uvicorn.Server) -> None:
        sys.stderr.write(f"Proxy listening on {status.address}\n")
        sys.stderr.flush()

    reduce_gc()
    anyio.run(_serve, config, options, listener, status, announce)


class ProxyThread:
    """The proxy in a thread, while another program runs."""

    def __init__(
        self, config: Config, options: Options, upstream: str, listener: socket.socket
    ) -> None:
        self._status = Status(address_of(listener), upstream, is_observing=options.is_observing)
        self._servers: list[uvicorn.Server] = []
        self._is_stopping = False
        work = partial(_serve, config, options, listener, self._status, self._started)
        self._thread = threading.Thread(target=anyio.run, args=(work,), daemon=True)
        self._thread.start()

    def _started(self, server: uvicorn.Server) -> None:
        self._servers.append(server)
        server.should_exit = self._is_stopping

    def stop(self) -> None:
        """End the proxy, and wait until it is closed."""
        self._is_stopping = True
        for server in self._servers:
            server.should_exit = True
        self._thread.join(_END_SECONDS)

    def summary(self) -> Sequence[str]:
        """Return the figures of this run as lines for people."""
        return status_lines(self._status)


async def _serve(
    config: Config,
    options: Options,
    listener: socket.socket,
    status: Status,
    started: Callable[[uvicorn.Server], None],
) -> None:
    port = listener.getsockname()[1]
    hosts = frozenset(f"{f'[{name}]' if ':' in name else name}:{port}" for name in LOOPBACK_HOSTS)
    await to_thread.run_sync(read_statuses, config.archive_folder)
    archive = LazyArchive(config)
    # No proxy of the environment and no redirect: requests go to the upstream only.
    client = httpx2.AsyncClient(
        trust_env=False,
        verify=await to_thread.run_sync(httpx2.create_ssl_context),
        limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=20),
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(archive.running())
        await stack.enter_async_context(client)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        sessions = Sessions(options, archive.get, config.archive_folder, status, tasks)
        save = partial(status.save, config.archive_folder)
        app = Proxy(
            Upstream(status.upstream, client),
            sessions,
            status,
            hosts,
            save,
            tasks,
            is_observing=options.is_observing,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_END_SECONDS,
            )
        )
        tasks.start_soon(to_thread.run_sync, load_engine, config)
        await save()
        started(server)
        await server.serve(sockets=[listener])
        await save()
        tasks.cancel_scope.cancel()
