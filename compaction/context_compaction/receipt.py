"""What a compaction reports of itself: the answer, its receipt as JSON, and the new context."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from context_compaction import markers
from context_compaction.archive import ContextEntry
from context_compaction.compaction import (
    Boundary,
    CompactRequest,
    CompactResult,
    Mode,
    Piece,
    TokenReport,
)
from context_compaction.cut_point import history_of, turn_prefix_of
from context_compaction.digest import digest
from context_compaction.edits import Edit
from context_compaction.goal import Goal, limit_tokens
from context_compaction.history_hash import history_hash
from context_compaction.losses import Losses
from context_compaction.messages import (
    JsonObject,
    Message,
    Messages,
    ToolResult,
    tool_calls,
)
from context_compaction.speakers import user_texts
from context_compaction.task import Shape, Task, span_of
from context_compaction.tokens import Estimate, MessageCounter

_MAX_PIECES = 8


@dataclass(frozen=True, slots=True)
class CacheEffect:
    """What the edits cost the provider's prompt cache.

    Attributes:
        first_changed: Position in the result of the first message that is not as it was.
        rebilled_tokens: Tokens of the result from there on: they are read anew once.
        saved_tokens: Tokens that no longer stand in the request.
    """

    first_changed: int
    rebilled_tokens: int
    saved_tokens: int


def token_report(goal: Goal, after: Estimate, mode: Mode) -> TokenReport:
    """The figures of one call."""
    return TokenReport(
        goal.before.tokens,
        goal.before.upper,
        after.tokens,
        after.upper,
        goal.trigger_tokens,
        goal.target_tokens,
        limit_tokens(goal, mode),
        goal.before.method,
    )


def boundary_of(task: Task, shape: Shape) -> Boundary | None:
    """Where the summary stands, if history was replaced."""
    if shape.cut is None:
        return None
    source = shape.draft.messages
    replaced = (*history_of(source, shape.cut), *turn_prefix_of(source, shape.cut))
    span = span_of(task, replaced)
    kept = source[shape.cut.first_kept :]
    places = (task.place_of(message.index) for message in kept)
    end = task.place_of(len(task.seqs)) or 0
    first_kept = next((place for place in places if place is not None), end)
    return Boundary(
        first_kept, span.start_seq, span.stop_seq, shape.cut.request_at is not None, span.pointer
    )


def cache_effect(before: Messages, after: Messages, count: MessageCounter) -> CacheEffect:
    """The cost of the change from `before` to `after`."""
    first = next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a is not b),
        min(len(before), len(after)),
    )
    rebilled = sum(count.message(message) for message in after[first:])
    return CacheEffect(first, rebilled, count.messages(before) - count.messages(after))


def irreducible_pieces(messages: Messages, goal: Goal, count: MessageCounter) -> tuple[Piece, ...]:
    """What is left when nothing more can go, largest first."""
    requests = [at for at, message in enumerate(messages) if user_texts(message)]
    newest = requests[-1] if requests else -1
    pieces = [
        Piece(_describe(message, is_newest=at == newest), message.index, count.message(message))
        for at, message in enumerate(messages)
    ]
    if goal.overhead_tokens:
        pieces.append(Piece("system prompt and tools", None, goal.overhead_tokens))
    pieces.sort(key=lambda piece: -piece.tokens)
    return tuple(pieces[:_MAX_PIECES])


def receipt_of(
    result: CompactResult,
    *,
    cache: CacheEffect | None,
    writer: str,
    model: JsonObject | None,
    memory: JsonObject | None,
    replaced: Messages,
    pins: JsonObject | None,
    losses: Losses | None,
) -> JsonObject:
    """The receipt as it is archived: everything but the messages."""
    receipt: JsonObject = {
        "session_id": result.session_id,
        "format": result.format,
        "status": result.status,
        "fits": result.fits,
        "tokens": asdict(result.tokens),
        "layers": [asdict(layer) for layer in result.layers],
        "edits": [_edit_json(edit) for edit in result.edits],
        "boundary": asdict(result.boundary) if result.boundary else None,
        "restored": list(result.restored),
        "irreducible": [asdict(piece) for piece in result.irreducible],
        "warnings": list(result.warnings),
        "cache": asdict(cache) if cache else None,
        "writer": writer or None,
        "model": model,
        "memory_used": memory,
        "pins": pins,
        "losses": losses.as_json() if losses else None,
    }
    if replaced:
        receipt["digest"] = digest(replaced).as_json()
    return receipt


def stop_seq_of(seqs: Sequence[int]) -> int:
    """The number of the newest archived message of a list; -1 where there is none."""
    return max(seqs, default=-1)


def repeat_key(messages: Sequence[JsonObject], request: CompactRequest) -> str:
    """Names a list together with what was asked of it.

    A call whose list and wishes are those that the newest receipt of the session ended with finds
    nothing to do, whatever a borderline count would say the second time.
    """
    asked = replace(request, session_id=None, usage=None, usage_message_index=None)
    asked = replace(asked, summary=None, continuation=None)
    digest = hashlib.blake2b(repr(asked).encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(history_hash(messages).encode("ascii"))
    return digest.hexdigest()


def context_entries(
    messages: Messages, raws: Sequence[Sequence[JsonObject]], seqs: Sequence[int]
) -> list[ContextEntry]:
    """The result as the archive keeps it: by number where untouched, else in its own words."""
    entries: list[ContextEntry] = []
    for message, rendered in zip(messages, raws, strict=True):
        seq = seqs[message.index] if message.index is not None else -1
        untouched = message.source is not None and not message.edited and seq >= 0
        span = markers.left_by(message) if message.index is None or seq == -1 else None
        head = span.head if span is not None else ""
        entries.extend(
            ContextEntry(seq if untouched else -1, raw, source_seq=seq, stands_for=head)
            for raw in rendered
        )
    return entries


def _edit_json(edit: Edit) -> JsonObject:
    return {
        **asdict(edit),
        "pointers": list(edit.pointers),
    }


def _describe(message: Message, *, is_newest: bool) -> str:
    if message.role == "system":
        return "system message"
    if markers.is_made(message):
        is_summary = markers.summary_text(message) is not None
        return "summary with its pinned text" if is_summary else "checkpoint or note of ours"
    if is_newest:
        return "the newest request of the user"
    if any(isinstance(block, ToolResult) for block in message.blocks):
        return "tool results of the newest call"
    if tool_calls(message):
        return "newest tool calls"
    return f"message of the {message.role}"
