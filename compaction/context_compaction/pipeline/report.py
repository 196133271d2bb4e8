"""What a compaction reports: its `CompactResult`, its receipt as JSON, the context to archive."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from context_compaction.activity.digest import digest
from context_compaction.archive import ContextEntry
from context_compaction.budget import TokenBudget, limit_tokens, reserve_warnings
from context_compaction.context import CompactionContext, Plan, SummaryText, Validation, span_of
from context_compaction.layers.cut_point import history_of, turn_prefix_of
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import JsonObject, Messages, text_of
from context_compaction.messages.placeholders import summary_of
from context_compaction.pipeline.dropped_names import DroppedNames, dropped_names
from context_compaction.pipeline.validate import placed_pieces
from context_compaction.request import CompactRequest, Mode
from context_compaction.result import (
    Boundary,
    CompactionStats,
    CompactResult,
    LayerReport,
    TokenReport,
)
from context_compaction.summarizers.instructions.collect_pins import pin_warnings, pins_json
from context_compaction.tokens.counter import Estimate, MessageCounter


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


def token_report(goal: TokenBudget, after: Estimate, mode: Mode) -> TokenReport:
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


def boundary_of(context: CompactionContext, plan: Plan) -> Boundary | None:
    """Where the summary stands, if history was replaced."""
    if plan.cut is None:
        return None
    source = plan.edited.messages
    replaced = (*history_of(source, plan.cut), *turn_prefix_of(source, plan.cut))
    span = span_of(context, replaced)
    kept = source[plan.cut.first_kept :]
    places = (context.place_of(message.index) for message in kept)
    end = context.place_of(len(context.seqs)) or 0
    first_kept = next((place for place in places if place is not None), end)
    return Boundary(
        first_kept, span.start_seq, span.stop_seq, plan.cut.request_at is not None, span.pointer
    )


def cache_effect(before: Messages, after: Messages, count: MessageCounter) -> CacheEffect:
    """The cost of the change from `before` to `after`."""
    first = next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a is not b),
        min(len(before), len(after)),
    )
    rebilled = sum(count.message(message) for message in after[first:])
    return CacheEffect(first, rebilled, count.messages(before) - count.messages(after))


def receipt_of(
    result: CompactResult,
    *,
    cache: CacheEffect | None,
    writer: str,
    model: JsonObject | None,
    memory: JsonObject | None,
    replaced: Messages,
    pins: JsonObject | None,
    losses: DroppedNames | None,
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


def context_entries(
    messages: Messages, raws: Sequence[Sequence[JsonObject]], seqs: Sequence[int]
) -> list[ContextEntry]:
    """The result as the archive keeps it: by number where untouched, else in its own words."""
    entries: list[ContextEntry] = []
    for message, rendered in zip(messages, raws, strict=True):
        seq = seqs[message.index] if message.index is not None else -1
        untouched = message.source is not None and not message.edited and seq >= 0
        span = placeholders.left_by(message) if message.index is None or seq == -1 else None
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


def build_result(
    payload: Sequence[JsonObject],
    rendered: list[JsonObject],
    *,
    context: CompactionContext,
    goal: TokenBudget,
    parsed: Messages,
    repaired: Step,
    plan: Plan,
    validation: Validation,
    words: SummaryText,
    format_name: str,
    request: CompactRequest,
) -> CompactResult:
    """The answer of the whole call, with its receipt."""
    edited = validation.edited
    changed = edited.messages is not parsed
    went_through = validation.status == "compacted" and plan.cut is not None
    replaced = _replaced(plan) if went_through else ()
    result = CompactResult(
        session_id=context.session_id,
        format=format_name,
        status=validation.status,
        messages=rendered if changed else list(payload),
        changed=changed,
        fits=validation.fits,
        tokens=token_report(goal, goal.request_count.estimate(edited.messages), request.mode),
        layers=(*_given_layers(parsed, repaired, context.count), *edited.layers),
        edits=_placed(_with_pointers((*repaired.edits, *edited.edits), context), context),
        boundary=boundary_of(context, plan) if went_through else None,
        restored=tuple(edit.note for edit in edited.edits if edit.action == "restored"),
        irreducible=() if validation.fits else placed_pieces(context, goal, edited.messages),
        warnings=(
            *_repair_warnings(_placed(repaired.edits, context)),
            *_snip_warnings(request, repaired, context),
            *validation.warnings,
            *_request_warnings(edited.edits),
            *words.warnings,
            *reserve_warnings(request, context.settings),
            *pin_warnings(request, context.pins, parsed, edited.messages, was_cut=went_through),
        ),
        summary=summary_of(edited.messages) if went_through else None,
    )
    snips = [edit for edit in repaired.edits if edit.action == "dropped"]
    cache = cache_effect(parsed, edited.messages, context.count) if changed else None
    writer = words.writer if went_through else ""
    return replace(
        result,
        receipt=receipt_of(
            result,
            cache=cache,
            writer=writer,
            model=words.model,
            memory=words.memory if went_through else None,
            replaced=replaced,
            pins=pins_json(context.pins, edited.messages),
            losses=dropped_names(parsed, edited.messages) if changed else None,
        )
        | ({"snip": _snip_json(snips, edited.messages)} if snips else {}),
    )


def _placed(edits: Sequence[Edit], context: CompactionContext) -> tuple[Edit, ...]:
    return tuple(replace(edit, index=context.place_of(edit.index)) for edit in edits)


def _snip_json(snips: Sequence[Edit], messages: Messages) -> JsonObject:
    """What a model that named messages wants to know: what it freed, and what marks the gaps."""
    pointers = {pointer for edit in snips for pointer in edit.pointers}
    texts = (text_of(m.blocks) for m in messages if placeholders.is_synthetic(m))
    return {
        "messages": len(snips),
        "tokens_freed": sum(edit.tokens_before - edit.tokens_after for edit in snips),
        "boundary_messages": [t for t in texts if any(f"{p}]" in t for p in pointers)],
    }


def stats_of(
    context: CompactionContext, goal: TokenBudget, plan: Plan, after: Messages | None
) -> CompactionStats:
    """What the hooks are told: before the writer begins (`after` is None), and at the end."""
    cleared = sum(1 for edit in plan.edited.edits if edit.action != "dropped")
    replaced = sum(len(message.blocks) for message in _replaced(plan))
    shown = context.messages if after is None else after
    tokens = goal.before.tokens
    return CompactionStats(
        tokens,
        tokens if after is None else goal.request_count.estimate(after).tokens,
        replaced or cleared,
        sum(1 for message in shown if placeholders.span_replaced_by(message) is not None),
    )


def _replaced(plan: Plan) -> Messages:
    if plan.cut is None:
        return ()
    source = plan.edited.messages
    return (*history_of(source, plan.cut), *turn_prefix_of(source, plan.cut))


def _given_layers(
    parsed: Messages, repaired: Step, count: MessageCounter
) -> tuple[LayerReport, ...]:
    """What was done before any layer ran: repairs, and the leaving out of named messages."""
    snips = [edit for edit in repaired.edits if edit.action == "dropped"]
    left = count.messages(repaired.messages)
    middle = left + sum(edit.tokens_before - edit.tokens_after for edit in snips)
    repairs = len(repaired.edits) - len(snips)
    reports = (
        LayerReport("repair", count.messages(parsed), middle, repairs),
        LayerReport("snip", middle, left, len(snips)),
    )
    return tuple(report for report in reports if report.edit_count)


def _snip_warnings(
    request: CompactRequest, repaired: Step, context: CompactionContext
) -> tuple[str, ...]:
    gone = {edit.index for edit in repaired.edits if edit.action == "dropped"}
    stay = [context.place_of(index) for index in sorted(set(request.snip_messages) - gone)]
    if not stay or request.mode == "record":
        return ()
    return (
        f"Of snip_messages {', '.join(map(str, stay))} stay: the newest request, the newest "
        "message, what is pinned or a rule of the user, a call whose result is still to come, "
        "system messages, and what is no longer than the line that would stand for it.",
    )


def _repair_warnings(edits: Sequence[Edit]) -> tuple[str, ...]:
    notes = (
        f"Message {edit.index}: {edit.note}."
        if edit.index is not None
        else f"A message of an earlier compaction: {edit.note}."
        for edit in edits
        if edit.note
    )
    return tuple(dict.fromkeys(notes))


def _request_warnings(edits: Sequence[Edit]) -> tuple[str, ...]:
    return tuple(
        f"The newest message of the user ({edit.tokens_before} tokens) leaves no room in full: an "
        f"extract of {edit.tokens_after} tokens stands in its place. read_persisted_output has "
        f"the whole at {edit.pointers[0]}."
        for edit in edits
        if edit.layer == "request"
    )


def _with_pointers(edits: Sequence[Edit], context: CompactionContext) -> tuple[Edit, ...]:
    """The edits; one without a pointer of its own gets that of the message as it came in.

    A message of our own making has none: what it stands for is named in it.
    """
    return tuple(
        edit
        if edit.pointers or edit.index is None or context.seqs[edit.index] < 0
        else replace(edit, pointers=(_pointer(context, edit.index),))
        for edit in edits
    )


def _pointer(context: CompactionContext, index: int) -> str:
    seq = context.seqs[index]
    return f"transcript://{context.session_id}/messages/{seq}-{seq}"
