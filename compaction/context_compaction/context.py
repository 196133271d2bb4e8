"""Immutable values that the stages of one compaction call pass on.

`ReceivedInput` is the caller's parsed list. `Session` is the list that the call continues from,
with the state of earlier calls. `CompactionContext` has both, with settings, counter and budget.
`EditedMessages` passes through the layers. A `Plan` decides everything except the summary's text,
`SummaryText` is that text, and `Validation` is the verdict on the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from context_compaction import compaction_state
from context_compaction.activity.known_file import FileState, KnownFile
from context_compaction.archive.values import AppendResult
from context_compaction.budget import TokenBudget
from context_compaction.file_access import DiskFile
from context_compaction.formats import CachedList
from context_compaction.layers.base import FileText, LayerContext
from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages import placeholders
from context_compaction.messages.model import Blob, Edit, JsonObject, Message, Messages, Step
from context_compaction.messages.pins import Pin, Pins
from context_compaction.messages.placeholders import Span
from context_compaction.messages.raw import HEAD_CHARS
from context_compaction.messages.speakers import NO_PROVEN_TEXTS, Claims, ProvenTexts
from context_compaction.messages.tool_pairs import ProviderRules
from context_compaction.policies import Policy
from context_compaction.redaction import Gates, redact_message
from context_compaction.request import CompactRequest, Settings
from context_compaction.result import LayerReport, Recognised, Status
from context_compaction.summarizers.extractive.items import Record
from context_compaction.tokens.counter import MessageCounter, RequestCount

# For each message of a list its index in the caller's list, and last the index of a next message.
# None for a message that an earlier compaction wrote.
InputIndices: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ReceivedInput:
    """The caller's list, parsed and checked: no later stage refuses it.

    Attributes:
        payload: The caller's own message objects.
        request: The caller's options.
        known: The parsed messages.
        format: The name of the message format.
        claims: Parts of the messages that claim to be written by this library.
        possible_formats: All formats that fit the messages if the caller names none.
        warnings: Problems of the list for the caller.
    """

    payload: Sequence[JsonObject]
    request: CompactRequest
    known: CachedList
    format: str
    claims: Claims
    possible_formats: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def messages(self) -> Messages:
        """The parsed messages."""
        return self.known.messages


@dataclass(frozen=True, slots=True)
class Session:
    """The list that a call continues from, and the state that earlier calls saved.

    Attributes:
        given: The caller's list. The session's own list differs from it if `recognised` is set.
        session_id: The session's ID.
        appended: The position of the caller's list in the archive.
        payload: The messages that the call continues from, as JSON.
        known: The same messages, parsed.
        seqs: For each message its number in the transcript; -1 for a message by this library.
        heads: For each message the hash of the history that ends with it.
        request: The caller's options, with indices in this list.
        history: The hash of the caller's list; when preparing, of its settled part.
        states: The states that calls with this branch saved, oldest first.
        all_states: The states that calls with any branch saved, oldest first.
        input_indices: Indices of the messages in the caller's list; None if both lists are equal.
        recognised: How many messages were replaced; None if both lists are equal.
        rejections: The lists that the provider rejected, if this call reports a rejection.
        applied: The prepared list that this call applies, with the texts that it proves.
        is_repeated: Whether the last compaction returned this list for the same request.
        proven: The texts of the list that the archive proves to be written by this library.
    """

    given: ReceivedInput
    session_id: str
    appended: AppendResult
    payload: Sequence[JsonObject]
    known: CachedList
    seqs: tuple[int, ...]
    heads: tuple[str, ...]
    request: CompactRequest
    history: str
    states: Sequence[compaction_state.CompactionState]
    all_states: Sequence[compaction_state.CompactionState]
    input_indices: InputIndices | None = None
    recognised: Recognised | None = None
    rejections: compaction_state.PromptTooLongRejections = compaction_state.NO_REJECTIONS
    applied: tuple[compaction_state.PreparedList, ProvenTexts] | None = None
    is_repeated: bool = False
    proven: ProvenTexts = NO_PROVEN_TEXTS

    @property
    def messages(self) -> Messages:
        """The parsed messages of the session's list."""
        return self.known.messages

    @property
    def is_undone(self) -> bool:
        """Whether the caller undid the newest compaction of this list, and asks for no other."""
        modes = (state.mode for state in reversed(self.states) if state.mode)
        names_target = self.request.target_tokens is not None
        is_asked = self.request.mode not in ("auto", "plan") or names_target
        return not is_asked and next(modes, "") == "undo"

    def input_index(self, index: int | None) -> int | None:
        """Return the index of a message in the caller's list; None if it is not in that list."""
        if index is None or self.input_indices is None:
            return index
        return self.input_indices[index]


@dataclass(frozen=True, slots=True)
class OriginalMessages:
    """The original messages that a summary replaces.

    Attributes:
        messages: All originals that are available.
        numbers: For each message its number in the transcript; None if it has none.
        earlier: Text of the earlier summaries among the replaced messages.
        unarchived: The part of that text whose original messages are not among `messages`.
        history_count: Number of messages before the running turn's request. A checkpoint replaces
            the others.
    """

    messages: Messages = ()
    numbers: tuple[int | None, ...] = ()
    earlier: str = ""
    unarchived: str = ""
    history_count: int = 0

    @classmethod
    def joined(cls, *parts: "OriginalMessages") -> "OriginalMessages":
        """Return all `parts`, in order, as one."""
        return cls(
            tuple(message for part in parts for message in part.messages),
            tuple(number for part in parts for number in part.numbers),
            "\n".join(part.earlier for part in parts if part.earlier),
            "\n".join(part.unarchived for part in parts if part.unarchived),
        )


@dataclass(frozen=True, slots=True)
class EditedMessages:
    """The message list as the layers have edited it so far.

    Attributes:
        messages: The list after the edits.
        edits: All changes, in order.
        blobs: Outputs that must be archived before the list may be returned.
        layers: The report of each layer that changed the list.
    """

    messages: Messages
    edits: tuple[Edit, ...] = ()
    blobs: tuple[Blob, ...] = ()
    layers: tuple[LayerReport, ...] = ()

    def then(self, name: str, step: Step, count: MessageCounter) -> "EditedMessages":
        """Return the list after one more layer; the same object if the layer changed nothing."""
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
        """Return the list with secrets removed from messages that this library edited."""
        if gates.mode != "on":
            return self
        messages = tuple(redact_message(message, gates.json) for message in self.messages)
        changed = any(new is not old for new, old in zip(messages, self.messages, strict=True))
        return replace(self, messages=messages) if changed else self


@dataclass(frozen=True, slots=True)
class SummaryText:
    """The text of a writer; without `prose` the summary consists of extracts.

    Attributes:
        writer: "extractive", "host", "memory", or the name of the model's provider.
        warnings: Warnings for the caller.
        model: Report of the model call, for the receipt; None if no model was configured.
        prose: The text that the host or a model wrote.
        covered_span: The messages that `prose` describes; None if an earlier call wrote it.
        memory: Report of the saved summary that the text contains, for the receipt.
    """

    writer: str = "extractive"
    warnings: tuple[str, ...] = ()
    model: JsonObject | None = None
    prose: str = ""
    covered_span: Span | None = None
    memory: JsonObject | None = None

    def redacted(self, gates: Gates) -> "SummaryText":
        """Return the text with secrets removed."""
        return replace(self, prose=gates.json(self.prose), memory=gates.json(self.memory))


@dataclass(frozen=True, slots=True)
class CompactionContext:
    """The values of one call that all stages after loading read.

    Attributes:
        session: The list that the call continues from, and the state of earlier calls.
        start: The valid messages that plans edit: repaired, and without messages that the caller
            snips.
        parsed: The messages before repairs.
        rules: The provider's rules.
        policy: The policy.
        settings: The constants, scaled to the budget.
        count: The token counter.
        budget: The token budget of the request.
        pins: The texts that a summary carries verbatim.
        gates: The gates that redact displayed and written text.
        fixed_tokens: Tokens of the messages that stay at any cut.
    """

    session: Session
    start: EditedMessages
    parsed: Messages
    rules: ProviderRules
    policy: Policy
    settings: Settings
    count: MessageCounter
    budget: TokenBudget
    pins: Pins
    gates: Gates
    fixed_tokens: int = 0

    @property
    def messages(self) -> Messages:
        """The valid messages."""
        return self.start.messages

    @property
    def request(self) -> CompactRequest:
        """The caller's options, with indices in the session's list."""
        return self.session.request

    @property
    def format(self) -> str:
        """The name of the message format."""
        return self.session.given.format

    @property
    def request_count(self) -> RequestCount:
        """The counter of whole requests."""
        return self.budget.request_count

    @property
    def share_tokens(self) -> int:
        """The part of the limit that messages share: the limit minus messages that always stay."""
        return max(0, self.budget.message_tokens - self.fixed_tokens)

    def number_of(self, message: Message) -> int | None:
        """Return the number of `message` in the transcript, or None."""
        number = -1 if message.index is None else self.session.seqs[message.index]
        return number if number >= 0 else None

    def room_tokens(self, messages: Messages) -> int:
        """Return how many tokens may be added to `messages`; if negative, how many must go."""
        return self.request_count.room(messages, self.budget.target_tokens)

    def fits(self, messages: Messages, *, spare_tokens: int = 0) -> bool:
        """Whether `messages` and `spare_tokens` more are within the target, in tokens and bytes."""
        if self.room_tokens(messages) < spare_tokens:
            return False
        return self.count.request_bytes(messages) <= self.budget.max_bytes

    def is_own(self, message: Message) -> bool:
        """Whether this library wrote `message`, in this call or by the archive's record.

        A message that only claims so proves nothing.
        """
        return message.index is None or self.session.seqs[message.index] == -1

    def span_of(self, messages: Messages) -> Span:
        """Return the span of archived messages that `messages` are or, as summaries, replace."""
        session = self.session
        numbers: list[int] = []
        for message in messages:
            if (number := self.number_of(message)) is not None:
                numbers.append(number)
            elif replaced := placeholders.originals_of(message):
                is_here = replaced.session_id == session.session_id
                numbers += [replaced.start_seq, replaced.stop_seq] if is_here else ()
        newest = max((m.index for m in messages if m.index is not None), default=None)
        head = "" if newest is None else session.heads[newest][:HEAD_CHARS]
        return Span(session.session_id, min(numbers, default=0), max(numbers, default=0), head)

    @property
    def layer_context(self) -> LayerContext:
        """The values that a layer reads before a cut."""
        return LayerContext(
            self.settings,
            self.count,
            self.rules,
            self.span_of,
            self.pins,
            self.budget.message_tokens,
            self.budget.max_bytes,
        )


@dataclass(frozen=True, slots=True)
class FilesInWork:
    """The files that the conversation and earlier calls name.

    Attributes:
        files: Files as the conversation leaves them, by path.
        states: States that earlier calls saved, by path; brought up to date once the disk is read.
        on_disk: Content on disk of those files that are inside the roots, by path.
        has_baseline: Whether a file was taken as it is on disk because a command may have changed
            it. Later calls know that only from a saved state.
    """

    files: Mapping[str, KnownFile] = field(default_factory=dict[str, KnownFile])
    states: Mapping[str, FileState] = field(default_factory=dict[str, FileState])
    on_disk: Mapping[str, DiskFile] = field(default_factory=dict[str, DiskFile])
    has_baseline: bool = False


@dataclass(frozen=True, slots=True)
class SummaryMatch:
    """A saved summary that can replace a new one.

    Attributes:
        summary: The saved summary.
        since: The messages between its end and the cut point.
        gap_tokens: Tokens of those messages; negative if the summary reaches beyond the cut.
    """

    summary: compaction_state.SavedSummary
    since: Messages
    gap_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided except the text of a summary.

    Attributes:
        edited: The list after the clearing layers.
        cut: The cut point; None if no history is replaced.
        history: The messages that a summary replaces.
        prefix: The messages of the running turn that a checkpoint replaces.
        pins: The texts that the summary carries verbatim.
        text_tokens: Token limit of summary and checkpoint together.
        fills: Whether everything competes for the target, instead of a cut by the policy's rule.
        rejections: How often the provider has rejected the list.
        record: The items that the target is filled from.
        summary: The text of the summary; "" until it is known.
        checkpoint: The text of the checkpoint; "" until it is known.
        bought_files: The files that were bought.
        files: The files in work.
        archived: The archived originals of earlier summaries, by span.
        originals: Returns the original messages that the text replaces; extracts rarely need them.
        memory: A saved summary that can replace a new one.
    """

    edited: EditedMessages
    cut: CutPoint | None = None
    history: Messages = ()
    prefix: Messages = ()
    pins: tuple[Pin, ...] = ()
    text_tokens: int = 0
    fills: bool = False
    rejections: int = 0
    record: Record | None = None
    summary: str = ""
    checkpoint: str = ""
    bought_files: tuple[FileText, ...] = ()
    files: FilesInWork = field(default_factory=FilesInWork)
    archived: Mapping[Span, OriginalMessages] = field(default_factory=dict[Span, OriginalMessages])
    originals: Callable[[], OriginalMessages] = OriginalMessages
    memory: SummaryMatch | None = None

    @property
    def replaced(self) -> Messages:
        """All messages that a text replaces."""
        return (*self.history, *self.prefix)

    @property
    def acts(self) -> bool:
        """Whether any message is edited or replaced."""
        return self.cut is not None or bool(self.edited.edits)


@dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a result.

    Attributes:
        edited: The list to return.
        status: The status of the result.
        fits: Whether the list is within its limit.
        warnings: Warnings for the caller.
    """

    edited: EditedMessages
    status: Status
    fits: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """A call whose messages are final.

    Attributes:
        context: The call.
        plan: The plan, with the room that the text left filled.
        words: The text of the summary.
        validation: The messages to return.
        now_seconds: The current Unix time.
    """

    context: CompactionContext
    plan: Plan
    words: SummaryText
    validation: Validation
    now_seconds: float

    @property
    def messages(self) -> Messages:
        """The messages to return."""
        return self.validation.edited.messages
