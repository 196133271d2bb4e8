"""Unedited requests pass byte for byte, and an edited request changes only its list."""

import gzip
import http.client
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_server_compaction.proxy.requests import read_body

from tests.support.json_types import Json
from tests.support.simulated_host import Api, SimulatedHost, log_of, send
from tests.support.strict_answers import Says
from tests.support.strict_provider import Hangs, Provider, in_turn
from tests.support.strict_rules import Fails

from .running import (
    APIS,
    ENABLED,
    Proxy,
    check_all_accepted,
    edited,
    host_of,
    proxied,
)

pytestmark = pytest.mark.slow

LISTS = {"messages": "messages", "responses": "input", "chat": "messages"}
PATHS = {
    "messages": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"
}  # fmt: skip


def check_passes(proxy: Proxy, provider: Provider, body: bytes, path: str, **headers: str) -> None:
    """Check that a request reaches the provider once, with the same bytes."""
    provider.requests.clear()
    reply = send(proxy.url, body, {"content-type": "application/json", **headers}, path=path)
    [request] = provider.requests
    assert request.body == body
    assert request.path == path
    assert reply.body == b"".join(request.sent)


# Pitfall 1


def odd_json() -> st.SearchStrategy[str]:
    """Return texts of JSON whose form is lost when they are parsed and written again."""
    number = st.sampled_from(["1.0", "1e2", "1E+2", "-0", "0.10", "12345678901234567890", "1.5e-7"])
    text = st.sampled_from([
        r'"é"', '"é"', r'"\/"', r'"😀"', '"\U0001f600"', r'"\t"', '""', '" "',
        r'"\u0000"', r'"\ud83d"',
    ])  # fmt: skip
    scalar = st.sampled_from(["true", "false", "null"]) | number | text
    space = st.sampled_from(["", " ", "\n", "\t ", "\r\n"])

    def list_of(gap: str, items: list[str]) -> str:
        return f"[{gap}{f'{gap},'.join(items)}]"

    def object_of(gap: str, pairs: list[tuple[str, str]]) -> str:
        return "{" + f",{gap}".join(f"{key}{gap}:{value}" for key, value in pairs) + "}"

    def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.lists(st.tuples(text, inner), max_size=3)
        lists = st.builds(list_of, space, st.lists(inner, max_size=3))
        return lists | st.builds(object_of, space, pairs)

    return st.recursive(scalar, nested, max_leaves=8)


@st.composite
def requests_with_odd_json(draw: st.DrawFn, list_name: str) -> bytes:
    """Return a request whose list and other fields have unusual forms."""
    extra = draw(odd_json())
    content = draw(odd_json())
    message = f'{{"content" :{content}, "role":"user"}}'
    messages = ",".join([message] * draw(st.integers(0, 5)))
    other = (f'"extra": {extra}', '"model":"m"', '"tools":[{"name":"x"}]')
    fields = [f'"{list_name}":[ {messages}]', *other]
    order = draw(st.permutations(fields))
    gap = draw(st.sampled_from(["", " ", "\n"]))
    return f"{gap}{{{f',{gap}'.join(order)}}}{gap}".encode("utf-8", "surrogatepass")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), api=st.sampled_from(APIS))
def test_unchanged_request_keeps_its_bytes(
    proxy: Proxy, anything: Provider, data: st.DataObject, api: Api
) -> None:
    body = data.draw(requests_with_odd_json(LISTS[api]))
    check_passes(proxy, anything, body, PATHS[api])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(min_size=1, max_size=300), api=st.sampled_from(APIS))
def test_random_bytes_pass(proxy: Proxy, anything: Provider, body: bytes, api: Api) -> None:
    check_passes(proxy, anything, body, PATHS[api])


# Pitfall 2


@settings(max_examples=60)
@given(
    body=requests_with_odd_json("messages"), kept=st.lists(st.booleans(), min_size=5, max_size=5)
)
def test_replaced_list_keeps_the_bytes_of_kept_messages_and_other_fields(
    body: bytes, kept: list[bool]
) -> None:
    try:
        read = read_body(body, "messages")
    except ValueError:
        return
    given_fields = json.loads(body)
    assert {**read.fields, "messages": read.messages} == given_fields
    chosen = [message for message, stays in zip(read.messages, kept, strict=False) if stays]
    new: list[Json] = [{"role": "user", "content": "é\ud83d"}]
    edited_body = read.with_messages([*chosen, *new], str)
    assert json.loads(edited_body) == {**given_fields, "messages": [*chosen, *new]}
    texts = [read.text[span] for span, stays in zip(read.spans, kept, strict=False) if stays]
    head, tail = read.text[: read.place.start], read.text[read.place.stop :]
    assert edited_body.decode() == f"{head}[{','.join([*texts, json.dumps(new[0])])}]{tail}"


def ascii_json(body: Json) -> str:
    """Return JSON with escapes, and with a field in an unusual form."""
    text = json.dumps(body, ensure_ascii=True, separators=(" ,", ":  "))
    return text[:-1] + ' , "temperature" : 1.0E0,\n"metadata":{"user_id":"\\u00e9\\/"}}'


def accented(number: int, _: Json) -> str:
    return log_of(number) + " é"


def with_surrogate(number: int, _: Json) -> str:
    return log_of(number) + " \ud83d"


def spans(text: str, name: str) -> tuple[list[str], str, str]:
    """Return the text of each item of the list, and the texts before and after the list."""
    decoder = json.JSONDecoder()
    start = text.index(f'"{name}"') + len(name) + 2
    start = text.index("[", start) + 1
    items = list[str]()
    at = start
    while True:
        while text[at] in " ,\n":
            at += 1
        if text[at] == "]":
            return items, text[:start], text[at:]
        _, end = decoder.raw_decode(text, at)
        items.append(text[at:end])
        at = end


@pytest.mark.parametrize("api", APIS)
def test_edited_request_changes_only_its_list(api: Api, proxy: Proxy, provider: Provider) -> None:
    host = host_of(proxy, api, write=ascii_json, result=accented)
    host.ask("Build it. ü")
    check_all_accepted(provider, host)
    places = edited(provider, host)
    assert places
    for place in places:
        given_items, before, after = spans(host.sent[place].decode(), LISTS[api])
        items, *around = spans(provider.asked[place].body.decode(), LISTS[api])
        assert around == [before, after]
        values = [json.loads(item) for item in given_items]
        same = [item for item in items if json.loads(item) in values]
        assert same
        assert set(same) <= set(given_items)
        assert len(items) > 3


# Pitfalls 3 and 26


@pytest.mark.parametrize("api", APIS)
def test_streams_and_their_usage_pass_byte_for_byte(
    api: Api, proxy: Proxy, provider: Provider
) -> None:
    host = host_of(proxy, api)
    host.ask("Build it.")
    assert edited(provider, host)
    for request, reply in zip(provider.asked, host.replies, strict=True):
        assert reply.body == b"".join(request.sent)
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert provider.asked[-1].usage
    assert str(provider.asked[-1].usage.read) in host.replies[-1].body.decode()


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("stream", [True, False])
def test_compressed_answers_pass_as_they_are(
    encoding: Any, stream: bool, proxy: Proxy, provider: Provider
) -> None:
    provider.script = in_turn(Says("Hello", encoding=encoding))
    host = host_of(proxy, items=[{"role": "user", "content": "Hello"}])
    host.fields = {"stream": stream}
    reply = host.request()
    assert reply.headers["content-encoding"] == encoding
    assert reply.body == b"".join(provider.asked[0].sent)


def begun(proxy: Proxy, host: SimulatedHost) -> tuple[http.client.HTTPConnection, Any]:
    """Send a request, and return the connection and the response without its body."""
    address = proxy.url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("POST", "/v1/messages", host.body(), host.request_headers())
    return connection, connection.getresponse()


def test_first_event_arrives_while_the_model_still_writes_and_the_caller_can_end_it(
    proxy: Proxy,
    provider: Provider,
) -> None:
    provider.script = in_turn(Hangs())
    host = host_of(proxy, items=[{"role": "user", "content": "Hello"}])
    connection, response = begun(proxy, host)
    assert response.readline() == b"event: message_start\n"
    assert not provider.hung_up.is_set()
    response.close()
    connection.close()
    assert provider.hung_up.wait(20)


@pytest.mark.parametrize("broken", ["close", "cut", "error"])
def test_cut_stream_is_cut_for_the_host_too(broken: Any, proxy: Proxy, provider: Provider) -> None:
    provider.script = in_turn(Says("x" * 4_000, broken=broken))
    host = host_of(proxy, items=[{"role": "user", "content": "Hello"}])
    connection, response = begun(proxy, host)
    try:
        body = response.read()
    except http.client.IncompleteRead as error:
        assert broken == "cut"
        body = error.partial
    else:
        assert broken != "cut"
    connection.close()
    assert body == b"".join(provider.asked[0].sent)
    assert len(provider.asked) == 1


# Pitfall 14


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("HEAD", "/"),
        ("GET", "/v1/models?limit=3"),
        ("POST", "/v1/messages/count_tokens?beta=true"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/embeddings"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/messages/batches"),
    ],
)
def test_other_requests_pass(proxy: Proxy, anything: Provider, method: str, path: str) -> None:
    anything.requests.clear()
    host = SimulatedHost("", items=[{"role": "user", "content": log_of(1)}] * 80)
    body = host.body() if method == "POST" else b""
    headers = {"x-api-key": "k", "anthropic-beta": "a,b", "x-odd": "1"}
    reply = send(proxy.url, body, headers, method=method, path=path)
    [request] = anything.requests
    assert (request.method, request.path, request.body) == (method, path, body)
    assert headers.items() <= request.headers.items()
    assert reply.status == request.status
    assert reply.body == b"".join(request.sent)


def test_long_requests_without_tools_pass(proxy: Proxy, anything: Provider) -> None:
    items = [{"role": "user", "content": log_of(1)}, {"role": "assistant", "content": "Yes."}] * 120
    host = SimulatedHost("", items=items[:-1], tools=())
    check_passes(proxy, anything, host.body(), "/v1/messages", **host.request_headers())


def test_stored_conversations_pass(proxy: Proxy, anything: Provider) -> None:
    items = [{"role": "user", "content": log_of(number)} for number in range(120)]
    host = SimulatedHost("", "responses", items=items)
    host.fields = {"previous_response_id": "resp_1"}
    check_passes(proxy, anything, host.body(), "/v1/responses", **host.request_headers())


# Pitfall 17


def test_websocket_is_answered_with_426(proxy: Proxy, anything: Provider) -> None:
    anything.requests.clear()
    headers = {
        "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    reply = send(proxy.url, b"", headers, method="GET", path="/v1/responses")
    assert reply.status == 426
    assert anything.requests == []


# Pitfall 18

LONG = ",".join(json.dumps({"role": "user", "content": log_of(number)}) for number in range(16))
TOOLS = '"tools":[{"name":"Bash"}],"model":"claude-sonnet-4-5","max_tokens":10'


@pytest.mark.parametrize(
    "body",
    [
        f'{{"messages":[],{TOOLS},"messages":[{LONG}]}}',
        f'{{"messages":[{LONG}],{TOOLS},"messages":[]}}',
        f'{{"messages":[{LONG}],{TOOLS},"model":"other"}}',
        f'{{"messages":[{LONG}],{TOOLS}',
        f'{{"messages":[{LONG}],{TOOLS}}} ...',
        f'{{"messages":[{LONG},5],{TOOLS}}}',
        f'[{{"messages":[{LONG}]}}]',
        f'{{"messages":[{LONG}],{TOOLS},"x":{"[" * 100_000}{"]" * 100_000}}}',
        f'{{"messages":[{LONG}],{TOOLS},"x":NaN}}',
        f'﻿{{"messages":[{LONG}],{TOOLS}}}',
        f'{{"messages":[{LONG},{{"role":"user","content":"\\ud83d"}}],{TOOLS},"x":}}',
    ],
    ids=[
        "list-twice", "list-twice-last-empty", "field-twice", "cut", "more-behind", "no-object",
        "a-list", "deep", "nan", "byte-order-mark", "surrogate-broken",
    ],
)  # fmt: skip
def test_bodies_that_cannot_be_edited_safely_pass(
    proxy: Proxy, anything: Provider, body: str
) -> None:
    check_passes(proxy, anything, body.encode(), "/v1/messages", **{"x-api-key": "k"})


def test_invalid_utf8_passes(proxy: Proxy, anything: Provider) -> None:
    body = f'{{"messages":[{LONG}],{TOOLS},"x":"'.encode() + b'\xff\xed\xa0\x80"}'
    check_passes(proxy, anything, body, "/v1/messages")


def test_compressed_requests_pass(proxy: Proxy, anything: Provider) -> None:
    body = gzip.compress(f'{{"messages":[{LONG}],{TOOLS}}}'.encode())
    check_passes(proxy, anything, body, "/v1/messages", **{"content-encoding": "gzip"})


def test_lone_surrogates_in_an_edited_list_keep_their_bytes(
    proxy: Proxy, provider: Provider
) -> None:
    host = host_of(proxy, write=ascii_json, result=with_surrogate)
    host.ask("Build it.")
    check_all_accepted(provider, host)
    assert all(b"\\ud83d" in request.body for request in provider.asked[1:])


@pytest.mark.parametrize("megabytes", [31, 45])
def test_largest_bodies_pass(proxy: Proxy, anything: Provider, megabytes: int) -> None:
    filler = "x" * (megabytes * 1_000_000)
    body = f'{{"messages":[],{TOOLS},"metadata":{{"user_id":"{filler}"}}}}'.encode()
    check_passes(proxy, anything, body, "/v1/messages")


# Pitfall 20


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 529])
def test_errors_pass_once_with_all_headers(status: int, proxy: Proxy, provider: Provider) -> None:
    given_headers = (("retry-after", "7"), ("request-id", "req_1"), ("x-should-retry", "false"))
    fails = Fails(status, "some_error", "No.", given_headers)
    provider.script = in_turn(fails)
    host = host_of(proxy, fields=ENABLED)
    host.items = [{"role": "user", "content": "Hello"}] * 4
    reply = host.request()
    [request] = provider.asked
    assert reply.status == status
    assert reply.body == b"".join(request.sent)
    assert dict(given_headers).items() <= reply.headers.items()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 529])
def test_errors_of_an_edited_request_are_not_retried(
    status: int, proxy: Proxy, provider: Provider
) -> None:
    host = host_of(proxy)
    host.ask("Build it.")
    assert edited(provider, host)
    provider.script = in_turn(Fails(status, "some_error", "No."))
    host.items.append({"role": "user", "content": "Go on."})
    before = len(provider.asked)
    assert host.request().status == status
    assert len(provider.asked) == before + 1


def test_provider_that_is_down_is_reported_with_502(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with proxied(f"http://127.0.0.1:{port}", tmp_path) as proxy:
        reply = send(proxy.url, b"{}", {}, path="/v1/messages")
        assert reply.status == 502
        assert json.loads(reply.body)["error"]


# Pitfall 25


def test_billing_block_is_never_touched(proxy: Proxy, provider: Provider) -> None:
    blocks = list[str]()

    def write(body: Json) -> str:
        block = f"x-anthropic-billing-header: cc_version=2.1.197; cch={len(blocks):05x};"
        blocks.append(block)
        system = [{"type": "text", "text": block}, *body["system"]]
        return json.dumps({**body, "system": system})

    host = host_of(proxy, write=write)
    host.ask("Build it.")
    check_all_accepted(provider, host)
    assert edited(provider, host)
    for block, request in zip(blocks, provider.asked, strict=True):
        assert request.json["system"][0] == {"type": "text", "text": block}
