"""Pages that take long: a browser shows the progress with figures, and then the page."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

import anyio
from anyio.abc import TaskGroup
from context_compaction import JsonObject, reporting_work
from starlette.requests import Request
from starlette.responses import Response

from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.viewer.web import Page, render

_PATIENCE_SECONDS = 0.5  # a page that takes no longer is shown without its progress
_KEPT_SECONDS = 10.0  # a finished page that no browser has fetched since is made again


@dataclass(slots=True)
class _Work:
    """The work for one page.

    Attributes:
        done: Set when the work has ended.
        figures: How many units are `done`, how many there are in `total`, and the `unit`. With a
            total of 0, the unit names the work that must end first.
        ended_seconds: When the work ended, by the clock of the event loop; infinite before.
        result: The page, or the unexpected error that ended the work; None before the end.
    """

    done: anyio.Event = field(default_factory=anyio.Event)
    figures: JsonObject = field(default_factory=JsonObject)
    ended_seconds: float = inf
    result: Response | Exception | None = None

    async def run(self, make: Callable[[], Awaitable[Response]]) -> None:
        """Make the page."""
        try:
            with reporting_work(self._report):
                self.result = await make()
        except Exception as error:  # noqa: BLE001, raised again by the request that fetches the page
            self.result = error
        self.ended_seconds = anyio.current_time()
        self.done.set()

    def _report(self, done: int, total: int, unit: str) -> None:
        self.figures = {"done": done, "total": total, "unit": unit}


class LongPages:
    """The pages that are being made for browsers, by tenant and address."""

    def __init__(self) -> None:
        self._works: dict[tuple[str, str], _Work] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[TaskGroup]:
        """Yield the tasks that make the pages; they are cancelled at the end."""
        async with anyio.create_task_group() as self._tasks:
            yield self._tasks
            self._tasks.cancel_scope.cancel()

    async def respond(self, request: Request, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return the page, or the progress of the work on it if that takes long.

        Programs wait for the page. A browser asks for the same address again, and gets the page of
        the work that the first request started.
        """
        if not _shows_progress(request):
            return await make()
        oldest = anyio.current_time() - _KEPT_SECONDS
        self._works = {k: w for k, w in self._works.items() if w.ended_seconds > oldest}
        key = caller.get().tenant, f"{request.url.path}?{request.url.query}"
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = _Work()
            self._tasks.start_soon(work.run, make)
        with anyio.move_on_after(_PATIENCE_SECONDS):
            await work.done.wait()
        if not work.done.is_set():
            return render(request, _progress_page(request, work))
        self._works.pop(key, None)
        if isinstance(work.result, Response):
            return work.result
        raise work.result or RuntimeError("The page was not made.")


def _shows_progress(request: Request) -> bool:
    """Whether a browser asks for a page, or for a part that replaces nothing."""
    headers, query = request.headers, request.query_params
    is_browser = "hx-request" in headers or "text/html" in headers.get("accept", "")
    is_part = query.get("part") == "rows" or query.get("format") == "json"
    return request.method == "GET" and is_browser and not is_part


def _progress_page(request: Request, work: _Work) -> Page:
    values = {"address": f"{request.url.path}?{request.url.query}"}
    template = "progress_part.html" if "hx-request" in request.headers else "progress.html"
    return Page(template, work.figures, values, status=202)
