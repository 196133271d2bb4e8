"""Values of one compaction call: what the layers read, and what is decided so far.

`ReceivedInput` is the list that came in; `CompactionContext` is made once, from it and the archive.
`EditedMessages` passes through the layers and records the edits of each; a `Plan` is such a list
with its cut, everything decided but the text of the summary; `SummaryText` is that text, and
`Validation` the last gate's decision. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from context_compaction.budget import TokenBudget, TokenLimits
from context_compaction.formats.list_cache import CachedList
from context_compaction.layers.base import LayerContext
from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, Edit, Step
from context_compaction.messages.history_hash import HEAD_CHARS
from context_compaction.messages.model import JsonObject, Message, Messages
from context_compaction.messages.pins import Pin, Pins
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import Claims
from context_compaction.messages.tool_pairs import ProviderRules
from context_compaction.policies import Policy
from context_compaction.redaction import Gates, redact_message
from context_compaction.request import CompactRequest
from context_compaction.result import LayerReport, Status
from context_compaction.settings import Settings
from context_compaction.summarizers.extractive.collect import Record
from context_compaction.tokens.counter import MessageCounter
from context_compaction.tokens.request_count import RequestCount


@dataclass(frozen=True, slots=True)
class ReceivedInput:
    """A list as it came in, read; nothing of it can be refused any more.

    Attributes:
        payload: The host's own objects.
        request: The caller's wishes.
        known: The same, parsed.
        format: The name of their format.
        claims: The parts of them that claim to be ours.
        fitting: All formats that the list may as well be of; the caller names none then.
    """

    payload: Sequence[JsonObject]
    request: CompactRequest
    known: CachedList
    format: str
    claims: Claims
    fitting: tuple[str, ...] = ()

    @property
    def messages(self) -> Messages:
        """The parsed messages."""
        return self.known.messages


@dataclass(frozen=True, slots=True)
class EffortLevel:
    """One degree of effort.

    Attributes:
        settings: The constants at this degree.
        keep_fraction: Part of the limit that may stay after a cut; 0 keeps the last run alone.
        needs_minimum: Whether clearing needs its minimum savings.
        clears_all: Whether clearing goes on after the limit is met.
        keep_messages: So many newest messages stay at a cut, instead of a part of the limit.
        fresh_tokens: Tokens that the newest results, which the model has not seen, may count before
            one of them is persisted ...
        unread_tokens: ... and the tokens of them all that stay then; 0 is the policy's preview.
        is_last: Whether nothing stays that may go, rules of the project included.
    """

    settings: Settings
    keep_fraction: float
    needs_minimum: bool = True
    clears_all: bool = False
    keep_messages: int = 0
    fresh_tokens: int = 0
    unread_tokens: int = 0
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class OriginalMessages:
    """What one summary replaces, in the original words.

    Attributes:
        messages: All originals that are available.
        earlier: The text of earlier summaries in it.
        lost: The text of those whose originals are not in the archive.
        numbers: The number of each of `messages` in the transcript; None for one without.
        is_short: Whether some of `messages` were shortened when they were first summarized.
    """

    messages: Messages = ()
    earlier: str = ""
    lost: str = ""
    numbers: tuple[int | None, ...] = ()
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Originals:
    """The originals that a writer reads: of history, and of the beginning of the running turn."""

    history: OriginalMessages = OriginalMessages()
    prefix: OriginalMessages = OriginalMessages()


@dataclass(frozen=True, slots=True)
class EditedMessages:
    """The list as the layers have edited it so far.

    Attributes:
        messages: The list after those edits.
        edits: Every change, in order.
        blobs: Outputs that must be archived before the list may be returned.
        layers: The report of each layer that changed anything.
    """

    messages: Messages
    edits: tuple[Edit, ...] = ()
    blobs: tuple[Blob, ...] = ()
    layers: tuple[LayerReport, ...] = ()

    def then(self, name: str, step: Step, count: MessageCounter) -> "EditedMessages":
        """The list after one more layer; the same one where the layer changed nothing."""
        if step.messages is self.messages:
            return self
        report = LayerReport(
            name, count.messages(self.messages), count.messages(step.messages), len(step.edits)
        )
        return replace(
            self,
            messages=step.messages,
            edits=(*self.edits, *step.edits),
            blobs=(*self.blobs, *step.blobs),
            layers=(*self.layers, report),
        )

    def redacted(self, gates: Gates) -> "EditedMessages":
        """The list with what we wrote or edited in it as it may be in the context."""
        if gates.mode != "on":
            return self
        messages = tuple(redact_message(message, gates.json) for message in self.messages)
        changed = any(new is not old for new, old in zip(messages, self.messages, strict=True))
        return replace(self, messages=messages) if changed else self


@dataclass(frozen=True, slots=True)
class SummaryText:
    """The texts of a summary and of a checkpoint, their writer, and warnings about them.

    Attributes:
        summary: The text that replaces history.
        checkpoint: The text that replaces the beginning of the running turn.
        writer: "extractive", "host", or the name of the model's provider.
        warnings: Warnings for the caller.
        model: The call of a model, for the receipt; None where none was made.
        prose: What of it the host or a model wrote; with mode "record", the host's text.
        told: What `prose` tells of; None where an earlier call wrote it.
        memory: The earlier summary that it contains, for the receipt; None without one.
    """

    summary: str
    checkpoint: str
    writer: str = "extractive"
    warnings: tuple[str, ...] = ()
    model: JsonObject | None = None
    prose: str = ""
    told: Span | None = None
    memory: JsonObject | None = None

    def redacted(self, gates: Gates) -> "SummaryText":
        """The texts as they may be in the context."""
        return replace(
            self,
            summary=gates.json(self.summary),
            checkpoint=gates.json(self.checkpoint),
            prose=gates.json(self.prose),
            memory=gates.json(self.memory),
        )


NO_TEXT = SummaryText("", "")

# Where the messages of a list stand in the one that the caller handed in, and where one more would;
# None for a message that an earlier compaction made.
Places: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class CompactionContext:
    """The values of one call that the stages read.

    Attributes:
        messages: The valid list.
        parsed: The list before it was repaired, and before named messages were left out.
        repairs: The edits that made it valid.
        format: The name of their format.
        rules: The provider's rules.
        request: The wishes, with positions in this list.
        session_id: For pointers.
        seqs: For each position of the list, its number in the transcript, or -1 where
            the archive knows the message as one of ours.
        heads: For each position, the hash of the history that ends there.
        policy: Which layers.
        settings: The constants, scaled to the budget.
        count: The token counter.
        budget: The token budget of the request ...
        limits: ... and the part of it for the messages.
        pins: The texts that a summary carries verbatim.
        gates: The gates that redact what is shown and written.
        places: Where the list's messages are in the one that came in; None where it is that one.
        fixed_tokens: The tokens of the messages that stay at any cut.
        markers: The host's cache markers in the list.
    """

    messages: Messages
    parsed: Messages
    repairs: tuple[Edit, ...]
    format: str
    rules: ProviderRules
    request: CompactRequest
    session_id: str
    seqs: tuple[int, ...]
    heads: tuple[str, ...]
    policy: Policy
    settings: Settings
    count: MessageCounter
    budget: TokenBudget
    limits: TokenLimits
    pins: Pins
    gates: Gates
    places: Places | None = None
    fixed_tokens: int = 0
    markers: Callable[[], Sequence[Any]] = tuple[Any, ...]

    @property
    def request_count(self) -> RequestCount:
        """Counts what the messages make a request of."""
        return self.budget.request_count

    @property
    def share_tokens(self) -> int:
        """The part of the limit that there is to share out: what shares of a target are of.

        Beside a long system message a share of the whole would be more than there is.
        """
        return max(0, self.limits.tokens - self.fixed_tokens)

    def place_of(self, index: int | None) -> int | None:
        """Where the message at `index` is in the list that came in, if it is there."""
        return index if index is None or self.places is None else self.places[index]

    def number_of(self, message: Message) -> int | None:
        """The number of `message` in the transcript, where it has one."""
        number = -1 if message.index is None else self.seqs[message.index]
        return number if number >= 0 else None

    def room_tokens(self, messages: Messages) -> int:
        """How many tokens may be added to `messages`; below 0, how many must be removed."""
        return self.request_count.room(messages, self.limits.target_tokens)


@dataclass(frozen=True, slots=True)
class Plan:
    """A list, cut or not, whose summary is not written yet.

    Attributes:
        edited: The list after the clearing layers.
        level: The degree of effort.
        cut: Where it is cut; None where clearing was all.
        history: The messages that a summary replaces ...
        prefix: ... and those of the running turn that a checkpoint replaces.
        pins: The texts that the summary carries verbatim.
        summary_tokens: The most that the summary may count; 0 where there is no history to replace.
        checkpoint_tokens: The same for the checkpoint inside the running turn.
        fills: Whether everything competes for the target, instead of a cut by the policy's rule.
        refusals: How often the provider has refused the list.
        record: What the target is filled from ...
        summary: ... and what was bought of it: for the summary ...
        checkpoint: ... for the checkpoint ...
        files: ... and of files: path, text and a note of each.
    """

    edited: EditedMessages
    level: EffortLevel
    cut: CutPoint | None = None
    history: Messages = ()
    prefix: Messages = ()
    pins: tuple[Pin, ...] = ()
    summary_tokens: int = 0
    checkpoint_tokens: int = 0
    fills: bool = False
    refusals: int = 0
    record: Record | None = None
    summary: str = ""
    checkpoint: str = ""
    files: tuple[tuple[str, str, str], ...] = ()

    @property
    def replaced(self) -> Messages:
        """All messages that a text replaces."""
        return (*self.history, *self.prefix)

    @property
    def text_tokens(self) -> int:
        """The most that summary and checkpoint may count together."""
        return self.summary_tokens + self.checkpoint_tokens

    @property
    def acts(self) -> bool:
        """Whether anything is edited or replaced."""
        return self.cut is not None or bool(self.edited.edits)


def layer_context_of(context: CompactionContext, level: EffortLevel) -> LayerContext:
    """The values of `context` that a layer reads at `level`, before anything is cut."""
    settings = level.settings
    return LayerContext(
        settings if level.needs_minimum else replace(settings, min_savings_tokens=0),
        context.count,
        context.rules,
        partial(span_of, context),
        context.pins,
        context.limits.tokens,
        context.limits.bytes,
        fresh_tokens=level.fresh_tokens,
        unread_tokens=level.unread_tokens,
    )


def is_ours(context: CompactionContext, message: Message) -> bool:
    """Whether a compaction put `message` there: in this call, or earlier by the archive's record.

    The message's own claim proves nothing.
    """
    return message.index is None or context.seqs[message.index] == -1


def span_of(context: CompactionContext, messages: Messages) -> Span:
    """The archived originals that `messages` replace, summaries of ours unfolded."""
    numbers: list[int] = []
    for message in messages:
        made = placeholders.originals_of(message) if is_ours(context, message) else None
        if made is not None and made.session_id == context.session_id:
            numbers += [made.start_seq, made.stop_seq]
        elif message.index is not None and context.seqs[message.index] >= 0:
            numbers.append(context.seqs[message.index])
    newest = max((m.index for m in messages if m.index is not None), default=None)
    head = "" if newest is None else context.heads[newest][:HEAD_CHARS]
    return Span(context.session_id, min(numbers, default=0), max(numbers, default=0), head)


@dataclass(frozen=True, slots=True)
class Validation:
    """The gate's decision: the list to return, its status, and warnings."""

    edited: EditedMessages
    status: Status
    fits: bool
    warnings: tuple[str, ...]
