"""One call on its way: what the layers need to know of it, and what is decided so far. Pure."""

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from context_compaction import markers
from context_compaction.cut_point import CutPoint, history_of
from context_compaction.draft import Draft
from context_compaction.history_hash import HEAD_CHARS
from context_compaction.layer_context import LayerContext
from context_compaction.markers import Span
from context_compaction.messages import Message, Messages
from context_compaction.pins import Pins
from context_compaction.policies import Policy
from context_compaction.request_count import RequestCount
from context_compaction.rungs import Limits, Rung
from context_compaction.settings import Settings
from context_compaction.tokens import MessageCounter
from context_compaction.wire.rules import WireRules

# Where the messages of a list stand in the one that the caller handed in, and where one more would;
# None for a message that an earlier compaction made.
Places: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """Everything the layers need to know about one call.

    Attributes:
        messages: The valid list.
        session_id: For pointers.
        seqs: For each position of the list, its number in the transcript, or -1 where
            the archive knows the message as one of ours.
        heads: For each position, what names the history that ends there.
        policy: Which layers.
        settings: The constants, scaled to the budget.
        limits: What the messages may come to.
        count: The token counter.
        request_count: Counts what the messages make a request of.
        rules: The provider's rules.
        pins: What a summary carries verbatim.
        instructions: What a summary should dwell on.
        places: Where the list's messages stand in the one that came in; None where it is that one.
    """

    messages: Messages
    session_id: str
    seqs: tuple[int, ...]
    heads: tuple[str, ...]
    policy: Policy
    settings: Settings
    limits: Limits
    count: MessageCounter
    request_count: RequestCount
    rules: WireRules
    pins: Pins
    instructions: str = ""
    places: Places | None = None

    def place_of(self, index: int | None) -> int | None:
        """Where the message at `index` stands in the list that came in, if it stands there."""
        return index if index is None or self.places is None else self.places[index]

    def room_tokens(self, messages: Messages) -> int:
        """How many tokens may be added to `messages`; below 0 it is what must go."""
        return self.request_count.room(messages, self.limits.target_tokens)


@dataclass(frozen=True, slots=True)
class Shape:
    """A draft that was cut, or was not, and still wants its words.

    Attributes:
        draft: The list after the clearing layers.
        rung: The degree of effort.
        cut: Where it is cut; None where clearing was all.
        summary_tokens: What the summary's text may count; 0 where there is no history to replace.
        checkpoint_tokens: The same for the checkpoint inside the running turn.
    """

    draft: Draft
    rung: Rung
    cut: CutPoint | None = None
    summary_tokens: int = 0
    checkpoint_tokens: int = 0


def layer_context(task: Task, rung: Rung) -> LayerContext:
    """What a layer may know of `task` at `rung`, before anything is cut."""
    return LayerContext(
        rung.settings,
        task.count,
        task.rules,
        partial(span_of, task),
        task.pins,
        task.limits.tokens,
        clears_all=rung.clears_all,
        needs_minimum=rung.needs_minimum,
        is_filled=task.limits.is_named,
        is_last=rung.may_keep_nothing,
        fresh_tokens=rung.fresh_tokens,
    )


def is_ours(task: Task, message: Message) -> bool:
    """Whether a compaction put `message` there: in this call, or earlier by what the archive says.

    What it says of itself proves nothing.
    """
    return message.index is None or task.seqs[message.index] == -1


def span_of(task: Task, messages: Messages) -> Span:
    """The archived originals that `messages` stand for, summaries of ours unfolded."""
    numbers: list[int] = []
    for message in messages:
        made = markers.originals_of(message) if is_ours(task, message) else None
        if made is not None and made.session_id == task.session_id:
            numbers += [made.start_seq, made.stop_seq]
        elif message.index is not None and task.seqs[message.index] >= 0:
            numbers.append(task.seqs[message.index])
    newest = max((m.index for m in messages if m.index is not None), default=None)
    head = "" if newest is None else task.heads[newest][:HEAD_CHARS]
    return Span(task.session_id, min(numbers, default=0), max(numbers, default=0), head)


def history_span(task: Task, shape: Shape) -> Span:
    """The archived originals of the history that `shape` replaces."""
    if shape.cut is None:
        return span_of(task, ())
    return span_of(task, history_of(shape.draft.messages, shape.cut))
