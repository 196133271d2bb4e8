"""The types of a layer: a pure function from messages to a `Step`, and its registry entry."""

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

# When a layer runs. "clear": first. "fold": if clearing is not enough. "replace": if history is
# replaced by a summary. "restore": after that.
Stage: TypeAlias = Literal["clear", "fold", "replace", "restore"]


@dataclass(frozen=True, slots=True)
class FileText:
    """A file to restore.

    Attributes:
        path: The path in the calls.
        text: The content; "" if it is unknown or must not be shown.
        note: Why the content may be out of date; "" if it is certain.
    """

    path: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class LayerContext:
    """The inputs of a layer besides the messages.

    Attributes:
        settings: The constants.
        count: The token counter.
        rules: The provider's rules.
        span_of: Returns the archived originals of messages, for a pointer.
        pins: The pinned texts. Messages that are pinned as a whole are restored after a layer.
        limit_tokens: Token limit for the messages; 0 clears everything that may be cleared.
        limit_bytes: Byte limit for the messages in a request.
        newest_only: Whether only the newest results may be edited, because they are not cached yet.
        fresh_tokens: Token limit for the newest tool results, which the model has not seen yet.
        unread_tokens: Token limit for the newest tool results once a result is persisted. 0 keeps
            only a preview of the policy's length.
        cut: Where the replaced history ends; only for the stages "replace" and "restore".
        summary: The message that replaces history.
        checkpoint: The message that replaces the start of the running turn.
        files: Files that may be restored, highest priority first.
        files_at: Index at which restored files are inserted.
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
    """An entry of the registry.

    Attributes:
        apply: Returns the edited list, or the same object if nothing changes. It edits nothing in
            place, reads no clock and does no I/O.
        description: What the layer did, for people: the rest of a sentence after its name.
        stage: When the layer runs. The order in a policy counts within a stage.
        acts_below_trigger: Whether the layer runs if nothing has to become smaller.
        uses_limit: Whether the result depends on `limit_tokens`.
    """

    apply: Callable[[Messages, LayerContext], Step]
    description: str
    stage: Stage = "clear"
    acts_below_trigger: bool = False
    uses_limit: bool = False

    @property
    def replaces_history(self) -> bool:
        """Whether the layer replaces messages by a summary."""
        return self.stage == "replace"
