"""Readiness of the service, for load balancers."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from context_compaction import CompactionError

from mcp_server_compaction.protocol.deps import GetArchive

# A load balancer waits for a few seconds, and treats a missing response as "not ready".
TIMEOUT_SECONDS = 2.0

# ID of no token. Looking it up is the cheapest request to an archive.
_MISSING_TOKEN = "0" * 16

_logger = logging.getLogger(__name__)


class Readiness:
    """A check of whether the archive responds. Concurrent checks share one request."""

    def __init__(self, archive: GetArchive) -> None:
        self._archive = archive
        self._background: TaskGroup | None = None
        self._pending: anyio.Event | None = None
        self._responds = False

    @asynccontextmanager
    async def checking(self) -> AsyncGenerator[None]:
        """Allow checks until the end of the block."""
        async with anyio.create_task_group() as self._background:
            yield
            self._background.cancel_scope.cancel()

    async def check(self) -> bool:
        """Whether the archive responds within `TIMEOUT_SECONDS`."""
        if self._background is None:
            raise RuntimeError("Readiness.checking has not been entered.")
        if self._pending is None:
            self._pending = anyio.Event()
            self._background.start_soon(self._request, self._pending)
        pending = self._pending
        with anyio.move_on_after(TIMEOUT_SECONDS):
            await pending.wait()
        return pending.is_set() and self._responds

    async def _request(self, pending: anyio.Event) -> None:
        self._responds = False
        try:
            await (await self._archive()).token(_MISSING_TOKEN)
            self._responds = True
        except CompactionError as error:
            _logger.warning("The archive does not respond: %s", error)
        finally:
            self._pending = None
            pending.set()
