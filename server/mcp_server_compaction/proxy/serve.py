"""Run the proxy in a thread: its socket, archive and client."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import httpx2
import uvicorn
from anyio import to_thread
from starlette.types import Receive, Scope, Send

from mcp_server_compaction.config import Config, ProxyOptions
from mcp_server_compaction.protocol.app import load_engine, reduce_gc
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.protocol.http_gate import Names
from mcp_server_compaction.protocol.http_listening import bind
from mcp_server_compaction.proxy.app import Proxy
from mcp_server_compaction.proxy.sessions import Sessions
from mcp_server_compaction.proxy.status import Status, remove_old_files

# Hosts keep connections for minutes. One that the proxy closes first can break a request.
_KEEP_ALIVE_SECONDS = 600
# Time for answers that still stream when the proxy ends.
_END_SECONDS = 5


@contextmanager
def running_proxy(
    config: Config, options: ProxyOptions
) -> Generator[tuple[Status, threading.Thread]]:
    """Run a proxy on 127.0.0.1 until the end of the block; yield its figures and thread.

    Raises:
        SettingsError: The port is in use.
    """
    reduce_gc()
    folder, proxies = config.archive_folder, list[Proxy]()
    listener = bind("127.0.0.1", options.port)
    listener.listen(128)  # requests wait here until the proxy is ready
    port = listener.getsockname()[1]
    status = Status(f"http://127.0.0.1:{port}", options.upstream or "", options.observe)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await proxies[0](scope, receive, send)

    server = uvicorn.Server(
        uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_END_SECONDS,
        )
    )

    async def serve() -> None:
        await to_thread.run_sync(remove_old_files, folder)
        archive = LazyArchive(config)
        # No proxy of the environment and no redirect: requests go to the upstream only.
        context = await to_thread.run_sync(httpx2.create_ssl_context)
        client = httpx2.AsyncClient(trust_env=False, verify=context, limits=httpx2.Limits())
        async with archive.running(), client, anyio.create_task_group() as tasks:
            sessions = Sessions(options, archive.get, folder, status, tasks)
            hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
            proxies.append(Proxy(client, sessions, Names(hosts)))
            tasks.start_soon(to_thread.run_sync, load_engine, config)
            await status.save(folder)
            await server.serve(sockets=[listener])
            # An observed list may still be archived.
            tasks.cancel_scope.deadline = anyio.current_time() + _END_SECONDS
        await status.save(folder)

    thread = threading.Thread(target=anyio.run, args=(serve,), daemon=True)
    thread.start()
    try:
        yield status, thread
    finally:
        server.should_exit = True
        thread.join(2 * _END_SECONDS)
