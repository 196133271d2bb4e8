"""Objects that the handlers use, created and closed by the lifespan of the server.

Clients get notifications about changed resources in both forms of the protocol. Since 2026-07-28 a
client listens on its own stream, which a bus feeds. Clients with a handshake subscribe to
single resources, and the server sends on their connection.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus
from cachetools import LRUCache
from context_compaction import JsonObject, host_folders
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.session_imports import SessionImports

if TYPE_CHECKING:  # because the first call that opens an archive loads the engine
    from context_compaction import Archive

# About 250,000 tokens. A larger request may take a second, and must not delay the others: it is
# decoded in a thread, and it waits for other large requests.
LARGE_BODY_BYTES = 1024 * 1024
LISTS = "mcp_server_compaction.lists"  # key in the scope of a request
GetArchive: TypeAlias = Callable[[], "Awaitable[Archive]"]


@dataclass(frozen=True, slots=True)
class Lists:
    """The message lists that were removed from a tool call.

    Attributes:
        arguments: The lists, by name of the argument.
        body_bytes: Size of the whole body.
    """

    arguments: JsonObject
    body_bytes: int


def lists_of(request: Any) -> Lists:
    """Return the lists of an HTTP request. On stdio (None) the call itself contains them."""
    lists: Lists | None = None if request is None else request.scope.get(LISTS)
    return lists or Lists({}, 0)


class TenantBus(InMemorySubscriptionBus):
    """A bus whose listeners receive only the events of the tenant that subscribed."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """See `SubscriptionBus.subscribe`."""
        tenant = caller.get().tenant

        def pass_own_events(event: ServerEvent) -> None:
            if caller.get().tenant == tenant:
                listener(event)

        return super().subscribe(pass_own_events)


class Changes:
    """Sends notifications about changes to the clients of the caller's tenant.

    Attributes:
        bus: Feeds the listeners of clients without a handshake.
    """

    def __init__(self) -> None:
        self.bus = TenantBus()
        # By connection and URI: the tenant and the session of a subscription.
        self._subscriptions: LRUCache[tuple[int, str], tuple[str, ServerSession]] = LRUCache(1_000)
        # Pairs of a reader and a session that was announced to that reader.
        self._announced: LRUCache[tuple[str, str], bool] = LRUCache(10_000)

    def subscribe(self, session: ServerSession, uri: str) -> None:
        """Add a subscription of a client with a handshake. Drop the oldest above the limit."""
        self._subscriptions[_connection_key(session), uri] = (caller.get().tenant, session)

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        """Remove a subscription of a client with a handshake."""
        self._subscriptions.pop((_connection_key(session), uri), None)

    async def updated(self, uri: str) -> None:
        """Notify all subscribers of `uri`. The SDK skips closed connections."""
        await self.bus.publish(ResourceUpdated(uri=uri))
        tenant = caller.get().tenant
        for (_, subscribed_uri), (subscriber, session) in list(self._subscriptions.items()):
            if (subscribed_uri, subscriber) == (uri, tenant):
                await session.send_resource_updated(uri)

    async def listed(self, session: ServerSession, session_id: str) -> None:
        """Notify the listeners, and the caller if it uses a handshake, of a new session.

        Each is notified once, because a notified host requests the whole list again.
        """
        tenant = caller.get().tenant
        if self._is_new(tenant, session_id):
            await self.bus.publish(ResourcesListChanged())
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        if self._is_new(f"{tenant}@{_connection_key(session)}", session_id):
            await session.send_resource_list_changed()

    def _is_new(self, reader: str, session_id: str) -> bool:
        """Whether the session was not announced to `reader` before. It counts as announced now."""
        is_known = self._announced.get((reader, session_id), False)
        self._announced[reader, session_id] = True
        return not is_known


def _connection_key(session: ServerSession) -> int:
    # The SDK creates a session object for every request. The client's parameters belong to the
    # connection and live as long as the stored session.
    return id(session.client_params)


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
