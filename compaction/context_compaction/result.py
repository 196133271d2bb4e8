"""The result of a compaction, and its parts.

A host that holds its list applies `Splice`s instead of receiving all messages again. Unedited
messages are the host's own objects, so they are matched by identity, not by content.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from context_compaction.messages.model import Edit, JsonObject

Status: TypeAlias = Literal[
    "unchanged",
    "repaired",
    "compacted",
    "planned",
    "prepared",
    "needs_summary",
    "no_progress",
    "undone",
]


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Token counts of one compaction.

    Attributes:
        before: Estimate of the caller's list, overhead included; if it was compacted before, of
            the context that replaces it.
        before_upper: Upper estimate of the same list. "auto" acts if it exceeds `trigger`.
        after: Estimate of the returned list.
        upper: Upper estimate of the returned list. It fits if this is within `limit`.
        trigger: Token count at which compaction starts.
        target: Token count that a compaction aims for.
        limit: The target if the list had to shrink, otherwise the trigger.
        method: Name of the counting method, for example "o200k*1.50/claude".
    """

    before: int
    before_upper: int
    after: int
    upper: int
    trigger: int
    target: int
    limit: int
    method: str


@dataclass(frozen=True, slots=True)
class CompactionStats:
    """Figures for the hooks of a compaction.

    Attributes:
        tokens_before: Estimate of the caller's list.
        tokens_after: Estimate of the returned list; before the compaction, `tokens_before`.
        compacted_blocks: Number of blocks that a summary replaces or a layer clears.
        summary_block_count: Number of summaries in the returned list, earlier ones included.
    """

    tokens_before: int
    tokens_after: int
    compacted_blocks: int
    summary_block_count: int


@dataclass(frozen=True, slots=True)
class LayerReport:
    """The effect of one layer.

    Attributes:
        name: Name of the layer.
        tokens_before: Estimate of the messages before the layer.
        tokens_after: Estimate of the messages after the layer.
        edit_count: Number of edits.
    """

    name: str
    tokens_before: int
    tokens_after: int
    edit_count: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The place where a summary replaces history.

    Attributes:
        first_kept_index: Index in the caller's list of the first message after the summary.
        start_seq: Number of the first archived message that the summary replaces.
        stop_seq: Number of the last archived message that the summary replaces.
        is_split_turn: Whether the cut is inside a turn.
        pointer: `transcript://` range of the replaced messages.
    """

    first_kept_index: int
    start_seq: int
    stop_seq: int
    is_split_turn: bool
    pointer: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the context that cannot be made smaller.

    Attributes:
        description: Short description, for example "the user's newest request".
        index: Index in the caller's list, from 0; None if the part is not in that list.
        tokens: Token count.
    """

    description: str
    index: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class SummaryPrompt:
    """The prompt with which a host's model writes the summary.

    Attributes:
        system: Instructions.
        user: The transcript, as data.
        max_tokens: Token limit of the summary.
        continuation: Token to pass back with the summary.
    """

    system: str
    user: str
    max_tokens: int
    continuation: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A stored compaction of the first messages of a list, which a later call can apply.

    Attributes:
        prepared_id: Value for `CompactRequest.apply`, in the same session, from any process.
        message_count: Number of leading messages that it replaces; the list may grow after them.
        prefix_hash: Hash of those messages, which must be the same when it is applied.
        expires_seconds: Unix time at which it expires.
    """

    prepared_id: str
    message_count: int
    prefix_hash: str
    expires_seconds: int


@dataclass(frozen=True, slots=True)
class Recognised:
    """The start of a list that an earlier compaction already replaced.

    Attributes:
        message_count: Number of leading messages of the caller's list that are replaced.
        context_count: Number of messages that replace them.
    """

    message_count: int
    context_count: int


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of `compact`.

    Attributes:
        session_id: ID of the session in the archive.
        format: Format of `messages`.
        status: "unchanged": nothing had to be done. "repaired": the list was only made valid.
            "compacted": messages were cleared, stored or summarized, now or earlier (see
            `recognised`). "planned": this is what "auto" would do; nothing was written.
            "prepared": this is what applying will do. "needs_summary": write a summary with
            `summary_prompt`, and call again with `summary`. "no_progress": nothing useful could be
            saved; `warnings` has the reasons. "undone": a compaction was taken back, or
            messages were put back.
        messages: The list for the provider. Unedited messages are the caller's own objects.
        changed: Whether `messages` differs from the caller's list.
        fits: Whether `tokens.upper` is within `tokens.limit`, and the request within its bytes.
        tokens: Token counts.
        layers: The report of each layer, in order.
        edits: All changes, each with the pointer to its original.
        boundary: The place where a summary replaces history; None without a summary.
        restored: Paths of restored files.
        irreducible: If the list does not fit: its largest pieces, largest first.
        warnings: Warnings, for example about repairs, removed thinking or missing files.
        summary: The text of the summary; None if none was written.
        draft: With status "planned": the text that a model would write. Pass it, as it is or
            corrected, as `summary`. None if no model writes.
        summary_prompt: The prompt, with status "needs_summary".
        prepared: The stored compaction, with status "prepared".
        recognised: The start of the list that an earlier compaction already replaced, if any.
        receipt: The report of this compaction as JSON, as archived.
    """

    session_id: str
    format: str
    status: Status
    messages: list[JsonObject]
    changed: bool
    fits: bool
    tokens: TokenReport
    layers: tuple[LayerReport, ...] = ()
    edits: tuple[Edit, ...] = ()
    boundary: Boundary | None = None
    restored: tuple[str, ...] = ()
    irreducible: tuple[Piece, ...] = ()
    warnings: tuple[str, ...] = ()
    summary: str | None = None
    draft: str | None = None
    summary_prompt: SummaryPrompt | None = None
    prepared: Prepared | None = None
    recognised: Recognised | None = None
    receipt: JsonObject = field(default_factory=dict[str, Any])

    def with_given_list(self, status: Status, payload: Sequence[JsonObject]) -> "CompactResult":
        """Return the result with another status, and with the caller's own list."""
        receipt = {**self.receipt, "status": status}
        return replace(self, status=status, messages=[*payload], changed=False, receipt=receipt)


@dataclass(frozen=True, slots=True)
class Splice:
    """One replacement of consecutive messages.

    Attributes:
        start: Index in the original list, from 0; other splices do not shift it.
        delete_count: Number of messages that are removed from `start` on.
        insert: Messages that replace them.
    """

    start: int
    delete_count: int
    insert: tuple[JsonObject, ...]


def make_splices(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> tuple[Splice, ...]:
    """Return the splices that turn `before` into `after`, by rising `start`, without overlaps.

    A message is kept if `after` holds the same object as `before`, in the same order.
    """
    positions: dict[int, deque[int]] = {}
    for position, message in enumerate(before):
        positions.setdefault(id(message), deque()).append(position)
    splices: list[Splice] = []
    insert: list[JsonObject] = []
    next_before = 0
    for message in after:
        candidates = positions.get(id(message), deque())
        while candidates and candidates[0] < next_before:
            candidates.popleft()
        if not candidates:
            insert.append(message)
            continue
        position = candidates.popleft()
        if insert or position > next_before:
            splices.append(Splice(next_before, position - next_before, tuple(insert)))
            insert = []
        next_before = position + 1
    if insert or next_before < len(before):
        splices.append(Splice(next_before, len(before) - next_before, tuple(insert)))
    return tuple(splices)


def apply_splices(messages: Sequence[JsonObject], splices: Sequence[Splice]) -> list[JsonObject]:
    """Return a new list: `messages` with `splices` applied."""
    result: list[JsonObject] = []
    next_index = 0
    for splice in splices:
        result += messages[next_index : splice.start]
        result += splice.insert
        next_index = splice.start + splice.delete_count
    result += messages[next_index:]
    return result
