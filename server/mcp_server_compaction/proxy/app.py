"""The proxy as an ASGI application: it passes requests on, and streams the answers back.

Only a request with a conversation is read. Everything else passes as bytes, with its own headers.
Credentials are used for their request only: nothing here stores or logs a header or a body.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio import to_thread
from anyio.abc import TaskGroup
from context_compaction import SummaryError
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from mcp_server_compaction.protocol.http_gate import refused
from mcp_server_compaction.proxy.requests import Conversation, api_of, read_conversation
from mcp_server_compaction.proxy.sessions import Outgoing, Sessions
from mcp_server_compaction.proxy.status import Status
from mcp_server_compaction.proxy.usage import decoded, usage_in

_TIMEOUT = httpx2.Timeout(None, connect=30.0).as_dict()
# A larger request passes unread while it arrives, and more of an answer is not examined. Providers
# accept at most 32 MB.
_MAX_READ_BYTES = 40_000_000
_BYTES_PER_TOKEN = 4
_REFUSALS = (400, 413, 422)
# Headers of one connection only.
_HOP_HEADERS = frozenset({
    b"connection", b"expect", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection",
    b"te", b"trailer", b"transfer-encoding", b"upgrade",
})  # fmt: skip


@dataclass(slots=True)
class Proxy:
    """The application.

    Attributes:
        client: The client of the model's API.
        sessions: The conversations.
        status: Counts of this run.
        hosts: Accepted values of the header Host.
        save: Writes the counts.
        tasks: Runs work that outlasts its request.
    """

    client: httpx2.AsyncClient
    sessions: Sessions
    status: Status
    hosts: frozenset[str]
    save: Callable[[], Coroutine[Any, Any, None]]
    tasks: TaskGroup

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it: only programs of this machine may call."""
        headers = Headers(scope=scope)
        host, response = ", ".join(headers.getlist("host")).lower(), None
        if host not in self.hosts:
            text = f"Wrong Host {host[:100]!r}. Use the address that the proxy printed."
            response = refused(421, text)
        elif "origin" in headers:
            response = refused(403, "Web pages may not call this proxy.")
        elif "upgrade" in headers:
            response = refused(426, "This proxy has no WebSockets. Send the request over HTTP.")
        if response is not None:
            await response(scope, receive, send)
            return
        self.status.requests += 1
        exchange = Exchange(self, scope, headers, receive, send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.watch, tasks)
            await exchange.run()
            tasks.cancel_scope.cancel()
        # Not in the request's task group, because a caller that is gone ends that group.
        self.tasks.start_soon(self.save)


@dataclass(slots=True)
class Exchange:
    """One request and its answer."""

    proxy: Proxy
    scope: Scope
    headers: Headers
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
        api, status = api_of(self.scope["method"], self.scope["path"]), self.proxy.status
        length = self.headers.get("content-length", "")
        is_large = length.isdecimal() and int(length) > _MAX_READ_BYTES
        try:
            if api is None or is_large:
                status.passed_on("the body is too large" if is_large else "another path")
                has_body = length or "transfer-encoding" in self.headers
                await self._pass(self._pieces() if has_body else await self._body())
                return
            data = await self._body()
            try:
                talk = await to_thread.run_sync(read_conversation, data, dict(self.headers), api)
            # Every failure is caught, because the request can pass unread. It is counted.
            except Exception as error:  # noqa: BLE001
                talk = f"a fault ({type(error).__name__})"
            if isinstance(talk, str):
                status.passed_on(talk)
                await self._pass(data)
            else:
                await self._converse(talk)
        except httpx2.HTTPError as error:
            await self._fail(error)

    async def _converse(self, talk: Conversation) -> None:
        """Send a conversation that fits; if it is refused, one more time as the fallback."""
        status, sessions = self.proxy.status, self.proxy.sessions
        status.conversations += 1
        status.hosts = sorted({*status.hosts, talk.host} - {""})
        is_observing = sessions.options.is_observing
        if is_observing:
            self.proxy.tasks.start_soon(sessions.observe, talk)
        sent = Outgoing(talk.data) if is_observing else await sessions.fit(talk)
        for is_last in (is_observing, True):
            status.edited += sent.is_edited
            saved_bytes = len(talk.data) - len(sent.data)
            status.kept_out_tokens += max(0, saved_bytes // _BYTES_PER_TOKEN) * sent.is_edited
            async with aclosing(await self._send(sent.data)) as response:
                if response.status_code in _REFUSALS and not is_last:
                    answer = b"".join([piece async for piece in response.aiter_raw()])
                    code, text = response.status_code, decoded(response, answer)
                    again = await sessions.refused(talk, sent, code, text)
                    if again is None:
                        await self._answer(response, _one(answer))
                        return
                    sent = again
                    continue
                await self._answer(
                    response, response.aiter_raw(), partial(self._examine, talk, sent, response)
                )
                return

    async def _examine(
        self, talk: Conversation, sent: Outgoing, response: httpx2.Response, answer: bytes
    ) -> None:
        """Note the usage of an answer, and ask for a summary if one is due."""
        if response.status_code == 200:
            sessions = self.proxy.sessions
            usage = await to_thread.run_sync(lambda: usage_in(decoded(response, answer)))
            await sessions.answered(talk, sent, usage)
            self.proxy.tasks.start_soon(sessions.prepare, talk, sent, self._ask)

    async def _ask(self, data: bytes) -> bytes:
        """Return the answer to another body, with this request's own headers."""
        async with aclosing(await self._send(data, b"accept-encoding")) as response:
            answer = b"".join([piece async for piece in response.aiter_raw()])
            if response.status_code != 200:
                raise SummaryError(f"The provider answered {response.status_code}")
            return answer

    async def _pass(self, content: "bytes | AsyncIterator[bytes]") -> None:
        async with aclosing(await self._send(content)) as response:
            await self._answer(response, response.aiter_raw())

    async def _send(
        self, content: "bytes | AsyncIterator[bytes]", omitted: bytes = b""
    ) -> httpx2.Response:
        """Send the request with the caller's method, path and headers; return the response."""
        skipped = {*_HOP_HEADERS, omitted}
        headers = [pair for pair in self.scope["headers"] if pair[0] not in skipped]
        if isinstance(content, bytes):
            headers = [
                (name, b"%d" % len(content) if name == b"content-length" else value)
                for name, value in headers
            ]
        query = self.scope["query_string"]
        target = self.scope["raw_path"] + (b"?" + query if query else b"")
        url = self.proxy.status.upstream
        path = urlsplit(url).path.encode("ascii")
        more = {"target": path + target, "timeout": _TIMEOUT}
        method, body = self.scope["method"], content or None
        request = httpx2.Request(method, url, headers=headers, content=body, extensions=more)
        return await self.proxy.client.send(request, stream=True)

    async def _answer(
        self,
        response: httpx2.Response,
        pieces: AsyncIterator[bytes],
        examine: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        """Pass an answer back, each piece as it comes. `examine` gets all its bytes.

        It runs before the end is sent, because the end of an answer ends this task.
        """
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in _HOP_HEADERS]
        status, answer = response.status_code, bytearray()
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        self._is_started = True
        async for piece in pieces:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
            if len(answer) < _MAX_READ_BYTES:
                answer += piece
        if examine is not None:
            await examine(bytes(answer))
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _fail(self, error: httpx2.HTTPError) -> None:
        """Report that the provider did not answer. A started answer is cut, as the provider's."""
        text = f"The proxy cannot reach {self.proxy.status.upstream} ({type(error).__name__})."
        self.proxy.status.note(text)
        if self._is_started:
            return
        body = json.dumps({"type": "error", "error": {"type": "api_error", "message": text}})
        headers = [(b"content-type", b"application/json")]
        await self.send({"type": "http.response.start", "status": 502, "headers": headers})
        await self.send({"type": "http.response.body", "body": body.encode("ascii")})

    async def _body(self) -> bytes:
        return b"".join([piece async for piece in self._pieces()])

    async def _pieces(self) -> AsyncGenerator[bytes]:
        is_complete = False
        while not is_complete:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self._is_read.set()
                await anyio.sleep_forever()  # `watch` ends this task
            yield message.get("body", b"")
            is_complete = not message.get("more_body", False)
        self._is_read.set()


async def _one(piece: bytes) -> AsyncGenerator[bytes]:
    yield piece
