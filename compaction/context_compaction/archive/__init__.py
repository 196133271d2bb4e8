"""Archives of transcripts and outputs: the interface, and the values that it takes and returns.

`Archive` has the code that is the same for a folder (`local/`) and a database (`postgres/`).
`opening.py` opens either of them.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.messages.edits import Blob
from context_compaction.messages.history_hash import content_hash
from context_compaction.messages.model import JsonObject, Message
from context_compaction.redaction import RedactionMode
from context_compaction.request import DEFAULT_TENANT as DEFAULT_TENANT

if TYPE_CHECKING:
    from context_compaction.archive.records import StoredOutput
    from context_compaction.archive.retention import StoredSizes
    from context_compaction.archive.search.filters import Check, RowsOf
    from context_compaction.archive.transcripts import TranscriptStore

    _Store: TypeAlias = TranscriptStore[Any]

NO_SEQ = -1  # of an output, and of a message that this library wrote
T = TypeVar("T")

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_tenant(tenant: str) -> str:
    """Return `tenant`.

    Raises:
        SettingsError: The name is invalid.
    """
    if not _TENANT.fullmatch(tenant):
        raise SettingsError(
            f"Invalid tenant name {tenant[:80]!r}. Use 1 to 64 letters, digits, dots, dashes and "
            "underscores, and start with a letter or digit."
        )
    return tenant


def shown_address(location: str) -> str:
    """Return an address without the user name, the password and the settings."""
    scheme, _, rest = location.partition("://")
    host, _, settings = rest.partition("?")
    # An unescaped password may contain "?", so the host cannot be told apart.
    return f"{scheme}://{'…' if '@' in settings else host.rpartition('@')[2]}"


def part_of(values: Sequence[T], after: int, limit: int | None) -> Sequence[T]:
    """Return the part of `values` that `Archive.receipts` describes for `after` and `limit`."""
    return values[after:] if limit is None else values[after:][:limit]


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The record of an access token to one tenant's archive, without its secret.

    Attributes:
        token_id: ID of the token, which is not secret.
        user: Owner of the token, for the audit log.
        scopes: Scopes that the token grants.
        secret_hash: SHA-256 of the token's secret, in hexadecimal.
        created_seconds: When the token was created, in Unix seconds.
        expires_seconds: When the token expires, in Unix seconds; None for never.
    """

    token_id: str
    user: str
    scopes: tuple[str, ...]
    secret_hash: str
    created_seconds: float
    expires_seconds: float | None = None

    @classmethod
    def from_json(cls, fields: JsonObject) -> "AccessToken":
        """Return the token with these fields, as they were stored as JSON."""
        fields["scopes"] = tuple(fields["scopes"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Position of a message list in its session, with the result of storing it.

    Attributes:
        seqs: Number of each message. A message that the session already has after the same history
            keeps its number. In a compacted context, an edited message has the number of its
            original, and a message that this library wrote (a summary, restored files) has -1.
        written: Number of new messages, which are durable now.
        head: Chain hash of the whole list, to pass as `after` in the next call.
        heads: For each message, the chain hash of the history that ends with the message.
        forks_at: Index of the first new message at which the session already continues
            differently, so that the list is a new branch. None if it extends the end of a branch.
        matched_context: The stored compacted context that replaces the start of the list. None if
            the list already starts with that context or if none exists.
        receipts: For each receipt of the session, oldest first, whether its compaction was one of
            this list, or of the matched context.
        parent_session_id: The session that started this one, if any.
        is_compacted_before: Whether a stored context replaces a part of the branch `after`.
        revision: Number of messages, receipts and contexts that any process wrote to the session;
            -1 if the archive does not report it.
        revision_before: The revision before this call.
    """

    seqs: tuple[int, ...]
    written: int
    head: str = ""
    heads: tuple[str, ...] = ()
    forks_at: int | None = None
    matched_context: "MatchedContext | None" = None
    receipts: tuple[bool, ...] = ()
    parent_session_id: str | None = None
    is_compacted_before: bool = False
    revision: int = -1
    revision_before: int = -1


@dataclass(frozen=True, slots=True)
class MatchedContext:
    """A stored compacted context that replaces the first messages of a list.

    Attributes:
        message_count: Number of messages of the list that it replaces.
        entries: The messages that replace them. An unchanged message is the host's own object.
        heads: For each entry, the chain hash of the history that ends there.
        name: Chain hash of the stored context, even if only its first entries are used.
    """

    message_count: int
    entries: "tuple[ContextEntry, ...]"
    heads: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One message of a compacted context.

    Attributes:
        seq: Number of the archived message; -1 for a message that was edited or that this library
            wrote, now or in an earlier compaction.
        raw: The message.
        source_seq: Number of the archived original of an edited message, or -1.
        replaced_head: Head of the branch that this message replaced, if this library wrote it.
        known_hash: Content hash of `raw`, or "" if it was not computed yet.
    """

    seq: int
    raw: JsonObject
    source_seq: int = NO_SEQ
    replaced_head: str = ""
    known_hash: str = field(default="", compare=False)

    @property
    def content(self) -> str:
        """Content hash of `raw`."""
        return self.known_hash or content_hash(self.raw)

    @property
    def original_seq(self) -> int:
        """Number of the archived message, or of the original of an edited message; else -1."""
        return self.seq if self.seq >= 0 else self.source_seq


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt.

    Attributes:
        timestamp_seconds: When it was written, in Unix seconds.
        receipt: The receipt.
    """

    timestamp_seconds: float
    receipt: JsonObject


@dataclass(frozen=True, slots=True)
class CompactedLists:
    """The list before and the list after a compaction.

    An entry that is an archived message has its number and an empty `raw`, so that this value is
    small even for long lists.

    Attributes:
        before: The list that was compacted.
        after: The list that the compaction left, or None if it left the list unchanged.
    """

    before: tuple[ContextEntry, ...]
    after: tuple[ContextEntry, ...] | None


@dataclass(frozen=True, slots=True)
class History:
    """A branch: one path through a session's transcript, from its start to a message.

    Attributes:
        head: The start of the branch's chain hash, for pointers.
        seqs: Numbers of its messages, oldest first. A summary counts as the messages it replaced.
        output_ids: IDs of the outputs that its compactions stored.
    """

    head: str
    seqs: tuple[int, ...]
    output_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """One message as the host wrote it.

    Attributes:
        session_id: Session that contains the message.
        seq: Number of the message.
        format: Format of the message.
        raw: The host's object.
        timestamp_seconds: Time of the message in Unix seconds.
    """

    session_id: str
    seq: int
    format: str
    raw: JsonObject
    timestamp_seconds: float


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """Description of a stored output.

    Attributes:
        output_id: ID of the output.
        sha256: SHA-256 of its bytes, in hexadecimal.
        media_type: Media type.
        size_bytes: Length in bytes.
        size_chars: Length in characters; in bytes if it is not text.
        line_count: Number of lines.
        session_id: A session that contains the output.
        tool_name: Tool that printed it, if known.
        call_id: ID of the tool call, if known.
    """

    output_id: str
    sha256: str
    media_type: str
    size_bytes: int
    size_chars: int
    line_count: int
    session_id: str
    tool_name: str | None = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutputSlice:
    """The exact bytes of a part of an output.

    Attributes:
        info: Description of the whole output.
        data: Bytes of the part.
        start_byte: Start of the part in the output, in bytes.
        start_line: Number of the first line of the part, from 1.
    """

    info: OutputInfo
    data: bytes
    start_byte: int
    start_line: int


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session of the archive.

    Attributes:
        session_id: ID of the session.
        parent_session_id: The session that started it, if any.
        format: Format of its newest message.
        message_count: Number of its messages.
        first_seconds: Time of its first record in Unix seconds.
        last_seconds: Time of its last record in Unix seconds.
        title: Title from the host, or the start of the first user message.
    """

    session_id: str
    parent_session_id: str | None
    format: str
    message_count: int
    first_seconds: float
    last_seconds: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A search. A filter that is None does not restrict the search.

    Attributes:
        text: Words, a phrase or a regular expression.
        kind: Meaning of `text`.
        order: Best hits first, or newest hits first.
        session_id: Only this session and its descendants.
        head: Only this branch of the session; needs `session_id`.
        role: Only messages with this role; "tool" for tool results and outputs.
        tool: Only calls and results of this tool.
        path: Only messages that name this path or its end, and results of calls that named it.
        since_seconds: Earliest time in Unix seconds.
        until_seconds: Latest time in Unix seconds.
        limit: Maximum number of hits.
        cursor: `SearchPage.next_cursor` of the previous page.
    """

    text: str
    kind: Literal["words", "phrase", "regex"] = "words"
    order: Literal["relevance", "recent"] = "relevance"
    session_id: str | None = None
    head: str | None = None
    role: str | None = None
    tool: str | None = None
    path: str | None = None
    since_seconds: float | None = None
    until_seconds: float | None = None
    limit: int = 10
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One match of a query.

    Attributes:
        pointer: Pointer to the message (`transcript://S/messages/N-N`), or the ID of the output.
        kind: Whether the match is in a message or in a stored output.
        session_id: Session that contains it.
        seq: Number of the message; -1 for an output.
        role: Role of the message; "tool" for an output.
        tool_name: Tool of the call or result, if any.
        timestamp_seconds: Time of the message or output in Unix seconds.
        snippet: The passage around the match, verbatim: whole paragraphs, lines or sentences.
        offset_chars: Start of the match in the text of the message or output, in characters.
        line: Line of the match in an output, from 1; None for a message.
        score: Score of the match; 0 if the newest hits come first.
        snippet_chars_before: Number of characters of the snippet before the match.
        head: Start of the chain hash of the branch that ends with the message.
        next: The next message of the branch, if this message ends with a question. Not set for
            regular expressions.
        size_chars: Length of the message in characters; None for an output.
        repeats: Number of further rows of the session that show the same passage.
    """

    pointer: str
    kind: Literal["message", "output"]
    session_id: str
    seq: int
    role: str
    tool_name: str | None
    timestamp_seconds: float
    snippet: str
    offset_chars: int
    line: int | None = None
    score: float = 0.0
    snippet_chars_before: int = 0
    head: str = ""
    next: "Hit | None" = None
    size_chars: int | None = None
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of hits.

    Calls of this server's own tools and their results are found only with the name of the tool as
    filter.

    Attributes:
        hits: Best or newest first. A page of a regular expression may have no hit and still a
            cursor, because the search stopped at its limits.
        total: Number of rows that match.
        total_is_exact: Whether all rows were counted.
        next_cursor: Cursor of the next page, or None.
        missing_terms: Words of the query that no row contains.
        elsewhere: Words of the query that only rows outside the filters contain.
        has_any: Whether no row has all words, so that the hits have any of them. Only set if the
            newest hits come first, because a ranking weighs this.
    """

    hits: tuple[Hit, ...]
    total: int
    total_is_exact: bool
    next_cursor: str | None = None
    missing_terms: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    has_any: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """State of an archive, as `doctor` prints it.

    Attributes:
        location: Folder or address of the archive.
        session_count: Number of sessions.
        message_count: Number of messages.
        output_count: Number of outputs.
        log_bytes: Size of transcripts and receipts in bytes.
        blob_bytes: Size of large contents in bytes.
        index_bytes: Size of the search index in bytes.
        problems: Problems that were found; a text that starts with "Note:" is only a remark.
    """

    location: str
    session_count: int
    message_count: int
    output_count: int
    log_bytes: int
    blob_bytes: int
    index_bytes: int
    problems: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """Size of one session.

    Attributes:
        session_id: ID of the session.
        parent_session_id: The session that started it, if any.
        is_retained: Whether it is protected from pruning.
        message_count: Number of its messages.
        last_seconds: When it was last written to, in Unix seconds.
        log_bytes: Size of its transcript, receipts and small outputs in bytes.
        own_bytes: Size of large contents that no other session has, in bytes.
        shared_bytes: Size of large contents that other sessions have too, in bytes.
    """

    session_id: str
    parent_session_id: str | None
    is_retained: bool
    message_count: int
    last_seconds: float
    log_bytes: int
    own_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Size of an archive without its search index, which can be rebuilt.

    Attributes:
        sessions: Size of each session; the session that was not used for the longest time first.
        total_bytes: Size of all logs and large contents; shared contents count once.
        unnamed_bytes: Size of large contents that no session refers to.
    """

    sessions: tuple[SessionUsage, ...]
    total_bytes: int
    unnamed_bytes: int


@dataclass(frozen=True, slots=True)
class PruneRules:
    """Rules for pruning. A protected session and its descendants are never removed.

    Attributes:
        before_seconds: Remove sessions that were last written to before this Unix time, by this
            machine's clock, because times of messages may be wrong. None disables the rule.
        max_bytes: Then remove the oldest sessions until logs and large contents have at most this
            size. None disables the limit.
    """

    before_seconds: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Sessions that a call of `prune` removed or would remove.

    Attributes:
        sessions: Sessions to remove; the session that was not used for the longest time first.
        session_count: Number of sessions before the call.
        freed_bytes: Size of the removed sessions and of unused large contents, in bytes.
        remaining_bytes: Size of the rest in bytes.
    """

    sessions: tuple[SessionUsage, ...]
    session_count: int
    freed_bytes: int
    remaining_bytes: int


@dataclass(frozen=True, slots=True)
class CopiedRecord:
    """One record of a session, for another archive.

    Attributes:
        head: Head of the record without its number; see `records.py`.
        content: Body of the record with all large strings; for an output its bytes.
    """

    head: JsonObject
    content: Any


class Archive(ABC):
    """Append-only archive of one tenant's transcripts and outputs. Methods raise `ArchiveError`.

    A cancelled call has either its whole effect or none.

    Attributes:
        tenant: Tenant whose sessions this object reads and writes; it cannot reach another tenant.
        redaction: Treatment of secrets; "on" removes them from everything that is written.
    """

    tenant: str
    redaction: RedactionMode

    @abstractmethod
    async def on_session(self, session_id: str, work: "Callable[[_Store], T]") -> T:
        """Run `work` with a store after this session's other calls, and return its result."""

    @abstractmethod
    async def sessions_with(self, output_id: str) -> Sequence[str]:
        """Return the IDs of sessions that may contain an output."""

    @abstractmethod
    async def stored_sizes(self) -> "StoredSizes":
        """Return the sizes of all sessions and large contents."""

    @abstractmethod
    async def on_rows(
        self, work: "Callable[[RowsOf, Check], T]", limit: "Callable[[], Check]"
    ) -> T:
        """Run `work` in a thread when everything is indexed, and return its result.

        Args:
            work: Receives a function that returns the rows of a filter, and a check.
            limit: Called before `work`; returns the check. The check is called repeatedly during
                the work, and may raise to end it.
        """

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
        """Store the new messages of a list; they survive power loss when this returns.

        The list is compared with the session by a chain of hashes. Its longest start that the
        transcript or a context of `commit` contains is not stored again. A later part is not stored
        again if another branch contains it, because the host keeps only the newest messages or
        rewrote an earlier one. All other messages are stored; an edited list becomes a branch.
        Each message is stored as its `source`, the host's object.

        Args:
            session_id: ID of the session.
            messages: The messages.
            format: Format of the messages.
            parent_session_id: The session that started this one, if any.
            after: `head` of an earlier result. The messages follow that branch, and the messages
                of the branch are not passed again.
            dry_run: Whether to write nothing and only report the numbers that messages would get.
            least_shared: Write nothing if the list is a new branch that shares fewer messages.

        Raises:
            SettingsError: An ID or the format is invalid, or a message has no source.
            InvalidMessageError: A message cannot be written as JSON.
            NotFoundError: The session does not have the branch `after`.
            ArchiveFullError: The archive's disk is full; nothing of the call was stored.
            ArchiveBusyError: Other processes used the session for too long.
        """
        from context_compaction.archive.appending import ListAppend

        def work(store: "_Store") -> AppendResult:
            call = ListAppend(store, session_id, messages, format, after)
            return call.run(parent_session_id, dry_run=dry_run, least_shared=least_shared)

        return await self.on_session(session_id, work)

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
        """Store outputs, a receipt, and the context that a compaction left; durable on return.

        Args:
            session_id: ID of the session.
            blobs: Outputs.
            receipt: Receipt of the compaction.
            context: Messages that the compaction left.
            head: `head` of the list that was compacted, as `append` returned it.
            listed: Chain hash of that list with its matched context, or "" without one.

        Raises:
            SettingsError: The ID of the session or of an output is invalid.
            NotFoundError: The context refers to a message that the session does not have.
            ArchiveFullError: The archive's disk is full; nothing of the call was stored.
            ArchiveBusyError: Other processes used the session for too long.
            ArchiveDamagedError: An output with this ID has different content.
        """
        return await self.on_session(
            session_id,
            lambda store: store.commit(session_id, blobs, receipt, context, head, listed),
        )

    async def context(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[str, list[JsonObject]]:
        """Return the format and the messages of the session's current context.

        That is the newest context of `commit`, or else the transcript, with the messages that were
        appended after it.

        Args:
            session_id: ID of the session.
            after: Number of first messages to skip; if negative, return only the last messages.
            limit: Maximum number of messages.
        """
        return await self.on_session(
            session_id, lambda store: store.context(session_id, after, limit)
        )

    async def context_name(self, session_id: str) -> str:
        """Return the `history_hash` of all messages that `context` returns.

        No message is read. With redaction it is the hash of the list before redaction.
        """
        return await self.on_session(session_id, lambda store: store.context_name(session_id))

    async def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        """Return the messages with numbers from `start` to `stop`, inclusive, in order.

        Damaged messages are left out; `health` reports them.

        Args:
            session_id: ID of the session.
            start: First number.
            stop: Last number.
            head: Return only messages of this branch; None for messages of all branches.

        Raises:
            NotFoundError: The archive has no such session, or the session no such branch.
            ArchiveDamagedError: A part of the branch cannot be read.
        """
        return await self.on_session(
            session_id, lambda store: store.read_messages(session_id, start, stop, head)
        )

    async def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """Return the numbers from `start` to `stop` of messages that can no longer be read."""
        return await self.on_session(
            session_id, lambda store: store.damaged_messages(session_id, start, stop)
        )

    async def history(self, session_id: str, head: str) -> History:
        """Return the branch with a head, given at least 12 characters of the head."""
        return await self.on_session(session_id, lambda store: store.history(session_id, head))

    async def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """Return the newest branches, newest first, and the number of all branches."""
        return await self.on_session(session_id, lambda store: store.branches(session_id, limit))

    async def receipts(
        self,
        session_id: str,
        *,
        heads: Collection[str] | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """Return receipts of the session's compactions, oldest first.

        Args:
            session_id: ID of the session.
            heads: Return only receipts of compactions that the list with these `heads` of `append`
                went through; None for receipts of all branches.
            after: Number of first receipts to skip; if negative, return only the last receipts.
            limit: Maximum number of receipts.
        """
        receipts = await self.on_session(
            session_id, lambda store: store.receipts(session_id, heads, after, limit)
        )
        return [stored.receipt for stored in receipts]

    async def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """Return all receipts of the session with their times, oldest first."""
        return await self.on_session(
            session_id, lambda store: store.receipts(session_id, None, 0, None)
        )

    async def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """Return the lists before and after a compaction.

        Args:
            session_id: ID of the session.
            number: Number of its receipt, from 0 for the oldest, or from -1 for the newest.
        """
        return await self.on_session(
            session_id, lambda store: store.compacted_lists(session_id, number)
        )

    async def list_before(
        self, session_id: str, number: int | None, heads: Sequence[str]
    ) -> tuple[int, list[ContextEntry]]:
        """Return the list that a compaction replaced, followed by everything since.

        Args:
            session_id: ID of the session.
            number: Number of the compaction's receipt, from 0; None for the newest of the list.
            heads: Chain hashes of all histories with which the current list starts.

        Returns:
            The number of the receipt, and the messages.

        Raises:
            NotFoundError: The list did not go through that compaction.
            ArchiveDamagedError: A message cannot be read.
        """
        return await self.on_session(
            session_id, lambda store: store.list_before(session_id, number, heads)
        )

    async def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """Return at most `limit` outputs of the session, newest first."""
        return await self.on_session(session_id, lambda store: store.outputs(session_id, limit))

    async def output_info(self, output_id: str) -> OutputInfo:
        """Return the description of an output."""
        return await self._on_output(output_id, lambda output: output.info)

    async def read_output(
        self, output_id: str, *, start_byte: int = 0, limit_bytes: int | None = None
    ) -> OutputSlice:
        """Return bytes of an output, after their hash was checked."""
        return await self._on_output(
            output_id, lambda output: output.read_bytes(start_byte, limit_bytes)
        )

    async def read_output_lines(
        self, output_id: str, *, start_line: int = 1, line_count: int | None = None
    ) -> OutputSlice:
        """Return whole lines of an output; a negative `start_line` counts from the last line."""
        return await self._on_output(
            output_id, lambda output: output.read_lines(start_line, line_count)
        )

    async def _on_output(self, output_id: str, work: "Callable[[StoredOutput], T]") -> T:
        for session_id in await self.sessions_with(output_id):

            def on_store(store: "_Store", session_id: str = session_id) -> tuple[T] | None:
                output = store.output(session_id, output_id)
                return None if output is None else (work(output),)

            done = await self.on_session(session_id, on_store)
            if done is not None:
                return done[0]
        raise NotFoundError(
            f"The archive has no output {output_id[:80]!r}. Use an output ID from a placeholder in "
            "the context or from a search hit."
        )

    async def session_info(self, session_id: str) -> SessionInfo:
        """Return the description of a session."""
        return await self.on_session(session_id, lambda store: store.session_info(session_id))

    async def retain(self, session_id: str, *, retained: bool = True) -> None:
        """Protect a session and its descendants from pruning, or end the protection."""
        return await self.on_session(
            session_id, lambda store: store.retain(session_id, retained=retained)
        )

    async def records(self, session_id: str, *, after: int, limit: int) -> list[CopiedRecord]:
        """Return the session's records in order, without the first `after` records.

        At most `limit` records are returned, and fewer if they are large. The list is empty at the
        end, and if the session does not exist.
        """
        return await self.on_session(
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
        """Append records of another archive after the first `after` records of the session.

        Raises:
            SettingsError: The session has another number of records.
        """
        return await self.on_session(
            session_id,
            lambda store: store.add_records(session_id, records, after, parent_session_id),
        )

    async def search(self, query: Query) -> SearchPage:
        """Search messages and outputs, including everything that was appended before the call.

        Raises:
            QueryError: The query contains no word or takes too long, or a filter, the limit or the
                cursor is invalid.
            NotFoundError: The archive has no such session, or the session no such branch.
        """
        # Imported here, so that a server that only compacts starts faster.
        from context_compaction.archive.search.words import search

        return await search(self, query)

    @abstractmethod
    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """Return sessions, newest first, and the cursor of the next page or None.

        Args:
            limit: Maximum number of sessions.
            cursor: Cursor of the previous page.
            family_of: Return only this session and its descendants.

        Raises:
            QueryError: The limit is below 1, or the cursor is invalid.
        """

    @abstractmethod
    async def keep_token(self, token: AccessToken) -> None:
        """Store an access token; it is durable when this returns."""

    @abstractmethod
    async def token(self, token_id: str, *, tenant: str | None = None) -> AccessToken | None:
        """Return an access token, or None if it does not exist or was revoked.

        Args:
            token_id: ID of the token.
            tenant: Tenant of the token; None for this archive's tenant. A tenant that does not
                exist is not created.

        Raises:
            SettingsError: The name of the tenant is invalid.
        """

    @abstractmethod
    async def tokens(self) -> list[AccessToken]:
        """Return all access tokens, oldest first."""

    @abstractmethod
    async def revoke_token(self, token_id: str) -> bool:
        """Remove an access token durably; return whether it existed."""

    async def usage(self) -> Usage:
        """Return the size of each session."""
        return (await self.stored_sizes()).usage()

    async def prune(self, rules: PruneRules, *, dry_run: bool = False) -> PrunePlan:
        """Remove the sessions that `rules` choose and all unused large contents.

        With `dry_run` nothing is removed, and the plan is returned.
        """
        plan = (await self.stored_sizes()).plan(rules)
        if dry_run:
            return plan
        freed = await self.delete([session.session_id for session in plan.sessions])
        # Measured again, because sessions may have grown since the plan was made.
        remaining_bytes = (await self.usage()).total_bytes
        return replace(plan, freed_bytes=freed, remaining_bytes=remaining_bytes)

    @abstractmethod
    async def delete(self, session_ids: Sequence[str]) -> int:
        """Remove sessions with all their data; return the number of freed bytes.

        Content that several sessions share is removed with the last of them. Without IDs, only
        large contents that no session refers to are removed.

        Raises:
            NotFoundError: The archive has no such session; nothing was removed.
        """

    @abstractmethod
    async def health(self) -> Health:
        """Return sizes and problems of the archive."""

    @abstractmethod
    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "Archive":
        """The part of the same store that belongs to `tenant`; it ends with this archive.

        Raises:
            SettingsError: The name cannot be a tenant's.
            NotFoundError: It holds nothing of that tenant, and the call does not `opens` it; the
                text names those that are known.
        """
