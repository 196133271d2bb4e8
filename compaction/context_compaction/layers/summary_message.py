"""Layer: a summary message replaces history; a checkpoint replaces a turn's beginning.

The text is returned by a writer. What the machine knows for certain is added here for every
writer: pinned text verbatim, and for prose of a model the ledger of files and commands.
"""

from collections.abc import Set

from context_compaction.layers.base import LayerContext
from context_compaction.layers.cut_point import (
    history_of,
    preserved_part,
    request_of,
    turn_prefix_of,
)
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    edit_message,
    make_message,
    starts_turn,
    text_of,
    tool_results,
)
from context_compaction.messages.pins import with_pin_block
from context_compaction.messages.placeholders import Span
from context_compaction.tokens.counter import MessageCounter


def summary_message(span: Span, text: str, pins: str = "", *, may_grow: bool = False) -> Message:
    """The message that replaces history, with the block of pinned texts first.

    Where its text is still to be written and `may_grow`, it contains the frame of a long one.
    """
    body = with_pin_block(pins, text)
    return make_message("user", placeholders.summary(span, body, is_long=may_grow and not text))


def checkpoint_message(span: Span, text: str) -> Message:
    """The message that replaces the beginning of the running turn."""
    return make_message("user", placeholders.turn_context(span, text))


def with_turn_context(summary: str, turn_prefix: str) -> str:
    """One text for history and for the beginning of a split turn, as in the timeline paper."""
    if not turn_prefix:
        return summary
    return f"{summary}\n## Turn Context (split turn)\n{turn_prefix}".strip()


def acknowledge(messages: Messages, *, ends_with_assistant: bool, count: MessageCounter) -> Step:
    """Insert an assistant message that acknowledges the summary.

    Only where a user message follows, or where the list ended with an assistant message before:
    elsewhere two messages of the assistant would be adjacent, or the list would end with the wrong
    role.
    """
    at = next(
        (at for at, m in enumerate(messages) if placeholders.summary_text(m) is not None), None
    )
    if at is None:
        return Step(messages)
    rest = messages[at + 1 :]
    if not (starts_turn(rest[0]) if rest else ends_with_assistant):
        return Step(messages)
    said = make_message("assistant", placeholders.ACKNOWLEDGED)
    edit = Edit("acknowledge", "added", None, 0, count.message(said))
    return Step((*messages[: at + 1], said, *rest), (edit,))


def summarize(messages: Messages, context: LayerContext) -> Step:
    """Replace history by the summary, and the turn's beginning by the checkpoint.

    What stays, in order: preserved messages, the summary, the running turn's request where the cut
    falls inside it, the checkpoint, and everything from the cut on. Of a system message that the
    host sent again and again, word for word, the last alone stays: the others are in the history.
    """
    cut, count = context.cut, context.count
    summary, checkpoint = context.summary, context.checkpoint
    if cut is None:
        return Step(messages)
    stop = cut.first_kept if cut.request_at is None else cut.request_at
    repeated = _repeated(messages) if summary is not None else frozenset[int]()
    if summary is None:  # nothing of them is replaced
        out, edits = list(messages[:stop]), list[Edit]()
    else:
        out, edits = _kept(messages[:stop], repeated, count)
        if cut.request_at is not None:
            loaded = [one for one in tool_results(messages[stop]) if one.loads_tools]
            out += [edit_message(messages[stop], loaded)] if loaded else []
        out.append(summary)
        folded = turn_prefix_of(messages, cut) if cut.folds_request else ()
        edits.append(_edit((*history_of(messages, cut), *folded), summary, count))
    if cut.request_at is not None:
        whole, request = messages[cut.request_at], request_of(messages, cut.request_at)
        inside, more = _kept(messages[cut.request_at + 1 : cut.first_kept], repeated, count)
        stays = [] if cut.folds_request else [request]
        out += [*stays, *inside]
        edits += [*(_shortened(whole, request, count) if stays else ()), *more]
    if checkpoint is not None:
        out.append(checkpoint)
        edits.append(_edit(turn_prefix_of(messages, cut), checkpoint, count))
    return Step((*out, *messages[cut.first_kept :]), tuple(edits))


def _edit(replaced: Messages, message: Message, count: MessageCounter) -> Edit:
    span = placeholders.span_replaced_by(message)
    return Edit(
        "summarize",
        "summarized",
        replaced[0].index if replaced else None,
        count.total(replaced),
        count.message(message),
        (span.pointer,) if span else (),
        note=f"{len(replaced)} messages",
    )


def _repeated(messages: Messages) -> frozenset[int]:
    """The `id` of each system message behind others that stands again, word for word."""
    start = next((at for at, one in enumerate(messages) if one.role != "system"), len(messages))
    system = [one for one in messages[start:] if one.role == "system"]
    # Blocks that are no text may differ beside the same words.
    plain = [one for one in system if all(isinstance(block, Text) for block in one.blocks)]
    sent = [(text_of(one.blocks), one) for one in plain]
    last = dict(sent)
    return frozenset(id(one) for text, one in sent if one is not last[text])


def _kept(
    messages: Messages, repeated: Set[int], count: MessageCounter
) -> tuple[list[Message], list[Edit]]:
    """What of `messages` stays verbatim at any cut, and an edit for each that is not whole."""
    out: list[Message] = []
    edits: list[Edit] = []
    for message in messages:
        part = preserved_part(message)
        if id(message) in repeated:
            size_tokens = count.message(message)
            note = "sent again later"
            edits.append(Edit("summarize", "summarized", message.index, size_tokens, 0, note=note))
        elif part is not None:
            out.append(part)
            edits += _shortened(message, part, count)
    return out, edits


def _shortened(whole: Message, part: Message, count: MessageCounter) -> list[Edit]:
    if part is whole:
        return []
    note = "its calls, results or request went with the rest"
    sizes = count.message(whole), count.message(part)
    return [Edit("summarize", "summarized", whole.index, *sizes, note=note)]
