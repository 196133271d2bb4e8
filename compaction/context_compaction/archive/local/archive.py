"""The local archive: a folder of logs and blobs, and a search index derived from them."""

import json
import logging
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from anyio import CancelScope, CapacityLimiter, Lock, to_thread

from context_compaction.archive.archive import Archive, StoredSizes
from context_compaction.archive.local import durable_files
from context_compaction.archive.local.log import report_waiting, session_folders
from context_compaction.archive.local.sessions import (
    LocalState,
    LocalStore,
    blob_bytes,
    delete_sessions,
    examine,
    finish_deletion,
    refresh,
)
from context_compaction.archive.values import Health, SessionInfo, check_tenant
from context_compaction.errors import ArchiveError, NotFoundError, SettingsError
from context_compaction.messages.model import JsonObject
from context_compaction.redaction import RedactionMode
from context_compaction.request import DEFAULT_TENANT
from context_compaction.system import user_folder

if TYPE_CHECKING:
    from sqlite3 import Connection

    from context_compaction.archive.local.index import SearchIndex
    from context_compaction.archive.search.filters import Check, RowsOf


T = TypeVar("T")
_TOKENS_NAME = "tokens.json"
# Files and folders that this package creates in an archive's folder.
_OWN_NAMES = frozenset({
    "blobs",
    "hooks",
    "http-token",
    "imports",
    "lock",
    "sessions",
    "tenants",
    _TOKENS_NAME,
    "tokens.lock",
    "trash",
    "writers",
})

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_archive(
    root: Path, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> AsyncGenerator["LocalArchive"]:
    """Open the archive in the folder `root`, and create the folder if it is missing.

    See `context_compaction.archive.opening.open_archive` for the arguments.

    Raises:
        ArchiveError: The folder cannot be created.
    """
    archive = LocalArchive(root, index_root, redaction)
    await to_thread.run_sync(archive.prepare)
    try:
        yield archive
    finally:
        # Short, because closing only waits for the lock of the index, which has a time limit.
        with CancelScope(shield=True):
            await archive.aclose()


class LocalArchive(Archive):
    """An `Archive` in a folder.

    Data is read only on request, and the first search opens the search index. A cancelled call
    waits until its work in the thread is complete; a cancelled search ends at once.
    """

    def __init__(
        self,
        root: Path,
        index_root: Path | None,
        redaction: RedactionMode = "off",
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        self._root = root.absolute()
        self.tenant = tenant
        self.redaction: RedactionMode = redaction
        self._tenants: dict[str, LocalArchive] = {}
        self._index_root = index_root
        self._store = LocalStore(self._root, redacts=redaction == "on")
        self._threads = CapacityLimiter(16)  # a long append delays only its own session
        self._order: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._index: SearchIndex | None = None
        self._own_index: tempfile.TemporaryDirectory[str] | None = None
        # A separate thread, so that a long search never delays an append.
        self._index_limiter = CapacityLimiter(1)

    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "LocalArchive":
        """See `Archive.for_tenant`. Each tenant has a folder inside the archive's folder.

        Raises:
            SettingsError: The tenant name is invalid, or this archive already belongs to a tenant.
            NotFoundError: The tenant has no folder, and `opens` is False.
            ArchiveError: The folder cannot be created.
        """
        if check_tenant(tenant) == self.tenant:
            return self
        if self.tenant != DEFAULT_TENANT:
            raise SettingsError(
                f"The archive of tenant {self.tenant!r} contains no other tenants. Call for_tenant "
                "on the archive that open_archive returned."
            )
        if tenant not in self._tenants:
            folder = self._folder_of(tenant)
            if not (opens or await to_thread.run_sync(folder.is_dir)):
                raise NotFoundError.of_tenant(tenant)
            archive = LocalArchive(folder, self._index_root, self.redaction, tenant)
            await to_thread.run_sync(archive.prepare)
            self._tenants.setdefault(tenant, archive)
        return self._tenants[tenant]

    def _folder_of(self, tenant: str) -> Path:
        # A hash, because some file systems ignore upper and lower case in names.
        return self._root / "tenants" / blake2b(tenant.encode(), digest_size=16).hexdigest()

    async def on_rows(self, work: "Callable[[RowsOf], T]", check: "Check") -> T:
        """See `Archive.on_rows`."""
        from context_compaction.archive.local.index import IndexRows, interrupted_by

        def on_connection(connection: "Connection") -> T:
            check()
            with interrupted_by(connection, check):
                return work(partial(IndexRows, self._opened_index(), connection))

        return await self._on_index(lambda: self._opened_index().run(on_connection))

    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """See `Archive.sessions`."""
        return await self._on_index(
            lambda: self._opened_index().list_sessions(limit, cursor, family_of)
        )

    async def stored_sizes(self) -> StoredSizes:
        """See `Archive.stored_sizes`. The index contains the sizes of the logs."""
        return await self._on_index(
            lambda: self._opened_index().stored_sizes(blob_bytes(self._root))
        )

    async def delete(self, session_ids: Sequence[str]) -> int:
        """See `Archive.delete`.

        Waits up to 20 seconds for a moment in which no process writes. Also rewrites the file of
        the search index without the deleted words, so delete many sessions in one call. If the
        deletion is killed, the next process that opens and searches the archive completes it.

        Raises:
            NotFoundError: A session does not exist; nothing was deleted.
            ArchiveBusyError: Other processes kept writing for too long.
        """
        remove = partial(delete_sessions, self._root, session_ids)
        freed = await self._on_index(lambda: self._opened_index().delete(remove))
        self._store.forget(session_ids)
        return freed

    async def token_fields(self, tenant: str) -> list[JsonObject]:
        """See `Archive.token_fields`."""
        root = self._root if check_tenant(tenant) == self.tenant else self._folder_of(tenant)
        return [*(await to_thread.run_sync(_read_tokens, root)).values()]

    async def store_token(self, token_id: str, fields: JsonObject | None) -> bool:
        """See `Archive.store_token`. All tokens are in one small file."""

        def work() -> bool:
            path = self._root / _TOKENS_NAME
            with (
                durable_files.locked(path.with_suffix(".lock")),
                durable_files.explaining(path, "Writing"),
            ):
                tokens = _read_tokens(self._root)
                was_there = tokens.pop(token_id, None) is not None
                if fields is not None:
                    tokens[token_id] = fields
                if was_there or fields is not None:
                    durable_files.put_file(path, json.dumps(tokens).encode("ascii"))
            return was_there

        return await to_thread.run_sync(work)

    async def health(self) -> Health:
        """See `Archive.health`. Reads the whole log."""
        return await self._on_index(lambda: examine(self._root, self._opened_index().folder))

    async def on_session(self, session_id: str, work: Callable[[LocalStore], T]) -> T:
        """See `Archive.on_session`."""
        lock = self._order.setdefault(session_id, Lock(fast_acquire=True))
        if is_waiting := lock.locked():
            report_waiting(True)
        async with lock:
            call = partial(work, self._store)
            return await _in_thread(call, self._threads, is_waiting=is_waiting)

    async def sessions_with(self, output_id: str) -> list[str]:
        """See `Archive.sessions_with`. Uses the index only if no session in memory matches."""
        known = self._store.holding(output_id)
        return known or await self._on_index(lambda: self._sessions_with(output_id))

    def _sessions_with(self, output_id: str) -> list[str]:
        # Pointers must work even if the index cannot be used, for example because its disk is full.
        try:
            session_id = self._opened_index().find_output(output_id)
        except ArchiveError as error:
            _logger.warning("Searching the whole log for output %s: %s", output_id, error)
            states = [refresh(LocalState(log_folder=path)) for path in session_folders(self._root)]
            return [state.session_id for state in states if output_id in state.outputs]
        return [] if session_id is None else [session_id]

    def prepare(self) -> None:
        """Create the folder if it is missing, and complete a killed deletion. Blocks."""
        with durable_files.explaining(self._root, "Creating"):
            durable_files.make_folder(self._root)
            durable_files.restrict_to_user(self._root, _OWN_NAMES)
        finish_deletion(self._root)

    async def aclose(self) -> None:
        """Close the index and release the writer name, also for all tenants."""
        for archive in self._tenants.values():
            await archive.aclose()
        if self._index is not None:
            await self._on_index(self._index.close)
        if self._own_index is not None:
            await to_thread.run_sync(self._own_index.cleanup)
        self._store.close()

    def _opened_index(self) -> "SearchIndex":
        # Imported here because only searches need sqlite3 and the index; a server that only
        # compacts starts faster without them.
        from context_compaction.archive.local.index import SearchIndex

        if self._index is None:
            self._index = SearchIndex(self._root, self._index_folder())
        return self._index

    def _index_folder(self) -> Path:
        """Return the folder of indexes, or a temporary one if that folder is read-only."""
        folder = self._index_root or user_folder("cache") / "index"
        try:
            durable_files.make_folder(folder)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            # Searching must still work. It is slower, because each process builds its own index.
            self._own_index = tempfile.TemporaryDirectory(prefix="mcp-server-compaction-")
            _logger.warning(
                "Cannot write search indexes to %s (%s). They are kept in %s until this process "
                "ends. Set XDG_CACHE_HOME to a folder that you may write to.",
                folder,
                error.strerror,
                self._own_index.name,
            )
            return Path(self._own_index.name)

    async def _on_index(self, work: Callable[[], T]) -> T:
        return await _in_thread(work, self._index_limiter)


async def _in_thread(
    work: Callable[[], T], limiter: CapacityLimiter, *, is_waiting: bool = False
) -> T:
    """Run `work` in a thread; report when it waits, also if it has waited already."""
    if not is_waiting and limiter.available_tokens:
        return await to_thread.run_sync(work, limiter=limiter)

    def run() -> T:
        report_waiting(False)
        return work()

    report_waiting(True)
    return await to_thread.run_sync(run, limiter=limiter)


def _read_tokens(root: Path) -> dict[str, JsonObject]:
    """Return the fields of the tokens in an archive's folder by token ID."""
    path = root / _TOKENS_NAME
    with durable_files.explaining(path, "Reading"):
        return json.loads(path.read_bytes()) if path.exists() else {}
