"""The proxy as an ASGI application: it passes requests on, and streams the answers back.

Only a request with a conversation is read. Everything else passes as bytes, with its own headers.
Credentials are used for their request only: nothing here stores or logs a header or a body. A
thread runs the application with its socket, archive and client.
"""

import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
import httpx2
import uvicorn
from anyio import to_thread
from anyio.abc import TaskGroup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import Receive, Scope, Send

from mcp_server_compaction.config import Config, ProxyOptions
from mcp_server_compaction.protocol.app import load_engine, reduce_gc
from mcp_server_compaction.protocol.deps import LazyArchive
from mcp_server_compaction.protocol.http_gate import Names
from mcp_server_compaction.protocol.http_listening import bind
from mcp_server_compaction.proxy.requests import Conversation, api_of, read_conversation, usage_in
from mcp_server_compaction.proxy.sessions import Sessions
from mcp_server_compaction.proxy.status import CLAUDE_CODE_LOSSES, Status, remove_old_files

_TIMEOUT = httpx2.Timeout(None, connect=30.0).as_dict()
_BYTES_PER_TOKEN = 4
# Headers of one connection only.
_HOP_HEADERS = frozenset({
    b"connection", b"expect", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection",
    b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip
# Hosts keep connections for minutes. One that the proxy closes first can break a request.
_KEEP_ALIVE_SECONDS = 600
# Time for answers that still stream when the proxy ends.
_END_SECONDS = 5


@dataclass(slots=True)
class Proxy:
    """The application.

    Attributes:
        client: The client of the model's API.
        sessions: The conversations.
        names: Accepted values of the header Host. Web pages may not call.
    """

    client: httpx2.AsyncClient
    sessions: Sessions
    names: Names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it: only programs of this machine may call."""
        request = Request(scope, receive)
        refusal = self.names.refusal(scope)
        if "upgrade" in request.headers:
            refusal = PlainTextResponse("There are no WebSockets here. Use HTTP.", 426)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        sessions = self.sessions
        sessions.status.requests += 1
        async with anyio.create_task_group() as tasks:
            await Exchange(self.client, sessions, request, send, tasks).run()
            tasks.cancel_scope.cancel()
        # Not in the request's task group, because a caller that is gone ends that group.
        sessions.tasks.start_soon(sessions.status.save, sessions.folder)


@dataclass(slots=True)
class Exchange:
    """One request and its answer.

    Attributes:
        client: The client of the model's API.
        sessions: The conversations.
        request: The request.
        send: Sends the answer.
        tasks: Runs as long as the request.
    """

    client: httpx2.AsyncClient
    sessions: Sessions
    request: Request
    send: Send
    tasks: TaskGroup
    _is_started: bool = False

    async def run(self) -> None:
        """Pass the request on, and its answer back."""
        request, status = self.request, self.sessions.status
        api = api_of(request.method, request.scope["path"])
        try:
            data = await request.body()
            self.tasks.start_soon(self._end_with_caller)
            talk: Conversation | str = "another path"
            if api is not None:
                headers = dict(request.headers)
                talk = await to_thread.run_sync(read_conversation, data, headers, api)
            if isinstance(talk, str):
                status.passed[talk] = status.passed.get(talk, 0) + 1
                await self._answer(await self._ask(data))
            else:
                await self._converse(talk)
        except ClientDisconnect:
            return
        except httpx2.HTTPError as error:
            text = f"The proxy cannot reach {status.upstream} ({type(error).__name__})."
            status.note(text)
            # An answer that was started is cut, like the provider's.
            if not self._is_started:
                answer = JSONResponse({"type": "error", "error": {"message": text}}, 502)
                await answer(request.scope, request.receive, self.send)

    async def _end_with_caller(self) -> None:
        """End the request to the provider as soon as the caller is gone."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        self.tasks.cancel_scope.cancel()

    async def _converse(self, talk: Conversation) -> None:
        """Send a conversation that fits; if it is refused, one more time as the fallback."""
        sessions, status = self.sessions, self.sessions.status
        status.conversations += 1
        if talk.is_of_claude_code:
            status.note(CLAUDE_CODE_LOSSES)
        sent = await sessions.fit(talk)
        response = await self._ask(sent.data)
        if response.status_code in (400, 413, 422):
            answer = b"".join([piece async for piece in response.aiter_raw()])
            again = await sessions.refused(talk, sent, response.status_code, answer)
            if again is None:
                await self._answer(response, answer)
                return
            sent, response = again, await self._ask(again.data)
        if sent.is_edited:
            status.edited += 1
            kept_out_bytes = len(talk.data) - len(sent.data)
            status.kept_out_tokens += max(0, kept_out_bytes) // _BYTES_PER_TOKEN

        async def note(answer: bytes) -> None:
            if response.status_code == 200:
                usage = await to_thread.run_sync(usage_in, answer)
                await sessions.answered(talk, sent, usage)
                sessions.tasks.start_soon(sessions.prepare, talk, sent, self._ask)

        await self._answer(response, note=note)

    async def _ask(self, data: bytes) -> httpx2.Response:
        """Send the request with the caller's method, path and headers; return the response."""
        scope, upstream = self.request.scope, self.sessions.status.upstream
        # Without Accept-Encoding the answer is no compressed one, so its usage can be read.
        skipped = {*_HOP_HEADERS, b"accept-encoding", b"content-length"}
        query = scope["query_string"]
        path = urlsplit(upstream).path.encode("ascii") + scope["raw_path"]
        request = httpx2.Request(
            scope["method"],
            upstream,
            headers=[pair for pair in scope["headers"] if pair[0] not in skipped],
            content=data or None,
            extensions={"target": path + (b"?" + query if query else b""), "timeout": _TIMEOUT},
        )
        return await self.client.send(request, stream=True)

    async def _answer(
        self,
        response: httpx2.Response,
        answer: bytes | None = None,
        note: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        """Pass an answer back, each piece as it comes, or the whole `answer`.

        `note` gets all bytes before the end is sent, because the caller may then be gone.
        """
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in _HOP_HEADERS]
        pieces = bytearray(answer or b"")
        async with aclosing(response):
            start = {"status": response.status_code, "headers": headers}
            await self.send({"type": "http.response.start", **start})
            self._is_started = True
            if answer is None:
                async for piece in response.aiter_raw():
                    body = {"type": "http.response.body", "body": piece, "more_body": True}
                    await self.send(body)
                    pieces += piece
            if note is not None:
                await note(bytes(pieces))
            await self.send({"type": "http.response.body", "body": answer or b""})


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
