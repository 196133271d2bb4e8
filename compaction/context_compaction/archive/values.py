"""Values that archives take and return."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject
from context_compaction.messages.raw import content_hash

NO_SEQ = -1  # of an output, and of a message that this library wrote

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
    """

    seqs: tuple[int, ...]
    written: int
    head: str = ""
    heads: tuple[str, ...] = ()
    forks_at: int | None = None
    matched_context: "MatchedContext | None" = None
    receipts: tuple[bool, ...] = ()
    parent_session_id: str | None = None


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
        next_seq: Number of its next message. It is above `message_count` if messages were stored
            again, because their records were damaged.
        first_seconds: Time of its first record in Unix seconds.
        last_seconds: Time of its last record in Unix seconds.
        title: Title from the host, or the start of the first user message.
        text_chars: Length of its messages in characters. Only `Archive.sessions` sets it.
        saved_tokens: Tokens that its compactions removed from the context.
        host: Name of the host that ran it; "" if unknown.
        folder: Working folder of the host; "" if unknown.
    """

    session_id: str
    parent_session_id: str | None
    format: str
    message_count: int
    next_seq: int
    first_seconds: float
    last_seconds: float
    title: str = ""
    text_chars: int = field(default=0, compare=False)
    saved_tokens: int = 0
    host: str = ""
    folder: str = ""


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
        title: Title from the host, or the start of the first user message.
        own_bytes: Size of large contents that no other session has, in bytes.
        shared_bytes: Size of large contents that other sessions have too, in bytes.
    """

    session_id: str
    parent_session_id: str | None
    is_retained: bool
    message_count: int
    last_seconds: float
    log_bytes: int
    title: str = ""
    own_bytes: int = 0
    shared_bytes: int = 0


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
