"""HTTP lets in who has the token, from this host, in bounded numbers; and tells nobody else."""

import json
import os
import socket
import stat
import subprocess
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from anyio.abc import SocketStream
from context_compaction.errors import SettingsError
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_server_compaction.access import rates
from mcp_server_compaction.access.local_token import ensure_token
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol import http_gate, http_listening
from mcp_server_compaction.protocol.http_gate import Names
from mcp_server_compaction.protocol.http_service import Service as Served
from mcp_server_compaction.protocol.http_service import http_app

from tests.server.helpers import answer_of, conversation
from tests.server.http import COMMAND, Service, over_http, service, serving

__all__ = ["service"]  # a fixture

pytestmark = pytest.mark.slow

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON_HEADERS = {"Accept": "application/json, text/event-stream"}


def _status(service: Service, headers: dict[str, str]) -> int:
    return httpx2.post(
        service.url, json=PING, headers={**JSON_HEADERS, **headers}, timeout=150
    ).status_code


def test_without_the_token_nobody_comes_in_and_the_answer_says_how(service: Service) -> None:
    reply = httpx2.post(service.url, json=PING, headers=JSON_HEADERS, timeout=150)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "http-token" in reply.text
    for shown in ("Bearer", "Bearer wrong", f"Basic {service.token}", service.token):
        assert _status(service, {"Authorization": shown}) == 401
    assert httpx2.get(f"{service.base}/healthz", timeout=150).text == "ok"


def test_tokens_of_tenants_that_nobody_made_leave_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert _status(service, service.headers()) != 401
        before = sorted((tmp_path / "archive").rglob("*"))
        for number in range(20):
            forged = f"mcpc~tenant{number}~{number:016x}~{'x' * 43}"
            assert _status(service, {"Authorization": f"Bearer {forged}"}) == 401
        assert sorted((tmp_path / "archive").rglob("*")) == before
        assert _status(service, service.headers()) != 401


def test_the_token_lies_in_a_file_of_the_users_alone_and_stays(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        path = tmp_path / "archive" / "http-token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with serving(tmp_path) as second:
        assert second.token == first.token
    assert ensure_token(tmp_path / "other") != first.token
    for odd in (b"short", b"\xff" * 40):
        (tmp_path / "other" / "http-token").write_bytes(odd)
        with pytest.raises(SettingsError, match="holds no token"):
            ensure_token(tmp_path / "other")
    with pytest.raises(SettingsError, match=r"File exists\. .* `migrate SOURCE TARGET`"):
        ensure_token(path)
    path.chmod(0o644)
    done = subprocess.run(
        [*COMMAND, "--archive", str(tmp_path / "archive"), "serve", "--http", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 2
    assert "may be read by others" in done.stderr


@pytest.mark.parametrize(
    "host",
    ["evil.com", "127.0.0.1:{port}@evil.com", "127.0.0.1:{port}.evil.com", "127.0.0.1", "", "::1"],
)
def test_a_host_that_is_not_this_one_is_refused_on_every_path(service: Service, host: str) -> None:
    named = host.format(port=service.base.rsplit(":", 1)[-1])
    assert _status(service, service.headers(Host=named)) == 421
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
    assert _status(service, service.headers(Origin=named)) == 403
    assert _status(service, service.headers(Origin=service.base)) not in (401, 403, 421)


def test_what_is_no_message_is_refused_in_words_of_ours(service: Service) -> None:
    whole: dict[str, Any] = {"jsonrpc": "2.0", "id": "a", "method": "ping"}
    wrong: list[tuple[object, str | None, str]] = [
        ({}, None, "no JSON-RPC message"),
        ([whole], None, "one message at a time"),
        (None, None, "no JSON object"),
        (7, None, "no JSON object"),
        (whole | {"jsonrpc": "1.0"}, "a", "no JSON-RPC message"),
        (whole | {"method": 5}, "a", "a method that is a string"),
        (whole | {"params": []}, "a", "params, if any, that are an object"),
    ]
    headers = service.headers(**JSON_HEADERS, **{"Content-Type": "application/json"})
    for body, request_id, problem in wrong:
        reply = httpx2.post(service.url, content=json.dumps(body), headers=headers, timeout=150)
        told = reply.json()
        assert (reply.status_code, told["id"], told["error"]["code"]) == (400, request_id, -32600)
        assert problem in told["error"]["message"]
        assert "pydantic" not in reply.text


@pytest.mark.parametrize("request_id", [None, 1.5, True])
def test_a_request_with_an_odd_id_is_answered_as_on_stdio(
    service: Service, request_id: object
) -> None:
    reply = httpx2.post(
        service.url,
        json=PING | {"id": request_id},
        headers=service.headers(**JSON_HEADERS),
        timeout=150,
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == -32600


def test_a_stream_that_is_asked_to_go_on_after_an_event_begins_anew(service: Service) -> None:
    opening: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    begin = {**PING, "method": "initialize", "params": opening}
    headers = service.headers(**JSON_HEADERS)
    reply = httpx2.post(service.url, json=begin, headers=headers, timeout=150)
    headers |= {"Mcp-Session-Id": reply.headers["mcp-session-id"], "Last-Event-ID": "7"}
    with httpx2.stream("GET", service.url, headers=headers, timeout=150) as stream:
        assert stream.status_code == 200


async def test_any_loopback_address_that_is_served_also_answers(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "127.5.5.5") as served, anyio.fail_after(150):
        assert "127.5.5.5" in served.url
        async with over_http(served) as client:
            assert len((await client.list_tools()).tools) == 4


async def test_a_unix_socket_is_the_users_alone_and_asks_for_no_token(tmp_path: Path) -> None:
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


def test_half_open_connections_shut_nobody_out_and_fill_no_log(tmp_path: Path) -> None:
    with serving(tmp_path, limit="ulimit -n 256") as served, ExitStack() as open_sockets:
        port = int(served.base.rsplit(":", 1)[-1])
        for number in range(1, 401):
            half = open_sockets.enter_context(socket.create_connection(("127.0.0.1", port)))
            half.sendall(b"POST /mcp HTTP/1.1\r\nHost: ")
            if number % 50 == 0:  # fewer than wait to be accepted: beyond that, the kernel delays
                assert _status(served, served.headers()) not in (401, 503)
        open_sockets.close()  # it would wait for them when it ends
        served.process.terminate()
        _, told = served.process.communicate(timeout=150)
    assert len(told) < 60_000
    assert "Too many connections" in told
    assert "out of system resource" not in told


@asynccontextmanager
async def connected(folder: Path) -> AsyncGenerator[SocketStream]:
    """A connection to a service in this process."""
    app = http_app(Config(archive_folder=folder / "a"), Served(), Names(None), "secret" * 8)
    protocol: Any = http_listening.BoundedProtocol
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, log_config=None, port=0))
    with anyio.fail_after(25):  # less than `RECEIVE_SECONDS`, after which any silence ends
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
async def test_a_request_that_does_not_arrive_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sent: bytes
) -> None:
    monkeypatch.setattr(http_listening, "RECEIVE_SECONDS", 0.2)
    async with connected(tmp_path) as stream:
        if sent:
            await stream.send(sent)
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:  # until it hangs up, or the test's time is over
                await stream.receive()


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /",
        b"GET /healthz HTTP/1.1\r\nA: ",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: ",
    ],
    ids=["path", "header", "chunk's extension", "trailer"],
)
async def test_what_stands_around_a_body_has_an_end(tmp_path: Path, begun: bytes) -> None:
    async with connected(tmp_path) as stream:
        await stream.send(begun)
        with suppress(anyio.BrokenResourceError):
            while True:  # until it hangs up, or the test's time is over
                await stream.send(b"x" * 65_536)


async def test_one_connection_serves_request_after_request_however_they_come(
    tmp_path: Path,
) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    length = b"Content-Length: 7\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    posts = [
        b"POST /mcp HTTP/1.1\r\nHost: a\r\n" + upgrade + length + b"\r\n{......",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\n" + chunked + b"\r\n3\r\n{..\r\n0\r\nA: b\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n" + length + b"\r\n{......",
    ]
    health = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    async with connected(tmp_path) as stream:
        answered = b""
        for number, sent in enumerate([*posts, health, health * 3], 1):
            await stream.send(sent)
            while answered.count(b" 401 ") + answered.count(b" 200 ") < number + 2 * (number == 5):
                answered += await stream.receive()
    assert answered.count(b" 401 ") == 3
    assert answered.count(b" 200 ") == 4


async def test_too_many_requests_are_told_when_to_come_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_gate, "REQUESTS_PER_SECOND", 1)  # on any machine
    app = http_app(Config(archive_folder=tmp_path / "a"), Served(), Names(None), None)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        replies = [await http.get("/healthz") for _ in range(100)]
    assert {reply.status_code for reply in replies} == {200, 429}
    assert replies[0].status_code == 200
    refused = [reply for reply in replies if reply.status_code == 429]
    assert all(reply.headers["retry-after"] == "1" for reply in refused)


@pytest.mark.parametrize("is_announced", [True, False])
async def test_bytes_are_counted_whether_their_number_was_announced_or_not(
    is_announced: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rates, "BYTES_A_MINUTE", 100_000)
    app = http_app(Config(archive_folder=tmp_path / "a"), Served(), Names(None), None)
    transport = httpx2.ASGITransport(app=app)

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(9):
            yield b"x" * 10_000

    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        given = b"x" * 90_000 if is_announced else pieces()
        first = await http.post("/mcp", content=given, headers={"Content-Encoding": "br"})
        second = await http.post("/mcp", content=b"x" * 20_000, headers={"Content-Encoding": "br"})
    assert first.status_code == 415
    assert second.status_code == 429
    assert second.headers["retry-after"]


@pytest.mark.parametrize("piece_bytes", [7, 100_000])
def test_half_of_a_surrogate_pair_in_a_body_is_answered_as_on_stdio(
    service: Service, piece_bytes: int
) -> None:
    client = '{"name": "half \\ud83d of \\\\ud83d, whole \\ud83d\\ude00", "version": "1"}'
    body = (
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": '
        f'"2025-06-18", "capabilities": {{}}, "clientInfo": {client}}}}}'
    ).encode("ascii")
    pieces = (body[at : at + piece_bytes] for at in range(0, len(body), piece_bytes))
    headers = service.headers(**JSON_HEADERS, **{"Content-Type": "application/json"})
    reply = httpx2.post(service.url, content=pieces, headers=headers, timeout=150)
    assert reply.status_code == 200, reply.text
    assert '"serverInfo"' in reply.text
