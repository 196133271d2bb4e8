"""What a call does to its list: which mode, what is cleared, and one greedy fill of the target.

First the mode decides whether history may be replaced. Where clearing is not enough, everything
that was said or done competes for the target: `fill` buys the cheapest pieces. The newest run of
messages in which everything has something bought stays as messages; what was bought of all before
it is the text of the summary; files come back in a message of their own. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from context_compaction.activity.files import holds_secrets, unsure_note
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    SummaryText,
)
from context_compaction.file_access import DiskFile
from context_compaction.layers.cut_point import CutPoint, history_of
from context_compaction.layers.restore import CHANGED
from context_compaction.messages import placeholders
from context_compaction.messages.model import JsonObject, Message
from context_compaction.messages.pins import carried_by
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_pairs import runs, safe_cuts
from context_compaction.messages.tool_results import newest_results
from context_compaction.pipeline.assemble import assemble, cut_at, fits, own_cut
from context_compaction.pipeline.clear import (
    below_trigger,
    collapsed,
    gentle_level,
    plan_by_clearing,
)
from context_compaction.pipeline.kept import DERIVED, with_bought
from context_compaction.pipeline.originals import (
    Archived,
    Read,
    originals_of,
    parsed_originals,
    span_of_ours,
)
from context_compaction.pipeline.summarize import (
    asks_model,
    brings_text,
    extracts,
    prose_texts,
    summary_to_record,
)
from context_compaction.session.earlier_calls import (
    Decision,
    FilesInWork,
    SummaryMatch,
    checked_files,
    summary_that_reaches,
)
from context_compaction.session.resume import Session
from context_compaction.session.save import applied_plan
from context_compaction.summarizers.extractive.collect import FileItem, Item, Record, collect
from context_compaction.summarizers.extractive.fill import HEAD_TOKENS, fill, orders_of
from context_compaction.summarizers.extractive.focus import mark_focus
from context_compaction.summarizers.extractive.paragraphs import LEFT_OUT
from context_compaction.summarizers.extractive.render import (
    RECORD_TITLE,
    earlier_entries,
    render,
)

# At most this part of the target stays empty while there is more to say.
_EMPTY_SHARE = 0.04
_PASSES = 10
# Beside a text that a model or the host writes, that text has this part of the target.
_PROSE_SHARE = 0.5
# ... and more where the caller asked for a summary.
_ASKED_PROSE_SHARE = 0.8
# A list that fits its target comes down to this part of itself where a summary was asked for.
_FULL_SHARE = 0.5
# A note of the host's this short stays in a message without being bought.
_SHORT_NOTE_CHARS = 800
# In less, one message tells of all that was before, the running request included.
_SMALL_TOKENS = 1_000


def make_plan(context: CompactionContext, session: Session) -> Plan:
    """What is done to the list; where history is replaced, `decide` says how much of it."""
    if session.applied is not None:
        return applied_plan(context, *session.applied)
    if session.rejections.is_spent or session.is_answered or not context.messages:
        return Plan(EditedMessages(context.messages), gentle_level(context, is_idle=False))
    return plan_of_mode(context, session.rejections.harder_levels)


def plan_of_mode(context: CompactionContext, refusals: int = 0) -> Plan:
    """The plan of the mode, after so many refusals by the provider."""
    request, is_over = context.request, context.budget.is_over
    is_idle = request.idle_seconds > context.settings.idle_clear_seconds
    level = gentle_level(context, is_idle=is_idle)
    match request.mode:
        case "record":
            return Plan(EditedMessages(context.messages), level)
        case "micro":
            clears_all = request.target_tokens is None
            return plan_by_clearing(
                context, replace(level, needs_minimum=False, clears_all=clears_all)
            )
        case "auto" | "plan" if not is_over:
            return below_trigger(context, level, is_idle=is_idle)
        case _ if not context.policy.replaces_history:
            return plan_by_clearing(context, level)
        case "reactive":
            return _after_refusal(context, level, refusals)
        case "full":
            return _own_cut_or_fill(context, always_cut=True)
        case _:
            return _clearing_that_fits(context, level) or _own_cut_or_fill(
                context, always_cut=False
            )


def _after_refusal(context: CompactionContext, level: EffortLevel, refusals: int) -> Plan:
    keep = context.settings.reactive_keep_messages
    if keep and not refusals:
        own = own_cut(context, replace(level, keep_messages=keep), always_cut=True)
        if own is not None:
            return own
    return _to_fill(context, refusals=1 + refusals)


def _clearing_that_fits(context: CompactionContext, level: EffortLevel) -> Plan | None:
    """The plan that replaces no history, where that is enough and no target is to be filled."""
    if context.limits.is_named and level.settings.scale_to_budget:
        return None
    cleared = plan_by_clearing(context, level)
    for plan in (cleared, collapsed(context, cleared)):
        if fits(context, assemble(context, plan).messages):
            return plan
    return None


def _own_cut_or_fill(context: CompactionContext, *, always_cut: bool) -> Plan:
    """The plan by the policy's own cut, or by the fill where it has none or that does not fit."""
    settings = context.settings
    if settings.replace_all or settings.keep_recent_of == "window":
        level = gentle_level(context, is_idle=False)
        if always_cut:
            # A summary was asked for: the newest run alone stays, however much would fit.
            newest_only = replace(context.settings, keep_recent_turns=0)
            level = replace(level, settings=newest_only, keep_fraction=0.0)
        own = own_cut(context, level, always_cut=always_cut)
        if own is not None:
            return own
    return _to_fill(context)


def _to_fill(context: CompactionContext, refusals: int = 0) -> Plan:
    """A plan that `decide` fills: until then all history is to be replaced."""
    level = replace(gentle_level(context, is_idle=False), unread_tokens=0)
    edited = EditedMessages(context.messages)
    where = CutPoint(len(context.messages))
    history = history_of(context.messages, where)
    return Plan(edited, level, where, history, fills=True, refusals=refusals)


def decide(
    context: CompactionContext,
    session: Session,
    plan: Plan,
    known: FilesInWork | None,
    on_disk: Mapping[str, DiskFile],
    read: Mapping[Span, Read],
    *,
    has_model: bool = False,
) -> Decision:
    """All that is decided before a text is written: what stays, and what the text replaces.

    Args:
        context: The call.
        session: Its session.
        plan: What the mode does.
        known: The files in work; None where none are needed.
        on_disk: Those that may be read, by path.
        read: The archived originals of earlier summaries.
        has_model: Whether there is a model to write the text.
    """
    archived = parsed_originals(read, context.format)
    files = checked_files(context, known, on_disk)
    if plan.fills:
        record = _record_of(context, archived, files)
        has_prose = brings_text(context.request) or (has_model and asks_model(context, plan))
        share = _PROSE_SHARE if has_prose and not plan.refusals else 0.0
        if has_prose and context.request.mode == "full":
            share = _ASKED_PROSE_SHARE
        filled = _filled(context, plan, record, prose_share=share)
        if filled.cut is None:
            # Nothing is put back where nothing is replaced: the results show the files.
            record = _record_of(context, archived, files, has_files=False)
            filled = _filled(context, plan, record, prose_share=share)
        plan = filled
    originals = originals_of(context, plan, archived)
    memory = summary_that_reaches(context, plan, session.states)
    return Decision(plan, files, originals, archived, memory)


def _record_of(
    context: CompactionContext,
    archived: Archived,
    known: FilesInWork,
    *,
    has_files: bool = True,
) -> Record:
    """The items of the list, with the originals of earlier summaries from the archive."""
    messages: list[Message] = []
    numbers: list[int | None] = []
    positions: list[int | None] = []
    labels: dict[int, str] = {}
    for at, message in enumerate(context.messages):
        span = span_of_ours(context, message)
        found = archived.get(span) if span is not None else None
        if found is not None and found.messages:
            messages += found.messages
            numbers += found.numbers
            positions += [None] * len(found.messages)
            continue
        if summary := carried_by(message):
            earlier = earlier_entries(summary.body)
            labels |= {len(messages) + n: label for n, label in earlier.labels.items()}
            messages += earlier.messages
            numbers += earlier.numbers
            positions += [None] * len(earlier.messages)
        messages.append(message)
        numbers.append(context.number_of(message))
        positions.append(at)
    newest = newest_results(context.messages)
    # Some formats have several messages for calls that are answered together.
    newest_at = min(newest.start, _newest_run(context) + 1) if newest else newest.start
    shift = len(messages) - len(context.messages)
    items = collect(
        tuple(messages),
        numbers,
        files=_files_of(context, known, shift) if has_files else (),
        earlier=labels,
        kinds=context.settings.tool_kinds,
        newest_at=newest_at + shift if newest else None,
    )
    if context.request.instructions:
        mark_focus(items, context.request.instructions)
    return Record(items, positions)


def _files_of(context: CompactionContext, known: FilesInWork, shift: int) -> Iterator[FileItem]:
    """The files in work, as they are on disk or as the conversation saw them last."""
    if not (context.policy.restores_files and context.settings.restore_files):
        return
    unread = newest_results(context.messages)
    for path, file in known.files.items():
        text, note, focus = file.text, "", file.focus
        if text is None:
            text = f"\n{LEFT_OUT}\n".join(part.text for part in file.parts)
        if file.unsure_since is not None:
            message = context.messages[file.unsure_since]
            note = unsure_note(context.number_of(message))
        if disk := known.on_disk.get(path):
            state = known.states.get(path)
            text, note = disk.text, CHANGED if state and state.is_changed else ""
        is_shown = unread and file.read_at >= unread.start
        if text.strip() and not (file.is_deleted or is_shown or holds_secrets(path)):
            at = file.touched_at + shift
            yield FileItem(path, text, at, focus, note, file.was_written, file.names)


def _filled(
    context: CompactionContext,
    plan: Plan,
    record: Record,
    *,
    prose: str = "",
    prose_share: float = 0.0,
    told_until: int = 0,
) -> Plan:
    """`plan` with its target filled.

    Args:
        context: The call.
        plan: What is to be filled.
        record: What it is filled from.
        prose: A text of a model's or the host's, which is the beginning of the summary.
        prose_share: The part of the target for such a text that is still to be written.
        told_until: The position up to which the prose tells of the list.
    """
    limit_tokens = context.share_tokens // 2**plan.refusals
    if context.request.mode == "full":
        whole_tokens = context.count.messages(context.messages)
        limit_tokens = min(limit_tokens, int(whole_tokens * _FULL_SHARE))
    prose_tokens = int(limit_tokens * prose_share)
    unused_tokens = context.share_tokens - limit_tokens + prose_tokens
    room_tokens, low, high = limit_tokens - prose_tokens, 0, 0
    best: tuple[int, Plan] | None = None
    least_start = 0
    safe = safe_cuts(context.messages, context.rules)
    for number in range(_PASSES):
        if number == _PASSES // 2 and best is not None and best[1].cut is not None:
            # A longer tail does not fit: what is left is for all else.
            least_start, high = best[1].cut.first_kept, 0
        room_tokens = max(0, room_tokens)
        left_tokens = fill(record.items, room_tokens, context.count)
        made = _cut_where_bought(
            context,
            plan,
            record,
            safe,
            prose=prose,
            told_until=told_until,
            least_start=least_start,
            is_whole=bool(prose or prose_share),
        )
        done = assemble(context, made, made.summary, made.checkpoint)
        spare_tokens = context.room_tokens(done.messages) - unused_tokens
        if spare_tokens >= 0 and fits(context, done.messages):
            low = room_tokens
            if best is None or spare_tokens < best[0]:
                best = spare_tokens, made
            if spare_tokens <= limit_tokens * _EMPTY_SHARE or _is_all_bought(record):
                break
        elif not room_tokens:
            break
        else:
            high = room_tokens
        wanted_tokens = room_tokens - left_tokens + spare_tokens - (HEAD_TOKENS if high else 0)
        is_between = low < wanted_tokens < (high or wanted_tokens + 1)
        room_tokens = wanted_tokens if is_between else (low + (high or 2 * low)) // 2
        if room_tokens in (low, high):
            break
    if best is not None:
        return replace(best[1], summary_tokens=max(prose_tokens, best[1].summary_tokens))
    return _last_resort(context, plan, record)


def _is_all_bought(record: Record) -> bool:
    return all(item.is_whole for item in record.items if item.kind != "replaced")


def _cut_where_bought(
    context: CompactionContext,
    plan: Plan,
    record: Record,
    safe: Sequence[bool],
    *,
    prose: str = "",
    told_until: int = 0,
    least_start: int = 0,
    is_whole: bool = False,
) -> Plan:
    """`plan` cut before the newest run of messages in which everything has something bought.

    `safe` is what `safe_cuts` says of the messages.
    """
    messages = context.messages
    start = max(least_start, _tail_start(context, record, safe, is_whole=is_whole))
    if prose:  # what it tells of is replaced, however much of that would fit
        start = max(start, told_until)
    if start == 0:
        request_at, everything = _newest_request(messages), range(len(messages))
        edited = with_bought(context, EditedMessages(messages), record, everything, request_at)
        return replace(plan, edited=edited, cut=None, history=(), prefix=())
    where = _cut_point(context, start)
    kept = [*range(start, len(messages))]
    request_at = where.request_at if where.request_at is not None else _newest_request(messages)
    edited = with_bought(context, EditedMessages(messages), record, kept, request_at)
    made = cut_at(context, edited, plan.level, where)
    before = [item for item in record.items if record.position_of(item) < start or item.path]
    stays = None if where.folds_request else where.request_at
    if prose:
        orders = {id(item) for item in orders_of(record.items)}
        before = [
            item
            for item in before
            if record.position_of(item) >= told_until
            or item.kind in ("rule", "wish", "media")
            or id(item) in orders
        ]
    untold = [item for item in before if record.position_of(item) != stays or item.kind == "deed"]
    first = start if stays is None or not made.prefix else stays
    pinned = [pin.text for pin in made.pins]
    summary = render((one for one in untold if record.position_of(one) < first), pinned)
    checkpoint = render((one for one in untold if record.position_of(one) >= first), pinned)
    if prose:
        recorded = "\n".join(filter(None, (summary, checkpoint)))
        text = f"{prose}\n{RECORD_TITLE}\n{recorded}" if recorded else prose
        summary, checkpoint = prose_texts(made, text)
    elif where.folds_request:
        summary, checkpoint = "\n".join(filter(None, (summary, checkpoint))), ""
    elif not made.history:
        summary, checkpoint = "", "\n".join(filter(None, (summary, checkpoint)))
    files = [item for item in record.items if item.path and item.bought]
    return replace(
        made,
        fills=True,
        refusals=plan.refusals,
        record=record,
        summary=summary,
        checkpoint=checkpoint,
        summary_tokens=context.count.text(summary),
        checkpoint_tokens=context.count.text(checkpoint),
        files=tuple((item.path, item.text, item.note) for item in files),
    )


def _newest_request(messages: tuple[Message, ...]) -> int | None:
    found = (at for at in reversed(range(len(messages))) if placeholders.is_request(messages[at]))
    return next(found, None)


def _cut_point(context: CompactionContext, start: int) -> CutPoint:
    request_at = _newest_request(context.messages)
    if request_at is None or request_at >= start:
        return CutPoint(start)
    is_small = context.share_tokens < _SMALL_TOKENS
    folds_request = is_small or context.settings.split_turn == "summary"
    return CutPoint(start, request_at, folds_request=folds_request)


def _tail_start(
    context: CompactionContext, record: Record, safe: Sequence[bool], *, is_whole: bool
) -> int:
    """The position from which on every message has something bought of all its items.

    Behind prose everything `is_whole` there: what a name alone is left of, prose does not tell.
    """
    messages = context.messages
    request_at = _newest_request(messages)
    missing = {at for at, one in enumerate(messages) if placeholders.is_synthetic(one)}
    for item in record.items:
        at = record.position_of(item)
        if at < 0 or item.path or item.kind in DERIVED:
            continue
        is_partial = is_whole and not (item.is_whole or item.is_unread or at == request_at)
        if is_partial or _is_missing(item, is_request=at == request_at):
            missing.add(at)
    start = len(messages)
    while start and start - 1 not in missing:
        start -= 1
    is_asked = context.request.mode == "full"
    if start == 0 and not is_asked:
        return 0
    if is_asked and is_whole:
        start = max(start, _newest_run(context))
    elif start == 0:
        start = max(1, _newest_run(context))
    fitting = [at for at in range(start, len(messages) + 1) if safe[at]]
    return fitting[0] if fitting else max(at for at in range(len(messages)) if safe[at])


def _newest_run(context: CompactionContext) -> int:
    return max((first for first, _ in runs(context.messages, context.rules)), default=0)


def _is_missing(item: Item, *, is_request: bool) -> bool:
    """Whether the message of an item cannot stay, because too little was bought of it."""
    match item.kind:
        case "user" | "closing" | "remark" if item.block == -1:
            return not (is_request or item.is_whole)  # a long request becomes an extract
        case "host":
            return not item.is_whole and sum(map(len, item.pieces)) > _SHORT_NOTE_CHARS
        case _:
            # Other results of the newest call, and those beside the request, are cleared.
            return not (is_request or item.bought or item.is_unread)


def _last_resort(context: CompactionContext, plan: Plan, record: Record) -> Plan:
    """The smallest list there is: the request's beginning, and what may not be parted from it."""
    level = replace(plan.level, is_last=True)
    for item in record.items:
        item.bought, item.is_unread = set(), False
    for item in orders_of(record.items)[-1:]:
        for first in item.order[:1]:
            if 2 * context.count.text(item.pieces[first]) <= context.share_tokens:
                item.bought = {first}
    safe = safe_cuts(context.messages, context.rules)
    made = _cut_where_bought(context, replace(plan, level=level), record, safe)
    cleared = plan_by_clearing(context, replace(level, clears_all=True, needs_minimum=False))
    made_tokens = context.count.messages(assemble(context, made).messages)
    is_smaller = context.count.messages(cleared.edited.messages) < made_tokens
    return cleared if made.cut is None and is_smaller else made


def written(
    context: CompactionContext, decision: Decision, words: SummaryText | None
) -> tuple[Plan, SummaryText]:
    """The text that the list will contain, and the plan with the room that it leaves filled."""
    plan, memory = decision.plan, decision.memory
    told_until = plan.cut.first_kept if plan.cut else 0
    if words is None and memory is not None:
        words = _saved_words(memory)
        since = [message.index for message in memory.since]
        if since:
            told_until = next(
                at for at, one in enumerate(context.messages) if one.index == since[0]
            )
    elif words is None and context.request.summary is not None:
        words = summary_to_record(context)
    words = words or SummaryText("", "")
    if plan.cut is None:
        return plan, words
    if plan.record is None:
        if words.prose:
            summary, checkpoint = prose_texts(plan, words.prose)
            return plan, replace(words, summary=summary, checkpoint=checkpoint)
        made = extracts(context, plan, decision.originals)
        return plan, replace(words, summary=made.summary, checkpoint=made.checkpoint)
    record = plan.record
    if words.prose:
        plan = _filled(context, plan, record, prose=words.prose, told_until=told_until)
    elif plan.summary_tokens > context.count.text(plan.summary):
        # No prose came for the room that was left to it.
        plan = _filled(context, plan, record)
    return plan, replace(words, summary=plan.summary, checkpoint=plan.checkpoint)


def _saved_words(match: SummaryMatch) -> SummaryText:
    """An earlier summary as the prose of this one."""
    memory = match.memory
    used: JsonObject = {
        "writer": memory.writer,
        "at_seconds": memory.at_seconds,
        "stop_seq": memory.stop_seq,
        "messages_since": len(match.since),
        "tokens_since": max(0, match.gap_tokens),
    }
    return SummaryText("", "", "memory", prose=memory.text, memory=used)
