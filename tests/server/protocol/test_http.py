"""The HTTP service: access, refusals, and many concurrent callers."""

import json
import os
import socket
import stat
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
import context_compaction
import httpx2
import pytest
import uvicorn
from anyio.abc import SocketStream
from context_compaction import SettingsError
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_server_compaction.access.access_tokens import ensure_local_token
from mcp_server_compaction.config import Config
from mcp_server_compaction.config import Service as Served
from mcp_server_compaction.protocol import deps, http_gate, http_listening
from mcp_server_compaction.protocol.deps import Turns, lists_of
from mcp_server_compaction.protocol.http_gate import Names, json_bodies
from mcp_server_compaction.protocol.http_service import http_app
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.server.helpers import Json, answer_of, conversation, error_of
from tests.server.http import COMMAND, Service, over_http, service, serving

__all__ = ["service"]  # a fixture

pytestmark = pytest.mark.slow

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "many", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}


def post(service: Service, body: Any, **headers: str) -> httpx2.Response:
    """Send JSON to the protocol's address with the service's token."""
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    shown = service.headers(**JSON_HEADERS, **headers)
    return httpx2.post(service.url, content=content, headers=shown, timeout=150)


def call(method: str, name: str, **params: Any) -> dict[str, Any]:
    """Return the body of a request without a handshake."""
    headers = {**JSON_HEADERS, "MCP-Protocol-Version": VERSION, "Mcp-Method": method}
    given = {**params, "_meta": META}
    if name:
        headers["Mcp-Name"] = name
        given["name"] = name
    return {
        "json": {"jsonrpc": "2.0", "id": 1, "method": method, "params": given},
        "headers": headers,
    }


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    """The service in this process without its gate's token, and a client of it."""
    app: Any = http_app(Config(archive_folder=folder / "archive"), Served(), Names(None), None)
    transport = httpx2.ASGITransport(app=app)
    inner = app.app  # the gate passes on requests alone
    async with (
        inner.router.lifespan_context(inner),
        httpx2.AsyncClient(transport=transport, base_url="http://local", timeout=120) as http,
    ):
        yield http


async def compacted(http: httpx2.AsyncClient, session: str, messages: list[Json]) -> None:
    arguments = {"session_id": session, "messages": messages, "target_tokens": 20_000}
    answer = await http.post("/mcp", **call("tools/call", "compact_messages", arguments=arguments))
    assert answer.status_code == 200, answer.text
    assert not answer.json()["result"].get("isError"), answer.text


# Callers: tokens, hosts and origins.


def test_request_without_the_token_is_refused_with_the_way_to_pass_it(service: Service) -> None:
    for shown in ("", "Bearer", "Bearer wrong", f"Basic {service.token}", service.token):
        reply = post(service, PING, Authorization=shown)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "http-token" in reply.text
    assert httpx2.get(f"{service.base}/healthz", timeout=150).text == "ok"


def test_tokens_of_unknown_tenants_create_no_files(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert post(service, PING).status_code != 401
        before = sorted((tmp_path / "archive").rglob("*"))
        for number in range(20):
            forged = f"mcpc~tenant{number}~{number:016x}~{'x' * 43}"
            assert post(service, PING, Authorization=f"Bearer {forged}").status_code == 401
        assert sorted((tmp_path / "archive").rglob("*")) == before


@pytest.mark.posix("modes of files")
def test_local_token_is_in_a_private_file_and_is_reused(tmp_path: Path) -> None:
    token = ensure_local_token(tmp_path)
    path = tmp_path / "http-token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_local_token(tmp_path) == token
    assert ensure_local_token(tmp_path / "other") != token
    with pytest.raises(SettingsError, match=r"File exists\. .* `migrate SOURCE TARGET`"):
        ensure_local_token(path)
    for odd in (b"short", b"\xff" * 40):
        path.write_bytes(odd)
        with pytest.raises(SettingsError, match="contains no token"):
            ensure_local_token(tmp_path)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="Other users may read"):
        ensure_local_token(tmp_path)


@pytest.mark.parametrize(
    "host",
    ["evil.com", "127.0.0.1:{port}@evil.com", "127.0.0.1:{port}.evil.com", "127.0.0.1", "", "::1"],
)
def test_wrong_host_is_refused_on_every_path(service: Service, host: str) -> None:
    named = host.format(port=service.base.rsplit(":", 1)[-1])
    assert post(service, PING, Host=named).status_code == 421
    health = httpx2.get(f"{service.base}/healthz", headers={"Host": named}, timeout=150)
    assert health.status_code == 421


def test_a_request_of_two_hosts_is_refused(service: Service) -> None:
    own = service.base.removeprefix("http://")
    for hosts in ([own, "evil.com"], ["evil.com", own], [own, own]):
        asking = HTTPConnection(own, timeout=150)
        asking.putrequest("GET", "/healthz", skip_host=True)
        for host in hosts:
            asking.putheader("Host", host)
        asking.endheaders()
        assert asking.getresponse().status == 421
        asking.close()


@pytest.mark.parametrize(
    "origin", ["http://localhost:evil", "http://127.0.0.1:{port}.evil.com", "https://evil", "null"]
)
def test_a_page_of_another_origin_may_not_call(service: Service, origin: str) -> None:
    named = origin.format(port=service.base.rsplit(":", 1)[-1])
    assert post(service, PING, Origin=named).status_code == 403
    assert post(service, PING, Origin=service.base).status_code not in (401, 403, 421)


async def test_any_loopback_address_that_is_served_also_answers(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "127.5.5.5") as served, anyio.fail_after(150):
        assert "127.5.5.5" in served.url
        async with over_http(served) as client:
            assert len((await client.list_tools()).tools) == 4


@pytest.mark.posix("Unix sockets")
async def test_unix_socket_is_private_and_needs_no_token(tmp_path: Path) -> None:
    path = tmp_path / "compaction.sock"
    process = subprocess.Popen(  # noqa: ASYNC220, it is awaited for by its first line
        [*COMMAND, "--archive", str(tmp_path / "a"), "serve", "--http", "--unix-socket", str(path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    try:
        assert process.stderr is not None
        assert str(path) in process.stderr.readline()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        transport = httpx2.AsyncHTTPTransport(uds=str(path))
        with anyio.fail_after(150):
            async with (
                httpx2.AsyncClient(transport=transport, timeout=150) as http,
                Client(streamable_http_client("http://local/mcp", http_client=http)) as client,
            ):
                given = {"messages": conversation(), "target_tokens": 12_000}
                assert answer_of(await client.call_tool("compact_messages", given))["fits"]
    finally:
        process.terminate()
        process.communicate(timeout=150)


# Requests: content and size.

VALID_REQUEST = {"jsonrpc": "2.0", "id": "a", "method": "ping"}


NO_MESSAGES: list[tuple[object, str | None, str]] = [
    ({}, None, "no JSON-RPC message"),
    ([VALID_REQUEST], None, "one message at a time"),
    (7, None, "no JSON object"),
    (VALID_REQUEST | {"jsonrpc": "1.0"}, "a", "no JSON-RPC message"),
    (VALID_REQUEST | {"method": 5}, "a", '"method" that is a string'),
    (VALID_REQUEST | {"params": []}, "a", "that are an object"),
    (VALID_REQUEST | {"id": None}, None, "neither a string nor an integer"),
    (VALID_REQUEST | {"id": 1.5}, None, "neither a string nor an integer"),
    (VALID_REQUEST | {"id": True}, None, "neither a string nor an integer"),
]


@pytest.mark.parametrize(("body", "request_id", "problem"), NO_MESSAGES)
def test_invalid_message_is_refused_with_a_readable_error(
    service: Service, body: Any, request_id: str | None, problem: str
) -> None:
    reply = post(service, body)
    answer = reply.json()
    assert (reply.status_code, answer["id"], answer["error"]["code"]) == (400, request_id, -32600)
    assert problem in answer["error"]["message"]
    assert "pydantic" not in reply.text


@pytest.mark.parametrize("levels", [200, 5_000])
def test_deeply_nested_request_is_refused_by_its_id(service: Service, levels: int) -> None:
    deep = b"[" * levels + b"]" * levels
    head = b'{"jsonrpc":"2.0","id":"a7","method":"tools/call","params":{"name":"compact_messages",'
    reply = post(service, head + b'"arguments":{"messages":' + deep + b"}}}")
    assert reply.status_code == 400
    assert reply.json()["id"] == "a7"
    assert "200 levels deep" in reply.json()["error"]["message"]


async def test_a_list_is_refused_at_its_first_wrong_element(service: Service) -> None:
    with anyio.fail_after(150):
        async with over_http(service) as client:
            given = {"messages": [0] * 300_000}
            refused = error_of(await client.call_tool("compact_messages", given))
    assert "messages.0" in refused
    assert "messages.1" not in refused


def test_compressed_or_too_large_body_is_refused(service: Service) -> None:
    for packing in ("gzip", "zstd", "br"):
        assert post(service, PING, **{"Content-Encoding": packing}).status_code == 415
    assert post(service, b" " * (http_gate.MAX_BODY_BYTES + 1)).status_code == 413


SURROGATES = '{"name": "half \\ud83d of \\\\ud83d, whole \\ud83d\\ude00", "version": "1"}'
LONG_NUMBER = f'{{"name": "t", "version": {"7" * 5_000}}}'


@pytest.mark.parametrize("piece_bytes", [7, 100_000])
@pytest.mark.parametrize("client", [SURROGATES, LONG_NUMBER], ids=["surrogates", "long number"])
def test_odd_json_in_a_body_is_accepted(service: Service, piece_bytes: int, client: str) -> None:
    body = (
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": '
        f'"2025-06-18", "capabilities": {{}}, "clientInfo": {client}}}}}'
    ).encode("ascii")
    pieces = (body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes))
    headers = service.headers(**JSON_HEADERS)
    reply = httpx2.post(service.url, content=pieces, headers=headers, timeout=150)
    assert reply.status_code == 200, reply.text
    assert '"serverInfo"' in reply.text


def test_stream_starts_again_when_last_event_id_is_sent(service: Service) -> None:
    opening: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    reply = post(service, {**PING, "method": "initialize", "params": opening})
    headers = service.headers(
        **JSON_HEADERS,
        **{"Mcp-Session-Id": reply.headers["mcp-session-id"], "Last-Event-ID": "7"},
    )
    with httpx2.stream("GET", service.url, headers=headers, timeout=150) as stream:
        assert stream.status_code == 200


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
CALLS: st.SearchStrategy[Any] = st.fixed_dictionaries({
    "jsonrpc": st.just("2.0"),
    "id": st.integers() | st.text(),
    "method": st.just("tools/call"),
    "params": st.fixed_dictionaries({
        "name": st.sampled_from(["compact_messages", "search_transcript"]),
        "arguments": st.dictionaries(
            st.sampled_from(["messages", "new_messages", "options", "query"]), JSON
        ),
        "_meta": JSON,
    }),
})


@given(sent=CALLS)
async def test_a_tool_gets_the_arguments_that_its_caller_sent(sent: dict[str, Any]) -> None:
    acquired: list[tuple[bytes, Request]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        acquired.append((await request.body(), request))
        await Response()(scope, receive, send)

    body = json.dumps(sent).encode()
    transport = httpx2.ASGITransport(app=json_bodies(app))
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        await http.post("/", content=body)
    [(rest, request)] = acquired
    got = json.loads(rest)
    shown, sent_arguments = got["params"].pop("arguments"), sent["params"].pop("arguments")
    assert got == sent
    assert shown | lists_of(request).arguments == sent_arguments
    assert lists_of(request).body_bytes == len(body)
    assert not any(isinstance(shown.get(name), list) for name in ("messages", "new_messages"))


# How slowly and how often.


@asynccontextmanager
async def connected(folder: Path) -> AsyncGenerator[SocketStream]:
    """A connection to a service in this process."""
    app = http_app(Config(archive_folder=folder / "a"), Served(), Names(None), None)
    protocol: Any = http_listening.BoundedConnection
    server = uvicorn.Server(
        uvicorn.Config(app, http=protocol, log_config=None, port=0, timeout_keep_alive=1_000)
    )
    with anyio.fail_after(150):
        async with anyio.create_task_group() as tasks:
            listener = socket.create_server(("127.0.0.1", 0))
            tasks.start_soon(server.serve, [listener])
            async with await anyio.connect_tcp("127.0.0.1", listener.getsockname()[1]) as stream:
                yield stream
            server.should_exit = True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\nHost: a",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /hea",
    ],
    ids=["nothing", "half a header", "half a body", "half a second request"],
)
async def test_connection_closes_when_the_request_does_not_arrive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sent: bytes
) -> None:
    monkeypatch.setattr(http_listening, "RECEIVE_SECONDS", 0.2)
    async with connected(tmp_path) as stream:
        if sent:
            await stream.send(sent)
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:  # until it hangs up, or the test's time is over
                await stream.receive()


@pytest.mark.parametrize("begun", [b"GET /", b"GET /healthz HTTP/1.1\r\nA: "])
async def test_request_head_has_a_size_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: bytes
) -> None:
    monkeypatch.setattr(http_listening, "RECEIVE_SECONDS", 1_000)  # it is not the time that ends it
    async with connected(tmp_path) as stream:
        await stream.send(begun)
        with suppress(anyio.BrokenResourceError):
            while True:  # until it hangs up, or the test's time is over
                await stream.send(b"x" * 65_536)


async def test_connection_serves_several_requests_in_any_chunks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_listening, "RECEIVE_SECONDS", 1_000)  # on any machine
    chunked = b"Transfer-Encoding: chunked\r\n"
    length = b"Content-Length: 7\r\n"
    posts = [
        b"POST /mcp HTTP/1.1\r\nHost: a\r\n" + chunked + b"\r\n3\r\n{..\r\n0\r\nA: b\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n" + length + b"\r\n{......",
    ]
    health = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    async with connected(tmp_path) as stream:
        answered = b""
        for number, sent in enumerate([*posts, health, health * 3], 1):
            await stream.send(sent)
            while answered.count(b" 400 ") + answered.count(b" 200 ") < number + 2 * (number == 4):
                answered += await stream.receive()
    assert answered.count(b" 400 ") == 2
    assert answered.count(b" 200 ") == 4


async def test_rate_limit_response_has_retry_after(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_gate, "REQUESTS_PER_SECOND", 1)  # on any machine
    app = http_app(Config(archive_folder=tmp_path / "a"), Served(), Names(None), None)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        replies = [await http.get("/healthz") for _ in range(100)]
    assert replies[0].status_code == 200
    refused = [reply for reply in replies if reply.status_code == 429]
    assert refused
    assert all(reply.headers["retry-after"] == "1" for reply in refused)


async def test_known_sessions_first_lists_and_large_requests_have_separate_limits() -> None:
    large = Request({"type": "http", deps.LISTS: deps.Lists({}, 2 * 1024 * 1024)})
    turns = Turns(2)
    known, first = turns.of(None, is_known=True), turns.of(None, is_known=False)
    assert turns.of(large, is_known=True) is turns.of(large, is_known=False)
    for limiter in (first, turns.of(large, is_known=True), known):
        limiter.acquire_nowait()
        limiter.acquire_nowait()
        with pytest.raises(anyio.WouldBlock):
            limiter.acquire_nowait()


async def test_pages_and_tools_share_one_open_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[str] = []
    really = context_compaction.open_archive

    def counted(place: str, **options: Any) -> Any:
        opened.append(place)
        return really(place, **options)

    monkeypatch.setattr(context_compaction, "open_archive", counted)
    async with served(tmp_path) as http:
        await compacted(http, "s", conversation(2, 60))
        assert (await http.get("/readyz")).text == "ready"
    assert len(opened) == 1
