"""Archives: append-only transcripts, outputs and search, and the data that they take and return.

`Archive` holds what is the same wherever records are stored: a folder (`local/`) or a database
(`postgres/`). `opening.py` opens the one that a place names.
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
    from context_compaction.archive.retention import Stored
    from context_compaction.archive.search.filters import Check, RowsOf
    from context_compaction.archive.transcripts import TranscriptStore

    _Store: TypeAlias = TranscriptStore[Any]

NO_SEQ = -1  # of what has no number in a transcript: a message of our own making, an output
T = TypeVar("T")

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_tenant(tenant: str) -> str:
    """`tenant`, if it can name one.

    Raises:
        SettingsError: It cannot.
    """
    if not _TENANT.fullmatch(tenant):
        raise SettingsError(
            f"{tenant[:80]!r} cannot name a tenant. Give 1 to 64 letters, digits, dots, dashes "
            "and underscores, the first one a letter or digit."
        )
    return tenant


def shown_address(location: str) -> str:
    """An address without what may be secret in it: name, password, settings."""
    scheme, _, rest = location.partition("://")
    place, _, settings = rest.partition("?")
    # Where a password was not escaped, nobody can tell what is which.
    shown = "…" if "@" in settings else place.rpartition("@")[2]
    return f"{scheme}://{shown}"


def part_of(values: Sequence[T], after: int, limit: int | None) -> Sequence[T]:
    """What `after` and `limit` leave of a list: see `Transcripts.receipts`."""
    return values[after:] if limit is None else values[after:][:limit]


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The record of an access token to one tenant's archive; not the token itself.

    Attributes:
        token_id: Names it; no secret.
        user: Its owner, for the audit log.
        scopes: What it allows.
        secret_hash: SHA-256 of its secret, in hex.
        created_seconds: Unix time.
        expires_seconds: Unix time; None for never.
    """

    token_id: str
    user: str
    scopes: tuple[str, ...]
    secret_hash: str
    created_seconds: float
    expires_seconds: float | None = None

    @classmethod
    def from_json(cls, fields: JsonObject) -> "AccessToken":
        """Return the token whose fields were stored as JSON."""
        fields["scopes"] = tuple(fields["scopes"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a list of messages belongs in its transcript.

    Attributes:
        seqs: One sequence number for each message given, in order. A message that the session
            already held (same content after the same history) keeps its number. A message of a
            stored context has its original's number if a layer edited it, and -1 if it is of
            our own making (a summary, restored files).
        written: How many messages were new and are durable now.
        head: Names the history that ends with the last message, for the next call's `after`.
        heads: For each message, what names the history that ends with it.
        forks_at: The first message, by position, before which the session continues otherwise:
            there the list is a branch of its own. None where it continues from a history's end.
        matched_context: The stored compacted context that replaces the start of the list. None if
            the list already starts with that context or if none exists.
        receipts: For each receipt of the session, oldest first, whether it is of a compaction that
            this very list went through, or what stands for its beginning.
        parent_session_id: The session that started this one.
        is_compacted_before: Whether a compaction left a context that replaces a part of
            `after`.
        revision: Grows with every message, receipt and context of the session, whoever writes it;
            -1 where the archive does not report it.
        revision_before: The same before this call wrote.
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
    """A context that stands for the first messages of a list.

    Attributes:
        message_count: How many messages of the list it stands for.
        entries: The messages that replace them. An untouched message is the host's own object.
        heads: For each entry, what names the history that ends with it.
        name: Names the whole context, also where its end does not stand here.
    """

    message_count: int
    entries: "tuple[ContextEntry, ...]"
    heads: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One message of a compacted context: its archived number, or -1 and the raw message itself.

    A kept message that was edited (a result cleared, say), now or by an earlier compaction, is
    stored in its own words, with -1; `source_seq` then names the archived original. A message of
    ours that replaced others names their history in `stands_for`. `known_hash` is the content hash
    of `raw`, where it was made before.
    """

    seq: int
    raw: JsonObject
    source_seq: int = NO_SEQ
    stands_for: str = ""
    known_hash: str = field(default="", compare=False)

    @property
    def content(self) -> str:
        """The content hash of `raw`."""
        return self.known_hash or content_hash(self.raw)

    @property
    def original_seq(self) -> int:
        """The number of the archived message that it is, or was before it was edited; else -1."""
        return self.seq if self.seq >= 0 else self.source_seq


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt and when it was written, in Unix time."""

    timestamp_seconds: float
    receipt: JsonObject


@dataclass(frozen=True, slots=True)
class CompactedLists:
    """The list that a compaction was given, and the one that it left; None where it left none.

    A message that the archive holds under its number is given by that alone, and its `raw` is
    empty: so this is small, however long the lists are.
    """

    before: tuple[ContextEntry, ...]
    after: tuple[ContextEntry, ...] | None


@dataclass(frozen=True, slots=True)
class History:
    """One path through a session's transcript, from a beginning to a message.

    Attributes:
        head: Names it in pointers.
        seqs: The numbers of its messages, oldest first. Where it contains a summary, these
            are the messages that the summary replaces.
        output_ids: What its compactions kept.
    """

    head: str
    seqs: tuple[int, ...]
    output_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """One message as the host wrote it, with its place in the transcript."""

    session_id: str
    seq: int
    format: str
    raw: JsonObject
    timestamp_seconds: float


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """What is known of a stored output without reading it."""

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
    """A part of an output, exact.

    Attributes:
        info: The whole output's figures.
        data: The bytes of the part.
        start_byte: Where it begins in the output.
        start_line: Number of its first line, from 1.
    """

    info: OutputInfo
    data: bytes
    start_byte: int
    start_line: int


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session of the archive."""

    session_id: str
    parent_session_id: str | None
    format: str
    message_count: int
    first_seconds: float
    last_seconds: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A search. Empty filters mean everything; `cursor` continues an earlier page.

    Attributes:
        session_id: This session and those that descend from it.
        head: This history of the session alone; needs `session_id`.
        path: Messages that name this path, or its end, and the results of calls that did.
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
    """One place where a query was found.

    Attributes:
        pointer: What to read: `transcript://{session}/messages/{seq}-{seq}` or an output id.
        kind: Whether it is in a message or in a stored output.
        head: Of a message, names the history that ends with it, and so its branch.
        snippet: The passage around the match, verbatim: whole paragraphs, lines or sentences, at
            most 900 characters.
        line: For an output, the line of the match, from 1.
        offset_chars: Where the match begins in the message's text or in the output.
        size_chars: Of a message, its length.
        snippet_chars_before: How much of the snippet is before the match.
        repeats: How many rows of its session, farther down the ranking, show the same passage and
            are left out.
        next: The message that follows in the same history, where this one ends with a question;
            not for a pattern, whose matches are wanted by themselves.
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
    """Hits, best or newest first. `total_is_exact` is False when counting stopped early.

    A pattern's page may hold no hit and yet a cursor: the search stopped at its limits, and goes on
    from there. `missing_terms` are the words asked for that no row contains, `elsewhere` those that
    are only where the filters do not allow. `has_any` means that no row has all the words, so that
    those with any of them are listed; only where newest come first, since ranking weighs that.

    What our own tools were asked and answered is found only by the name of the tool.
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
    """What `doctor` prints of an archive."""

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
    """How much room one session takes.

    Attributes:
        session_id: The session.
        parent_session_id: The session that started it.
        is_retained: Whether retention must leave it.
        message_count: Its messages.
        last_seconds: When it was last written to, in Unix time.
        log_bytes: Its transcript, receipts and small outputs.
        own_bytes: Its large contents that no other session has.
        shared_bytes: Those that others have too.
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
    """How much room an archive takes, without its search index, which can be made anew.

    Attributes:
        sessions: Longest unused first.
        total_bytes: All logs and large contents; what sessions share counts once.
        unnamed_bytes: Large contents that no session names any more.
    """

    sessions: tuple[SessionUsage, ...]
    total_bytes: int
    unnamed_bytes: int


@dataclass(frozen=True, slots=True)
class PruneRules:
    """Which sessions to remove. A retained session stays, and so do the sessions that it started.

    Attributes:
        before_seconds: Sessions last written to before this are removed, by our own clock: a
            message's own time may be mistaken.
        max_bytes: Then the oldest are removed until logs and large contents together take no more.
    """

    before_seconds: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a call of `prune` removed, or would remove.

    Attributes:
        sessions: The sessions to remove, longest unused first.
        session_count: How many there were.
        freed_bytes: What they took, with whatever no session named.
        left_bytes: What remains.
    """

    sessions: tuple[SessionUsage, ...]
    session_count: int
    freed_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True)
class CopiedRecord:
    """One record of a session, as another archive can append it.

    Attributes:
        head: Its head (see `records.py`), without its number.
        content: Its body with all its large strings; of an output the bytes themselves.
    """

    head: JsonObject
    content: Any


class Archive(ABC):
    """Append-only store of one tenant's transcripts and outputs. Methods raise `ArchiveError`.

    Cancelling a call leaves all of it or nothing of it.

    Attributes:
        tenant: The owner of these sessions; nothing of another tenant's can be read or written.
        redaction: How secrets are treated: "on" removes them from all that is written from now on.
    """

    tenant: str
    redaction: RedactionMode

    @abstractmethod
    async def on_session(self, session_id: str, work: "Callable[[_Store], T]") -> T:
        """Return what `work` returns of a store, after this session's other calls."""

    @abstractmethod
    async def sessions_with(self, output_id: str) -> Sequence[str]:
        """Return the ids of sessions that may hold an output."""

    @abstractmethod
    async def stored(self) -> "Stored":
        """Return the sizes of all sessions and large contents."""

    @abstractmethod
    async def on_rows(
        self, work: "Callable[[RowsOf, Check], T]", limit: "Callable[[], Check]"
    ) -> T:
        """Return what `work` returns in a thread, given what returns the rows of a filter.

        `limit` begins its time, when all is indexed. It returns what is called again and again
        then, and may raise; that is the second argument of `work`.
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

        Raises:
            SettingsError: An id or the format cannot be used, or a message has no source.
            InvalidMessageError: A message cannot be written as JSON.
            NotFoundError: The session does not hold the history that `after` names.
            ArchiveFullError: The archive's disk is full; nothing of the call was kept.
            ArchiveBusyError: Others held the session for too long.
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
        """Keep outputs, a receipt, and the context that a compaction left; durable on return.

        `head` names the history that was compacted, as `append` returned it, and `listed` the
        same with what replaced its beginning.

        Raises:
            SettingsError: The session's id, or an output's id, cannot be used.
            NotFoundError: The context names a message that the session does not hold.
            ArchiveFullError: The archive's disk is full; nothing of the call was kept.
            ArchiveBusyError: Others held the session for too long.
            ArchiveDamagedError: An output's id already stands for other content.
        """
        return await self.on_session(
            session_id,
            lambda store: store.commit(session_id, blobs, receipt, context, head, listed),
        )

    async def context(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> tuple[str, list[JsonObject]]:
        """The format and the raw messages that the session's context now contains.

        That is the newest context stored by `commit`, or else the transcript, with everything
        appended after it. Without the first `after` of its messages, or with the last ones alone
        where that is negative; at most `limit`.
        """
        return await self.on_session(
            session_id, lambda store: store.context(session_id, after, limit)
        )

    async def context_name(self, session_id: str) -> str:
        """The hash of all messages that `context` returns, as `history_hash` makes it.

        From what is known of them: none is read. Where secrets are removed from what is written, it
        names the list that came in.
        """
        return await self.on_session(session_id, lambda store: store.context_name(session_id))

    async def read_messages(
        self, session_id: str, start: int, stop: int, *, head: str | None = None
    ) -> list[ArchivedMessage]:
        """Messages whose numbers lie in [start, stop], both ends included, in order.

        With `head`, only those of the history that it names: a session holds branches, and a range
        of numbers alone takes in all of them. A damaged message is left out; `health` names it.
        """
        return await self.on_session(
            session_id, lambda store: store.read_messages(session_id, start, stop, head)
        )

    async def damaged_messages(self, session_id: str, start: int, stop: int) -> list[int]:
        """The numbers in [start, stop] whose messages the log held, and can no longer be read."""
        return await self.on_session(
            session_id, lambda store: store.damaged_messages(session_id, start, stop)
        )

    async def history(self, session_id: str, head: str) -> History:
        """The history that `head` names, by 12 characters or more of what `append` returned."""
        return await self.on_session(session_id, lambda store: store.history(session_id, head))

    async def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """The histories that nothing continues, newest first, and how many there are."""
        return await self.on_session(session_id, lambda store: store.branches(session_id, limit))

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
        found = await self.on_session(
            session_id, lambda store: store.receipts(session_id, heads, after, limit)
        )
        return [stored.receipt for stored in found]

    async def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """All receipts of the session with their times, in the order of `receipts`."""
        return await self.on_session(
            session_id, lambda store: store.receipts(session_id, None, 0, None)
        )

    async def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """The lists before and after a compaction.

        `number` is that of its receipt: from 0, the oldest, or back from -1, the newest.
        """
        return await self.on_session(
            session_id, lambda store: store.compacted_lists(session_id, number)
        )

    async def outputs(self, session_id: str, *, limit: int | None = None) -> list[OutputInfo]:
        """The outputs that the session keeps, newest first; at most `limit`."""
        return await self.on_session(session_id, lambda store: store.outputs(session_id, limit))

    async def output_info(self, output_id: str) -> OutputInfo:
        """The figures of one output."""
        return await self._on_output(output_id, lambda output: output.info)

    async def read_output(
        self, output_id: str, *, start_byte: int = 0, limit_bytes: int | None = None
    ) -> OutputSlice:
        """Bytes of an output, verified against its hash."""
        return await self._on_output(
            output_id, lambda output: output.read_bytes(start_byte, limit_bytes)
        )

    async def read_output_lines(
        self, output_id: str, *, start_line: int = 1, line_count: int | None = None
    ) -> OutputSlice:
        """Whole lines of an output; a negative `start_line` counts from the end (-1 the last)."""
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
            f"The archive holds no output {output_id!r}. Output ids stand in the markers that "
            "compaction leaves, and in the hits of a search."
        )

    async def session_info(self, session_id: str) -> SessionInfo:
        """One session."""
        return await self.on_session(session_id, lambda store: store.session_info(session_id))

    async def retain(self, session_id: str, *, retained: bool = True) -> None:
        """Exempt a session, and those that it started, from retention; or end that."""
        return await self.on_session(
            session_id, lambda store: store.retain(session_id, retained=retained)
        )

    async def records(self, session_id: str, *, after: int, limit: int) -> list[CopiedRecord]:
        """The session's records in the order of their numbers, without the first `after`.

        At most `limit`, and fewer where they are large; none at the end, or without such a session.
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
        """Append records of another archive to the `after` that the session holds already.

        Raises:
            SettingsError: The session holds another number of records.
        """
        return await self.on_session(
            session_id,
            lambda store: store.add_records(session_id, records, after, parent_session_id),
        )

    async def search(self, query: Query) -> SearchPage:
        """Find text in messages and outputs; sees everything appended before the call.

        Raises what `search.words.search` raises.
        """
        # A server that only compacts starts without it.
        from context_compaction.archive.search.words import search

        return await search(self, query)

    @abstractmethod
    async def sessions(
        self, *, limit: int = 50, cursor: str | None = None, family_of: str | None = None
    ) -> tuple[list[SessionInfo], str | None]:
        """Sessions, newest first, and the cursor of the next page.

        With `family_of` only that session and those that descend from it.

        Raises:
            QueryError: The limit is below 1, or the cursor is none of ours.
        """

    @abstractmethod
    async def keep_token(self, token: AccessToken) -> None:
        """Keep a token, durably."""

    @abstractmethod
    async def token(self, token_id: str, *, tenant: str | None = None) -> AccessToken | None:
        """One token; None where there is none of that id, or it was revoked.

        Args:
            token_id: Its id.
            tenant: Whose, where that is another; this leaves nothing of one that nobody knows.

        Raises:
            SettingsError: The name cannot be a tenant's.
        """

    @abstractmethod
    async def tokens(self) -> list[AccessToken]:
        """All tokens, the oldest first."""

    @abstractmethod
    async def revoke_token(self, token_id: str) -> bool:
        """Remove a token, durably; return whether it existed."""

    async def usage(self) -> Usage:
        """How much room each session takes."""
        return (await self.stored()).usage()

    async def prune(self, rules: PruneRules, *, dry_run: bool = False) -> PrunePlan:
        """Remove the sessions that `rules` choose, and what no session names; or return which.

        Raises what `delete` raises.
        """
        plan = (await self.stored()).plan(rules)
        if dry_run:
            return plan
        freed = await self.delete([session.session_id for session in plan.sessions])
        # Measured again, because sessions may have grown since the plan was made.
        left = (await self.usage()).total_bytes
        return replace(plan, freed_bytes=freed, left_bytes=left)

    @abstractmethod
    async def delete(self, session_ids: Sequence[str]) -> int:
        """Remove sessions with all their bytes; return the bytes freed.

        Content that another session shares is removed with the last one. Nothing of the sessions
        can be found or read afterwards. Without ids, only what no session names is removed.
        """

    @abstractmethod
    async def health(self) -> Health:
        """Figures and problems, for `doctor`."""

    @abstractmethod
    async def for_tenant(self, tenant: str, *, opens: bool = True) -> "Archive":
        """The part of the same store that belongs to `tenant`; it ends with this archive.

        Raises:
            SettingsError: The name cannot be a tenant's.
            NotFoundError: It holds nothing of that tenant, and the call does not `opens` it; the
                text names those that are known.
        """
