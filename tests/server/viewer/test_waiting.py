"""Pages that take long show their progress to browsers; programs wait for the page."""

from threading import Event
from typing import Any

import anyio
import httpx2
import pytest
from context_compaction import report_work
from mcp_server_compaction.viewer import web
from mcp_server_compaction.viewer.web import LongPages
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.server.viewer.site import BASE, Site

HEADERS = [(b"accept", b"text/html")]
BROWSER = {"Accept": "text/html"}
PART = {"HX-Request": "true"}


async def hold(site: Site, release: Event) -> None:
    """Use the session "main" until `release` is set, as a long read of its log does."""
    archive = await site.archives.get()

    def work(_: Any) -> None:
        assert release.wait(150)

    await archive.on_session("main", work)


async def test_browser_gets_the_progress_first_and_then_the_page(site: Site) -> None:
    release = Event()
    address = "/sessions/main/compactions"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, site, release)
        await anyio.wait_all_tasks_blocked()
        page = await site.http.get(address, headers=BROWSER)
        assert page.status_code == 202
        assert "data-reload" in page.text
        assert "Waiting for other work on this archive" in page.text
        part = await site.http.get(address, headers=PART)
        assert part.status_code == 202
        assert f'hx-get="{address}?" hx-trigger="load delay:500ms"' in part.text
        missing = await site.http.get("/sessions/none", headers=BROWSER)
        assert missing.status_code == 404, "other sessions do not wait"
        release.set()
    while (page := await site.http.get(address, headers=BROWSER)).status_code == 202:
        pass
    assert page.status_code == 200
    assert page.text == await site.html(address)


async def test_page_says_that_it_waits_for_the_search_index(site: Site) -> None:
    release = Event()
    archive = await site.archives.get()

    def work(_rows: object) -> bool:
        return release.wait(150)

    async def hold_index() -> None:
        assert await archive.on_rows(work, lambda: None)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold_index)
        await anyio.wait_all_tasks_blocked()
        page = await site.http.get("/", headers=BROWSER)
        assert page.status_code == 202
        assert "Waiting for other work on this archive" in page.text
        release.set()


async def test_page_that_nobody_fetched_in_time_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages, made, release = LongPages(), list[int](), anyio.Event()

    async def make() -> Response:
        made.append(len(made))
        await release.wait()
        return Response(f"page {made[-1]}")

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": HEADERS}
    async with pages.running():
        assert (await pages.respond(Request(scope), make)).status_code == 202
        release.set()
        await anyio.wait_all_tasks_blocked()
        monkeypatch.setattr(web, "_KEPT_SECONDS", 0)
        assert (await pages.respond(Request(scope), make)).body == b"page 1"


async def test_program_waits_for_the_page(site: Site) -> None:
    release = Event()
    statuses: list[int] = []

    async def request() -> None:
        reply = await site.http.get("/sessions/main?format=json", headers=BROWSER)
        statuses.append(reply.status_code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, site, release)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(request)
        await anyio.wait_all_tasks_blocked()
        assert statuses == []
        release.set()
    assert statuses == [200]


async def test_progress_has_the_figures_of_the_work() -> None:
    release, pages = anyio.Event(), LongPages()

    async def make() -> Response:
        report_work(1_200, 5_000, "sessions indexed")
        await release.wait()
        return Response("the page")

    async def respond(request: Request) -> Response:
        return await pages.respond(request, make)

    transport = httpx2.ASGITransport(Starlette(routes=[Route("/", respond)]))
    async with (
        pages.running(),
        httpx2.AsyncClient(transport=transport, base_url=BASE, headers=BROWSER) as http,
    ):
        page = await http.get("/")
        assert "1,200 of 5,000 sessions indexed" in page.text
        assert '<progress value="1200" max="5000"' in page.text
        release.set()
        assert (await http.get("/")).text == "the page"


async def test_unexpected_error_of_a_page_reaches_its_request() -> None:
    pages = LongPages()

    async def make() -> Response:
        raise ZeroDivisionError

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": HEADERS}
    async with pages.running():
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await pages.respond(Request(scope), make)
