"""What the words at a cut may come to: summary, checkpoint, and the pins beside them. Pure."""

from context_compaction import markers
from context_compaction.cut_point import CutPoint, history_of, turn_prefix_of
from context_compaction.pins import Pin, bounded
from context_compaction.task import Shape, Task

# Summary and checkpoint share their tokens by what they stand for; each gets this part at least.
_LEAST_SHARE = 0.25
# Words may come to this part of what they stand for: a list that was to be made smaller must come
# out smaller, however short it was.
_SUMMARY_SHARE = 0.2


def with_cut(task: Task, shape: Shape, where: CutPoint, tokens: int) -> Shape:
    """`shape` cut at `where`, `tokens` shared between the words for history and for the turn."""
    parts = history_of(shape.draft.messages, where), turn_prefix_of(shape.draft.messages, where)
    history_size, prefix_size = (sum(map(task.count.message, part)) for part in parts)
    pinned_tokens = rules_tokens(task, shape, where)
    tokens = min(tokens, max(0, _bound_tokens(task, shape, where) - pinned_tokens))
    of_prefix = prefix_size / max(1, history_size + prefix_size)
    if all(parts):
        of_prefix = min(max(of_prefix, _LEAST_SHARE), 1 - _LEAST_SHARE)
    checkpoint_tokens = int(tokens * of_prefix)
    summary_tokens = tokens - checkpoint_tokens if parts[0] else 0
    return Shape(shape.draft, shape.rung, where, summary_tokens, checkpoint_tokens)


def rules_tokens(task: Task, shape: Shape, where: CutPoint) -> int:
    """What the rules come to that are pinned unasked at `where`."""
    return sum(pin.tokens for pin in pins_at(task, shape, where) if pin.is_automatic)


def _bound_tokens(task: Task, shape: Shape, where: CutPoint) -> int:
    """What the words for all that a cut at `where` replaces may come to."""
    source = shape.draft.messages
    gone = (*history_of(source, where), *turn_prefix_of(source, where))
    kept_tokens = task.count.messages(source) - sum(map(task.count.message, gone))
    replaced_tokens = max(0, task.count.messages(task.messages) - kept_tokens)
    # Earlier words of ours stand for far more than they count: what they told may be told again.
    made_tokens = sum(task.count.message(message) for message in gone if markers.is_made(message))
    return made_tokens + int(max(0, replaced_tokens - made_tokens) * _SUMMARY_SHARE)


def pins_at(task: Task, shape: Shape, where: CutPoint) -> tuple[Pin, ...]:
    """What a summary at `where` carries: all pins but those of messages that stay in full."""
    source = shape.draft.messages
    gone = {m.index for m in (*history_of(source, where), *turn_prefix_of(source, where))}
    gone |= {edit.index for edit in shape.draft.edits if edit.layer == "request"}
    leaving = [pin for pin in task.pins.candidates if pin.index is None or pin.index in gone]
    settings = shape.rung.settings
    bound_tokens = _bound_tokens(task, shape, where) if leaving else 0
    return bounded(
        leaving,
        limit_tokens=settings.pinned_tokens,
        automatic_tokens=min(settings.automatic_pin_tokens, bound_tokens),
    )
