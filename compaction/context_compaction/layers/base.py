"""A layer: a pure function over the messages, with the fields that a registry reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Message, Messages
from context_compaction.messages.pins import Pins
from context_compaction.messages.placeholders import SpanOf
from context_compaction.messages.tool_pairs import ProviderRules
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

# When a layer runs: while the list is cleared; where that is not enough and turns can be folded;
# where history is replaced by a summary; and once it has been.
Stage: TypeAlias = Literal["clear", "fold", "replace", "restore"]


@dataclass(frozen=True, slots=True)
class FileText:
    """A file to restore.

    Attributes:
        path: The path as the calls name it.
        text: Its whole text, or None.
        note: Why the text may be out of date, or why there is none; "" if it is certain.
        parts: Line ranges if `text` is None: number of the first line, and the text.
        focus: Character offset of the last edit in `text`.
        shown_in: Index of the message that showed it last; None if none did.
    """

    path: str
    text: str | None
    note: str = ""
    parts: tuple[tuple[int, str], ...] = ()
    focus: int = 0
    shown_in: int | None = None

    @property
    def has_content(self) -> bool:
        """Whether any content of the file is known, not just its path."""
        return self.text is not None or bool(self.parts)


@dataclass(frozen=True, slots=True)
class LayerContext:
    """The inputs of a layer besides the messages. The last five are for the stages after a cut.

    Attributes:
        settings: The constants, at the present degree of effort.
        count: The token counter.
        rules: The provider's rules.
        span_of: Finds the archived originals of a part of the list, for a pointer.
        pins: What stays verbatim. A message that is pinned as a whole is restored after a layer.
        limit_tokens: The most tokens that the messages may count; 0 clears all that may be cleared.
        limit_bytes: The most bytes that they may have in a request.
        newest_only: Whether only the newest results may be edited, which are not cached yet.
        fresh_tokens: The tokens that the newest results, which the model has not seen, may count.
        unread_tokens: The most tokens left of them where one is persisted; 0: its preview.
        cut: Where the replaced history ends.
        summary: The message that replaces history.
        checkpoint: The message that replaces the beginning of the running turn.
        files: The files that may be restored, highest priority first.
        files_at: The position at which they are inserted.
    """

    settings: Settings
    count: MessageCounter
    rules: ProviderRules
    span_of: SpanOf
    pins: Pins
    limit_tokens: int
    limit_bytes: int
    newest_only: bool = False
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
        apply: Returns the edited list, or the same object where nothing changes. It edits nothing
            in place, reads no clock and does no I/O.
        description: What the layer did, for people: the rest of a sentence after its name.
        stage: When it runs; a policy's order counts within a stage.
        acts_below_trigger: Whether it runs where nothing has to be made smaller.
        uses_limit: Whether its result depends on the limit.
    """

    apply: Callable[[Messages, LayerContext], Step]
    description: str
    stage: Stage = "clear"
    acts_below_trigger: bool = False
    uses_limit: bool = False

    @property
    def replaces_history(self) -> bool:
        """Whether it replaces messages by a summary."""
        return self.stage == "replace"
