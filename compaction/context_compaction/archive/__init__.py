"""The archive's protocol: append-only transcripts, outputs, and search over them.

Two implementations share one conformance suite. Everything here is data and types; `opening.py`
opens the one that a place names. The line of a compaction needs no more of it than `Store`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from context_compaction.archive.values import (
    NO_SEQ,
    AccessToken,
    AppendResult,
    ArchivedMessage,
    CompactedLists,
    ContextEntry,
    CopiedRecord,
    Health,
    History,
    Hit,
    OutputInfo,
    OutputSlice,
    PrunePlan,
    PruneRules,
    Query,
    SearchPage,
    SessionInfo,
    SessionUsage,
    StandingContext,
    StoredReceipt,
    Usage,
    check_tenant,
    part_of,
)
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import JsonObject, Message
from context_compaction.redaction import RedactionMode
from context_compaction.request import DEFAULT_TENANT

__all__ = [
    "DEFAULT_TENANT",
    "NO_SEQ",
    "AccessToken",
    "AppendResult",
    "Archive",
    "ArchivedMessage",
    "CompactedLists",
    "ContextEntry",
    "CopiedRecord",
    "Health",
    "History",
    "Hit",
    "OutputInfo",
    "OutputSlice",
    "PrunePlan",
    "PruneRules",
    "Query",
    "SearchPage",
    "SessionInfo",
    "SessionUsage",
    "StandingContext",
    "Store",
    "StoredReceipt",
    "Usage",
    "check_tenant",
    "part_of",
]


class Store(Protocol):
    """What the line of a compaction needs of an archive: messages, contexts, receipts, outputs."""

    @property
    def redaction(self) -> RedactionMode:
        """How secrets are treated: "on" removes them from all that is written from now on."""
        ...

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
        """Keep what is new of `messages`; durable (survives power loss) when this returns.

        The list is matched with what the session holds, by a chain of hashes: its longest prefix
        that the transcript contains, or in a context stored by `commit`, is not written again,
        nor a longer part that another of its histories contains (the host slides a window,
        or changed a message before it). The rest is written; an edited or forked history thereby
        becomes a branch. Each
        message is rendered by its `source` (the host's object). With `after`, the `head` of an
        earlier result, the messages follow that history, and what precedes them is not given
        again. With `dry_run` nothing is written and the numbers are those that it would get; nor
        where the list shares fewer than `least_shared` messages with the session (`forks_at`).

        With `counted_by`, the counts are reported that were kept under this name for messages of
        this format; `counts` has those that the caller has made, for each message one or None,
        which are kept with what is new.
        """
        ...

    async def keep_counts(
        self, session_id: str, *, format: str, counted_by: str, counts: Mapping[bytes, Any]
    ) -> None:
        """Keep counts of messages by their fingerprints, as `append` reported them for the session.

        A count is any JSON value. What is lost of them is only counted anew.
        """
        ...

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
        """Keep outputs, a receipt, and the context that a compaction left; durable on return.

        `head` names the history that was compacted, as `append` returned it, and `listed` the
        same with what replaced its beginning.
        """
        ...

    async def context(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[str, list[JsonObject]]:
        """The format and the raw messages that the session's context now contains.

        That is the newest context stored by `commit`, or else the transcript, with everything
        appended after it. Without the first `after` of its messages, or with the last ones alone
        where that is negative; at most `limit`.
        """
        ...

    async def context_name(self, session_id: str) -> str:
        """The hash of all messages that `context` returns, as `history_hash` makes it.

        From what is known of them: none is read. Where secrets are removed from what is written, it
        names the list that came in.
        """
        ...

    async def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        """Messages whose numbers lie in [start, stop], both ends included, in order.

        With `head`, only those of the history that it names: a session holds branches, and a range
        of numbers alone takes in all of them.
        """
        ...

    async def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """The numbers in [start, stop] whose messages the log held, and can no longer be read."""
        ...

    async def history(self, session_id: str, head: str) -> History:
        """The history that `head` names, by 12 characters or more of what `append` returned."""
        ...

    async def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """The histories that nothing continues, newest first, and how many there are."""
        ...

    async def receipts(
        self,
        session_id: str,
        *,
        heads: Collection[str] | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """The receipts of the session's compactions, oldest first.

        With `heads`, the names that `append` returned for a list, only those that the list went
        through: never of another branch. Without the first `after` of them, or with the last ones
        alone where that is negative; at most `limit`.
        """
        ...

    async def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """All receipts of the session with their times, in the order of `receipts`."""
        ...

    async def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """The lists before and after a compaction.

        `number` is that of its receipt: from 0, the oldest, or back from -1, the newest.
        """
        ...

    async def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """The outputs that the session keeps, newest first; at most `limit`."""
        ...

    async def output_info(self, output_id: str) -> OutputInfo:
        """The figures of one output."""
        ...

    async def read_output(
        self, output_id: str, *, start_byte: int = 0, limit_bytes: int | None = None
    ) -> OutputSlice:
        """Bytes of an output, verified against its hash."""
        ...

    async def read_output_lines(
        self, output_id: str, *, start_line: int = 1, line_count: int | None = None
    ) -> OutputSlice:
        """Whole lines of an output; a negative `start_line` counts from the end (-1 the last)."""
        ...


class Archive(Store, Protocol):
    """Append-only store of one tenant's transcripts and outputs. Methods raise `ArchiveError`.

    Cancelling a call leaves all of it or nothing of it.
    """

    @property
    def tenant(self) -> str:
        """The owner of these sessions; nothing of another tenant's can be read or written here."""
        ...

    async def search(self, query: Query) -> SearchPage:
        """Find text in messages and outputs; sees everything appended before the call."""
        ...

    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """Sessions, newest first, and the cursor of the next page.

        With `family_of` only that session and those that descend from it.
        """
        ...

    async def session_info(self, session_id: str) -> SessionInfo:
        """One session."""
        ...

    async def keep_token(self, token: AccessToken) -> None:
        """Keep a token, durably."""
        ...

    async def token(self, token_id: str, *, tenant: str | None = None) -> AccessToken | None:
        """One token; None where there is none of that id, or it was revoked.

        Args:
            token_id: Its id.
            tenant: Whose, where that is another; this leaves nothing of one that nobody knows.

        Raises:
            SettingsError: The name cannot be a tenant's.
        """
        ...

    async def tokens(self) -> list[AccessToken]:
        """All tokens, the oldest first."""
        ...

    async def revoke_token(self, token_id: str) -> bool:
        """Remove a token, durably; return whether it existed."""
        ...

    async def retain(self, session_id: str, *, retained: bool = True) -> None:
        """Exempt a session, and those that it started, from retention; or end that."""
        ...

    async def usage(self) -> Usage:
        """How much room each session takes."""
        ...

    async def prune(self, rules: PruneRules, *, dry_run: bool = False) -> PrunePlan:
        """Remove the sessions that `rules` choose, and what no session names; or return which."""
        ...

    async def delete(self, session_ids: Sequence[str]) -> int:
        """Remove sessions with all their bytes; return the bytes freed.

        Content that another session shares is removed with the last one. Nothing of the sessions
        can be found or read afterwards. Without ids, only what no session names is removed.
        """
        ...

    async def records(self, session_id: str, *, after: int, limit: int) -> list[CopiedRecord]:
        """The session's records in the order of their numbers, without the first `after`.

        At most `limit`, and fewer where they are large; none at the end, or without such a session.
        """
        ...

    async def add_records(
        self,
        session_id: str,
        records: Sequence[CopiedRecord],
        *,
        after: int,
        parent_session_id: str | None = None,
    ) -> None:
        """Append records of another archive to the `after` that the session holds already.

        Raises:
            SettingsError: The session holds another number of records.
        """
        ...

    async def health(self) -> Health:
        """Figures and problems, for `doctor`."""
        ...

    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "Archive":
        """The part of the same store that belongs to `tenant`; it ends with this archive.

        Raises:
            SettingsError: The name cannot be a tenant's.
            NotFoundError: It holds nothing of that tenant, and the call does not `opens` it; the
                text names those that are known.
        """
        ...
