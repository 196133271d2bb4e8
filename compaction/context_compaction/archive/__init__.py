"""The archive's protocol: append-only transcripts, outputs, and how they are found again.

Two implementations share one conformance suite. Everything here is data and types; `opening.py`
opens the one that a place names. The line of a compaction needs no more of it than `Store`.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from context_compaction.errors import SettingsError
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import JsonObject, Message
from context_compaction.redaction import RedactionMode

__all__ = [
    "DEFAULT_TENANT",
    "NO_SEQ",
    "AppendResult",
    "Archive",
    "ArchivedMessage",
    "CompactedLists",
    "ContextEntry",
    "Health",
    "History",
    "Hit",
    "Maintenance",
    "OutputInfo",
    "OutputSlice",
    "Outputs",
    "PrunePlan",
    "PruneRules",
    "Query",
    "Search",
    "SearchPage",
    "SessionInfo",
    "SessionUsage",
    "StandingContext",
    "Store",
    "StoredReceipt",
    "Transcripts",
    "Usage",
    "check_tenant",
    "part_of",
]

NO_SEQ = -1  # of what has no number in a transcript: a message of our own making, an output
T = TypeVar("T")

DEFAULT_TENANT = "default"
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


def part_of(values: Sequence[T], after: int, limit: int | None) -> Sequence[T]:
    """What `after` and `limit` leave of a list: see `Transcripts.receipts`."""
    return values[after:] if limit is None else values[after:][:limit]


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
        forks_at: The first message, by position, before which the session goes on otherwise: there
            the list is a branch of its own. None where it goes on from where a history ended.
        standing: What a compaction left of the beginning of the list, unless the list itself
            begins with what it left.
        receipts: For each receipt of the session, oldest first, whether it is of a compaction that
            this very list went through, or what stands for its beginning.
        parent_session_id: The session that started this one.
        is_compacted_before: Whether a compaction left something for a part of `after`, in whose
            place that stands.
        revision: Grows with every message, receipt and context of the session, whoever writes it;
            -1 where the archive does not tell.
        revision_before: The same before this call wrote.
    """

    seqs: tuple[int, ...]
    written: int
    head: str = ""
    heads: tuple[str, ...] = ()
    forks_at: int | None = None
    standing: "StandingContext | None" = None
    receipts: tuple[bool, ...] = ()
    parent_session_id: str | None = None
    is_compacted_before: bool = False
    revision: int = -1
    revision_before: int = -1


@dataclass(frozen=True, slots=True)
class StandingContext:
    """A context that stands for the first messages of a list.

    Attributes:
        message_count: How many messages of the list it stands for.
        entries: What stands in their place. An untouched message is the host's own object.
        heads: For each entry, what names the history that ends with it.
    """

    message_count: int
    entries: "tuple[ContextEntry, ...]"
    heads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One message of a compacted context: its archived number, or -1 and the raw message itself.

    A kept message that was edited (a result cleared, say), now or by an earlier compaction, is
    stored in its own words, with -1; `source_seq` then names the archived original. A message of
    ours that took the place of others says in `stands_for` which history it was.
    """

    seq: int
    raw: JsonObject
    source_seq: int = NO_SEQ
    stands_for: str = ""


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt and when it was written, in Unix time."""

    timestamp_seconds: float
    receipt: JsonObject


@dataclass(frozen=True, slots=True)
class CompactedLists:
    """The list that a compaction was given, and the one that it left; None where it left none.

    A message that the archive holds under its number stands by that alone, and its `raw` is empty:
    so this is small, however long the lists are.
    """

    before: tuple[ContextEntry, ...]
    after: tuple[ContextEntry, ...] | None


@dataclass(frozen=True, slots=True)
class History:
    """One path through a session's transcript, from a beginning to a message.

    Attributes:
        head: Names it in pointers.
        seqs: The numbers of its messages, oldest first. Where a summary stands in it, these are
            the messages that it stands for.
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
    """Which sessions must go. A retained session stays, and so do the sessions that it started.

    Attributes:
        before_seconds: Everything that was last written to before goes, by our own clock: what a
            message says of its time may be mistaken.
        max_bytes: Then the oldest go until logs and large contents together take no more.
    """

    before_seconds: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a call of `prune` removed, or would remove.

    Attributes:
        sessions: The sessions that go, longest unused first.
        session_count: How many there were.
        freed_bytes: What they took, with whatever no session named.
        left_bytes: What remains.
    """

    sessions: tuple[SessionUsage, ...]
    session_count: int
    freed_bytes: int
    left_bytes: int


class Transcripts(Protocol):
    """What sessions hold: their messages, and what compactions made of them."""

    @property
    def redaction(self) -> RedactionMode:
        """What becomes of secrets: "on" takes them out of all that is written from now on."""
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
    ) -> AppendResult:
        """Keep what is new of `messages`; durable (survives power loss) when this returns.

        The list is matched with what the session holds, by a chain of hashes: its longest prefix
        that the transcript contains, or in a context stored by `commit`, is not written again,
        nor a longer part that another of its histories contains (the host slides a window,
        or changed a message before it). The rest is written; an edited or forked history thereby
        becomes a branch. Each
        message is rendered by its `source` (the host's object). With `after`, the `head` of an
        earlier result, the messages go on from there, and what is before it is not handed over
        again. With `dry_run` nothing is written and the numbers are those that it would get; nor
        where the list shares fewer than `least_shared` messages with the session (`forks_at`).
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

        `head` names the history that was compacted, as `append` gave it, and `listed` the same
        with what stood for its beginning.
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
        """The history that `head` names, by 12 characters or more of what `append` gave."""
        ...

    async def branches(self, session_id: str, *, limit: int = 5) -> tuple[list[History], int]:
        """The histories that nothing goes on from, newest first, and how many there are."""
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

        With `heads`, what `append` named the histories of a list, only those that the list went
        through: never of another branch. Without the first `after` of them, or with the last ones
        alone where that is negative; at most `limit`.
        """
        ...

    async def stored_receipts(self, session_id: str) -> list[StoredReceipt]:
        """All receipts of the session with their times, in the order of `receipts`."""
        ...

    async def compacted_lists(self, session_id: str, number: int) -> CompactedLists:
        """What the compaction came to whose receipt is the one at `number`, from 0, the oldest."""
        ...


class Outputs(Protocol):
    """Large results and other contents, kept apart from the messages that named them."""

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


class Store(Transcripts, Outputs, Protocol):
    """What the line of a compaction and a session's state need of an archive."""


class Search(Protocol):
    """How sessions and what was said in them are found again."""

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


class Maintenance(Protocol):
    """What an archive takes, for how long, and in which state it is."""

    async def retain(self, session_id: str, *, retained: bool = True) -> None:
        """Keep a session, and those that it started, from retention; or no longer."""
        ...

    async def usage(self) -> Usage:
        """How much room each session takes."""
        ...

    async def prune(self, rules: PruneRules, *, dry_run: bool = False) -> PrunePlan:
        """Remove the sessions that `rules` choose, and what no session names; or say which."""
        ...

    async def delete(self, session_ids: Sequence[str]) -> int:
        """Remove sessions with all their bytes; how many bytes that freed.

        Content that another session shares goes with the last one. Nothing of the sessions can be
        found or read afterwards. Without ids, only what no session names is removed.
        """
        ...

    async def health(self) -> Health:
        """Figures and problems, for `doctor`."""
        ...


class Archive(Store, Search, Maintenance, Protocol):
    """Append-only store of one tenant's transcripts and outputs. Methods raise `ArchiveError`.

    Cancelling a call leaves all of it or nothing of it.
    """

    @property
    def tenant(self) -> str:
        """Whose sessions these are; nothing of another tenant's can be read or written here."""
        ...

    async def for_tenant(self, tenant: str) -> "Archive":
        """The part of the same store that belongs to `tenant`; it ends with this archive.

        Raises:
            SettingsError: The name cannot be a tenant's.
        """
        ...
