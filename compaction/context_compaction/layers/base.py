"""What a layer is: a pure function over the messages, and what a registry has to know of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Message, Messages
from context_compaction.messages.pins import Pins
from context_compaction.messages.placeholders import SpanOf
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

# When a layer runs: while the list is cleared; where that is not enough and turns can be folded;
# where history is replaced by a summary; and once it has been.
Stage: TypeAlias = Literal["clear", "fold", "replace", "restore"]


# What a file is to the work: a text that steers it (a plan, notes), one that it goes on with, one
# that it has just read, one that it changed earlier, or one beside it: in a temporary folder, or
# outside of where all others lie.
FileUse: TypeAlias = Literal["steering", "work", "read", "earlier", "aside"]


@dataclass(frozen=True, slots=True)
class FileText:
    """A file to put back: its text, or None for the path alone, and a note on where it is from.

    `touched` has the first and last line of what was changed last, newest first.
    """

    path: str
    text: str | None
    note: str = ""
    touched: tuple[tuple[int, int], ...] = ()
    use: FileUse = "read"


@dataclass(frozen=True, slots=True)
class LayerContext:
    """What a layer may know of the call. The last five are for the stages after a cut.

    Attributes:
        settings: The constants, at the present degree of effort.
        count: The token counter.
        rules: The provider's rules.
        span_of: Finds the archived originals of a part of the list, for a pointer.
        pins: What stays verbatim. What it marks as a whole is put back after a layer that clears.
        limit_tokens: What the messages may count.
        clears_all: Whether clearing goes on after the limit is met.
        needs_minimum: Whether clearing needs its minimum savings.
        is_filled: Whether the caller named the limit, and wants as much kept as it allows.
        is_last: Whether this is the hardest degree of effort.
        is_below_trigger: Whether only the newest results may be edited, which are not cached yet.
        fresh_tokens: What the newest results, which the model has not seen, may count.
        unread_tokens: What stays of them together, where one is persisted; 0 is its preview.
        cut: Where history ends that is replaced.
        summary: The message that replaces history.
        checkpoint: The message that replaces the beginning of the running turn.
        files: What may be put back, most wanted first.
        files_at: Where it is put back.
    """

    settings: Settings
    count: MessageCounter
    rules: ProviderRules
    span_of: SpanOf
    pins: Pins
    limit_tokens: int
    clears_all: bool = False
    needs_minimum: bool = True
    is_filled: bool = False
    is_last: bool = False
    is_below_trigger: bool = False
    fresh_tokens: int = 0
    unread_tokens: int = 0
    cut: CutPoint | None = None
    summary: Message | None = None
    checkpoint: Message | None = None
    files: Sequence[FileText] = ()
    files_at: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """One entry of the registry.

    Attributes:
        apply: What it does to a list; the very list where it does nothing. It edits nothing in
            place, reads no clock and does no I/O.
        stage: When it runs; a policy's order counts within a stage.
        acts_below_trigger: Whether it runs where nothing has to be made smaller.
    """

    apply: Callable[[Messages, LayerContext], Step]
    stage: Stage = "clear"
    acts_below_trigger: bool = False

    @property
    def replaces_history(self) -> bool:
        """Whether it puts a summary in the place of messages."""
        return self.stage == "replace"
