"""What a compaction returns: the result and its parts."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from context_compaction.messages.edits import Edit
from context_compaction.messages.model import JsonObject

Status: TypeAlias = Literal[
    "unchanged", "repaired", "compacted", "planned", "prepared", "needs_summary", "no_progress"
]


@dataclass(frozen=True, slots=True)
class TokenReport:
    """The figures of one compaction, in tokens.

    Attributes:
        before: Estimate of the list that came in, overhead included; if it was compacted before,
            of what replaces it now.
        before_upper: Upper estimate of the same; above `trigger` "auto" acts.
        after: Estimate of the list returned.
        upper: Upper estimate of the list returned; within `limit` it fits.
        trigger: The count at which compaction starts.
        target: The count that it aims for.
        limit: The target where the list had to shrink, else the trigger.
        method: How the estimates were made, as "o200k*1.50/claude".
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
    """What the hooks of a compaction receive.

    Attributes:
        tokens_before: Estimate of the list that came in.
        tokens_after: Estimate of the list returned; before the compaction, `tokens_before`.
        compacted_blocks: Blocks that a summary replaces, or that a layer cleared.
        summary_block_count: Summaries in the list returned, earlier ones included.
    """

    tokens_before: int
    tokens_after: int
    compacted_blocks: int
    summary_block_count: int


@dataclass(frozen=True, slots=True)
class LayerReport:
    """The effect of one layer.

    Attributes:
        name: Of the layer.
        tokens_before: Estimate of the messages before it.
        tokens_after: Estimate of the messages after it.
        edit_count: How many edits it made.
    """

    name: str
    tokens_before: int
    tokens_after: int
    edit_count: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a summary replaces history.

    Attributes:
        first_kept_index: The first message of the input that follows the summary.
        start_seq: First archived message that the summary replaces ...
        stop_seq: ... and the last one.
        is_split_turn: Whether the cut lies inside a turn.
        pointer: `transcript://` range of what was replaced.
    """

    first_kept_index: int
    start_seq: int
    stop_seq: int
    is_split_turn: bool
    pointer: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the context that could not be made smaller.

    Attributes:
        description: What it is, as "the newest request of the user".
        index: Position in the list that came in, from 0; None for what is not in the list.
        tokens: Its size.
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
        max_tokens: The most that the summary may count.
        continuation: To be passed back with the summary, within the hour.
    """

    system: str
    user: str
    max_tokens: int
    continuation: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compaction of the first messages of a list, kept in the archive until it is applied.

    Attributes:
        prepared_id: For `CompactRequest.apply`, in the same session, from any process.
        message_count: So many first messages it will replace; the list may grow behind them.
        prefix_hash: Names those messages, which must then be the same.
        expires_seconds: Until when it can be applied, in Unix time.
    """

    prepared_id: str
    message_count: int
    prefix_hash: str
    expires_seconds: int


@dataclass(frozen=True, slots=True)
class Recognised:
    """How many first messages of a list an earlier compaction's result replaces again.

    Attributes:
        message_count: So many first messages of the list that came in ...
        context_count: ... are replaced by so many.
    """

    message_count: int
    context_count: int


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The answer of `compact`.

    Attributes:
        session_id: The session in the archive.
        format: The format of `messages`.
        status: "unchanged" (nothing had to be done), "repaired" (the list was made valid and
            nothing else), "compacted" (something was cleared, stored or summarised, now or before;
            see `recognised`), "planned" (nothing was written: what "auto" would do),
            "prepared" (what applying will do), "needs_summary" (write it by
            `summary_prompt` and call again with `summary`), or "no_progress" (nothing useful could
            be saved; `warnings` say why). The list differs from what came in where this is
            "repaired" or "compacted", after repairs with "no_progress", and where its beginning
            was `recognised`.
        messages: The list for the provider; untouched messages are the host's own objects.
        changed: Whether `messages` differs from what came in.
        fits: Whether `tokens.upper` is within `tokens.limit`, and the request within its bytes.
        tokens: The figures.
        layers: The report of each layer, in order.
        edits: Every change, with the pointer to the original.
        boundary: Where a summary replaces history, if one does.
        restored: Paths of files whose text was put back.
        irreducible: When it does not fit: the pieces that are left, largest first.
        warnings: Warnings for the caller: repairs, stripped thinking, missing files.
        summary: The summary's text, if one was made.
        summary_prompt: For "needs_summary".
        prepared: For "prepared".
        recognised: Where the list begins with one that was compacted before.
        receipt: All of this as JSON, as the archive holds it.
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
    summary_prompt: SummaryPrompt | None = None
    prepared: Prepared | None = None
    recognised: Recognised | None = None
    receipt: JsonObject = field(default_factory=dict[str, Any])
