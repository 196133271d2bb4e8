"""What a compaction is asked and what it answers: the values at the pipeline's two ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from context_compaction.edits import Edit
from context_compaction.messages import JsonObject

Mode: TypeAlias = Literal["auto", "plan", "micro", "full", "reactive", "record"]
Status: TypeAlias = Literal[
    "unchanged", "repaired", "compacted", "planned", "prepared", "needs_summary", "no_progress"
]
SummarizerName: TypeAlias = Literal["auto", "extractive", "host"]


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """How to compact. Every field has the default that a newcomer wants.

    Attributes:
        mode: "auto" does what the budget asks for; "micro" clears now, without replacing history;
            "full" summarises now; "reactive" is for a request that the provider refused as too
            long; "record" archives and counts; "plan" says what "auto" would do, writing nothing.
        format: Name of the wire format; None finds it from the shape.
        session_id: The conversation's name in the archive; None derives one from its beginning.
        parent_session_id: The session that started this one, for a sub-agent.
        model: Name of the model, for its window and tokenizer.
        context_window: Tokens; wins over what the model's name says.
        max_output_tokens: Tokens that the answer may take.
        target_tokens: Bring the context down to this instead of the policy's target. With a
            `context_window` that still happens at the window's trigger; without one, at once.
        overhead_tokens: What stands in the request besides the messages, when `system` and
            `tools` are not given.
        system: The system prompt, as a string or in the provider's form; counted, not edited. It
            is sent with every call, so no summary repeats it; system messages inside the list stay
            where they are. What the user says against one of its rules is carried, and marked.
        tools: The tool definitions; counted, not edited.
        usage: The provider's last usage report, the anchor of the count ...
        usage_message_index: ... and the message of the list it was reported for.
        policy: Name of the policy.
        settings: Constants of the policy to change, by name.
        pinned: Texts that every summary carries verbatim, from this call on.
        pinned_messages: Places of messages in this list whose text is carried from the moment they
            leave.
        snip_messages: Places of messages in this list that are left out now, whatever the budget
            asks for; a line with a pointer stands for each gap.
        unpin: Texts, or ids from a receipt, that are no longer carried, from this call on.
        instructions: What a summary should dwell on.
        summarizer: Who writes the summary: "auto" takes the model that `compact` was given, if
            any; "extractive" takes none; "host" asks the caller.
        summary: The summary's prose, written by the host.
        continuation: What `SummaryPrompt` had: ties `summary` to the messages that it stands for.
        idle_seconds: How long the conversation rested before this call.
        prepare: Keep the outcome in the archive instead of handing it back; see `Prepared`.
        apply: A `prepared_id`: replace the messages that it was prepared for, and nothing else.
    """

    mode: Mode = "auto"
    format: str | None = None
    session_id: str | None = None
    parent_session_id: str | None = None
    model: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    target_tokens: int | None = None
    overhead_tokens: int = 0
    system: Any = None
    tools: Any = None
    usage: JsonObject | None = None
    usage_message_index: int | None = None
    policy: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pinned: tuple[str, ...] = ()
    pinned_messages: tuple[int, ...] = ()
    snip_messages: tuple[int, ...] = ()
    unpin: tuple[str, ...] = ()
    instructions: str = ""
    summarizer: SummarizerName = "auto"
    summary: str | None = None
    continuation: str | None = None
    idle_seconds: float = 0.0
    prepare: bool = False
    apply: str | None = None


@dataclass(frozen=True, slots=True)
class TokenReport:
    """The figures of one compaction, in tokens.

    Attributes:
        before: Estimate of what came in, overhead included; of a list that was compacted before,
            of what stands for it now.
        before_upper: Upper estimate of the same; above `trigger` "auto" acts.
        after: Estimate of what goes out.
        upper: Upper estimate of what goes out; within `limit` it fits.
        trigger: The count at which compaction starts.
        target: The count that it aims for.
        limit: The target where something had to be brought down, else the trigger.
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
    """What the hooks of a compaction are told.

    Attributes:
        tokens_before: Estimate of what came in.
        tokens_after: Estimate of what goes out; before the compaction, the same as what came in.
        compacted_blocks: Blocks that a summary stands for, or that a layer cleared.
        summary_block_count: Summaries in the list that goes out, those that were there included.
    """

    tokens_before: int
    tokens_after: int
    compacted_blocks: int
    summary_block_count: int


@dataclass(frozen=True, slots=True)
class LayerReport:
    """What one layer did.

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
    """Where a summary stands for history.

    Attributes:
        first_kept_index: The first message of the input that stands after the summary.
        start_seq: First archived message that the summary stands for ...
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
        index: Position in the list that came in, from 0; None for what stands beside the list.
        tokens: Its size.
    """

    description: str
    index: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class SummaryPrompt:
    """What a host's model needs to write the summary.

    Attributes:
        system: Instructions.
        user: The transcript, as data.
        max_tokens: What the summary may count.
        continuation: To be handed back with the summary, within the hour.
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
    """What an earlier compaction left of the first messages of a list, and stands for them again.

    Attributes:
        message_count: So many first messages of the list that came in ...
        context_count: ... stand as so many.
    """

    message_count: int
    context_count: int


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The answer of `compact`.

    Attributes:
        session_id: The session in the archive.
        format: The wire format of `messages`.
        status: "unchanged" (nothing had to be done), "repaired" (the list was made valid and
            nothing else), "compacted" (something was cleared, stored or summarised, now or before;
            see `recognised`), "planned" (nothing was written; the rest tells what "auto" would do),
            "prepared" (the rest tells what applying will do), "needs_summary" (write it by
            `summary_prompt` and call again with `summary`), or "no_progress" (nothing useful could
            be saved; `warnings` say why). The list differs from what came in where this is
            "repaired" or "compacted", after repairs with "no_progress", and where its beginning
            was `recognised`.
        messages: The list for the provider; untouched messages are the host's own objects.
        changed: Whether `messages` differs from what came in.
        fits: Whether `tokens.upper` is within `tokens.limit`, and the request within its bytes.
        tokens: The figures.
        layers: What each layer did, in order.
        edits: Every change, with the pointer to what stood there.
        boundary: Where a summary stands for history, if one does.
        restored: Paths of files whose text was put back.
        irreducible: When it does not fit: what is left, largest first.
        warnings: Everything a caller should know: repairs, stripped thinking, missing files.
        summary: The summary's text, if one was made.
        summary_prompt: For "needs_summary".
        prepared: For "prepared".
        recognised: Where the list begins with one that was compacted before.
        receipt: All of this as JSON, as it stands in the archive.
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
