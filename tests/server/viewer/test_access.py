"""Access control: tokens, cookies, entry addresses, origins and headers."""

from collections.abc import AsyncGenerator

import pytest
from mcp_server_compaction.viewer.web import MAX_FORM_BYTES

from tests.server.viewer.site import BASE, TOKEN, Site

ADDRESSES = (
    "/",
    "/sessions/main",
    "/sessions/main?format=json",
    "/sessions/main/messages/0-3",
    "/sessions/main/messages/2/0",
    "/sessions/main/branches",
    "/outputs/o_000000000000000000000000",
    "/nothing/here",
)


async def test_page_is_refused_when_the_request_has_no_valid_token(site: Site) -> None:
    for address in ADDRESSES:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "mcp-compaction-8765=x"}):
            reply = await site.stranger.get(address, headers=headers)
            assert reply.status_code == 401, address
            assert "March" not in reply.text


async def test_login_sets_a_cookie_when_the_token_is_right(site: Site) -> None:
    wrong = await site.stranger.post("/login", data={"token": "x"}, headers={"Origin": BASE})
    assert wrong.status_code == 401
    entered = await site.stranger.post("/login", data={"token": TOKEN}, headers={"Origin": BASE})
    assert entered.status_code == 303
    cookie = entered.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert (await site.stranger.get("/")).status_code == 200


async def test_entry_address_is_refused_when_it_was_used_before(site: Site) -> None:
    key = site.access.new_entry()
    assert (await site.stranger.get(f"/enter/{key}")).status_code == 200
    assert (await site.stranger.get("/")).status_code == 200
    site.stranger.cookies.clear()
    assert (await site.stranger.get(f"/enter/{key}")).status_code == 401
    assert (await site.stranger.get("/enter/guess")).status_code == 401
    assert (await site.stranger.get("/")).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": BASE},
        {"Sec-Fetch-Site": "same-site", "Origin": BASE},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {},
    ],
)
async def test_change_with_a_cookie_is_refused_when_the_origin_is_not_the_viewer(
    site: Site, headers: dict[str, str]
) -> None:
    await site.stranger.get(f"/enter/{site.access.new_entry()}")
    reply = await site.stranger.post("/login", data={"token": TOKEN}, headers=headers)
    assert reply.status_code == 403


async def test_login_form_is_read_only_up_to_its_limit(site: Site) -> None:
    sent_bytes = 0

    async def endless_form() -> AsyncGenerator[bytes]:
        nonlocal sent_bytes
        while sent_bytes < 100 * MAX_FORM_BYTES:
            sent_bytes += 8_192
            yield b"a" * 8_192

    reply = await site.stranger.post("/login", content=endless_form(), headers={"Origin": BASE})
    assert reply.status_code == 400
    assert sent_bytes <= 2 * MAX_FORM_BYTES


async def test_responses_forbid_inline_scripts_frames_and_other_hosts(site: Site) -> None:
    for address in (*ADDRESSES, "/healthz", "/static/viewer.js", "/static/none.js"):
        headers = (await site.http.get(address)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
