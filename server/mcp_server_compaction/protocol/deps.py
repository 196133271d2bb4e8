"""Objects that the handlers use, created and closed by the lifespan of the server."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus
from cachetools import LRUCache
from context_compaction import host_folders
from mcp.server.context import ServerRequestContext

from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.session_imports import SessionImports
from mcp_server_compaction.protocol.http_bodies import LARGE_BODY_BYTES, lists_of
from mcp_server_compaction.protocol.notifications import Changes

if TYPE_CHECKING:  # because the first call that opens an archive loads the engine
    from context_compaction import Archive

GetArchive: TypeAlias = Callable[[], "Awaitable[Archive]"]


class LazyArchive:
    """An archive that the first call opens, while `running` is entered.

    Hosts wait for `initialize`, and opening the archive loads SQLite. One task of the lifespan
    enters and exits the archive, because a task group must be exited by the task that entered it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tasks: TaskGroup | None = None
        self._archive: Archive | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Allow calls to open the archive, and close the archive at the end of the block."""
        self._lock, self._closing, self._archive = anyio.Lock(), anyio.Event(), None
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._closing.set()

    async def get(self) -> "Archive":
        """Return the open archive. If a call is cancelled while it opens, the next call opens it.

        Raises:
            ArchiveError: The archive cannot be opened. The next call tries again.
        """
        if self._tasks is None:
            raise RuntimeError("LazyArchive.running has not been entered.")
        if (archive := self._archive) is not None:
            return archive
        async with self._lock:
            if (archive := self._archive) is None:
                archive = self._archive = await self._tasks.start(self._keep_open)
            return archive

    async def _keep_open(self, *, task_status: "TaskStatus[Archive]") -> None:
        from context_compaction import open_archive  # which loads SQLite and zstandard

        async with open_archive(self._config.archive, redaction=self._config.redaction) as archive:
            task_status.started(archive)
            await self._closing.wait()


class Turns:
    """Limit of concurrent compactions, in the order of the calls.

    There is one limit each for known sessions, first lists and large requests. A first list takes
    ten times as long as a longer version of a known list. After a restart every list is a first
    list, and each session's second call would have to wait for all of them.

    Attributes:
        recent_windows: Context window of each recently compacted session, by tenant and session
            ID. None if no call named a window.
    """

    def __init__(self, limit: int) -> None:
        self.recent_windows: LRUCache[tuple[str, str], int | None] = LRUCache(1_000)
        self._semaphores = {
            name: anyio.Semaphore(limit, fast_acquire=True) for name in ("known", "first", "large")
        }

    def remember(self, session_id: str, window_tokens: int | None) -> None:
        """Record that a session of the caller was compacted, and for which window."""
        key = caller.get().tenant, session_id
        self.recent_windows[key] = window_tokens or self.recent_windows.get(key)

    def of(self, request: Any, *, is_known: bool) -> anyio.Semaphore:
        """Return the semaphore that a compaction must acquire.

        Args:
            request: The HTTP request of the call. None over stdio.
            is_known: Whether the session was compacted recently.
        """
        if lists_of(request).body_bytes > LARGE_BODY_BYTES:
            return self._semaphores["large"]
        return self._semaphores["known" if is_known else "first"]


@dataclass(frozen=True, slots=True)
class Deps:
    """Objects that every handler can use.

    Attributes:
        config: Configuration of the process.
        archives: Returns the archive of all tenants.
        changes: Notifications about changed resources.
        imports: Import of the sessions that hosts store on disk.
        first_request: Set after the first request other than `initialize`.
        turns: Limit of concurrent compactions that do not wait for a model.
    """

    config: Config
    archives: GetArchive
    changes: Changes
    imports: SessionImports
    first_request: anyio.Event
    turns: Turns

    async def archive(self) -> "Archive":
        """Return the archive of the caller's tenant.

        Raises:
            ArchiveError: The archive cannot be opened.
        """
        return await caller.get().own_archive(await self.archives())


RequestContext: TypeAlias = ServerRequestContext[Deps, Any]


@asynccontextmanager
async def open_deps(
    config: Config, changes: Changes, archives: GetArchive | None = None
) -> AsyncGenerator[Deps]:
    """Yield the objects for one run of the server. Without `archives`, open an own archive."""
    async with AsyncExitStack() as stack:
        if archives is None:
            archive = LazyArchive(config)
            await stack.enter_async_context(archive.running())
            archives = archive.get
        folders = host_folders(Path.home()) if config.imports_sessions else ()
        imports = SessionImports(config.archive_folder, folders, archives)
        # Two, because one compaction can run while the other waits for the disk. More would only
        # compete for the interpreter, unless they wait for a database on the network.
        turns = Turns(2 if config.archive_address is None else 8)
        yield Deps(config, archives, changes, imports, anyio.Event(), turns)
