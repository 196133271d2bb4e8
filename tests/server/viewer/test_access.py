"""Who may look into the archive, and from where."""

import pytest

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


async def test_without_the_token_nobody_sees_anything_of_the_archive(site: Site) -> None:
    for address in ADDRESSES:
        for shown in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "mcp-compaction-8765=x"}):
            reply = await site.stranger.get(address, headers=shown)
            assert reply.status_code == 401, address
            assert "March" not in reply.text


async def test_the_token_opens_the_pages_to_a_browser_that_shows_it_once(site: Site) -> None:
    wrong = await site.stranger.post("/login", data={"token": "x"}, headers={"Origin": BASE})
    assert wrong.status_code == 401
    entered = await site.stranger.post("/login", data={"token": TOKEN}, headers={"Origin": BASE})
    assert entered.status_code == 303
    cookie = entered.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert (await site.stranger.get("/")).status_code == 200


async def test_an_address_of_entry_is_good_once(site: Site) -> None:
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
async def test_only_a_page_of_the_viewer_may_change_something_with_a_cookie(
    site: Site, headers: dict[str, str]
) -> None:
    await site.stranger.get(f"/enter/{site.access.new_entry()}")
    reply = await site.stranger.post("/login", data={"token": TOKEN}, headers=headers)
    assert reply.status_code == 403


async def test_every_answer_forbids_scripts_frames_and_other_hosts(site: Site) -> None:
    for address in (*ADDRESSES, "/healthz", "/static/viewer.js", "/static/none.js"):
        headers = (await site.http.get(address)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
