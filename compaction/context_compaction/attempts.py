"""From a valid list to the draft that fits: which rung, which cut, and what a writer must write.

Pure but for the count. The pipeline asks for a `Shape` (everything decided but the words), lets a
writer write, and has `finish` put the words in. So a slow writer is called once at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from context_compaction import markers
from context_compaction.cache_markers import keep_cache_markers
from context_compaction.cut_point import CutPoint, history_of, turn_prefix_of
from context_compaction.draft import Draft
from context_compaction.markers import Span
from context_compaction.messages import Message, Messages
from context_compaction.pins import Pin, Pins, block_of, bounded
from context_compaction.policies import Policy
from context_compaction.repair import label_misplaced_system, open_with_user
from context_compaction.restore import FileText, recent_files, restore
from context_compaction.rungs import Limits, Rung, clear, cut, ladder, words_reserve
from context_compaction.settings import Settings
from context_compaction.summary import (
    acknowledge,
    checkpoint_message,
    summarize,
    summary_message,
    with_turn_context,
)
from context_compaction.thinking import strip_void_thinking
from context_compaction.tokens import MessageCounter
from context_compaction.wire.rules import WireRules

# Summary and checkpoint share their tokens by what they stand for; each gets this part at least.
_LEAST_SHARE = 0.25
# Words may come to this part of what they stand for, and files may be put back up to this part of
# the whole: a list that was to be made smaller must come out smaller, however short it was.
_SUMMARY_SHARE = 0.2
_RESTORED_SHARE = 0.95
# What stays in full is chosen up to this part of the limit: a list at its very target would be
# above it with the next message.
_FILLED_SHARE = 0.9
_EARLIER_CUTS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """Everything the layers need to know about one call.

    Attributes:
        messages: The valid list.
        session_id: For pointers.
        seqs: For each position of the list that came in, its number in the transcript, or -1.
        policy: Which layers.
        settings: The constants, scaled to the budget.
        limits: What the messages may come to.
        count: The token counter.
        rules: The provider's rules.
        pins: What a summary carries verbatim.
        instructions: What a summary should dwell on.
    """

    messages: Messages
    session_id: str
    seqs: tuple[int, ...]
    policy: Policy
    settings: Settings
    limits: Limits
    count: MessageCounter
    rules: WireRules
    pins: Pins
    instructions: str = ""


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


def shape_by_clearing(task: Task, rung: Rung) -> Shape:
    """The list after the clearing layers alone."""
    draft = clear(
        Draft(task.messages),
        task.policy,
        rung,
        count=task.count,
        rules=task.rules,
        limits=task.limits,
        span=span_of(task, task.messages),
        marked=task.pins.marked,
    )
    return Shape(draft, rung)


def shape_that_fits(task: Task, rungs: Sequence[Rung], *, always_cut: bool = False) -> Shape:
    """The first rung that fits, counting every text that is still to be written at its largest.

    Where none fits it is the last one.
    """
    shape = Shape(Draft(task.messages), rungs[-1])
    for rung in rungs:
        shape = shape_by_clearing(task, rung)
        if fits(task, shape.draft.messages) and not always_cut:
            return shape
        where = cut(shape.draft, rung, count=task.count, rules=task.rules, limits=task.limits)
        if where is None:
            if fits(task, shape.draft.messages):
                return shape
            continue
        # Rules that are pinned unasked are words about history too, and take the words' room.
        rules_tokens = _rules_tokens(task, shape, where)
        reserved = max(0, words_reserve(rung, task.limits.tokens) - rules_tokens)
        shape = _with_cut(task, shape, where, reserved)
        bare = finish(task, shape, summary="", checkpoint="", files=()).messages
        if fits(task, bare, spare_tokens=reserved):
            # What the cut leaves free is the words' too, up to their bound.
            free_tokens = task.limits.tokens - task.count.messages(bare)
            words_tokens = min(max(0, rung.settings.summary_tokens - rules_tokens), free_tokens)
            shape = _with_cut(task, shape, where, words_tokens)
            if task.limits.is_named and rung.settings.keep_recent_of == "target":
                shape = _with_longest_tail(task, shape)
            return _less_cleared(task, shape)
    return shape


def _with_longest_tail(task: Task, shape: Shape) -> Shape:
    """`shape` cut as early as its target allows, where the caller named that target.

    A policy's own target is met with room to spare, since more will come.
    """
    for _ in range(_EARLIER_CUTS):
        # Words come to a part of what they replace: the less is replaced, the less they need.
        earlier = _cut_earlier(task, shape)
        if earlier is shape:
            break
        shape = earlier
    return shape


def _cut_earlier(task: Task, shape: Shape) -> Shape:
    if shape.cut is None:
        return shape
    bare = finish(task, shape, summary="", checkpoint="", files=()).messages
    kept_tokens = sum(map(task.count.message, shape.draft.messages[shape.cut.first_kept :]))
    beside_tokens = task.count.messages(bare) - kept_tokens + _spare_tokens(task, shape)
    where = cut(
        shape.draft,
        shape.rung,
        count=task.count,
        rules=task.rules,
        limits=task.limits,
        keep_tokens=int(task.limits.tokens * _FILLED_SHARE) - beside_tokens,
    )
    if where is None or where.first_kept >= shape.cut.first_kept:
        return shape
    words_tokens = shape.summary_tokens + shape.checkpoint_tokens
    return _if_it_fits(task, _with_cut(task, shape, where, words_tokens), shape)


def _less_cleared(task: Task, shape: Shape) -> Shape:
    """`shape` with as much less cleared of what stays as there is room for.

    Clearing was not enough, so all that may be cleared is; then the cut took so much history away
    that the newest of it has room after all.
    """
    bare = finish(task, shape, summary="", checkpoint="", files=()).messages
    filled_tokens = int(task.limits.tokens * _FILLED_SHARE)
    room_tokens = filled_tokens - task.count.messages(bare) - _spare_tokens(task, shape)
    if shape.cut is None or room_tokens <= 0 or shape.rung.clears_all:
        return shape
    # Oldest first: what is cut off is cleared before anything that stays is.
    grown_tokens = task.count.messages(shape.draft.messages) + room_tokens
    grown = replace(task, limits=replace(task.limits, tokens=grown_tokens))
    fuller = shape_by_clearing(grown, replace(shape.rung, needs_minimum=False))
    words_tokens = shape.summary_tokens + shape.checkpoint_tokens
    return _if_it_fits(task, _with_cut(task, fuller, shape.cut, words_tokens), shape)


def _if_it_fits(task: Task, fuller: Shape, shape: Shape) -> Shape:
    bare = finish(task, fuller, summary="", checkpoint="", files=()).messages
    return fuller if fits(task, bare, spare_tokens=_spare_tokens(task, fuller)) else shape


def _spare_tokens(task: Task, shape: Shape) -> int:
    """What is still to come: the words, and the files that are put back."""
    words_tokens = shape.summary_tokens + shape.checkpoint_tokens
    return words_tokens + _files_tokens(task, shape)


def _files_tokens(task: Task, shape: Shape) -> int:
    """What the files that may be put back come to at most."""
    if shape.cut is None or "restore" not in task.policy.layers:
        return 0
    settings = shape.rung.settings
    files = recent_files(
        task.messages, shape.cut.first_kept, settings.tool_kinds, settings.restore_kinds
    )
    most = settings.restore_file_tokens
    sizes = (
        most if file.seen_text is None else min(most, task.count.text(file.seen_text))
        for file in files[: settings.restore_files]
    )
    return min(sum(sizes), settings.restore_total_tokens)


def finish(
    task: Task, shape: Shape, *, summary: str, checkpoint: str, files: Sequence[FileText]
) -> Draft:
    """The draft with its words put in, files restored and void thinking taken out."""
    draft = shape.draft
    if shape.cut is not None:
        draft = _replaced(task, shape, shape.cut, summary, checkpoint)
        if files and "restore" in task.policy.layers:
            step = restore(
                draft.messages,
                count=task.count,
                settings=shape.rung.settings,
                files=files,
                at=_restore_at(draft.messages, shape),
                limit_tokens=min(
                    task.limits.tokens, int(task.count.messages(task.messages) * _RESTORED_SHARE)
                ),
            )
            draft = draft.then("restore", step, task.count)
        if task.settings.acknowledge:
            ends = bool(task.messages) and task.messages[-1].role == "assistant"
            step = acknowledge(draft.messages, ends_with_assistant=ends, count=task.count)
            draft = draft.then("acknowledge", step, task.count)
    if task.rules.system_follows_user:
        draft = draft.then("repair", label_misplaced_system(draft.messages), task.count)
    if task.rules.first_role_user:
        draft = draft.then("repair", open_with_user(draft.messages), task.count)
    if task.rules.thinking_is_bound:
        stripped = strip_void_thinking(
            task.messages, draft.messages, count=task.count, rule=task.settings.thinking
        )
        draft = draft.then("thinking", stripped, task.count)
    return replace(draft, messages=keep_cache_markers(task.messages, draft.messages))


def fits(task: Task, messages: Messages, *, spare_tokens: int = 0) -> bool:
    """Whether `messages` are within the limits, with `spare_tokens` still to come."""
    if task.count.messages(messages) + spare_tokens > task.limits.tokens:
        return False
    return task.count.request_bytes(messages) <= task.limits.bytes


def excess_tokens(task: Task, shape: Shape, summary: str, checkpoint: str) -> int:
    """How far `shape` with these words is above the limit; 0 and less where it fits."""
    done = finish(task, shape, summary=summary, checkpoint=checkpoint, files=())
    return task.count.messages(done.messages) - task.limits.tokens


def span_of(task: Task, messages: Messages) -> Span:
    """The archived originals that `messages` stand for, summaries of ours unfolded."""
    numbers: list[int] = []
    for message in messages:
        made = markers.originals_of(message)
        if made is not None and made.session_id == task.session_id:
            numbers += [made.start_seq, made.stop_seq]
        elif message.index is not None and task.seqs[message.index] >= 0:
            numbers.append(task.seqs[message.index])
    return Span(task.session_id, min(numbers, default=0), max(numbers, default=0))


def pins_at(task: Task, shape: Shape, where: CutPoint) -> tuple[Pin, ...]:
    """What a summary at `where` carries: all pins but those of messages that stay."""
    source = shape.draft.messages
    gone = {m.index for m in (*history_of(source, where), *turn_prefix_of(source, where))}
    leaving = [pin for pin in task.pins.candidates if pin.index is None or pin.index in gone]
    settings = shape.rung.settings
    bound_tokens = _bound_tokens(task, shape, where) if leaving else 0
    return bounded(
        leaving,
        limit_tokens=settings.pinned_tokens,
        automatic_tokens=min(settings.automatic_pin_tokens, bound_tokens),
    )


def full_rungs(task: Task) -> tuple[Rung, ...]:
    """For a summary that was asked for: all but the newest run goes, however much would fit."""
    first, *harder = ladder(task.settings, task.limits.tokens)
    return (Rung(replace(first.settings, keep_recent_turns=0), 0.0), *harder[2:])


def _with_cut(task: Task, shape: Shape, where: CutPoint, tokens: int) -> Shape:
    """`shape` cut at `where`, `tokens` shared between the words for history and for the turn."""
    parts = history_of(shape.draft.messages, where), turn_prefix_of(shape.draft.messages, where)
    history_size, prefix_size = (sum(map(task.count.message, part)) for part in parts)
    rules_tokens = _rules_tokens(task, shape, where)
    tokens = min(tokens, max(0, _bound_tokens(task, shape, where) - rules_tokens))
    of_prefix = prefix_size / max(1, history_size + prefix_size)
    if all(parts):
        of_prefix = min(max(of_prefix, _LEAST_SHARE), 1 - _LEAST_SHARE)
    checkpoint_tokens = int(tokens * of_prefix)
    summary_tokens = tokens - checkpoint_tokens if parts[0] else 0
    return Shape(shape.draft, shape.rung, where, summary_tokens, checkpoint_tokens)


def _rules_tokens(task: Task, shape: Shape, where: CutPoint) -> int:
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


def _replaced(task: Task, shape: Shape, where: CutPoint, summary: str, checkpoint: str) -> Draft:
    draft = shape.draft
    history = history_of(draft.messages, where)
    prefix = turn_prefix_of(draft.messages, where)
    made: Message | None = None
    block = block_of(pins_at(task, shape, where), task.pins.unpinned)
    if where.folds_request:
        span = span_of(task, (*history, *prefix))
        made = summary_message(span, with_turn_context(summary, checkpoint), block)
        step = summarize(draft.messages, where, count=task.count, summary=made, checkpoint=None)
        return _without_subsumed(draft.then("summarize", step, task.count))
    if history or block:
        # With nothing but pinned text to carry, the span is that of the turn's beginning.
        made = summary_message(span_of(task, history or prefix), summary, block)
    inside = checkpoint_message(span_of(task, prefix), checkpoint) if prefix else None
    step = summarize(draft.messages, where, count=task.count, summary=made, checkpoint=inside)
    return _without_subsumed(draft.then("summarize", step, task.count))


def _restore_at(messages: Messages, shape: Shape) -> int:
    """Right after the summary, before the running turn's request."""
    if shape.cut is None:
        return 0
    anchor_at = shape.cut.goes_on_at
    source = shape.draft.messages
    if anchor_at < len(source):
        wanted = source[anchor_at]
        return next(at for at, message in enumerate(messages) if _is_of(message, wanted))
    return len(messages)


def _is_of(message: Message, original: Message) -> bool:
    """Whether `message` is `original`, or what an edit has left of it."""
    return message is original or (message.index is not None and message.index == original.index)


def _without_subsumed(draft: Draft) -> Draft:
    """Leave out edits of messages that a summary has replaced: its pointer covers them."""
    present = {message.index for message in draft.messages}
    edits = tuple(
        edit for edit in draft.edits if edit.layer == "summarize" or edit.index in present
    )
    wanted = {pointer for edit in edits for pointer in edit.pointers}
    blobs = tuple(blob for blob in draft.blobs if blob.output_id in wanted)
    return Draft(draft.messages, edits, blobs, draft.layers)
