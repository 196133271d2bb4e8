"""The last gate: is the result valid, does it fit, was it worth it? And the answer that says so."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from context_compaction import markers
from context_compaction.compaction import (
    CompactionStats,
    CompactRequest,
    CompactResult,
    LayerReport,
    Mode,
    Piece,
    Status,
)
from context_compaction.cut_point import history_of, turn_prefix_of
from context_compaction.draft import Draft
from context_compaction.edits import Edit, Step
from context_compaction.goal import Goal, limit_tokens, reserve_warnings
from context_compaction.losses import losses_of
from context_compaction.messages import JsonObject, Messages, text_of
from context_compaction.pairing import problems
from context_compaction.pinning import pin_warnings, pins_json
from context_compaction.receipt import (
    boundary_of,
    cache_effect,
    irreducible_pieces,
    receipt_of,
    token_report,
)
from context_compaction.task import Shape, Task
from context_compaction.tokens import MessageCounter
from context_compaction.words import Words


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate decides: the draft that goes out, how it is called, and what to know."""

    draft: Draft
    status: Status
    fits: bool
    warnings: tuple[str, ...]


def judge(
    task: Task, goal: Goal, repaired: Step, draft: Draft, mode: Mode, *, is_repeated: bool = False
) -> Verdict:
    """Let `draft` pass, or fall back to the repaired input and say why.

    Where the call repeats the one that had this very outcome, nothing is wrong with its having
    nothing left to do.
    """
    count = task.count
    is_same = draft.messages is repaired.messages
    if is_same and is_repeated and not repaired.edits:
        fits = _fits(goal, draft.messages, count, "auto")
        warnings = () if fits else (_too_large(task, goal, draft.messages, mode),)
        return Verdict(draft, "unchanged", fits, warnings)
    if is_same:
        return _nothing_done(task, goal, repaired, mode)
    faults = problems(draft.messages, task.rules)
    if faults:
        reason = f"the result would have been refused ({'; '.join(faults[:3])})"
        return _fallback(task, goal, repaired, mode, reason)
    before, after = count.messages(repaired.messages), count.messages(draft.messages)
    fits = _fits(goal, draft.messages, count, mode)
    needed = before * task.settings.min_progress_fraction
    if after >= before and not _fewer_bytes(repaired.messages, draft.messages, count):
        return _fallback(task, goal, repaired, mode, "nothing could be made smaller")
    if not fits and before - after < needed:
        saved = f"{before - after} of {before} tokens could be saved"
        return _fallback(task, goal, repaired, mode, f"only {saved}, and that does not fit")
    warnings = () if fits else (_too_large(task, goal, draft.messages, mode),)
    return Verdict(draft, "compacted", fits, warnings)


def answer(
    payload: Sequence[JsonObject],
    rendered: list[JsonObject],
    *,
    task: Task,
    goal: Goal,
    parsed: Messages,
    repaired: Step,
    shape: Shape,
    verdict: Verdict,
    words: Words,
    format_name: str,
    request: CompactRequest,
) -> CompactResult:
    """The answer of the whole call, with its receipt."""
    draft = verdict.draft
    changed = draft.messages is not parsed
    went_through = verdict.status == "compacted" and shape.cut is not None
    replaced = _replaced(shape) if went_through else ()
    result = CompactResult(
        session_id=task.session_id,
        format=format_name,
        status=verdict.status,
        messages=rendered if changed else list(payload),
        changed=changed,
        fits=verdict.fits,
        tokens=token_report(goal, goal.request_count.estimate(draft.messages), request.mode),
        layers=(*_given_layers(parsed, repaired, task.count), *draft.layers),
        edits=_placed(_with_pointers((*repaired.edits, *draft.edits), task), task),
        boundary=boundary_of(task, shape) if went_through else None,
        restored=tuple(edit.note for edit in draft.edits if edit.action == "restored"),
        irreducible=() if verdict.fits else _pieces(task, goal, draft.messages),
        warnings=(
            *_repair_warnings(_placed(repaired.edits, task)),
            *_snip_warnings(request, repaired, task),
            *verdict.warnings,
            *_request_warnings(draft.edits),
            *words.warnings,
            *reserve_warnings(request, task.settings),
            *pin_warnings(request, task.pins, parsed, draft.messages, was_cut=went_through),
        ),
        summary=summary_of(draft.messages) if went_through else None,
    )
    snips = [edit for edit in repaired.edits if edit.action == "dropped"]
    cache = cache_effect(parsed, draft.messages, task.count) if changed else None
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
            pins=pins_json(task.pins, draft.messages),
            losses=losses_of(parsed, draft.messages) if changed else None,
        )
        | ({"snip": _snip_json(snips, draft.messages)} if snips else {}),
    )


def _snip_json(snips: Sequence[Edit], messages: Messages) -> JsonObject:
    """What a model that named messages wants to know: what it freed, and what marks the gaps."""
    pointers = {pointer for edit in snips for pointer in edit.pointers}
    texts = (text_of(m.blocks) for m in messages if markers.is_made(m))
    return {
        "messages": len(snips),
        "tokens_freed": sum(edit.tokens_before - edit.tokens_after for edit in snips),
        "boundary_messages": [t for t in texts if any(f"{p}]" in t for p in pointers)],
    }


def stats_of(task: Task, goal: Goal, shape: Shape, after: Messages | None) -> CompactionStats:
    """What the hooks are told: before the writer begins (`after` is None), and at the end."""
    cleared = sum(1 for edit in shape.draft.edits if edit.action != "dropped")
    replaced = sum(len(message.blocks) for message in _replaced(shape))
    shown = task.messages if after is None else after
    tokens = goal.before.tokens
    return CompactionStats(
        tokens,
        tokens if after is None else goal.request_count.estimate(after).tokens,
        replaced or cleared,
        sum(1 for message in shown if markers.span_of(message) is not None),
    )


def summary_of(messages: Messages) -> str | None:
    """The texts of the summaries and checkpoints of ours in `messages`; None without any."""
    texts = [text_of(m.blocks) for m in messages if markers.span_of(m) is not None]
    return "\n".join(texts) or None


def _nothing_done(task: Task, goal: Goal, repaired: Step, mode: Mode) -> Verdict:
    fits = _fits(goal, repaired.messages, task.count, mode)
    draft = Draft(repaired.messages)
    warnings = () if fits else (_too_large(task, goal, repaired.messages, mode),)
    if repaired.edits:
        return Verdict(draft, "repaired", fits, warnings)
    if mode == "record" or (fits and mode not in ("full", "micro")):
        return Verdict(draft, "unchanged", fits, warnings)
    return _fallback(task, goal, repaired, mode, "there is nothing left to clear or to summarise")


def _fallback(task: Task, goal: Goal, repaired: Step, mode: Mode, reason: str) -> Verdict:
    fits = _fits(goal, repaired.messages, task.count, mode)
    warnings = [f"No progress: {reason}. The conversation comes back as it came, repairs aside."]
    if not fits:
        warnings.append(_too_large(task, goal, repaired.messages, mode))
    return Verdict(Draft(repaired.messages), "no_progress", fits, tuple(warnings))


def _fits(goal: Goal, messages: Messages, count: MessageCounter, mode: Mode) -> bool:
    if not messages:
        return True
    total_bytes = count.request_bytes(messages)
    return (
        goal.request_count.estimate(messages).upper <= limit_tokens(goal, mode)
        and total_bytes <= goal.limits.bytes
    )


def _fewer_bytes(before: Messages, after: Messages, count: MessageCounter) -> bool:
    return count.request_bytes(after) < count.request_bytes(before) * 0.99


def _too_large(task: Task, goal: Goal, messages: Messages, mode: Mode) -> str:
    upper = goal.request_count.estimate(messages).upper
    limit = limit_tokens(goal, mode)
    wanted = f"It does not fit: up to {upper} tokens where {limit} were wanted. "
    if mode in ("micro", "record"):
        return f"{wanted}Mode {mode} replaces no history: choose auto or full."
    if not task.policy.replaces_history:
        return f"{wanted}Policy {task.policy.name} replaces no history: choose another."
    pieces = _pieces(task, goal, messages)[:3]
    named = ", ".join(f"{piece.description} ({piece.tokens} tokens)" for piece in pieces)
    return (
        f"{wanted}What is left cannot be made smaller: {named}. Raise the target, or shorten these."
    )


def _replaced(shape: Shape) -> Messages:
    if shape.cut is None:
        return ()
    source = shape.draft.messages
    return (*history_of(source, shape.cut), *turn_prefix_of(source, shape.cut))


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


def _snip_warnings(request: CompactRequest, repaired: Step, task: Task) -> tuple[str, ...]:
    gone = {edit.index for edit in repaired.edits if edit.action == "dropped"}
    stay = [task.place_of(index) for index in sorted(set(request.snip_messages) - gone)]
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


def _pieces(task: Task, goal: Goal, messages: Messages) -> tuple[Piece, ...]:
    pieces = irreducible_pieces(messages, goal, task.count)
    return tuple(replace(piece, index=task.place_of(piece.index)) for piece in pieces)


def _placed(edits: Sequence[Edit], task: Task) -> tuple[Edit, ...]:
    return tuple(replace(edit, index=task.place_of(edit.index)) for edit in edits)


def _request_warnings(edits: Sequence[Edit]) -> tuple[str, ...]:
    return tuple(
        f"The newest message of the user ({edit.tokens_before} tokens) leaves no room in full: an "
        f"extract of {edit.tokens_after} tokens stands in its place. read_persisted_output has "
        f"the whole at {edit.pointers[0]}."
        for edit in edits
        if edit.layer == "request"
    )


def _with_pointers(edits: Sequence[Edit], task: Task) -> tuple[Edit, ...]:
    """The edits; one without a pointer of its own gets that of the message as it came in.

    A message of our own making has none: what it stands for is named in it.
    """
    return tuple(
        edit
        if edit.pointers or edit.index is None or task.seqs[edit.index] < 0
        else replace(edit, pointers=(_pointer(task, edit.index),))
        for edit in edits
    )


def _pointer(task: Task, index: int) -> str:
    seq = task.seqs[index]
    return f"transcript://{task.session_id}/messages/{seq}-{seq}"
