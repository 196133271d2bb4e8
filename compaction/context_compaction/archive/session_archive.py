"""What an archive answers of one session, and of one output, wherever its records are stored.

All of it is work of a `TranscriptStore`. Archives differ in how they give that work a store: in a
thread with locks on files, or in a transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from context_compaction.archive import (
    AppendResult,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    CopiedRecord,
    History,
    OutputInfo,
    OutputSlice,
    Query,
    SearchPage,
    SessionInfo,
    StoredReceipt,
)
from context_compaction.archive.copying import add_records, read_records
from context_compaction.archive.outputs import StoredOutput
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.errors import NotFoundError
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import JsonObject, Message

if TYPE_CHECKING:
    from context_compaction.archive.search.page import Check, RowsOf

T = TypeVar("T")
_Store: TypeAlias = TranscriptStore[Any]


class SessionArchive(ABC):
    """The part of an `Archive` that concerns one session or one output at a time."""

    @abstractmethod
    async def on_session(self, session_id: str, work: Callable[[_Store], T]) -> T:
        """What `work` returns of a store, after this session's other calls."""

    @abstractmethod
    async def on_found(self, output_id: str, work: Callable[[StoredOutput], T]) -> tuple[T] | None:
        """What `work` returns of an output; None where there is none of that id."""

    @abstractmethod
    async def on_rows(
        self, work: "Callable[[RowsOf, Check], T]", limit: "Callable[[], Check]"
    ) -> T:
        """See `Searched.on_rows`."""

    async def search(self, query: Query) -> SearchPage:
        """See `Archive.search`; raises what `search.page.search` raises."""
        # A server that only compacts starts without it.
        from context_compaction.archive.search.page import search

        return await search(self, query)

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
        counted_by: str = "",
        counts: Sequence[Any] = (),
    ) -> AppendResult:
        """See `Archive.append`."""
        return await self.on_session(
            session_id,
            lambda store: store.append(
                session_id,
                messages,
                format=format,
                parent_session_id=parent_session_id,
                after=after,
                dry_run=dry_run,
                least_shared=least_shared,
                counted_by=counted_by,
                counts=counts,
            ),
        )

    async def keep_counts(
        self, session_id: str, *, format: str, counted_by: str, counts: Mapping[bytes, Any]
    ) -> None:
        """See `Archive.keep_counts`."""
        return await self.on_session(
            session_id,
            lambda store: store.keep_counts(
                session_id, format=format, counted_by=counted_by, counts=counts
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
        """See `Archive.commit`."""
        return await self.on_session(
            session_id,
            lambda store: store.commit(
                session_id, blobs=blobs, receipt=receipt, context=context, head=head, listed=listed
            ),
        )

    async def context(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[str, list[JsonObject]]:
        """See `Archive.context`."""
        return await self.on_session(
            session_id, lambda store: store.context(session_id, after=after, limit=limit)
        )

    async def context_name(self, session_id: str) -> str:
        """See `Archive.context_name`."""
        return await self.on_session(session_id, lambda store: store.context_name(session_id))

    async def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        """See `Archive.read_messages`."""
        return await self.on_session(
            session_id, lambda store: store.read_messages(session_id, start, stop, head=head)
        )

    async def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """See `Archive.damaged_messages`."""
        return await self.on_session(
            session_id, lambda store: store.damaged_messages(session_id, start, stop)
        )

    async def history(self, session_id: str, head: str) -> History:
        """See `Archive.history`."""
        return await self.on_session(session_id, lambda store: store.history(session_id, head))

    async def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """See `Archive.branches`."""
        return await self.on_session(
            session_id, lambda store: store.branches(session_id, limit=limit)
        )

    async def receipts(
        self,
        session_id: str,
        *,
        heads: Collection[str] | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """See `Archive.receipts`."""
        return await self.on_session(
            session_id,
            lambda store: store.receipts(session_id, heads=heads, after=after, limit=limit),
        )

    async def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """See `Archive.stored_receipts`."""
        return await self.on_session(session_id, lambda store: store.stored_receipts(session_id))

    async def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """See `Archive.compacted_lists`."""
        return await self.on_session(
            session_id, lambda store: store.compacted_lists(session_id, number)
        )

    async def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """See `Archive.outputs`."""
        return await self.on_session(
            session_id, lambda store: store.outputs(session_id, limit=limit)
        )

    async def retain(self, session_id: str, *, retained: bool = True) -> None:
        """See `Archive.retain`."""
        return await self.on_session(
            session_id, lambda store: store.retain(session_id, retained=retained)
        )

    async def records(self, session_id: str, *, after: int, limit: int) -> list[CopiedRecord]:
        """See `Archive.records`."""
        return await self.on_session(
            session_id, lambda store: read_records(store, session_id, after=after, limit=limit)
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
        return await self.on_session(
            session_id,
            lambda store: add_records(
                store, session_id, records, after=after, parent_session_id=parent_session_id
            ),
        )

    async def session_info(self, session_id: str) -> SessionInfo:
        """See `Archive.session_info`."""
        return await self.on_session(session_id, lambda store: store.session_info(session_id))

    async def output_info(self, output_id: str) -> OutputInfo:
        """See `Archive.output_info`."""
        return await self._on_output(output_id, lambda output: output.info)

    async def read_output(
        self, output_id: str, *, start_byte: int = 0, limit_bytes: int | None = None
    ) -> OutputSlice:
        """See `Archive.read_output`; raises what `StoredOutput.read_bytes` raises."""
        return await self._on_output(
            output_id, lambda output: output.read_bytes(start_byte, limit_bytes)
        )

    async def read_output_lines(
        self, output_id: str, *, start_line: int = 1, line_count: int | None = None
    ) -> OutputSlice:
        """See `Archive.read_output_lines`; raises what `StoredOutput.read_lines` raises."""
        return await self._on_output(
            output_id, lambda output: output.read_lines(start_line, line_count)
        )

    async def _on_output(self, output_id: str, work: Callable[[StoredOutput], T]) -> T:
        done = await self.on_found(output_id, work)
        if done is None:
            raise NotFoundError(
                f"The archive holds no output {output_id!r}. Output ids stand in the markers that "
                "compaction leaves, and in the hits of a search."
            )
        return done[0]
