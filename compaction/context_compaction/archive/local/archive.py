"""The embedded archive: a folder of logs and blobs, and a search index derived from them."""

import logging
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from anyio import CancelScope, CapacityLimiter, from_thread, to_thread
from platformdirs import user_cache_path

from context_compaction.archive import (
    DEFAULT_TENANT,
    AccessToken,
    AppendResult,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    CopiedRecord,
    Health,
    History,
    OutputInfo,
    OutputSlice,
    PrunePlan,
    PruneRules,
    Query,
    SearchPage,
    SessionInfo,
    StoredReceipt,
    Usage,
    check_tenant,
)
from context_compaction.archive.local import tokens
from context_compaction.archive.local.durable_files import close_to_others, explaining, make_folder
from context_compaction.archive.local.retention import finish_deletion, measure
from context_compaction.archive.local.transcripts import LocalTranscripts
from context_compaction.archive.outputs import StoredOutput
from context_compaction.archive.retention import choose, plan_of, usage_of
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import JsonObject, Message
from context_compaction.redaction import RedactionMode

if TYPE_CHECKING:
    from context_compaction.archive.local.search.index import SearchIndex


T = TypeVar("T")
LANES = 4  # threads for the log; a long append holds up only its own

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


class LocalArchive:
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
        self._tenant = tenant
        self._tenants: dict[str, LocalArchive] = {}
        self._index_root = index_root
        self._redaction: RedactionMode = redaction
        self._lanes = Lanes(self._root, redacts=redaction == "on")
        self._index: SearchIndex | None = None
        self._own_index: tempfile.TemporaryDirectory[str] | None = None
        # A thread of its own, so that a long search never holds up an append.
        self._index_limiter = CapacityLimiter(1)

    @property
    def redaction(self) -> RedactionMode:
        """See `Archive.redaction`."""
        return self._redaction

    @property
    def tenant(self) -> str:
        """See `Archive.tenant`."""
        return self._tenant

    async def for_tenant(self, tenant: str) -> "LocalArchive":
        """See `Archive.for_tenant`: an archive in a folder of its own, below that of this one.

        Raises:
            SettingsError: The name cannot be a tenant's.
            ArchiveError: The folder cannot be made.
        """
        if check_tenant(tenant) == self._tenant:
            return self
        if self._tenant != DEFAULT_TENANT:
            raise SettingsError(
                f"The archive of tenant {self._tenant!r} holds no other tenants. Ask the one that "
                "was opened."
            )
        if tenant not in self._tenants:
            # The name as a hash: file systems differ in which names are one.
            folder = self._root / "tenants" / blake2b(tenant.encode(), digest_size=16).hexdigest()
            archive = LocalArchive(folder, self._index_root, self._redaction, tenant)
            await to_thread.run_sync(archive.prepare)
            self._tenants.setdefault(tenant, archive)
        return self._tenants[tenant]

    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        format: str,
        parent_session_id: str | None = None,
        after: str = "",
        dry_run: bool = False,
        least_shared: int = 0,
    ) -> AppendResult:
        """See `Archive.append`.

        Raises:
            SettingsError: An id or the format cannot be used, or a message has no source.
            InvalidMessageError: A message cannot be written as JSON.
            NotFoundError: The session does not hold the history that `after` names.
            ArchiveFullError: The disk is full; nothing of the call was kept.
            ArchiveBusyError: Another process holds the session's lock.
        """
        return await self._lanes.run(
            session_id,
            lambda store: store.append(
                session_id,
                messages,
                format=format,
                parent_session_id=parent_session_id,
                after=after,
                dry_run=dry_run,
                least_shared=least_shared,
                now_seconds=time.time(),
            ),
        )

    async def commit(
        self,
        session_id: str,
        *,
        blobs: Sequence[Blob] = (),
        receipt: JsonObject | None = None,
        context: Sequence[ContextEntry] = (),
        head: str = "",
        listed: str = "",
    ) -> None:
        """See `Archive.commit`.

        Raises:
            SettingsError: The session's id, or an output's id, cannot be used.
            NotFoundError: The context names a message that the session does not hold.
            ArchiveFullError: The disk is full; nothing of the call was kept.
            ArchiveBusyError: Another process holds the session's lock.
            ArchiveDamagedError: An output's id already stands for other content.
        """
        await self._lanes.run(
            session_id,
            lambda store: store.commit(
                session_id,
                blobs,
                receipt,
                context,
                head=head,
                listed=listed,
                now_seconds=time.time(),
            ),
        )

    async def context(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[str, list[JsonObject]]:
        """See `Archive.context`."""
        return await self._lanes.run(
            session_id, lambda store: store.context(session_id, after, limit)
        )

    async def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        """See `Archive.read_messages`. A damaged message is left out; `health` names it.

        Raises:
            NotFoundError: There is no such session, or no such history in it.
            ArchiveDamagedError: What a history builds upon cannot be read.
        """
        return await self._lanes.run(
            session_id, lambda store: store.read_messages(session_id, start, stop, head)
        )

    async def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """See `Archive.damaged_messages`."""
        return await self._lanes.run(
            session_id, lambda store: store.damaged_messages(session_id, start, stop)
        )

    async def history(self, session_id: str, head: str) -> History:
        """See `Archive.history`; raises what `read_messages` raises."""
        return await self._lanes.run(session_id, lambda store: store.history(session_id, head))

    async def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """See `Archive.branches`; raises what `read_messages` raises."""
        return await self._lanes.run(session_id, lambda store: store.branches(session_id, limit))

    async def receipts(
        self,
        session_id: str,
        *,
        heads: Collection[str] | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """See `Archive.receipts`."""
        return await self._lanes.run(
            session_id, lambda store: store.receipts(session_id, heads, after, limit)
        )

    async def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """See `Archive.stored_receipts`."""
        return await self._lanes.run(session_id, lambda store: store.stored_receipts(session_id))

    async def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """See `Archive.compacted_lists`.

        Raises:
            NotFoundError: The session has no such receipt.
            ArchiveDamagedError: What the lists are made of cannot be read.
        """
        return await self._lanes.run(
            session_id, lambda store: store.compacted_lists(session_id, number)
        )

    async def session_info(self, session_id: str) -> SessionInfo:
        """See `Archive.session_info`."""
        return await self._lanes.run(session_id, lambda store: store.session_info(session_id))

    async def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """See `Archive.outputs`."""
        return await self._lanes.run(session_id, lambda store: store.outputs(session_id, limit))

    async def output_info(self, output_id: str) -> OutputInfo:
        """See `Archive.output_info`."""
        return await self._on_output(output_id, lambda output: output.info)

    async def read_output(
        self, output_id: str, *, start_byte: int = 0, limit_bytes: int | None = None
    ) -> OutputSlice:
        """See `Archive.read_output`.

        Raises:
            NotFoundError: There is no such output.
            QueryError: The range lies outside the output.
            ArchiveDamagedError: The stored bytes do not match their checksum.
        """
        return await self._on_output(
            output_id, lambda output: output.read_bytes(start_byte, limit_bytes)
        )

    async def read_output_lines(
        self, output_id: str, *, start_line: int = 1, line_count: int | None = None
    ) -> OutputSlice:
        """See `Archive.read_output_lines`; raises what `read_output` raises."""
        return await self._on_output(
            output_id, lambda output: output.read_lines(start_line, line_count)
        )

    async def search(self, query: Query) -> SearchPage:
        """See `Archive.search`.

        Raises:
            QueryError: The query, a filter, the limit or the cursor cannot be used.
            NotFoundError: There is no such history to search in.
        """
        within = None
        if query.head is not None and query.session_id is not None:
            within = await self.history(query.session_id, query.head)
        if query.kind == "regex":
            from context_compaction.archive.local.search.search import search_pattern

            return await search_pattern(
                lambda work: self._on_index(lambda: work(self._opened_index())), query, within
            )

        def work() -> SearchPage:
            from context_compaction.archive.local.search.search import search

            return search(self._opened_index(), query, within, from_thread.check_cancelled)

        return await self._on_index(work)

    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """See `Archive.sessions`.

        Raises:
            QueryError: The limit is below 1, or the cursor is none of ours.
        """
        return await self._on_index(
            lambda: self._opened_index().list_sessions(limit, cursor, family_of)
        )

    async def retain(self, session_id: str, *, retained: bool = True) -> None:
        """See `Archive.retain`.

        Raises:
            NotFoundError: There is no such session.
        """
        await self._lanes.run(session_id, lambda store: store.retain(session_id, retained=retained))

    async def usage(self) -> Usage:
        """See `Archive.usage`. Reads the whole log."""
        return await self._on_index(lambda: usage_of(measure(self._root)))

    async def prune(self, rules: PruneRules, *, dry_run: bool = False) -> PrunePlan:
        """See `Archive.prune`. Reads the whole log; raises what `delete` raises."""

        def planned() -> PrunePlan:
            stored = measure(self._root)
            return plan_of(stored, choose(stored, rules))

        plan = await self._on_index(planned)
        if dry_run:
            return plan
        freed = await self.delete([session.session_id for session in plan.sessions])
        left = plan.freed_bytes + plan.left_bytes - freed
        return replace(plan, freed_bytes=freed, left_bytes=left)

    async def delete(self, session_ids: Sequence[str]) -> int:
        """See `Archive.delete`.

        It waits for a moment in which nobody writes, 20 seconds at most, and writes the index's
        file anew, which takes time in proportion to its size: delete many sessions in one call.
        A killed deletion is finished by the next process that opens the archive and searches.

        Raises:
            NotFoundError: There is no such session; nothing was deleted.
            ArchiveBusyError: Others kept writing for too long.
        """
        freed = await self._lanes.run("", lambda store: store.delete(session_ids))
        await self._lanes.everywhere(lambda store: store.forget(session_ids))
        await self._on_index(self._forget)
        return freed

    def _forget(self) -> None:
        """Remove what is no longer archived from the index, and indexes of archives that are gone.

        A deletion removes the words too, also those of an archive that was removed by hand.
        """
        from context_compaction.archive.local.search.sqlite_file import drop_index, orphaned_indexes

        index = self._opened_index()
        index.forget()
        for folder in orphaned_indexes(index.folder.parent):
            if folder != index.folder:
                drop_index(folder)

    async def keep_token(self, token: AccessToken) -> None:
        """See `Archive.keep_token`."""
        await to_thread.run_sync(tokens.keep, self._root, token)

    async def token(self, token_id: str) -> AccessToken | None:
        """See `Archive.token`."""
        return await to_thread.run_sync(tokens.find, self._root, token_id)

    async def tokens(self) -> list[AccessToken]:
        """See `Archive.tokens`."""
        return await to_thread.run_sync(tokens.every, self._root)

    async def revoke_token(self, token_id: str) -> bool:
        """See `Archive.revoke_token`."""
        return await to_thread.run_sync(tokens.revoke, self._root, token_id)

    async def records(self, session_id: str, *, after: int, limit: int) -> list[CopiedRecord]:
        """See `Archive.records`."""
        return await self._lanes.run(
            session_id, lambda store: store.records(session_id, after, limit)
        )

    async def add_records(
        self,
        session_id: str,
        records: Sequence[CopiedRecord],
        *,
        after: int,
        parent_session_id: str | None = None,
    ) -> None:
        """See `Archive.add_records`."""
        await self._lanes.run(
            session_id,
            lambda store: store.add_records(session_id, records, after, parent_session_id),
        )

    async def health(self) -> Health:
        """See `Archive.health`. Reads the whole log."""

        def work() -> Health:
            from context_compaction.archive.local.health import examine

            return examine(self._root, self._opened_index().folder)

        return await self._on_index(work)

    async def _on_output(self, output_id: str, work: Callable[[StoredOutput], T]) -> T:
        """What `work` returns of an output: of a session in memory, else the one in the index."""

        def on_log(key: str | None, store: LocalTranscripts) -> tuple[T] | None:
            output = store.output(output_id, key)
            return None if output is None else (work(output),)

        done = await self._lanes.first_idle(partial(on_log, None))
        if done is None:
            key = await self._on_index(lambda: self._opened_index().find_output(output_id))
            if key is not None:
                done = await self._lanes.run(key, partial(on_log, key))
        if done is None:
            raise NotFoundError(
                f"The archive holds no output {output_id!r}. Output ids stand in the markers that "
                "compaction leaves, and in the hits of a search."
            )
        return done[0]

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
        await self._lanes.everywhere(lambda store: store.close())

    def _opened_index(self) -> "SearchIndex":
        # Imported here because sqlite3 and the index are needed by searches only, and a server
        # that only compacts should start without them.
        from context_compaction.archive.local.search.index import SearchIndex

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


@dataclass(frozen=True, slots=True)
class _Lane:
    """One thread.

    Attributes:
        store: What works in it.
        limiter: Lets one call at a time in, in the order in which they came.
        calls: By session, how many calls are done there or wait.
    """

    store: LocalTranscripts
    limiter: CapacityLimiter
    calls: Counter[str] = field(default_factory=Counter[str])


class Lanes:
    """Gives each call a lane; the calls of one session are done in their order.

    One session's huge append holds up no other. Lanes share nothing but files and the locks on
    them, so that they are to each other what processes are.
    """

    def __init__(self, root: Path, *, redacts: bool) -> None:
        self._lanes = [
            _Lane(LocalTranscripts(root, redacts=redacts), CapacityLimiter(1)) for _ in range(LANES)
        ]

    async def run(self, session: str, work: Callable[[LocalTranscripts], T]) -> T:
        """What `work` returns, in a lane of `session`, which names a session in any way."""
        return await self._run(self._lane_of(session), session, work)

    async def first_idle(self, work: Callable[[LocalTranscripts], T | None]) -> T | None:
        """What `work` returns in the first lane where that is not None, of those with no call."""
        for lane in self._lanes:
            if not lane.calls and (found := await self._run(lane, "", work)) is not None:
                return found
        return None

    async def everywhere(self, work: Callable[[LocalTranscripts], None]) -> None:
        """Do `work` in every lane, when its calls are done."""
        for lane in self._lanes:
            await self._run(lane, "", work)

    def _lane_of(self, session: str) -> _Lane:
        """The lane that has calls of the session, else its own if that is idle, else the idlest."""
        for lane in self._lanes:
            if session in lane.calls:
                return lane
        # The same one as last time knows the session already.
        first = crc32(session.encode("utf-8", "surrogatepass")) % LANES
        lanes = [*self._lanes[first:], *self._lanes[:first]]
        return min(lanes, key=lambda lane: lane.calls.total())

    async def _run(self, lane: _Lane, session: str, work: Callable[[LocalTranscripts], T]) -> T:
        lane.calls[session] += 1
        try:
            return await to_thread.run_sync(partial(work, lane.store), limiter=lane.limiter)
        finally:
            lane.calls[session] -= 1
            if not lane.calls[session]:
                del lane.calls[session]
