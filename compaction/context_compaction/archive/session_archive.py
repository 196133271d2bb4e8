"""What an archive answers of one session, and of one output, wherever its records are stored.

All of it is work of a `TranscriptStore`. Archives differ in how they give that work a store: in a
thread with locks on files, or in a transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from context_compaction.archive import OutputInfo, OutputSlice, Query, SearchPage, SessionInfo
from context_compaction.archive.copying import add_records, read_records
from context_compaction.archive.outputs import StoredOutput
from context_compaction.archive.transcripts import TranscriptStore
from context_compaction.errors import NotFoundError

if TYPE_CHECKING:
    from context_compaction.archive.search.page import Check, RowsOf

P = ParamSpec("P")
T = TypeVar("T")
_Store: TypeAlias = TranscriptStore[Any]


def _of_session(
    work: Callable[Concatenate[_Store, P], T],
) -> "Callable[Concatenate[SessionArchive, P], CoroutineType[Any, Any, T]]":
    """The method of an archive that does `work` with a store; its first argument is a session."""

    async def method(self: "SessionArchive", *args: P.args, **kwargs: P.kwargs) -> T:
        session_id = str(args[0] if args else kwargs["session_id"])
        return await self.on_session(session_id, lambda store: work(store, *args, **kwargs))

    method.__doc__ = work.__doc__
    return method  # type: ignore[return-value] # mypy knows the wider Coroutine only


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

    append: Final = _of_session(_Store.append)
    keep_counts: Final = _of_session(_Store.keep_counts)
    commit: Final = _of_session(_Store.commit)
    context: Final = _of_session(_Store.context)
    context_name: Final = _of_session(_Store.context_name)
    read_messages: Final = _of_session(_Store.read_messages)
    damaged_messages: Final = _of_session(_Store.damaged_messages)
    history: Final = _of_session(_Store.history)
    branches: Final = _of_session(_Store.branches)
    receipts: Final = _of_session(_Store.receipts)
    stored_receipts: Final = _of_session(_Store.stored_receipts)
    compacted_lists: Final = _of_session(_Store.compacted_lists)
    outputs: Final = _of_session(_Store.outputs)
    retain: Final = _of_session(_Store.retain)
    records: Final = _of_session(read_records)
    add_records: Final = _of_session(add_records)

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
