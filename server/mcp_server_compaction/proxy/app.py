"""The proxy as an ASGI application: it passes requests on, and streams the answers back.

Only a request with a conversation is read. Everything else passes as bytes, with its own headers.
Credentials are used for their request only: nothing here stores or logs a header or a body.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio import to_thread
from anyio.abc import TaskGroup
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from mcp_server_compaction.protocol.http_gate import refused
from mcp_server_compaction.proxy.requests import Conversation, api_of, read_conversation
from mcp_server_compaction.proxy.sessions import Outgoing, Sessions
from mcp_server_compaction.proxy.status import Status
from mcp_server_compaction.proxy.usage import UsageReader, plain

CONNECT_SECONDS = 30.0
# A larger request is passed on while it arrives. Providers accept at most 32 MB.
_MAX_READ_BYTES = 40_000_000
# An error answer of a provider is far smaller.
_MAX_ERROR_BYTES = 1_000_000
_REFUSALS = (400, 413, 422)
# Headers of one connection only.
_HOP_HEADERS = frozenset({
    b"connection", b"expect", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection",
    b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Upstream:
    """The model's API.

    Attributes:
        url: Its address, without the paths of requests.
        client: The client for all requests.
    """

    url: str
    client: httpx2.AsyncClient

    def request(
        self, scope: Scope, content: "bytes | AsyncIterator[bytes]", *, is_new: bool = False
    ) -> httpx2.Request:
        """Return the request to send, with the caller's method, path and headers.

        `is_new` sets the length of another body.
        """
        skipped = _HOP_HEADERS | ({b"content-length"} if is_new else set[bytes]())
        headers = [pair for pair in scope["headers"] if pair[0] not in skipped]
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        path = urlsplit(self.url).path.rstrip("/").encode("ascii")
        return httpx2.Request(
            scope["method"],
            self.url,
            headers=headers,
            content=content or None,
            extensions={
                "target": path + target,
                "timeout": httpx2.Timeout(None, connect=CONNECT_SECONDS).as_dict(),
            },
        )


@dataclass(slots=True)
class Proxy:
    """The application.

    Attributes:
        upstream: The model's API.
        sessions: The conversations.
        status: Counts of this run.
        hosts: Accepted values of the header Host.
        save: Writes the counts.
        tasks: Runs work that outlasts its request.
        is_observing: Whether requests are only archived and counted.
    """

    upstream: Upstream
    sessions: Sessions
    status: Status
    hosts: frozenset[str]
    save: Callable[[], Coroutine[Any, Any, None]]
    tasks: TaskGroup
    is_observing: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        headers = Headers(scope=scope)
        refusal = self._refusal(headers)
        if refusal is not None:
            await refused(*refusal)(scope, receive, send)
            return
        self.status.requests += 1
        exchange = Exchange(self, scope, receive, send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.watch, tasks)
            await exchange.run()
            tasks.cancel_scope.cancel()
        # Not in the request's task group, because a caller that is gone ends that group.
        self.tasks.start_soon(self.save)

    def _refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Return status and text of a refusal: only programs of this machine may call."""
        host = ", ".join(headers.getlist("host")).lower()
        if host not in self.hosts:
            return 421, f"Wrong Host {host[:100]!r}. Use the address that the proxy printed."
        if "origin" in headers:
            return 403, "Web pages may not call this proxy."
        if "upgrade" in headers:
            return 426, "This proxy has no WebSockets. Send the request over HTTP."
        return None


@dataclass(slots=True)
class Exchange:
    """One request and its answer."""

    proxy: Proxy
    scope: Scope
    receive: Receive
    send: Send
    _is_read: anyio.Event = field(default_factory=anyio.Event)
    _is_started: bool = False

    async def watch(self, tasks: TaskGroup) -> None:
        """End the request to the provider as soon as the caller is gone."""
        await self._is_read.wait()
        while (await self.receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    async def run(self) -> None:
        """Pass the request on, and its answer back."""
        headers = Headers(scope=self.scope)
        api = api_of(self.scope["method"], self.scope["path"])
        try:
            size_bytes = int(headers.get("content-length", 0))
        except ValueError:
            size_bytes = 0
        try:
            if api is None or size_bytes > _MAX_READ_BYTES:
                reason = "another path" if api is None else "the body is too large"
                self.proxy.status.passed_on(reason)
                has_body = "content-length" in headers or "transfer-encoding" in headers
                await self._pass(self._pieces() if has_body else await self._body())
                return
            data = await self._body()
            read = partial(read_conversation, data, dict(headers), api)
            conversation = await to_thread.run_sync(read)
            if isinstance(conversation, str):
                self.proxy.status.passed_on(conversation)
                await self._pass(data)
            else:
                await self._converse(conversation, data)
        except httpx2.HTTPError as error:
            await self._fail(error)

    async def _converse(self, conversation: Conversation, data: bytes) -> None:
        proxy, status = self.proxy, self.proxy.status
        status.conversations += 1
        if conversation.host and conversation.host not in status.hosts:
            status.hosts.append(conversation.host)
        outgoing = Outgoing()
        if proxy.is_observing:
            proxy.tasks.start_soon(proxy.sessions.observe, conversation)
        else:
            outgoing = await proxy.sessions.fit(conversation)
        for is_last in (False, True):
            body = data if outgoing.data is None else outgoing.data
            if outgoing.is_edited:
                status.edited += 1
                status.kept_out_bytes += max(0, len(data) - len(body))
            request = proxy.upstream.request(self.scope, body, is_new=outgoing.data is not None)
            response = await proxy.upstream.client.send(request, stream=True)
            async with aclosing(response):
                if response.status_code in _REFUSALS and not is_last and not proxy.is_observing:
                    answer = await _read(response)
                    text = plain(answer, response.headers.get("content-encoding", ""))
                    again = await proxy.sessions.refused(
                        conversation, outgoing, response.status_code, text
                    )
                    if again is not None:
                        outgoing = again
                        continue
                    await self._answer(response, _one(answer))
                    return
                usage = _usage_reader(response)
                if await self._answer(response, response.aiter_raw(), usage.read):
                    await proxy.sessions.answered(conversation, outgoing, usage.finish())
                return

    async def _pass(self, content: "bytes | AsyncIterator[bytes]") -> None:
        request = self.proxy.upstream.request(self.scope, content)
        response = await self.proxy.upstream.client.send(request, stream=True)
        async with aclosing(response):
            await self._answer(response, response.aiter_raw())

    async def _answer(
        self,
        response: httpx2.Response,
        pieces: AsyncIterator[bytes],
        examine: Callable[[bytes], None] | None = None,
    ) -> bool:
        """Pass an answer back, each piece as it comes. Return whether it is a complete success."""
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in _HOP_HEADERS]
        status = response.status_code
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        self._is_started = True
        async for piece in pieces:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
            if examine is not None:
                examine(piece)
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
        return status == 200

    async def _fail(self, error: httpx2.HTTPError) -> None:
        """Report that the provider did not answer. A started answer is cut, as the provider's."""
        self.proxy.status.note(f"{self.proxy.upstream.url} failed: {type(error).__name__}")
        if self._is_started:
            return
        text = f"The proxy cannot reach {self.proxy.upstream.url} ({type(error).__name__})."
        body = json.dumps({"type": "error", "error": {"type": "api_error", "message": text}})
        headers = [(b"content-type", b"application/json")]
        await self.send({"type": "http.response.start", "status": 502, "headers": headers})
        await self.send({"type": "http.response.body", "body": body.encode("ascii")})

    async def _body(self) -> bytes:
        return b"".join([piece async for piece in self._pieces()])

    async def _pieces(self) -> AsyncGenerator[bytes]:
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self._is_read.set()
                await anyio.sleep_forever()  # `watch` ends this task
            yield message.get("body", b"")
            if not message.get("more_body", False):
                break
        self._is_read.set()


def _usage_reader(response: httpx2.Response) -> UsageReader:
    is_stream = "event-stream" in response.headers.get("content-type", "")
    return UsageReader(response.headers.get("content-encoding", ""), is_stream=is_stream)


async def _read(response: httpx2.Response) -> bytes:
    return b"".join([piece async for piece in response.aiter_raw()])


async def _one(piece: bytes) -> AsyncGenerator[bytes]:
    yield piece
