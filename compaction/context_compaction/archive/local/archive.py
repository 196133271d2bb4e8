"""The embedded archive: a folder of logs and blobs, and a search index derived from them."""

import json
import logging
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from anyio import CancelScope, CapacityLimiter, Lock, to_thread
from platformdirs import user_cache_path

from context_compaction.archive import (
    DEFAULT_TENANT,
    AccessToken,
    Archive,
    Health,
    SessionInfo,
    check_tenant,
)
from context_compaction.archive.local.durable_files import (
    close_to_others,
    explaining,
    make_folder,
    put_file,
    sync_folder,
)
from context_compaction.archive.local.log import folders_naming, session_key
from context_compaction.archive.local.maintenance import (
    delete_sessions,
    examine,
    finish_deletion,
    measure,
)
from context_compaction.archive.local.sessions import LocalSessions, LocalState, refresh
from context_compaction.archive.retention import Stored
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.errors import ArchiveError, NotFoundError, SettingsError
from context_compaction.redaction import RedactionMode
from context_compaction.request import check_session_id

if TYPE_CHECKING:
    from sqlite3 import Connection

    from context_compaction.archive.local.index import SearchIndex
    from context_compaction.archive.search.filters import Check, RowsOf


T = TypeVar("T")
# What this package puts into an archive's folder.
_OURS = frozenset({
    "blobs",
    "hooks",
    "http-token",
    "imports",
    "lock",
    "sessions",
    "tenants",
    "tokens",
    "trash",
    "writers",
})

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_archive(
    root: Path, *, index_root: Path | None = None, redaction: RedactionMode = "off"
) -> AsyncGenerator["LocalArchive"]:
    """The archive in folder `root`, made when it is missing.

    Args:
        root: Holds the logs and blobs. Several processes may open it at once.
        index_root: A folder on a local disk for search indexes, by default the user's cache folder.
        redaction: How secrets are treated: "off" looks for none, "warn" keeps everything as it is
            and has compactions report them, "on" removes them from whatever is written.

    Raises:
        ArchiveError: The folder cannot be made.
    """
    archive = LocalArchive(root, index_root, redaction)
    await to_thread.run_sync(archive.prepare)
    try:
        yield archive
    finally:
        # Short: closing only waits for the index's lock, which has a limit of its own.
        with CancelScope(shield=True):
            await archive.aclose()


class LocalArchive(Archive):
    """An `Archive` in a folder; see there for what each method does.

    Nothing is read or written before it is asked for, and the search index is opened by the first
    search. Cancelling a call waits until its work in the thread is whole; a search ends at once.
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
        self._sessions = LocalSessions(self._root)
        self._store = TranscriptStore(self._sessions, redacts=redaction == "on")
        self._threads = CapacityLimiter(16)  # a long append holds up only its own session
        self._order: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._index: SearchIndex | None = None
        self._own_index: tempfile.TemporaryDirectory[str] | None = None
        # A thread of its own, so that a long search never holds up an append.
        self._index_limiter = CapacityLimiter(1)

    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "LocalArchive":
        """See `Archive.for_tenant`: an archive in a folder of its own, below that of this one.

        Raises:
            SettingsError: The name cannot be a tenant's.
            NotFoundError: There is no such folder, and the call does not `opens` it.
            ArchiveError: The folder cannot be made.
        """
        if check_tenant(tenant) == self.tenant:
            return self
        if self.tenant != DEFAULT_TENANT:
            raise SettingsError(
                f"The archive of tenant {self.tenant!r} holds no other tenants. Ask the one that "
                "was opened."
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
        # The name as a hash: file systems differ in which names are one.
        return self._root / "tenants" / blake2b(tenant.encode(), digest_size=16).hexdigest()

    async def on_rows(
        self, work: "Callable[[RowsOf, Check], T]", limit: "Callable[[], Check]"
    ) -> T:
        """See `Archive.on_rows`."""
        from context_compaction.archive.local.index import IndexRows, interrupted_by

        def on_connection(connection: "Connection") -> T:
            check = limit()
            with interrupted_by(connection, check):
                return work(partial(IndexRows, self._opened_index(), connection), check)

        return await self._on_index(lambda: self._opened_index().run(on_connection))

    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """See `Archive.sessions`."""
        return await self._on_index(
            lambda: self._opened_index().list_sessions(limit, cursor, family_of)
        )

    async def stored(self) -> Stored:
        """See `Archive.stored`. Reads the whole log."""
        return await self._on_index(lambda: measure(self._root))

    async def delete(self, session_ids: Sequence[str]) -> int:
        """See `Archive.delete`.

        It waits for a moment in which nobody writes, 20 seconds at most. The words are removed
        from the index too, whose file is written again: delete many sessions in one call.
        A killed deletion is finished by the next process that opens the archive and searches.

        Raises:
            NotFoundError: There is no such session; nothing was deleted.
            ArchiveBusyError: Others kept writing for too long.
        """
        keys = [session_key(check_session_id(session_id)) for session_id in session_ids]
        remove = partial(delete_sessions, self._root, session_ids)
        freed = await self._on_index(lambda: self._opened_index().delete(keys, remove))
        self._sessions.forget(session_ids)
        return freed

    async def keep_token(self, token: AccessToken) -> None:
        """See `Archive.keep_token`: in a small file, named by the token's id."""
        path = self._token_path(token.token_id)

        def work() -> None:
            with explaining(path, "Writing"):
                make_folder(path.parent)
                put_file(path, json.dumps(asdict(token)).encode("ascii"))

        await to_thread.run_sync(work)

    async def token(self, token_id: str, *, tenant: str | None = None) -> AccessToken | None:
        """See `Archive.token`."""
        if not _can_name_token(token_id):
            return None
        path = self._token_path(token_id)
        if tenant is not None and check_tenant(tenant) != self.tenant:
            path = self._folder_of(tenant) / "tokens" / path.name
        found = await to_thread.run_sync(_read_tokens, path.parent, path.name)
        return found[0] if found else None

    async def tokens(self) -> list[AccessToken]:
        """See `Archive.tokens`."""
        found = await to_thread.run_sync(_read_tokens, self._root / "tokens", "*.json")
        return sorted(found, key=lambda token: (token.created_seconds, token.token_id))

    async def revoke_token(self, token_id: str) -> bool:
        """See `Archive.revoke_token`."""
        path = self._token_path(token_id)

        def work() -> bool:
            with explaining(path, "Deleting"), suppress(FileNotFoundError):
                path.unlink()
                sync_folder(path.parent)
                return True
            return False

        return _can_name_token(token_id) and await to_thread.run_sync(work)

    def _token_path(self, token_id: str) -> Path:
        return self._root / "tokens" / f"{token_id}.json"

    async def health(self) -> Health:
        """See `Archive.health`. Reads the whole log."""
        return await self._on_index(lambda: examine(self._root, self._opened_index().folder))

    async def on_session(
        self, session_id: str, work: Callable[[TranscriptStore[LocalState]], T]
    ) -> T:
        """What `work` returns of the store, after this session's other calls."""
        async with self._order.setdefault(session_id, Lock(fast_acquire=True)):
            return await to_thread.run_sync(work, self._store, limiter=self._threads)

    async def sessions_with(self, output_id: str) -> list[str]:
        """See `Archive.sessions_with`: sessions in memory, else those in the index."""
        known = self._sessions.holding(output_id)
        return known or await self._on_index(lambda: self._sessions_with(output_id))

    def _sessions_with(self, output_id: str) -> list[str]:
        # The index is derived, and pointers are read without it too: by a walk over the log where
        # the index cannot be used, as where its disk is full.
        try:
            session_id = self._opened_index().find_output(output_id)
        except ArchiveError as error:
            _logger.warning("%s is looked for in the log: %s", output_id, error)
            folders = folders_naming(self._root, output_id.encode(errors="replace"))
            return [refresh(LocalState(folder=folder)).session_id for folder in folders]
        return [] if session_id is None else [session_id]

    def prepare(self) -> None:
        """Make the folder where it is missing, and finish what was killed there; blocks."""
        with explaining(self._root, "Making"):
            make_folder(self._root)
            close_to_others(self._root, _OURS)
        finish_deletion(self._root)

    async def aclose(self) -> None:
        """Close the index and let go of the writer's lock, those of tenants too."""
        for archive in self._tenants.values():
            await archive.aclose()
        if self._index is not None:
            await self._on_index(self._index.close)
        if self._own_index is not None:
            await to_thread.run_sync(self._own_index.cleanup)
        self._sessions.close()

    def _opened_index(self) -> "SearchIndex":
        # Imported here because sqlite3 and the index are needed by searches only, and a server
        # that only compacts should start without them.
        from context_compaction.archive.local.index import SearchIndex

        if self._index is None:
            self._index = SearchIndex(self._root, self._index_folder())
        return self._index

    def _index_folder(self) -> Path:
        """Where indexes are kept; a folder of this process where the usual one is read-only."""
        folder = self._index_root or user_cache_path("mcp-server-compaction") / "index"
        try:
            make_folder(folder)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            # What was found once must be found again: slower, since each process begins anew.
            self._own_index = tempfile.TemporaryDirectory(prefix="mcp-server-compaction-")
            _logger.warning(
                "Search indexes cannot be kept in %s (%s): they stand in %s until this process "
                "ends. Set XDG_CACHE_HOME to a folder that may be written.",
                folder,
                error.strerror,
                self._own_index.name,
            )
            return Path(self._own_index.name)

    async def _on_index(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work, limiter=self._index_limiter)


def _can_name_token(token_id: str) -> bool:
    """Whether a file may have this name."""
    return token_id.isascii() and token_id.isalnum() and len(token_id) <= 64


def _read_tokens(folder: Path, pattern: str) -> list[AccessToken]:
    """The tokens in the files of a folder whose names match."""
    with explaining(folder, "Reading"):
        files = [json.loads(path.read_bytes()) for path in folder.glob(pattern)]
    return [AccessToken.from_json(fields) for fields in files]
