"""The last gate: is the result valid, does it fit, was it worth it? Else the input is returned."""

from context_compaction.budget import limit_tokens
from context_compaction.context import CompactionContext, EditedMessages, Validation
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages, ToolResult, tool_calls
from context_compaction.messages.speakers import user_texts
from context_compaction.messages.tool_pairs import problems
from context_compaction.request import Mode
from context_compaction.result import Piece, Status
from context_compaction.tokens.counter import MessageCounter

_MAX_PIECES = 8
_SAME_AGAIN = (
    "The same call was answered with this before. If the provider has refused this as well, hand "
    "in this list with mode=reactive: it is made smaller then."
)

# A result that misses the target must save at least this part.
_LEAST_PROGRESS = 0.1


def validate(
    context: CompactionContext, edited: EditedMessages, *, is_repeated: bool = False
) -> Validation:
    """Accept `edited`, or return the repaired input with the reasons.

    Where the call repeats the one that had this very outcome, nothing is wrong with its having
    nothing left to do.
    """
    count, mode, valid = context.count, context.request.mode, context.messages
    if edited.messages is valid:
        if is_repeated and not context.repairs:
            again = (_SAME_AGAIN,) if mode == "reactive" else ()
            return _validation(context, edited, "unchanged", "auto", *again)
        return _nothing_done(context)
    faults = problems(edited.messages, context.rules)
    if faults:
        reason = f"the result would have been refused ({'; '.join(faults[:3])})"
        return _fallback(context, reason)
    before, after = count.messages(valid), count.messages(edited.messages)
    fits = _fits(context, edited.messages, mode)
    needed = before * _LEAST_PROGRESS
    if after >= before and not _fewer_bytes(valid, edited.messages, count):
        return _fallback(context, "nothing could be made smaller")
    if not fits and before - after < needed:
        saved = f"{before - after} of {before} tokens could be saved"
        return _fallback(context, f"only {saved}, and that does not fit")
    return _validation(context, edited, "compacted", mode)


def _nothing_done(context: CompactionContext) -> Validation:
    unedited, mode = EditedMessages(context.messages), context.request.mode
    if context.repairs:
        return _validation(context, unedited, "repaired", mode)
    same = _validation(context, unedited, "unchanged", mode)
    if mode == "record" or (same.fits and mode not in ("full", "micro")):
        return same
    return _fallback(context, "there is nothing left to clear or to summarise")


def _fallback(context: CompactionContext, reason: str) -> Validation:
    warning = f"No progress: {reason}. The conversation comes back as it came, repairs aside."
    unedited, mode = EditedMessages(context.messages), context.request.mode
    return _validation(context, unedited, "no_progress", mode, warning)


def _validation(
    context: CompactionContext, edited: EditedMessages, status: Status, mode: Mode, *warnings: str
) -> Validation:
    """`edited` with its status, and a warning where it does not fit what `mode` wants."""
    fits = _fits(context, edited.messages, mode)
    if not fits:
        warnings = (*warnings, _too_large(context, edited.messages))
    return Validation(edited, status, fits, warnings)


def _fits(context: CompactionContext, messages: Messages, mode: Mode) -> bool:
    if not messages:
        return True
    return (
        context.request_count.estimate(messages).upper <= limit_tokens(context.budget, mode)
        and context.count.request_bytes(messages) <= context.budget.limits.bytes
    )


def _fewer_bytes(before: Messages, after: Messages, count: MessageCounter) -> bool:
    return count.request_bytes(after) < count.request_bytes(before) * 0.99


def _too_large(context: CompactionContext, messages: Messages) -> str:
    mode = context.request.mode
    upper = context.request_count.estimate(messages).upper
    limit = limit_tokens(context.budget, mode)
    wanted = f"It does not fit: up to {upper} tokens where {limit} were wanted. "
    if mode in ("micro", "record"):
        return f"{wanted}Mode {mode} replaces no history: choose auto or full."
    if not context.policy.replaces_history:
        return f"{wanted}Policy {context.policy.name} replaces no history: choose another."
    pieces = placed_pieces(context, messages)[:3]
    named = ", ".join(f"{piece.description} ({piece.tokens} tokens)" for piece in pieces)
    return (
        f"{wanted}What is left cannot be made smaller: {named}. Raise the target, or shorten these."
    )


def placed_pieces(context: CompactionContext, messages: Messages) -> tuple[Piece, ...]:
    """What is left when nothing more can go, largest first, by places in the list that came in."""
    requests = [at for at, message in enumerate(messages) if user_texts(message)]
    newest = requests[-1] if requests else -1
    pieces = [
        Piece(
            _describe(message, is_newest=at == newest),
            context.place_of(message.index),
            context.count.message(message),
        )
        for at, message in enumerate(messages)
    ]
    if overhead_tokens := context.budget.overhead_tokens:
        pieces.append(Piece("system prompt and tools", None, overhead_tokens))
    pieces.sort(key=lambda piece: -piece.tokens)
    return tuple(pieces[:_MAX_PIECES])


def _describe(message: Message, *, is_newest: bool) -> str:
    if message.role == "system":
        return "system message"
    if placeholders.is_synthetic(message):
        is_summary = placeholders.summary_text(message) is not None
        return "summary with its pinned text" if is_summary else "checkpoint or note of ours"
    if is_newest:
        return "the newest request of the user"
    if any(isinstance(block, ToolResult) for block in message.blocks):
        return "tool results of the newest call"
    if tool_calls(message):
        return "newest tool calls"
    return f"message of the {message.role}"
