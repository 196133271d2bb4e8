"""Run the proxy in a thread: its socket, archive and client."""

import signal
import threading
from contextlib import AsyncExitStack
from functools import partial

import anyio
import httpx2
import uvicorn
from anyio import to_thread
from starlette.types import Receive, Scope, Send

from mcp_server_compaction.config import LOOPBACK_HOSTS, Config
from mcp_server_compaction.protocol.app import load_engine, reduce_gc
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.protocol.http_listening import bind
from mcp_server_compaction.proxy.app import Proxy
from mcp_server_compaction.proxy.sessions import Options, Sessions
from mcp_server_compaction.proxy.status import Status, read_statuses

# Hosts keep connections for minutes. One that the proxy closes first can break a request.
_KEEP_ALIVE_SECONDS = 600
# Time for answers that still stream when the proxy ends.
_END_SECONDS = 5


class ProxyThread:
    """A running proxy.

    Attributes:
        status: Figures of this run.
    """

    def __init__(self, config: Config, options: Options, upstream: str, port: int) -> None:
        """Listen at `port` of 127.0.0.1, and start.

        Raises:
            SettingsError: The port is in use.
        """
        reduce_gc()
        self._listener = bind("127.0.0.1", port)
        self._listener.listen(128)  # requests wait here until the proxy is ready
        self._port = self._listener.getsockname()[1]
        address = f"http://127.0.0.1:{self._port}"
        self.status = Status(address, upstream, is_observing=options.is_observing)
        self._config, self._options = config, options
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                interface="asgi3",
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
        self._thread = threading.Thread(target=anyio.run, args=(self._serve,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until a signal ends the proxy."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: self.stop(0))  # noqa: ARG005
        # In parts, because Windows handles Ctrl-C only between two waits.
        while self._thread.is_alive():
            self._thread.join(0.5)

    def stop(self, seconds: float = 2 * _END_SECONDS) -> None:
        """End the proxy, and wait at most `seconds` until it is closed."""
        self._server.should_exit = True
        self._thread.join(seconds)

    async def _serve(self) -> None:
        config, status = self._config, self.status
        await to_thread.run_sync(read_statuses, config.archive_folder)
        archive = LazyArchive(config)
        # No proxy of the environment and no redirect: requests go to the upstream only.
        context = await to_thread.run_sync(httpx2.create_ssl_context)
        client = httpx2.AsyncClient(trust_env=False, verify=context, limits=httpx2.Limits())
        save = partial(status.save, config.archive_folder)
        hosts = (f"[{name}]" if ":" in name else name for name in LOOPBACK_HOSTS)
        names = frozenset(f"{host}:{self._port}" for host in hosts)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(archive.running())
            await stack.enter_async_context(client)
            stack.push_async_callback(save)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            sessions = Sessions(self._options, archive.get, config.archive_folder, status, tasks)
            self._proxy = Proxy(client, sessions, status, names, save, tasks)
            tasks.start_soon(to_thread.run_sync, load_engine, config)
            await save()
            await self._server.serve(sockets=[self._listener])
            # An observed list may still be archived.
            tasks.cancel_scope.deadline = anyio.current_time() + _END_SECONDS

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._proxy(scope, receive, send)
