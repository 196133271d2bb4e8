"""Whether the archive answers, for whoever parts the requests among services."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from context_compaction import CompactionError

from mcp_server_compaction.protocol.deps import GetArchive

# Who asks waits for a second or a few, and takes no answer for "not ready" too.
ANSWER_SECONDS = 2.0

# What no token is called: to look it up is the least that an archive can be asked.
_NO_TOKEN = "0" * 16

_logger = logging.getLogger(__name__)


class Readiness:
    """Asks the archive the least there is; a question that takes long is asked once for all."""

    def __init__(self, archive: GetArchive) -> None:
        self._archive = archive
        self._background: TaskGroup | None = None
        self._asking: anyio.Event | None = None
        self._answers = False

    @asynccontextmanager
    async def checking(self) -> AsyncGenerator[None]:
        """Questions may be asked as long as the block lasts."""
        async with anyio.create_task_group() as self._background:
            yield
            self._background.cancel_scope.cancel()

    async def check(self) -> bool:
        """Whether the archive answers, within `ANSWER_SECONDS`."""
        if self._background is None:
            raise RuntimeError("The application's lifespan has not begun.")
        if self._asking is None:
            self._asking = anyio.Event()
            self._background.start_soon(self._ask, self._asking)
        asking = self._asking
        with anyio.move_on_after(ANSWER_SECONDS):
            await asking.wait()
        return asking.is_set() and self._answers

    async def _ask(self, asking: anyio.Event) -> None:
        self._answers = False
        try:
            await (await self._archive()).token(_NO_TOKEN)
            self._answers = True
        except CompactionError as error:
            _logger.warning("The archive does not answer: %s", error)
        finally:
            self._asking = None
            asking.set()
