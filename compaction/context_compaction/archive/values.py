"""What an archive takes and returns: frozen data, whatever stores it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from context_compaction.errors import SettingsError
from context_compaction.messages.history_hash import content_hash
from context_compaction.messages.model import JsonObject

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
        standing: What a compaction left of the beginning of the list, unless the list itself
            begins with what it left.
        receipts: For each receipt of the session, oldest first, whether it is of a compaction that
            this very list went through, or what stands for its beginning.
        parent_session_id: The session that started this one.
        is_compacted_before: Whether a compaction left a context that replaces a part of
            `after`.
        revision: Grows with every message, receipt and context of the session, whoever writes it;
            -1 where the archive does not report it.
        revision_before: The same before this call wrote.
        fingerprints: Where counts were asked for: for each message its fingerprint ...
        counts: ... and its count, None where the session holds none.
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
    fingerprints: tuple[bytes, ...] = ()
    counts: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class StandingContext:
    """A context that stands for the first messages of a list.

    Attributes:
        message_count: How many messages of the list it stands for.
        entries: The messages that replace them. An untouched message is the host's own object.
        heads: For each entry, what names the history that ends with it.
        fingerprints: As those of an `AppendResult` ...
        counts: ... and its counts.
    """

    message_count: int
    entries: "tuple[ContextEntry, ...]"
    heads: tuple[str, ...]
    fingerprints: tuple[bytes, ...] = ()
    counts: tuple[Any, ...] = ()


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
