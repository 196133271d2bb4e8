"""What the handlers work with: made once by the lifespan, closed by it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus
from context_compaction import host_folders
from mcp.server.context import ServerRequestContext

from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.session_imports import SessionImports
from mcp_server_compaction.protocol.http_bodies import size_of
from mcp_server_compaction.protocol.notifications import Changes

if TYPE_CHECKING:  # loaded with the engine, by the first call that opens one
    from context_compaction import Archive

# Some 250,000 tokens: what is larger may take a second, and the rest does not wait for it.
LARGE_REQUEST_BYTES = 1024 * 1024

GetArchive: TypeAlias = Callable[[], "Awaitable[Archive]"]


class LazyArchive:
    """The archive, opened by the first call that needs it.

    Hosts wait for `initialize`, and opening would load SQLite before they get their answer. A task
    of the lifespan enters and leaves the archive, so that both happen in one task.
    """

    def __init__(self, config: Config, task_group: TaskGroup) -> None:
        self._config = config
        self._task_group = task_group
        self._lock = anyio.Lock()
        self._closing = anyio.Event()
        self._archive: Archive | None = None

    async def get(self) -> "Archive":
        """The open archive. A call that is cancelled while it opens leaves it to the next one.

        Raises:
            ArchiveError: It cannot be opened; the next call tries again.
        """
        archive = self._archive
        if archive is not None:
            return archive  # the lock would cost each call a round of the loop
        async with self._lock:
            archive = self._archive
            if archive is None:
                archive = await self._task_group.start(self._keep_open)
                self._archive = archive
            return archive

    def close(self) -> None:
        """Let the task close the archive."""
        self._closing.set()

    async def _keep_open(self, *, task_status: "TaskStatus[Archive]") -> None:
        # Here and not above: SQLite and zstandard are loaded when they are needed.
        from context_compaction import open_archive

        async with open_archive(self._config.archive, redaction=self._config.redaction) as archive:
            task_status.started(archive)
            await self._closing.wait()


@asynccontextmanager
async def lazy_archive(config: Config) -> AsyncGenerator[LazyArchive]:
    """An archive that is opened when it is first asked for, and closed with the block."""
    async with anyio.create_task_group() as task_group:
        archive = LazyArchive(config, task_group)
        try:
            yield archive
        finally:
            archive.close()


class Turns:
    """Admits a bounded number of compactions at a time, in the order in which they came.

    First lists of sessions and large requests have turns of their own. A first list takes ten times
    as long as one that goes on: after a restart all are first ones, and each session's second call
    would wait for those of all the others.
    """

    def __init__(self, most: int) -> None:
        self._turns = {
            name: anyio.Semaphore(most, fast_acquire=True) for name in ("known", "first", "large")
        }

    def of(self, request: Any, *, is_known: bool) -> anyio.Semaphore:
        """Whose turn a compaction takes.

        Args:
            request: The HTTP request that asks for it; None on stdio, where one host calls.
            is_known: Whether the session's list was compacted a short time ago.
        """
        if size_of(request) > LARGE_REQUEST_BYTES:
            return self._turns["large"]
        return self._turns["known" if is_known else "first"]


@dataclass(frozen=True, slots=True)
class Deps:
    """Everything that a handler may use.

    Attributes:
        config: The configuration of the process.
        archives: Returns the archive that holds every tenant's.
        changes: Who is notified when resources change.
        greeted: Set once a host has its answer to `initialize`, or to a request without one.
        imports: The sessions that hosts keep on disk.
        turns: Whose turn a compaction takes, unless it may wait for a model.
    """

    config: Config
    archives: GetArchive
    changes: Changes
    imports: SessionImports
    greeted: anyio.Event
    turns: Turns

    async def archive(self) -> "Archive":
        """The archive of the tenant that is asking.

        Raises:
            ArchiveError: It cannot be opened.
        """
        return await (await self.archives()).for_tenant(caller.get().tenant)


RequestContext: TypeAlias = ServerRequestContext[Deps, Any]


@asynccontextmanager
async def open_deps(
    config: Config, changes: Changes, archives: GetArchive | None = None
) -> AsyncGenerator[Deps]:
    """What one run of the server works with: an archive that others opened, else one of its own."""
    async with AsyncExitStack() as stack:
        if archives is None:
            archives = (await stack.enter_async_context(lazy_archive(config))).get
        folders = host_folders(Path.home()) if config.imports_sessions else ()
        imports = SessionImports(config.archive_folder, folders, archives)
        # While one compaction waits for the disk the other goes on. More of them only take the
        # interpreter from each other, unless each waits for a database on the network.
        turns = Turns(2 if config.archive_address is None else 8)
        yield Deps(config, archives, changes, imports, anyio.Event(), turns)
