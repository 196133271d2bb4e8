"""The outcome of a call: its result, its receipt, and its commit."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from context_compaction import formats
from context_compaction.activity.digest import digest
from context_compaction.activity.known_file import changed_warning
from context_compaction.budget import margin_warnings, reserve_warnings, window_of
from context_compaction.compaction_state import PreparedList
from context_compaction.context import CompactionContext, Finished, Plan
from context_compaction.formats import as_given
from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Edit,
    JsonObject,
    Message,
    Messages,
    first_difference,
    text_of,
)
from context_compaction.messages.raw import HEAD_CHARS
from context_compaction.messages.speakers import unproven_summary_warning
from context_compaction.pipeline.assemble import irreducible_pieces
from context_compaction.pipeline.collect_pins import pin_warnings, pins_json
from context_compaction.pipeline.dropped_names import dropped_names
from context_compaction.pipeline.shorten import is_of_request
from context_compaction.policies import policy_named
from context_compaction.redaction import count_secrets, secret_values
from context_compaction.result import Boundary, CompactionStats, CompactResult, SummaryPrompt
from context_compaction.session.save import Commit, make_commit, prepared_result, rejection_of
from context_compaction.tokens.counter import MessageCounter

# Comparing two lists takes 0.1 s of CPU for 2,000 messages (measured).
_LONG_LIST_MESSAGES = 5_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call.

    Attributes:
        result: The caller's result, returned once `commit` is durable.
        commit: What must be saved; None for nothing.
        stats: The argument of the hooks; None if nothing was compacted.
    """

    result: CompactResult
    commit: Commit | None = None
    stats: CompactionStats | None = None


def report(done: Finished, secrets: JsonObject | None) -> Outcome:
    """Return the outcome of a call; `secrets` is the result of `redaction_report`."""
    context, plan, messages = done.context, done.plan, done.messages
    session, request = context.session, context.request
    render = formats.FORMATS[context.format].render_message
    rendered: list[list[JsonObject]] = []
    if messages is not context.parsed:
        rendered = [as_given(m, render(m), session.payload) for m in messages]
    result = _result(done, [raw for raws in rendered for raw in raws], secrets)
    more: JsonObject = {} if secrets is None else {"redaction": secrets}
    if session.rejections.key:
        more["reactive"] = asdict(rejection_of(result, session))
        more["reactive"]["versions"] = session.rejections.versions
    if session.applied is not None and result.status == "compacted":
        prepared = session.applied[0]
        result = _with_prepared_report(result, done, prepared)
        more |= {"applied": prepared.prepared_id}
        more |= {name: prepared.report[name] for name in ("writer", "digest")}
    result = replace(result, receipt=_receipt(result, done) | more)
    if request.mode == "plan":
        result = _against_given_list(replace(result, draft=done.words.prose or None), context)
        is_planned = result.status in ("repaired", "compacted")
        status = "planned" if is_planned else result.status
        return Outcome(result.with_given_list(status, session.given.payload))
    stored_list: PreparedList | None = None
    if request.prepare:
        result, stored_list = prepared_result(done, result, rendered)
    if result.changed or stored_list is not None:
        place = {
            "head": session.history[:HEAD_CHARS],
            "parent_session_id": session.appended.parent_session_id,
        }
        result = replace(result, receipt=result.receipt | place)
    commit = make_commit(done, result, rendered, stored_list)
    stats = stats_of(context, plan, messages) if plan.acts else None
    return Outcome(_against_given_list(result, context), commit, stats)


def _with_prepared_report(
    result: CompactResult, done: Finished, prepared: PreparedList
) -> CompactResult:
    """Return `result` of applying a prepared list, with the report of its preparation."""
    warnings, boundary = result.warnings, prepared.report["boundary"]
    if not result.fits:
        warning = "With newer messages the list is above its target. Compact it without apply."
        other_warnings = (w for w in warnings if w not in done.validation.warnings)
        warnings = (*other_warnings, warning)
    return replace(
        result,
        boundary=Boundary(**boundary) if boundary else None,
        summary=placeholders.summary_of(done.messages) if boundary else None,
        irreducible=(),
        warnings=warnings,
    )


def _against_given_list(result: CompactResult, context: CompactionContext) -> CompactResult:
    """Return `result` compared with the caller's list instead of the session's list."""
    session = context.session
    recognised = session.recognised
    if recognised is None or result.changed or context.request.prepare:
        return result
    earlier = context.messages[: recognised.context_count]
    status = "compacted" if result.status == "unchanged" else result.status
    return replace(
        result,
        status=status,
        messages=list(session.payload),
        changed=True,
        boundary=_earlier_boundary(earlier, context),
        summary=placeholders.summary_of(earlier),
        receipt={**result.receipt, "status": status},
    )


def _earlier_boundary(messages: Messages, context: CompactionContext) -> Boundary | None:
    """Return the boundary of the history that the summaries among `messages` replace."""
    spans = [
        (index, span)
        for index, message in enumerate(messages)
        if (span := placeholders.span_replaced_by(message)) is not None
    ]
    if not spans:
        return None
    session = context.session
    span = placeholders.Span(
        session.session_id,
        min(span.start_seq for _, span in spans),
        max(span.stop_seq for _, span in spans),
    )
    later = range(spans[-1][0] + 1, len(session.seqs) + 1)
    first_index = next(at for at in map(session.input_index, later) if at is not None)
    is_split = any(placeholders.summary_text(messages[index]) is None for index, _ in spans)
    return Boundary(first_index, span.start_seq, span.stop_seq, is_split, span.pointer)


def needs_summary(context: CompactionContext, prompt: SummaryPrompt) -> CompactResult:
    """Return the result that asks the host for a summary; only the originals were written."""
    tokens = context.budget.report(context.budget.before, context.request.mode)
    return CompactResult(
        session_id=context.session.session_id,
        format=context.format,
        status="needs_summary",
        messages=list(context.session.given.payload),
        changed=False,
        fits=tokens.upper <= tokens.limit,
        tokens=tokens,
        summary_prompt=prompt,
    )


def _boundary_of(context: CompactionContext, plan: Plan, cut: CutPoint) -> Boundary:
    """Return the place of the summary."""
    session, span = context.session, context.span_of(plan.replaced)
    indices = (message.index for message in plan.edited.messages[cut.first_kept :])
    end = session.input_index(len(session.seqs)) or 0
    first_index = next((at for at in map(session.input_index, indices) if at is not None), end)
    is_split = cut.request_at is not None
    return Boundary(first_index, span.start_seq, span.stop_seq, is_split, span.pointer)


def _result(done: Finished, raws: list[JsonObject], secrets: JsonObject | None) -> CompactResult:
    """Return the result of the call, without its receipt."""
    context, validation = done.context, done.validation
    edited, session = validation.edited, context.session
    changed = edited.messages is not context.parsed
    cut = done.plan.cut if validation.status == "compacted" else None
    return CompactResult(
        session_id=session.session_id,
        format=context.format,
        status=validation.status,
        messages=raws if changed else list(session.payload),
        changed=changed,
        fits=validation.fits,
        tokens=context.budget.report(
            context.request_count.estimate(edited.messages), context.request.mode
        ),
        layers=(*context.start.layers, *edited.layers),
        edits=_shown(context, (*context.start.edits, *edited.edits)),
        boundary=_boundary_of(context, done.plan, cut) if cut else None,
        restored=tuple(edit.note for edit in edited.edits if edit.action == "restored"),
        irreducible=() if validation.fits else irreducible_pieces(context, edited.messages),
        warnings=_warnings(done, secrets, was_cut=cut is not None),
        summary=placeholders.summary_of(edited.messages) if cut else None,
        recognised=session.recognised,
    )


def _warnings(done: Finished, secrets: JsonObject | None, *, was_cut: bool) -> tuple[str, ...]:
    context, edited, files = done.context, done.validation.edited, done.plan.files
    warnings = (
        *context.session.given.warnings,
        *_repair_warnings(_shown(context, context.start.edits)),
        *_snip_warnings(context),
        *_range_warnings(context, done.plan),
        *done.validation.warnings,
        *_request_warnings(edited.edits),
        *done.words.warnings,
        *reserve_warnings(context.request, context.settings, context.budget.trigger_tokens),
        *context.request_count.warnings,
        *(margin_warnings(context.request, context.count.method) if was_cut else ()),
        *pin_warnings(
            context.request, context.pins, context.parsed, edited.messages, was_cut=was_cut
        ),
        unproven_summary_warning(context.messages),
        changed_warning(files.states) if files.states else None,
        *_secret_warnings(secrets, is_plan=done.context.request.mode == "plan"),
    )
    return tuple(filter(None, warnings))


def _receipt(result: CompactResult, done: Finished) -> JsonObject:
    """Return the receipt: everything in the result except the messages."""
    context, replaced, messages = done.context, done.plan.replaced, done.messages
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
        "policy": policy_named(context.request.policy).name,
        "counted_for": context.request.model,
        "cache": _cache_effect(parsed, messages, context.count) if result.changed else None,
        "writer": words.writer if is_cut else None,
        "model": words.model,
        "memory_used": words.memory if is_cut else None,
        "pins": pins_json(context.pins, messages),
    }
    # A list that becomes no stored context can only be compared here; see `read_dropped_names`. For
    # very long lists a later comparison would make readers wait for seconds.
    is_unstored = context.request.mode == "plan" or bool(context.request.prepare)
    if result.changed and (is_unstored or len(parsed) > _LONG_LIST_MESSAGES):
        receipt["losses"] = dropped_names(parsed, messages)
    if is_cut and replaced:
        receipt["digest"] = digest(replaced).as_json()
    if snips := _snips(context):
        receipt["snip"] = _snip_json(snips, messages)
    if is_cut and context.request.range is not None:
        receipt["range"] = _replaced_range(context, done.plan)
    if result.recognised is not None:
        receipt["recognised"] = asdict(result.recognised)
    return receipt


def _cache_effect(before: Messages, after: Messages, count: MessageCounter) -> JsonObject:
    """Return the cost for the prompt cache, which is valid up to the first changed message."""
    first = first_difference(before, after)
    return {
        "first_changed": first,
        "rebilled_tokens": count.total(after[first:]),
        "saved_tokens": count.messages(before) - count.messages(after),
    }


def _snips(context: CompactionContext) -> list[Edit]:
    """Return the edits that removed messages which the request snips."""
    return [edit for edit in context.start.edits if edit.action == "dropped"]


def _snip_json(snips: Sequence[Edit], messages: Messages) -> JsonObject:
    """Return the freed tokens and the lines in place of snipped messages."""
    pointers = {pointer for edit in snips for pointer in edit.pointers}
    texts = (text_of(m.blocks) for m in messages if placeholders.is_synthetic(m))
    return {
        "messages": len(snips),
        "tokens_freed": sum(edit.tokens_before - edit.tokens_after for edit in snips),
        "boundary_messages": [t for t in texts if any(f"{p}]" in t for p in pointers)],
    }


def stats_of(context: CompactionContext, plan: Plan, after: Messages | None) -> CompactionStats:
    """Return the argument of the hooks; `after` is None before the writer starts."""
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


def _snip_warnings(context: CompactionContext) -> tuple[str, ...]:
    request = context.request
    removed = {edit.index for edit in _snips(context)}
    protected = sorted(set(request.snip_messages) - removed)
    if not protected or request.mode == "record":
        return ()
    names = ", ".join(str(context.session.input_index(index)) for index in protected)
    return (
        f"These snip_messages stay: {names}. The newest request, the newest message, pinned texts, "
        "rules of the user, calls without a result, system messages, and messages shorter than "
        "the line in their place cannot be snipped.",
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
        f"The newest request ({edit.tokens_before} tokens) was replaced by an extract of "
        f"{edit.tokens_after} tokens, because the target has no room for all of it. "
        f"read_persisted_output returns the full request at {edit.pointers[0]}."
        for edit in edits
        if is_of_request(edit)
    )


def _shown(context: CompactionContext, edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Return `edits` with indices in the caller's list, each with a pointer to its original."""
    session = context.session

    def shown(edit: Edit) -> Edit:
        seq, pointers = -1 if edit.index is None else session.seqs[edit.index], edit.pointers
        if not pointers and seq >= 0:
            pointers = (f"transcript://{session.session_id}/messages/{seq}-{seq}",)
        return replace(edit, index=session.input_index(edit.index), pointers=pointers)

    return tuple(map(shown, edits))


def redaction_report(context: CompactionContext, plan: Plan) -> JsonObject | None:
    """Return how many secrets of each kind each gate met, for the receipt; None if none.

    The archive itself removes secrets from new messages. This counts them there, in the writer's
    input, and in the summary. The mode "warn" changes nothing.
    """
    mode, session = context.gates.mode, context.session
    if mode == "off":
        return None
    given, appended = session.given.messages, session.appended
    by_seq = sorted(range(len(given)), key=lambda index: appended.seqs[index])
    new = [given[index] for index in by_seq[len(by_seq) - appended.written :]]
    found = {
        "archived": _count_secrets(new),
        "shown": _count_secrets(plan.originals().messages),
        "summary": count_secrets((plan.summary, plan.checkpoint)),
    }
    if not any(found.values()):
        return None
    return {"mode": mode, **{gate: dict(kinds) for gate, kinds in found.items()}}


def _secret_warnings(secrets: JsonObject | None, *, is_plan: bool) -> tuple[str, ...]:
    if secrets is None or secrets["mode"] != "warn" or not secrets["archived"]:
        return ()
    kinds: Mapping[str, int] = secrets["archived"]
    names = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
    action = "A compaction archives" if is_plan else "This call archived"
    return (f"{action} possible secrets unchanged: {names}. Turn redaction on to remove them.",)


def _count_secrets(messages: Sequence[Message]) -> Mapping[str, int]:
    """Return the number of different secrets of each kind in each message, added up."""
    return Counter(kind for m in messages for kind in secret_values(m.source).values())


def _range_warnings(context: CompactionContext, plan: Plan) -> tuple[str, ...]:
    """Return a warning if other messages than the caller's were summarized."""
    asked = context.session.given.request.range
    if asked is None:
        return ()
    done = _replaced_range(context, plan)
    if done == asked:
        return ()
    names = f"messages {asked[0]} to {asked[1]}"
    if done is None:
        return (
            f"Nothing of {names} was summarized: an earlier compaction has replaced them, or their "
            "calls have no results yet.",
        )
    return (
        f"Messages {done[0]} to {done[1]} were summarized instead of {names}, so that calls stay "
        "with their results, and the newest request and earlier summaries stay.",
    )


def _replaced_range(context: CompactionContext, plan: Plan) -> tuple[int, int] | None:
    """Return the first and last index, in the caller's list, of the summarized messages."""
    indices = (context.session.input_index(message.index) for message in plan.replaced)
    known = [index for index in indices if index is not None]
    return (min(known), max(known)) if plan.cut is not None and known else None
