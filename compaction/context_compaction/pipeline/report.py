"""The outcome of a call: its `CompactResult`, its receipt as JSON, its commit. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from context_compaction import formats
from context_compaction.activity.digest import digest
from context_compaction.activity.read_state import changed_warning
from context_compaction.budget import limit_tokens, reserve_warnings, usage_warnings, window_of
from context_compaction.context import CompactionContext, Plan, ReceivedInput, SummaryText, span_of
from context_compaction.formats.list_cache import as_given
from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, first_difference
from context_compaction.messages.history_hash import HEAD_CHARS, history_hash
from context_compaction.messages.model import JsonObject, Message, Messages, text_of
from context_compaction.messages.speakers import unproven_summary_warning
from context_compaction.pipeline.collect_pins import pin_warnings, pins_json
from context_compaction.pipeline.kept import is_of_request
from context_compaction.pipeline.losses import dropped_names
from context_compaction.pipeline.originals import carried_on
from context_compaction.pipeline.validate import placed_pieces
from context_compaction.redaction import count_secrets, secret_values
from context_compaction.result import (
    Boundary,
    CompactionStats,
    CompactResult,
    LayerReport,
    SummaryPrompt,
    TokenReport,
)
from context_compaction.session.earlier_calls import Decision
from context_compaction.session.resume import Session
from context_compaction.session.save import CarriedOn, Finished, ToSave, prepared_result, to_save
from context_compaction.session.state import PreparedList
from context_compaction.tokens.counter import Estimate, MessageCounter


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call.

    Attributes:
        result: The caller's result, returned once `to_save` is durable.
        to_save: What `result` rests on; None with the mode "plan".
        stats: The hooks' argument; None where nothing was to be compacted.
    """

    result: CompactResult
    to_save: ToSave | None = None
    stats: CompactionStats | None = None


def report(done: Finished, secrets: JsonObject | None) -> Outcome:
    """The outcome of a call; `secrets` says how many each gate met, None for none."""
    session, context, plan = done.session, done.context, done.decision.plan
    messages, request = done.messages, context.request
    render = formats.FORMATS[context.format].render_message
    rendered: list[list[JsonObject]] = []
    if messages is not context.parsed:
        rendered = [as_given(m, render(m), session.payload) for m in messages]
    result = _result(done, [raw for raws in rendered for raw in raws], secrets)
    result, reactive = _with_rejections(result, session)
    more: JsonObject = {} if secrets is None else {"redaction": secrets}
    more |= {} if reactive is None else {"reactive": reactive}
    if session.applied is not None and result.status == "compacted":
        kept = session.applied[0]
        result = _applied(result, done, kept)
        more |= {"applied": kept.prepared_id}
        more |= {name: kept.report[name] for name in ("writer", "digest")}
    result = replace(result, receipt=_receipt(result, done) | more)
    if request.mode == "plan":
        result = _as_it_came(result, session, context)
        status = "planned" if result.status in ("repaired", "compacted") else result.status
        receipt = result.receipt | {"status": status}
        result = replace(result, status=status, changed=False, receipt=receipt)
        return Outcome(replace(result, messages=list(done.given.payload)))
    prepared: PreparedList | None = None
    if request.prepare:
        result, prepared = prepared_result(done, result, rendered)
    carried: CarriedOn = {}, ()
    if result.changed or prepared is not None:
        parent = session.appended.parent_session_id
        placed = {"head": session.history[:HEAD_CHARS], "parent_session_id": parent}
        result = replace(result, receipt=result.receipt | placed)
        carried = carried_on(context, plan, done.decision.archived, messages, session.all_states)
    saved = to_save(done, result, rendered, prepared, carried)
    result = _as_it_came(result, session, context)
    return Outcome(result, saved, stats_of(context, plan, messages) if plan.acts else None)


def _applied(result: CompactResult, done: Finished, kept: PreparedList) -> CompactResult:
    """`result` of the swap, with what was recorded when it was prepared."""
    warnings, boundary = result.warnings, kept.report["boundary"]
    if not result.fits:
        said = (
            "What came since leaves the list above its target. Compact it once more without apply."
        )
        warnings = (*(w for w in warnings if w not in done.validation.warnings), said)
    return replace(
        result,
        boundary=Boundary(**boundary) if boundary else None,
        summary=placeholders.summary_of(done.messages) if boundary else None,
        irreducible=(),
        warnings=warnings,
    )


def _as_it_came(
    result: CompactResult, session: Session, context: CompactionContext
) -> CompactResult:
    """`result`, compared with the list that came in, not with what replaces its beginning."""
    recognised = session.recognised
    if recognised is None or result.changed or context.request.prepare:
        return result
    made = context.messages[: recognised.context_count]
    status = "compacted" if result.status == "unchanged" else result.status
    return replace(
        result,
        status=status,
        messages=list(session.payload),
        changed=True,
        boundary=_boundary_in(made, context),
        summary=placeholders.summary_of(made),
        receipt={**result.receipt, "status": status},
    )


def _boundary_in(made: Messages, context: CompactionContext) -> Boundary | None:
    """The boundary of the history that the summaries among `made` replace."""
    spans = [
        (at, span)
        for at, message in enumerate(made)
        if (span := placeholders.span_replaced_by(message)) is not None
    ]
    if not spans:
        return None
    whole = placeholders.Span(
        context.session_id,
        min(span.start_seq for _, span in spans),
        max(span.stop_seq for _, span in spans),
    )
    places = (context.place_of(at) for at in range(spans[-1][0] + 1, len(context.seqs) + 1))
    first_kept = next(place for place in places if place is not None)
    is_split = any(placeholders.summary_text(made[at]) is None for at, _ in spans)
    return Boundary(first_kept, whole.start_seq, whole.stop_seq, is_split, whole.pointer)


def _with_rejections(
    result: CompactResult, session: Session
) -> tuple[CompactResult, JsonObject | None]:
    """`result`, with "no_progress" if the provider rejected it before; and what the receipt says.

    That is None if nothing was rejected.
    """
    rejections, warnings = session.rejections, result.warnings
    if not rejections.key:
        return result, None
    gives = history_hash(result.messages) if result.changed else None
    reactive = {
        "request": rejections.key,
        "result": gives,
        "result_tokens": result.tokens.after,
        "versions": rejections.versions,
    }
    if gives in rejections.rejected or rejections.is_spent:
        why = "No progress: the provider has refused what is left as well."
        if rejections.is_spent:
            why = (
                f"No progress: reactive_retries is {rejections.max_retries}, and this request was "
                "compacted so often."
            )
        before, warnings, reactive["result"] = result.tokens, (*warnings, why), None
        result = replace(
            result, status="no_progress", messages=list(session.payload), changed=False, fits=False,
            edits=(), boundary=None, restored=(), summary=None,
            tokens=replace(before, after=before.before, upper=before.before_upper),
        )  # fmt: skip
    if result.status == "no_progress":
        warnings = (
            *warnings,
            f"The provider has refused {rejections.versions} versions of this request. Do not send "
            "it again as it is: shorten what cannot be made smaller, or begin a new conversation.",
        )
    return replace(result, warnings=warnings), reactive


def needs_summary(
    given: ReceivedInput, context: CompactionContext, prompt: SummaryPrompt
) -> CompactResult:
    """The outcome that requests a summary of the host; nothing but the originals was written."""
    tokens = token_report(context, context.budget.before)
    return CompactResult(
        session_id=context.session_id,
        format=context.format,
        status="needs_summary",
        messages=list(given.payload),
        changed=False,
        fits=tokens.upper <= tokens.limit,
        tokens=tokens,
        summary_prompt=prompt,
    )


def token_report(context: CompactionContext, after: Estimate) -> TokenReport:
    """The figures of one call."""
    budget = context.budget
    return TokenReport(
        budget.before.tokens,
        budget.before.upper,
        after.tokens,
        after.upper,
        budget.trigger_tokens,
        budget.target_tokens,
        limit_tokens(budget, context.request.mode),
        budget.before.method,
    )


def _boundary_of(context: CompactionContext, plan: Plan, cut: CutPoint) -> Boundary:
    """The place of the summary."""
    span = span_of(context, plan.replaced)
    kept = plan.edited.messages[cut.first_kept :]
    places = (context.place_of(message.index) for message in kept)
    end = context.place_of(len(context.seqs)) or 0
    first_kept = next((place for place in places if place is not None), end)
    is_split = cut.request_at is not None
    return Boundary(first_kept, span.start_seq, span.stop_seq, is_split, span.pointer)


def _result(done: Finished, raws: list[JsonObject], secrets: JsonObject | None) -> CompactResult:
    """The answer of the call, without its receipt."""
    session, context, plan = done.session, done.context, done.decision.plan
    validation, edited, parsed = done.validation, done.validation.edited, context.parsed
    changed = edited.messages is not parsed
    cut = plan.cut if validation.status == "compacted" else None
    return CompactResult(
        session_id=context.session_id,
        format=context.format,
        status=validation.status,
        messages=raws if changed else list(session.payload),
        changed=changed,
        fits=validation.fits,
        tokens=token_report(context, context.request_count.estimate(edited.messages)),
        layers=(*_given_layers(context), *edited.layers),
        edits=_placed(_with_pointers((*context.repairs, *edited.edits), context), context),
        boundary=_boundary_of(context, plan, cut) if cut else None,
        restored=tuple(edit.note for edit in edited.edits if edit.action == "restored"),
        irreducible=() if validation.fits else placed_pieces(context, edited.messages),
        warnings=_present(
            *_repair_warnings(_placed(context.repairs, context)),
            *_snip_warnings(context),
            *validation.warnings,
            *_request_warnings(edited.edits),
            *done.words.warnings,
            *reserve_warnings(context.request, context.settings),
            *usage_warnings(context.request_count),
            *pin_warnings(
                context.request, context.pins, parsed, edited.messages, was_cut=cut is not None
            ),
            unproven_summary_warning(context.messages),
            changed_warning(done.decision.files.states),
            *_secret_warnings(secrets),
        ),
        summary=placeholders.summary_of(edited.messages) if cut else None,
        recognised=session.recognised,
    )


def _present(*warnings: str | None) -> tuple[str, ...]:
    return tuple(filter(None, warnings))


def _receipt(result: CompactResult, done: Finished) -> JsonObject:
    """The receipt as it is archived: everything except the messages."""
    context, replaced, messages = done.context, done.decision.plan.replaced, done.messages
    parsed, words, is_cut = context.parsed, done.words, result.boundary is not None
    receipt: JsonObject = {
        "session_id": result.session_id,
        "format": result.format,
        "status": result.status,
        "fits": result.fits,
        "tokens": asdict(result.tokens),
        "layers": [asdict(layer) for layer in result.layers],
        "edits": [asdict(edit) | {"pointers": list(edit.pointers)} for edit in result.edits],
        "boundary": asdict(result.boundary) if result.boundary else None,
        "restored": list(result.restored),
        "irreducible": [asdict(piece) for piece in result.irreducible],
        "warnings": list(result.warnings),
        "context_window": window_of(context.request),
        "cache": _cache_effect(parsed, messages, context.count) if result.changed else None,
        "writer": words.writer if is_cut else None,
        "model": words.model,
        "memory_used": words.memory if is_cut else None,
        "pins": pins_json(context.pins, messages),
    }
    # A list that becomes nobody's context can be compared here alone; see `read_losses`.
    if result.changed and (context.request.mode == "plan" or context.request.prepare):
        receipt["losses"] = dropped_names(parsed, messages).as_json()
    if is_cut and replaced:
        receipt["digest"] = digest(replaced).as_json()
    if snips := _snips(context):
        receipt["snip"] = _snip_json(snips, messages)
    if result.recognised is not None:
        receipt["recognised"] = asdict(result.recognised)
    return receipt


def _cache_effect(before: Messages, after: Messages, count: MessageCounter) -> JsonObject:
    """What the change costs the provider's prompt cache, which is good up to `first_changed`."""
    first = first_difference(before, after)
    return {
        "first_changed": first,
        "rebilled_tokens": count.total(after[first:]),
        "saved_tokens": count.messages(before) - count.messages(after),
    }


def _placed(edits: Sequence[Edit], context: CompactionContext) -> tuple[Edit, ...]:
    return tuple(replace(edit, index=context.place_of(edit.index)) for edit in edits)


def _snips(context: CompactionContext) -> list[Edit]:
    """The edits that left out messages which the request names."""
    return [edit for edit in context.repairs if edit.action == "dropped"]


def _snip_json(snips: Sequence[Edit], messages: Messages) -> JsonObject:
    """For a model that named messages: what they freed, and the marks of the gaps."""
    pointers = {pointer for edit in snips for pointer in edit.pointers}
    texts = (text_of(m.blocks) for m in messages if placeholders.is_synthetic(m))
    return {
        "messages": len(snips),
        "tokens_freed": sum(edit.tokens_before - edit.tokens_after for edit in snips),
        "boundary_messages": [t for t in texts if any(f"{p}]" in t for p in pointers)],
    }


def stats_of(context: CompactionContext, plan: Plan, after: Messages | None) -> CompactionStats:
    """The hooks' argument: before the writer begins (`after` is None), and at the end."""
    cleared = sum(1 for edit in plan.edited.edits if edit.action != "dropped")
    replaced = sum(len(message.blocks) for message in plan.replaced)
    shown = context.messages if after is None else after
    tokens = context.budget.before.tokens
    return CompactionStats(
        tokens,
        tokens if after is None else context.request_count.estimate(after).tokens,
        replaced or cleared,
        sum(1 for message in shown if placeholders.span_replaced_by(message) is not None),
    )


def _given_layers(context: CompactionContext) -> tuple[LayerReport, ...]:
    """The reports of edits before any layer ran: repairs, and the removal of named messages."""
    count = context.count
    snips = _snips(context)
    left = count.messages(context.messages)
    middle = left + sum(edit.tokens_before - edit.tokens_after for edit in snips)
    repairs = len(context.repairs) - len(snips)
    reports = (
        LayerReport("repair", count.messages(context.parsed), middle, repairs),
        LayerReport("snip", middle, left, len(snips)),
    )
    return tuple(report for report in reports if report.edit_count)


def _snip_warnings(context: CompactionContext) -> tuple[str, ...]:
    request = context.request
    gone = {edit.index for edit in _snips(context)}
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
        f"The newest request ({edit.tokens_before} tokens) leaves too little room in full: an "
        f"extract of {edit.tokens_after} tokens stands in its place. read_persisted_output has "
        f"the whole at {edit.pointers[0]}."
        for edit in edits
        if is_of_request(edit)
    )


def _with_pointers(edits: Sequence[Edit], context: CompactionContext) -> tuple[Edit, ...]:
    """The edits; one without a pointer of its own gets that of the message as it came in.

    A message of our own making has none: it names what it replaces.
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


def redaction_report(
    context: CompactionContext,
    given: Messages,
    session: Session,
    decision: Decision,
    words: SummaryText,
) -> JsonObject | None:
    """For the receipt: the mode, and how many secrets of each kind each gate met; None if none.

    The archive itself removes them from what it keeps; here what a writer is shown and what we put
    into the context is searched. With "warn" nothing is changed, and everything is counted.
    """
    mode, originals, appended = context.gates.mode, decision.originals, session.appended
    if mode == "off":
        return None
    newest = sorted(range(len(given)), key=lambda at: appended.seqs[at])
    found = {
        "archived": _counted([given[at] for at in newest[len(newest) - appended.written :]]),
        "shown": _counted((*originals.history.messages, *originals.prefix.messages)),
        "summary": count_secrets((words.summary, words.checkpoint)),
    }
    if not any(found.values()):
        return None
    return {"mode": mode, **{gate: dict(kinds) for gate, kinds in found.items()}}


def _secret_warnings(secrets: JsonObject | None) -> tuple[str, ...]:
    if secrets is None or secrets["mode"] != "warn" or not secrets["archived"]:
        return ()
    kinds: Mapping[str, int] = secrets["archived"]
    told = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
    return (
        f"What looks like {sum(kinds.values())} secrets was archived as it stands: {told}. "
        "With redaction on, they are taken out.",
    )


def _counted(messages: Sequence[Message]) -> Mapping[str, int]:
    """How many different secrets of each kind each message holds, all together."""
    return Counter(kind for m in messages for kind in secret_values(m.source).values())
