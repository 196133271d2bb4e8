"""Bodies of requests: whatever packs them, what comes in is what was sent, or it is refused."""

import gzip
import json
import zlib
from typing import Any

import httpx2
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.protocol import http_bodies
from mcp_server_compaction.protocol.deps import SET_ASIDE, arguments_of, size_of
from mcp_server_compaction.protocol.http_bodies import CleanBodies
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PACKINGS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    assert scope["type"] == "http"
    await Response(body, headers={"Received": str(len(body))})(scope, receive, send)


async def sent(body: bytes, packing: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=CleanBodies(echo))
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        return await http.post("/", content=body, headers={"Content-Encoding": packing})


@given(
    parts=st.lists(st.binary(min_size=1, max_size=4_000), min_size=1, max_size=4),
    packing=st.sampled_from(sorted(PACKINGS)),
    share=st.floats(0, 1),
)
async def test_a_body_arrives_however_it_was_packed_and_never_in_part(
    parts: list[bytes], packing: str, share: float
) -> None:
    parts = parts if packing != "deflate" else parts[:1]
    packed = [PACKINGS[packing](part) for part in parts]  # each a member, or frame, of its own
    whole = b"".join(parts)
    answer = await sent(b"".join(packed), packing)
    assert (answer.status_code, answer.content) == (200, whole)
    stop = 1 + int(share * (len(packed[-1]) - 2))
    broken = await sent(b"".join([*packed[:-1], packed[-1][:stop]]), packing)
    assert broken.status_code == 400
    assert packing in broken.text


@pytest.mark.parametrize("packing", sorted(PACKINGS))
async def test_what_unpacks_to_more_than_a_body_may_have_is_refused(
    packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_bodies, "MAX_BODY_BYTES", 1024 * 1024)
    for size in (1024 * 1024, 1024 * 1024 + 1, 200 * 1024 * 1024):
        answer = await sent(PACKINGS[packing](bytes(size)), packing)
        assert answer.status_code == (200 if size == 1024 * 1024 else 413)


async def test_a_packing_that_is_not_known_is_named() -> None:
    answer = await sent(b"x", "br")
    assert answer.status_code == 415
    assert "'br'" in answer.text


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


async def passed_on(body: bytes) -> tuple[bytes, Request]:
    """The body that the app behind gets, and its request."""
    taken: list[tuple[bytes, Request]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        taken.append((await request.body(), request))
        await Response()(scope, receive, send)

    transport = httpx2.ASGITransport(app=CleanBodies(app))
    async with httpx2.AsyncClient(transport=transport, base_url="http://local") as http:
        await http.post("/", content=body)
    return taken[0]


@given(call=CALLS)
async def test_a_tool_gets_the_arguments_that_its_caller_sent(call: dict[str, Any]) -> None:
    body = json.dumps(call).encode()
    rest, request = await passed_on(body)
    got = json.loads(rest)
    shown = got["params"].pop("arguments")
    wanted = call["params"].pop("arguments")
    assert got == call
    assert arguments_of(request, shown) == wanted
    assert size_of(request) == len(body)
    is_left = not any(isinstance(shown.get(name), list) for name in ("messages", "new_messages"))
    assert is_left or call["params"]["name"] == "search_transcript"


@given(value=JSON | st.lists(CALLS, max_size=2), end=st.sampled_from([b"", b"}", b'"compact_']))
async def test_a_body_that_is_no_call_of_the_tool_is_passed_on_as_it_is(
    value: Any, end: bytes
) -> None:
    body = json.dumps(value).encode() + b' "compact_messages"' + end
    for sent_body in (body, json.dumps([value, "compact_messages"]).encode()):
        rest, request = await passed_on(sent_body)
        assert rest == sent_body
        assert request.scope[SET_ASIDE] is None


ODD_IDS = st.one_of(
    st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.lists(JSON)
)


@given(call=CALLS, odd=ODD_IDS)
async def test_an_id_that_cannot_be_answered_under_is_refused_and_not_passed_over(
    call: dict[str, Any], odd: Any
) -> None:
    answer = await sent(json.dumps(call | {"id": odd}).encode(), "identity")
    assert answer.status_code == 400
    told = answer.json()
    assert (told["id"], told["error"]["code"]) == (None, -32600)
    del call["id"]
    assert (await sent(json.dumps(call).encode(), "identity")).status_code == 200


@pytest.mark.parametrize("levels", [200, 300, 5_000])
async def test_a_call_that_nests_too_deep_is_refused_by_its_id_in_words(levels: int) -> None:
    arguments = b'{"messages":' + b"[" * levels + b"]" * levels + b"}"
    head = b'{"jsonrpc":"2.0","id":"a7","method":"tools/call","params":{"name":"compact_messages",'
    answer = await sent(head + b'"arguments":' + arguments + b"}}", "identity")
    assert answer.status_code == 400
    told = answer.json()
    assert (told["id"], told["error"]["code"]) == ("a7", -32700)
    assert "200 levels deep: give what nests so deep as a string" in told["error"]["message"]
