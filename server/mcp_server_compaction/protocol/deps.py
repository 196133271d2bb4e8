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
_RECENT_SESSIONS = 1_000

GetArchive: TypeAlias = Callable[[], "Awaitable[Archive]"]


class LazyArchive:
    """The archive, opened by the first call that needs it, while `running` is entered.

    Hosts wait for `initialize`, and opening would load SQLite before they get their answer. A task
    of the lifespan enters and leaves the archive, so that both happen in one task.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._tasks: TaskGroup | None = None
        self._archive: Archive | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Let calls open the archive; it is closed with the block."""
        self._lock, self._closing, self._archive = anyio.Lock(), anyio.Event(), None
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._closing.set()

    async def get(self) -> "Archive":
        """The open archive. A call that is cancelled while it opens leaves it to the next one.

        Raises:
            ArchiveError: It cannot be opened; the next call tries again.
        """
        if self._tasks is None:
            raise RuntimeError("The application's lifespan has not begun.")
        if (archive := self._archive) is not None:
            return archive
        async with self._lock:
            if (archive := self._archive) is None:
                archive = self._archive = await self._tasks.start(self._keep_open)
            return archive

    async def _keep_open(self, *, task_status: "TaskStatus[Archive]") -> None:
        # Here and not above: SQLite and zstandard are loaded when they are needed.
        from context_compaction import open_archive

        async with open_archive(self._config.archive, redaction=self._config.redaction) as archive:
            task_status.started(archive)
            await self._closing.wait()


class Turns:
    """Admits a bounded number of compactions at a time, in the order in which they came.

    First lists of sessions and large requests have turns of their own. A first list takes ten times
    as long as one that goes on: after a restart all are first ones, and each session's second call
    would wait for those of all the others.

    Attributes:
        recent_windows: The context window of each session compacted last, by tenant and session;
            None if no call named one.
    """

    def __init__(self, most: int) -> None:
        self.recent_windows: dict[tuple[str, str], int | None] = {}
        self._turns = {
            name: anyio.Semaphore(most, fast_acquire=True) for name in ("known", "first", "large")
        }

    def remember(self, session_id: str, window_tokens: int | None) -> None:
        """Note that a session of the caller was compacted, and for which window."""
        key = caller.get().tenant, session_id
        known = self.recent_windows.pop(key, None)
        self.recent_windows[key] = window_tokens or known
        if len(self.recent_windows) > _RECENT_SESSIONS:
            del self.recent_windows[next(iter(self.recent_windows))]

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
        return await caller.get().own(await self.archives())


RequestContext: TypeAlias = ServerRequestContext[Deps, Any]


@asynccontextmanager
async def open_deps(
    config: Config, changes: Changes, archives: GetArchive | None = None
) -> AsyncGenerator[Deps]:
    """What one run of the server works with: an archive that others opened, else one of its own."""
    async with AsyncExitStack() as stack:
        if archives is None:
            archive = LazyArchive(config)
            await stack.enter_async_context(archive.running())
            archives = archive.get
        folders = host_folders(Path.home()) if config.imports_sessions else ()
        imports = SessionImports(config.archive_folder, folders, archives)
        # While one compaction waits for the disk the other goes on. More of them only take the
        # interpreter from each other, unless each waits for a database on the network.
        turns = Turns(2 if config.archive_address is None else 8)
        yield Deps(config, archives, changes, imports, anyio.Event(), turns)
