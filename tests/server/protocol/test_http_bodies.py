"""Bodies of requests: whatever packs them, what comes in is what was sent, or it is refused."""

import gzip
import zlib

import httpx2
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.protocol import http_bodies
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
