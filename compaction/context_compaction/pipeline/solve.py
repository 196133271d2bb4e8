"""Plan a call: by its mode, by clearing, or by one greedy fill of the target.

If clearing is not enough, every message and action competes for the target, and `fill` buys the
cheapest pieces. The newest run of messages in which every message has something bought stays.
Earlier bought pieces become the text of the summary. Files get a separate message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from context_compaction.archive.values import ArchivedMessage
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    FilesInWork,
    Plan,
    SummaryText,
)
from context_compaction.file_access import DiskFile
from context_compaction.layers.base import FileText, LayerContext
from context_compaction.layers.cut_point import CutPoint, history_of
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Messages
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import newest_results
from context_compaction.messages.tool_pairs import newest_run, safe_cuts
from context_compaction.pipeline.assemble import assemble, file_items, with_disk
from context_compaction.pipeline.cut import (
    applied_plan,
    below_trigger,
    clearing_context,
    collapsed,
    cut_at,
    plan_by_clearing,
    plan_by_policy,
    plan_of_range,
    without_minimum,
)
from context_compaction.pipeline.shorten import DERIVED, SHORT_NOTE_CHARS, shorten_to_bought
from context_compaction.pipeline.summarize import (
    brings_text,
    find_saved_summary,
    originals_of,
    parsed_originals,
    uses_model,
    with_archived,
    with_extracts,
    with_prose,
)
from context_compaction.request import DETAIL_SHARES
from context_compaction.summarizers.extractive.collect import collect
from context_compaction.summarizers.extractive.items import (
    HEAD_TOKENS,
    Item,
    Market,
    Record,
    fill,
    mark_focus,
    orders_of,
)
from context_compaction.summarizers.extractive.render import (
    EXTRACTS_TITLE,
    RULE_KINDS,
    earlier_entries,
    render,
)

# At most this share of the target stays empty while items are left to buy.
_EMPTY_SHARE = 0.04
_PASSES = 10
# A text that a model or the host writes gets this share of the room that pins, rules, running work
# and the newest request leave. The newest messages fill the rest.
_PROSE_SHARE = 0.95
# Longer texts add little. Claude Code limits its summaries to as many tokens.
_MAX_PROSE_TOKENS = 20_000
# The user's rules and the newest request next to such a text get at most these shares.
_RULES_SHARE, _REQUEST_SHARE = 0.1, 0.15
# The line with the names of changed files next to such a text gets at most this share.
_CHANGED_FILES_SHARE = 0.03
# Below this target one summary covers everything, including the running request.
_SMALL_TOKENS = 1_000


def make_plan(context: CompactionContext) -> Plan:
    """Return the plan of the call's mode; `decide` fills the target if history is replaced."""
    session = context.session
    if session.applied is not None:
        return applied_plan(context, *session.applied)
    if session.rejections.is_spent or session.is_repeated or not context.messages:
        return Plan(EditedMessages(context.messages))
    request = context.request
    if request.range is not None:
        return plan_of_range(context)
    is_idle = request.idle_seconds > context.settings.idle_clear_seconds
    clears = clearing_context(context, is_idle=is_idle)
    match request.mode:
        case "record":
            return Plan(EditedMessages(context.messages))
        case "micro":
            limit_tokens = 0 if request.target_tokens is None else context.budget.message_tokens
            clears = replace(without_minimum(clears), limit_tokens=limit_tokens)
            return plan_by_clearing(context, clears)
        case "auto" | "plan" if not context.budget.is_over:
            return below_trigger(context, clears, is_idle=is_idle)
        case _ if not context.policy.replaces_history:
            return plan_by_clearing(context, clears)
        case "reactive":
            return _plan_after_rejection(context)
        case "full":
            return _policy_plan_or_fill(context, always_cut=True)
        case _:
            cleared = _clearing_that_fits(context, clears)
            return cleared or _policy_plan_or_fill(context, always_cut=False)


def _plan_after_rejection(context: CompactionContext) -> Plan:
    keep_messages, tries = (
        context.settings.reactive_keep_messages,
        context.session.rejections.versions,
    )
    by_policy = None
    if keep_messages and tries == 1:
        by_policy = plan_by_policy(context, always_cut=True, keep_messages=keep_messages)
    return by_policy or _plan_to_fill(context, rejections=tries)


def _clearing_that_fits(context: CompactionContext, clears: LayerContext) -> Plan | None:
    """Return the plan that replaces no history, if that fits and no target has to be filled."""
    if context.budget.fills_target and context.settings.scale_to_budget:
        return None
    cleared = plan_by_clearing(context, clears)
    for plan in (cleared, collapsed(context, clears, cleared)):
        if context.fits(assemble(context, plan).messages):
            return plan
    return None


def _policy_plan_or_fill(context: CompactionContext, *, always_cut: bool) -> Plan:
    """Return the plan by the policy's cut rule; a fill if it has none or the cut does not fit."""
    has_rule = context.settings.replace_all or context.settings.keep_recent_of == "window"
    by_policy = plan_by_policy(context, always_cut=always_cut) if has_rule else None
    return by_policy or _plan_to_fill(context)


def _plan_to_fill(context: CompactionContext, rejections: int = 0) -> Plan:
    """Return a plan that `decide` fills; until then all history is replaced."""
    cut = CutPoint(len(context.messages))
    history = history_of(context.messages, cut)
    edited = EditedMessages(context.messages)
    return Plan(edited, cut, history, fills=True, rejections=rejections)


def decide(
    context: CompactionContext,
    plan: Plan,
    files: FilesInWork | None,
    on_disk: Mapping[str, DiskFile],
    read: Mapping[Span, Sequence[ArchivedMessage]],
    *,
    has_model: bool = False,
) -> Plan:
    """Return the complete plan, with the messages that the summary's text replaces.

    Args:
        context: The call.
        plan: The plan of the mode.
        files: The files in work; None if none are needed.
        on_disk: The files that were read, by path.
        read: The archived originals of earlier summaries.
        has_model: Whether a model can write the text.
    """
    plan = replace(
        plan,
        files=with_disk(context, files, on_disk),
        archived=parsed_originals(read, context.format),
    )
    if plan.fills:
        has_prose = brings_text(context.request) or (has_model and uses_model(context, plan))
        record = _record_of(context, plan, has_files=not has_prose)
        filled = plan
        if has_prose and not plan.rejections:
            filled = _Filling(context, plan, record, prose=".").with_room_for_prose()
        if not filled.text_tokens:
            filled = _Filling(context, plan, record).filled()
            if filled.cut is None and not has_prose:
                # Without a summary no file is restored: the tool results show the files.
                record = _record_of(context, plan, has_files=False)
                filled = _Filling(context, plan, record).filled()
        plan = filled
    plan = replace(plan, originals=cache(partial(originals_of, context, plan)))
    return replace(plan, memory=find_saved_summary(context, plan))


def _record_of(context: CompactionContext, plan: Plan, *, has_files: bool = True) -> Record:
    """Return the items of the list, with the archived originals of earlier summaries."""
    messages: list[Message] = []
    numbers: list[int | None] = []
    positions: list[int | None] = []
    labels: dict[int, str] = {}
    unfolded = with_archived(context, context.messages, plan.archived)
    for position, (message, originals) in enumerate(unfolded):
        if originals.unarchived:
            earlier = earlier_entries(originals.unarchived)
            labels |= {len(messages) + n: label for n, label in earlier.labels.items()}
            messages += earlier.messages
            numbers += earlier.numbers
        messages += originals.messages
        numbers += originals.numbers
        positions += [None] * (len(messages) - len(positions))
        if not originals.messages:
            messages.append(message)
            numbers.append(context.number_of(message))
            positions.append(position)
    newest = newest_results(context.messages)
    # Some formats have several messages for calls whose results come together.
    newest_at = min(newest.start, _newest_run(context) + 1) if newest else newest.start
    shift = len(messages) - len(context.messages)
    items = collect(
        tuple(messages),
        numbers,
        files=file_items(context, plan.files, shift) if has_files else (),
        earlier=labels,
        kinds=context.settings.tool_kinds,
        newest_at=newest_at + shift if newest else None,
    )
    if context.request.instructions:
        mark_focus(items, context.request.instructions)
    return Record(items, positions)


@dataclass(frozen=True)
class _Filling:
    """A fill of the target, with the values that all of its passes use.

    Attributes:
        context: The call.
        plan: The plan to fill.
        record: The items to buy.
        prose: A text of a model or the host, which starts the summary; "" for extracts alone.
        covered_until: Index of the first message that the prose does not describe.
    """

    context: CompactionContext
    plan: Plan
    record: Record
    prose: str = ""
    covered_until: int = 0

    @cached_property
    def _safe(self) -> Sequence[bool]:
        """For each index whether the messages may be cut before it."""
        return safe_cuts(self.context.messages, self.context.rules)

    def filled(self) -> Plan:
        """Return the plan with its target filled.

        Each pass buys items for an amount of tokens, measures the whole result, and corrects the
        amount by the tokens that are left or missing.
        """
        context, record, prose = self.context, self.record, self.prose
        limit_tokens = _limit_tokens(context, self.plan)
        unused_tokens = context.share_tokens - limit_tokens
        room_tokens, low, high = limit_tokens - context.count.text(prose), 0, 0
        best: tuple[int, Plan] | None = None
        least_start = 0
        market = None if prose else Market(record.items, context.count)
        for number in range(_PASSES):
            if number == _PASSES // 2 and best is not None and best[1].cut is not None:
                # A longer tail does not fit, so the room that is left goes to everything else.
                least_start, high = best[1].cut.first_kept, 0
                low = 0 if prose else low  # extracts are shown from now on, so less may fit
            if best is None and number >= _PASSES - 2:
                # The last tries are half of the room that was too much, and the smallest list.
                room_tokens = high // 2 if number == _PASSES - 2 else 0
            room_tokens = max(0, room_tokens)
            fill_room = market.fill if market else self._buy_next_to_text
            remaining_tokens = fill_room(room_tokens)
            candidate = self._cut_where_bought(least_start=least_start)
            done = assemble(context, candidate)
            spare_tokens = context.room_tokens(done.messages) - unused_tokens
            if spare_tokens >= 0 and context.fits(done.messages):
                low = room_tokens
                if best is None or spare_tokens < best[0]:
                    best = spare_tokens, candidate
                is_full = spare_tokens <= limit_tokens * _EMPTY_SHARE
                if is_full or all(i.is_complete for i in record.items if i.kind != "replaced"):
                    break
            elif not room_tokens:
                break
            else:
                high = room_tokens
            corrected_tokens = _corrected(room_tokens, spare_tokens - remaining_tokens)
            room_tokens = _between(corrected_tokens - (HEAD_TOKENS if high else 0), low, high)
            if room_tokens in (low, high):
                break
        return self._smallest() if best is None else best[1]

    def with_room_for_prose(self) -> Plan:
        """Return the plan with room for a text that a model or the host writes.

        The text describes everything except unread results, and the newest messages if they are
        short. The room that it leaves is filled later.
        """
        context, record = self.context, self.record
        limit_tokens = _limit_tokens(context, self.plan)
        left_tokens = int(limit_tokens * (1 - _PROSE_SHARE))
        for at in reversed(range(len(context.messages))):
            left_tokens -= context.count.message(context.messages[at])
            for item in record.by_position.get(at, ()):
                item.bought = set(range(len(item.pieces)) if left_tokens >= 0 else ())
        rules = [item for item in record.items if item.kind in RULE_KINDS]
        fill(rules, int(limit_tokens * _RULES_SHARE), context.count)
        fill(orders_of(record.items)[-1:], int(limit_tokens * _REQUEST_SHARE), context.count)
        frame = self._cut_where_bought()
        done = assemble(context, frame)
        room_tokens = context.room_tokens(done.messages) - context.share_tokens + limit_tokens
        text_tokens = max(0, min(int(room_tokens * _PROSE_SHARE), _MAX_PROSE_TOKENS))
        return replace(frame, summary="", checkpoint="", text_tokens=text_tokens)

    def _buy_next_to_text(self, room_tokens: int) -> int:
        """Buy what fits next to a text: newest messages, the newest request and rules.

        Only messages that may fit are considered, because others would not be shown. Return the
        tokens that are left.
        """
        context, record = self.context, self.record
        start, tokens = len(context.messages), 0
        while start and (start > self.covered_until > 0 or tokens < 2 * room_tokens):
            start -= 1
            tokens += context.count.message(context.messages[start])
        request = orders_of(record.items)[-1:]
        sale: list[Item] = []
        for item in record.items:
            item.bought = set()
            is_offered = (
                item.kind in RULE_KINDS or item in request or record.position_of(item) >= start
            )
            if is_offered and not item.path:
                sale.append(item)
        return fill(sale, room_tokens, context.count)

    def _cut_where_bought(self, *, least_start: int = 0, removes_rules: bool = False) -> Plan:
        """Return the plan cut before the newest run of messages that all have something bought."""
        context, plan, record, prose = self.context, self.plan, self.record, self.prose
        messages = context.messages
        start = max(least_start, self._tail_start())
        if prose and not start:
            # A summary needs something to replace.
            start = next((at for at in range(1, len(messages)) if self._safe[at]), len(messages))
        cut = _cut_point(context, start) if start else CutPoint(0)
        request_at = cut.request_at
        if request_at is None:
            request_at = _newest_request(messages)
        retained = range(start, len(messages))
        edited = shorten_to_bought(context, EditedMessages(messages), record, retained, request_at)
        if start == 0:
            return replace(plan, edited=edited, cut=None, history=(), prefix=())
        cut_plan = cut_at(context, edited, cut, removes_rules=removes_rules)
        # If no more messages fit whole, extracts of the next ones may fill the rest.
        covered_until = 0 if least_start else self.covered_until
        files = [item for item in record.items if item.path and item.bought]
        plan = replace(
            plan,
            edited=cut_plan.edited,
            cut=cut,
            history=cut_plan.history,
            prefix=cut_plan.prefix,
            pins=cut_plan.pins,
            record=record,
            bought_files=tuple(FileText(item.path, item.text, item.note) for item in files),
        )
        texts = self._bought_texts(cut, cut_plan, covered_until)
        joined = "\n".join(filter(None, texts))
        if prose:
            extract = "\n".join(filter(None, (joined, _changed_files(context, plan))))
            plan = with_prose(plan, f"{prose}\n{EXTRACTS_TITLE}\n{extract}" if extract else prose)
        else:
            if cut.folds_request or not plan.history:
                texts = (joined, "") if cut.folds_request else ("", joined)
            plan = replace(plan, summary=texts[0], checkpoint=texts[1])
        text_tokens = sum(map(context.count.text, (plan.summary, plan.checkpoint)))
        return replace(plan, text_tokens=text_tokens)

    def _bought_texts(self, cut: CutPoint, plan: Plan, covered_until: int) -> tuple[str, str]:
        """Return the bought pieces of replaced messages, for the summary and the checkpoint."""
        start, request_at = cut.first_kept, None if cut.folds_request else cut.request_at
        items = [
            (at, item)
            for item in self.record.items
            if item.bought and not item.path and (at := self.record.position_of(item)) < start
            if not self.prose or at >= covered_until or item.kind in RULE_KINDS
            if at != request_at or item.kind == "action"
        ]
        first_inside = start if request_at is None or not plan.prefix else request_at
        pinned = [pin.text for pin in plan.pins]
        before = (item for at, item in items if at < first_inside)
        inside = (item for at, item in items if at >= first_inside)
        return render(before, pinned), render(inside, pinned)

    def _tail_start(self) -> int:
        """Return the index from which on every message has something bought of all its items."""
        context, messages = self.context, self.context.messages
        start, request_at = len(messages), _newest_request(messages)
        while start and not placeholders.is_synthetic(messages[start - 1]):
            at = start - 1
            items = (
                item for item in self.record.by_position.get(at, ()) if item.kind not in DERIVED
            )
            if any(_is_missing(item, is_request=at == request_at) for item in items):
                break
            start = at
        if start == 0:
            if context.request.mode != "full":
                return 0
            start = max(1, _newest_run(context))
        fitting = [at for at in range(start, len(messages) + 1) if self._safe[at]]
        return fitting[0] if fitting else max(at for at in range(len(messages)) if self._safe[at])

    def _smallest(self) -> Plan:
        """Return the smallest list: the beginning of the request, and messages bound to it."""
        context, plan, record = self.context, self.plan, self.record
        for item in record.items:
            item.bought, item.is_unread = set(), False
        for item in orders_of(record.items)[-1:]:
            for first in item.order[:1]:
                if 2 * context.count.text(item.pieces[first]) <= context.share_tokens:
                    item.bought = {first}
        smallest = _Filling(context, plan, record)._cut_where_bought(removes_rules=True)
        if smallest.cut is not None:
            return smallest
        clears = replace(clearing_context(context), limit_tokens=0, unread_tokens=0)
        edited = plan_by_clearing(context, without_minimum(clears)).edited
        cleared = replace(plan, edited=edited, cut=None, history=())
        smallest_tokens = context.count.messages(assemble(context, smallest).messages)
        is_smaller = context.count.messages(cleared.edited.messages) < smallest_tokens
        return cleared if is_smaller else smallest


def _corrected(room_tokens: int, spare_tokens: int) -> int:
    """Return a better room after a fill that left `spare_tokens`; negative if it took too many."""
    if spare_tokens >= 0:
        return room_tokens + spare_tokens
    # A piece keeps a whole message, so what is missing alone may never be enough.
    if spare_tokens >= -room_tokens // 4:
        return room_tokens + 2 * spare_tokens
    # Many short items cost more than their text, so subtracting would remove too much.
    return room_tokens * room_tokens // (room_tokens - spare_tokens)


def _between(room_tokens: int, low: int, high: int) -> int:
    """Return `room_tokens` if they are between the limits, else the middle; 0 is no upper limit."""
    is_between = low < room_tokens < (high or room_tokens + 1)
    return room_tokens if is_between else (low + (high or 2 * low)) // 2


def _limit_tokens(context: CompactionContext, plan: Plan) -> int:
    """Return the tokens that a fill may use for all messages that do not stay at any cut."""
    limit_tokens = context.share_tokens >> plan.rejections
    if context.request.mode != "full":
        return limit_tokens
    share = DETAIL_SHARES[context.request.detail or "full"]
    return min(limit_tokens, int(context.count.messages(context.messages) * share))


def _changed_files(context: CompactionContext, plan: Plan) -> str:
    """Return an entry with the names of the files that the agent changed, newest first; or ""."""
    left_tokens = int(context.share_tokens * _CHANGED_FILES_SHARE)
    changed = (file for file in plan.files.files.values() if file.was_written)
    names: list[str] = []
    for file in sorted(changed, key=lambda file: -file.written_at):
        left_tokens -= context.count.text(file.path) + 1
        if left_tokens < 0:
            break
        names.append(file.path)
    return f"- host: Changed files: {', '.join(names)}" if names else ""


def _newest_request(messages: Messages) -> int | None:
    indices = reversed(range(len(messages)))
    return next((at for at in indices if placeholders.is_request(messages[at])), None)


def _cut_point(context: CompactionContext, start: int) -> CutPoint:
    request_at = _newest_request(context.messages)
    if request_at is None or request_at >= start:
        return CutPoint(start)
    is_small = context.share_tokens < _SMALL_TOKENS
    folds_request = is_small or context.settings.split_turn == "summary"
    return CutPoint(start, request_at, folds_request=folds_request)


def _newest_run(context: CompactionContext) -> int:
    return (newest_run(context.messages, context.rules) or (0, 0))[0]


def _is_missing(item: Item, *, is_request: bool) -> bool:
    """Whether too little of an item was bought for its message to stay."""
    match item.kind:
        case "user" | "closing" | "remark" if item.block == -1:
            # A long request stays as an extract.
            return not (is_request or item.is_complete)
        case "host":
            return not item.is_complete and sum(map(len, item.pieces)) > SHORT_NOTE_CHARS
        case _:
            # Other results of the newest call, and results next to the request, are cleared.
            return not (is_request or item.bought or item.is_unread)


def with_text(
    context: CompactionContext, plan: Plan, words: SummaryText
) -> tuple[Plan, SummaryText]:
    """Return the plan with its texts, and with the room that they leave filled."""
    if plan.cut is None:
        return plan, words
    if plan.record is None:
        has_prose = bool(words.prose)
        return with_prose(plan, words.prose) if has_prose else with_extracts(context, plan), words
    filled = plan
    if words.prose:
        until = _covered_until(context, plan, plan.cut)
        filled = _Filling(context, plan, plan.record, words.prose, until).filled()
        if words.prose not in f"{filled.summary}{filled.checkpoint}":
            warning = "The summary does not fit. Verbatim extracts take its place."
            words = SummaryText(warnings=(*words.warnings, warning), model=words.model)
    if plan.text_tokens and not (words.prose or plan.summary or plan.checkpoint):
        # Room was reserved for prose, but none was written.
        filled = _Filling(context, plan, _record_of(context, plan)).filled()
    return filled, words


def _covered_until(context: CompactionContext, plan: Plan, cut: CutPoint) -> int:
    """Return the index of the first message that the writer's text does not describe."""
    if plan.memory is None or not plan.memory.since:
        return cut.first_kept
    first, messages = plan.memory.since[0].index, enumerate(context.messages)
    return next(at for at, message in messages if message.index == first)
